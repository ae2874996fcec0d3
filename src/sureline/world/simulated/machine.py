"""Simulated machines: what they can do, their clocks, and their lives.

A machine's *life* is one incarnation: from a boot to the next crash or kill. Whatever is to run on
a machine later (a timer, a job's event, the end of a sync) belongs to the life that asked for it
and never runs in another. While a machine is frozen or busy its life is not `open`: what is due
waits, in order, and comes as soon as it is open again.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from sureline.world.address import Node
from sureline.world.protocol import Action, Recordable
from sureline.world.simulated.calendar import Entry, SimTimer
from sureline.world.simulated.disk import Disk, DiskRecorder
from sureline.world.simulated.work import Processor

if TYPE_CHECKING:
    from sureline.world.live import Fetcher, Recorder, Runner
    from sureline.world.simulated.place import Place
    from sureline.world.simulated.simulation import Simulation

FLUSH_S = 0.01
"""A record waits no longer than this for its flush."""

Ending = Literal["crash", "kill"]


class MachineSpec(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a machine is like. The default is ideal: as fast as the reference, its clock exact."""

    power: float = 1.0
    """Speed of one slot, against the reference machine's."""
    slots: int = 1
    background_load: float = 0.0
    """The share of every slot that others use, from 0 to below 1."""
    site: str = ""
    clock_offset_s: float = 0.0
    """How far its clock is ahead at the beginning."""
    clock_drift: float = 0.0
    """Seconds that its clock gains in one true second."""
    up_bytes_per_s: float = math.inf
    down_bytes_per_s: float = math.inf
    sync_s: float = 0.005
    """How long a sync of its disk takes."""

    def __post_init__(self) -> None:
        if not (self.power > 0 and self.slots > 0 and 0 <= self.background_load < 1):
            raise ValueError("a machine needs power and slots above 0 and a load from 0 to below 1")
        if not (self.up_bytes_per_s > 0 and self.down_bytes_per_s > 0 and self.sync_s >= 0):
            raise ValueError("a machine needs bandwidth above 0 and no negative time for a sync")
        if not self.clock_drift > -1:
            raise ValueError("a clock must not stand still or run backwards")


class MachineParts(msgspec.Struct, frozen=True):
    """What does a machine's real work. Each is made anew for every life, at its first use; it
    takes time by `life.after`, reports by calling back at any moment (the world puts the call in
    its place), and can hear of its end by `life.on_end`."""

    runner: Callable[[Life], Runner] | None = None
    fetcher: Callable[[Life], Fetcher] | None = None
    recorder: Callable[[Life], Recorder] = DiskRecorder


class Life:
    """One incarnation of a machine."""

    __slots__ = (
        "_enders",
        "_fetcher",
        "_flush_due",
        "_recorder",
        "_runner",
        "began_s",
        "frozen_s",
        "machine",
        "open",
        "over",
    )

    def __init__(self, machine: SimulatedMachine) -> None:
        self.machine = machine
        self.began_s = machine.sim.time
        self.frozen_s = 0.0
        """For how long it was frozen, all in all."""
        self.open = True
        """Whether what is due may run at once."""
        self.over = False
        self._enders: list[Callable[[Ending], None]] | None = None
        self._flush_due = False
        self._runner: Runner | None = None
        self._fetcher: Fetcher | None = None
        self._recorder: Recorder | None = None

    def after(self, seconds: float, action: Action) -> SimTimer:
        """Run the action in this life after so many true seconds."""
        machine = self.machine
        return machine.sim.schedule(machine.moment_s() + max(0.0, seconds), self, action)

    def post(self, action: Callable[..., None], *args: Any) -> None:
        """Run the action in this life, as soon as the current one is over."""
        self.after(0.0, partial(action, *args))

    def on_end(self, action: Callable[[Ending], None]) -> None:
        """Tell the action when this life ends. It may clean up; it must not start anything."""
        if self._enders is None:
            self._enders = []
        self._enders.append(action)

    def end(self, how: Ending) -> None:
        self.over = True
        self.open = False
        for place in self.machine.places:
            place.leave()
        for action in self._enders or ():
            action(how)

    def record(self, event: Recordable) -> None:
        """Records are flushed in groups, without being asked, as in the live world."""
        self.recorder.record(event)
        if not self._flush_due:
            self._flush_due = True
            self.after(FLUSH_S, self._flush)

    def _flush(self) -> None:
        self._flush_due = False
        self.recorder.flush()

    @property
    def runner(self) -> Runner:
        if self._runner is None:
            make = self.machine.parts.runner
            if make is None:
                raise LookupError(f"{self.machine.node} has no runner among its MachineParts")
            self._runner = make(self)
        return self._runner

    @property
    def fetcher(self) -> Fetcher:
        if self._fetcher is None:
            make = self.machine.parts.fetcher
            if make is None:
                raise LookupError(f"{self.machine.node} has no fetcher among its MachineParts")
            self._fetcher = make(self)
        return self._fetcher

    @property
    def recorder(self) -> Recorder:
        if self._recorder is None:
            self._recorder = self.machine.parts.recorder(self)
        return self._recorder


