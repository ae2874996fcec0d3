"""The half beside a run's writer: every ready task is sent to a site at once, and waits there.

That is what tells this strategy from the others here: it does not ask who has room. It sees only
how jobs fared, takes back those that stay in a queue for too long (the paper's queue monitor), and
leaves a site alone for a while that fails everything it gets.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from sureline.journal.control import Control, SiteRecord
from sureline.peer.capacity import Ledger
from sureline.run.asking import SentEarlier, SentFound
from sureline.run.port import Action, Bound, Deciding, Engine, Noted, Over, Seat, Target, Unknown
from sureline.strategies.opportunistic.outside import OutsideSelector
from sureline.strategies.opportunistic.selectors import SELECTORS, SiteQuestion, SiteState
from sureline.strategies.opportunistic.settings import OpportunisticSettings
from sureline.strategies.opportunistic.whereabouts import Whereabouts
from sureline.workflow.model import Needs, Task
from sureline.world.address import PeerName
from sureline.world.protocol import Fetched

CHOSEN = "chosen"
LOOKS_PER_LIMIT = 10
"""How often a queue is looked at within the time that a job may stay in it."""
PAUSE_S = 15.0
PAUSE_MAX_S = 1800.0
BLACK_HOLE = 3
"""Failures in a row, and no success in between, after which a site is left alone for a while."""


class _Choice(msgspec.Struct, frozen=True):
    """What is noted of a choice, for whoever resumes the run."""

    site: str
    selector: str
    submitted: int
    ended: int


class SiteClient(Deciding):
    def __init__(self, seat: Seat) -> None:
        settings = seat.settings
        assert isinstance(settings, OpportunisticSettings), "the registry makes them"
        self._world = seat.world
        self._settings = settings
        self._selector = SELECTORS["opportunistic" if settings.program else settings.selector]()
        self._outside: OutsideSelector | None = None
        self._control = Control(settings.window)
        self._whereabouts = Whereabouts()
        self._targets: dict[PeerName, Target] = {}
        self._whole: dict[PeerName, Ledger] = {}
        """What each of them has in all."""
        self._ready: dict[int, None] = {}
        self._left: dict[int, PeerName] = {}
        """Tasks that are planned anew, and the site whose queue they were taken from."""
        self._paused: dict[PeerName, float] = {}
        """Until when a site is left alone."""
        self._turn = 0
        self._is_over = False
        self._earlier: dict[str, PeerName] = {}
        """Where each task was sent by an earlier process: it may still be there."""

    # -- hearing -------------------------------------------------------------------------------

    def begin(self, engine: Engine, past: Sequence[Noted | Unknown], go: Action) -> None:
        self._engine = engine
        if self._settings.program:
            given = (self._settings.program, self._settings.selector_s)
            self._outside = OutsideSelector(*given, self._world, engine.tell)
        for noted in past:
            if isinstance(noted, Noted) and noted.kind == CHOSEN:
                self._earlier[noted.task] = PeerName(noted.peer)
        if self._settings.idle_s > 0:
            self._world.after(self._look_s, self._look_at_queues)
        if not self._settings.earlier:
            go()
            return

        def found(fetched: Fetched) -> None:
            if isinstance(fetched, SentFound):
                shift_s = self._world.elapsed() - self._world.now()
                self._control.remember(fetched.rows, shift_s)
            go()

        self._world.fetch(SentEarlier(self._settings.earlier), (), found)

    def target(self, target: Target) -> None:
        self._targets[target.name] = target
        self._whole[target.name] = Ledger(target.capacity)

    def gone(self, target: PeerName) -> None:
        self._targets.pop(target, None)
        self._whole.pop(target, None)

    def stands(self, task: int, committed: bool) -> None:
        """What an earlier process was told counts too."""
        name = self._engine.graph.tasks[task].name
        site = self._earlier.pop(name, None)
        if committed and site is not None:
            record = self._control.site(site)
            record.submitted += 1
            record.ended += 1

    def ready(self, task: int) -> None:
        self._ready[task] = None

    def bound(self, bound: Bound) -> None:
        self._ready.pop(bound.task, None)
        task = self._engine.graph.tasks[bound.task]
        self._control.submitted(bound.target, task.name, bound.attempt, self._world.elapsed())
        if bound.started:
            self.started(bound)

    def started(self, bound: Bound) -> None:
        task = self._engine.graph.tasks[bound.task]
        row = self._control.started(bound.target, task.name, bound.attempt, self._world.elapsed())
        if row is not None and row.started_s is not None:
            missing = self._whereabouts.missing_bytes(self._engine.graph, task, bound.target)
            self._whereabouts.brought(missing, row.started_s - row.at_s)
        self._whereabouts.has(bound.target, task.inputs)

    def over(self, over: Over) -> None:
        bound, now_s = over.bound, self._world.elapsed()
        task = self._engine.graph.tasks[bound.task]
        args = (bound.target, task.name, bound.attempt, over.ending, task.kind_name, now_s)
        self._control.over(*args)
        if over.ending == "succeeded":
            self._whereabouts.has(bound.target, task.outputs)
        record = self._control.site(bound.target)
        failed = over.ending not in ("succeeded", "withdrawn", "cancelled")
        is_hole = failed and record.failed_in_a_row >= BLACK_HOLE
        if is_hole and not self._settings.as_printed:
            times = record.failed_in_a_row - BLACK_HOLE
            pause_s = min(PAUSE_MAX_S, PAUSE_S * 2 ** min(times, 10))
            self._paused[bound.target] = now_s + pause_s
            self._world.after(pause_s, self._engine.wake)

    def end(self) -> None:
        self._is_over = True

    # -- the queue monitor ---------------------------------------------------------------------

    @property
    def _look_s(self) -> float:
        return max(1.0, self._settings.idle_s / LOOKS_PER_LIMIT)

    def _look_at_queues(self) -> None:
        if self._is_over:
            return
        index = self._engine.graph.index
        for row in self._control.idle(self._world.elapsed(), self._settings.idle_s):
            task = index[row.task]
            if self._others(self._engine.graph.tasks[task].needs, row.site):
                self._left[task] = row.site
                self._engine.withdraw(task, row.attempt)
        self._world.after(self._look_s, self._look_at_queues)

    def _others(self, needs: Needs, but: PeerName) -> bool:
        return any(target.name != but for target in self._able(needs))

    # -- choosing ------------------------------------------------------------------------------

    def decide(self) -> None:
        self._send_where_it_was()
        if not any(self._has_room(target) for target in self._targets.values()):
            return
        full: set[Needs] = set()
        """What no site takes more of just now: nothing else that needs it is looked at."""
        for task in sorted(self._ready, key=lambda task: (-self._engine.urgency(task), task)):
            needs = self._engine.graph.tasks[task].needs
            if needs in full:
                continue
            if not self._engine.wanted(task):
                del self._ready[task]
                continue
            asked = self._asked(task)
            if not asked.sites:  # until a site comes, recovers, or has worked off its queue
                if task not in self._left and not self._engine.unfit(task):
                    full.add(needs)
                continue
            chosen = self._chosen(task, asked)
            if chosen is None:
                continue
            site, by = chosen
            self._turn += 1
            self._send(task, site, by, asked)

    def _send(self, task: int, site: PeerName, by: str, asked: SiteQuestion) -> None:
        attempt = self._engine.bind(task, site)
        if attempt:
            self._left.pop(task, None)
            self._note(task, attempt, site, by, asked)
        else:
            self._ready.pop(task, None)  # told again when it can be

    def _send_where_it_was(self) -> None:
        """What an earlier process has sent may be there still, so it goes there, however full."""
        if not self._earlier:
            return
        for task in list(self._ready):
            described = self._engine.graph.tasks[task]
            target = self._targets.get(self._earlier.get(described.name, PeerName("")))
            if target is None or not self._engine.wanted(task):
                continue
            del self._earlier[described.name]
            state = self._state(target, described, 0, self._usual_s(described.kind_name))
            self._send(task, target.name, "an earlier process", SiteQuestion([state]))

    def _chosen(self, task: int, asked: SiteQuestion) -> tuple[PeerName, str] | None:
        """A site, and by whom it was chosen; None while a program of the user's is asked."""
        described = self._engine.graph.tasks[task]
        names = {state.name for state in asked.sites}
        by = self._settings.selector
        if self._outside is not None and not self._outside.given_up:
            head = {
                "run": self._engine.run,
                "task": described.name,
                "kind": described.kind_name,
                "attempt": str(self._engine.next_attempt(task)),
                "cores": f"{described.needs.cores:g}",
            }
            said = self._outside.answer(task, head, asked, self._engine.wake)
            if said is None:
                return None
            if said in names:
                return said, by
        if self._outside is not None:
            by = f"the ratio, in place of {by}"
        return self._selector.choose(asked, self._world), by

    def _note(self, task: int, attempt: int, site: PeerName, by: str, asked: SiteQuestion) -> None:
        states = {state.name: state for state in asked.sites}
        mine = states.pop(site)
        said = f"sent to {site} by {by}: {_told(mine)}"
        if states:
            rival = max(states.values(), key=lambda one: (one.ended + 1) / (one.submitted + 1))
            said += f"; at {rival.name} {_told(rival)}"
        choice = _Choice(site, by, mine.submitted, mine.ended)
        body = msgspec.msgpack.encode(choice)
        self._engine.note(CHOSEN, said, body, task=task, attempt=attempt, peer=site)

    def _asked(self, task: int) -> SiteQuestion:
        described = self._engine.graph.tasks[task]
        held = self._engine.held(task)
        unfit = self._engine.unfit(task)
        able = [t for t in self._able(described.needs) if t.name not in unfit]
        now_s, left = self._world.elapsed(), self._left.get(task)
        fresh = [t for t in able if self._paused.get(t.name, 0.0) <= now_s and t.name != left]
        usual_s = self._usual_s(described.kind_name)
        states = [
            self._state(target, described, held.get(target.name, 0), usual_s)
            for target in fresh or able
            if self._has_room(target)
        ]
        return SiteQuestion(states, self._control.last_ended, self._turn)

    def _able(self, needs: Needs) -> list[Target]:
        able = [name for name, whole in self._whole.items() if whole.fits(needs)]
        return [self._targets[name] for name in sorted(able)]

    def _has_room(self, target: Target) -> bool:
        record = self._control.site(target.name)
        if record.failed_in_a_row >= BLACK_HOLE and not self._settings.as_printed:
            return record.waiting + record.running == 0  # one at a time, until one succeeds
        deep = self._settings.deep
        return deep <= 0 or record.waiting < max(1.0, deep * target.capacity.cores)

    def _state(self, target: Target, task: Task, held: int, usual_s: float) -> SiteState:
        record = self._control.site(target.name)
        whole = self._whereabouts.bytes_of(self._engine.graph, task)
        missing = self._whereabouts.missing_bytes(self._engine.graph, task, target.name)
        if held:  # somebody knows it better
            missing = max(0, whole - held)
        submitted, ended = record.counts(
            failures_end=self._settings.as_printed,
            withdrawals_count=self._settings.withdrawals == "count",
        )
        total_s, number = record.takes_s.get(task.kind_name, (usual_s, 1))
        return SiteState(
            target.name,
            target.capacity.cores,
            submitted,
            ended,
            record.waiting,
            record.running,
            whole - missing,
            record.expected_wait_s(self._world.elapsed()),
            missing * self._whereabouts.s_per_byte,
            total_s / number,
        )

    def _usual_s(self, kind: str) -> float:
        seen = [r.takes_s[kind] for r in self._control.sites.values() if kind in r.takes_s]
        return sum(total for total, _ in seen) / sum(n for _, n in seen) if seen else 1.0

    def spare(self, needs: Needs, but: Sequence[PeerName]) -> PeerName | None:
        """One with nothing in its queue."""
        records = self._control.site
        for target in self._able(needs):
            record: SiteRecord = records(target.name)
            if target.name not in but and record.waiting + record.running < target.capacity.cores:
                return target.name
        return None


def _told(state: SiteState) -> str:
    return f"{state.ended} of {state.submitted} ended, {state.waiting} waiting"
