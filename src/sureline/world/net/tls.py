"""TLS over a plain connection of the loop.

The loop's own TLS would do, but for four things. It starts the handshake before anyone can count
how many are under way; it keeps a large buffer for every connection (stdlib) or for every one
that has ever read (uvloop); it cannot decrypt straight into a buffer of ours on both loops; and
it hides why a handshake failed. OpenSSL over memory needs one class, the same on both loops.

A stream starts no TLS before the first byte has come: a connection that says nothing costs
almost nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from collections.abc import Callable
from typing import Protocol, cast

from sureline.world.net.limits import UNACKNOWLEDGED_S, WRITE_BYTES

RECORD_BYTES = 16 << 10
"""OpenSSL hands out, and takes, at most one record at a time."""


class StreamUser(Protocol):
    """Whoever a stream works for. Calls come on the loop's thread; `lost` is the last."""

    def secured(self) -> None:
        """The handshake is done."""

    def readable(self) -> None:
        """There may be something to `read`; read until there is nothing."""

    def writable(self) -> None:
        """What was written has mostly left; called only after `writing_paused`."""

    def lost(self, why: str) -> None:
        """The connection is gone, whoever closed it."""


class TlsStream(asyncio.Protocol):
    """One connection. The user may change hands: set `user` to the next."""

    __slots__ = (
        "_cipher_in",
        "_cipher_out",
        "_context",
        "_reading_paused",
        "_server_side",
        "_tcp",
        "_tls",
        "_why",
        "address",
        "closing",
        "on_connected",
        "secure",
        "user",
        "writing_paused",
    )

    def __init__(self, context: ssl.SSLContext, user: StreamUser, *, server_side: bool) -> None:
        self.user = user
        self.secure = False
        self.closing = False
        self.writing_paused = False
        self.address = ""
        self.on_connected: Callable[[], None] | None = None
        """Called when the plain connection is there, before anything is read."""
        self._context = context
        self._server_side = server_side
        self._reading_paused = False
        self._why = ""
        self._tcp: asyncio.Transport | None = None
        self._tls: ssl.SSLObject | None = None
        self._cipher_in = ssl.MemoryBIO()
        self._cipher_out = ssl.MemoryBIO()

    # What the loop calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._tcp = cast(asyncio.Transport, transport)
        peer = transport.get_extra_info("peername")
        self.address = str(peer[0]) if peer else ""
        self._tcp.set_write_buffer_limits(high=2 * WRITE_BYTES, low=WRITE_BYTES // 2)
        notice_cuts(transport)
        if self.on_connected is not None:
            self.on_connected()
            self.on_connected = None
        if self.closing:
            self._tcp.abort()
        elif not self._server_side:
            self._handshake()

    def data_received(self, data: bytes) -> None:
        if self.closing and not self.secure:
            return
        self._cipher_in.write(data)
        if self.secure or self._handshake():
            self._let_read()

    def eof_received(self) -> None:
        self._because("the other side closed the connection")

    def connection_lost(self, exc: Exception | None) -> None:
        self._because(f"the connection broke: {exc}" if exc else "the connection was closed")
        self.closing = True
        self._tcp = None
        self._tls = None
        self.user.lost(self._why)

    def pause_writing(self) -> None:
        self.writing_paused = True

    def resume_writing(self) -> None:
        self.writing_paused = False
        self.user.writable()

    # What the user calls.

    def peer_certificate(self) -> bytes | None:
        """The other side's certificate (DER), verified; None if it has none."""
        return None if self._tls is None else self._tls.getpeercert(binary_form=True)

    @property
    def pending(self) -> bool:
        """Whether something has arrived that nobody has read."""
        tls = self._tls
        return tls is not None and (self._cipher_in.pending > 0 or tls.pending() > 0)

    def read(self, size_bytes: int) -> bytes:
        """What has arrived, at most one record's worth; empty if nothing (more) has."""
        tls = self._tls
        if tls is None or not (self._cipher_in.pending or tls.pending()):
            return b""
        try:
            return tls.read(size_bytes)
        except ssl.SSLError as error:
            self._broken(error)
            return b""

    def read_into(self, target: memoryview) -> int:
        """Like `read`, straight into the target; how many bytes."""
        tls = self._tls
        if tls is None or not (self._cipher_in.pending or tls.pending()):
            return 0
        try:
            # With a buffer it returns a count, which the type stub does not know.
            return cast(int, tls.read(len(target), target))
        except ssl.SSLError as error:
            self._broken(error)
            return 0

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Encrypt and send. Bounded only by the user's regard for `writing_paused`."""
        tls, tcp = self._tls, self._tcp
        if tls is None or tcp is None or self.closing:
            return
        try:
            done = tls.write(data)
            if done < len(data):
                rest = memoryview(data)[done:]
                while rest:
                    rest = rest[tls.write(rest) :]
        except ssl.SSLError as error:
            self._broken(error)
            return
        tcp.write(self._cipher_out.read())

    def pause_reading(self) -> None:
        if not self._reading_paused and self._tcp is not None and not self.closing:
            self._reading_paused = True
            self._tcp.pause_reading()

    def resume_reading(self) -> None:
        """Go on; what has arrived meanwhile is offered first."""
        if not self._reading_paused:
            return
        self._reading_paused = False
        self._let_read()
        if not self._reading_paused and self._tcp is not None and not self._tcp.is_closing():
            self._tcp.resume_reading()

    def close(self, why: str) -> None:
        """Close in order: what was written is sent first."""
        if self.closing or self._tcp is None:
            self.closing = True
            return
        self._because(why)
        self.closing = True
        if self._tls is not None and self.secure:
            try:
                self._tls.unwrap()
            except ssl.SSLError:
                pass  # it has said that it ends; the other side's word is not waited for
        self._send_ciphertext()
        self._tcp.close()

    def abort(self, why: str) -> None:
        """Cut the connection at once."""
        self._because(why)
        self.closing = True
        if self._tcp is not None:
            self._tcp.abort()

    def detach(self) -> tuple[asyncio.Transport, bytes]:
        """End TLS here without a word and hand out the plain connection, with what has arrived
        beyond the last record that was read. Raises ValueError if it is not that far."""
        if self._tcp is None or self.closing or self._tls is None or self._tls.pending():
            raise ValueError("this connection cannot be handed over")
        self._send_ciphertext()
        tcp, self._tcp, self._tls = self._tcp, None, None
        self.closing = True
        return tcp, self._cipher_in.read()

    def attach(self, tcp: asyncio.Transport, arrived: bytes) -> None:
        """Begin TLS over a connection that `detach` handed out."""
        tcp.set_protocol(self)
        self.connection_made(tcp)
        if arrived and not self.closing:
            self.data_received(arrived)

    # Within.

    def _because(self, why: str) -> None:
        """The first reason is the true one."""
        self._why = self._why or why

    def _let_read(self) -> None:
        if not self._reading_paused:
            self.user.readable()
            if self._cipher_out.pending:
                self._send_ciphertext()

    def _handshake(self) -> bool:
        """A step of it; True once it is done."""
        if self._tls is None:
            self._tls = self._context.wrap_bio(
                self._cipher_in, self._cipher_out, server_side=self._server_side
            )
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            self._send_ciphertext()
            return False
        except ssl.SSLError as error:
            self._broken(error)
            return False
        self._send_ciphertext()
        self.secure = True
        self.user.secured()
        return not self.closing

    def _broken(self, error: ssl.SSLError) -> None:
        if isinstance(error, ssl.SSLWantReadError):
            return
        if isinstance(error, ssl.SSLZeroReturnError | ssl.SSLEOFError):
            self.close("the other side closed the connection")
            return
        self._because(f"TLS: {_reason(error)}")
        self._send_ciphertext()  # the alert that tells the other side why
        self.closing = True
        if self._tcp is not None:
            self._tcp.close()

    def _send_ciphertext(self) -> None:
        if self._tcp is not None and self._cipher_out.pending:
            self._tcp.write(self._cipher_out.read())


def notice_cuts(transport: asyncio.BaseTransport) -> None:
    """Let the system break a connection whose other end confirms nothing any more."""
    option: int | None = getattr(socket, "TCP_USER_TIMEOUT", None)  # Linux has it
    plain: socket.socket | None = transport.get_extra_info("socket")
    if option is not None and plain is not None:
        with contextlib.suppress(OSError):  # it is gone already
            plain.setsockopt(socket.IPPROTO_TCP, option, round(UNACKNOWLEDGED_S * 1000))


def _reason(error: ssl.SSLError) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is refused: {error.verify_message}"
    return (error.reason or str(error)).replace("_", " ").lower()
