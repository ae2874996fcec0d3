"""The agent that drives one run over a grid of peers: its only writer, in one epoch.

It is the submitter of `submitter`, with attempts on peers that come and go (`grid_attempts`), and:
- The first complete result of the inputs as they are now commits. Other attempts of the task are
  withdrawn, and their reports acknowledged and dropped.
- Outputs stay where they were made and are brought home in the background (`homing`). What nobody
  holds any more is made again: its task is revoked, and so, in turn, what that one needs.
- Reports are acknowledged when what came of them is durable (`receipts`).
- A writer that hears of a newer one stops at once, without another event (`fence`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from sureline.journal.events import FileFetched, RunEnded, RunState, TaskEnded, TaskRevoked
from sureline.peer.capacity import Capacity
from sureline.peer.jobs import FileReady
from sureline.peer.messages import Fenced, Finished, Release
from sureline.run.attempts import Binding
from sureline.run.grid_attempts import TICK_S, GridAttempts
from sureline.run.homing import Homing
from sureline.run.options import CancelRun, Options, Past
from sureline.run.receipts import Receipts
from sureline.run.sense import is_attempt, made_sense_of
from sureline.run.states import State
from sureline.run.strategy import GridPlacer
from sureline.run.telling import task_beaten
from sureline.run.travels import check_travels
from sureline.workflow.files import FileRecord
from sureline.workflow.model import Graph
from sureline.world.address import Node, name_of
from sureline.world.agent import handles
from sureline.world.protocol import AgentId, Message, World

__all__ = ["GridSubmitter", "check_travels"]

ATTACH_WAIT_S = 3.0
"""How long a resumed run waits for its peers to tell what is under way, before it starts more."""


class GridSubmitter(GridAttempts):
    """`on_fenced` hears, in one sentence, that another process has taken the run over; nothing
    else happens here afterwards. The graph has passed `check_travels`."""

    def __init__(
        self,
        me: AgentId,
        world: World,
        run: str,
        graph: Graph,
        placer: GridPlacer,
        options: Options,
        on_end: Callable[[RunEnded], None],
        past: Past | None = None,
        *,
        epoch: int,
        on_fenced: Callable[[str], None],
    ) -> None:
        super().__init__(me, world, run, graph, placer, options, on_end, past, epoch)
        self._on_fenced = on_fenced
        self._checking = 1  # reports may come before `start`: the run is not over for that
        self._receipts = Receipts(self._fence, run, epoch)
        self._homing = Homing(
            self._fence,
            self._holders,
            on_home=self._came_home,
            on_gone=self._gone,
            on_idle=self._finish_if_over,
        )
        self._made_by: dict[int, tuple[str, int]] = {}
        """(peer, attempt) of the committed results."""
        self._early: dict[int, tuple[AgentId, Finished]] = {}
        """Results of tasks that are not staged (again) yet, so that it is not known whether they
        are of the right inputs."""
        self._homeless = 0
        """Outputs that could not be brought home while the run was being cancelled."""

    def receive(self, sender: AgentId, message: Message) -> None:
        if not (self._fence.is_shut or self._over):
            super().receive(sender, message)

    # -- starting ------------------------------------------------------------------------------

    def start(self, peers: Mapping[Node, Capacity]) -> None:
        """Begin, or go on after an earlier process. Called once."""
        self._checking = 1  # holds off binding, and the end
        for name, ended in self._past.committed.items():
            task = self.graph.index[name]
            self._note_holders(task, ended)
            self._restore(task, ended)
        for node, capacity in peers.items():
            self.peer_joined(node, capacity)
        self.world.after(TICK_S, self._tick)
        self.world.after(TICK_S, self._tell_homed)
        if self.epoch > 1 and peers:
            self.world.after(ATTACH_WAIT_S, self._begin)
        else:
            self._begin()

    def refuse(self, reason: str) -> None:
        """End the run instead of beginning it: its terms cannot be met."""
        self._checking = 0
        self.on_cancel(self.me, CancelRun(reason=reason))

    def _begin(self) -> None:
        if self._checking:
            self._checked()

    def _peer_attached(self) -> None:
        self._homing.look_again()

    def _all_attached(self) -> None:
        self._begin()

    def _note_holders(self, task: int, ended: TaskEnded) -> None:
        if ended.attempt:
            self._made_by[task] = (ended.peer, ended.attempt)
            for record in ended.outputs:
                self._holders.add(record.digest, ended.peer)
        else:
            for record in ended.outputs:
                self._holders.add_here(record.digest)

    # -- results -------------------------------------------------------------------------------

    def _staged(self, task: int, key: str) -> None:
        self._keys[task] = key
        early = self._early.pop(task, None)
        if early is not None:
            self._set(task, State.QUEUED)
            self._take_result(*early, task)
            if self._state[task] is State.COMMITTED:
                return
        self._queue(task)

    @handles(Finished)
    def on_finished(self, sender: AgentId, message: Finished) -> None:
        task = self.graph.index.get(message.task)
        if task is None or message.run != self.run or not is_attempt(message.attempt):
            return
        message = made_sense_of(message, self.graph.tasks[task], name_of(sender))
        binding = self._known_binding(sender, message)
        if binding is not None:
            self._give_back(binding, message)
        if self._state[task] is State.COMMITTED:
            mine = self._made_by.get(task) == (name_of(sender), message.attempt)
            self._receipts.acknowledge(sender, message, useless=not mine)
            self._settled()
            return
        self._attempts.note_over(name_of(sender), task, message.attempt)
        if message.ended.outcome == "succeeded":
            self._take_result(sender, message, task)
        else:
            self._receipts.acknowledge(sender, message, useless=True)
            if binding is not None:
                self._ended_badly(binding, message)
        self._settled()

    def _take_result(self, sender: AgentId, message: Finished, task: int) -> None:
        if task not in self._keys:
            self._early.setdefault(task, (sender, message))
        elif message.key != self._known.key(task):
            # Its inputs have been made anew since, and differ.
            self._receipts.acknowledge(sender, message, useless=True)
            if self._needs_another(task):
                self._queue(task)
        else:
            self._commit(task, self._as_event(task, name_of(sender), message))
            self._receipts.acknowledge(sender, message, useless=False)

    def _ended_badly(self, binding: Binding, message: Finished) -> None:
        task, ended = binding.task, self._as_event(binding.task, binding.peer, message)
        if binding.withdrawn or not self._needs_another(task):
            self._cancelled(binding, ended)
        elif ended.outcome == "cancelled":
            self._lost(binding, ended.reason or f"{binding.peer} stopped it")
        else:
            self._count_failure(task, ended)

    def _commit(self, task: int, ended: TaskEnded) -> None:
        if self._state[task] is State.FAILED:
            self._failed -= 1
        self._staging.drop(task)
        self._early.pop(task, None)
        self._keys.pop(task, None)
        self._note_holders(task, ended)
        if ended.attempt:
            for record in ended.inputs:
                self._holders.add(record.digest, ended.peer)
        super()._commit(task, ended)
        self._attempts.committed(task)
        for binding in self._attempts.of_task(task):
            if not binding.withdrawn:
                now, name = self.world.now(), self.graph.tasks[task].name
                self.world.record(task_beaten(now, name, binding.attempt, binding.peer))
            self._withdraw(binding, force=True)

    # -- their files ----------------------------------------------------------------------------

    def _keep_result(
        self, task: int, outputs: tuple[FileRecord, ...], result: bytes | None
    ) -> None:
        self._known.add(outputs)
        self._homing.add(task, outputs)

    def _came_home(self, task: int, ready: FileReady) -> None:
        if self._over:
            return
        digest = ready.file.digest
        if ready.source:
            source = name_of(ready.source)
            self.world.record(FileFetched(self.world.now(), ready.file, "peer", source))
        self._publisher.add([ready.file])
        made_by = self._made_by.get(task)
        if made_by is not None:
            self._receipts.homed(made_by[0], digest)
        self._unparked(self._binds.unpark(digest))
        self._settled()

    def _tell_homed(self) -> None:
        self._receipts.release(self._agent_of)
        self.world.after(TICK_S, self._tell_homed)

    def _agent_of(self, name: str) -> AgentId | None:
        peer = self._fleet.get(name)
        return None if peer is None else peer.agent

    def _gone(self, task: int, path: str) -> None:
        """No holder of a committed output is left."""
        if self._over:
            return
        if self._cancel is not None:
            self._homeless += 1
        else:
            self._revoke(task, f"no peer that had {path} is left")
        self._settled()

    def _revoke(self, task: int, reason: str) -> None:
        name = self.graph.tasks[task].name
        self.world.record(TaskRevoked(self.world.now(), name, reason))
        self._homing.drop(task)
        self._made_by.pop(task, None)
        self._set(task, State.WAITING)
        for child in self.graph.children[task]:
            self._missing_parents[child] += 1
            if self._state[child] in (State.STAGING, State.QUEUED, State.RETRYING):
                self._staging.drop(child)
                self._set(child, State.WAITING)
            if self._state[child] is State.WAITING:
                self._keys.pop(child, None)
        if not self._missing_parents[task] and not self._checking:
            self._ready(task)

    # -- ending --------------------------------------------------------------------------------

    @handles(Fenced)
    def on_fenced(self, sender: AgentId, message: Fenced) -> None:
        if message.run == self.run:
            self.taken_over(message.epoch)

    def taken_over(self, epoch: int) -> None:
        """Somebody knows a writer of this epoch; if it is newer, nothing more happens here."""
        if epoch <= self.epoch or self._fence.is_shut:
            return
        self._fence.shut()
        self._on_fenced(
            f"run {self.run} was taken over by another process (epoch {epoch}, ours was "
            f"{self.epoch}); follow it with: sureline show {self.run}"
        )

    def _on_cancel(self, message: CancelRun) -> None:
        self._binds.clear()
        super()._on_cancel(message)

    def _finish_if_over(self) -> None:
        forced = self._cancel is not None and self._cancel.force
        if not self._homing.busy or forced:
            super()._finish_if_over()

    def _announce(self, ended: RunEnded) -> None:
        """What ended well needs nothing of the peers any more. Anything else may be resumed: they
        keep their reports."""
        self._receipts.send_all()
        self._receipts.release(self._agent_of)
        if ended.state == "succeeded":
            for peer in self._fleet.all():
                self.world.send(peer.agent, Release(self.run, self.epoch, over=True))
        self._fence.shut()
        super()._announce(ended)

    def _verdict(self) -> tuple[RunState, str]:
        state, reason = super()._verdict()
        if state == "succeeded" and (self._homeless or self._homing.busy):
            return "cancelled", self._reason
        return state, reason
