from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sureline.peer.frames import (
    MAX_FRAME_BYTES,
    FrameTooLongError,
    Run,
    SlotFrames,
    SlotReport,
    Stop,
    decode_order,
    decode_said,
    encode,
)
from sureline.peer.jobs import (
    CallJob,
    CommandJob,
    FileMissing,
    FileReady,
    JobEnded,
    JobStarted,
    PublishJob,
    UserFile,
)
from sureline.workflow.files import FileRecord

RECORD = FileRecord("a/b", "00ff", 12, 34, True)


@pytest.mark.parametrize(
    "order",
    [
        Run(1, CommandJob("l", "t", 1, "true", (RECORD,), ("o",), {"A": "b"}, "a/b", 2.5, 0.5)),
        Run(2, CallJob("l", "t", 1, "f", b"args", {"x": b"1"}, {"y": RECORD}), b"function"),
        Run(3, PublishJob("l", (RECORD,))),
        Run(4, UserFile("p", in_place=True)),
        Stop(5, force=True),
    ],
)
def test_orders_survive_the_wire(order: Run | Stop) -> None:
    assert decode_order(SlotFrames().feed(bytes(encode(order)))[0]) == order


@pytest.mark.parametrize(
    "report",
    [
        JobStarted(7),
        JobEnded("failed", exit_code=3, reason="exit code 3", outputs=(RECORD,), error=b"e"),
        FileReady(RECORD),
        FileMissing("p", "why"),
    ],
)
def test_reports_survive_the_wire(report: JobStarted | JobEnded | FileReady | FileMissing) -> None:
    assert decode_said(SlotFrames().feed(bytes(encode(SlotReport(1, report))))[0]) == SlotReport(
        1, report
    )


@given(st.lists(st.integers(0, 300), max_size=20), st.lists(st.integers(1, 50), min_size=1))
def test_frames_do_not_depend_on_how_bytes_arrive(sizes: list[int], cuts: list[int]) -> None:
    orders = [Run(i, CommandJob("l", "t", 1, "x" * size)) for i, size in enumerate(sizes)]
    stream = b"".join(bytes(encode(order)) for order in orders)
    frames = SlotFrames()
    found: list[bytes] = []
    while stream:
        cut = cuts[len(stream) % len(cuts)]
        found += frames.feed(stream[:cut])
        stream = stream[cut:]
    assert [decode_order(frame) for frame in found] == orders


def test_frames_are_bounded() -> None:
    with pytest.raises(FrameTooLongError):
        SlotFrames().feed((MAX_FRAME_BYTES + 1).to_bytes(4, "big") + b"xx")
    with pytest.raises(FrameTooLongError):
        encode(Run(1, CallJob("l", "t", 1, "f", bytes(MAX_FRAME_BYTES))))
