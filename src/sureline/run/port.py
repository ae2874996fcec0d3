"""The port that strategies plug into: composed with the engine, never heirs of it.

It has three halves, and each may be left out:
- beside the run's writer (`Deciding`): sees the whole graph, the terms and the targets before
  anything is ready, hears all that happens, and says which task goes where;
- on every node of a grid (`Strategy.node`): agents of its own, with messages of their own;
- on every machine that runs tasks (`peer.admitting.Admitting`): what is admitted, what starts
  first, what is advertised.

A *target* is whatever speaks the attempt protocol of `peer.messages`: a machine, or a site's queue
that stands for many. The engine keeps what must hold for all strategies: readiness, one commit per
task, revocation, retries, the journal, one writer per epoch. What somebody else decided, such as a
node of a tree or the holder of a molecule, reaches a strategy's own agent as an ordinary message,
and is advice: the half beside the writer binds.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, Literal, Protocol

import msgspec

from sureline.journal.events import Event, Noted, Unknown
from sureline.journal.history import Observed
from sureline.overlay.kademlia import Kademlia
from sureline.overlay.membership import Member
from sureline.peer.admitting import Admitting, Machine
from sureline.peer.capacity import Capacity
from sureline.peer.messages import Finished, Refused
from sureline.run.estimates import EstimatesFound
from sureline.run.outlook import Following
from sureline.run.repair import Repairer
from sureline.run.states import State
from sureline.workflow.files import FileRecord
from sureline.workflow.model import Graph, Needs
from sureline.workflow.terms import Terms
from sureline.world.address import NO_NAME, Node, PeerName
from sureline.world.agent import Agent
from sureline.world.protocol import Action, AgentId, Message, World

__all__ = [
    "Action",
    "Admitting",
    "Bound",
    "Deciding",
    "Ending",
    "Engine",
    "EstimatesFound",
    "Host",
    "Machine",
    "Needs",
    "NoSettings",
    "Noted",
    "Over",
    "PeerName",
    "Seat",
    "State",
    "Strategy",
    "Target",
    "Unknown",
]
"""All that a strategy of its own package needs to import."""

Ending = Literal["succeeded", "failed", "timeout", "cancelled", "lost", "refused", "withdrawn"]
"""How an attempt ended, for the run. 'cancelled': its target stopped it; 'withdrawn': the run
did."""


class Target(msgspec.Struct, frozen=True):
    """Somebody who takes attempts. Known by name; where it is spoken to may change."""

    name: PeerName
    agent: AgentId
    capacity: Capacity
    site: str = ""
    extras: Mapping[str, float | str] = {}
    """What else it says of itself, in words of whoever advertises it; see
    `Admitting.advertised`."""

    @property
    def price(self) -> float:
        """What a core costs there for an hour; 0 where nothing is asked."""
        price = self.extras.get("price", 0.0)
        return price if isinstance(price, float | int) else 0.0


class Bound(msgspec.Struct):
    """One attempt that is under way, as the engine's book has it. Strategies only read it."""

    task: int
    attempt: int
    target: PeerName
    since: float
    """When it was bound, in seconds since the epoch."""
    claim: bytes = b""
    ahead: bool = False
    started: bool = False
    withdrawn: bool = False
    booked: bool = True
    """Whether it holds what it needs of its target; a report that was found there does not."""
    serial: int = 0
    """Of the last Attach that went to the target before this was bound: an answer to a later one
    must tell of it."""
    session: int = 0
    """The target's, when this was bound: after a restart of the target, it is not under way."""
    told: int = 1
    """How often the Bind was sent."""
    confirmed: bool = False
    """The target has told of it."""


class Over(msgspec.Struct, frozen=True):
    """An attempt is over. `told` is the target's own word; None if it is believed lost, or was
    given up."""

    bound: Bound
    ending: Ending
    told: Finished | Refused | None = None


