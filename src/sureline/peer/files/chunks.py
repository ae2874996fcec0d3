"""The chunks of a file: how long they are, what their digests are, which of them somebody has.

The length of a chunk follows from the file's size alone, so that all who hold a file cut it in
the same way and their lists of chunk digests can be compared.
"""

from __future__ import annotations

import os
from collections.abc import Iterable

import numpy as np
import numpy.typing as npt
from blake3 import blake3

MIB = 1 << 20
CHUNK_BYTES_MAX = 4 * MIB
"""No answer of a peer is longer than this."""
DIGEST_BYTES = 32
FILE_BYTES_MAX = 1 << 42
"""With the longest chunks, the list of digests of such a file has 32 MiB."""

Flags = npt.NDArray[np.bool_]
"""One flag for each chunk."""


class DamagedChunkError(Exception):
    """A stored file is not what its name says."""


def chunk_bytes_of(size: int) -> int:
    """
    >>> [chunk_bytes_of(size) // MIB for size in (0, 64 * MIB, 65 * MIB, 2048 * MIB)]
    [1, 1, 2, 4]
    """
    if size <= 64 * MIB:
        return MIB
    return 2 * MIB if size <= 1024 * MIB else CHUNK_BYTES_MAX


def chunk_count(size: int) -> int:
    """
    >>> chunk_count(0), chunk_count(MIB), chunk_count(MIB + 1)
    (1, 1, 2)
    """
    return max(1, -(-size // chunk_bytes_of(size)))


def chunk_span(size: int, index: int) -> tuple[int, int]:
    """Where a chunk begins, and how long it is."""
    length = chunk_bytes_of(size)
    start = index * length
    return start, min(length, size - start)


def flags_of(chunks: Iterable[int], count: int) -> Flags:
    flags = np.zeros(count, dtype=np.bool_)
    flags[list(chunks)] = True
    return flags


def to_bits(flags: Flags) -> bytes:
    return np.packbits(flags, bitorder="little").tobytes()


def from_bits(bits: bytes, count: int) -> Flags:
    """Raises ValueError unless `bits` are those of `count` chunks."""
    if len(bits) != (count + 7) // 8:
        raise ValueError(f"{len(bits)} bytes are no map of {count} chunks")
    array = np.frombuffer(bits, dtype=np.uint8)
    return np.unpackbits(array, count=count, bitorder="little").astype(np.bool_)


def digest_in(chunk_list: bytes, index: int) -> bytes:
    return chunk_list[index * DIGEST_BYTES : (index + 1) * DIGEST_BYTES]


def agreeing(one: bytes, other: bytes) -> Flags:
    """In which chunks two lists of equal length agree."""
    first = np.frombuffer(one, dtype=np.uint8).reshape(-1, DIGEST_BYTES)
    second = np.frombuffer(other, dtype=np.uint8).reshape(-1, DIGEST_BYTES)
    same: Flags = (first == second).all(axis=1)
    return same


def list_chunks(path: str, digest: str) -> bytes:
    """The digests of all chunks of a stored file, joined.

    Raises DamagedChunkError if the file is not what its digest says, FileNotFoundError.
    """
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        size = os.fstat(fd).st_size
        whole = blake3()
        digests = []
        buffer = memoryview(bytearray(chunk_bytes_of(size)))
        for index in range(chunk_count(size)):
            start, length = chunk_span(size, index)
            view = buffer[:length]
            if os.preadv(fd, [view], start) != length:
                raise DamagedChunkError(f"{path} became shorter while it was read")
            digests.append(blake3(view).digest())
            whole.update(view)
    finally:
        os.close(fd)
    if whole.hexdigest() != digest:
        raise DamagedChunkError(f"{path} is damaged")
    return b"".join(digests)
