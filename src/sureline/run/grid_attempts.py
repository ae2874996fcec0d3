"""Attempts on peers that come and go: the half of a grid run's writer that deals with peers.

A peer takes part from when it has answered an `Attach`. What is under way there and of use is
adopted, what is not is withdrawn; what should be and is not is said again, or is lost. A lost
attempt does not count as a failure, up to LOSSES_MAX times, and its task is placed again at once.
Several attempts of one task may be under way.

Peers are known by name; where they listen may change.
"""

from __future__ import annotations

from collections.abc import Callable

from sureline.journal.events import (
    PeerLeft,
    RunEnded,
    TaskBound,
    TaskEnded,
    TaskProgressed,
    TaskRetried,
    TaskStarted,
)
from sureline.peer.capacity import Capacity
from sureline.peer.messages import (
    Attached,
    Attempt,
    Bind,
    Finished,
    Progressed,
    Refused,
    Started,
    Withdraw,
)
from sureline.run.attempts import Attempts, Binding
from sureline.run.binds import Binds, too_long
from sureline.run.fence import Fence
from sureline.run.fleet import Answer, Fleet, Peer
from sureline.run.holders import Holders
from sureline.run.options import Options, Past
from sureline.run.sense import names_attempts
from sureline.run.states import State
from sureline.run.strategy import GridPlacer
from sureline.run.submitter import Submitter
from sureline.run.telling import peer_joined
from sureline.workflow.model import Graph
from sureline.world.address import Node, name_of, node_of
from sureline.world.agent import handles
from sureline.world.protocol import AgentId, World

TICK_S = 1.0
LOSSES_MAX = 10
LACKS_MAX = 8
"""How often a peer may fail to get a task's inputs before the task fails."""
AGAIN_MAX_S = 30.0
BINDS_MAX = 5
"""How often a Bind is sent before its peer is believed not to hear it."""


