"""Runs that are driven elsewhere on a grid: finding them, and reading the copies kept of them.

Whoever asks is a guest of the grid. A broadcast tells which peers keep a copy of a run; one of
them is then read, page by page, into a journal of our own. The run's driver itself is asked only
whether it is there.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

import msgspec

from sureline.assembly.driver import run_part
from sureline.compose.node import LiveNode, grid_loop, open_node
from sureline.compose.signing import PAPERS, check_may_write
from sureline.journal.events import decode
from sureline.journal.locks import LOCK, Holder, RunLock
from sureline.journal.store import Entry, Journal
from sureline.run.copies import PART, ROLE, Copy, CopyReader, RunCopy
from sureline.run.keeping import NumberedEvent, Position
from sureline.run.options import CancelRun
from sureline.run.presence import DriverHere
from sureline.workflow.mistakes import SurelineError, UserError
from sureline.world.address import NO_NODE, at, name_of
from sureline.world.identity.questions import ask
from sureline.world.identity.run_keys import GridTrust

CANDIDATES_MAX = 5

T = TypeVar("T")


def reader_on(node: LiveNode) -> CopyReader:
    me = at(node.id, PART)
    reader = CopyReader(
        me,
        node.place(me),
        node.kademlia,
        GridTrust(node.credentials),
        lambda start: ask(node.credentials, node.id, start),
    )
    node.join(reader)
    return reader


async def find_copies(node: LiveNode, reader: CopyReader, start: str) -> list[Copy]:
    """All copies of runs whose names begin so, best first within a run, the newest run last."""
    roles = node.credentials.identity.roles
    if roles.isdisjoint(ROLE.split("|")):
        raise UserError(
            f"this home may not look at the runs of grid {node.home.grid}: it has the role "
            f"{', '.join(sorted(roles))}, not submit; join with an invitation for submit"
        )
    return await answer_of(lambda then: reader.find(start, then))


async def answer_of(ask: Callable[[Callable[[T], None]], None]) -> T:
    """What an agent calls back with."""
    found: asyncio.Future[T] = asyncio.get_running_loop().create_future()
    ask(lambda answer: None if found.done() else found.set_result(answer))
    return await found


def choose(start: str, copies: Sequence[Copy], grid: str) -> list[Copy]:
    """The copies of the one run that is meant. Raises UserError."""
    runs = list(dict.fromkeys(copy.about.run for copy in copies))
    if start in runs:
        runs = [start]
    if len(runs) == 1:
        return [copy for copy in copies if copy.about.run == runs[0]]
    if runs:
        shown = ", ".join(runs[: -CANDIDATES_MAX - 1 : -1])
        raise UserError(f"'{start}' begins several runs on grid {grid}: {shown}; type more of one")
    raise UserError(
        f"no peer of grid {grid} keeps a run '{start}'; list them: sureline runs --grid {grid}"
    )


def name_on_grid(grid: str, start: str) -> str:
    """The whole name of the one run that is meant. Raises UserError."""
    with visiting(grid) as (node, loop):
        copies = loop.run(find_copies(node, reader_on(node), start))
        return choose(start, copies, node.home.grid)[0].about.run


class RunElsewhere:
    """A run's copy in a directory of its own, which is thrown away afterwards."""

    def __init__(
        self,
        node: LiveNode,
        loop: asyncio.Runner,
        reader: CopyReader,
        copies: Sequence[Copy],
        directory: Path,
    ) -> None:
        self._node = node
        self._loop = loop
        self._reader = reader
        self._copy = RunCopy(copies, reader.trust, self._merge, self._begin_again)
        self._shown: set[Position] = set()
        """What had been shown before the run turned out to be of another line."""
        self._is_shown = False
        self._failed: SurelineError | None = None
        self.directory = directory
        self.run = self._copy.run
        self.driver: DriverHere | None = None
        self._lock: RunLock | None = None

    @classmethod
    @contextmanager
    def found(cls, grid: str, start: str) -> Iterator[RunElsewhere]:
        """Find the run and read it whole. Raises UserError if there is none."""
        with (
            tempfile.TemporaryDirectory(prefix="sureline-") as directory,
            visiting(grid) as (node, loop),
        ):
            reader = reader_on(node)
            copies = choose(start, loop.run(find_copies(node, reader, start)), node.home.grid)
            self = cls(node, loop, reader, copies, Path(directory) / ".sureline")
            try:
                self.refresh()
                yield self
            finally:
                if self._lock is not None:
                    self._lock.release()

    @property
    def grid(self) -> str:
        return self._node.home.grid

    def refresh(self) -> None:
        """Bring the copy up to date, and find out whether somebody drives the run."""
        self._loop.run(self._refresh())

    async def _refresh(self) -> None:
        there: bool = await answer_of(lambda then: self._reader.read(self._copy, then))
        if self._failed is not None:
            raise self._failed
        self._check_read(there)
        self._check_line()
        await self._look_for_driver()
        self._is_shown = True

    def _check_read(self, there: bool) -> None:
        if there:
            return
        if self._copy.why_not:
            raise SurelineError(
                f"no copy of run {self.run} can be believed: {self._copy.why_not}; go on with it "
                f"in the directory where it was submitted: sureline resume {self.run}"
            )
        raise SurelineError(f"nobody who keeps run {self.run} answers any more")

    def _begin_again(self) -> None:
        with Journal.open(self.directory) as journal:
            if self._is_shown:
                self._shown.update(entry.position for entry in journal.events(self.run))
            journal.forget(self.run)

    def _check_line(self) -> None:
        """Raise SurelineError if some of what was shown never happened."""
        if self._shown:
            with Journal.open(self.directory, read_only=True) as journal:
                self._shown -= {entry.position for entry in journal.events(self.run)}
            if self._shown:
                raise SurelineError(
                    f"run {self.run} was taken over from an older copy meanwhile: what was shown "
                    "last never happened; look again"
                )

    def _merge(self, graph: bytes, events: Sequence[NumberedEvent]) -> None:
        entries = [Entry(position, decode(body)) for position, body in events]
        try:
            with Journal.open(self.directory) as journal:
                journal.merge(self.run, graph, entries)
        except SurelineError as error:
            self._failed = error  # raised where somebody waits for it

    @property
    def papers(self) -> bytes:
        return self._copy.papers

    @property
    def driver_name(self) -> str:
        return name_of(self._copy.writer or NO_NODE)

    def state(self) -> str:
        """The run's state as of the last refresh; 'running' until its end is recorded."""
        with Journal.open(self.directory, read_only=True) as journal:
            return journal.summary(self.run).seen(alive=True)

    async def _look_for_driver(self) -> None:
        """Ask the driver that the copy names; who looks at the journal sees it held, or not."""
        self.driver = None
        if self.state() == "running":
            self.driver = await answer_of(
                lambda then: self._reader.look_for_driver(self._copy, then)
            )
        work = self.directory / "work" / self.run
        if self.driver is None:
            if self._lock is not None:
                self._lock.release()
                self._lock = None
            return
        if self._lock is None:
            self._lock = RunLock.acquire(work)
        owner = Holder(self.driver_name, self.driver.pid)
        (work / LOCK).write_bytes(msgspec.json.encode(owner))

    def cancel(self, *, drain: bool) -> bool:
        """Ask the driver to stop. False if there is none."""
        if self.driver is None or self._copy.writer is None:
            return False
        asked = CancelRun(drain=drain, reason=f"cancelled from {self._node.credentials.name}")
        self._reader.world.send(at(self._copy.writer, run_part(self.run)), asked)
        return True

    def copy_into(self, directory: Path) -> None:
        """Put the copy into a journal, to be resumed from there. Raises UserError if that has
        another run of this name, or if this home may not go on with it."""
        check_may_write(self._node.credentials, self.run, self._copy.papers)
        with (
            Journal.open(self.directory, read_only=True) as copy,
            Journal.open(directory) as journal,
        ):
            journal.merge(self.run, copy.graph(self.run), copy.events(self.run))
            journal.keep(self.run, PAPERS, self._copy.papers)


@contextmanager
def visiting(grid: str | None) -> Iterator[tuple[LiveNode, asyncio.Runner]]:
    """A guest of the grid, for a command, and what runs its coroutines."""
    with grid_loop() as loop:
        opened = open_node(grid)
        node = loop.run(opened.__aenter__())
        try:
            yield node, loop
        finally:
            loop.run(opened.__aexit__(None, None, None))
