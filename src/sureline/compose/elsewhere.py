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

from sureline.compose.node import Node, grid_loop, open_node
from sureline.journal.events import decode
from sureline.journal.locks import LOCK, Holder, RunLock
from sureline.journal.store import Entry, Journal
from sureline.run.keeping import (
    KeeperAsk,
    KeeperPart,
    NumberedEvent,
    RunKnown,
)
from sureline.run.options import CancelRun
from sureline.run.presence import DriverAsk, DriverHere
from sureline.run.presence import part as driver_part
from sureline.workflow.mistakes import SurelineError, UserError
from sureline.world.address import Node as NodeId
from sureline.world.address import at, name_of, node_of
from sureline.world.agent import Agent, handles
from sureline.world.identity.credentials import Credentials
from sureline.world.identity.questions import ask, asked
from sureline.world.protocol import AgentId, Message, Unreachable, World


def run_part(run: str) -> str:
    """The part of the node that drives a run."""
    return f"run.{run}"


TOPIC = "runs"
ROLE = "submit"
"""Who may look at runs."""
LISTED_MAX = 500
COPIES_MAX = 3
ANSWER_S = 5.0
CANDIDATES_MAX = 5
PAGES_MAX = 1_000_000

T = TypeVar("T", bound=Message)


class Copy(msgspec.Struct, frozen=True, array_like=True):
    """That a node keeps a copy of a run."""

    node: NodeId
    about: RunKnown


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(list[Copy]).decode


def answer_with(
    node: NodeId, known: Callable[[], Sequence[RunKnown]], credentials: Credentials
) -> Callable[..., bytes | None]:
    """The handler of TOPIC on a peer that keeps copies: the payload is a question for the start of
    a run's name, signed by somebody who may submit."""

    def handler(origin: AgentId, payload: bytes) -> bytes | None:
        start = asked(credentials, payload, node_of(origin), ROLE)
        if start is None:
            return None
        found = [Copy(node, one) for one in known() if one.run.startswith(start) and one.whole]
        return _encode(found[-LISTED_MAX:])

    return handler


def merge_copies(replies: Sequence[bytes]) -> bytes:
    """Of several lists one: the newest runs, the best copies of each."""
    copies: dict[str, list[Copy]] = {}
    for reply in replies:
        for copy in _copies_in(reply):
            copies.setdefault(copy.about.run, []).append(copy)
    newest = sorted(copies.values(), key=lambda some: (some[0].about.submitted_at, some[0].node))
    kept: list[Copy] = []
    for some in newest[-LISTED_MAX:]:
        best = sorted(some, key=lambda c: (c.about.epoch, c.about.position, c.node), reverse=True)
        kept.extend(best[:COPIES_MAX])
    return _encode(kept)


def _copies_in(reply: bytes) -> list[Copy]:
    try:
        return _decode(reply)
    except msgspec.DecodeError:
        return []  # of a peer with another version, or of a liar


async def find_copies(node: Node, start: str) -> list[Copy]:
    """All copies of runs whose names begin so, best first within a run, the newest run last."""
    roles = node.credentials.identity.roles
    if ROLE not in roles:
        raise UserError(
            f"this home may not look at the runs of grid {node.home.grid}: it has the role "
            f"{', '.join(sorted(roles))}, not {ROLE}; join with an invitation for {ROLE}"
        )
    found: asyncio.Future[list[Copy]] = asyncio.get_running_loop().create_future()

    def heard(aggregate: object) -> None:
        value = getattr(aggregate, "value", None)
        if not found.done():
            found.set_result(_copies_in(value) if value else [])

    question = ask(node.credentials, node.id, start)
    node.kademlia.on_broadcast(TOPIC, lambda origin, payload: None, merge_copies)
    node.world.guard(node.kademlia.broadcast, TOPIC, question, heard)
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


class Reader(Agent):
    """Asks keepers and drivers, one question at a time; part `reader` of a guest."""

    def __init__(self, me: AgentId, world: World) -> None:
        super().__init__(me, world)
        self._serial = 0
        self._asked = ""
        self._waiting: asyncio.Future[Message | None] | None = None

    async def ask(self, to: AgentId, question: Callable[[int], Message]) -> Message | None:
        """The answer; None if there is none in time."""
        self._serial += 1
        self._asked = node_of(to)
        self._waiting = asyncio.get_running_loop().create_future()
        self.world.send(to, question(self._serial))
        try:
            return await asyncio.wait_for(self._waiting, ANSWER_S)
        except TimeoutError:
            return None

    @handles(Unreachable)
    def on_unreachable(self, sender: AgentId, message: Unreachable) -> None:
        if message.node == self._asked:
            self._answered(self._serial, None)

    @handles(KeeperPart)
    def on_part(self, sender: AgentId, message: KeeperPart) -> None:
        self._answered(message.serial, message)

    @handles(DriverHere)
    def on_here(self, sender: AgentId, message: DriverHere) -> None:
        self._answered(message.serial, message)

    def _answered(self, serial: int, message: Message | None) -> None:
        if serial == self._serial and self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(message)


