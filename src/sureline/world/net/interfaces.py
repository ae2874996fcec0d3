"""What the network needs from elsewhere, and what it hands on."""

from __future__ import annotations

import ssl
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol

from sureline.world.address import Node
from sureline.world.protocol import AgentId, Message

if TYPE_CHECKING:
    from sureline.world.identity.certificates import Identity


class NodeCredentials(Protocol):
    """Who this node is and whom it accepts; `world.identity.credentials` has the real one."""

    @property
    def grid(self) -> str: ...

    @property
    def name(self) -> str:
        """The name in this node's own certificate."""

    def server_context(self) -> ssl.SSLContext:
        """TLS 1.3 only; a client's certificate is verified if it sends one."""

    def client_context(self) -> ssl.SSLContext:
        """TLS 1.3 only; the server's certificate is verified, its host name is not."""

    def identify(self, der: bytes) -> Identity:
        """Raises IdentityError unless the certificate is one of a peer of this grid."""

    def refused(self, identity: Identity) -> str | None:
        """Why this peer must be refused now (revoked, expired); None if it is welcome."""


class Directory(Protocol):
    """What is known of other nodes beyond this node's own connections."""

    def relays_of(self, node: Node) -> Sequence[Node]:
        """Through whom a node says that it is reached; nobody if it can be dialled."""

    def may_be_there(self, node: Node) -> bool:
        """Whether it is worth while to ask others for a way there: not if it is known to be
        gone."""

    def can_be_dialled(self) -> Sequence[Node]:
        """Those present who say so, other than this node."""


class NoDirectory:
    """For a node that knows nobody."""

    def relays_of(self, node: Node) -> Sequence[Node]:
        return ()

    def may_be_there(self, node: Node) -> bool:
        return False

    def can_be_dialled(self) -> Sequence[Node]:
        return ()


class Berth(NamedTuple):
    """How others reach this node, as far as it knows: through `relays`, if it cannot be dialled.
    `can_be_dialled` is None while nobody has tried."""

    can_be_dialled: bool | None = None
    relays: tuple[Node, ...] = ()
    why_not: str = ""
    """What became of the last call in vain."""


OnMessage = Callable[[AgentId, AgentId, Message], None]
"""Takes the sender, the receiver and the message."""
OnUnreachable = Callable[[Node], None]

StrangerHandler = Callable[[bytes, str], Awaitable[bytes]]
"""Answers one request of somebody without a certificate, who connects from the given address.
Any exception closes the connection without an answer."""


class FileRegion(NamedTuple):
    """A part of a file, to be read and sent piece by piece."""

    path: str
    offset: int
    size_bytes: int


BulkBody = bytes | bytearray | memoryview | FileRegion

BulkHandler = Callable[["Identity", bytes], Awaitable[tuple[bytes, BulkBody]]]
"""Answers one request of a peer with a small header and a body. A `BulkRefusedError` reaches the
one who asked; any other exception is logged and reaches it as a bare refusal."""