class Engine(Protocol):
    """What the deciding half may see and do. Tasks are given by their index in the graph."""

    @property
    def run(self) -> str: ...

    @property
    def epoch(self) -> int: ...

    @property
    def graph(self) -> Graph: ...

    @property
    def terms(self) -> Terms: ...

    @property
    def following(self) -> Following | None:
        """How far the run is, for forecasts; None if it has no deadline."""

    def state(self, task: int) -> State: ...

    def wanted(self, task: int) -> bool:
        """Whether it is to be bound: it is ready, and the run is not being cancelled."""

    def urgency(self, task: int) -> float:
        """The length of the chain that hangs on it; higher first."""

    def open_tasks(self) -> list[int]:
        """All that have not been committed, in the order in which they would start."""

    def targets(self) -> Mapping[PeerName, Target]:
        """Those that take part now."""

    def want(self, target: PeerName) -> bool:
        """One that does not take part yet is to be asked before others; False if it is not known,
        or not to be asked."""

    def attempts(self) -> list[Bound]:
        """All that are under way."""

    def attempts_of(self, task: int) -> list[Bound]: ...

    def attempt(self, target: PeerName, task: int, attempt: int) -> Bound | None: ...

    def next_attempt(self, task: int) -> int:
        """The number that the next attempt of the task will have."""

    def held(self, task: int) -> Mapping[PeerName, int]:
        """How many bytes of its inputs each target holds."""

    def reads(self, task: int) -> Sequence[FileRecord]:
        """What must be on the machine that runs it; known once the task is ready."""

    def unfit(self, task: int) -> Collection[PeerName]:
        """Targets that have said that they will never run it, such as for want of a package. Bound
        there all the same, it comes back as refused."""

    def when_attached(self, wait_s: float, action: Action) -> None:
        """Run the action once every target that is known takes part, or after `wait_s`."""

    def estimates(self, on_done: Callable[[EstimatesFound], None]) -> None:
        """How long each task is expected to take, by the user's word and by earlier runs."""

    def bind(self, task: int, target: PeerName, claim: bytes = b"", *, ahead: bool = False) -> int:
        """Start an attempt of a task that is `wanted`; its number. 0 if it cannot be bound there
        now: it is not wanted (any more), the target is gone, or an input cannot be had, and then
        `ready` is told again when it can. `claim` travels to the target, for the strategy's half
        there. With `ahead`, it begins where one with equal needs ends."""

    def duplicate(self, task: int, target: PeerName, claim: bytes = b"") -> int:
        """Start another attempt of a task that is under way, as `bind`."""

    def withdraw(self, task: int, attempt: int) -> None:
        """Stop one attempt; `over` follows. A task that is left with none is ready again."""

    def progressed(self, target: PeerName, task: int, attempt: int, fraction: float) -> None:
        """So much of an attempt is done, as its target told the strategy."""

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
        """Record an event of the strategy's own: `said` in words, for everybody; `body` for itself,
        when the run is resumed; `paid` is money that is spent by it, `window` the time that the
        task is promised."""

    def wake(self) -> None:
        """Have `decide` called soon: something has changed."""

    def tell(self, sentence: str) -> None:
        """Something that the user should know, and that is no event."""

    def refuse(self, reason: str) -> bool:
        """End the run before it begins: its terms cannot be met. False if it is to go on all the
        same; the user is told the reason then."""

    def grow(self, graph: Graph) -> None:
        """The graph has more tasks: those that it had are its first ones, unchanged. It is on
        record, so whoever resumes the run has them too. Raises ValueError for anything else."""


