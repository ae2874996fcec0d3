"""Runs that are driven elsewhere on a grid: finding the copies kept of them, and reading one.

A broadcast tells which peers keep a copy of a run. The best copy that answers is read, page by
page; the run's driver itself is asked only whether it is there.

What keepers say is checked before anything of it is used (see `sealing`): a page is what a writer
of the run has sealed, or it is not taken. That a keeper holds something back cannot be seen in
what it gives; so whoever claims to have more is read too.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from sureline.overlay.kademlia import Kademlia
from sureline.run.keeping import (
    GRAPH_BYTES_MAX,
    KeeperAsk,
    KeeperPart,
    NumberedEvent,
    Position,
    RunKnown,
)
from sureline.run.presence import DriverAsk, DriverHere
from sureline.run.presence import part as driver_part
from sureline.run.sealing import Checker
from sureline.world.address import Node, at, node_of, peer_of
from sureline.world.agent import Agent, handles
from sureline.world.identity.signing import PapersError, Trust, WriterAuthority, digest, is_run_name
from sureline.world.protocol import WRITES, AgentId, Message, Timer, Unreachable, World

TOPIC = "runs"
ROLE = WRITES
"""Who may look at runs."""
PART = "reader"
LISTED_MAX = 500
COPIES_MAX = 50
"""Of one run; of many, fewer: there may be liars among those who claim to have most."""
COPIES_MIN = 3
AGAIN_MAX = 3
"""So often reading one keeper's copy begins anew."""
ANSWER_S = 5.0
PAGES_MAX = 1_000_000


class Copy(msgspec.Struct, frozen=True, array_like=True):
    """That a node keeps a copy of a run."""

    node: Node
    about: RunKnown


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(list[Copy]).decode


def plainly_asked(question: bytes, by: Node) -> str | None:
    """Where nobody signs anything."""
    return question.decode(errors="replace")