class RunElsewhere:
    """A run's copy in a directory of its own, which is thrown away afterwards."""

    def __init__(
        self, node: Node, loop: asyncio.Runner, copies: Sequence[Copy], directory: Path
    ) -> None:
        self._node = node
        self._loop = loop
        self._copies = list(copies)
        self.directory = directory
        self.run = copies[0].about.run
        self.driver: DriverHere | None = None
        self._lock: RunLock | None = None
        self._graph = b""
        self._position = 0
        me = at(node.id, "reader")
        self._reader = Reader(me, node.world.place(me))
        node.world.join(self._reader)

    @classmethod
    @contextmanager
    def found(cls, grid: str, start: str) -> Iterator[RunElsewhere]:
        """Find the run and read it whole. Raises UserError if there is none."""
        with (
            tempfile.TemporaryDirectory(prefix="sureline-") as directory,
            visiting(grid) as (node, loop),
        ):
            copies = choose(start, loop.run(find_copies(node, start)), node.home.grid)
            self = cls(node, loop, copies, Path(directory) / ".sureline")
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
        for copy in list(self._copies):
            if await self._read(copy.node):
                break
            self._copies.remove(copy)  # it does not answer; it had its chance
        else:
            raise SurelineError(f"nobody who keeps run {self.run} answers any more")
        await self._look_for_driver()

    async def _read(self, keeper: NodeId) -> bool:
        """Read all that is new there. False if it does not answer."""
        for _ in range(PAGES_MAX):
            answer = await self._reader.ask(at(keeper, "keeper"), self._question)
            if not isinstance(answer, KeeperPart) or not answer.size_bytes:
                return False
            self._take(answer)
            if answer.last:
                return True
        return False

    def _question(self, serial: int) -> KeeperAsk:
        return KeeperAsk(serial, self.run, len(self._graph), self._position)

    def _take(self, part: KeeperPart) -> None:
        if part.piece and part.offset == len(self._graph):
            self._graph += part.piece
        if part.events:
            self._merge(part.events)

    def _merge(self, events: Sequence[NumberedEvent]) -> None:
        with Journal.open(self.directory) as journal:
            journal.merge(
                self.run, self._graph, [Entry(position, decode(body)) for position, body in events]
            )
        self._position = max(position for position, _ in events)

    @property
    def _writer(self) -> NodeId:
        return self._copies[0].about.writer

    @property
    def driver_name(self) -> str:
        return name_of(self._writer)

    def state(self) -> str:
        """The run's state as of the last refresh; 'running' until its end is recorded."""
        with Journal.open(self.directory, read_only=True) as journal:
            return journal.summary(self.run).seen(alive=True)

    async def _look_for_driver(self) -> None:
        """Ask the driver that the copy names; who looks at the journal sees it held, or not."""
        answer = None
        if self.state() == "running":
            answer = await self._reader.ask(
                at(self._writer, driver_part(self.run)),
                lambda serial: DriverAsk(serial, self.run),
            )
        self.driver = answer if isinstance(answer, DriverHere) else None
        work = self.directory / "work" / self.run
        if self.driver is None:
            if self._lock is not None:
                self._lock.release()
                self._lock = None
            return
        if self._lock is None:
            self._lock = RunLock.acquire(work)
        owner = Holder(name_of(self._writer), self.driver.pid)
        (work / LOCK).write_bytes(msgspec.json.encode(owner))

    def cancel(self, *, drain: bool) -> bool:
        """Ask the driver to stop. False if there is none."""
        if self.driver is None:
            return False
        asked = CancelRun(drain=drain, reason=f"cancelled from {self._node.credentials.name}")
        self._reader.world.send(at(self._writer, run_part(self.run)), asked)
        return True

    def copy_into(self, directory: Path) -> None:
        """Put the copy into a journal, to be resumed from there. Raises UserError if that has
        another run of this name."""
        with (
            Journal.open(self.directory, read_only=True) as copy,
            Journal.open(directory) as journal,
        ):
            journal.merge(self.run, copy.graph(self.run), copy.events(self.run))


@contextmanager
def visiting(grid: str | None) -> Iterator[tuple[Node, asyncio.Runner]]:
    """A guest of the grid, for a command, and what runs its coroutines."""
    with grid_loop() as loop:
        opened = open_node(grid)
        node = loop.run(opened.__aenter__())
        try:
            yield node, loop
        finally:
            loop.run(opened.__aexit__(None, None, None))
