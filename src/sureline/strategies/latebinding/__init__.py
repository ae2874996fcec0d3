"""Late-binding pilots with a shared cache of files.

After Delgado Peris, Hernandez and Huedo, "Distributed scheduling and data sharing in late-binding
overlays". Three parts, and what they share:
- `entry`, beside a run's writer: tells the queue what is ready, and binds as it is advised.
- `queue`, on every node, asleep unless that node hosts it: what waits (`book`), and whose turn it
  is (`shares`).
- `pilot`, on every node: a pilot of its site and, if elected, its `master`, which hears what the
  others wish for (`wishes`); `half` is its side on the machine.
- `judging` says what a pilot thinks of a task, `dealing` and `assignment` deal out a matrix of
  that, and `fetching` says who waits for another's files; `messages` is what is said, `sense` what
  of that is weighed, `settings` what can be set.
"""

from __future__ import annotations

from collections.abc import Sequence

from sureline.overlay.kademlia import Kademlia
from sureline.run.port import Host, Machine, Place, Seat, Strategy
from sureline.strategies.latebinding.entry import QueueEntry
from sureline.strategies.latebinding.half import PilotHalf
from sureline.strategies.latebinding.messages import MESSAGES
from sureline.strategies.latebinding.pilot import PART, SITE, SITE_SETTINGS, PilotAgent, can_run
from sureline.strategies.latebinding.queue import PART as QUEUE
from sureline.strategies.latebinding.queue import TaskQueue
from sureline.strategies.latebinding.settings import LateSettings, PilotHalfSettings
from sureline.world.address import at, node_of
from sureline.world.agent import Agent
from sureline.world.protocol import AgentId


def _entry(seat: Seat) -> QueueEntry:
    return QueueEntry(seat)


def _pilot(host: Host) -> Sequence[Agent]:
    """A guest is no pilot, and hosts no queue."""
    if not host.attending():
        return ()
    site = at(host.node, SITE)
    kademlia = Kademlia(site, host.place(SITE), SITE_SETTINGS)
    me, queue = at(host.node, PART), at(host.node, QUEUE)

    def is_there(agent: AgentId) -> bool:
        return host.has(node_of(agent))

    def site_of(agent: AgentId) -> str | None:
        found = (m for m in host.members() if agent == at(m.node, PART) and can_run(m))
        return next((member.offer.site for member in found), None)

    return (
        kademlia,
        PilotAgent(me, host.place(PART), host, kademlia),
        TaskQueue(queue, host.place(QUEUE), is_there, site_of),
    )


def _half(machine: Machine, place: Place, settings: PilotHalfSettings) -> PilotHalf:
    return PilotHalf(machine, place("latebinding.room"), settings)


latebinding = Strategy(
    name="latebinding",
    summary="pilots of a site judge the tasks of a queue and deal them out among themselves",
    paper="Delgado Peris, Hernandez and Huedo: Distributed scheduling and data sharing in "
    "late-binding overlays (2014)",
    where="grid",
    heeds_wishes=True,
    settings=LateSettings,
    machine_settings=PilotHalfSettings,
    messages=MESSAGES,
    deciding=_entry,
    node=_pilot,
    machine=_half,
)
