"""The half on a machine: how much room there is, which files are here, and until when.

A task takes room from the moment it is promised (a round gave it to this pilot), through its Bind
and the fetching of its inputs, to its end. One that has to wait for room is fetched *ahead*: its
inputs come while others run, and it begins when one of them ends.

Tasks that wait for files more than they calculate do not all run at once while others could use the
cores: at most half of the cores, as long as anything else waits.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Sequence
from zlib import crc32

import msgspec

from sureline.peer.admitting import Admitting, Key, Machine, Waiting
from sureline.peer.capacity import Ledger
from sureline.peer.jobs import CommandJob, JobEnded
from sureline.peer.messages import Bind
from sureline.strategies.latebinding.judging import FOR_EVER_S, View
from sureline.strategies.latebinding.messages import TaskId
from sureline.strategies.latebinding.sense import NUMBER_MAX
from sureline.strategies.latebinding.settings import (
    AHEAD_MAX,
    AHEAD_S,
    HOLD_S,
    PLACES_MAX,
    PilotHalfSettings,
)
from sureline.strategies.nearby import LARGE_BYTES
from sureline.workflow.files import FileRecord
from sureline.workflow.model import Needs
from sureline.world.address import name_of
from sureline.world.agent import Agent
from sureline.world.protocol import Timer, World

HELD_MAX = 50_000
"""Files that are remembered as being here; those used least lately are forgotten first."""
PROMISES_MAX = 1000
TOOK_KEPT = 8
AHEAD_PER_ENDED = 4
"""A pilot has at most so many tasks ahead for each that it has ended: what it knows of how long
they take is the more certain."""
NAME = "latebinding"


class PilotClaim(msgspec.Struct, frozen=True, array_like=True):
    """What a Bind says to this half."""

    takes_s: float
    reads: bool
    reports: bool = False
    """The queue hears of its beginning and its end, as in the paper."""


class PilotRoom(msgspec.Struct, frozen=True):
    """How many tasks of one core could begin at once, and how many be fetched ahead."""

    places: int
    ahead: int


class _Here(msgspec.Struct, frozen=True):
    needs: Needs
    takes_s: float
    brings: tuple[str, ...]
    """Inputs that were not here when it came."""
    cold: bool
    """Large ones are among these."""


class _Promised(msgspec.Struct):
    needs: Needs
    timer: Timer


class PilotHalf(Admitting):
    def __init__(self, machine: Machine, world: World, settings: PilotHalfSettings) -> None:
        self._machine = machine
        self._world = world
        self._ends_at = settings.ends_at
        self._here: dict[Key, _Here] = {}
        self._promised: dict[TaskId, _Promised] = {}
        self._lately: dict[TaskId, None] = {}
        """What was done here: its promise may come after it."""
        self._reading: dict[Key, None] = {}
        """Attempts that wait for files more than they calculate."""
        self._runs: dict[Key, None] = {}
        """Of those, the ones that were let begin."""
        self._waited_s: dict[Key, float] = {}
        """Of attempts that take long, when one was last seen to wait, where lifetimes count."""
        self._took_s: deque[float] = deque(maxlen=TOOK_KEPT)
        """How long the last tasks ran."""
        self._ended = 0
        self._moved_s = 0.0
        """When one ended last, or came while there was none."""
        self.held: dict[str, None] = {}
        self.on_room: Callable[[], None] = lambda: None
        self.on_job: Callable[[Bind, bool], None] = lambda bind, ended: None
        self.on_files: Callable[[Sequence[str], Sequence[str]], None] = lambda made, gone: None

    def beside(self, agents: Sequence[Agent]) -> None:
        for agent in agents:
            attend = getattr(agent, "attend", None)
            if attend is not None:
                attend(self)

    # -- what there is room for ------------------------------------------------------------------

    @property
    def lifetime_s(self) -> float:
        """Until its tasks are stopped, from when one that comes now can begin."""
        if not self._ends_at:
            return FOR_EVER_S
        return self._ends_at - self._world.now() - self._wait_s()

    def _wait_s(self) -> float:
        """How long what comes now waits for a core, by the forecasts of what is here."""
        ledger, waiting = self.free()
        if ledger.millicores and not waiting:
            return 0.0
        ends_s = [0.0] * max(1, int(self._machine.capacity.cores))
        now = self._world.elapsed()
        for key, here in self._here.items():
            look = self._machine.look(key)
            here_s = look.elapsed_s if look.state == "running" else 0.0
            ran_s = min(here_s, now - self._waited_s.get(key, -math.inf))
            cores = min(max(1, int(here.needs.cores)), len(ends_s))
            ends_s[:cores] = [ends_s[cores - 1] + max(0.0, here.takes_s - ran_s)] * cores
            ends_s.sort()
        return ends_s[0]

    def free(self) -> tuple[Ledger, int]:
        """What could begin at once, and how many tasks wait here for something to end."""
        ledger, waiting = Ledger(self._machine.capacity), 0
        taking: tuple[_Here | _Promised, ...] = (*self._here.values(), *self._promised.values())
        for one in taking:
            if ledger.fits(one.needs):
                ledger.take(one.needs)
            else:
                waiting += 1
        return ledger, waiting

    def room(self) -> PilotRoom:
        if self._machine.leaving or self.lifetime_s <= 0:
            return PilotRoom(0, 0)
        ledger, waiting = self.free()
        places = 0 if waiting else min(PLACES_MAX, -(-ledger.millicores // 1000))
        wanted = self._wanted_ahead()
        # Of many, some are always over: it is told when half of them are.
        return PilotRoom(places, wanted - waiting if 2 * waiting <= wanted else 0)

    def _wanted_ahead(self) -> int:
        """Short tasks would be over before a round could bring others: as many as end within
        AHEAD_S, judged by the longest of the last few and by what is under way."""
        cores = max(1, int(self._machine.capacity.cores))
        lasts_s = self._world.elapsed() - self._moved_s if self._here else 0.0
        end = AHEAD_S * cores / max(AHEAD_S / AHEAD_MAX, lasts_s, *self._took_s)
        return max(1, cores // 4, min(AHEAD_MAX, int(end), AHEAD_PER_ENDED * self._ended))

    def view(self, site: str) -> View:
        name = name_of(self._machine.me)
        salt, (ledger, _) = crc32(name.encode()), self.free()
        return View(name, site, ledger, self._machine.capacity, self.lifetime_s, self.held, salt)

    def promise(self, run: str, task: str, needs: Needs) -> None:
        """A round gave this to us; its run will bind it soon, or never."""
        known = (run, task) in self._promised or any(k[:2] == (run, task) for k in self._here)
        known |= (run, task) in self._lately
        if known or len(self._promised) >= PROMISES_MAX:
            return
        timer = self._world.after(HOLD_S, lambda: self._forget((run, task)))
        self._promised[run, task] = _Promised(needs, timer)

    def _forget(self, task: TaskId) -> None:
        promised = self._promised.pop(task, None)
        if promised is not None:
            promised.timer.cancel()
            self.on_room()

    # -- what is here ----------------------------------------------------------------------------

    def objection(self, sender: str, bind: Bind) -> str:
        claim = claim_of(bind)
        if claim is not None and self._ends_at and claim.takes_s > self.lifetime_s:
            return f"{name_of(self._machine.me)} will be gone before it could end"
        return ""

    def admitted(self, bind: Bind) -> None:
        key = (bind.run, bind.task, bind.attempt)
        promised = self._promised.pop((bind.run, bind.task), None)
        if promised is not None:
            promised.timer.cancel()
        if not self._here:
            self._moved_s = self._world.elapsed()
        claim, inputs = claim_of(bind), _inputs_of(bind)
        new = [one for one in inputs if one.digest not in self.held]
        self._here[key] = _Here(
            bind.needs,
            claim.takes_s if claim else 0.0,
            tuple(one.digest for one in new),
            any(one.size >= LARGE_BYTES for one in new),
        )
        if claim is not None and claim.reads:
            self._reading[key] = None
        if claim is not None and claim.reports:
            self.on_job(bind, False)
        self._hold([record.digest for record in inputs])

    def fetches(self) -> bool:
        """Whether something waits for large files here, or may when it comes."""
        cold = (key for key, here in self._here.items() if here.cold)
        return bool(self._promised) or any(
            self._machine.look(key).state == "waiting" for key in cold
        )

    @property
    def orders(self) -> bool:
        return 0 < len(self._reading) < len(self._here)

    def order(self, waiting: Sequence[Waiting], now: float) -> Sequence[int]:
        keys = [(one.bind.run, one.bind.task, one.bind.attempt) for one in waiting]
        for key in keys:
            self._runs.pop(key, None)  # something else held it back
        most = max(1, int(self._machine.capacity.cores) // 2)
        others = [n for n, key in enumerate(keys) if key not in self._reading]
        readers = [n for n, key in enumerate(keys) if key in self._reading]
        chosen = readers[: max(0, most - len(self._runs))] if others else readers
        self._runs |= dict.fromkeys(keys[n] for n in chosen)
        return sorted([*chosen, *others])

    def over(self, bind: Bind, ended: JobEnded | None, *, began: bool) -> None:
        key = (bind.run, bind.task, bind.attempt)
        here = self._here.pop(key, None)
        if ended is not None and ended.outcome == "succeeded":  # of others another attempt may come
            self._lately[key[:2]] = None
            if len(self._lately) > PROMISES_MAX:
                del self._lately[next(iter(self._lately))]
        self._waited_s.pop(key, None)
        for other, its in self._here.items() if self._ends_at else ():
            if its.takes_s > AHEAD_S and self._machine.look(other).state == "waiting":
                self._waited_s[other] = self._world.elapsed()
        claim = claim_of(bind)
        if claim is not None and claim.reports:
            self.on_job(bind, True)
        self._reading.pop(key, None)
        self._runs.pop(key, None)
        if ended is not None and began:
            self._took_s.append(ended.elapsed_s)
            self._ended += 1
            self._moved_s = self._world.elapsed()
            inputs = [one.digest for one in _inputs_of(bind) if one.digest not in self.held]
            self._hold([*inputs, *(record.digest for record in ended.outputs)])
        elif here is not None and here.brings:  # they may not have come
            for digest in here.brings:
                self.held.pop(digest, None)
            self.on_files((), here.brings)
        self.on_room()

    def _hold(self, digests: Sequence[str]) -> None:
        for digest in digests:
            self.held.pop(digest, None)
            self.held[digest] = None
        while len(self.held) > HELD_MAX:
            del self.held[next(iter(self.held))]
        if digests:
            self.on_files(digests, ())


def _inputs_of(bind: Bind) -> tuple[FileRecord, ...]:
    return bind.job.inputs if isinstance(bind.job, CommandJob) else ()


def claim_of(bind: Bind) -> PilotClaim | None:
    if bind.strategy != NAME:
        return None
    try:
        claim = msgspec.msgpack.decode(bind.claim, type=PilotClaim)
    except msgspec.DecodeError:
        return None
    return claim if 0 <= claim.takes_s <= NUMBER_MAX else None
