"""A chemically coordinated shared space: molecules on a ring, and rules that react with them.

After Fernandez, Obrovac and Tedeschi, "Decentralised Multiple Workflow Scheduling via a
Chemically-coordinated Shared Space". To read it beside the paper, in this order:
- section 2, the chemical model: `chemistry/molecules`, `matching`, `reactor`.
- 3.1 and 3.2, molecules and where they lie: `molecules` here, `overlay/ring/places`, `lookup`,
  `captures`, `metas`, `ranges`.
- 3.3, the rules: `rules.chem` and `orders/`, read by `rulebook`.
- 3.3, the flow: `entry`, beside a run's writer, puts the workflow into the ring, and binds as it is
  advised; `holder`, on every node, reacts with the molecules that lie there; `seeking` is one
  task's way to a resource; `owner`, on every machine, is its resource molecule, of which each part
  is taken by one alone.

What is said between them is in `messages`, what a user may set in `settings`. The heads of
`chemistry` and `overlay/ring` say what their other files are for: the notation, and what a ring
needs to stay alive.
"""

from __future__ import annotations

from collections.abc import Sequence

from sureline.overlay.ring import MESSAGES as RING_MESSAGES
from sureline.overlay.ring import Ring, RingSettings
from sureline.overlay.ring.following import follow
from sureline.run.port import Host, Machine, NoSettings, Place, Seat, Strategy
from sureline.strategies.chemical.entry import WorkflowEntry
from sureline.strategies.chemical.holder import PART, MoleculeHolder
from sureline.strategies.chemical.messages import MESSAGES
from sureline.strategies.chemical.molecules import FEATURES
from sureline.strategies.chemical.owner import PART as RESOURCE
from sureline.strategies.chemical.owner import Owner
from sureline.strategies.chemical.settings import ChemicalSettings
from sureline.world.address import at, node_of
from sureline.world.agent import Agent
from sureline.world.protocol import AgentId

RING = "ring"
RING_SETTINGS = RingSettings(
    idle_tick_s=10.0, awake_s=300.0, value_bytes_max=65_000, republish_s=30.0, meta_ttl_s=75.0
)
WAKE = "chemical.wake"
"""The topic of broadcasts that say: there are molecules in the ring."""


def _entry(seat: Seat) -> WorkflowEntry:
    return WorkflowEntry(seat)


def _engine(host: Host) -> Sequence[Agent]:
    """The ring and a chemical engine on it; a guest has neither, and enters through others. While
    there are no molecules in it, the ring sleeps; the first one wakes all nodes."""
    if not host.attending():
        return ()
    ring = Ring(at(host.node, RING), host.place(RING), FEATURES, RING_SETTINGS)

    def woken(origin: AgentId, payload: bytes) -> None:
        ring.wake()

    def waken() -> None:
        ring.wake()
        host.kademlia.broadcast(WAKE, b"")

    holder = MoleculeHolder(at(host.node, PART), host.place(PART), ring, waken)
    host.kademlia.on_broadcast(WAKE, woken, lambda replies: b"")
    follow(ring, host.watch)
    ring.join((), lambda known: None)
    return ring, holder


def _owner(machine: Machine, place: Place, settings: NoSettings) -> Owner:
    return Owner(at(node_of(machine.me), RESOURCE), place(RESOURCE), machine)


chemical = Strategy(
    name="chemical",
    summary="tasks and machines are molecules on a ring of all nodes; rules bring them together",
    paper="Decentralised Multiple Workflow Scheduling via a Chemically-coordinated Shared Space",
    where="grid",
    settings=ChemicalSettings,
    messages=(*RING_MESSAGES, *MESSAGES),
    deciding=_entry,
    node=_engine,
    machine=_owner,
)
