"""The agent that drives one run: the only writer of its journal, in one epoch.

One engine for all runs. On one machine its fleet is that machine alone; on a grid it is the peers
that come and go. Who gets which task is its strategy's affair (`port`); what must hold for every
strategy is kept here and in its parts:

- what becomes of tasks and attempts is the `course`; what a strategy sees and does, `decisions`;
- children start as soon as their parents' records would survive a kill of this process, before they
  are synced: the journal survives a power cut as a prefix, so a child's durable result implies its
  parents';
- the run is over when nothing is staging, queued, bound or retrying: then all that is left waits
  for something that failed. The end is announced only when it is durable;
- a writer that hears of a newer one stops at once, without another event (`fence`).

Around it: inputs and past results (`staging`), what a target is told (`binds`), the book of
attempts (`attempts`), keeping in contact with targets (`contact`), attempts that take too long
(`overdue`), what becomes of results (`delivery`), and, with a deadline, watching over it (`watch`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from sureline.journal.events import (
    RunEnded,
    RunState,
    TaskEnded,
    TaskRevoked,
    TaskStarted,
)
from sureline.peer.messages import (
    Attached,
    Fenced,
    Finished,
    Holds,
    Progressed,
    Refused,
    Started,
)
from sureline.run.course import Course
from sureline.run.decisions import Decisions
from sureline.run.entrusting import Entrusting
from sureline.run.fence import Fence, Gate
from sureline.run.fleet import LARGE
from sureline.run.free_repair import FreeRepairer
from sureline.run.options import CancelRun, Options, Past
from sureline.run.past import KeptAnswer, KeptFiles
from sureline.run.port import Deciding, Target
from sureline.run.watch import Watch
from sureline.workflow.model import Graph
from sureline.world.address import Node, PeerName, name_of
from sureline.world.agent import Agent, handles
from sureline.world.protocol import AgentId, Fetched, Message, World

ATTACH_WAIT_S = 3.0
"""How long a resumed run waits for its peers to tell what is under way, before it starts more; for
very many, longer."""


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
        papers: bytes = b"",
    ) -> None:
        self._gate = gate or Gate()
        if epoch:
            world = Fence(world, self._gate)
        past = past or Past()
        watch: Watch | None = None
        if options.deadline_at is not None:
            watch = Watch(world, run, graph, options, past.committed.values())
            world = watch.world
        super().__init__(me, world)
        self.run = run
        self.epoch = epoch
        self._here = epoch == 0
        self._options = options
        self._deciding = deciding
        self._past = past
        self._hearers = hearers
        self._course = Course(
            me,
            world,
            run,
            epoch,
            graph,
            options,
            past,
            deciding,
            watch,
            self.settled,
            self._finish_if_over,
            hearers.on_told,
            papers,
        )
        self._decisions = Decisions(
            world,
            self._course,
            options,
            deciding,
            tell=hearers.on_told,
            refuse=self.refuse,
            on_woken=self.settled,
        )
        self._entrusting: Entrusting | None = None
        self.successors: Callable[[], Sequence[str]] = tuple
        """Which other peers could take the run over; a few."""
        self._is_let_go = False
        self._settling = False
        """Whether the strategy has given its word that the run may begin."""
        self.stays_open = False
        """Whether it waits for more tasks (`grow`) when there is nothing left to do."""

    def receive(self, sender: AgentId, message: Message) -> None:
        if not (self._gate.is_shut or self._course.over):
            super().receive(sender, message)

    def start(self, targets: Iterable[Target]) -> None:
        """Begin, or go on after an earlier process. Called once; targets that come later are told
        of by `target_joined`."""
        self._course.holds = 2  # the strategy's word, and ours
        self._deciding.begin(self._decisions, self._past.noted, self._go)
        for name, ended in self._past.committed.items():
            self._restore_if_whole(self._course.graph.index[name], ended)
        join = self._course.contact.join_here if self._here else self._course.contact.joined
        for target in targets:
            join(target)
        self._course.delivery.start()
        if self._here:
            self._release_hold()
            return
        self._course.contact.start()
        self._course.overdue.start(self._decisions.duplicate)
        self._course.blame.tell_of_earlier_runs()
        many = len(self._course.fleet.all()) / LARGE
        wait_s = ATTACH_WAIT_S * (1 + many) if self.epoch > 1 else 0.0
        if wait_s and many:
            self._course.contact.when_whole(wait_s, self._release_hold)
        else:
            self._release_hold()

    def _go(self) -> None:
        if not self._is_let_go:
            self._is_let_go = True
            self._release_hold()

    def _release_hold(self) -> None:
        if not self._course.holds:
            return
        self._course.holds -= 1
        if not self._course.holds:
            self._begin()

    def _restore_if_whole(self, task: int, ended: TaskEnded) -> None:
        """A result of an earlier process. On a grid it is looked for when it is brought home."""
        if not self._here or not ended.outputs:
            self._course.restore(task, ended)
            return
        self._course.holds += 1

        def answer(fetched: Fetched) -> None:
            if isinstance(fetched, KeptAnswer) and fetched.whole:
                self._course.restore(task, ended)
            else:
                reason = "its stored files are gone or damaged"
                self.world.record(TaskRevoked(self.world.now(), ended.task, reason))
            self._release_hold()

        self.world.fetch(KeptFiles(ended.outputs, self._options.verify), (), answer)

    def _begin(self) -> None:
        self._course.begin()
        if self._course.watch is not None:
            repairer = self._deciding.repairer()
            if repairer is None:
                repairer = FreeRepairer(self._decisions, self._deciding, self._decisions.restart)
            self._course.watch.begin(repairer, self._course.attempts.all)
        if self.epoch == 1 and self._options.takeover_after_s:
            self._entrust()
        self.settled()

    def _entrust(self) -> None:
        course = self._course
        self._entrusting = Entrusting(
            self.world,
            self.me,
            self.run,
            self.epoch,
            course.graph,
            course.known,
            course.fleet,
            lambda: course.over,
            self.successors,
            self._going_to,
            course.delivery.holders,
        )
        self._entrusting.start()

    def _going_to(self, digests: Iterable[str]) -> dict[str, set[PeerName]]:
        """Where tasks have read these contents, or will."""
        holders = self._course.delivery.holders
        found = {digest: set(holders.peers(digest)) for digest in digests}
        for bound in self._course.attempts.all():
            for file in self._course.known.reads(bound.task):
                found.setdefault(file.digest, set()).add(bound.target)
        return found

    def refuse(self, reason: str) -> bool:
        if self._hearers.on_refused is None or not self._course.holds:
            self._hearers.on_told(reason)
            return False
        self._hearers.on_refused(reason)
        self._course.holds = 0  # nothing was begun, so it is over at once
        self.on_cancel(self.me, CancelRun(reason=reason))
        return True

    def grow(self, graph: Graph) -> None:
        self._course.grow(graph)

    def close(self) -> None:
        """No more tasks will come."""
        self.stays_open = False
        self._finish_if_over()

    # -- targets -------------------------------------------------------------------------------

    def target_joined(self, target: Target) -> None:
        """A target is there; told again, it may have moved or changed."""
        self._course.contact.joined(target)

    def target_left(self, node: Node, reason: str) -> None:
        """It is believed dead, or has left; what comes from it later is taken all the same."""
        self._course.contact.left(node, reason)

    def target_load(self, node: Node, cores: float) -> None:
        """How many of its cores are in use."""
        self._deciding.load(name_of(node), cores)

    @handles(Holds)
    def on_holds(self, sender: AgentId, message: Holds) -> None:
        if self._entrusting is not None:
            self._entrusting.held(sender, message)

    @handles(Attached)
    def on_attached(self, sender: AgentId, message: Attached) -> None:
        self._course.contact.attached(sender, message)

    def settled(self) -> None:
        """Something happened: go on with what that allows."""
        self._decisions.pump()
        self._finish_if_over()

    def _settle_soon(self) -> None:
        """On a grid, several may have something to tell at once: it is decided, and put on record,
        once for all of them."""
        if self._here:
            self.settled()
        elif not self._settling:
            self._settling = True
            self.world.after(0.0, self._settle)

    def _settle(self) -> None:
        self._settling = False
        self.settled()

    @handles(Started)
    def on_started(self, sender: AgentId, message: Started) -> None:
        self._began(sender, message, 0.0)

    def _began(self, sender: AgentId, message: Started | Finished, ago_s: float) -> None:
        bound = self._course.on_book(sender, message)
        if bound is not None and not bound.started:
            bound.started = True
            now = self.world.now()
            at = min(now, max(bound.since, now - ago_s))  # whatever a peer says
            self.world.record(
                TaskStarted(at, message.task, message.attempt, bound.target, message.pid)
            )
            self._deciding.started(bound)

    @handles(Progressed)
    def on_progressed(self, sender: AgentId, message: Progressed) -> None:
        bound = self._course.on_book(sender, message)
        if bound is not None:
            told = (bound.target, bound.task, bound.attempt, message.fraction)
            self._decisions.progressed(*told)

    @handles(Refused)
    def on_refused(self, sender: AgentId, message: Refused) -> None:
        self._course.refused(sender, message)
        self._settle_soon()

    @handles(Finished)
    def on_finished(self, sender: AgentId, message: Finished) -> None:
        if message.began:
            self._began(sender, message, message.ended.elapsed_s)
        self._course.finished(sender, message)
        self._settle_soon()

    # -- ending --------------------------------------------------------------------------------

    @handles(Fenced)
    def on_fenced(self, sender: AgentId, message: Fenced) -> None:
        if message.run == self.run and self._gate.believes(message.epoch):
            self.taken_over(message.epoch)

    def taken_over(self, epoch: int) -> None:
        """Somebody knows a writer of this epoch; if it is newer, nothing more happens here."""
        if self._here or epoch <= self.epoch:
            return
        self.let_go(
            f"run {self.run} was taken over by another process (epoch {epoch}, ours was "
            f"{self.epoch})"
        )

    def let_go(self, reason: str) -> None:
        """This writer may not write any more: nothing happens here from now on."""
        if not self._gate.is_shut:
            self._gate.shut()
            self._hearers.on_fenced(reason)

    @property
    def is_over(self) -> bool:
        """Whether its end is recorded."""
        return self._course.over

    @handles(CancelRun)
    def on_cancel(self, sender: AgentId, message: CancelRun) -> None:
        self._course.stop(message)
        self._finish_if_over()

    def _finish_if_over(self) -> None:
        if self.stays_open and self._course.cancel is None:
            return
        forced = self._course.cancel is not None and self._course.cancel.force
        if (
            self._course.over
            or self._course.tasks.open
            or self._course.holds
            or self._course.delivery.publisher.busy
        ):
            return
        if self._course.delivery.under_way and not forced:
            return
        self._course.over = True
        if self._course.watch is not None:
            self._course.watch.end()
        self._deciding.end()
        ended = RunEnded(self.world.now(), *self._verdict())
        self.world.record(ended)
        self.world.sync(lambda: self._announce(ended))

    def _announce(self, ended: RunEnded) -> None:
        self._course.delivery.close(succeeded=ended.state == "succeeded")
        self._gate.shut()
        self._hearers.on_end(ended)

    def _verdict(self) -> tuple[RunState, str]:
        if self._course.tasks.failed:
            return "failed", self._course.reason
        if self._course.delivery.publisher.failures:
            return "failed", self._course.delivery.publisher.failures[0]
        if self._course.tasks.all_committed() and not (
            self._course.homeless or self._course.delivery.under_way
        ):
            return "succeeded", ""
        return "cancelled", self._course.reason
