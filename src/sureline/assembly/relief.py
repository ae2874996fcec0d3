"""Runs that go on by themselves: a keeper whose run has no writer any more has it taken over.

Every peer that keeps copies and may drive (role `drive`) looks at them. A run whose writer has been
silent for as long as its submitter said is due. Which of its voters begins follows from a hash of
run and peer; the others wait a little longer each, in case the first is gone too, and all of them
a moment more or less, so that two rarely ask at once. Whoever begins still has to be granted the
run's next epoch (`run.claiming`): being wrong here costs a few messages.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import inf

from sureline.run.keeper import Keeper
from sureline.run.keeping import RunKnown
from sureline.run.kept import KeptRuns
from sureline.run.keys import digest_of
from sureline.world.address import AgentId, peer_of
from sureline.world.protocol import World

LOOK_S = 1.0
STAGGER_S = 2.0
"""How much longer each voter waits than the one before it."""
JITTER_S = 0.5
AGAIN_S, AGAIN_S_MAX = 5.0, 300.0
"""After a try that came to nothing; doubles each time."""
AT_ONCE_MAX = 20
"""Runs that one machine drives for others."""

TakeOver = Callable[[str, float, Callable[[], None]], None]
"""Has a process ask for a run, in so many seconds, and drive it; calls back when that is over."""


class Relief:
    """`drivers` names the peers that could do it and are there. `take_over` is called `ahead_s`
    before its time: a process needs a while before it can ask."""

    def __init__(
        self,
        world: World,
        me: AgentId,
        keeper: Keeper,
        kept: KeptRuns,
        drivers: Callable[[], Sequence[str]],
        take_over: TakeOver,
        ahead_s: float = 0.0,
    ) -> None:
        self._world = world
        self._name = peer_of(me)
        self._keeper = keeper
        self._kept = kept
        self._drivers = drivers
        self._take_over = take_over
        self._ahead_s = ahead_s
        self._jitter_s: dict[str, float] = {}
        self._not_before_s: dict[str, float] = {}
        self._again_s: dict[str, float] = {}
        self._under_way: set[str] = set()

    def start(self) -> None:
        self._world.after(LOOK_S, self._look)

    def _look(self) -> None:
        drivers = None
        for known in self._kept.known():
            if not known.takeover_after_s or known.state != "running" or not known.whole:
                continue
            if known.run in self._under_way or len(self._under_way) >= AT_ONCE_MAX:
                continue
            if self._keeper.silent_s(known.run) < known.takeover_after_s - self._ahead_s:
                self._again_s.pop(known.run, None)
                continue
            drivers = self._drivers() if drivers is None else drivers
            in_s = self._due_in_s(known, drivers)
            if in_s <= self._ahead_s:
                self._begin(known.run, max(0.0, in_s))
        self._world.after(LOOK_S, self._look)

    def _due_in_s(self, known: RunKnown, drivers: Sequence[str]) -> float:
        run, now_s = known.run, self._world.elapsed()
        able = [name for name in known.voters if name in drivers]
        if self._name not in able or now_s < self._not_before_s.get(run, 0.0):
            return inf
        able.sort(key=lambda name: digest_of(f"{run} {known.epoch} {name}".encode()))
        jitter_s = self._jitter_s.setdefault(run, JITTER_S * self._world.random.random())
        wait_s = known.takeover_after_s + STAGGER_S * able.index(self._name) + jitter_s
        return wait_s - self._keeper.silent_s(run)

    def _begin(self, run: str, in_s: float) -> None:
        self._under_way.add(run)

        def over() -> None:
            self._under_way.discard(run)
            self._jitter_s.pop(run, None)
            again_s = self._again_s.get(run, AGAIN_S)
            self._again_s[run] = min(AGAIN_S_MAX, 2 * again_s)
            apart = 0.5 + self._world.random.random()  # others who asked with it wait as long
            self._not_before_s[run] = self._world.elapsed() + apart * again_s

        self._take_over(run, in_s, over)
