"""The agent that drives one run: the only writer of its journal, in one epoch.

One engine for all runs. On one machine its fleet is that machine alone; on a grid it is the peers
that come and go. Who gets which task is its strategy's affair (`port`); what must hold for every
strategy is kept here:

- A task moves through the states of `states`; every arrow is a method here, and an event in the
  journal wherever the outside can see it.
- A result commits once: the first attempt that ends well, made of the inputs as they are now. Other
  attempts are withdrawn, and what they report is acknowledged and dropped.
- Children start as soon as their parents' records would survive a kill of this process, before they
  are synced: the journal survives a power cut as a prefix, so a child's durable result implies its
  parents'.
- An attempt that is lost with its target is not a failure of the task, up to LOSSES_MAX times.
- The run is over when nothing is staging, queued, bound or retrying: then all that is left waits
  for something that failed. The end is announced only when it is durable.
- A writer that hears of a newer one stops at once, without another event (`fence`).

Around it: inputs and past results (`staging`), what a target is told (`binds`), the book of
attempts (`attempts`), keeping in contact with targets (`contact`), what becomes of results
(`delivery`), and, with a deadline, watching over it (`watch`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import NamedTuple

import msgspec

from sureline.journal.events import (
    CancelAsked,
    Noted,
    PeerLeft,
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
from sureline.peer.messages import (
    Attached,
    Attempt,
    Bind,
    Fenced,
    Finished,
    Progressed,
    Refused,
    Started,
    Withdraw,
)
from sureline.run.as_events import peer_joined, task_beaten, task_ended, task_reused
from sureline.run.attempts import Attempts
from sureline.run.binds import Binds, too_long
from sureline.run.contact import Contact
from sureline.run.delivery import Delivery
from sureline.run.estimates import Estimates, EstimatesFound
from sureline.run.fence import Fence, Gate
from sureline.run.free_repair import FreeRepairer
from sureline.run.known import Known
from sureline.run.options import CancelRun, Options, Past
from sureline.run.outlook import Following
from sureline.run.past import KeptAnswer, KeptFiles, PastFound
from sureline.run.port import Bound, Deciding, Ending, Over, Target
from sureline.run.report_checks import is_attempt, made_sense_of
from sureline.run.staging import Staging
from sureline.run.states import OPEN, State, Tasks
from sureline.run.unfit import Unfit
from sureline.run.watch import Watch
from sureline.workflow.model import Call, Graph
from sureline.workflow.shapes import urgencies
from sureline.workflow.terms import Terms
from sureline.world.address import Node, PeerName, name_of, node_of
from sureline.world.agent import Agent, handles
from sureline.world.protocol import Action, AgentId, Fetched, Message, World

RETRY_DELAY_MAX_S = 300.0
AGAIN_MAX_S = 30.0
REFUSALS_MAX = 5
"""Refusals of a task before it fails, beyond one for each target."""
UNFIT_MAX = 3
"""Refusals of a task before it fails, if all targets that are there are unfit for it."""
LOSSES_MAX = 10
LACKS_MAX = 8
"""How often a target may fail to get a task's inputs before the task fails."""
ATTACH_WAIT_S = 3.0
"""How long a resumed run waits for its peers to tell what is under way, before it starts more."""
DECISIONS_MAX = 100
"""How often in a row a strategy may ask to decide once more."""


class Hearers(NamedTuple):
    """Who hears of a run: `on_end` when its end is durable; `on_fenced`, in one sentence, that
    another process has taken it over; `on_told` what the user should know; `on_refused` that it
    ends before it began, since its terms cannot be met: without it, it begins all the same."""

    on_end: Callable[[RunEnded], None]
    on_fenced: Callable[[str], None] = lambda reason: None
    on_told: Callable[[str], None] = lambda sentence: None
    on_refused: Callable[[str], None] | None = None


