"""A connection over which two nodes exchange messages.

A link closes in order with a Bye in each direction. Whoever starts says Bye and nothing after it;
the other says what it has begun to say, then Bye; the first, having read that, closes. So each
side knows that the other has read everything, nothing is lost, and what is sent afterwards over
another connection cannot overtake it.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Protocol

from sureline.world.address import NO_NODE, Node
from sureline.world.net.codec import (
    BadFrameError,
    Bye,
    Codec,
    Frames,
    GreetingRefused,
    Hello,
    UnknownKindError,
)
from sureline.world.net.control import CONTROL
from sureline.world.net.limits import Limits
from sureline.world.net.throttle import Throttle
from sureline.world.net.tls import RECORD_BYTES, TlsStream
from sureline.world.protocol import Message

if TYPE_CHECKING:
    from sureline.world.identity.certificates import Identity

WAIT_MIN_S = 0.01


class LinkOwner(Protocol):
    """What a link reports to."""

    loop: asyncio.AbstractEventLoop
    codec: Codec
    limits: Limits
    holding: bool
    """No link may deliver now: whoever takes the messages is behind."""

    def took(self, link: NetLink, sender_part: str, to_part: str, message: Message) -> None: ...
    def heard(self, link: NetLink, message: Message) -> None:
        """The other side's network says something to ours."""

    def link_writable(self, link: NetLink) -> None: ...
    def link_lost(self, link: NetLink, why: str) -> None: ...
    def complain(self, kind: str, source: str, text: str) -> None: ...


