"""Driving a run whose tasks run on a grid's peers.

The process that drives works where an embedded one would: in the user's directory, as the run's
only writer. It is a guest of the grid; peers come and go as the membership says.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

from sureline.compose.node import Node, grid_loop, guest_suffix
from sureline.compose.parts import Fetcher, Recorder
from sureline.compose.serving import offered
from sureline.compose.session import Session, Watcher
from sureline.journal.store import Journal
from sureline.journal.writer import RunWriter
from sureline.overlay.kademlia import key_of
from sureline.overlay.membership import Member
from sureline.peer.capacity import Capacity
from sureline.peer.files.cache import FileCache
from sureline.peer.runner import Runner
from sureline.peer.store import BlobStore
from sureline.run.grid_submitter import GridSubmitter
from sureline.run.keeper import Mirror
from sureline.strategies.spread import spread
from sureline.workflow.mistakes import SurelineError
from sureline.workflow.model import Graph
from sureline.world.address import at
from sureline.world.identity.home import GridHome

HELPERS = 3
"""Slot processes for the user's files: hashing what goes out, putting in place what comes back."""
UNBOUNDED = 1 << 62
"""The store of the user's own directory is never cleared by itself."""


class TakenOverError(SurelineError):
    """Another process has taken the run over."""


def run_part(run: str) -> str:
    """The part of the node that drives a run."""
    return f"run.{run}"


def run_key(run: str) -> bytes:
    """Where the DHT says who drives a run, or keeps its journal."""
    return key_of(f"run {run}")


class GridSession(Session):
    """One process's work on one run over a grid."""

    def __init__(
        self,
        journal: Journal,
        run: str,
        graph: Graph,
        directory: Path,
        home: GridHome,
        watcher: Watcher | None,
    ) -> None:
        super().__init__(journal, run, graph, directory, Capacity(0, 0), watcher)
        self._home = home

    def _run_loop(self, writer: RunWriter) -> None:
        with grid_loop() as loop:
            loop.run(self._serve(writer))

    async def _serve(self, writer: RunWriter) -> None:
        loop = asyncio.get_running_loop()
        self._over = loop.create_future()
        root = self._journal.directory
        runner = Runner(
            loop,
            root=root,
            directory=self._directory,
            run=self._run,
            functions={},
            max_slots=HELPERS,
        )
        recorder = Recorder(loop, writer, self._heard, self._crashed)
        cache = FileCache(root, UNBOUNDED)
        store = BlobStore(root, self._directory)
        try:
            node = await Node.open(
                self._home,
                cache,
                runner=runner,
                recorder=recorder,
                otherwise=Fetcher(loop, self._directory, self._journal, writer, store, runner),
                guest=guest_suffix(),
                on_crash=self._crashed,
                on_refused=lambda reason: self._crashed(SurelineError(reason)),
            )
            async with node:
                await self._drive_on(node, writer)
                if self._error is None:
                    recorder.close()
        finally:
            await runner.close()
            cache.close()

    async def _drive_on(self, node: Node, writer: RunWriter) -> None:
        loop = asyncio.get_running_loop()
        self._world = node.world
        self._me = at(node.id, run_part(self._run))
        mirror = Mirror(node.world.place(self._me), self._run, writer.epoch, self._journal)
        submitter = GridSubmitter(
            self._me,
            node.world.place(self._me),
            self._run,
            self._graph,
            spread.placer(),
            self._options,
            self._ended,
            self._past,
            epoch=writer.epoch,
            on_fenced=lambda reason: self._crashed(TakenOverError(reason)),
        )
        self._world.join(submitter)
        restore = self._listen_to_signals(loop)
        try:
            self._watch_requests(loop)
            await self._begin(node, submitter)
            node.kademlia.store(run_key(self._run), node.id.encode(), lambda replicas: None)
            await self._over
            if self._error is None:
                await mirror.finish()
        finally:
            restore()
            if self._poll is not None:
                self._poll.cancel()

    async def _begin(self, node: Node, submitter: GridSubmitter) -> None:
        """Meet the grid, then start; peers that come later are told of as they come."""
        await node.join()
        present = {m.node: offered(m.offer) for m in node.present() if m.offer and _runs(m)}
        node.membership.watch(lambda member: _tell(submitter, member))
        self._world.guard(submitter.start, present)
        for member in node.present():
            _tell(submitter, member)


def _runs(member: Member) -> bool:
    offer = member.offer
    return offer is not None and "run" in offer.roles and offer.cores > 0


def _tell(submitter: GridSubmitter, member: Member) -> None:
    """Pass on what the membership says of a peer."""
    if not _runs(member) or member.offer is None:
        return
    if member.state in ("dead", "left"):
        words = "it does not answer" if member.state == "dead" else "it has left"
        submitter.peer_left(member.node, words)
    else:
        submitter.peer_joined(member.node, offered(member.offer), member.offer.site)
        submitter.peer_load(member.node, member.load)
