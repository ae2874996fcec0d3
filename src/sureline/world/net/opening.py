"""A connection's first moments: from TCP to the greeting.

    TCP -> TLS -> who is it? -> Hello in both directions -> a link or a bulk connection
                  no certificate -> a stranger

The one who connects greets first and says whom it means; the one who answers greets back. Only
then does either side know that it is accepted, so only then are messages sent. A refusal is said
before the connection is closed: a revoked peer's user should learn why nobody talks to it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from sureline.world.address import NO_NODE, Node, endpoint_of, name_of, peer_of
from sureline.world.identity.errors import IdentityError
from sureline.world.net.codec import (
    HEADER_BYTES,
    VERSION,
    BadFrameError,
    Codec,
    GreetingRefused,
    Hello,
    body_size,
)
from sureline.world.net.interfaces import NodeCredentials
from sureline.world.net.limits import HELLO_BYTES_MAX
from sureline.world.net.tls import TlsStream

if TYPE_CHECKING:
    from sureline.world.identity.certificates import Identity

IDENTITIES_MAX = 64
"""Certificates that need not be read again; a node meets the same few over and over."""


class NotWelcomeError(Exception):
    """The other side must not be talked to; says why."""


class Wish(NamedTuple):
    """What a connection is to be used for; as in `Hello`."""

    bulk: bool = False
    reach: Node = NO_NODE
    ticket: str = ""


class Greeter:
    """Knows who we are and decides who is welcome."""

    def __init__(self, credentials: NodeCredentials, codec: Codec) -> None:
        self.credentials = credentials
        self.codec = codec
        self.node = NO_NODE
        self.dropped: set[str] = set()
        """Names of peers that were told to go."""
        self._identities: dict[bytes, Identity] = {}

    def hello(self, to: Node, wish: Wish) -> bytearray:
        said = Hello(VERSION, self.credentials.grid, self.node, name_of(to), *wish)
        return self.codec.encode("", "", said)

    def identify(self, der: bytes, target: Node | None) -> Identity:
        """Whose certificate this is. Raises NotWelcomeError if that peer is refused, or is not
        the one who was called."""
        digest = hashlib.sha256(der).digest()
        identity = self._identities.get(digest)
        if identity is None:
            try:
                identity = self.credentials.identify(der)
            except IdentityError as error:
                raise NotWelcomeError(str(error)) from None
            if len(self._identities) >= IDENTITIES_MAX:
                del self._identities[next(iter(self._identities))]
            self._identities[digest] = identity
        reason = self.refusal(identity)
        if reason is not None:
            raise NotWelcomeError(reason)
        if target is not None and identity.name != peer_of(target):
            raise NotWelcomeError(f"{identity.name} answers there")
        return identity

    def refusal(self, identity: Identity) -> str | None:
        if identity.name in self.dropped:
            return f"peer {identity.name} has been refused from now on"
        return self.credentials.refused(identity)

    def check(self, hello: Hello, identity: Identity, target: Node | None) -> None:
        """Raises NotWelcomeError unless the greeting fits the certificate, and us."""
        name = name_of(hello.node)
        if hello.version != VERSION:
            raise NotWelcomeError(
                f"it speaks version {hello.version}, we speak {VERSION}; install the same Sureline "
                "on all machines of the grid"
            )
        if hello.grid != self.credentials.grid:
            raise NotWelcomeError(f"it is of grid {hello.grid!r}")
        if name != identity.name and not name.startswith(f"{identity.name}+"):
            raise NotWelcomeError(f"{identity.name} calls itself {name!r}")
        try:
            endpoint_of(hello.node)
        except ValueError:
            raise NotWelcomeError("it does not say where it listens") from None
        if "/" in hello.node:
            raise NotWelcomeError("it does not say where it listens")
        if target is None and hello.to != name_of(self.node):
            raise NotWelcomeError(f"it wants {hello.to!r}, who is not here")
        if target is not None and name != name_of(target):
            raise NotWelcomeError(f"{name} answers there")

    def is_for_another(self, hello: Hello) -> bool:
        """Whether somebody wants to be connected with another node."""
        return bool(hello.reach) and name_of(hello.reach) != name_of(self.node)


class Opening:
    """One connection that is not open yet. Ends with exactly one call of `on_open`, `on_stranger`
    or `on_failed`; the first two take the stream over."""

    __slots__ = (
        "_buffer",
        "_greeter",
        "_on_failed",
        "_on_open",
        "_on_stranger",
        "_over",
        "_refusal",
        "_wish",
        "identity",
        "started_at",
        "stream",
        "target",
        "through",
    )

    def __init__(
        self,
        greeter: Greeter,
        started_at: float,
        *,
        target: Node | None,
        wish: Wish,
        on_open: Callable[[Opening, Hello], None],
        on_stranger: Callable[[Opening], None],
        on_failed: Callable[[Opening, str, bool], None],
        through: Node = NO_NODE,
    ) -> None:
        """`target` is the node that we call; None if it is they who call us. `on_failed` is told
        why, and whether another try may help. `through` is who carries the connection, if it is
        not between the ends alone."""
        self.target = target
        self.through = through
        self.started_at = started_at
        self.identity: Identity | None = None
        self._greeter = greeter
        self._wish = wish
        self._on_open = on_open
        self._on_stranger = on_stranger
        self._on_failed = on_failed
        self._buffer = bytearray()
        self._over = False
        self._refusal = ""
        credentials = greeter.credentials
        context = credentials.client_context() if target else credentials.server_context()
        self.stream = TlsStream(context, self, server_side=target is None)

    def secured(self) -> None:
        der = self.stream.peer_certificate()
        if der is None:
            self._over = True
            self._on_stranger(self)
            return
        try:
            self.identity = self._greeter.identify(der, self.target)
        except NotWelcomeError as error:
            self.refuse(str(error))
            return
        if self.target is not None:
            self.stream.write(self._greeter.hello(self.target, self._wish))

    def readable(self) -> None:
        """Read the greeting and not a byte more: what follows is for the next user."""
        try:
            while not self._over:
                needed = HEADER_BYTES
                if len(self._buffer) >= HEADER_BYTES:
                    needed += body_size(self._buffer, HELLO_BYTES_MAX)
                if len(self._buffer) == needed > HEADER_BYTES:
                    self._greeted()
                    return
                data = self.stream.read(needed - len(self._buffer))
                if not data:
                    return
                self._buffer += data
        except BadFrameError as error:
            self.refuse(f"bad frame: {error}")

    def _greeted(self) -> None:
        _, _, said = self._greeter.codec.decode(memoryview(self._buffer)[HEADER_BYTES:])
        if isinstance(said, GreetingRefused) and self.target is not None:
            self._refusal = f"it refuses us: {said.reason[:200]}"
            self.stream.close(self._refusal)
            return
        if not isinstance(said, Hello) or self.identity is None:
            raise BadFrameError("no greeting")
        try:
            self._greeter.check(said, self.identity, self.target)
        except NotWelcomeError as error:
            self.refuse(str(error))
            return
        if self.target is None and not self._greeter.is_for_another(said):
            self.welcome(said.bulk)
        self._over = True
        self._on_open(self, said)
        if not self.stream.closing:
            self.stream.user.readable()

    def welcome(self, bulk: bool) -> None:
        """Greet who has called us. Somebody who wants another is greeted when that one is there."""
        self.stream.write(self._greeter.hello(NO_NODE, Wish(bulk)))

    def refuse(self, reason: str) -> None:
        """Say why there will be no connection, and close it."""
        self._refusal = reason
        if self.target is None:
            self.stream.write(self._greeter.codec.encode("", "", GreetingRefused(reason)))
        self.stream.close(reason)

    def writable(self) -> None:
        pass  # a greeting fits any buffer

    def lost(self, why: str) -> None:
        if not self._over:
            self._over = True
            may_help = not self._refusal and not why.startswith("TLS:")
            self._on_failed(self, self._refusal or why, may_help)