class NetLink:
    """An open connection to `node`. `ours`: we opened it."""

    __slots__ = (
        "_frames",
        "_owner",
        "_throttle",
        "_waiting",
        "bye_heard",
        "bye_said",
        "bytes_in",
        "bytes_out",
        "closing_since",
        "go_over_at",
        "go_over_s",
        "heard_at",
        "identity",
        "incomplete_since",
        "leaving",
        "messages_in",
        "messages_out",
        "misbehaved",
        "moored_until",
        "node",
        "opened_at",
        "ours",
        "stream",
        "through",
        "used_at",
    )

    def __init__(
        self,
        owner: LinkOwner,
        stream: TlsStream,
        node: Node,
        identity: Identity,
        *,
        ours: bool,
        through: Node = NO_NODE,
    ) -> None:
        now = owner.loop.time()
        self.node = node
        self.identity = identity
        self.ours = ours
        self.stream = stream
        self.through = through
        """Who carries it, if it is not between the ends alone."""
        self.opened_at = self.used_at = self.heard_at = now
        self.moored_until = 0.0
        """Until then it is kept, used or not: one of the ends can only dial out."""
        self.go_over_at = float("inf")
        """When to look for a direct way again."""
        self.go_over_s = 0.0
        self.closing_since: float | None = None
        self.incomplete_since: float | None = None
        self.bye_said = self.bye_heard = self.leaving = self.misbehaved = False
        self.messages_in = self.messages_out = self.bytes_in = self.bytes_out = 0
        self._owner = owner
        self._frames = Frames()
        self._throttle = Throttle(now)
        self._waiting: asyncio.TimerHandle | None = None

    @property
    def usable(self) -> bool:
        """Whether new messages may be sent on it, now or when it is writable."""
        return not (self.bye_said or self.bye_heard or self.stream.closing)

    @property
    def idle(self) -> bool:
        """Whether nothing is under way on it, as far as can be seen from here."""
        return not (self.stream.writing_paused or self._frames.incomplete or self._waiting)

    @property
    def awaited(self) -> bool:
        """Whether the other side has to end something in time: a frame, or a goodbye."""
        return self.incomplete_since is not None or self.closing_since is not None

    def stalled_s(self, now: float) -> float:
        """For how long the other side has kept us waiting for the rest of a frame."""
        if self.incomplete_since is None or self._waiting is not None or self._owner.holding:
            return 0.0
        return now - self.incomplete_since

    def write(self, frames: list[bytearray]) -> None:
        """Send whole frames; the caller has looked at `usable` and `stream.writing_paused`."""
        data = frames[0] if len(frames) == 1 else b"".join(frames)
        self.used_at = self._owner.loop.time()
        self.messages_out += len(frames)
        self.bytes_out += len(data)
        self.stream.write(data)

    def say_bye(self, *, leaving: bool = False) -> None:
        """Begin to close in order."""
        if not self.bye_said and not self.stream.closing:
            self.bye_said = True
            if self.closing_since is None:
                self.closing_since = self._owner.loop.time()
            self._say(Bye(leaving))

    def say(self, message: Message) -> None:
        """A word from network to network, beside what the agents say."""
        if self.usable:
            self.used_at = self._owner.loop.time()
            self._say(message)

    def _say(self, message: Message) -> None:
        frame = self._owner.codec.encode("", "", message)
        self.bytes_out += len(frame)
        self.stream.write(frame)

    def cut(self, why: str) -> None:
        """Close at once, because of what the other side did."""
        self.misbehaved = True
        self.stream.abort(why)

    def hold(self) -> None:
        self.stream.pause_reading()

    def release(self) -> None:
        """Read on, unless there is another reason to wait."""
        if self._waiting is None and not self._owner.holding:
            if self.incomplete_since is not None:
                self.incomplete_since = self._owner.loop.time()
            self.stream.resume_reading()

    # What the stream calls.

    def secured(self) -> None:
        raise AssertionError("a link's stream is secure from the start")

    def readable(self) -> None:
        while self._waiting is None:
            if self._owner.holding:
                self.hold()
                return
            data = self.stream.read(RECORD_BYTES)
            if not data:
                return
            self._take(data)

    def writable(self) -> None:
        self._owner.link_writable(self)

    def lost(self, why: str) -> None:
        if self._waiting is not None:
            self._waiting.cancel()
            self._waiting = None
        self._owner.link_lost(self, why)

    # Within.

    def _take(self, data: bytes) -> None:
        now = self.used_at = self.heard_at = self._owner.loop.time()
        self.bytes_in += len(data)
        try:
            bodies = self._frames.feed(data)
            for body in bodies:
                try:
                    self._take_message(body)
                except UnknownKindError as error:
                    said = f"{self.node} sent {error}, which is not known here; dropped"
                    self._owner.complain("unknown message", self.node, said)
        except BadFrameError as error:
            self._owner.complain("bad frame", self.node, f"{self.node} sent a bad frame: {error}")
            self.cut("it sent a bad frame")
            return
        self.messages_in += len(bodies)
        if not self._frames.incomplete:
            self.incomplete_since = None
        elif bodies or self.incomplete_since is None:
            self.incomplete_since = now
        self._pay(now, len(bodies), len(data))

    def _take_message(self, body: memoryview) -> None:
        if self.bye_heard or self.stream.closing:
            return
        sender_part, to_part, message = self._owner.codec.decode(body)
        kind = type(message)
        if kind is Bye:
            self._hear_bye(message)
        elif kind is Hello or kind is GreetingRefused:
            raise BadFrameError("a greeting in the middle of a conversation")
        elif kind in CONTROL:
            self._owner.heard(self, message)
        else:
            self._owner.took(self, sender_part, to_part, message)

    def _hear_bye(self, message: Message) -> None:
        assert isinstance(message, Bye)
        self.bye_heard = True
        self.leaving = message.leaving
        if self.bye_said:
            self.stream.close("both sides said goodbye")
        else:
            self.say_bye()

    def _pay(self, now: float, messages: int, size_bytes: int) -> None:
        """Stop reading for a while if too much came: the sender's system then holds it back."""
        limits = self._owner.limits
        wait_s = self._throttle.spend(now, messages, size_bytes, limits)
        if wait_s <= 0 or self.stream.closing:
            return
        self.hold()
        wait_s = max(wait_s, WAIT_MIN_S)
        self._waiting = self._owner.loop.call_later(wait_s, self._waited)
        self._owner.complain(
            "too fast",
            self.node,
            f"{self.node} sends faster than {limits.messages_per_s:.0f} messages or "
            f"{limits.bytes_per_s:.0f} bytes per second; it is slowed down",
        )

    def _waited(self) -> None:
        self._waiting = None
        self.release()