def answer_with(
    node: Node,
    known: Callable[[], Sequence[RunKnown]],
    asked: Callable[[bytes, Node], str | None] = plainly_asked,
) -> Callable[..., bytes | None]:
    """The handler of TOPIC on a peer that keeps copies. The payload is a question for the start of
    a run's name; `asked` tells what a node asks, None if it may not."""

    def handler(origin: AgentId, payload: bytes) -> bytes | None:
        start = asked(payload, node_of(origin))
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
    most = max(COPIES_MIN, COPIES_MAX // max(1, len(newest)))
    kept: list[Copy] = []
    for some in newest[-LISTED_MAX:]:
        best = sorted(some, key=lambda c: (c.about.position, c.about.epoch, c.node), reverse=True)
        kept.extend(best[:most])
    return _encode(kept)


def _copies_in(reply: bytes) -> list[Copy]:
    try:
        return [copy for copy in _decode(reply) if is_run_name(copy.about.run)]
    except msgspec.DecodeError:
        return []  # of a peer with another version, or of a liar


class RunCopy:
    """What has been read of a run, and is true. `on_events` takes what follows what it was given
    before, with the graph whole by then. After `on_again` it is given all events anew.

    Who takes a run over from a copy builds on that copy, and what others have beyond it never
    happened. So what is read is of one line of epochs: what does not follow what was read before
    is of another, and reading begins anew."""

    def __init__(
        self,
        copies: Sequence[Copy],
        trust: Trust,
        on_events: Callable[[bytes, Sequence[NumberedEvent]], None],
        on_again: Callable[[], None],
    ) -> None:
        self.run = copies[0].about.run
        self._copies = list(copies)
        self._heard: set[Node] = set()
        """Those that have told all that they have."""
        self._again: dict[Node, int] = {}
        self._checker = Checker(trust)
        self._on_events = on_events
        self._on_again = on_again
        self.why_not = ""
        """Why the last keeper that was not believed was not."""
        self.graph = b""
        self.position: Position = 0
        self.papers = b""
        """Of who sealed the last of it."""
        self.authority: WriterAuthority | None = None
        """What those say."""
        self._chain = b""
        self._epoch = 0
        """Under which the keeper that is read keeps it, as it says."""

    @property
    def keeper(self) -> Node | None:
        """Who is read; None if nobody is left."""
        return self._copies[0].node if self._copies else None

    @property
    def writer(self) -> Node | None:
        """The node of its driver, when a keeper last heard of it: of the one who sealed what was
        read, and of nobody else."""
        writers = [copy.about.writer for copy in self._copies]
        sealed_by = "" if self.authority is None else self.authority.writer
        return next((node for node in writers if peer_of(node) == sealed_by), None)

    def give_up_keeper(self, why_not: str = "") -> None:
        """It had its chance."""
        self.why_not = why_not or self.why_not
        del self._copies[0]
        if not self.position:
            self.graph = b""

    def take(self, part: KeeperPart) -> bool:
        """Whether it followed what was read; if not, reading begins anew. Raises PapersError if it
        is not true."""
        if part.run != self.run:
            raise PapersError("it is another run")
        if not (part.piece or part.events or part.last):
            raise PapersError("it is said to go on, and does not")
        if self.position and part.epoch != self._epoch:
            return self._begin_again(PapersError("it is taken over again and again"))
        self._epoch = part.epoch
        if part.piece and part.offset == len(self.graph):
            self.graph += part.piece
            if len(self.graph) > min(part.size_bytes, GRAPH_BYTES_MAX):
                raise PapersError("its graph is longer than it is said to be")
        try:
            if part.events:
                self._follow(part)
        except PapersError as error:
            return self._begin_again(error)
        return True

    def _begin_again(self, why: PapersError) -> bool:
        """What does not follow what was read may be of another line."""
        node = self._copies[0].node
        self._again[node] = self._again.get(node, 0) + 1
        if not self.position or self._again[node] > AGAIN_MAX:
            raise why
        self.graph, self.position, self.authority = b"", 0, None
        self._on_again()
        return False

    def _follow(self, part: KeeperPart) -> None:
        authority = self._checker.authority(self.run, None, part.papers)
        if not self.position:
            if digest(self.graph) != authority.graph:
                raise PapersError("its graph is not the one that was submitted")
            self._chain = authority.start
        self._chain = self._checker.followed(
            authority, self.position, self._chain, part.events, part.seal
        )
        self.authority, self.papers = authority, part.papers
        self.position = part.events[-1][0]
        self._on_events(self.graph, part.events)

    def goes_on(self) -> bool:
        """The keeper has told all that it has: whether another one claims to have more, and is to
        be read now."""
        self._heard.add(self._copies[0].node)
        for number, copy in enumerate(self._copies):
            if copy.node not in self._heard and copy.about.position > self.position:
                self._copies.insert(0, self._copies.pop(number))
                return True
        return False


class _Question:
    def __init__(self, node: Node, on_answer: Callable[[Message | None], None]) -> None:
        self.node = node
        self.on_answer = on_answer
        self.timer: Timer | None = None


class CopyReader(Agent):
    """Asks keepers and drivers; part `reader` of a node that looks around. `ask` makes a question
    of the start of a run's name, signed where that is the custom; `keeps` is for a node that keeps
    copies itself."""

    def __init__(
        self,
        me: AgentId,
        world: World,
        kademlia: Kademlia,
        trust: Trust,
        ask: Callable[[str], bytes] = str.encode,
        *,
        keeps: bool = False,
    ) -> None:
        super().__init__(me, world)
        self._ask_for = ask
        self.trust = trust
        self._kademlia = kademlia
        self._serial = 0
        self._open: dict[int, _Question] = {}
        if not keeps:  # else the node answers such questions
            kademlia.on_broadcast(TOPIC, lambda origin, payload: None, merge_copies)

    def find(self, start: str, on_found: Callable[[list[Copy]], None]) -> None:
        """All copies of runs whose names begin so, best first within a run, the newest run last."""

        def heard(aggregate: object) -> None:
            value = getattr(aggregate, "value", None)
            copies = _copies_in(value) if value else []
            on_found([copy for copy in copies if copy.about.run.startswith(start)])

        self._kademlia.broadcast(TOPIC, self._ask_for(start), heard)

    def read(self, copy: RunCopy, on_read: Callable[[bool], None]) -> None:
        """Read all that is new, from the first keeper that answers; False if none does."""
        self._next_page(copy, on_read, PAGES_MAX)

    def _next_page(self, copy: RunCopy, on_read: Callable[[bool], None], pages_left: int) -> None:
        if copy.keeper is None:
            on_read(False)
            return

        def answered(answer: Message | None) -> None:
            if not isinstance(answer, KeeperPart) or not answer.size_bytes or not pages_left:
                copy.give_up_keeper()
                self.read(copy, on_read)
                return
            try:
                followed = copy.take(answer)
            except PapersError as error:
                copy.give_up_keeper(str(error))
                self.read(copy, on_read)
                return
            if followed and answer.last and not copy.goes_on():
                on_read(copy.position > 0)
            else:
                self._next_page(copy, on_read, pages_left - 1)

        self._ask(
            at(copy.keeper, "keeper"),
            lambda serial: KeeperAsk(serial, copy.run, len(copy.graph), copy.position),
            answered,
        )

    def look_for_driver(self, copy: RunCopy, on_found: Callable[[DriverHere | None], None]) -> None:
        """Whether the driver that the copy names is there."""
        if copy.writer is None:
            on_found(None)
        else:
            self.ask_driver(copy.run, copy.writer, on_found)

    def ask_driver(
        self, run: str, writer: Node, on_found: Callable[[DriverHere | None], None]
    ) -> None:
        """Whether this node drives the run."""
        self._ask(
            at(writer, driver_part(run)),
            lambda serial: DriverAsk(serial, run),
            lambda answer: on_found(answer if isinstance(answer, DriverHere) else None),
        )

    # -- one question --------------------------------------------------------------------------

    def _ask(
        self,
        to: AgentId,
        question: Callable[[int], Message],
        on_answer: Callable[[Message | None], None],
    ) -> None:
        """`on_answer` hears None if no answer comes in time."""
        self._serial += 1
        serial = self._serial
        asked = self._open[serial] = _Question(node_of(to), on_answer)
        asked.timer = self.world.after(ANSWER_S, lambda: self._answered(serial, None))
        self.world.send(to, question(serial))

    @handles(Unreachable)
    def on_unreachable(self, sender: AgentId, message: Unreachable) -> None:
        for serial, asked in list(self._open.items()):
            if asked.node == message.node:
                self._answered(serial, None)

    @handles(KeeperPart)
    def on_part(self, sender: AgentId, message: KeeperPart) -> None:
        self._answered_by(sender, message.serial, message)

    @handles(DriverHere)
    def on_here(self, sender: AgentId, message: DriverHere) -> None:
        self._answered_by(sender, message.serial, message)

    def _answered_by(self, sender: AgentId, serial: int, message: Message) -> None:
        """Only who was asked is heard."""
        asked = self._open.get(serial)
        if asked is not None and asked.node == node_of(sender):
            self._answered(serial, message)

    def _answered(self, serial: int, message: Message | None) -> None:
        asked = self._open.pop(serial, None)
        if asked is not None:
            if asked.timer is not None:
                asked.timer.cancel()
            asked.on_answer(message)
