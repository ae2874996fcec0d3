"""Keeping in contact with targets that come and go: what is under way there, by their own word.

What a target tells counts as far as it shows the warrants of its attempts (`warrants`), and while
it is not set aside for what it told before (`standing`). One that this writer cannot reach takes no
part, whatever others hear of it: its attempts are lost, and it is asked on until it answers.

What a target has of the run and is of use is adopted, what is not is withdrawn; what should be
there and is not is said again, or is lost. Only the book is compared here: what follows for the
tasks is the engine's affair (`Consequences`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from sureline.peer.messages import Attached, Withdraw
from sureline.run.attempts import Attempts
from sureline.run.fleet import Enlisted, Fleet, WholeAnswer
from sureline.run.port import Bound, Target
from sureline.run.report_checks import names_attempts
from sureline.run.standing import Aside, PeerStanding
from sureline.run.warrants import Warrants
from sureline.world.address import Node, PeerName, name_of, node_of
from sureline.world.protocol import Action, AgentId, World

TICK_S = 1.0
BINDS_MAX = 5
"""How often a Bind is sent before its target is believed not to hear it."""


class Consequences(Protocol):
    """What the engine does about it."""

    def task_named(self, name: str) -> int | None: ...

    def is_of_use(self, task: int) -> bool:
        """Whether an attempt of the task may still bring its result."""

    def takes_part(self, target: Target) -> None: ...

    def takes_no_part(self, target: Target, reason: str, aside: Aside | None = None) -> None: ...

    def is_out_of_reach(self, target: Target) -> None:
        """It took part, and others hear it; it does not answer here."""

    def say_again(self, bound: Bound, to: AgentId) -> bool:
        """Send the Bind once more; False if it is not to be bound any more."""

    def withdraw_again(self, bound: Bound) -> None: ...

    def is_withdrawn(self, bound: Bound) -> None:
        """It was withdrawn, and is not there any more."""

    def is_lost(self, bound: Bound, reason: str) -> None: ...

    def adopt(self, bound: Bound, warrant: bytes, *, started: bool) -> None: ...

    def settled(self) -> None: ...


class Contact:
    def __init__(
        self,
        world: World,
        run: str,
        epoch: int,
        attempts: Attempts,
        engine: Consequences,
        name_of_task: Callable[[int], str],
        warrants: Warrants,
        standing: PeerStanding,
        papers: bytes = b"",
        takeover_after_s: float = 0.0,
    ) -> None:
        self._world = world
        self._run = run
        self._epoch = epoch
        self._attempts = attempts
        self._engine = engine
        self._name_of_task = name_of_task
        self._warrants = warrants
        self._standing = standing
        self.fleet = Fleet(world, run, epoch, standing, papers, takeover_after_s)
        self._when_whole: list[Action] = []

    def start(self) -> None:
        self._world.after(TICK_S, self._tick)

    # -- who is there --------------------------------------------------------------------------

    def join_here(self, target: Target) -> None:
        """A target in this process."""
        self.fleet.add(target, here=True)
        self._engine.takes_part(target)

    def joined(self, target: Target) -> None:
        """A target is there; told again, it may have moved or changed."""
        enlisted = self.fleet.get(target.name)
        if enlisted is not None:
            before = enlisted.target
            same = (before.capacity, before.extras) == (target.capacity, target.extras)
            if same and before.agent == target.agent:
                return
            if same:
                self.fleet.moved(enlisted, node_of(target.agent))
                return
            self.left(enlisted.node, "it offers something else now")
        self.fleet.add(target)

    def left(self, node: Node, reason: str) -> None:
        """It is believed dead, or has left; what comes from it later is taken all the same."""
        name = name_of(node)
        enlisted = self.fleet.get(name)
        if enlisted is None or enlisted.node != node:
            return  # an address that it has not any more
        self.fleet.remove(name)
        self._let_go(enlisted, f"{name} is gone ({reason})", reason)
        self._look_whole()
        self._engine.settled()

    def set_aside(self, name: PeerName, aside: Aside) -> None:
        """It is to get nothing more for a while."""
        enlisted = self.fleet.get(name)
        if enlisted is not None:
            self._let_go(enlisted, f"{name} is set aside ({aside.reason})", aside.reason, aside)
            self.fleet.set_back(enlisted, aside.pause_s)

    def _let_go(
        self, enlisted: Enlisted, lost: str, reason: str, aside: Aside | None = None
    ) -> None:
        name, took_part = enlisted.target.name, enlisted.attached
        enlisted.attached = False
        for bound in self._attempts.of_target(name):
            self._engine.is_lost(bound, lost)
        if took_part:
            self._engine.takes_no_part(enlisted.target, reason, aside)

    def when_whole(self, wait_s: float, action: Action) -> None:
        """Run the action once all targets that are known take part, or after `wait_s`."""
        if self.fleet.is_whole:
            action()
            return
        waiting = [action]

        def go() -> None:
            if waiting:
                waiting.clear()
                action()

        self._when_whole.append(go)
        self._world.after(wait_s, go)

    def _look_whole(self) -> None:
        if self._when_whole and self.fleet.is_whole:
            waiting, self._when_whole = self._when_whole, []
            for action in waiting:
                action()

    def want(self, name: PeerName) -> bool:
        """Have this one take part before the others that wait for it; whether it may come to
        that."""
        enlisted = self.fleet.get(name)
        if enlisted is None or self._standing.aside_s(name, self._world.elapsed()):
            return False
        self.fleet.ask_soon(enlisted)
        return True

    def _tick(self) -> None:
        self.fleet.ask_some()
        for enlisted in self.fleet.all():
            name = enlisted.target.name
            unheard = self._attempts.unconfirmed_on(name)
            if self.fleet.is_out_of_reach(enlisted):
                self._out_of_reach(enlisted)
            elif self.fleet.is_due(enlisted, unheard=unheard):
                self.fleet.ask(enlisted)
        self._world.after(TICK_S, self._tick)

    def _out_of_reach(self, enlisted: Enlisted) -> None:
        name, reason = enlisted.target.name, "it does not answer here, though others hear it"
        self._let_go(enlisted, f"{name} is out of reach", reason)
        self.fleet.set_back(enlisted)
        self._engine.is_out_of_reach(enlisted.target)
        self._engine.settled()

    def heard(self, name: PeerName) -> None:
        enlisted = self.fleet.get(name)
        if enlisted is not None:
            self.fleet.heard(enlisted)

    # -- what it tells -------------------------------------------------------------------------

    def attached(self, sender: AgentId, message: Attached) -> None:
        enlisted = self.fleet.get(name_of(sender))
        if enlisted is None or message.run != self._run or message.epoch != self._epoch:
            return
        elapsed_s = self._world.elapsed()
        if not names_attempts(message) or self._standing.aside_s(name_of(sender), elapsed_s):
            return
        if not message.serial:
            self.fleet.moved(enlisted, node_of(sender))  # it was started again: ask what is left
            return
        self.fleet.heard(enlisted)
        answer = self.fleet.collect(enlisted, message)
        if answer is None:
            return
        enlisted.session = answer.session
        if not enlisted.attached:
            enlisted.attached = True
            self._engine.takes_part(enlisted.target)
        self._drop_unwarranted(enlisted.target, answer)
        self._compare(enlisted, answer)
        self._adopt(enlisted, answer)
        self._look_whole()
        self._engine.settled()

    def _drop_unwarranted(self, target: Target, answer: WholeAnswer) -> None:
        """What was not given to it, or by a writer of whom nothing is known here, is not there."""
        for (name, attempt), (_, warrant) in list(answer.under_way.items()):
            if not self._warrants.is_right((name, attempt, target.name), warrant):
                del answer.under_way[name, attempt]
                self._stop(target, name, attempt)
        for (name, attempt), warrant in list(answer.reports.items()):
            if not self._warrants.is_right((name, attempt, target.name), warrant):
                del answer.reports[name, attempt]  # the report itself will be answered

    def _stop(self, target: Target, name: str, attempt: int) -> None:
        force = Withdraw(self._run, name, attempt, force=True, epoch=self._epoch)
        self._world.send(target.agent, force)

    def _compare(self, enlisted: Enlisted, answer: WholeAnswer) -> None:
        """What of the attempts that we believe to be there is not: it is said again, or lost."""
        name = enlisted.target.name
        for bound in self._attempts.of_target(name):
            restarted = bound.session != answer.session
            if not restarted and bound.serial >= answer.serial:
                continue  # it was bound after the question
            key = (self._name_of_task(bound.task), bound.attempt)
            if key in answer.under_way or key in answer.reports:
                self._attempts.confirm(bound)
                if bound.withdrawn and key in answer.under_way:
                    self._engine.withdraw_again(bound)
            elif bound.withdrawn:
                self._engine.is_withdrawn(bound)
            elif restarted:
                self._engine.is_lost(bound, f"{name} was started again")
            elif bound.told < BINDS_MAX and self._engine.say_again(bound, enlisted.target.agent):
                bound.told += 1
                bound.serial = enlisted.serial
            else:
                self._engine.is_lost(bound, f"{name} did not hear of it")

    def _adopt(self, enlisted: Enlisted, answer: WholeAnswer) -> None:
        """What is there and was not known: it goes on, if it is of use; reports will follow."""
        target = enlisted.target
        for (name, attempt), (started, warrant) in answer.under_way.items():
            task = self._engine.task_named(name)
            if task is not None and self._is_known(target.name, task, attempt):
                continue
            if task is None or not self._engine.is_of_use(task):
                self._stop(target, name, attempt)
                continue
            found = self._found(enlisted, task, attempt, booked=True)
            self._engine.adopt(found, warrant, started=started)
        for (name, attempt), warrant in answer.reports.items():
            task = self._engine.task_named(name)
            if task is None or not self._engine.is_of_use(task):
                continue
            if not self._is_known(target.name, task, attempt):
                found = self._found(enlisted, task, attempt, booked=False)
                self._engine.adopt(found, warrant, started=True)

    def _found(self, enlisted: Enlisted, task: int, attempt: int, *, booked: bool) -> Bound:
        return Bound(
            task,
            attempt,
            enlisted.target.name,
            self._world.now(),
            booked=booked,
            serial=enlisted.serial,
            session=enlisted.session,
            confirmed=True,
        )

    def _is_known(self, name: PeerName, task: int, attempt: int) -> bool:
        """Whether it is on our books, or this is old news of one that is over."""
        known = self._attempts.get(name, task, attempt) is not None
        return known or self._attempts.is_over(name, task, attempt)
