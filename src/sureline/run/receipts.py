"""What a run's writer owes to peers: word that reports were recorded, and that files are home.

A report is acknowledged when what came of it is durable; all that come while the disk is at work
share the next sync. Word of files that are home goes out now and then: it only lets a peer evict.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from sureline.peer.messages import Acknowledge, Finished, Release
from sureline.world.address import PeerName
from sureline.world.protocol import AgentId, World

GROUP_MAX = 500
"""Reports or digests in one message."""


class Receipts:
    def __init__(self, world: World, run: str, epoch: int) -> None:
        self._world = world
        self._run = run
        self._epoch = epoch
        self._reports: dict[AgentId, list[tuple[Finished, bool]]] = {}
        self._syncing = False
        self._homed: dict[PeerName, list[str]] = {}

    def acknowledge(self, peer: AgentId, report: Finished, *, useless: bool) -> None:
        """Tell the peer to forget the report, once all that is recorded now is durable; `useless`
        if nobody will ask for its outputs."""
        self._reports.setdefault(peer, []).append((report, useless))
        if not self._syncing:
            self._syncing = True
            self._sync()

    def _sync(self) -> None:
        reports, self._reports = self._reports, {}

        def durable() -> None:
            self._send(reports)
            if self._reports:
                self._sync()
            else:
                self._syncing = False

        self._world.sync(durable)

    def send_all(self) -> None:
        """Everything recorded is durable: send what is left."""
        reports, self._reports = self._reports, {}
        self._send(reports)

    def _send(self, reports: Mapping[AgentId, list[tuple[Finished, bool]]]) -> None:
        for peer, all_of_peer in reports.items():
            for start in range(0, len(all_of_peer), GROUP_MAX):
                group = all_of_peer[start : start + GROUP_MAX]
                unwanted = [
                    record.digest
                    for report, useless in group
                    if useless
                    for record in report.ended.outputs
                ]
                self._world.send(
                    peer,
                    Acknowledge(
                        self._run,
                        self._epoch,
                        tuple((report.task, report.attempt) for report, _ in group),
                        tuple(unwanted[:GROUP_MAX]),
                    ),
                )

    def homed(self, peer: PeerName, digest: str) -> None:
        """The writer has a copy of what this peer (by name) made."""
        self._homed.setdefault(peer, []).append(digest)

    def release(self, agent_of: Callable[[PeerName], AgentId | None]) -> None:
        """Tell those peers that are there."""
        homed, self._homed = self._homed, {}
        for name, digests in homed.items():
            agent = agent_of(name)
            if agent is None:
                continue
            for start in range(0, len(digests), GROUP_MAX):
                group = tuple(digests[start : start + GROUP_MAX])
                self._world.send(agent, Release(self._run, self._epoch, group))