class Deciding(Protocol):
    """The half beside a run's writer. Every method but `decide` may be left as it is.

    Order: `begin`, then `target` for each that takes part, `stands` for each task that was
    committed before; nothing is ready before `go` was called. `bound` is told of every attempt that
    is on the book (the strategy's own, added by repair, or found under way), and `over` once of
    each of them.
    """

    @property
    def agent(self) -> Agent | None:
        """At the seat's address, if others are to speak to it."""
        return None

    def begin(self, engine: Engine, past: Sequence[Noted | Unknown], go: Action) -> None:
        """The run begins, or goes on: `past` is what was noted earlier. Call `go`, now or later."""
        go()

    def target(self, target: Target) -> None:
        """It takes part from now on, or offers something else than before."""
        return

    def gone(self, target: PeerName) -> None:
        """It takes no part any more; `over` of its attempts has been told."""
        return

    def load(self, target: PeerName, cores: float) -> None:
        """How many of its cores are in use, by whomever."""
        return

    def grown(self, tasks: range) -> None:
        """The graph has new tasks."""
        return

    def ready(self, task: int) -> None:
        """It may be bound from now on; told again whenever it may be bound anew."""
        return

    def bound(self, bound: Bound) -> None:
        """An attempt is under way."""
        return

    def started(self, bound: Bound) -> None:
        """Its target has begun with it."""
        return

    def over(self, over: Over) -> None:
        """An attempt is under way no longer."""
        return

    def stands(self, task: int, committed: bool) -> None:
        """It has a result, or its result was revoked: what reads it waits again, and is told as
        ready anew."""
        return

    def decide(self) -> None:
        """Bind what may start; called after anything has happened."""

    def spare(self, needs: Needs, but: Sequence[PeerName]) -> PeerName | None:
        """A target, none of `but` if there is a choice of targets at all, that has room for these
        needs right now: for a second attempt of a task that is late."""
        return None

    def repairer(self) -> Repairer | None:
        """What can be done when the deadline is in danger; None for what is done for nothing."""
        return None

    def end(self) -> None:
        """The run is about to be over: the last that may be noted."""
        return


class Seat(msgspec.Struct, frozen=True):
    """Where a deciding half sits: its own address beside the run's writer, and its world, which is
    shut when the writer is fenced."""

    me: AgentId
    world: World
    run: str
    settings: Any
    history: Callable[[], Mapping[str, Sequence[Observed]]]
    """What tasks took in earlier runs, by kind."""


class Host(Protocol):
    """What the node half of a strategy may use of its node."""

    @property
    def node(self) -> Node: ...

    @property
    def kademlia(self) -> Kademlia: ...

    def place(self, part: str) -> World:
        """The world of this node's agent of that name."""

    def members(self) -> list[Member]:
        """Who is there, this node among them if it is a member."""

    def has(self, node: Node) -> bool:
        """Whether this node is a member that is not known to be gone."""

    def watch(self, hear: Callable[[Member], None]) -> None:
        """Be told whenever a member comes, goes or says something else of itself; not of loads."""

    def attending(self) -> bool:
        """Whether this node is a member itself, or only a guest."""


Place = Callable[[str], World]
"""The world of a node's agent of that name."""


class NoSettings(msgspec.Struct, frozen=True):
    """For a strategy that has nothing to set."""


class Strategy(msgspec.Struct, frozen=True, kw_only=True):
    """All that the registry needs to know. Factories are called by the assembly, in both worlds."""

    name: str
    summary: str
    """One line, for people."""
    paper: str = ""
    """Where it comes from."""
    where: Literal["here", "grid", "anywhere"] = "anywhere"
    """Whether it places tasks on this machine, on a grid, or on either."""
    spends: bool = False
    """Whether it deals with targets that ask a price."""
    judges: bool = False
    """Whether it finds out by itself if a deadline can be kept, and refuses the run if not. Else
    forecasts decide that."""
    heeds_wishes: bool = False
    """Whether it looks at what tasks wish of machines, `requires` and `rank`."""
    settings: type[msgspec.Struct] = NoSettings
    """What `--with key=value` sets; every field has a default."""
    machine_settings: type[msgspec.Struct] = NoSettings
    """What a peer's owner sets of its half there."""
    messages: tuple[type[Message], ...] = ()
    """All that its agents say to each other, for the codec."""
    deciding: Callable[[Seat], Deciding]
    node: Callable[[Host], Sequence[Agent]] | None = None
    machine: Callable[[Machine, Place, Any], Admitting] | None = None
    """Given the machine, the worlds of its node's agents by their names, and its settings."""
    audits: Mapping[str, Callable[[Sequence[Event], Terms], Iterable[str]]] = {}
    """What must hold of a run's events by this strategy's own rules, such as 'budget kept', and a
    check that tells in words where it does not."""
