"""Values as bytes with their large buffers apart (pickle protocol 5), so that these are not copied.

A *packed* value is a pickle, or, if buffers were taken out, a mark, the pickle and the buffers'
digests: the buffers are blobs of a store then, one copy however many values hold them. A long
pickle is such a blob itself, the first one. A *bundle* is one file with everything: a pickle and
its buffers, aligned, to be mapped. Mappings are private:
who changes an array changes his own copy of those pages, and never the file.
"""

from __future__ import annotations

import mmap
import os
import pickle
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import msgspec
from blake3 import blake3

APART_BYTES = 128 << 10
"""A buffer from this length on travels apart."""
ALIGN = 64
_MARK = b"\0apart\0\0"
_WHOLE = b"\0whole\0\0"
_BUNDLE = b"\0bundle\0"
LONG_BYTES = 64 << 10
"""A longer pickle is a blob."""
THREADED_BYTES = 8 << 20
"""Hashing more than this uses several threads."""

Buffer = bytes | bytearray | memoryview | mmap.mmap


class Apart(msgspec.Struct, frozen=True, array_like=True):
    digest: str
    size: int


class _Packed(msgspec.Struct, frozen=True, array_like=True):
    pickled: bytes
    buffers: tuple[Apart, ...]


_decode = msgspec.msgpack.Decoder(_Packed).decode


def hash_buffer(data: Buffer) -> str:
    threads = blake3.AUTO if len(data) >= THREADED_BYTES else 1
    return str(blake3(data, max_threads=threads).hexdigest())


class Collected:
    """Takes the large buffers out of a pickle, in order; small ones stay in it."""

    def __init__(self) -> None:
        self.views: list[memoryview] = []

    def __call__(self, buffer: pickle.PickleBuffer) -> bool:
        """As `buffer_callback`: whether the buffer stays in the pickle."""
        try:
            view = buffer.raw()
        except BufferError:  # not contiguous
            return True
        if view.nbytes < APART_BYTES:
            return True
        self.views.append(view)
        return False


def packed(pickled: bytes, buffers: Sequence[Apart]) -> bytes:
    if not buffers:
        return pickled
    return _MARK + msgspec.msgpack.encode(_Packed(pickled, tuple(buffers)))


def packed_whole(buffers: Sequence[Apart]) -> bytes:
    """A packed value whose pickle is the first of these blobs."""
    return _WHOLE + msgspec.msgpack.encode(_Packed(b"", tuple(buffers)))


def unpacked(data: bytes, blob: Callable[[Apart], Buffer]) -> tuple[bytes, list[Buffer]]:
    """The pickle and its buffers, each asked for by its digest."""
    if not data.startswith((_MARK, _WHOLE)):
        return data, []
    found = _decode(memoryview(data)[len(_MARK) :])
    buffers = [blob(one) for one in found.buffers]
    if data.startswith(_WHOLE):
        return bytes(buffers[0]), buffers[1:]
    return found.pickled, buffers


def buffers_of(data: bytes) -> tuple[Apart, ...]:
    """The blobs that travel apart from a packed value."""
    if not data.startswith((_MARK, _WHOLE)):
        return ()
    return _decode(memoryview(data)[len(_MARK) :]).buffers


# -- bundles -----------------------------------------------------------------------------------


def bundle(pickled: bytes, views: Sequence[memoryview]) -> Iterable[Buffer]:
    """A bundle, piece by piece. Nothing is copied."""
    if not views:
        return [pickled]
    sizes = msgspec.msgpack.encode([len(pickled), *(view.nbytes for view in views)])
    head = _BUNDLE + len(sizes).to_bytes(8, "little") + sizes
    pieces: list[Buffer] = [head]
    at = len(head)
    for piece in (memoryview(pickled), *views):
        gap = -at % ALIGN
        pieces += [bytes(gap), piece]
        at += gap + piece.nbytes
    return pieces


def bundled(data: Buffer) -> tuple[Any, list[Buffer]]:
    """The pickle and its buffers, as parts of what was given."""
    view = memoryview(data)
    if bytes(view[: len(_BUNDLE)]) != _BUNDLE:
        return view, []
    at = len(_BUNDLE) + 8
    sizes_end = at + int.from_bytes(view[len(_BUNDLE) : at], "little")
    sizes = msgspec.msgpack.decode(view[at:sizes_end], type=list[int])
    parts: list[Buffer] = []
    at = sizes_end
    for size in sizes:
        at += -at % ALIGN
        parts.append(view[at : at + size])
        at += size
    return parts[0], parts[1:]


def mapped(path: str) -> Buffer:
    """A file in memory, without reading it; what is written there stays this process's."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        size = os.fstat(fd).st_size
        if size < APART_BYTES:
            with open(fd, "rb", closefd=False) as file:
                return file.read()
        return mmap.mmap(fd, size, access=mmap.ACCESS_COPY)
    finally:
        os.close(fd)
