"""Runs that are driven elsewhere on a grid: finding the copies kept of them, and reading one.

A broadcast tells which peers keep a copy of a run. The best copy that answers is read, page by
page; the run's driver itself is asked only whether it is there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from sureline.overlay.kademlia import Kademlia
from sureline.run.keeping import KeeperAsk, KeeperPart, NumberedEvent, Position, RunKnown
from sureline.run.presence import DriverAsk, DriverHere
from sureline.run.presence import part as driver_part
from sureline.world.address import Node, at, node_of
from sureline.world.agent import Agent, handles
from sureline.world.protocol import AgentId, Message, Timer, Unreachable, World

TOPIC = "runs"
ROLE = "submit"
"""Who may look at runs."""
PART = "reader"
LISTED_MAX = 500
COPIES_MAX = 3
ANSWER_S = 5.0
PAGES_MAX = 1_000_000
EPOCHS_APART = 1 << 18
"""Epochs must stay below 1 << 31: that leaves room for thousands of processes of one run."""


def next_epoch(last: int, randrange: Callable[[int], int]) -> int:
    """The epoch under which a run on a grid is opened whose last known one was `last`, 0 for none.

    Processes that take a run over at the same time, each from a copy of its own, do not know of
    each other. They must not have the same epoch: nobody would fence either of them."""
    return last + 1 + randrange(EPOCHS_APART) if last else 1


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
    kept: list[Copy] = []
    for some in newest[-LISTED_MAX:]:
        best = sorted(some, key=lambda c: (c.about.position, c.about.epoch, c.node), reverse=True)
        kept.extend(best[:COPIES_MAX])
    return _encode(kept)


def _copies_in(reply: bytes) -> list[Copy]:
    try:
        return _decode(reply)
    except msgspec.DecodeError:
        return []  # of a peer with another version, or of a liar


class RunCopy:
    """What has been read of a run. `on_events` takes what follows what it was given before, with
    the graph whole by then. After `on_again` it is given all events anew.

    Who takes a run over from a copy builds on that copy, and what others have beyond it never
    happened. So what is read is of one epoch's line: when another keeper, or the same one later,
    has the run of another epoch, reading begins anew."""

    def __init__(
        self,
        copies: Sequence[Copy],
        on_events: Callable[[bytes, Sequence[NumberedEvent]], None],
        on_again: Callable[[], None],
    ) -> None:
        self.run = copies[0].about.run
        self._copies = list(copies)
        self.graph = b""
        self.position: Position = 0
        self._epoch = 0
        self._on_events = on_events
        self._on_again = on_again

    @property
    def keeper(self) -> Node | None:
        """Who is read; None if nobody is left."""
        return self._copies[0].node if self._copies else None

    @property
    def writer(self) -> Node:
        """The node of its driver, when the keeper last heard of it."""
        return self._copies[0].about.writer

    def give_up_keeper(self) -> None:
        """It had its chance."""
        del self._copies[0]

    def take(self, part: KeeperPart) -> bool:
        """Whether it was what followed; if not, it is of another epoch."""
        if self.position and part.epoch != self._epoch:
            self.position = 0
            self._on_again()
            return False
        self._epoch = part.epoch
        if part.piece and part.offset == len(self.graph):
            self.graph += part.piece
        if part.events:
            self._on_events(self.graph, part.events)
            self.position = max(position for position, _ in part.events)
        return True


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
        ask: Callable[[str], bytes] = str.encode,
        *,
        keeps: bool = False,
    ) -> None:
        super().__init__(me, world)
        self._ask_for = ask
        self._kademlia = kademlia
        self._serial = 0
        self._open: dict[int, _Question] = {}
        if not keeps:  # else the node answers such questions
            kademlia.on_broadcast(TOPIC, lambda origin, payload: None, merge_copies)

    def find(self, start: str, on_found: Callable[[list[Copy]], None]) -> None:
        """All copies of runs whose names begin so, best first within a run, the newest run last."""

        def heard(aggregate: object) -> None:
            value = getattr(aggregate, "value", None)
            on_found(_copies_in(value) if value else [])

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
            if copy.take(answer) and answer.last:
                on_read(True)
            else:
                self._next_page(copy, on_read, pages_left - 1)

        self._ask(
            at(copy.keeper, "keeper"),
            lambda serial: KeeperAsk(serial, copy.run, len(copy.graph), copy.position),
            answered,
        )

    def look_for_driver(self, copy: RunCopy, on_found: Callable[[DriverHere | None], None]) -> None:
        """Whether the driver that the copy names is there."""
        self._ask(
            at(copy.writer, driver_part(copy.run)),
            lambda serial: DriverAsk(serial, copy.run),
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
