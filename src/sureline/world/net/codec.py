"""Messages as bytes and back.

A frame is four bytes of length (big-endian) and MessagePack of `[from, to, message]`: the part
that sends, the part that receives, and one message of a tagged union. Everything is checked here,
once: what `decode` returns is whole and of the declared types, and what it cannot read raises
`BadFrameError`, never anything else.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Union

import msgspec

from sureline.world.address import NO_NODE, Node
from sureline.world.net.control import CONTROL
from sureline.world.net.limits import FRAME_BYTES_MAX
from sureline.world.protocol import Message

HEADER_BYTES = 4
VERSION = 5
PART_CHARS_MAX = 256

Envelope = tuple[str, str, Message]
"""The part that sends, the part that receives, and the message."""


class BadFrameError(ValueError):
    """What arrived is no frame of this protocol; says in a few words why."""


class UnknownKindError(BadFrameError):
    """A whole message of a kind that is not known here: of another version, or of a strategy that
    is not installed. It can be dropped; the frames after it are sound."""


class CannotTravelError(ValueError):
    """A message that has no form on the wire."""


class MessageTooLongError(CannotTravelError):
    """A message that does not fit a frame; the sender must split what it says."""


class Hello(Message, frozen=True, tag="net.hello"):
    """The first frame in each direction of a connection."""

    version: int
    grid: str
    node: Node
    """Who speaks, and where it listens."""
    to: str
    """The name of the node that is meant; empty in the answer."""
    bulk: bool = False
    """The connection is for bulk requests, not for messages."""
    reach: Node = NO_NODE
    """Whom the connection is to be carried to. Answered when that one is there: what follows
    outside of TLS is between the ends."""
    ticket: str = ""
    """Of the call that this connection answers; what follows is outside of TLS likewise."""


class Bye(Message, frozen=True, tag="net.bye"):
    """The last frame in each direction of a connection that closes in order."""

    leaving: bool = False
    """The whole node goes away."""


class GreetingRefused(Message, frozen=True, tag="net.refused"):
    """Instead of a greeting: why there will be no connection."""

    reason: str


_Part = Annotated[str, msgspec.Meta(max_length=PART_CHARS_MAX)]


class Codec:
    """Encodes and decodes the given types of messages, and no others."""

    def __init__(self, message_types: Sequence[type[Message]]) -> None:
        """Raises ValueError if a type has no tag of its own, or one that the world reserves."""
        types: list[type[Message]] = [*message_types, Hello, Bye, GreetingRefused, *CONTROL]
        self.tags = _tags(types)
        self._known = frozenset(self.tags.values())
        union: Any = Union[tuple(types)]  # noqa: UP007 - the types are not known before
        envelope: Any = tuple.__class_getitem__((_Part, _Part, union))
        decoder: msgspec.msgpack.Decoder[Any] = msgspec.msgpack.Decoder(envelope)
        self._decode = decoder.decode
        self._encode_into = msgspec.msgpack.Encoder().encode_into

    def encode(self, sender_part: str, to_part: str, message: Message) -> bytearray:
        """A whole frame. Raises CannotTravelError, of which MessageTooLongError is one."""
        if type(message) not in self.tags:
            raise TypeError(f"{type(message).__name__} is not among the codec's message types")
        frame = bytearray(HEADER_BYTES)
        try:
            self._encode_into((sender_part, to_part, message), frame, HEADER_BYTES)
        except (OverflowError, ValueError) as error:  # an integer beyond 64 bits, half a character
            tag = self.tags[type(message)]
            raise CannotTravelError(f"a {tag} that cannot be encoded ({error})") from None
        size = len(frame) - HEADER_BYTES
        if size > FRAME_BYTES_MAX:
            tag = self.tags[type(message)]
            raise MessageTooLongError(f"a {tag} of {size} bytes; a frame holds {FRAME_BYTES_MAX}")
        frame[:HEADER_BYTES] = size.to_bytes(HEADER_BYTES, "big")
        return frame

    def decode(self, body: bytes | bytearray | memoryview) -> Envelope:
        """What a frame's body says. Raises BadFrameError."""
        try:
            envelope: Envelope = self._decode(body)
        except (ValueError, RecursionError) as error:
            # ValueError: msgspec's own errors, text that is not UTF-8, dates that do not exist
            kind = self._unknown_kind(body)
            if kind:
                raise UnknownKindError(f"a message of the kind {kind[:100]!r}") from None
            raise BadFrameError(str(error)[:200]) from None
        return envelope

    def _unknown_kind(self, body: bytes | bytearray | memoryview) -> str:
        """What a message calls itself, if it is one and nobody here knows it; else ''."""
        try:
            kind = _decode_head(body)[2].type
        except (ValueError, RecursionError):
            return ""
        forged = kind.startswith("world.")  # what the world says itself never travels
        return "" if forged or kind in self._known else kind


class _Head(msgspec.Struct):
    """What all messages have."""

    type: str


_decode_head = msgspec.msgpack.Decoder(tuple[_Part, _Part, _Head]).decode


def _tags(types: Sequence[type[Message]]) -> dict[type[Message], str]:
    tags: dict[type[Message], str] = {}
    taken: dict[str, type[Message]] = {}
    for kind in types:
        tag = kind.__struct_config__.tag
        if not isinstance(tag, str):
            raise ValueError(f"{_name(kind)} has no tag, so it cannot travel")
        if tag.startswith("world."):
            raise ValueError(f"{_name(kind)} is said by the world itself and must not travel")
        if tag in taken:
            raise ValueError(f"{_name(kind)} and {_name(taken[tag])} have the same tag {tag!r}")
        taken[tag] = kind
        tags[kind] = tag
    return tags


def _name(kind: type[Message]) -> str:
    return f"{kind.__module__}.{kind.__qualname__}"


def body_size(header: bytes | bytearray | memoryview, size_max: int = FRAME_BYTES_MAX) -> int:
    """The size that a frame's header announces. Raises BadFrameError if that is too much."""
    size = int.from_bytes(header[:HEADER_BYTES], "big")
    if size > size_max:
        raise BadFrameError(f"a frame of {size} bytes is announced; {size_max} are allowed")
    return size


class Frames:
    """Bytes in, bodies of whole frames out. Holds at most one incomplete frame."""

    __slots__ = ("_held", "_needed_bytes")

    def __init__(self) -> None:
        self._held = bytearray()
        self._needed_bytes = 0

    @property
    def incomplete(self) -> bool:
        return bool(self._held)

    def feed(self, data: bytes) -> list[memoryview]:
        """The frames that `data` completes. Raises BadFrameError as soon as a header announces
        too much."""
        if self._held:
            self._held += data
            if len(self._held) < self._needed_bytes:
                return []
            data = bytes(self._held)
            self._held = bytearray()
        view = memoryview(data)
        found: list[memoryview] = []
        start, end = 0, len(data)
        needed = HEADER_BYTES
        while end - start >= HEADER_BYTES:
            needed = HEADER_BYTES + body_size(data[start : start + HEADER_BYTES])
            if end - start < needed:
                break
            found.append(view[start + HEADER_BYTES : start + needed])
            start += needed
            needed = HEADER_BYTES
        if start < end:
            self._held += view[start:]
            self._needed_bytes = needed
        return found
