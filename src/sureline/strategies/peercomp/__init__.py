"""Deadline reservations over the aggregation tree, after Celaya and Arronategui.

- `reserving`, beside a run's writer: a workflow's sequences reserved stage by stage, then committed
  or rolled back (`owner`), by the deadline or the `nearest` one that does; then bound. `lengths`
  says how much time a task is to have.
- `machine`, on every machine: its `lanes`, which promise time and keep it; `queues` is the
  arithmetic of that, `policy` says whom it favours.
- On every node a `Tree` (`overlay/tree`) that follows the membership.
"""

from __future__ import annotations

from collections.abc import Sequence

from sureline.overlay.tree.agent import Tree
from sureline.overlay.tree.following import follow
from sureline.overlay.tree.messages import MESSAGES
from sureline.run.port import Host, Machine, Place, Seat, Strategy
from sureline.strategies.peercomp.lengths import ReservingSettings
from sureline.strategies.peercomp.machine import LanesKept, MachineSettings
from sureline.strategies.peercomp.notes import deadline_kept
from sureline.strategies.peercomp.reserving import PART, Reserving
from sureline.world.address import at


def _client(seat: Seat) -> Reserving:
    return Reserving(seat)


def _tree(host: Host) -> Sequence[Tree]:
    if not host.attending():
        return ()
    tree = Tree(at(host.node, PART), host.place(PART), None)
    follow(tree, host.members, host.watch)
    return (tree,)


def _promises(machine: Machine, place: Place, settings: MachineSettings) -> LanesKept:
    return LanesKept(machine, place("promises"), settings)


peercomp = Strategy(
    name="peercomp",
    summary="time is reserved for all tasks by the deadline, or the run is refused",
    paper="Celaya and Arronategui: Distributed Scheduler of Workflows with Deadlines in a P2P "
    "Desktop Grid (2010)",
    judges=True,
    settings=ReservingSettings,
    machine_settings=MachineSettings,
    messages=MESSAGES,
    deciding=_client,
    node=_tree,
    machine=_promises,
    audits={"promised deadline kept": deadline_kept},
)