class SimulatedMachine:
    """One machine. Its node is its address; its life is None while it is down."""

    __slots__ = (
        "_busy_left_s",
        "_disk",
        "_free_s",
        "_frozen_at_s",
        "_held",
        "_processor",
        "boot",
        "frozen",
        "life",
        "node",
        "parts",
        "places",
        "sim",
        "slowness",
        "spec",
        "stepped_s",
    )

    def __init__(self, sim: Simulation, node: Node, spec: MachineSpec, parts: MachineParts) -> None:
        self.sim = sim
        self.node = node
        self.spec = spec
        self.parts = parts
        self.boot: Action | None = None
        self.life: Life | None = Life(self)
        self.places: tuple[Place, ...] = ()
        """Of the agents of its current life."""
        self.frozen = False
        self.slowness = 1.0
        self.stepped_s = 0.0
        """By how much its clock was set forward since the beginning, all in all."""
        self._free_s = 0.0
        self._frozen_at_s = 0.0
        self._busy_left_s = 0.0
        """What was left to do when it was frozen."""
        self._held: deque[Entry] | None = None
        self._disk: Disk | None = None
        self._processor: Processor | None = None

    @property
    def disk(self) -> Disk:
        if self._disk is None:
            self._disk = Disk()
        return self._disk

    @property
    def processor(self) -> Processor:
        """Its slots, for the jobs of a runner."""
        if self._processor is None:
            self._processor = Processor(self)
        return self._processor

    @property
    def speed(self) -> float:
        """What one second does here for something that has a slot to itself, against one second
        of an idle reference machine; 0 while frozen or down."""
        if self.frozen or self.life is None:
            return 0.0
        return self.spec.power * (1.0 - self.spec.background_load) / self.slowness

    def moment_s(self) -> float:
        """True time, as far as its own work has got: later than the simulation's while busy."""
        return max(self.sim.time, self._free_s)

    def clock(self) -> float:
        """What its own clock says."""
        spec = self.spec
        set_s = self.sim.epoch_s + spec.clock_offset_s + self.stepped_s
        return set_s + self.moment_s() * (1.0 + spec.clock_drift)

    def true_s(self, seconds: float) -> float:
        """How long so many seconds by its own clock truly are."""
        return seconds / (1.0 + self.spec.clock_drift)

    def busy(self, seconds: float) -> None:
        """What it does next begins so much later (on a slower machine, longer)."""
        if seconds > 0 and self.life is not None:
            speed = self.speed
            self._busy_until(self.moment_s() + (seconds / speed if speed else seconds))

    def _busy_until(self, free_s: float) -> None:
        self._free_s = free_s
        self._see_whether_open()
        self.sim.schedule(free_s, None, self._see_whether_open)

    def freeze(self) -> None:
        if not self.frozen:
            self.frozen = True
            self._frozen_at_s = self.sim.time
            self._busy_left_s = max(0.0, self._free_s - self.sim.time)
            self._work_changed()
            self._see_whether_open()

    def thaw(self) -> None:
        if self.frozen:
            self.frozen = False
            if self.life is not None:
                self.life.frozen_s += self.sim.time - self._frozen_at_s
            self._work_changed()
            self._busy_until(self.sim.time + self._busy_left_s)

    def slow(self, factor: float) -> None:
        if not factor > 0:
            raise ValueError("a machine can be slowed by a factor above 0 only")
        self.slowness = factor
        self._work_changed()

    def end(self, how: Ending) -> None:
        """Its process dies; with 'crash', all of it loses power."""
        life = self.life
        if life is None:
            return
        self.life = None
        self._held = None
        self._free_s = 0.0
        if self._processor is not None:
            self._processor.abandon()
            self._processor = None
        life.end(how)
        self.places = ()
        if self._disk is not None:
            self._disk.lose(power=how == "crash")

    def begin(self) -> None:
        """A new life, with nothing in it yet."""
        self.frozen = False
        self.life = Life(self)

    def add(self, place: Place) -> None:
        """A place for an agent; one that had the same address before is given up."""
        for other in self.places:
            if other.me == place.me:
                other.leave()
        self.places = (*(other for other in self.places if other.me != place.me), place)
        self.see_places()

    def hold(self, entry: Entry) -> None:
        """It is not open: the entry waits."""
        if self._held is None:
            self._held = deque()
        self._held.append(entry)

    @property
    def waiting(self) -> int:
        """How much has arrived and waits until it is open."""
        return len(self._held or ())

    def _work_changed(self) -> None:
        if self._processor is not None:
            self._processor.changed()
        self.sim.network.flows.changed(self.node)

    def _see_whether_open(self) -> None:
        """Open or close its life and its agents; what waits runs while it stays open."""
        life = self.life
        if life is None:
            return
        is_open = not self.frozen and self._free_s <= self.sim.time
        if is_open and not life.open and self._held:
            self.sim.schedule(self.sim.time, None, self._drain)
            return
        self._set_open(life, is_open)

    def _set_open(self, life: Life, is_open: bool) -> None:
        if life.open != is_open:
            life.open = is_open
            self.see_places()

    def see_places(self) -> None:
        for place in self.places:
            place.see_state()

    def _drain(self) -> None:
        """Run what waits, in order, as long as the machine can."""
        held, life = self._held, self.life
        if held is None or life is None:
            return
        if self.frozen or self._free_s > self.sim.time:
            return
        self._set_open(life, True)
        while held and life.open:
            self.sim.guard(self.node, self.sim.perform, held.popleft())
