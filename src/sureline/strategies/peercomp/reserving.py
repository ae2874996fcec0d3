"""The half of `peercomp` beside a run's writer: reserves time for all open tasks, then binds.

- Before the run begins, time is reserved for the whole workflow by its deadline, or, without one,
  by the nearest that can be had. If that cannot be, the run is refused, with the nearest deadline
  that would do (a guess refuses nothing; `--anyway` goes on with that one).
- A ready task goes where its time is reserved. The machine starts it when its lane lets it, as
  early as it can.
- What has lost its time (its machine died, it failed and is tried again, what it waits for was
  late) is reserved anew: first between those that stay, then together with all that has not begun;
  if the deadline no longer allows it, by the nearest one that does, and the user is told.
- What was reserved is noted, for `explain`, and so that the next process gives it back.

On one machine without a grid, its own lanes are all there is: the same requests, answered at once.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import partial

import msgspec

from sureline.overlay.tree.agent import Tree
from sureline.overlay.tree.leaf import HoleSought, PromisedTime
from sureline.overlay.tree.messages import RollBack
from sureline.overlay.tree.summary import Amounts
from sureline.peer.messages import Finished
from sureline.run.port import (
    Action,
    Deciding,
    Engine,
    EstimatesFound,
    Noted,
    Over,
    Seat,
    State,
    Target,
    Unknown,
)
from sureline.strategies.peercomp.lanes import GRACE_S, Claim, Lanes, limits_of
from sureline.strategies.peercomp.lengths import Lengths, ReservingSettings
from sureline.strategies.peercomp.nearest import (
    GRAIN_S,
    LATE_MAX,
    PAUSE_S,
    NearestDeadline,
    OnDone,
    aheads_of,
    early_tries,
)
from sureline.strategies.peercomp.notes import Reservation, reservations_of, said_of
from sureline.strategies.peercomp.owner import Booked, Booking, Desk, OwnerSettings
from sureline.workflow.shapes import longest_s, topological_order
from sureline.world.address import PeerName, at, name_of, node_of
from sureline.world.agent import Agent

PART = "tree"
ATTACH_WAIT_S = 3.0
TICK_S = 1.0
LATE_S = 3.0
"""What has not begun so long after it had to is tried elsewhere, if the run has a deadline."""
START_S = 2.0
"""From a command until its run begins, about."""
AGAIN_S = 5.0
"""When no machine has the time at all, they are asked again after this."""
OWNER = OwnerSettings(timeout_s=4.0, stage_s=0.2)


class Reserving(Deciding):
    def __init__(self, seat: Seat) -> None:
        self._seat = seat
        self._world = seat.world
        self._settings: ReservingSettings = seat.settings
        self._lengths = Lengths(seat.settings)
        self._tree = Tree(seat.me, seat.world, None)
        self._desk = Desk(self._tree)
        self._lanes: Lanes | None = None
        """This machine's, if there is no grid."""
        self._slots: dict[int, PromisedTime] = {}
        """The time of every task that has some, until it has committed."""
        self._held: dict[int, Reservation] = {}
        """What is reserved for tasks, until they have begun."""
        self._ready: dict[int, None] = {}
        self._moved: set[int] = set()
        self._nearest: NearestDeadline | None = None
        """The search that is under way."""
        self._go: Action | None = None
        self._works: list[float] = []
        self._limits: list[Amounts] = []
        self._by_s: float | None = None
        """By when all is reserved."""
        self._lead_s = 0.0
        """From a command until it looks for time."""
        self._is_late = self._waits = self._is_over = self._afresh = False

    @property
    def agent(self) -> Agent:
        return self._tree

    # -- beginning -----------------------------------------------------------------------------

    def begin(self, engine: Engine, past: Sequence[Noted | Unknown], go: Action) -> None:
        self._engine, self._go = engine, go
        self._by_s = engine.terms.deadline_at
        self._begun_s = self._world.now()
        self._past = reservations_of(past)
        self._world.after(TICK_S, self._tick)
        # The targets are told of after this: look for them a moment later.
        self._world.after(0.0, lambda: engine.when_attached(ATTACH_WAIT_S, self._estimate))

    def _estimate(self) -> None:
        for one in self._past:  # of an earlier process: what has begun goes on
            self._world.send(one.host, RollBack(one.number, one.unit, 1))
        if not self._is_over:
            self._engine.estimates(self._plan)

    def _plan(self, found: EstimatesFound) -> None:
        chance, here = self._engine.terms.surety, self._lanes is not None
        history = {} if here else self._seat.history()
        self._lengths.learn(self._engine.graph, found, history, chance, here=here)
        self._works = self._lengths.works()
        self._guessed = any(found.tasks[task].guessed for task in self._engine.open_tasks())
        self._limits = [limits_of(task.needs) for task in self._engine.graph.tasks]
        for task in self._engine.graph.tasks:
            if task.needs.gpus or task.needs.tags:
                self._refuse(f"{task.name} needs a GPU or a tag, which peercomp does not reserve")
                return
        if self._go is not None:
            self._lead_s = START_S + self._world.now() - self._begun_s
            self._reserve()

    def _refuse(self, reason: str) -> None:
        if self._go is not None and not self._engine.refuse(reason):
            self._begin()

    def _begin(self) -> None:
        go, self._go = self._go, None
        if go is not None:
            go()

    # -- reserving -----------------------------------------------------------------------------

    def _unplaced(self) -> list[int]:
        """Open tasks that have no time, and are not under way."""
        engine = self._engine
        return [
            task
            for task in engine.open_tasks()
            if task not in self._slots
            and not engine.attempts_of(task)
            and engine.state(task) is not State.FAILED
        ]

    def _reserve(self) -> None:
        if self._nearest is not None or self._is_over or not self._works:
            return
        if not self._engine.targets():
            self._wait()
        elif self._unplaced():
            self._search(afresh=not self._held)
        else:
            self._begin()

    @property
    def _pause_s(self) -> float:
        return PAUSE_S if self._lanes is None else 0.0

    def _least_s(self) -> float:
        """How long the rest takes at least."""
        graph = self._engine.graph
        return longest_s(graph, self._works, topological_order(graph), set(self._unplaced()))

    def _search(self, *, afresh: bool) -> None:
        """Between those that stay; or, `afresh`, together with all that has not begun, by a later
        deadline if need be."""
        if not self._works:  # the graph has grown meanwhile; `_plan` follows
            return
        deadline_s, late = self._by_s, LATE_MAX
        if afresh:
            self._give_back(list(self._held))
        else:
            ends_s = max(one.due_s for one in self._held.values())
            deadline_s, late = max(ends_s, self._by_s or 0.0), 0
        self._afresh = afresh
        self._works = self._lengths.works()
        last_s = None if deadline_s is None else deadline_s - self._world.now()
        early = early_tries(last_s or 0.0, self._pause_s) if self._settings.aim == "early" else 0
        aheads_s = aheads_of(self._least_s(), last_s, early)
        self._nearest = NearestDeadline(
            self._world, self._book, aheads_s, deadline_s, self._found, late=late,
            least_s=max(1.0, self._least_s()), pause_s=self._pause_s,
        )  # fmt: skip
        self._nearest.begin()

    def _book(self, by_s: float, on_done: OnDone) -> None:
        engine, now_s = self._engine, self._world.now()
        unplaced = set(self._unplaced())
        placed = {}
        for task in range(len(engine.graph)):
            if engine.state(task) is State.COMMITTED:
                placed[task] = PromisedTime(now_s, now_s)
            elif task not in unplaced:
                placed[task] = self._slots.get(task) or PromisedTime(
                    now_s, now_s + self._works[task]
                )
        if not unplaced:  # they were done, or began, meanwhile
            self._nearest = None
            self._begin()
            return
        order = topological_order(engine.graph)
        self._desk.book(
            Booking(
                self._tree, engine.graph, order, self._works, by_s, on_done, OWNER, self._limits,
                placed, self._ask, tight=self._by_s is None or by_s < self._by_s - GRAIN_S,
                priority=self._settings.priority,
            )
        )  # fmt: skip

    def _ask(self, ask: HoleSought) -> None:
        """Any peer may be asked; one after the other is."""
        if self._lanes is None:
            targets = sorted(self._engine.targets())
            if not targets:
                return
            target = self._engine.targets()[self._world.random.choice(targets)]
            self._tree.leaf_parent = at(node_of(target.agent), PART)
        self._tree.request(ask, traced=True)

    def _found(self, booking: Booking | None, booked: Booked, kept: bool) -> None:
        """The search is over: with a booking, by the deadline or by a later one."""
        self._nearest = None
        if booking is None and not self._afresh:
            self._search(afresh=True)
        elif booking is None:
            self._nothing_found(booked)
        elif kept:
            self._accept(booking)
        else:
            self._accept_late(booking, booked)

    def _nothing_found(self, booked: Booked) -> None:
        if self._go is not None and self._by_s is not None and not self._guessed:
            self._refuse(
                f"time cannot be reserved by the deadline, nor by a much later one: {booked.reason}"
            )
        self._wait()

    def _accept_late(self, booking: Booking, booked: Booked) -> None:
        late = (
            f"time for all tasks cannot be reserved by the deadline: {booked.reason}; "
            f"--within {self._would_do_s(booked)}s would do"
        )
        if self._go is not None and not self._guessed:
            go, self._go = self._go, None
            if self._engine.refuse(late):
                booking.roll_back()
                self._is_over = True
                return
            self._go = go
        elif not self._is_late:
            self._engine.tell(late + (", partly by guess" if self._guessed else ""))
        self._is_late = True
        self._accept(booking)

    def _would_do_s(self, booked: Booked) -> int:
        """For a new command: what it takes until it reserves by its deadline comes on top."""
        within_s = booked.ahead_s + self._lead_s
        tries = early_tries(within_s, self._pause_s)
        return math.ceil(within_s + tries * (self._pause_s + booked.took_s))

    def _accept(self, booking: Booking) -> None:
        graph = self._engine.graph
        for task, (number, unit) in booking.names().items():
            slot, host = booking.slots[task], booking.hosts[task]
            one = Reservation(number, unit, host, *slot, booking.trails[task])
            if self._engine.state(task) is State.COMMITTED:
                self._world.send(host, RollBack(number, unit, 1))
                continue
            self._slots[task], self._held[task] = slot, one
            said = said_of(graph.tasks[task].name, one, self._world.now())
            body = msgspec.msgpack.encode(one)
            note = partial(self._engine.note, task=task, peer=name_of(host))
            note("reserved", said, body, window=(slot.latest_start_s, slot.due_s))
        self._begin()
        self._engine.wake()

    def _wait(self) -> None:
        """Nobody has time: ask again later."""
        self._begin()
        if not self._waits:
            self._waits = True
            self._world.after(AGAIN_S, self._again)

    def _again(self) -> None:
        self._waits = False
        self._engine.wake()

    def _give_back(self, tasks: Iterable[int]) -> None:
        for task in tasks:
            one = self._held.pop(task, None)
            self._slots.pop(task, None)
            if one is not None:
                self._world.send(one.host, RollBack(one.number, one.unit, 1))

    # -- what happens --------------------------------------------------------------------------

    def target(self, target: Target) -> None:
        if node_of(target.agent) == node_of(self._seat.me) and self._lanes is None:
            self._lanes = Lanes(target.capacity)
            self._tree.leaf = self._lanes

    def gone(self, target: PeerName) -> None:
        for task in [task for task, one in self._held.items() if name_of(one.host) == target]:
            self._held.pop(task)
            self._slots.pop(task, None)
        self._engine.wake()

    def grown(self, tasks: range) -> None:
        self._works = []  # ask again how long tasks take
        self._engine.estimates(self._plan)

    def ready(self, task: int) -> None:
        self._ready[task] = None

    def over(self, over: Over) -> None:
        task = over.bound.task
        if self._lanes is not None:
            self._lanes.end((task, over.bound.attempt), self._world.now())
            if isinstance(over.told, Finished):
                took_s = self._world.now() - over.bound.since
                self._lengths.seen_beside(max(0.0, took_s - over.told.ended.elapsed_s))
        if over.ending != "succeeded" and not self._engine.attempts_of(task):
            self._slots.pop(task, None)

    def stands(self, task: int, committed: bool) -> None:
        if committed:
            self._give_back([task])
        self._ready.pop(task, None)

    def end(self) -> None:
        self._is_over = True
        self._give_back(list(self._held))

    # -- binding -------------------------------------------------------------------------------

    def decide(self) -> None:
        self._forget_void()
        bind = self._bind_here if self._lanes is not None else self._bind_there
        bind()
        lacking = any(task not in self._slots for task in self._ready)
        if lacking and self._go is None and not self._waits:
            self._reserve()

    def _forget_void(self) -> None:
        """What could not begin in time has lost its promise."""
        now_s = self._world.now()
        for task in [t for t, one in self._held.items() if one.latest_start_s < now_s - GRACE_S]:
            self._give_back([task])
        for task in [task for task in self._ready if not self._engine.wanted(task)]:
            del self._ready[task]

    def _bind_there(self) -> None:
        targets = self._engine.targets()
        for task in list(self._ready):
            one = self._held.get(task)
            if one is None:
                continue
            if name_of(one.host) not in targets or self._is_better_elsewhere(task, one):
                self._give_back([task])
                continue
            del self._ready[task]
            claim = Claim(one.number, one.unit, self._works[task], self._lengths.brought_s[task])
            if self._engine.bind(task, name_of(one.host), msgspec.msgpack.encode(claim)):
                self._held.pop(task)

    def _is_better_elsewhere(self, task: int, one: Reservation) -> bool:
        """Whether it would wait for one of our own where it is reserved, while another machine has
        none. Each task is moved once at most."""
        busy = Counter(bound.target for bound in self._engine.attempts())
        lanes = {
            name: max(1, int(target.capacity.cores)) - busy[name]
            for name, target in self._engine.targets().items()
        }
        waits = one.latest_start_s > self._world.now() + LATE_S and lanes[name_of(one.host)] <= 0
        if task in self._moved or not waits or max(lanes.values()) <= 0:
            return False
        self._moved.add(task)
        return True

    def _bind_here(self) -> None:
        lanes, now_s = self._lanes, self._world.now()
        assert lanes is not None
        keys = {
            (self._held[t].number, self._held[t].unit): t for t in self._ready if t in self._held
        }
        for key, length_s in lanes.startable(keys, now_s):
            if attempt := self._bind_in(keys[key]):
                lanes.begin((keys[key], attempt), key, length_s, now_s)
        for task in list(self._ready):
            rows = lanes.room(self._limits[task], self._works[task], now_s)
            if rows:
                self._give_back([task])
                if attempt := self._bind_in(task):
                    lanes.begin_in((task, attempt), rows, self._works[task], now_s)

    def _bind_in(self, task: int) -> int:
        """The attempt on this machine, the only one; 0 if it could not be bound."""
        self._ready.pop(task, None)
        attempt = max([self._engine.bind(task, here) for here in self._engine.targets()], default=0)
        if attempt:
            self._held.pop(task, None)
        return attempt

    def _tick(self) -> None:
        """What has not begun by the time that it was promised is tried elsewhere, if that matters;
        what is reserved nowhere is."""
        if self._is_over:
            return
        now_s = self._world.now()
        for bound in self._engine.attempts():
            slot = self._slots.get(bound.task)
            if slot is None or bound.started:
                continue
            late = now_s > slot.latest_start_s + self._lengths.brought_s[bound.task] + LATE_S
            if late and self._by_s is not None and not bound.withdrawn:
                self._engine.withdraw(bound.task, bound.attempt)
        self._engine.wake()
        self._world.after(TICK_S, self._tick)
