"""What a strategy sees of its run, and what it may do: the engine's side of `port.Engine`.

It is asked to decide after anything has happened. What it binds is first on record for all tasks,
then the targets are told.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence

from sureline.journal.events import Noted, TaskBound, TaskEnded, TaskProgressed
from sureline.peer.messages import Bind
from sureline.run.binds import too_long
from sureline.run.course import Course
from sureline.run.estimates import Estimates, EstimatesFound
from sureline.run.options import Options
from sureline.run.outlook import Following
from sureline.run.port import Bound, Deciding, Target
from sureline.run.states import State
from sureline.run.throttle import ProgressThrottle
from sureline.run.warrants import seal_of
from sureline.workflow.files import FileRecord
from sureline.workflow.model import Graph
from sureline.workflow.terms import Terms
from sureline.world.address import NO_NAME, PeerName
from sureline.world.protocol import Action, AgentId, Fetched, World

DECISIONS_MAX = 100
"""How often in a row a strategy may ask to decide once more."""


class Decisions:
    """`tell` is for the user; `refuse` ends a run that has not begun; `on_woken` has it decide."""

    def __init__(
        self,
        world: World,
        course: Course,
        options: Options,
        deciding: Deciding,
        *,
        tell: Callable[[str], None],
        refuse: Callable[[str], bool],
        on_woken: Action,
    ) -> None:
        self._world = world
        self._course = course
        self._tasks = course.tasks
        self._attempts = course.attempts
        self._fleet = course.fleet
        self._options = options
        self._deciding = deciding
        self.tell = tell
        self.refuse = refuse
        self._on_woken = on_woken
        self.run = course.run
        self.epoch = course.epoch
        self.terms: Terms = options.terms
        self._outgoing: list[tuple[AgentId, Bind]] = []
        self._is_deciding = False
        self._woken = False
        self._throttle = ProgressThrottle()

    @property
    def graph(self) -> Graph:
        return self._course.graph

    # -- deciding ---------------------------------------------------------------------------------

    def wake(self) -> None:
        self._woken = True
        if not self._is_deciding:
            self._on_woken()

    def pump(self) -> None:
        """Have tasks bound: first it is on record for all of them, then the targets are told."""
        if self._is_deciding or not self._course.takes_binds:
            return
        self._course.staging.more()
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
        if self._course.unflushed and (not self._course.here or self._follows_unflushed()):
            self._world.flush()
            self._course.unflushed.clear()
        elif not self._course.here:
            self._world.flush()
        outgoing, self._outgoing = self._outgoing, []
        for agent, bind in outgoing:
            self._world.send(agent, bind)

    def _follows_unflushed(self) -> bool:
        index, parents = self.graph.index, self.graph.parents
        return any(
            not self._course.unflushed.isdisjoint(parents[index[bind.task]])
            for _, bind in self._outgoing
        )

    # -- binding ----------------------------------------------------------------------------------

    def bind(self, task: int, target: PeerName, claim: bytes = b"", *, ahead: bool = False) -> int:
        if self._tasks.state[task] is not State.QUEUED:
            return 0
        return self._bind(task, target, claim, ahead)

    def duplicate(self, task: int, target: PeerName, claim: bytes = b"") -> int:
        if self._tasks.state[task] is not State.BOUND:
            return 0
        attempt = self._bind(task, target, claim, ahead=False)
        if attempt:
            self._course.allowance.use(task, attempt)
        return attempt

    def _bind(self, task: int, target: PeerName, claim: bytes, ahead: bool) -> int:
        enlisted = self._fleet.get(target)
        if enlisted is None or not enlisted.attached or not self._course.takes_binds:
            return 0
        attempt = self._tasks.attempt[task] + 1
        bind = self._course.binds.make(task, attempt, target, claim, ahead=ahead)
        if bind is None:
            self._course.delivery.bring(self.graph.parents[task])
            return 0
        reason = "" if self._course.here else too_long(bind)
        if reason:
            self._course.fail(task, TaskEnded(0.0, "", "failed", reason=reason))
            return 0
        self._tasks.attempt[task] = attempt
        self._tasks.move(task, State.BOUND)
        if not self._course.here and not self._attempts.unconfirmed_on(target):
            self._fleet.ask_later(enlisted)
        now = self._world.now()
        bound = Bound(
            task,
            attempt,
            target,
            now,
            claim,
            ahead,
            serial=enlisted.serial,
            session=enlisted.session,
            confirmed=self._course.here,
        )
        self._attempts.add(bound)
        seal = seal_of(bind.warrant) if bind.warrant else b""
        self._world.record(TaskBound(now, bind.task, attempt, target, ahead, seal))
        self._outgoing.append((enlisted.target.agent, bind))
        self._deciding.bound(bound)
        if not self._is_deciding:
            self._send_binds()
        return attempt

    def withdraw(self, task: int, attempt: int) -> None:
        for bound in self._attempts.of_task(task):
            if bound.attempt == attempt and not bound.withdrawn:
                self._course.withdraw(bound, force=True)

    def restart(self, task: int) -> int:
        """Stop a task and have it done anew; the number of its next attempt, 0 if it cannot be."""
        if self._tasks.state[task] is not State.BOUND or self._course.cancel is not None:
            return 0
        self._course.allowance.use(task, self.next_attempt(task))
        for bound in self._attempts.of_task(task):
            self._course.withdraw(bound, force=True)
        return self.next_attempt(task)

    # -- seeing -----------------------------------------------------------------------------------

    @property
    def following(self) -> Following | None:
        return None if self._course.watch is None else self._course.watch.following

    def state(self, task: int) -> State:
        return self._tasks.state[task]

    def wanted(self, task: int) -> bool:
        return self._tasks.state[task] is State.QUEUED and self._course.cancel is None

    def urgency(self, task: int) -> float:
        return self._course.urgency[task]

    def open_tasks(self) -> list[int]:
        states = enumerate(self._tasks.state)
        found = [task for task, state in states if state is not State.COMMITTED]
        return sorted(found, key=lambda task: (-self._course.urgency[task], task))

    def targets(self) -> Mapping[PeerName, Target]:
        return self._fleet.attached()

    def want(self, target: PeerName) -> bool:
        return self._course.contact.want(target)

    def attempts(self) -> list[Bound]:
        return self._attempts.all()

    def attempts_of(self, task: int) -> list[Bound]:
        return self._attempts.of_task(task)

    def attempt(self, target: PeerName, task: int, attempt: int) -> Bound | None:
        return self._attempts.get(target, task, attempt)

    def next_attempt(self, task: int) -> int:
        return self._tasks.attempt[task] + 1

    def held(self, task: int) -> Mapping[PeerName, int]:
        if self._course.here:
            return {}
        return self._course.delivery.holders.bytes_on(self._course.known.reads(task))

    def reads(self, task: int) -> Sequence[FileRecord]:
        return self._course.known.reads(task)

    def unfit(self, task: int) -> Collection[PeerName]:
        return self._course.unfit.of(task)

    def when_attached(self, wait_s: float, action: Action) -> None:
        self._course.contact.when_whole(wait_s, action)

    def estimates(self, on_done: Callable[[EstimatesFound], None]) -> None:
        def found(answer: Fetched) -> None:
            assert isinstance(answer, EstimatesFound), "a world answers what it is asked"
            on_done(answer)

        self._world.fetch(Estimates(self.run, self.graph), (), found)

    # -- telling ----------------------------------------------------------------------------------

    def progressed(self, target: PeerName, task: int, attempt: int, fraction: float) -> None:
        if self._attempts.get(target, task, attempt) is None or not 0 <= fraction <= 1:
            return
        if self._throttle.passes(target, (task, attempt), self._world.elapsed()):
            now, name = self._world.now(), self._course.name(task)
            self._world.record(TaskProgressed(now, name, attempt, fraction))

    def note(
        self,
        kind: str,
        said: str,
        body: bytes = b"",
        *,
        task: int | None = None,
        attempt: int = 0,
        peer: PeerName = NO_NAME,
        paid: float = 0.0,
        window: tuple[float, float] | None = None,
    ) -> None:
        name = "" if task is None else self._course.name(task)
        strategy = self._options.strategy
        now = self._world.now()
        self._world.record(
            Noted(now, strategy, kind, said, name, attempt, peer, paid, body, window)
        )

    def grow(self, graph: Graph) -> None:
        self._course.grow(graph)
