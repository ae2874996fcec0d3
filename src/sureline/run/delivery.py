"""What becomes of committed results: they come home, are put in place, and are acknowledged.

Where all tasks run in this process (`here`), files are in this node's store when they are made. On
a grid they stay where they were made and are brought home in the background (`homing`); what nobody
holds any more has to be made again. Reports are acknowledged when what came of them is durable
(`receipts`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from sureline.journal.events import FileFetched, TaskEnded
from sureline.peer.jobs import Blob, FileReady, UserFile
from sureline.peer.messages import Finished, Release
from sureline.run.fleet import Fleet
from sureline.run.holders import Holders
from sureline.run.homing import Homing
from sureline.run.known import Known
from sureline.run.publisher import Publisher
from sureline.run.receipts import Receipts
from sureline.workflow.files import FileRecord, result_path
from sureline.workflow.model import Graph
from sureline.world.address import NO_NAME, Node, PeerName, name_of
from sureline.world.protocol import Action, AgentId, Fetched, Wanted, World

TICK_S = 1.0


class Delivery:
    """`on_home(digest)` hears that a content is here now, `on_gone(task, path)` that a committed
    output cannot be had any more, `on_idle` that nothing is left to do."""

    def __init__(
        self,
        world: World,
        run: str,
        epoch: int,
        graph: Graph,
        known: Known,
        fleet: Fleet,
        node: Node,
        *,
        here: bool,
        on_home: Callable[[str], None],
        on_gone: Callable[[int, str], None],
        on_idle: Action,
    ) -> None:
        self._world = world
        self._run = run
        self._epoch = epoch
        self._graph = graph
        self._known = known
        self._fleet = fleet
        self._here = here
        self._on_home = on_home
        self.holders = Holders(node, fleet.node)
        self._receipts = Receipts(world, run, epoch)
        self._homing = Homing(
            world, self.holders, on_home=self._came_home, on_gone=on_gone, on_idle=on_idle
        )
        self.publisher = Publisher(world, on_idle)
        self._published: dict[int, int] = {}
        """How far publishing must have come for a task's files to be in place."""
        self._doubted: set[str] = set()
        self._made_by: dict[int, tuple[PeerName, int]] = {}
        """(target, attempt) of the committed results."""

    def start(self) -> None:
        if not self._here:
            self._world.after(TICK_S, self._tell_homed)

    def grow(self, graph: Graph) -> None:
        self._graph = graph

    @property
    def busy(self) -> bool:
        return self._homing.busy or self.publisher.busy

    @property
    def under_way(self) -> bool:
        """Whether anything has still to come home."""
        return self._homing.busy

    # -- results -------------------------------------------------------------------------------

    def keep(self, task: int, ended: TaskEnded) -> None:
        """A task has its result, made just now or by an earlier process."""
        self._known.add(ended.outputs)
        self._known.keep_result(task, ended.result)
        if ended.foreign:
            self._known.note_foreign(task)
        if self._here:
            self._publish(task, ended.outputs)
            return
        self._note_holders(task, ended)
        stays = self._hidden(task) if self._graph.children[task] else ""
        self._homing.add(task, [file for file in ended.outputs if file.path != stays])

    def _hidden(self, task: int) -> str:
        """The path of a call's long result, which is not for the user's directory. One that other
        tasks read stays where it was made until it is needed here."""
        return result_path(self._graph.tasks[task].name)

    def bring(self, tasks: Iterable[int]) -> None:
        """Have the long results of these tasks come home: somebody could not get them. What nobody
        has any more is told by `on_gone`."""
        for task in tasks:
            file = self._known.result_file(task)
            if file is None or self._homing.brings(task) or self.holders.is_here(file.digest):
                continue
            self._homing.add(task, [file])

    def _publish(self, task: int, outputs: tuple[FileRecord, ...]) -> None:
        hidden = self._hidden(task)
        before = self.publisher.added
        self.publisher.add(r for r in outputs if r.path != hidden)
        if self.publisher.added > before:
            self._published[task] = self.publisher.added

    def _note_holders(self, task: int, ended: TaskEnded) -> None:
        if not ended.attempt:
            for record in ended.outputs:
                self.holders.add_here(record.digest)
            return
        self._made_by[task] = (ended.peer, ended.attempt)
        for record in (*ended.outputs, *ended.inputs, *self._known.data(task)):
            self.holders.add(record.digest, ended.peer)

    def when_in_place(self, tasks: tuple[int, ...], action: Action) -> bool:
        """Run the action once the files of these tasks are in the user's directory; False, and it
        is not run, if they are there already."""
        mark = max([self._published.get(task, 0) for task in tasks], default=0)
        if mark <= self.publisher.in_place:
            return False
        self.publisher.when(mark, action)
        return True

    def revoked(self, task: int) -> None:
        self._homing.drop(task)
        self._made_by.pop(task, None)

    def doubt(self, file: FileRecord, *, made: bool, on_lost: Action) -> None:
        """A target cannot get this content, which is said to be here: look whether it is. What was
        `made` may be had from others again, what is the user's from the user's directory."""
        if not self.holders.is_here(file.digest) or file.digest in self._doubted:
            return
        self._doubted.add(file.digest)

        def looked(fetched: Fetched) -> None:
            self._doubted.discard(file.digest)
            if not isinstance(fetched, FileReady) or fetched.file.digest != file.digest:
                self.holders.forget_here(file.digest)
                on_lost()

        wanted: Wanted = Blob(file) if made else UserFile(file.path)
        self._world.fetch(wanted, self.holders.sources(file.digest), looked)

    def look_again(self) -> None:
        """A target has come: it may hold what was away."""
        self._homing.look_again()

    def _came_home(self, task: int, ready: FileReady) -> None:
        if ready.source:
            source = name_of(ready.source)
            self._world.record(FileFetched(self._world.now(), ready.file, "peer", source))
        if ready.file.path != self._hidden(task):
            self.publisher.add([ready.file])
        made_by = self._made_by.get(task)
        if made_by is not None:
            self._receipts.homed(made_by[0], ready.file.digest)
        self._on_home(ready.file.digest)

    # -- what is owed to targets ---------------------------------------------------------------

    def acknowledge(self, sender: AgentId, report: Finished, *, useless: bool) -> None:
        if not self._here:
            self._receipts.acknowledge(sender, report, useless=useless)

    def is_of(self, task: int, target: PeerName, attempt: int) -> bool:
        """Whether the committed result is this attempt's."""
        return self._made_by.get(task) == (target, attempt)

    def maker(self, task: int) -> PeerName:
        """Who made the committed result; NO_NAME for one that nobody made in this run."""
        return self._made_by.get(task, (NO_NAME, 0))[0]

    def close(self, *, succeeded: bool) -> None:
        """The end is durable. What ended well needs nothing of the targets any more; anything else
        may be resumed: they keep their reports."""
        if self._here:
            return
        self._receipts.send_all()
        self._receipts.release(self._agent_of)
        if succeeded:
            for enlisted in self._fleet.all():
                over = Release(self._run, self._epoch, over=True)
                self._world.send(enlisted.target.agent, over)

    def _tell_homed(self) -> None:
        self._receipts.release(self._agent_of)
        self._world.after(TICK_S, self._tell_homed)

    def _agent_of(self, name: PeerName) -> AgentId | None:
        enlisted = self._fleet.get(name)
        return None if enlisted is None else enlisted.target.agent
