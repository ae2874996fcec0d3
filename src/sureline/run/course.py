"""The course of every task of a run, and of every attempt: each arrow of `states` is a method here.

- A result commits once: the first attempt that ends well, made of the inputs as they are now. Other
  attempts are withdrawn, and what they report is acknowledged and dropped.
- An attempt that is lost with its target is not a failure of the task, up to LOSSES_MAX times.
- On a grid, what a target tells of an attempt counts only if it shows that attempt's warrant, and a
  target whose word turns out to be false is set aside (`warrants`, `blame`).
- A result that nobody holds any more is revoked, and its task waits again.

What has happened is told to the strategy; what follows from it, once all is told, is the engine's
affair (`settled`).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import msgspec

from sureline.journal.events import (
    CancelAsked,
    Grown,
    PeerLeft,
    TaskBound,
    TaskEnded,
    TaskReady,
    TaskRetried,
    TaskRevoked,
    TaskStarted,
)
from sureline.peer.jobs import JobEnded
from sureline.peer.messages import Finished, Progressed, Refused, Started, Withdraw
from sureline.run.as_events import peer_joined, task_beaten, task_ended, task_reused
from sureline.run.attempts import Attempts
from sureline.run.binds import Binds
from sureline.run.blame import Blame
from sureline.run.contact import Contact
from sureline.run.delivery import Delivery
from sureline.run.free_repair import Allowance
from sureline.run.known import Known
from sureline.run.options import CancelRun, Options, Past
from sureline.run.overdue import Overdue
from sureline.run.past import PastFound
from sureline.run.port import Bound, Deciding, Ending, Over, Target
from sureline.run.refusals import Refusals
from sureline.run.report_checks import fault_of, is_attempt
from sureline.run.staging import Staging
from sureline.run.standing import Aside, PeerStanding
from sureline.run.states import OPEN, State, Tasks
from sureline.run.unfit import Unfit
from sureline.run.warrants import Warrants, seal_of
from sureline.run.watch import Watch
from sureline.workflow.model import Call, Graph
from sureline.workflow.shapes import urgencies
from sureline.world.address import NO_NODE, PeerName, name_of, node_of
from sureline.world.protocol import Action, AgentId, World

RETRY_DELAY_MAX_S = 300.0
LOSSES_MAX = 10
GROWTH_BYTES_MAX = 512 << 10
"""What is added to a graph at once travels to keepers as one event."""
REASON_MAX = 200
"""Characters of what a target gives as its reason that are told again and again."""
Told = Started | Progressed | Refused | Finished
"""What a target tells of an attempt."""


class Course:
    """`epoch` 0 is a run on this machine alone. `me` is the writer's agent; `tell` is for the
    user."""

    def __init__(
        self,
        me: AgentId,
        world: World,
        run: str,
        epoch: int,
        graph: Graph,
        options: Options,
        past: Past,
        deciding: Deciding,
        watch: Watch | None,
        on_settled: Action,
        on_idle: Action,
        tell: Callable[[str], None],
        papers: bytes = b"",
    ) -> None:
        self._world = world
        self.run = run
        self.epoch = epoch
        self.here = epoch == 0
        self.graph = graph
        self._options = options
        self._deciding = deciding
        self.watch = watch
        self.settled = on_settled
        self._tell = tell
        self.tasks = Tasks(graph)
        self.tasks.attempt = [past.attempts.get(t.name, 0) for t in graph.tasks]
        self.urgency = urgencies(graph)
        self.known = Known(graph, here=self.here, trust=options.trust)
        self.unfit = Unfit(self.known)
        self.attempts = Attempts()
        self._warrants = Warrants(b"" if self.here else world.random.randbytes(32), past.seals)
        standing = PeerStanding(past.strikes, world.now(), world.elapsed())
        self.contact = Contact(
            world,
            run,
            epoch,
            self.attempts,
            self,
            self.name,
            self._warrants,
            standing,
            papers,
            options.takeover_after_s,
        )
        self.fleet = self.contact.fleet
        self.blame = Blame(world, standing, self.contact, tell)
        self.allowance = Allowance(graph) if watch is None else watch.allowance
        self.overdue = Overdue(world, graph, self.attempts, deciding, self.allowance)
        self.delivery = Delivery(
            world,
            run,
            epoch,
            graph,
            self.known,
            self.fleet,
            node_of(me),
            here=self.here,
            on_home=self._came_home,
            on_gone=self._gone,
            on_idle=on_idle,
        )
        self.binds = Binds(
            run,
            epoch,
            options.strategy,
            graph,
            self.known,
            self.delivery.holders,
            self._warrants,
            here=self.here,
        )
        self.staging = Staging(
            world,
            self.known,
            fresh=options.fresh,
            on_staged=self._staged,
            on_found=self._found,
            on_missing=self._cannot_stage,
            settled=on_settled,
        )
        self._keys: dict[int, str] = {}
        """Of the tasks that are staged."""
        self._early: dict[int, tuple[AgentId, Finished]] = {}
        """Results of tasks that are not staged (again) yet, so that it is not known whether they
        are of the right inputs."""
        self.unflushed: set[int] = set()
        """Tasks that committed since the last flush that was asked for."""
        self.holds = 1
        """What holds off the beginning, and the end."""
        self._refusals = Refusals(self.tasks, self.fleet, self.unfit)
        self.homeless = 0
        """Outputs that could not be brought home while the run was being cancelled."""
        self.cancel: CancelRun | None = None
        self.reason = ""
        self.over = False

    def name(self, task: int) -> str:
        return self.graph.tasks[task].name

    def begin(self) -> None:
        """Nothing holds it off any more."""
        for task, state in enumerate(self.tasks.state):
            if state is State.COMMITTED:
                self.known.read_by(task)
            elif (
                state is State.WAITING
                and not self.tasks.missing_parents[task]
                and self.cancel is None
            ):
                self.ready(task)

    def grow(self, graph: Graph) -> None:
        growth = graph.growth(self.graph)
        if len(growth) > GROWTH_BYTES_MAX:
            raise ValueError(f"a graph grows by {GROWTH_BYTES_MAX >> 10} KiB at a time")
        new = range(len(self.graph), len(graph))
        self._world.record(Grown(self._world.now(), len(new), growth))
        self.graph = graph = self.graph.grown(growth)
        self.urgency = urgencies(graph)
        self.tasks.grow(graph)
        for part in (self.known, self.binds, self.delivery, self.overdue):
            part.grow(graph)
        if self.watch is not None:
            self.watch.grow(graph)
        else:
            self.allowance.grow(graph)
        self._deciding.grown(new)
        if not self.holds and self.cancel is None:
            for task in new:
                if not self.tasks.missing_parents[task]:
                    self.ready(task)
            self.settled()

    @property
    def takes_binds(self) -> bool:
        """Whether anything may be bound now."""
        return self.cancel is None and not self.holds

    # -- targets come and go ----------------------------------------------------------------------

    def takes_part(self, target: Target) -> None:
        node = NO_NODE if self.here else node_of(target.agent)
        self._world.record(
            peer_joined(self._world.now(), target.name, target.capacity, target.site, node)
        )
        self._deciding.target(target)  # which may bind something there at once
        if not self.here:
            self.unfit.forget(target.name)  # it may be another one now
            self._unparked(self.binds.unpark_all())
            self.delivery.look_again()

    def takes_no_part(self, target: Target, reason: str, aside: Aside | None = None) -> None:
        self._deciding.gone(target.name)
        pause_s, strikes = (0.0, 0) if aside is None else (aside.pause_s, aside.strikes)
        self._world.record(PeerLeft(self._world.now(), target.name, reason, pause_s, strikes))

    def is_out_of_reach(self, target: Target) -> None:
        self._tell(
            f"{target.name} cannot be reached from here, though other peers hear it; its tasks go "
            "elsewhere until it can"
        )

    def task_named(self, name: str) -> int | None:
        return self.graph.index.get(name)

    def is_of_use(self, task: int) -> bool:
        return self.tasks.state[task] is not State.COMMITTED and self.cancel is None

    def adopt(self, bound: Bound, warrant: bytes, *, started: bool) -> None:
        """An attempt that an earlier process started, or that was believed lost."""
        self.attempts.add(bound)
        task = bound.task
        self.tasks.attempt[task] = max(self.tasks.attempt[task], bound.attempt)
        if self.tasks.state[task] in (State.QUEUED, State.RETRYING):
            self.tasks.move(task, State.BOUND)
        if not bound.booked:
            return
        bound.started = started
        now, name = self._world.now(), self.name(task)
        if started:
            self._world.record(TaskStarted(now, name, bound.attempt, bound.target))
        else:
            seal = seal_of(warrant)
            self._world.record(TaskBound(now, name, bound.attempt, bound.target, seal=seal))
        self._deciding.bound(bound)

    def say_again(self, bound: Bound, to: AgentId) -> bool:
        bind = None
        if self.tasks.state[bound.task] is State.BOUND:
            bind = self.binds.make(
                bound.task, bound.attempt, bound.target, bound.claim, ahead=False
            )
        if bind is not None:
            self._world.send(to, bind)
        return bind is not None

    # -- waiting -> staging -> queued -------------------------------------------------------------

    def ready(self, task: int) -> None:
        self._world.record(TaskReady(self._world.now(), self.name(task)))
        self.tasks.move(task, State.STAGING)
        self.staging.add(task, self.urgency[task])

    def _staged(self, task: int, key: str) -> None:
        """All inputs have identities, and no past result is to be had."""
        self._keys[task] = key
        early = self._early.pop(task, None)
        if early is not None:
            self.tasks.move(task, State.QUEUED)
            self._take_result(*early, task)
            if self.tasks.state[task] is State.COMMITTED:
                return
        self.queue(task)

    def _found(self, task: int, key: str, past: PastFound) -> None:
        self._commit(task, task_reused(self._world.now(), self.graph.tasks[task], key, past))

    def _cannot_stage(self, task: int, reason: str) -> None:
        self.fail(task, TaskEnded(0.0, "", "failed", reason=reason))

    def queue(self, task: int) -> None:
        """It may be bound (again), unless something it needs is not there."""
        if self.tasks.missing_parents[task]:
            self.tasks.move(task, State.WAITING)  # a parent was revoked meanwhile
        elif self.attempts.any_of(task):
            self.tasks.move(task, State.BOUND)  # an adopted attempt is under way
        elif not (
            # A call works in the user's directory: what it follows must be in place there first.
            isinstance(self.graph.tasks[task].action, Call)
            and self.delivery.when_in_place(
                self.graph.parents[task], lambda: self._queue_at_last(task)
            )
        ):
            self._queue_now(task)

    def _queue_at_last(self, task: int) -> None:
        if self.tasks.state[task] in OPEN:  # else the run was cancelled meanwhile
            self._queue_now(task)
            self.settled()

    def _queue_now(self, task: int) -> None:
        self.tasks.move(task, State.QUEUED)
        hopeless = self.unfit.hopeless(task, self.fleet.attached())
        if hopeless:
            again_s = self._refusals.all_unfit_s(task, self.graph.tasks[task].needs)
            self._try_again(task, self.tasks.attempt[task], hopeless, again_s)
        else:
            self._deciding.ready(task)

    def _unparked(self, tasks: list[int]) -> None:
        for task in tasks:
            if self.tasks.state[task] is State.QUEUED:
                self._deciding.ready(task)

    # -- bound -> committed, retrying or failed ---------------------------------------------------

    def on_book(self, sender: AgentId, message: Told) -> Bound | None:
        task = self.graph.index.get(message.task)
        name = name_of(sender)
        if task is None or message.run != self.run or not self._counts(name, message):
            return None
        bound = self.attempts.get(name, task, message.attempt)
        if not self.here:
            self.contact.heard(name)
            if bound is not None:
                self.attempts.confirm(bound)
        return bound

    def finished(self, sender: AgentId, message: Finished) -> None:
        task = self.graph.index.get(message.task)
        if task is None or message.run != self.run or not is_attempt(message.attempt):
            return
        if not self.here and not self._is_sound(sender, message, task):
            return
        bound = self.on_book(sender, message)
        if bound is not None:
            outcome = message.ended.outcome
            stopped = outcome == "cancelled" and bound.withdrawn
            self._close(bound, "withdrawn" if stopped else outcome, message)
        elif self.here:
            return
        if self.tasks.state[task] is State.COMMITTED:
            mine = self.delivery.is_of(task, name_of(sender), message.attempt)
            self.delivery.acknowledge(sender, message, useless=not mine)
            return
        self.attempts.note_over(name_of(sender), task, message.attempt)
        if message.ended.outcome == "succeeded":
            self._take_result(sender, message, task)
        else:
            self.delivery.acknowledge(sender, message, useless=True)
            if bound is not None:
                self._ended_badly(bound, message)

    def _counts(self, peer: PeerName, message: Told) -> bool:
        """Whether a target speaks of what was given to it, and is believed at all."""
        given = (message.task, message.attempt, peer)
        return self.here or (
            self.blame.is_heard(peer) and self._warrants.is_right(given, message.warrant)
        )

    def _is_sound(self, sender: AgentId, message: Finished, task: int) -> bool:
        """Whether a report may be acted upon. One that was not asked for may be forgotten, and who
        sends one that makes no sense is set aside; nobody listens to who is set aside already."""
        name = name_of(sender)
        if not self._counts(name, message):
            if self.blame.is_heard(name):
                mine = self.delivery.is_of(task, name, message.attempt)
                self.delivery.acknowledge(sender, message, useless=not mine)
            return False
        fault = fault_of(message.ended, self.graph.tasks[task])
        if fault:
            empty = msgspec.structs.replace(message, ended=JobEnded("failed"))
            self.delivery.acknowledge(sender, empty, useless=True)
            self.blame.refuted(name, f"its report of {message.task} makes no sense: {fault}")
        return not fault

    def _take_result(self, sender: AgentId, message: Finished, task: int) -> None:
        if task not in self._keys:
            self._early.setdefault(task, (sender, message))
        elif not self.here and message.key != self.known.key(task):
            # Its inputs have been made anew since, and differ.
            self.delivery.acknowledge(sender, message, useless=True)
            if self._is_left_with_none(task):
                self.queue(task)
        else:
            self._commit(task, self._as_event(task, name_of(sender), message))
            self.delivery.acknowledge(sender, message, useless=False)

    def _as_event(self, task: int, target: PeerName, message: Finished) -> TaskEnded:
        good = message.ended.outcome == "succeeded"
        return task_ended(
            self._world.now(),
            self.graph.tasks[task],
            target,
            message,
            self.known.inputs(task) if good else (),
            self._keys.pop(task, "") if good else "",
            foreign=not self.here,
        )

    def restore(self, task: int, ended: TaskEnded) -> None:
        self.tasks.move(task, State.COMMITTED)
        self.delivery.keep(task, ended)
        self._deciding.stands(task, True)
        for child in self.graph.children[task]:
            self.tasks.missing_parents[child] -= 1

    def _commit(self, task: int, ended: TaskEnded) -> None:
        self.staging.drop(task)
        self._early.pop(task, None)
        self._keys.pop(task, None)
        self._world.record(ended)
        self.unflushed.add(task)
        self.tasks.move(task, State.COMMITTED)
        self.allowance.done(task, ended.attempt)
        self._refusals.committed(task)
        self.delivery.keep(task, ended)
        self.known.read_by(task)
        self._deciding.stands(task, True)
        for child in self.graph.children[task]:
            self.tasks.missing_parents[child] -= 1
            # A child may have committed before its parent's result was revoked: it stays so.
            waits = self.tasks.state[child] is State.WAITING
            if waits and not self.tasks.missing_parents[child] and self.cancel is None:
                self.ready(child)
        self.attempts.committed(task)
        if ended.attempt and not self.here:
            self.overdue.ended_well(task, ended.peer, ended.attempt)
            self.blame.delivered(ended.peer)
        for bound in self.attempts.of_task(task):
            if not bound.withdrawn:
                if bound.started and self.overdue.is_late(bound):
                    self.blame.outrun(bound.target, ended.peer, self.name(task))
                now = self._world.now()
                beaten = task_beaten(now, self.name(task), bound.attempt, bound.target)
                self._world.record(beaten)
            self.withdraw(bound, force=True)

    def _ended_badly(self, bound: Bound, message: Finished) -> None:
        ended = self._as_event(bound.task, bound.target, message)
        if bound.withdrawn or not self._is_left_with_none(bound.task):
            self._cancelled(bound, ended)
        elif ended.outcome == "cancelled" or _is_of_the_machine(message.ended):
            self._lost(bound, ended.reason or f"{bound.target} stopped it")
        else:
            self._count_failure(bound.task, ended)

    def refused(self, sender: AgentId, message: Refused) -> None:
        bound = self.on_book(sender, message)
        if bound is None:
            return
        self._close(bound, "refused", message)
        self.attempts.note_over(bound.target, bound.task, bound.attempt)
        self._refusals.note(bound.task, bound.target, message)
        if message.missing:
            self.delivery.bring(self.graph.parents[bound.task])
        if self._is_left_with_none(bound.task):
            needs = self.graph.tasks[bound.task].needs
            again_s = self._refusals.again_s(bound.task, needs, message)
            self._try_again(bound.task, bound.attempt, message.reason, again_s)
        if not self.here:
            self._look_for(bound.task, message.missing)
            if not message.unfit:
                reason = message.reason[:REASON_MAX]
                self.blame.declined(bound.target, f"it refused tasks ({reason})")

    def _look_for(self, task: int, missing: tuple[str, ...]) -> None:
        """A target could not get these inputs: perhaps they are nowhere any more. Of a task that is
        not staged here, since an earlier writer bound it, they are not known yet."""
        for file in self.known.inputs(task) if task in self._keys else ():
            if file.digest in missing:
                maker = self.graph.maker(file.path)
                lost = partial(self._lost_at_home, maker, file.path)
                self.delivery.doubt(file, made=maker is not None, on_lost=lost)

    def _lost_at_home(self, maker: int | None, path: str) -> None:
        """What had come home is not there any more, and nobody else has it. Its maker is not to
        blame: it was told that it need not keep it."""
        if maker is not None and self.tasks.state[maker] is State.COMMITTED and self.takes_binds:
            self.revoke(maker, f"nobody has {path} any more, not even this machine")
            self.settled()

    def _try_again(self, task: int, attempt: int, reason: str, again_s: float | None) -> None:
        if again_s is None:
            self.fail(task, TaskEnded(0.0, "", "failed", attempt, reason=reason))
        else:
            self._retry_after(task, attempt, again_s, reason)

    def _count_failure(self, task: int, ended: TaskEnded) -> None:
        self.tasks.failures[task] += 1
        failures = self.tasks.failures[task]
        if failures > self.graph.tasks[task].retries or self.cancel is not None:
            self.fail(task, ended)
            return
        self._world.record(ended)
        delay_s = min(RETRY_DELAY_MAX_S, self._options.retry_delay_s * 2 ** (failures - 1))
        self._retry_after(task, ended.attempt, delay_s, ended.reason)

    def _retry_after(self, task: int, attempt: int, delay_s: float, reason: str) -> None:
        delay_s *= 0.75 + 0.5 * self._world.random.random()
        name = self.name(task)
        self._world.record(TaskRetried(self._world.now(), name, attempt, delay_s, reason))
        self.tasks.move(task, State.RETRYING)

        def again() -> None:
            if self.tasks.state[task] is State.RETRYING and self.cancel is None:
                self.queue(task)
                self.settled()

        self._world.after(delay_s, again)

    def fail(self, task: int, ended: TaskEnded) -> None:
        name = self.name(task)
        self._world.record(msgspec.structs.replace(ended, at=self._world.now(), task=name))
        self.tasks.move(task, State.FAILED)
        if self._options.stop_on_failure and self.cancel is None:
            self.stop(CancelRun(drain=True, reason=f"{name} failed"))

    # -- attempts that are over -------------------------------------------------------------------

    def _close(self, bound: Bound, ending: Ending, told: Finished | Refused | None = None) -> None:
        """Take an attempt off the book; what becomes of its task is the caller's affair."""
        if self.attempts.remove(bound) and bound.booked:
            self._deciding.over(Over(bound, ending, told))

    def _is_left_with_none(self, task: int) -> bool:
        """Whether an attempt that is over leaves its task, which has no result, with none."""
        return self.tasks.state[task] is State.BOUND and not self.attempts.any_of(task)

    def _cancelled(self, bound: Bound, ended: TaskEnded | None = None) -> None:
        """An attempt is over that nobody waits for, or that was withdrawn."""
        task, now = bound.task, self._world.now()
        told = TaskEnded(now, self.name(task), "cancelled", bound.attempt, bound.target)
        self._world.record(ended or told)
        if not self._is_left_with_none(task):
            return
        if self.cancel is not None:
            self.tasks.move(task, State.WAITING)
        else:
            self.queue(task)

    def is_withdrawn(self, bound: Bound) -> None:
        self._close(bound, "withdrawn")
        self._cancelled(bound)

    def is_lost(self, bound: Bound, reason: str) -> None:
        self._close(bound, "withdrawn" if bound.withdrawn else "lost")
        self._lost(bound, reason)

    def _lost(self, bound: Bound, reason: str) -> None:
        task, name, now = bound.task, self.name(bound.task), self._world.now()
        if self.tasks.state[task] is State.COMMITTED:
            return
        ended = TaskEnded(now, name, "lost", bound.attempt, bound.target, reason=reason)
        if not self._is_left_with_none(task):
            self._world.record(ended)
        elif self.cancel is not None:
            self._world.record(ended)
            self.tasks.move(task, State.WAITING)
        elif self.tasks.losses[task] < LOSSES_MAX:
            self.tasks.losses[task] += 1
            self._world.record(ended)
            self._world.record(TaskRetried(now, name, bound.attempt, 0.0, reason))
            self.queue(task)
        else:
            self._count_failure(task, ended)

    def withdraw_again(self, bound: Bound) -> None:
        self.withdraw(bound)

    def withdraw(self, bound: Bound, force: bool = False) -> None:
        bound.withdrawn = True
        enlisted = self.fleet.get(bound.target)
        if enlisted is not None:
            name = self.name(bound.task)
            self._world.send(
                enlisted.target.agent,
                Withdraw(self.run, name, bound.attempt, force, self.epoch),
            )

    # -- results that are gone --------------------------------------------------------------------

    def _came_home(self, digest: str) -> None:
        if not self.over:
            self._unparked(self.binds.unpark(digest))
            self.settled()

    def _gone(self, task: int, path: str) -> None:
        """No holder of a committed output is left."""
        if self.over:
            return
        if self.cancel is not None:
            self.homeless += 1
        else:
            maker = self.fleet.get(self.delivery.maker(task))
            self.revoke(task, f"no peer that had {path} is left")
            if maker is not None and maker.attached:
                name = maker.target.name
                self.blame.refuted(name, f"it said that it made {path}, and does not have it")
        self.settled()

    def revoke(self, task: int, reason: str) -> None:
        self._world.record(TaskRevoked(self._world.now(), self.name(task), reason))
        self.delivery.revoked(task)
        self.tasks.move(task, State.WAITING)
        self._deciding.stands(task, False)
        for child in self.graph.children[task]:
            self.tasks.missing_parents[child] += 1
            if self.tasks.state[child] in (State.STAGING, State.QUEUED, State.RETRYING):
                self.staging.drop(child)
                self.tasks.move(child, State.WAITING)
            if self.tasks.state[child] is State.WAITING:
                self._keys.pop(child, None)
        if not self.tasks.missing_parents[task] and not self.holds:
            self.ready(task)

    # -- the run is to stop -----------------------------------------------------------------------

    def stop(self, message: CancelRun) -> None:
        if self.over:
            return
        first = self.cancel is None
        self.cancel = message
        self.reason = self.reason or message.reason
        self.binds.clear()
        if self.watch is not None:
            self.watch.end()
        self._world.record(CancelAsked(self._world.now(), message.drain, message.reason))
        if first:
            for task, state in enumerate(self.tasks.state):
                if state in OPEN and state is not State.BOUND:
                    self.tasks.move(task, State.WAITING)
            self.staging.clear()
        if not message.drain:
            self._withdraw_all(message.force)

    def _withdraw_all(self, force: bool) -> None:
        for bound in self.attempts.all():
            self.withdraw(bound, force)
            if force and not self.here:  # nobody is waited for
                self.is_withdrawn(bound)


def _is_of_the_machine(ended: JobEnded) -> bool:
    """Whether it was lost through no doing of the task's: a site's engine failed."""
    return ended.outcome == "lost" and ended.fault == "machine"
