"""Results of a run that others have driven come home: fetched, and put into the user's directory.

Each is asked of the peer that made it and of those that have written the run, who had it last; then
of whoever says that he has it. What is in place already is not fetched again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from sureline.journal.events import TaskEnded
from sureline.peer.jobs import FileReady
from sureline.run.holders import Holders
from sureline.run.homing import Homing
from sureline.run.publisher import Publisher
from sureline.workflow.files import result_path
from sureline.world.address import Node, PeerName
from sureline.world.protocol import World


class Fetching:
    """`where` tells the node of a peer that is there, `writers` are the peers that drove the run;
    `on_done` hears, once, in sentences, what could not be had or not be put in place."""

    def __init__(
        self,
        world: World,
        here: Node,
        where: Callable[[str], Node | None],
        writers: Iterable[PeerName],
        on_done: Callable[[list[str]], None],
    ) -> None:
        self._writers = tuple(writers)
        self._on_done = on_done
        self._holders = Holders(here, where)
        self._homing = Homing(
            world,
            self._holders,
            on_home=self._came,
            on_gone=lambda task, path: self._missing.append(f"nobody has {path} any more"),
            on_idle=self._look,
        )
        self._publisher = Publisher(world, self._look)
        self._missing: list[str] = []
        self._adding = False
        self.files = 0
        """How many have come."""

    def start(self, commits: Iterable[TaskEnded]) -> None:
        self._adding = True
        for number, ended in enumerate(commits):
            for record in ended.outputs:
                for peer in (ended.peer, *self._writers):
                    if peer:
                        self._holders.add(record.digest, peer)
            hidden = result_path(ended.task)
            self._homing.add(number, [one for one in ended.outputs if one.path != hidden])
        self._adding = False
        self._look()

    def _came(self, task: int, ready: FileReady) -> None:
        self.files += 1
        self._publisher.add([ready.file])

    def _look(self) -> None:
        if not (self._adding or self._homing.busy or self._publisher.busy):
            self._adding = True  # it is over
            self._on_done([*self._missing, *self._publisher.failures])
