"""What the runner and a slot process say to each other, and how it is framed.

A frame is four bytes of length (big-endian) and MessagePack. `serial` numbers the jobs of a
runner, so that a late message about one job is never taken for one about the next.
"""

from __future__ import annotations

import msgspec

from sureline.peer.jobs import (
    CallJob,
    CheckJob,
    CommandJob,
    FileMissing,
    FileReady,
    JobEnded,
    JobProgressed,
    JobReturned,
    JobStarted,
    PublishJob,
    UserFile,
    VerifyJob,
)

MAX_FRAME_BYTES = 64 << 20
_HEADER_BYTES = 4
RECEIVE_BYTES = 1 << 16
"""Asked for at once. A larger buffer would be mapped and unmapped for every message."""
MAX_FUNCTIONS = 1024
"""How many functions of calls a slot keeps; when there are that many, both sides forget all."""

READY = 0
"""The serial of a slot's first report: it is up. Jobs are numbered from 1."""

SlotJob = CommandJob | CallJob | PublishJob | VerifyJob | CheckJob | UserFile
Report = JobStarted | JobProgressed | JobReturned | JobEnded | FileReady | FileMissing


class Run(msgspec.Struct, frozen=True, array_like=True, tag="run"):
    serial: int
    job: SlotJob
    function: bytes | None = None
    """The function of a call, the first time this slot meets it."""


class Stop(msgspec.Struct, frozen=True, array_like=True, tag="stop"):
    serial: int
    force: bool = False


class Recall(msgspec.Struct, frozen=True, array_like=True, tag="recall"):
    """Give a job back, if it has not begun."""

    serial: int


class SlotReport(msgspec.Struct, frozen=True, array_like=True):
    """A slot's report about one job."""

    serial: int
    report: Report


class FrameTooLongError(ValueError):
    """More than MAX_FRAME_BYTES in one message."""


_encoder = msgspec.msgpack.Encoder()
decode_order = msgspec.msgpack.Decoder(Run | Stop | Recall).decode
decode_said = msgspec.msgpack.Decoder(SlotReport).decode


def encode(message: Run | Stop | Recall | SlotReport) -> bytearray:
    buffer = bytearray(_HEADER_BYTES)
    _encoder.encode_into(message, buffer, _HEADER_BYTES)
    length = len(buffer) - _HEADER_BYTES
    if length > MAX_FRAME_BYTES:
        raise FrameTooLongError(f"{length} bytes")
    buffer[:_HEADER_BYTES] = length.to_bytes(_HEADER_BYTES, "big")
    return buffer


class SlotFrames:
    """Bytes in, whole frames out."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> list[bytes]:
        """The frames that `data` completes. Raises FrameTooLongError for one past the bound."""
        if not self._buffer and len(data) > _HEADER_BYTES:
            length = int.from_bytes(data[:_HEADER_BYTES], "big")
            if len(data) == length + _HEADER_BYTES:
                return [data[_HEADER_BYTES:]]
        self._buffer += data
        return self._split()

    def _split(self) -> list[bytes]:
        found = []
        start = 0
        while len(self._buffer) - start >= _HEADER_BYTES:
            body = start + _HEADER_BYTES
            length = int.from_bytes(self._buffer[start:body], "big")
            if length > MAX_FRAME_BYTES:
                raise FrameTooLongError(f"{length} bytes")
            if len(self._buffer) < body + length:
                break
            found.append(bytes(self._buffer[body : body + length]))
            start = body + length
        del self._buffer[:start]
        return found
