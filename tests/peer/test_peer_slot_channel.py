"""What a slot holds back: the end of a job is told while the next one runs already, but before
the slot waits, and before work that may last."""

from __future__ import annotations

import socket
from concurrent.futures import ThreadPoolExecutor

import pytest

from sureline.peer.frames import Run, SlotFrames, SlotReport, decode_said, encode
from sureline.peer.jobs import CallJob, CommandJob, JobEnded
from sureline.peer.slot_channel import Channel
from sureline.workflow.files import FileRecord

ENDED = SlotReport(1, JobEnded("succeeded"))
COMMAND = CommandJob("2", "t", 1, "true")
WITH_INPUT = CommandJob("2", "t", 1, "true", (FileRecord("a", "00ff", 12),))
CALL = CallJob("2", "t", 1, "f", b"")


@pytest.mark.parametrize(("job", "is_held"), [(COMMAND, True), (WITH_INPUT, False), (CALL, False)])
def test_an_end_is_held_back_only_for_a_command_that_starts_at_once(
    job: CommandJob | CallJob, is_held: bool
) -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        channel = Channel(theirs)
        ours.sendall(encode(Run(2, job)))
        channel.say_later(ENDED.serial, ENDED.report)
        assert channel.receive() == Run(2, job)
        assert _said(ours) == ([] if is_held else [ENDED])
        channel.say_held()
        assert _said(ours) == ([ENDED] if is_held else [])


def test_an_end_is_told_before_the_slot_waits() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs, ThreadPoolExecutor(1) as slot:
        channel = Channel(theirs)
        channel.say_later(ENDED.serial, ENDED.report)
        waiting = slot.submit(channel.receive)
        assert _decoded(ours.recv(4096)) == [ENDED]
        ours.shutdown(socket.SHUT_WR)
        assert waiting.result() is None


def _said(ours: socket.socket) -> list[SlotReport]:
    try:
        return _decoded(ours.recv(4096, socket.MSG_DONTWAIT))
    except BlockingIOError:
        return []


def _decoded(data: bytes) -> list[SlotReport]:
    return [decode_said(frame) for frame in SlotFrames().feed(data)]