class RunEngine(Agent):
    """`epoch` 0 is a run on this machine alone."""

    def __init__(
        self,
        me: AgentId,
        world: World,
        run: str,
        graph: Graph,
        options: Options,
        deciding: Deciding,
        hearers: Hearers,
        *,
        past: Past | None = None,
        epoch: int = 0,
        gate: Gate | None = None,
    ) -> None:
        self._gate = gate or Gate()
        self._here = epoch == 0
        if not self._here:
            world = Fence(world, self._gate)
        past = past or Past()
        self._watch: Watch | None = None
        if options.deadline_at is not None:
            self._watch = Watch(world, run, graph, options, past.committed.values())
            world = self._watch.world
        super().__init__(me, world)
        self.run = run
        self.graph = graph
        self.epoch = epoch
        self.terms: Terms = options.terms
        self._options = options
        self._deciding = deciding
        self._past = past
        self._hearers = hearers
        self._tasks = Tasks(graph)
        self._tasks.attempt = [past.attempts.get(t.name, 0) for t in graph.tasks]
        self._urgency = urgencies(graph)
        self._known = Known(graph, here=self._here, trust=options.trust)
        self._attempts = Attempts()
        self._contact = Contact(world, run, epoch, self._attempts, self, self._name)
        self._fleet = self._contact.fleet
        self._delivery = Delivery(
            world,
            run,
            epoch,
            graph,
            self._known,
            self._fleet,
            node_of(me),
            here=self._here,
            on_home=self._came_home,
            on_gone=self._gone,
            on_idle=self._finish_if_over,
        )
        self._binds = Binds(
            run,
            epoch,
            options.strategy,
            graph,
            self._known,
            self._delivery.holders,
            here=self._here,
        )
        self._staging = Staging(
            world,
            self._known,
            fresh=options.fresh,
            on_staged=self._staged,
            on_found=self._found,
            on_missing=self._cannot_stage,
            settled=self.settled,
        )
        self._unfit = Unfit(self._known)
        self._keys: dict[int, str] = {}
        """Of the tasks that are staged."""
        self._early: dict[int, tuple[AgentId, Finished]] = {}
        """Results of tasks that are not staged (again) yet, so that it is not known whether they
        are of the right inputs."""
        self._unflushed: set[int] = set()
        """Tasks that committed since the last flush that was asked for here."""
        self._outgoing: list[tuple[AgentId, Bind]] = []
        self._is_deciding = False
        self._woken = False
        self._holds = 1
        """What holds off the beginning, and the end."""
        self._is_let_go = False
        """Whether the strategy has given its word that the run may begin."""
        self._homeless = 0
        """Outputs that could not be brought home while the run was being cancelled."""
        self._cancel: CancelRun | None = None
        self._reason = ""
        self._over = False

    def receive(self, sender: AgentId, message: Message) -> None:
        if not (self._gate.is_shut or self._over):
            super().receive(sender, message)

    def _name(self, task: int) -> str:
        return self.graph.tasks[task].name

    # -- beginning -----------------------------------------------------------------------------

    def start(self, targets: Iterable[Target]) -> None:
        """Begin, or go on after an earlier process. Called once; targets that come later are told
        of by `target_joined`."""
        self._holds = 2  # the strategy's word, and ours
        self._deciding.begin(self, self._past.noted, self._go)
        for name, ended in self._past.committed.items():
            self._restore_if_whole(self.graph.index[name], ended)
        join = self._contact.join_here if self._here else self._contact.joined
        for target in targets:
            join(target)
        self._delivery.start()
        if self._here:
            self._release_hold()
            return
        self._contact.start()
        wait_s = ATTACH_WAIT_S if self.epoch > 1 else 0.0
        if wait_s and self._fleet.all():
            self._contact.when_whole(wait_s, self._release_hold)
        else:
            self._release_hold()

    def _go(self) -> None:
        if not self._is_let_go:
            self._is_let_go = True
            self._release_hold()

    def _release_hold(self) -> None:
        if not self._holds:
            return
        self._holds -= 1
        if not self._holds:
            self._begin()

    def _restore_if_whole(self, task: int, ended: TaskEnded) -> None:
        """A result of an earlier process. On a grid it is looked for when it is brought home."""
        if not self._here or not ended.outputs:
            self._restore(task, ended)
            return
        self._holds += 1

        def answer(fetched: Fetched) -> None:
            if isinstance(fetched, KeptAnswer) and fetched.whole:
                self._restore(task, ended)
            else:
                reason = "its stored files are gone or damaged"
                self.world.record(TaskRevoked(self.world.now(), ended.task, reason))
            self._release_hold()

        self.world.fetch(KeptFiles(ended.outputs, self._options.verify), (), answer)

    def _restore(self, task: int, ended: TaskEnded) -> None:
        self._tasks.move(task, State.COMMITTED)
        self._delivery.keep(task, ended)
        self._deciding.stands(task, True)
        for child in self.graph.children[task]:
            self._tasks.missing_parents[child] -= 1

    def _begin(self) -> None:
        for task, state in enumerate(self._tasks.state):
            if state is State.COMMITTED:
                self._known.read_by(task)
            elif state is State.WAITING and not self._tasks.missing_parents[task]:
                self._ready(task)
        if self._watch is not None:
            repairer = self._deciding.repairer()
            if repairer is None:
                repairer = FreeRepairer(self, self._deciding, self.restart)
            self._watch.begin(repairer, self._attempts.all)
        self.settled()

    def refuse(self, reason: str) -> bool:
        if self._hearers.on_refused is None or not self._holds:
            self._hearers.on_told(reason)
            return False
        self._hearers.on_refused(reason)
        self._holds = 0  # nothing was begun, so it is over at once
        self.on_cancel(self.me, CancelRun(reason=reason))
        return True

    def grow(self, graph: Graph) -> None:
        new = range(len(self.graph), len(graph))
        assert graph.tasks[: new.start] == self.graph.tasks, "tasks are only added"
        self.graph = graph
        self._urgency = urgencies(graph)
        self._tasks.grow(graph)
        for part in (self._known, self._binds, self._delivery):
            part.grow(graph)
        self._deciding.grown(new)
        if not self._holds and self._cancel is None:
            for task in new:
                if not self._tasks.missing_parents[task]:
                    self._ready(task)
            self.settled()

    # -- targets -------------------------------------------------------------------------------

    def target_joined(self, target: Target) -> None:
        """A target is there; told again, it may have moved or changed."""
        self._contact.joined(target)

    def target_left(self, node: Node, reason: str) -> None:
        """It is believed dead, or has left; what comes from it later is taken all the same."""
        self._contact.left(node, reason)

    def target_load(self, node: Node, cores: float) -> None:
        """How many of its cores are in use."""
        self._deciding.load(name_of(node), cores)

    def takes_part(self, target: Target) -> None:
        self._deciding.target(target)
        node = "" if self._here else node_of(target.agent)
        self.world.record(
            peer_joined(self.world.now(), target.name, target.capacity, target.site, node)
        )
        if not self._here:
            self._unfit.forget(target.name)  # it may be another one now
            self._unparked(self._binds.unpark_all())
            self._delivery.look_again()

    def takes_no_part(self, target: Target, reason: str) -> None:
        self._deciding.gone(target.name)
        self.world.record(PeerLeft(self.world.now(), target.name, reason))

    @handles(Attached)
    def on_attached(self, sender: AgentId, message: Attached) -> None:
        self._contact.attached(sender, message)

    def task_named(self, name: str) -> int | None:
        return self.graph.index.get(name)

    def is_of_use(self, task: int) -> bool:
        return self._tasks.state[task] is not State.COMMITTED and self._cancel is None

    def adopt(self, bound: Bound, *, started: bool) -> None:
        """An attempt that an earlier process started, or that was believed lost."""
        self._attempts.add(bound)
        task = bound.task
        self._tasks.attempt[task] = max(self._tasks.attempt[task], bound.attempt)
        if self._tasks.state[task] in (State.QUEUED, State.RETRYING):
            self._tasks.move(task, State.BOUND)
        if not bound.booked:
            return
        bound.started = started
        now, name = self.world.now(), self._name(task)
        if started:
            self.world.record(TaskStarted(now, name, bound.attempt, bound.target))
        else:
            self.world.record(TaskBound(now, name, bound.attempt, bound.target))
        self._deciding.bound(bound)

    # -- waiting -> staging -> queued ----------------------------------------------------------

    def _ready(self, task: int) -> None:
        self.world.record(TaskReady(self.world.now(), self._name(task)))
        self._tasks.move(task, State.STAGING)
        self._staging.add(task, self._urgency[task])

    def _staged(self, task: int, key: str) -> None:
        """All inputs have identities, and no past result is to be had."""
        self._keys[task] = key
        early = self._early.pop(task, None)
        if early is not None:
            self._tasks.move(task, State.QUEUED)
            self._take_result(*early, task)
            if self._tasks.state[task] is State.COMMITTED:
                return
        self._queue(task)

    def _found(self, task: int, key: str, past: PastFound) -> None:
        self._commit(task, task_reused(self.world.now(), self.graph.tasks[task], key, past))

    def _cannot_stage(self, task: int, reason: str) -> None:
        self._fail(task, TaskEnded(0.0, "", "failed", reason=reason))

    def _queue(self, task: int) -> None:
        """It may be bound (again), unless something it needs is not there."""
        if self._tasks.missing_parents[task]:
            self._tasks.move(task, State.WAITING)  # a parent was revoked meanwhile
        elif self._attempts.any_of(task):
            self._tasks.move(task, State.BOUND)  # an adopted attempt is under way
        elif not (
            # A call works in the user's directory: what it follows must be in place there first.
            isinstance(self.graph.tasks[task].action, Call)
            and self._delivery.when_in_place(
                self.graph.parents[task], lambda: self._queue_at_last(task)
            )
        ):
            self._queue_now(task)

    def _queue_at_last(self, task: int) -> None:
        if self._tasks.state[task] in OPEN:  # else the run was cancelled meanwhile
            self._queue_now(task)
            self._pump()

    def _queue_now(self, task: int) -> None:
        self._tasks.move(task, State.QUEUED)
        hopeless = self._unfit.hopeless(task, self._fleet.attached())
        if hopeless:
            most = UNFIT_MAX
            self._count_refusal(task, self._tasks.attempt[task], hopeless, most)
            return
        self._deciding.ready(task)

    def _unparked(self, tasks: list[int]) -> None:
        for task in tasks:
            if self._tasks.state[task] is State.QUEUED:
                self._deciding.ready(task)

    # -- queued -> bound -----------------------------------------------------------------------

    def settled(self) -> None:
        """Something happened: go on with what that allows."""
        self._pump()
        self._finish_if_over()

    def wake(self) -> None:
        self._woken = True
        if not self._is_deciding:
            self.settled()

    def _pump(self) -> None:
        """Have tasks bound: first it is on record for all of them, then the targets are told."""
        if self._cancel is not None or self._holds or self._is_deciding:
            return
        self._staging.more()
        self._is_deciding = True
        for _ in range(DECISIONS_MAX):
            self._woken = False
            self._deciding.decide()
            if not self._woken:
                break
        self._is_deciding = False
        self._send_binds()

    def _send_binds(self) -> None:
        if not self._outgoing:
            return
        if self._unflushed and (not self._here or self._follows_unflushed()):
            self.world.flush()
            self._unflushed.clear()
        elif not self._here:
            self.world.flush()
        outgoing, self._outgoing = self._outgoing, []
        for agent, bind in outgoing:
            self.world.send(agent, bind)

    def _follows_unflushed(self) -> bool:
        index, parents = self.graph.index, self.graph.parents
        return any(
            not self._unflushed.isdisjoint(parents[index[bind.task]]) for _, bind in self._outgoing
        )

    def bind(self, task: int, target: PeerName, claim: bytes = b"", *, ahead: bool = False) -> int:
        if self._tasks.state[task] is not State.QUEUED:
            return 0
        return self._bind(task, target, claim, ahead)

    def duplicate(self, task: int, target: PeerName, claim: bytes = b"") -> int:
        if self._tasks.state[task] is not State.BOUND:
            return 0
        attempt = self._bind(task, target, claim, ahead=False)
        if attempt and self._watch is not None:
            self._watch.allowance.use(task, attempt)
        return attempt

    def _bind(self, task: int, target: PeerName, claim: bytes, ahead: bool) -> int:
        enlisted = self._fleet.get(target)
        if enlisted is None or not enlisted.attached or self._cancel is not None or self._holds:
            return 0
        attempt = self._tasks.attempt[task] + 1
        bind = self._binds.make(task, attempt, claim, ahead=ahead)
        if bind is None:
            self._delivery.bring(self.graph.parents[task])
            return 0
        reason = "" if self._here else too_long(bind)
        if reason:
            self._fail(task, TaskEnded(0.0, "", "failed", reason=reason))
            return 0
        self._tasks.attempt[task] = attempt
        self._tasks.move(task, State.BOUND)
        if not self._here and not self._attempts.unconfirmed_on(target):
            self._fleet.ask_later(enlisted)
        now = self.world.now()
        bound = Bound(
            task,
            attempt,
            target,
            now,
            claim,
            ahead,
            serial=enlisted.serial,
            session=enlisted.session,
            confirmed=self._here,
        )
        self._attempts.add(bound)
        self.world.record(TaskBound(now, bind.task, attempt, target, ahead))
        self._outgoing.append((enlisted.target.agent, bind))
        self._deciding.bound(bound)
        if not self._is_deciding:
            self._send_binds()
        return attempt

    def say_again(self, bound: Bound, to: AgentId) -> bool:
        bind = None
        if self._tasks.state[bound.task] is State.BOUND:
            bind = self._binds.make(bound.task, bound.attempt, bound.claim, ahead=False)
        if bind is not None:
            self.world.send(to, bind)
        return bind is not None

    # -- what targets tell ---------------------------------------------------------------------

    def _on_book(self, sender: AgentId, message: Attempt) -> Bound | None:
        task = self.graph.index.get(message.task)
        if task is None or message.run != self.run:
            return None
        name = name_of(sender)
        bound = self._attempts.get(name, task, message.attempt)
        if not self._here:
            self._contact.heard(name)
            if bound is not None:
                self._attempts.confirm(bound)
        return bound

    @handles(Started)
    def on_started(self, sender: AgentId, message: Started) -> None:
        bound = self._on_book(sender, message)
        if bound is not None and not bound.started:
            bound.started = True
            self.world.record(
                TaskStarted(
                    self.world.now(), message.task, message.attempt, bound.target, message.pid
                )
            )
            self._deciding.started(bound)

    @handles(Progressed)
    def on_progressed(self, sender: AgentId, message: Progressed) -> None:
        if self._on_book(sender, message) is not None and 0 <= message.fraction <= 1:
            self.world.record(
                TaskProgressed(self.world.now(), message.task, message.attempt, message.fraction)
            )

    def progressed(self, target: PeerName, task: int, attempt: int, fraction: float) -> None:
        if self._attempts.get(target, task, attempt) is not None and 0 <= fraction <= 1:
            now, name = self.world.now(), self._name(task)
            self.world.record(TaskProgressed(now, name, attempt, fraction))

    @handles(Refused)
    def on_refused(self, sender: AgentId, message: Refused) -> None:
        bound = self._on_book(sender, message)
        if bound is None:
            return
        self._close(bound, "refused", message)
        self._attempts.note_over(bound.target, bound.task, bound.attempt)
        if message.unfit and self._unfit.note(bound.task, bound.target, message.reason):
            if self._is_left_with_none(bound.task):
                self._queue(bound.task)
        else:
            self._was_refused(bound.task, message)
        self.settled()

    def _was_refused(self, task: int, message: Refused) -> None:
        if message.missing:
            self._delivery.bring(self.graph.parents[task])
        if self._is_left_with_none(task):
            most = LACKS_MAX if message.missing else REFUSALS_MAX + len(self._fleet.all())
            self._count_refusal(task, message.attempt, message.reason, most, bool(message.missing))

    def _count_refusal(
        self, task: int, attempt: int, reason: str, most: int, lacks: bool = False
    ) -> None:
        counts = self._tasks.lacks if lacks else self._tasks.refusals
        counts[task] += 1
        if counts[task] >= most:
            self._fail(task, TaskEnded(0.0, "", "failed", attempt, reason=reason))
            return
        delay_s = min(AGAIN_MAX_S, 0.25 * 2 ** counts[task])
        self._retry_after(task, attempt, delay_s, reason)

    @handles(Finished)
    def on_finished(self, sender: AgentId, message: Finished) -> None:
        task = self.graph.index.get(message.task)
        if task is None or message.run != self.run or not is_attempt(message.attempt):
            return
        if not self._here:
            message = made_sense_of(message, self.graph.tasks[task], name_of(sender))
        bound = self._on_book(sender, message)
        if bound is not None:
            outcome = message.ended.outcome
            stopped = outcome == "cancelled" and bound.withdrawn
            self._close(bound, "withdrawn" if stopped else outcome, message)
        elif self._here:
            return
        if self._tasks.state[task] is State.COMMITTED:
            mine = self._delivery.is_of(task, name_of(sender), message.attempt)
            self._delivery.acknowledge(sender, message, useless=not mine)
            self.settled()
            return
        self._attempts.note_over(name_of(sender), task, message.attempt)
        if message.ended.outcome == "succeeded":
            self._take_result(sender, message, task)
        else:
            self._delivery.acknowledge(sender, message, useless=True)
            if bound is not None:
                self._ended_badly(bound, message)
        self.settled()

    # -- bound -> committed, retrying or failed ------------------------------------------------

    def _take_result(self, sender: AgentId, message: Finished, task: int) -> None:
        if task not in self._keys:
            self._early.setdefault(task, (sender, message))
        elif not self._here and message.key != self._known.key(task):
            # Its inputs have been made anew since, and differ.
            self._delivery.acknowledge(sender, message, useless=True)
            if self._is_left_with_none(task):
                self._queue(task)
        else:
            self._commit(task, self._as_event(task, name_of(sender), message))
            self._delivery.acknowledge(sender, message, useless=False)

    def _as_event(self, task: int, target: PeerName, message: Finished) -> TaskEnded:
        good = message.ended.outcome == "succeeded"
        return task_ended(
            self.world.now(),
            self.graph.tasks[task],
            target,
            message,
            self._known.inputs(task) if good else (),
            self._keys.pop(task, "") if good else "",
            foreign=not self._here,
        )

    def _commit(self, task: int, ended: TaskEnded) -> None:
        self._staging.drop(task)
        self._early.pop(task, None)
        self._keys.pop(task, None)
        self.world.record(ended)
        self._unflushed.add(task)
        self._tasks.move(task, State.COMMITTED)
        if self._watch is not None:
            self._watch.allowance.done(task, ended.attempt)
        self._delivery.keep(task, ended)
        self._known.read_by(task)
        self._deciding.stands(task, True)
        for child in self.graph.children[task]:
            self._tasks.missing_parents[child] -= 1
            # A child may have committed before its parent's result was revoked: it stays so.
            waits = self._tasks.state[child] is State.WAITING
            if waits and not self._tasks.missing_parents[child] and self._cancel is None:
                self._ready(child)
        self._attempts.committed(task)
        for bound in self._attempts.of_task(task):
            if not bound.withdrawn:
                now = self.world.now()
                beaten = task_beaten(now, self._name(task), bound.attempt, bound.target)
                self.world.record(beaten)
            self._withdraw(bound, force=True)

    def _ended_badly(self, bound: Bound, message: Finished) -> None:
        ended = self._as_event(bound.task, bound.target, message)
        if bound.withdrawn or not self._is_left_with_none(bound.task):
            self._cancelled(bound, ended)
        elif ended.outcome == "cancelled":
            self._lost(bound, ended.reason or f"{bound.target} stopped it")
        else:
            self._count_failure(bound.task, ended)

    def _count_failure(self, task: int, ended: TaskEnded) -> None:
        self._tasks.failures[task] += 1
        failures = self._tasks.failures[task]
        if failures > self.graph.tasks[task].retries or self._cancel is not None:
            self._fail(task, ended)
            return
        self.world.record(ended)
        delay_s = min(RETRY_DELAY_MAX_S, self._options.retry_delay_s * 2 ** (failures - 1))
        self._retry_after(task, ended.attempt, delay_s, ended.reason)

    def _retry_after(self, task: int, attempt: int, delay_s: float, reason: str) -> None:
        delay_s *= 0.75 + 0.5 * self.world.random.random()
        name = self._name(task)
        self.world.record(TaskRetried(self.world.now(), name, attempt, delay_s, reason))
        self._tasks.move(task, State.RETRYING)

        def again() -> None:
            if self._tasks.state[task] is State.RETRYING and self._cancel is None:
                self._queue(task)
                self.settled()

        self.world.after(delay_s, again)

    def _fail(self, task: int, ended: TaskEnded) -> None:
        name = self._name(task)
        self.world.record(msgspec.structs.replace(ended, at=self.world.now(), task=name))
        self._tasks.move(task, State.FAILED)
        if self._options.stop_on_failure and self._cancel is None:
            self._on_cancel(CancelRun(drain=True, reason=f"{name} failed"))

    # -- attempts that are over ----------------------------------------------------------------

    def _close(self, bound: Bound, ending: Ending, told: Finished | Refused | None = None) -> None:
        """Take an attempt off the book; what becomes of its task is the caller's affair."""
        if self._attempts.remove(bound) and bound.booked:
            self._deciding.over(Over(bound, ending, told))

    def _is_left_with_none(self, task: int) -> bool:
        """Whether an attempt that is over leaves its task, which has no result, with none."""
        return self._tasks.state[task] is State.BOUND and not self._attempts.any_of(task)

    def _cancelled(self, bound: Bound, ended: TaskEnded | None = None) -> None:
        """An attempt is over that nobody waits for, or that was withdrawn."""
        task, now = bound.task, self.world.now()
        told = TaskEnded(now, self._name(task), "cancelled", bound.attempt, bound.target)
        self.world.record(ended or told)
        if not self._is_left_with_none(task):
            return
        if self._cancel is not None:
            self._tasks.move(task, State.WAITING)
        else:
            self._queue(task)

    def is_withdrawn(self, bound: Bound) -> None:
        self._close(bound, "withdrawn")
        self._cancelled(bound)

    def is_lost(self, bound: Bound, reason: str) -> None:
        self._close(bound, "withdrawn" if bound.withdrawn else "lost")
        self._lost(bound, reason)

    def _lost(self, bound: Bound, reason: str) -> None:
        task, name, now = bound.task, self._name(bound.task), self.world.now()
        if self._tasks.state[task] is State.COMMITTED:
            return
        ended = TaskEnded(now, name, "lost", bound.attempt, bound.target, reason=reason)
        if not self._is_left_with_none(task):
            self.world.record(ended)
        elif self._cancel is not None:
            self.world.record(ended)
            self._tasks.move(task, State.WAITING)
        elif self._tasks.losses[task] < LOSSES_MAX:
            self._tasks.losses[task] += 1
            self.world.record(ended)
            self.world.record(TaskRetried(now, name, bound.attempt, 0.0, reason))
            self._queue(task)
        else:
            self._count_failure(task, ended)

    def withdraw(self, task: int, attempt: int) -> None:
        for bound in self._attempts.of_task(task):
            if bound.attempt == attempt and not bound.withdrawn:
                self._withdraw(bound, force=True)

    def withdraw_again(self, bound: Bound) -> None:
        self._withdraw(bound)

    def _withdraw(self, bound: Bound, force: bool = False) -> None:
        bound.withdrawn = True
        enlisted = self._fleet.get(bound.target)
        if enlisted is not None:
            name = self._name(bound.task)
            self.world.send(
                enlisted.target.agent,
                Withdraw(self.run, name, bound.attempt, force, self.epoch),
            )

    def restart(self, task: int) -> int:
        """Stop a task and have it done anew; the number of its next attempt, 0 if it cannot be."""
        if self._tasks.state[task] is not State.BOUND or self._cancel is not None:
            return 0
        if self._watch is not None:
            self._watch.allowance.use(task, self.next_attempt(task))
        for bound in self._attempts.of_task(task):
            self._withdraw(bound, force=True)
        return self.next_attempt(task)

    # -- results that are gone -----------------------------------------------------------------

    def _came_home(self, digest: str) -> None:
        if not self._over:
            self._unparked(self._binds.unpark(digest))
            self.settled()

    def _gone(self, task: int, path: str) -> None:
        """No holder of a committed output is left."""
        if self._over:
            return
        if self._cancel is not None:
            self._homeless += 1
        else:
            self._revoke(task, f"no peer that had {path} is left")
        self.settled()

    def _revoke(self, task: int, reason: str) -> None:
        self.world.record(TaskRevoked(self.world.now(), self._name(task), reason))
        self._delivery.revoked(task)
        self._tasks.move(task, State.WAITING)
        self._deciding.stands(task, False)
        for child in self.graph.children[task]:
            self._tasks.missing_parents[child] += 1
            if self._tasks.state[child] in (State.STAGING, State.QUEUED, State.RETRYING):
                self._staging.drop(child)
                self._tasks.move(child, State.WAITING)
            if self._tasks.state[child] is State.WAITING:
                self._keys.pop(child, None)
        if not self._tasks.missing_parents[task] and not self._holds:
            self._ready(task)

    # -- what the strategy sees ----------------------------------------------------------------

    @property
    def following(self) -> Following | None:
        return None if self._watch is None else self._watch.following

    def state(self, task: int) -> State:
        return self._tasks.state[task]

    def wanted(self, task: int) -> bool:
        return self._tasks.state[task] is State.QUEUED and self._cancel is None

    def urgency(self, task: int) -> float:
        return self._urgency[task]

    def open_tasks(self) -> list[int]:
        states = enumerate(self._tasks.state)
        found = [task for task, state in states if state is not State.COMMITTED]
        return sorted(found, key=lambda task: (-self._urgency[task], task))

    def targets(self) -> Mapping[PeerName, Target]:
        return self._fleet.attached()

    def attempts(self) -> list[Bound]:
        return self._attempts.all()

    def attempts_of(self, task: int) -> list[Bound]:
        return self._attempts.of_task(task)

    def attempt(self, target: PeerName, task: int, attempt: int) -> Bound | None:
        return self._attempts.get(target, task, attempt)

    def next_attempt(self, task: int) -> int:
        return self._tasks.attempt[task] + 1

    def held(self, task: int) -> Mapping[PeerName, int]:
        if self._here:
            return {}
        return self._delivery.holders.bytes_on(self._known.reads(task))

    def unfit(self, task: int) -> Collection[PeerName]:
        return self._unfit.of(task)

    def when_attached(self, wait_s: float, action: Action) -> None:
        self._contact.when_whole(wait_s, action)

    def estimates(self, on_done: Callable[[EstimatesFound], None]) -> None:
        def found(answer: Fetched) -> None:
            assert isinstance(answer, EstimatesFound), "a world answers what it is asked"
            on_done(answer)

        self.world.fetch(Estimates(self.run, self.graph), (), found)

    def note(
        self,
        kind: str,
        said: str,
        body: bytes = b"",
        *,
        task: int | None = None,
        attempt: int = 0,
        peer: str = "",
        paid: float = 0.0,
    ) -> None:
        name = "" if task is None else self._name(task)
        strategy = self._options.strategy
        now = self.world.now()
        self.world.record(Noted(now, strategy, kind, said, name, attempt, peer, paid, body))

    def tell(self, sentence: str) -> None:
        self._hearers.on_told(sentence)

    # -- ending --------------------------------------------------------------------------------

    @handles(Fenced)
    def on_fenced(self, sender: AgentId, message: Fenced) -> None:
        if message.run == self.run:
            self.taken_over(message.epoch)

    def taken_over(self, epoch: int) -> None:
        """Somebody knows a writer of this epoch; if it is newer, nothing more happens here."""
        if self._here or epoch <= self.epoch or self._gate.is_shut:
            return
        self._gate.shut()
        self._hearers.on_fenced(
            f"run {self.run} was taken over by another process (epoch {epoch}, ours was "
            f"{self.epoch}); follow it with: sureline show {self.run}"
        )

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
        self._binds.clear()
        if self._watch is not None:
            self._watch.end()
        self.world.record(CancelAsked(self.world.now(), message.drain, message.reason))
        if first:
            for task, state in enumerate(self._tasks.state):
                if state in OPEN and state is not State.BOUND:
                    self._tasks.move(task, State.WAITING)
            self._staging.clear()
        if not message.drain:
            self._withdraw_all(message.force)

    def _withdraw_all(self, force: bool) -> None:
        for bound in self._attempts.all():
            self._withdraw(bound, force)
            if force and not self._here:  # nobody is waited for
                self.is_withdrawn(bound)

    def _finish_if_over(self) -> None:
        forced = self._cancel is not None and self._cancel.force
        if self._over or self._tasks.open or self._holds or self._delivery.publisher.busy:
            return
        if self._delivery.under_way and not forced:
            return
        self._over = True
        if self._watch is not None:
            self._watch.end()
        self._deciding.end()
        ended = RunEnded(self.world.now(), *self._verdict())
        self.world.record(ended)
        self.world.sync(lambda: self._announce(ended))

    def _announce(self, ended: RunEnded) -> None:
        self._delivery.close(succeeded=ended.state == "succeeded")
        self._gate.shut()
        self._hearers.on_end(ended)

    def _verdict(self) -> tuple[RunState, str]:
        if self._tasks.failed:
            return "failed", self._reason
        if self._delivery.publisher.failures:
            return "failed", self._delivery.publisher.failures[0]
        if self._tasks.all_committed() and not (self._homeless or self._delivery.under_way):
            return "succeeded", ""
        return "cancelled", self._reason
