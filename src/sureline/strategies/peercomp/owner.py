"""The submitting half: time reserved for all sequences of a workflow, stage by stage, or for none.

First phase: the longest sequence goes out with the workflow's own limits; when it is placed, those
whose limits follow from it, and so on. Every reservation is a lease. Second phase: when all have
one, all are committed; if any cannot be had, all are released. A task that waits for sequences that
were placed later is reserved as late as possible, to leave them room; once everything is committed
it is asked to move forward, as far as its inputs allow, and the time behind it is free again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import accumulate
from typing import NamedTuple

import msgspec

from sureline.overlay.tree.agent import Tree
from sureline.overlay.tree.leaf import ANYWHERE, HoleSought, PromisedTime
from sureline.overlay.tree.messages import (
    Commit,
    Committed,
    Nowhere,
    Reserved,
    RollBack,
    Trail,
    TreeAnswer,
)
from sureline.overlay.tree.summary import Amounts
from sureline.strategies.peercomp.policy import Priority
from sureline.workflow.model import Graph
from sureline.workflow.sequences import Window, sequences, windows
from sureline.workflow.shapes import longest_s
from sureline.world.protocol import AgentId, Timer

NUMBER_BITS = 53
OPEN_MAX = 64
"""Requests that are on their way at a time."""
TASKS_MAX = 32
"""Longer sequences are cut."""
REACH = 12
"""Levels that a request for an early end goes up: some thousand machines. Only what is wanted by
the deadline is asked of all."""
WORTH_S = 1.0
"""A task is not asked to move forward for less."""


class OwnerSettings(msgspec.Struct, frozen=True):
    timeout_s: float = 30.0
    """How long a stage may take until its open requests are made again..."""
    tries: int = 3
    """...in all."""
    stage_s: float = 2.0
    """What a stage is expected to take: the first task is not promised before all are placed."""


class Booked(NamedTuple):
    """How it went. `reason` is '' if all is committed."""

    reason: str
    took_s: float
    """From the first request to the last commitment, or to the refusal."""
    end_s: float
    """When the last task is due..."""
    ahead_s: float
    """...and how far that was away when the first request was made."""
    sequences: int
    split: int
    """Sequences that were reserved in more than one piece."""
    stages: int
    requests: int
    hops: int


class _Order:
    """One sequence on its way."""

    __slots__ = ("ask", "left", "pieces", "tasks")

    def __init__(self, ask: HoleSought, tasks: Sequence[int]) -> None:
        self.ask = ask
        self.tasks = tasks
        self.left = len(tasks)
        """Tasks that have no slot yet."""
        self.pieces: dict[int, tuple[AgentId, int]] = {}
        """By the position of the first task: who has reserved it, and how many tasks."""


class Booking:
    """One workflow. `works` is what each task takes on a machine of power 1. What is `placed`
    stays, and limits the others; `ask` says a request to the tree. `tight`: a task that could begin
    early is not put off, though there would be time: what can be done at once is."""

    def __init__(
        self,
        tree: Tree,
        graph: Graph,
        order: Sequence[int],
        works: Sequence[float],
        deadline_s: float,
        on_done: Callable[[Booking, Booked], None],
        settings: OwnerSettings,
        limits: Sequence[Amounts] | None = None,
        placed: Mapping[int, PromisedTime] | None = None,
        ask: Callable[[HoleSought], None] | None = None,
        *,
        tight: bool = False,
        priority: Priority = "normal",
    ) -> None:
        self._priority: Priority = priority
        self.tree = tree
        self._request = ask or tree.request
        self._tight = tight
        self.graph = graph
        self.works = works
        self.deadline_s = deadline_s
        self.slots: dict[int, PromisedTime] = dict(placed or {})
        """Of every task that is placed."""
        self.hosts: dict[int, AgentId] = {}
        self.trails: dict[int, Trail] = {}
        self._order = order
        self._limits = limits or [Amounts()] * len(graph)
        self._lengths_s = list(works)
        self._on_done = on_done
        self._settings = settings
        self.plan = sequences(graph, self._lengths_s, order, placed=self.slots, tasks_max=TASKS_MAX)
        self._stages = self.plan.stages
        self._stage = -1
        self._orders: dict[int, _Order] = {}
        self._unsent: deque[_Order] = deque()
        self._open = 0
        self._uncommitted: set[tuple[int, int]] = set()
        self._told: dict[tuple[int, int], tuple[float, ...]] = {}
        self._rounds = 0
        self._tries = 0
        self._timer: Timer | None = None
        self._began_s = 0.0
        self._requests = self._hops = 0
        self._took_s = 0.0
        self.over = False

    def begin(self) -> None:
        now_s = self._began_s = self.tree.world.now()
        self._begin_s = now_s + self._settings.stage_s * len(self._stages)
        # All tasks share the slack: as long as they may be, if the critical path is just to fit.
        # So what is placed now leaves what is placed later as much room as it takes itself.
        unplaced = {task for task, sequence in enumerate(self.plan.of) if sequence >= 0}
        longest = longest_s(self.graph, self.works, self._order, unplaced) or 1.0
        stretch = max(self.deadline_s - self._begin_s, 1.0) / longest
        if self._is_hemmed_in():
            stretch = min(1.0, stretch)
        self._lengths_s = [length_s * stretch for length_s in self._lengths_s]
        self._next_stage()

    def _is_hemmed_in(self) -> bool:
        """Whether something that stays waits for something that is not placed."""
        of = self.plan.of
        return any(
            of[task] >= 0 and any(of[child] < 0 for child in self.graph.children[task])
            for task in range(len(self.graph))
        )

    def numbers(self) -> Iterable[int]:
        """Of its sequences."""
        return self._orders

    def names(self) -> dict[int, tuple[int, int]]:
        """Of every task that was placed: the number of its sequence, and its position there."""
        orders = self._orders.items()
        return {task: (number, at) for number, o in orders for at, task in enumerate(o.tasks)}

    # First phase.

    def _next_stage(self) -> None:
        self._stage += 1
        self._tries = 0
        if self._stage == len(self._stages):
            self._commit()
            return
        limits = windows(
            self.graph, self._lengths_s, self._begin_s, self.deadline_s, self.slots, self._order
        )
        for sequence in self._stages[self._stage]:
            tasks = self.plan.tasks[sequence]
            self._unsent.append(_Order(self._ask(tasks, limits), tasks))
        self._send_some()
        self._set_timer()

    def _send_some(self) -> None:
        while self._unsent and self._open < OPEN_MAX:
            self._send(self._unsent.popleft())

    def _ask(self, tasks: Sequence[int], limits: Sequence[Window]) -> HoleSought:
        early = self._early(tasks)
        startline_s = limits[tasks[0]].startline_s
        dues_s = tuple([limits[task].deadline_s for task in tasks])
        if self._tight:
            by_s = list(accumulate((self._lengths_s[task] for task in tasks), initial=startline_s))
            dues_s = tuple(
                min(due_s, by_s[k + 1]) if k < early else due_s for k, due_s in enumerate(dues_s)
            )
        if early:
            middle_s = dues_s[early - 1]
        else:
            middle_s = startline_s = max(startline_s, dues_s[0] - self._lengths_s[tasks[0]])
        works = tuple([self.works[task] for task in tasks])
        needs = Amounts(*map(max, zip(*[self._limits[task] for task in tasks], strict=True)))
        reach = REACH if self._tight else ANYWHERE
        return HoleSought(
            self._number(), 0, works, dues_s, early, startline_s, middle_s, needs,
            self.tree.world.now(), reach, self._priority,
        )  # fmt: skip

    def _number(self) -> int:
        return self.tree.world.random.getrandbits(NUMBER_BITS) or 1

    def _early(self, tasks: Sequence[int]) -> int:
        """How many of the first tasks wait only for what is placed, or for each other."""
        own = set(tasks)
        for i, task in enumerate(tasks):
            if any(p not in self.slots and p not in own for p in self.graph.parents[task]):
                return i
        return len(tasks)

    def _send(self, order: _Order) -> None:
        self._orders[order.ask.number] = order
        self._open += 1
        self._requests += 1
        self._request(order.ask)

    def told(self, sender: AgentId, message: TreeAnswer) -> None:
        """Of one of its own sequences."""
        if isinstance(message, Reserved):
            self._reserved(sender, message)
        elif isinstance(message, Nowhere):
            self._hops += message.hops
            if self._orders[message.number].left:
                self._fail(message.reason)
        elif isinstance(message, Committed):
            self._committed(message)

    def _reserved(self, sender: AgentId, message: Reserved) -> None:
        order = self._orders[message.number]
        self._hops += message.hops
        first, count = message.first, len(message.slots)
        if first in order.pieces or first + count > len(order.tasks) or count > order.left:
            return
        order.pieces[first] = (sender, count)
        for task, slot in zip(order.tasks[first:], message.slots, strict=False):
            self.slots[task] = slot
            self.hosts[task] = sender
            self.trails[task] = message.trail or ()
        order.left -= count
        if order.left == 0:
            self._open -= 1
            self._send_some()
            if self._open == 0:
                self._next_stage()

    def _set_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self.tree.world.after(self._settings.timeout_s, self._late)

    def _late(self) -> None:
        """A message was lost, or somebody died: ask again, under a new number."""
        self._tries += 1
        if self._rounds:  # all is committed; who does not move forward stays where he is
            self._finish("")
            return
        if self._tries >= self._settings.tries:
            self._fail("no answer")
            return
        for number, first in self._uncommitted:
            order = self._orders[number]
            self._send_commit(order, first, *order.pieces[first])
        for order in [order for order in self._orders.values() if order.left]:
            self._drop(order)
            self._open -= 1
            ask = order.ask._replace(number=self._number(), asked_s=self.tree.world.now())
            self._send(_Order(ask, order.tasks))
        self._set_timer()

    def _drop(self, order: _Order) -> None:
        del self._orders[order.ask.number]
        for host, _ in order.pieces.values():
            self.tree.world.send(host, RollBack(order.ask.number))

    # Second phase.

    def _commit(self) -> None:
        for order in self._orders.values():
            for first, (host, count) in order.pieces.items():
                self._uncommitted.add((order.ask.number, first))
                self._send_commit(order, first, host, count)
        self._set_timer()

    def _send_commit(self, order: _Order, first: int, host: AgentId, count: int) -> None:
        tasks = order.tasks[first : first + count]
        startlines_s = tuple([self._ready_s(task, host) for task in tasks])
        self._told[order.ask.number, first] = startlines_s
        self.tree.world.send(host, Commit(order.ask.number, first, startlines_s))

    def _ready_s(self, task: int, host: AgentId) -> float:
        """When all inputs of a task are there, as promised. Those made on the same lane before it
        are there when it begins."""
        number = self.plan.of[task]
        times_s = [
            self.slots[p].due_s
            for p in self.graph.parents[task]
            if self.hosts.get(p) != host or self.plan.of[p] != number
        ]
        return max(times_s, default=self._began_s)

    def _committed(self, message: Committed) -> None:
        order = self._orders[message.number]
        if not message.slots and not self._rounds:
            self._fail("a lease was over too soon")
            return
        for task, slot in zip(order.tasks[message.first :], message.slots, strict=False):
            self.slots[task] = slot
        self._uncommitted.discard((message.number, message.first))
        if self._uncommitted:
            return
        if not self._rounds:
            self._took_s = self.tree.world.now() - self._began_s
        self._rounds += 1
        if self._rounds > len(self._stages) or not self._hasten():
            self._finish("")
        else:
            self._set_timer()

    def _hasten(self) -> bool:
        """Ask those to move forward whose inputs come earlier than they were told."""
        for order in self._orders.values():
            for first, (host, count) in order.pieces.items():
                told = self._told[order.ask.number, first]
                tasks = order.tasks[first : first + count]
                new = [self._ready_s(task, host) for task in tasks]
                if any(n < t - WORTH_S for n, t in zip(new, told, strict=True)):
                    self._uncommitted.add((order.ask.number, first))
        for number, first in self._uncommitted:
            order = self._orders[number]
            self._send_commit(order, first, *order.pieces[first])
        return bool(self._uncommitted)

    # The end.

    def _fail(self, reason: str) -> None:
        if not self.over:
            self.roll_back()
            self._finish(reason)

    def roll_back(self) -> None:
        """Give back all that was reserved, or committed."""
        for order in list(self._orders.values()):
            self._drop(order)

    def _finish(self, reason: str) -> None:
        self.over = True
        if self._timer is not None:
            self._timer.cancel()
        if reason:
            self._took_s = self.tree.world.now() - self._began_s
        orders = self._orders.values()
        end_s = max([slot.due_s for slot in self.slots.values()], default=0.0)
        split = sum(len(order.pieces) > 1 for order in orders)
        self._on_done(
            self,
            Booked(
                reason, self._took_s, end_s, end_s - self._began_s, len(self.plan.tasks), split,
                len(self._stages), self._requests, self._hops,
            ),
        )  # fmt: skip


class Desk:
    """All bookings of one peer: hands what the tree says to the one it is for. Who is not known is
    answered by giving the time back."""

    __slots__ = ("_bookings", "_tree")

    def __init__(self, tree: Tree) -> None:
        self._tree = tree
        self._bookings: list[Booking] = []
        tree.client = self

    def book(self, booking: Booking) -> None:
        self._bookings = [other for other in self._bookings if not other.over]
        self._bookings.append(booking)
        booking.begin()

    def told(self, sender: AgentId, message: TreeAnswer) -> None:
        for booking in self._bookings:
            if not booking.over and message.number in booking.numbers():
                booking.told(sender, message)
                return
        if isinstance(message, Reserved):
            self._tree.world.send(sender, RollBack(message.number))
