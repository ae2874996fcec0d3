"""What peers ask each other about files, and the shape of the connection that carries it.

A request is a few bytes; an answer is a header (`Answer`, msgpack) and a body of at most
`CHUNK_BYTES_MAX`. All of it may come from a liar: whatever is decoded here is checked by whoever
uses it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Literal, Protocol

import msgspec

from sureline.peer.files.chunks import DIGEST_BYTES, FILE_BYTES_MAX
from sureline.world.address import NO_NODE, Node
from sureline.world.net.bulk_wire import BulkError
from sureline.world.net.interfaces import FileRegion

NODE_CHARS_MAX = 400
HANDED_BYTES_MAX = 2048
"""Longer maps of chunks do not travel with every chunk."""
OTHERS_MAX = 32
"""How many nodes an answer may name that are after the same file."""

Buffer = bytes | bytearray | memoryview
Body = Buffer | FileRegion
Digest = Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{64}$")]
Size = Annotated[int, msgspec.Meta(ge=0, le=FILE_BYTES_MAX)]
Index = Annotated[int, msgspec.Meta(ge=0, le=FILE_BYTES_MAX)]


NO_ANSWER = (OSError, BulkError)
"""What asking a node raises if there is no answer."""


class Bulk(Protocol):
    """Asks one node. The body lies in `into` if that was given; it is thought to be `short`. Raises
    one of NO_ANSWER."""

    async def ask_bulk(
        self,
        node: Node,
        request: bytes,
        into: bytearray | None = None,
        *,
        short: bool = False,
    ) -> tuple[bytes, Buffer]: ...


class Describe(msgspec.Struct, frozen=True, array_like=True, tag="describe"):
    """What do you have of this file? If `inline`, a file of one chunk comes as the body. `me` is
    the node that asks, if it serves what it gets."""

    digest: Digest
    inline: bool = False
    me: Annotated[Node, msgspec.Meta(max_length=NODE_CHARS_MAX)] = NO_NODE


class AskList(msgspec.Struct, frozen=True, array_like=True, tag="list"):
    """The digests of the chunks from `first` on, as many as fit the body."""

    digest: Digest
    first: Index


class AskChunk(msgspec.Struct, frozen=True, array_like=True, tag="chunk"):
    digest: Digest
    index: Index


class Suspect(msgspec.Struct, frozen=True, array_like=True, tag="suspect"):
    """What you gave of this file is not what its digest says: look at your copy."""

    digest: Digest


class Description(msgspec.Struct, frozen=True, array_like=True, tag="description"):
    """`list_digest` is the blake3 hash of the list of chunk digests, empty if the file has one
    chunk only; then the body is the file itself, if that was asked for. Else the body is a map of
    the chunks that are there (left out if `complete`), and one of those that were given away
    lately. `others` are the nodes that asked lately."""

    size: Size
    list_digest: Annotated[bytes, msgspec.Meta(max_length=DIGEST_BYTES)] = b""
    complete: bool = True
    others: Annotated[
        tuple[Annotated[Node, msgspec.Meta(max_length=NODE_CHARS_MAX)], ...],
        msgspec.Meta(max_length=OTHERS_MAX),
    ] = ()


class Sent(msgspec.Struct, frozen=True, array_like=True, tag="sent"):
    """The body is what was asked for. `handed` maps the chunks that were given away lately, if
    several are after the file and the map is short."""

    handed: Annotated[bytes, msgspec.Meta(max_length=HANDED_BYTES_MAX)] = b""


class FileRefused(msgspec.Struct, frozen=True, array_like=True, tag="refused"):
    """`unknown`: it is not here (any more). `busy`: too many ask; ask again later."""

    why: Literal["unknown", "busy", "mistake"]


Question = Describe | AskList | AskChunk | Suspect
Answer = Description | Sent | FileRefused

encode = msgspec.msgpack.Encoder().encode
decode_question = msgspec.msgpack.Decoder(Question).decode
_decode_answer = msgspec.msgpack.Decoder(Answer).decode


class BadAnswerError(Exception):
    """An answer that no honest peer gives."""


class RefusedError(Exception):
    """The peer will not, or cannot, answer now; `why` as in FileRefused."""

    def __init__(self, why: str) -> None:
        super().__init__(why)
        self.why = why


def decode_answer(header: bytes) -> Description | Sent:
    """Raises BadAnswerError, RefusedError."""
    try:
        answer: Answer = _decode_answer(header)
    except msgspec.DecodeError as error:
        raise BadAnswerError(f"an answer that cannot be read: {error}") from None
    if isinstance(answer, FileRefused):
        raise RefusedError(answer.why)
    return answer


def unique(nodes: Iterable[Node]) -> list[Node]:
    return list(dict.fromkeys(nodes))
