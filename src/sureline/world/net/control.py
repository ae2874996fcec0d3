"""What two nodes' networks say to each other over a link, below the agents.

Most of it concerns nodes that cannot be dialled: see `ways` (how somebody is reached), `relay` (who
carries for others) and `moorings` (how a node that can only dial out stays within reach). The rest
is bulk data that is short (`small_asks`).
"""

from __future__ import annotations

from sureline.world.address import Node
from sureline.world.protocol import Message

RELAYS_MAX = 4
"""More are not believed of anybody."""


class Moor(Message, frozen=True, tag="net.moor"):
    """I can only dial out: keep this connection, and call me over it. Said again and again, as a
    sign of life. Answered by Moored."""


class Moored(Message, frozen=True, tag="net.moored"):
    """Whether it is so; if not, why."""

    why_not: str = ""


class Unmoor(Message, frozen=True, tag="net.unmoor"):
    """This connection is one like others again."""


class Summons(Message, frozen=True, tag="net.summons"):
    """Somebody wants you, me or one for whom I carry: dial me, and show this ticket."""

    ticket: str


class Through(Message, frozen=True, tag="net.through"):
    """Through whom the sender is reached; nobody, if it can be dialled."""

    relays: tuple[Node, ...] = ()


class DialBack(Message, frozen=True, tag="net.dial_back"):
    """Can you dial me where I say that I listen, or at this other host? Answered by
    DialledBack."""

    number: int
    host: str = ""


class DialledBack(Message, frozen=True, tag="net.dialled_back"):
    """Whether it was so; if not, why. `untried`: there was no time to find out."""

    number: int
    why_not: str = ""
    untried: bool = False


class Ping(Message, frozen=True, tag="net.ping"):
    """Say Pong: whoever carries this connection might carry nothing any more."""


class Pong(Message, frozen=True, tag="net.pong"):
    """I have heard Ping."""


class SmallAsk(Message, frozen=True, tag="net.small_ask"):
    """A bulk request whose answer is thought to be short. Answered by SmallAnswer."""

    number: int
    request: bytes


class SmallAnswer(Message, frozen=True, tag="net.small_answer"):
    """The answer; or why there is none; or that it must be asked over a connection of its own."""

    number: int
    header: bytes = b""
    body: bytes = b""
    refused: str = ""
    elsewhere: bool = False


CONTROL: frozenset[type[Message]] = frozenset(
    (
        *(Moor, Moored, Unmoor, Summons, Through, DialBack, DialledBack, Ping, Pong),
        *(SmallAsk, SmallAnswer),
    )
)
