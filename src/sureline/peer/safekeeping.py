"""Files that a run's writer gives to this machine to hold: the user's inputs, whose only other copy
may be on a machine that is about to be switched off.

They are fetched beside what tasks need, a few at a time, and marked as what outputs are: kept until
the run is over, or its writer has not been heard of for the lease.
"""

from __future__ import annotations

from collections.abc import Callable

from sureline.peer.gathering import Gathered, Gathering
from sureline.peer.messages import Entrust, Holds
from sureline.peer.outbox import Key
from sureline.workflow.files import FileRecord
from sureline.world.protocol import AgentId, World

WAITING_MAX = 20_000
"""Files that are to come, of all runs."""


class Safekeeping:
    """`keep` marks a file that has come as one that its run needs."""

    def __init__(self, world: World, keep: Callable[[FileRecord, str], None]) -> None:
        self._world = world
        self._keep = keep
        self._askers: dict[Key, AgentId] = {}
        self._gathering = Gathering(world, lambda key, file: None, self._gathered)

    def take(self, sender: AgentId, message: Entrust) -> None:
        for file in message.files:
            key = (message.run, file.digest, 0)
            asked = key in self._askers
            if not asked and len(self._askers) >= WAITING_MAX:
                return  # it will be said again
            self._askers[key] = sender
            if not asked:
                self._gathering.add(key, [file], {file.digest: (message.source,)})

    def forget(self, run: str) -> None:
        """The run is over."""
        for key in [key for key in self._askers if key[0] == run]:
            del self._askers[key]
            self._gathering.drop(key)

    def _gathered(self, key: Key, gathered: Gathered) -> None:
        asker = self._askers.pop(key, None)
        if asker is None:
            return
        run, digest, _ = key
        if gathered.missing:
            self._world.send(asker, Holds(run, digest, gathered.why or "it could not be had"))
            return
        self._keep(gathered.here[digest], run)
        self._world.sync(lambda: self._world.send(asker, Holds(run, digest)))