class GridAttempts(Submitter):
    """Not complete by itself: `grid_submitter` is."""

    def __init__(
        self,
        me: AgentId,
        world: World,
        run: str,
        graph: Graph,
        placer: GridPlacer,
        options: Options,
        on_end: Callable[[RunEnded], None],
        past: Past | None,
        epoch: int,
    ) -> None:
        self._fence = Fence(world)
        super().__init__(me, self._fence, run, graph, placer, options, on_end, past)
        self._grid_placer = placer
        self.epoch = epoch
        self._fleet = Fleet(self._fence, run, epoch)
        self._attempts = Attempts()
        self._holders = Holders(node_of(me), self._fleet.node)
        self._losses = [0] * len(graph)
        self._lacks = [0] * len(graph)
        self._binds = Binds(run, epoch, graph, self._known, self._holders)
        placer.held_by(lambda task: self._holders.bytes_on(self._known.inputs(task)))

    def _peer_attached(self) -> None:
        """A peer takes part from now on."""
        raise NotImplementedError

    def _all_attached(self) -> None:
        """Every peer that is known takes part."""
        raise NotImplementedError

    # -- peers ---------------------------------------------------------------------------------

    def peer_joined(self, node: Node, capacity: Capacity, site: str = "") -> None:
        """A peer that may run tasks is there; told again, it may have moved or changed."""
        known = self._fleet.get(name_of(node))
        if known is not None:
            if known.node == node and known.capacity == capacity:
                return
            if known.capacity == capacity:
                self._fleet.moved(known, node)
                return
            self.peer_left(known.node, "it offers something else now")
        self._fleet.add(node, capacity, site)

    def peer_left(self, node: Node, reason: str) -> None:
        """It is believed dead, or has left; what comes from it later is taken all the same."""
        name = name_of(node)
        peer = self._fleet.get(name)
        if peer is None or peer.node != node:
            return  # an address that it has not any more
        self._fleet.remove(name)
        lost = self._attempts.of_peer(name)
        for binding in lost:
            self._give_back(binding)
        if peer.attached:
            self._placer.peer_left(name)
            self.world.record(PeerLeft(self.world.now(), name, reason))
        for binding in lost:
            self._lost(binding, f"{name} is gone ({reason})")
        self._settled()

    def peer_load(self, node: Node, load: float) -> None:
        """How many of its cores are in use."""
        self._placer.peer_load(name_of(node), load)

    def _tick(self) -> None:
        for peer in self._fleet.all():
            bound, unheard = self._attempts.on(peer.name), self._attempts.unconfirmed_on(peer.name)
            if self._fleet.is_due(peer, bound=bound, unheard=unheard):
                self._fleet.ask(peer)
        self.world.after(TICK_S, self._tick)

    @handles(Attached)
    def on_attached(self, sender: AgentId, message: Attached) -> None:
        peer = self._fleet.get(name_of(sender))
        if peer is None or message.run != self.run or message.epoch != self.epoch:
            return
        if not names_attempts(message):
            return
        if not message.serial:
            self._fleet.moved(peer, node_of(sender))  # it was started again: ask what is left
            return
        self._fleet.heard(peer)
        answer = self._fleet.collect(peer, message)
        if answer is None:
            return
        peer.session = answer.session
        if not peer.attached:
            self._attach(peer)
        self._judge(peer, answer)
        self._adopt(peer, answer)
        if all(p.attached for p in self._fleet.all()):
            self._all_attached()
        self._settled()

    def _attach(self, peer: Peer) -> None:
        peer.attached = True
        self._placer.peer_joined(peer.name, peer.capacity)
        self.world.record(
            peer_joined(self.world.now(), peer.name, peer.capacity, peer.site, peer.node)
        )
        self._unparked(self._binds.unpark_all())
        self._peer_attached()

    def _judge(self, peer: Peer, answer: Answer) -> None:
        """What of the attempts that we believe to be there is not: it is said again, or lost."""
        for binding in self._attempts.of_peer(peer.name):
            restarted = binding.session != answer.session
            if not restarted and binding.serial >= answer.serial:
                continue  # it was bound after the question
            key = (self.graph.tasks[binding.task].name, binding.attempt)
            if key in answer.under_way or key in answer.reports:
                self._attempts.confirm(binding)
                if binding.withdrawn and key in answer.under_way:
                    self._withdraw(binding)
            elif binding.withdrawn:
                self._give_back(binding)
                self._cancelled(binding)
            elif restarted or binding.told >= BINDS_MAX:
                self._give_back(binding)
                why = "was started again" if restarted else "did not hear of it"
                self._lost(binding, f"{peer.name} {why}")
            else:
                self._bind_again(peer, binding)

    def _adopt(self, peer: Peer, answer: Answer) -> None:
        """What is there and was not known: it goes on, if it is of use; reports will follow."""
        for (name, attempt), started in answer.under_way.items():
            task = self.graph.index.get(name)
            if task is not None and self._is_known(peer.name, task, attempt):
                continue
            if task is None or self._state[task] is State.COMMITTED or self._cancel is not None:
                self.world.send(
                    peer.agent, Withdraw(self.run, name, attempt, force=True, epoch=self.epoch)
                )
                continue
            self._grid_placer.adopted(self.graph.tasks[task].needs, peer.name)
            self._adopt_one(peer, task, attempt, booked=True)
            self._note_adopted(task, attempt, peer.name, started)
        for name, attempt in answer.reports:
            task = self.graph.index.get(name)
            if task is None or self._state[task] is State.COMMITTED or self._cancel is not None:
                continue  # the report itself will be answered
            if not self._is_known(peer.name, task, attempt):
                self._adopt_one(peer, task, attempt, booked=False)

    def _adopt_one(self, peer: Peer, task: int, attempt: int, *, booked: bool) -> None:
        binding = Binding(
            peer.name, task, attempt, peer.serial, peer.session, confirmed=True, booked=booked
        )
        self._attempts.add(binding)
        self._attempt[task] = max(self._attempt[task], attempt)
        if self._state[task] in (State.QUEUED, State.RETRYING):
            self._set(task, State.BOUND)

    def _is_known(self, peer: str, task: int, attempt: int) -> bool:
        """Whether it is on our books, or this is old news of one that is over."""
        known = self._attempts.get(peer, task, attempt) is not None
        return known or self._attempts.is_over(peer, task, attempt)

    def _note_adopted(self, task: int, attempt: int, peer: str, started: bool) -> None:
        now, name = self.world.now(), self.graph.tasks[task].name
        if started:
            self.world.record(TaskStarted(now, name, attempt, peer))
        else:
            self.world.record(TaskBound(now, name, attempt, peer))

    # -- queued -> bound -----------------------------------------------------------------------

    def _queue(self, task: int) -> None:
        if self._missing_parents[task]:
            self._set(task, State.WAITING)  # a parent was revoked meanwhile
        elif self._attempts.of_task(task):
            self._set(task, State.BOUND)  # an adopted attempt is under way
        else:
            self._queue_now(task)

    def _pump(self) -> None:
        """Bind what may start: first it is on record for all of it, then the peers are told."""
        if self._cancel is not None or self._checking:
            return
        self._staging.more()
        binds: list[tuple[AgentId, Bind]] = []
        stale = True
        while stale:
            stale = False
            for placement in self._placer.place():
                bound = self._bind_to(placement.task, placement.peer)
                if bound is None:
                    needs = self.graph.tasks[placement.task].needs
                    self._placer.released(placement.task, needs, placement.peer)
                    stale = True
                else:
                    binds.append(bound)
        if binds:
            self.world.flush()
            self._unflushed.clear()
        for peer, bind in binds:
            self.world.send(peer, bind)

    def _bind_to(self, task: int, name: str) -> tuple[AgentId, Bind] | None:
        """None if the task is not to be bound (any more), or cannot be yet."""
        if self._state[task] is not State.QUEUED:
            return None
        return self._bind_attempt(task, name)

    def _bind_attempt(self, task: int, name: str) -> tuple[AgentId, Bind] | None:
        peer = self._fleet.get(name)
        if peer is None:
            return None
        bind = self._make_bind(task, self._attempt[task] + 1, name)
        if bind is None:
            return None
        reason = too_long(bind)
        if reason:
            self._fail(task, TaskEnded(0.0, "", "failed", reason=reason))
            return None
        self._attempt[task] += 1
        self._set(task, State.BOUND)
        if not self._attempts.unconfirmed_on(name):
            self._fleet.ask_later(peer)
        self._attempts.add(Binding(name, task, bind.attempt, peer.serial, peer.session))
        self.world.record(TaskBound(self.world.now(), bind.task, bind.attempt, name))
        return peer.agent, bind

    def _make_bind(self, task: int, attempt: int, peer: str) -> Bind | None:
        """What the peer is told; None if the task is not to be bound there now."""
        return self._binds.make(task, attempt)

    def _bind_again(self, peer: Peer, binding: Binding) -> None:
        bind = self._make_bind(binding.task, binding.attempt, peer.name)
        if bind is None or self._state[binding.task] is not State.BOUND:
            self._give_back(binding)
            self._lost(binding, f"{peer.name} did not hear of it")
            return
        binding.told += 1
        binding.serial = peer.serial
        self.world.send(peer.agent, bind)

    def _unparked(self, tasks: list[int]) -> None:
        for task in tasks:
            if self._state[task] is State.QUEUED:
                self._queue_now(task)

    # -- what peers tell --------------------------------------------------------------------------

    def _known_binding(self, sender: AgentId, message: Attempt) -> Binding | None:
        task = self.graph.index.get(message.task)
        if task is None or message.run != self.run:
            return None
        peer = self._fleet.get(name_of(sender))
        if peer is not None:
            self._fleet.heard(peer)
        binding = self._attempts.get(name_of(sender), task, message.attempt)
        if binding is not None:
            self._attempts.confirm(binding)
        return binding

    @handles(Started)
    def on_started(self, sender: AgentId, message: Started) -> None:
        binding = self._known_binding(sender, message)
        if binding is not None and not binding.started:
            binding.started = True
            self.world.record(
                TaskStarted(
                    self.world.now(), message.task, message.attempt, binding.peer, message.pid
                )
            )

    @handles(Progressed)
    def on_progressed(self, sender: AgentId, message: Progressed) -> None:
        known = self._known_binding(sender, message) is not None
        if known and 0 <= message.fraction <= 1:
            self.world.record(
                TaskProgressed(self.world.now(), message.task, message.attempt, message.fraction)
            )

    @handles(Refused)
    def on_refused(self, sender: AgentId, message: Refused) -> None:
        binding = self._known_binding(sender, message)
        if binding is None:
            return
        self._give_back(binding, message)
        self._attempts.note_over(*binding.key)
        self._refused(binding, message)
        self._settled()

    def _refused(self, binding: Binding, message: Refused) -> None:
        task = binding.task
        if not self._needs_another(task):
            return
        counts = self._lacks if message.missing else self._refusals
        counts[task] += 1
        if counts[task] >= (LACKS_MAX if message.missing else self._refusals_max()):
            self._fail(task, TaskEnded(0.0, "", "failed", message.attempt, reason=message.reason))
        else:
            self._again_after(task, message.attempt, 0.25 * 2 ** counts[task], message.reason)

    def _refusals_max(self) -> int:
        """Each peer may say no once."""
        return 5 + len(self._fleet.all())

    def _again_after(self, task: int, attempt: int, delay_s: float, reason: str) -> None:
        delay_s = min(AGAIN_MAX_S, delay_s) * (0.75 + 0.5 * self.world.random.random())
        name = self.graph.tasks[task].name
        self.world.record(TaskRetried(self.world.now(), name, attempt, delay_s, reason))
        self._set(task, State.RETRYING)

        def again() -> None:
            if self._state[task] is State.RETRYING and self._cancel is None:
                self._queue(task)
                self._settled()

        self.world.after(delay_s, again)

    # -- repair ------------------------------------------------------------------------------------

    def duplicate(self, task: int, peer: AgentId) -> int:
        if self._state[task] is not State.BOUND or self._cancel is not None:
            return 0
        bound = self._bind_attempt(task, peer)
        if bound is None:
            return 0
        self._note_added(task, bound[1].attempt)
        self._placer.adopted(self.graph.tasks[task].needs, peer)
        self.world.flush()
        self._unflushed.clear()
        self.world.send(*bound)
        return bound[1].attempt

    def withdraw(self, task: int, attempt: int) -> None:
        for binding in self._attempts.of_task(task):
            if binding.attempt == attempt and not binding.withdrawn:
                self._withdraw(binding, force=True)

    def _under_way(self) -> list[tuple[int, int, AgentId]]:
        return [(b.task, b.attempt, b.peer) for b in self._attempts.all() if not b.withdrawn]

    # -- attempts that are over --------------------------------------------------------------------

    def _count_failure(self, task: int, ended: TaskEnded) -> None:
        self._failures[task] += 1
        if self._failures[task] <= self.graph.tasks[task].retries and self._cancel is None:
            self._retry(task, ended)
        else:
            self._fail(task, ended)

    def _cancelled(self, binding: Binding, ended: TaskEnded | None = None) -> None:
        """An attempt is over that nobody waits for, or that was withdrawn."""
        task, name = binding.task, self.graph.tasks[binding.task].name
        now = self.world.now()
        self.world.record(ended or TaskEnded(now, name, "cancelled", binding.attempt, binding.peer))
        if not self._needs_another(task):
            return
        if self._cancel is not None:
            self._set(task, State.WAITING)
        else:
            self._queue(task)

    def _lost(self, binding: Binding, reason: str) -> None:
        task, name, now = binding.task, self.graph.tasks[binding.task].name, self.world.now()
        ended = TaskEnded(now, name, "lost", binding.attempt, binding.peer, reason=reason)
        if self._state[task] is State.COMMITTED:
            return
        if not self._needs_another(task):
            self.world.record(ended)
        elif self._cancel is not None:
            self.world.record(ended)
            self._set(task, State.WAITING)
        elif self._losses[task] < LOSSES_MAX:
            self._losses[task] += 1
            self.world.record(ended)
            self.world.record(TaskRetried(now, name, binding.attempt, 0.0, reason))
            self._queue(task)
        else:
            self._count_failure(task, ended)

    def _needs_another(self, task: int) -> bool:
        """Whether an attempt that is over leaves the task with none."""
        return self._state[task] is State.BOUND and not self._attempts.of_task(task)

    def _give_back(self, binding: Binding, told: Finished | Refused | None = None) -> None:
        """An attempt is over: `told` is what its peer said of that, None if it is believed lost, or
        was given up."""
        if self._attempts.pop(*binding.key) is not None and binding.booked:
            self._placer.released(binding.task, self.graph.tasks[binding.task].needs, binding.peer)

    def _withdraw(self, binding: Binding, force: bool = False) -> None:
        binding.withdrawn = True
        peer = self._fleet.get(binding.peer)
        if peer is not None:
            name = self.graph.tasks[binding.task].name
            self.world.send(
                peer.agent, Withdraw(self.run, name, binding.attempt, force, self.epoch)
            )

    def _withdraw_all(self, force: bool) -> None:
        for binding in self._attempts.all():
            self._withdraw(binding, force)
            if force:  # nobody is waited for
                self._give_back(binding)
                self._cancelled(binding)
