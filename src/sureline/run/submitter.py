"""The agent that drives one run: the only writer of its journal.

A task moves through these states; every arrow is a method here, and an event in the journal
wherever the outside can see it:

    waiting -> staging -> queued -> bound -> committed
                  |          ^        |
                  |          |        +-> retrying -> queued     (attempts left)
                  |          |        +-> failed                 (none left)
                  |          +--------+   refused, or withdrawn by a cancel
                  +-> committed                                  (a past result is reused)
                  +-> failed                                     (an input cannot be had)

`staging` finds the inputs' identities and looks for a past result; it is bounded by STAGING_MAX.
A result commits once: the first attempt that ends well wins, whatever ends later is discarded.
Children start as soon as their parents' records would survive a kill of this process, before they
are synced: the journal survives a power cut as a prefix, so a child's durable result implies its
parents'.
The run is over when nothing is staging, queued, bound or retrying: then all that is left waits
for something that failed. The end is announced only when it is durable.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import msgspec

from sureline.journal.events import (
    COMMITS,
    CancelAsked,
    RunEnded,
    RunState,
    TaskBound,
    TaskEnded,
    TaskProgressed,
    TaskReady,
    TaskRetried,
    TaskRevoked,
    TaskStarted,
)
from sureline.peer.capacity import Capacity
from sureline.peer.messages import (
    Attempt,
    Bind,
    Finished,
    Progressed,
    Refused,
    Started,
    Withdraw,
)
from sureline.run.known import Known
from sureline.run.options import CancelRun, Options, Past
from sureline.run.past import KeptAnswer, KeptFiles, PastFound
from sureline.run.publisher import Publisher
from sureline.run.repair import FreeRepairer
from sureline.run.staging import Staging
from sureline.run.states import OPEN, State
from sureline.run.strategy import Placer, Repairer
from sureline.run.telling import peer_joined, task_beaten, task_ended, task_reused
from sureline.run.twins import Twins
from sureline.run.watch import Watch
from sureline.workflow.files import FileRecord, result_path
from sureline.workflow.model import Call, Graph
from sureline.workflow.shapes import urgencies
from sureline.world.agent import Agent, handles
from sureline.world.protocol import AgentId, Fetched, World

RETRY_DELAY_MAX_S = 300.0
REFUSALS_MAX = 5
AHEAD_BELOW_S = 0.02
"""While attempts are shorter than this, the next ones are bound ahead: the time between two of
them would otherwise be as long as one."""
RECENT_WEIGHT = 0.2


class Submitter(Agent):
    def __init__(
        self,
        me: AgentId,
        world: World,
        run: str,
        graph: Graph,
        placer: Placer,
        options: Options,
        on_end: Callable[[RunEnded], None],
        past: Past | None = None,
    ) -> None:
        self._watch: Watch | None = None
        if options.deadline_at is not None:
            committed = past.committed.values() if past is not None else ()
            self._watch = Watch(world, run, graph, options, committed)
            world = self._watch.world
        self._following = None if self._watch is None else self._watch.following
        super().__init__(me, world)
        self.run = run
        self.graph = graph
        self._placer = placer
        self._options = options
        self._on_end = on_end
        self._past = past or Past()
        count = len(graph)
        self._state = [State.WAITING] * count
        self._missing_parents = [len(p) for p in graph.parents]
        self._attempt = [self._past.attempts.get(t.name, 0) for t in graph.tasks]
        self._failures = [0] * count
        self._refusals = [0] * count
        self._urgency = urgencies(graph)
        self._keys: dict[int, str] = {}
        self._recent_s = 1.0
        """How long attempts took of late, on average; a second before anything is known."""
        self._unflushed: set[int] = set()
        """Tasks that committed since the last flush that was asked for here."""
        self._peer_of: dict[int, AgentId] = {}
        """Who has the newest attempt of a task, if that is under way; `_twins` has older ones."""
        self._twins = Twins()
        self._restarting: set[int] = set()
        self._known = Known(graph)
        self._published: dict[int, int] = {}
        """How far publishing must have come for a task's files to be in place."""
        self._staging = Staging(
            world,
            self._known,
            fresh=options.fresh,
            on_staged=self._staged,
            on_found=self._found,
            on_missing=self._cannot_stage,
            settled=self._settled,
        )
        self._open = 0
        self._checking = 0
        self._failed = 0
        self._cancel: CancelRun | None = None
        self._reason = ""
        self._over = False
        self._publisher = Publisher(world, self._finish_if_over)

    # -- starting ------------------------------------------------------------------------------

    def start(self, peers: Mapping[AgentId, Capacity]) -> None:
        """Begin, or go on after an earlier process. Called once."""
        for peer, capacity in peers.items():
            self._placer.peer_joined(peer, capacity)
            self.world.record(peer_joined(self.world.now(), peer, capacity))
        self._checking = 1  # holds off the end until every committed task was looked at
        for name, ended in self._past.committed.items():
            self._check_kept(self.graph.index[name], ended)
        self._checked()

    def _check_kept(self, task: int, ended: TaskEnded) -> None:
        if not ended.outputs:
            self._restore(task, ended)
            return
        self._checking += 1

        def answer(fetched: Fetched) -> None:
            if isinstance(fetched, KeptAnswer) and fetched.whole:
                self._restore(task, ended)
            else:
                reason = "its stored files are gone or damaged"
                self.world.record(TaskRevoked(self.world.now(), ended.task, reason))
            self._checked()

        self.world.fetch(KeptFiles(ended.outputs, self._options.verify), (), answer)

    def _restore(self, task: int, ended: TaskEnded) -> None:
        self._state[task] = State.COMMITTED
        self._keep_result(task, ended.outputs, ended.result)
        for child in self.graph.children[task]:
            self._missing_parents[child] -= 1

    def _checked(self) -> None:
        self._checking -= 1
        if self._checking:
            return
        for task, state in enumerate(self._state):
            if state is State.COMMITTED:
                self._known.read_by(task)
            elif not self._missing_parents[task]:
                self._ready(task)
        if self._watch is not None:
            self._watch.begin(self._make_repairer(), self._under_way)
        self._settled()

    # -- waiting -> staging -> queued ----------------------------------------------------------

    def _ready(self, task: int) -> None:
        self.world.record(TaskReady(self.world.now(), self.graph.tasks[task].name))
        self._set(task, State.STAGING)
        self._staging.add(task, self._urgency[task])

    def _staged(self, task: int, key: str) -> None:
        """All inputs have identities, and no past result is to be had."""
        if key:
            self._keys[task] = key
        self._queue(task)

    def _found(self, task: int, key: str, past: PastFound) -> None:
        self._commit(task, task_reused(self.world.now(), self.graph.tasks[task], key, past))

    def _cannot_stage(self, task: int, reason: str) -> None:
        self._fail(task, TaskEnded(0.0, "", "failed", reason=reason))

    def _settled(self) -> None:
        """Something happened: go on with what that allows."""
        self._pump()
        self._finish_if_over()

    def _queue(self, task: int) -> None:
        """A call works in the user's directory: what it follows must be in place there first."""
        if isinstance(self.graph.tasks[task].action, Call):
            marks = [self._published.get(parent, 0) for parent in self.graph.parents[task]]
            if max(marks, default=0) > self._publisher.in_place:
                self._publisher.when(max(marks), lambda: self._queue_at_last(task))
                return
        self._queue_now(task)

    def _queue_at_last(self, task: int) -> None:
        if self._state[task] in OPEN:  # else the run was cancelled meanwhile
            self._queue_now(task)
            self._pump()

    def _queue_now(self, task: int) -> None:
        self._set(task, State.QUEUED)
        self._placer.ready(task, self.graph.tasks[task].needs, self._urgency[task])

    # -- queued -> bound -----------------------------------------------------------------------

    def _pump(self) -> None:
        if self._cancel is not None or self._checking:
            return
        self._staging.more()
        for task, peer, ahead in self._placer.place(ahead=self._recent_s < AHEAD_BELOW_S):
            self._bind(task, peer, ahead)

    def _bind(self, task: int, peer: AgentId, ahead: bool) -> None:
        described = self.graph.tasks[task]
        if not self._unflushed.isdisjoint(self.graph.parents[task]):
            self.world.flush()
            self._unflushed.clear()
        self._attempt[task] += 1
        attempt = self._attempt[task]
        self._set(task, State.BOUND)
        self._peer_of[task] = peer
        self.world.record(TaskBound(self.world.now(), described.name, attempt, peer, ahead))
        job = self._known.job(task, attempt)
        self.world.send(peer, Bind(self.run, described.name, attempt, job, described.needs, ahead))

    @handles(Started)
    def on_started(self, sender: AgentId, message: Started) -> None:
        self.world.record(
            TaskStarted(self.world.now(), message.task, message.attempt, sender, message.pid)
        )

    @handles(Progressed)
    def on_progressed(self, sender: AgentId, message: Progressed) -> None:
        self.world.record(
            TaskProgressed(self.world.now(), message.task, message.attempt, message.fraction)
        )

    @handles(Refused)
    def on_refused(self, sender: AgentId, message: Refused) -> None:
        task = self._release(sender, message)
        if task is None:
            return
        self._refusals[task] += 1
        if not self._leaves_none(task):
            pass
        elif self._refusals[task] < REFUSALS_MAX:
            self._queue(task)
        else:
            self._fail(task, TaskEnded(0.0, "", "failed", message.attempt, reason=message.reason))
        self._settled()

    def _release(self, peer: AgentId, message: Attempt) -> int | None:
        """The task whose attempt is over; None if that attempt is not the one under way."""
        task = self.graph.index.get(message.task)
        if task is None:
            return None
        if message.attempt == self._attempt[task] and self._peer_of.get(task) == peer:
            del self._peer_of[task]
        elif not self._twins.remove(task, message.attempt, peer):
            return None
        self._placer.released(task, self.graph.tasks[task].needs, peer)
        return task

    # -- bound -> committed, retrying or failed ------------------------------------------------

    @handles(Finished)
    def on_finished(self, sender: AgentId, message: Finished) -> None:
        task = self._release(sender, message)
        if task is None:
            return
        ended = self._as_event(task, sender, message)
        self._recent_s += RECENT_WEIGHT * (ended.elapsed_s - self._recent_s)
        if self._state[task] is State.COMMITTED:
            pass  # another attempt was first
        elif ended.outcome in COMMITS:
            self._commit(task, ended)
            self._withdraw_others(task)
        elif not self._leaves_none(task):
            self.world.record(ended)
        elif ended.outcome == "cancelled":
            self._stopped(task, ended)
        else:
            self._failures[task] += 1
            if self._failures[task] <= self.graph.tasks[task].retries and self._cancel is None:
                self._retry(task, ended)
            else:
                self._fail(task, ended)
        self._settled()

    def _leaves_none(self, task: int) -> bool:
        """Whether an attempt that is over leaves the task, which has no result, with none."""
        bound = self._state[task] is State.BOUND
        return bound and task not in self._peer_of and not self._twins.of(task)

    def _stopped(self, task: int, ended: TaskEnded) -> None:
        self.world.record(ended)
        self._set(task, State.WAITING)
        if task in self._restarting and self._cancel is None:
            self._queue(task)
        self._restarting.discard(task)

    def _as_event(self, task: int, peer: AgentId, message: Finished) -> TaskEnded:
        good = message.ended.outcome == "succeeded"
        return task_ended(
            self.world.now(),
            self.graph.tasks[task],
            peer,
            message,
            self._known.inputs(task) if good else (),
            self._keys.pop(task, "") if good else "",
        )

    def _commit(self, task: int, ended: TaskEnded) -> None:
        self.world.record(ended)
        self._unflushed.add(task)
        self._set(task, State.COMMITTED)
        if self._watch is not None:
            self._watch.allowance.done(task, ended.attempt)
        self._keep_result(task, ended.outputs, ended.result)
        self._known.read_by(task)
        for child in self.graph.children[task]:
            self._missing_parents[child] -= 1
            # A child may have committed before its parent's result was revoked: it stays so.
            waits = self._state[child] is State.WAITING and not self._missing_parents[child]
            if waits and self._cancel is None:
                self._ready(child)

    def _keep_result(
        self, task: int, outputs: tuple[FileRecord, ...], result: bytes | None
    ) -> None:
        hidden = result_path(self.graph.tasks[task].name)
        self._known.add(outputs)
        self._known.keep_result(task, result)
        before = self._publisher.added
        self._publisher.add(r for r in outputs if r.path != hidden)
        if self._publisher.added > before:
            self._published[task] = self._publisher.added

    def _retry(self, task: int, ended: TaskEnded) -> None:
        self.world.record(ended)
        base = self._options.retry_delay_s * 2 ** (self._failures[task] - 1)
        delay = min(RETRY_DELAY_MAX_S, base) * (0.75 + 0.5 * self.world.random.random())
        self.world.record(
            TaskRetried(self.world.now(), ended.task, ended.attempt, delay, ended.reason)
        )
        self._set(task, State.RETRYING)

        def again() -> None:
            if self._state[task] is State.RETRYING and self._cancel is None:
                self._queue(task)
                self._pump()

        self.world.after(delay, again)

    def _fail(self, task: int, ended: TaskEnded) -> None:
        name = self.graph.tasks[task].name
        self.world.record(msgspec.structs.replace(ended, at=self.world.now(), task=name))
        self._set(task, State.FAILED)
        self._failed += 1
        if self._options.stop_on_failure and self._cancel is None:
            self._on_cancel(CancelRun(drain=True, reason=f"{name} failed"))

    # -- repair --------------------------------------------------------------------------------

    def _make_repairer(self) -> Repairer:
        """What can be done when the deadline is in danger."""
        return FreeRepairer(self.graph, self._placer, self.duplicate, self.restart)

    def _under_way(self) -> list[tuple[int, int, AgentId]]:
        """(task, attempt, peer) of every attempt that has not ended."""
        newest = [(task, self._attempt[task], peer) for task, peer in self._peer_of.items()]
        return newest + self._twins.all()

    def duplicate(self, task: int, peer: AgentId) -> int:
        """Start another attempt of a task that is under way; its number, 0 if it cannot be."""
        if self._state[task] is not State.BOUND or self._cancel is not None:
            return 0
        if task in self._peer_of:
            self._twins.add(task, self._attempt[task], self._peer_of[task])
        self._note_added(task, self._attempt[task] + 1)
        self._placer.adopted(self.graph.tasks[task].needs, peer)
        self._bind(task, peer, ahead=False)
        return self._attempt[task]

    def _note_added(self, task: int, attempt: int) -> None:
        if self._watch is not None:
            self._watch.allowance.use(task, attempt)

    def restart(self, task: int) -> int:
        """Stop a task and start it anew; the number of its next attempt, 0 if it cannot be."""
        if self._state[task] is not State.BOUND or self._cancel is not None:
            return 0
        self._note_added(task, self._attempt[task] + 1)
        self._restarting.add(task)
        for one, attempt, _ in self._under_way():
            if one == task:
                self.withdraw(task, attempt)
        return self._attempt[task] + 1

    def withdraw(self, task: int, attempt: int) -> None:
        """Stop one attempt of a task; nothing happens if it is not under way."""
        for one, number, peer in self._under_way():
            if (one, number) == (task, attempt):
                name = self.graph.tasks[task].name
                self.world.send(peer, Withdraw(self.run, name, attempt, force=True))

    def _withdraw_others(self, task: int) -> None:
        """It has its result: whatever else was started for it is not needed."""
        others = dict(self._twins.of(task))
        if task in self._peer_of:
            others[self._attempt[task]] = self._peer_of[task]
        name = self.graph.tasks[task].name
        for attempt, peer in others.items():
            self.withdraw(task, attempt)
            self.world.record(task_beaten(self.world.now(), name, attempt, peer))

    # -- ending --------------------------------------------------------------------------------

    @handles(CancelRun)
    def on_cancel(self, sender: AgentId, message: CancelRun) -> None:
        self._on_cancel(message)
        self._finish_if_over()

    def _on_cancel(self, message: CancelRun) -> None:
        if self._over:
            return
        first = self._cancel is None
        self._cancel = message
        self._reason = self._reason or message.reason
        if self._watch is not None:
            self._watch.end()
        self.world.record(CancelAsked(self.world.now(), message.drain, message.reason))
        if first:
            for task, state in enumerate(self._state):
                if state in OPEN and state is not State.BOUND:
                    self._set(task, State.WAITING)
            self._staging.clear()
        if not message.drain:
            self._withdraw_all(message.force)

    def _withdraw_all(self, force: bool) -> None:
        for task, attempt, peer in self._under_way():
            name = self.graph.tasks[task].name
            self.world.send(peer, Withdraw(self.run, name, attempt, force))

    def _set(self, task: int, state: State) -> None:
        self._open += (state in OPEN) - (self._state[task] in OPEN)
        self._state[task] = state

    def _finish_if_over(self) -> None:
        if self._over or self._open or self._checking or self._publisher.busy:
            return
        self._over = True
        if self._watch is not None:
            self._watch.end()
        self._closing()
        ended = RunEnded(self.world.now(), *self._verdict())
        self.world.record(ended)
        self.world.sync(lambda: self._announce(ended))

    def _closing(self) -> None:
        """The last that is recorded before the end."""

    def _announce(self, ended: RunEnded) -> None:
        self._on_end(ended)

    def _verdict(self) -> tuple[RunState, str]:
        if self._failed:
            return "failed", self._reason
        if self._publisher.failures:
            return "failed", self._publisher.failures[0]
        if all(state is State.COMMITTED for state in self._state):
            return "succeeded", ""
        return "cancelled", self._reason
