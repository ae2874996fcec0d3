"""The process that drives a run over a grid: its writer, the mirror of its journal, its presence,
and how they hear of peers that come and go.

Each is told of a member as soon as the membership is: the writer of those that it may use, the
mirror of all that can keep a copy.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from sureline.assembly.node import PRESENT, GridNode
from sureline.assembly.writer import History, make_writer
from sureline.overlay.membership import Member
from sureline.peer.capacity import Capacity, Ledger
from sureline.run.engine import Hearers
from sureline.run.fence import Gate
from sureline.run.grant import OWN, Epoch
from sureline.run.mirror import Mirror
from sureline.run.office import Office
from sureline.run.options import Options, Past
from sureline.run.port import Deciding, Seat, Target
from sureline.run.presence import Presence
from sureline.run.presence import part as presence_part
from sureline.run.sealing import Recorded
from sureline.strategies import strategy
from sureline.workflow.model import Graph, Needs
from sureline.world.address import at, name_of, peer_of
from sureline.world.identity.signing import DRIVE, RunSigner

LAST_WORDS_S = 5.0
NAMED_MAX = 5
"""Peers that are named in one sentence."""
Present = Sequence[Target]
"""The machines that a run may use when it begins."""


class Charge(NamedTuple):
    """A run as one process has it to drive."""

    run: str
    graph: Graph
    options: Options
    past: Past
    epoch: int
    signer: RunSigner
    history: History = dict
    """What tasks took in earlier runs, by kind."""
    pid: int = 0
    writer: str = ""
    """Of its epoch; see `run.grant`."""
    voters: tuple[str, ...] = ()
    """Whom the journal names; () for a new run."""
    vote: str = OWN
    """The word of this journal."""
    deciding: Callable[[Seat], Deciding] | None = None
    """In place of the half of the strategy that the options name, to compare it with."""


def _go_on(present: Present, then: Callable[[str], None]) -> None:
    then("")


Judge = Callable[[Present, Callable[[str], None]], None]
"""Finds out whether a run can keep its terms on the machines that are there, and calls back with
why not, or ''."""


def run_part(run: str) -> str:
    """The part of the node that drives a run."""
    return f"run.{run}"


class RunDriver:
    """Made on a node that has not met its grid; `begin` once it has. `mirror` must hear of
    everything that is recorded (`Mirror.recorded`)."""

    def __init__(
        self,
        node: GridNode,
        charge: Charge,
        recorded: Recorded,
        hearers: Hearers,
        judge: Judge = _go_on,
    ) -> None:
        self._node = node
        self._charge = charge
        self._hearers = hearers
        self._judge = judge
        self._spends = strategy(charge.options.strategy).spends
        self._left_out: dict[str, None] = {}
        """Peers that ask a price, in a run that pays none."""
        run, place, gate = charge.run, node.ground.place, Gate()
        self.me = at(node.id, run_part(run))
        self.writer, agents = make_writer(
            node.id,
            self.me,
            place,
            run,
            charge.graph,
            charge.options,
            charge.past,
            charge.history,
            hearers,
            epoch=charge.epoch,
            gate=gate,
            papers=charge.signer.papers,
            deciding=charge.deciding,
        )
        me = at(node.id, f"mirror.{run}")
        self.office = Office(
            place(me),
            run,
            Epoch(charge.epoch, charge.writer),
            charge.voters,
            charge.vote,
            recorded,
            self.writer.let_go,
            lambda: self.writer.is_over,
        )
        gate.committed = self.office.when_committed
        gate.believes = lambda number: False
        self.writer.successors = self._successors
        created, signer = charge.graph.created, charge.signer
        self.mirror = Mirror(
            me, place(me), run, charge.epoch, created, recorded, signer, self.office
        )
        me = at(node.id, presence_part(run))
        presence = Presence(me, place(me), run, charge.epoch, charge.pid)
        for agent in (*agents, self.mirror, presence):
            node.ground.join(agent)

    def begin(self) -> None:
        """The grid has been met: start, unless the terms cannot be kept. Peers that come later are
        told of as they come."""
        present = [target_of(m) for m in self._node.present() if self._is_usable(m)]
        self._name_left_out()
        self._warn([target.capacity for target in present])
        self._judge(present, lambda why: self._start(present, why))

    def _start(self, present: Present, why_not: str) -> None:
        if why_not and self.writer.refuse(why_not):
            return
        self.office.begin()
        self.writer.start(present)
        self.mirror.start()
        for member in self._node.present():
            self._tell(member)
        self._node.membership.watch(self._tell)

    def say_last(self, then: Callable[[], None]) -> None:
        """The end of the run is durable here: let its keepers have it too, if they answer."""
        self.mirror.drain(LAST_WORDS_S, then)

    def _tell(self, member: Member) -> None:
        """Pass on what the membership says of a peer."""
        gone = member.state not in PRESENT
        if _may_keep(member):
            if gone:
                self.mirror.peer_left(member.node)
            else:
                self.mirror.peer_joined(member.node, DRIVE in member.offer.roles)
        if gone:
            words = "it does not answer" if member.state == "dead" else "it has left"
            self.writer.target_left(member.node, words)
        elif self._is_usable(member):
            self.writer.target_joined(target_of(member))
            self.writer.target_load(member.node, member.load)
        else:
            self.writer.target_left(member.node, "it offers something else now")

    def _is_usable(self, member: Member) -> bool:
        """Whether tasks may go there; who asks a price has no use for a run that pays none."""
        if "run" not in member.offer.roles or member.offer.cores <= 0:
            return False
        if member.offer.price > 0 and not self._spends:
            self._left_out[name_of(member.node)] = None
            return False
        return True

    def _successors(self) -> Sequence[str]:
        others = [m for m in self._node.present() if peer_of(m.node) != peer_of(self._node.id)]
        return sorted(name_of(m.node) for m in others if DRIVE in m.offer.roles)[:NAMED_MAX]

    # -- for people ----------------------------------------------------------------------------

    def _warn(self, machines: Sequence[Capacity]) -> None:
        """Say which tasks will wait for a machine that is not there."""
        unfit = _unfit(self._charge.graph, machines)
        if not machines:
            self._hearers.on_told("no peer of the grid runs tasks just now; the run waits for one")
        elif unfit:
            others = f" and {len(unfit) - 1} more" if len(unfit) > 1 else ""
            self._hearers.on_told(
                f"no peer is large enough for {unfit[0]}{others} just now; why: "
                f"sureline explain {self._charge.run} {unfit[0]}"
            )

    def _name_left_out(self) -> None:
        if self._left_out:
            names = list(self._left_out)[:NAMED_MAX]
            more = len(self._left_out) - len(names)
            others = f" and {more} more" if more else ""
            asks = "asks" if len(self._left_out) == 1 else "ask"
            self._hearers.on_told(
                f"{', '.join(names)}{others} {asks} a price and will not be used; give --budget to "
                "use peers that do"
            )


def _may_keep(member: Member) -> bool:
    """Whether it is asked to keep a copy, and to vote. Not a pilot that will soon be gone and could
    not go on with the run: an engine may end all of those at once, and with them a majority."""
    roles = member.offer.roles
    return "run" in roles and (DRIVE in roles or member.offer.ends_at is None)


def _unfit(graph: Graph, machines: Sequence[Capacity]) -> list[str]:
    """The tasks that no machine is large enough for."""
    ledgers = [Ledger(machine) for machine in machines]
    fits: dict[Needs, bool] = {}
    unfit = []
    for task in graph.tasks:
        if task.needs not in fits:
            fits[task.needs] = any(ledger.fits(task.needs) for ledger in ledgers)
        if not fits[task.needs]:
            unfit.append(task.name)
    return unfit


def target_of(member: Member) -> Target:
    """A member that runs tasks, as a run's writer sees it."""
    offer = member.offer
    capacity = Capacity(
        offer.cores, offer.memory_bytes, offer.disk_bytes, offer.gpus, dict(offer.tags)
    )
    agent = at(member.node, "peer")
    return Target(name_of(member.node), agent, capacity, offer.site, dict(offer.extras))
