"""The slot process: runs one job at a time for the runner at the other end of a socket.

It ends when that end closes. While a command runs the slot watches the socket itself, so that it
can kill the command's processes first; at all other times (a Python call may never come back) the
kernel kills the slot's process group when the runner's end of the lifeline pipe closes.

It is started often, so it imports little; what only some jobs need is imported by them.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from sureline.peer.frames import READY, Run
from sureline.peer.health import trouble_of, trouble_writing
from sureline.peer.jobs import (
    CallJob,
    CheckJob,
    CommandJob,
    FileMissing,
    FileReady,
    JobEnded,
    JobProgressed,
    JobStarted,
    PublishJob,
    UserFile,
    VerifyJob,
)
from sureline.peer.slot_capture import Capture
from sureline.peer.slot_channel import Channel, Lifeline
from sureline.peer.slot_command import Commands, SlotPlace
from sureline.peer.store import BlobStore, DamagedError, StoreError
from sureline.workflow.files import FileRecord

if TYPE_CHECKING:
    from sureline.peer.slot_call import Calls
    from sureline.peer.slot_confined import Confined

MAX_REASONS = 5


class Slot:
    def __init__(
        self,
        channel: Channel,
        lifeline: Lifeline,
        place: SlotPlace,
        store: BlobStore,
        confined: Confined | None = None,
    ) -> None:
        self._channel = channel
        self._place = place
        self._store = store
        self._capture = Capture(place.root, place.work, place.name, place.run)
        self._commands = Commands(store, self._capture, channel, lifeline, place, confined)
        self._calls: Calls | None = None

    def serve(self) -> None:
        """Run what is asked for until the runner is gone."""
        while (order := self._channel.receive()) is not None:
            if isinstance(order, Run):
                self._serve(order)
                self._commands.rest()
            # a Stop outside a command is too late (or the runner kills this process)

    def _serve(self, order: Run) -> None:
        job = order.job
        report: JobEnded | FileReady | FileMissing
        try:
            if isinstance(job, CommandJob):
                report = self._commands.run(order.serial, job)
            elif isinstance(job, CallJob):
                report = self._calls_ready().run(
                    job,
                    order.function,
                    lambda fraction: self._channel.say(order.serial, JobProgressed(fraction)),
                )
            elif isinstance(job, PublishJob):
                report = self._publish(job.files)
            elif isinstance(job, VerifyJob):
                report = self._verify(job.files)
            elif isinstance(job, CheckJob):
                trouble = trouble_writing(self._place.work)
                report = _machines(trouble) if trouble else JobEnded("succeeded")
            else:
                report = self._fetch(job)
        except Exception as error:
            # whatever goes wrong here (a full disk, a directory without permission) is this
            # job's failure, not the slot's end
            report = _failed(job, error)
        self._channel.say_later(order.serial, report)

    def _calls_ready(self) -> Calls:
        if self._calls is None:
            from sureline.peer.slot_call import Calls

            self._calls = Calls(self._store, self._capture, self._place.directory)
        self._commands.note_foreign_code()
        return self._calls

    def _publish(self, files: tuple[FileRecord, ...]) -> JobEnded:
        reasons = []
        for record in files:
            try:
                self._store.publish(record, f"{self._place.directory}/{record.path}")
            except (OSError, StoreError) as error:
                reasons.append(f"{record.path} could not be published: {explain(error)}")
        if not reasons:
            return JobEnded("succeeded")
        more = len(reasons) - MAX_REASONS
        shown = "; ".join(reasons[:MAX_REASONS]) + (f"; and {more} more" if more > 0 else "")
        return JobEnded("failed", reason=shown)

    def _verify(self, files: tuple[FileRecord, ...]) -> JobEnded:
        for record in files:
            if not self._store.intact(record, by_content=True):
                return JobEnded("failed", reason=f"{record.path} is not as it was stored")
        return JobEnded("succeeded")

    def _fetch(self, wanted: UserFile) -> FileReady | FileMissing:
        try:
            if wanted.in_place:
                return FileReady(self._store.in_place(wanted.path))
            return FileReady(
                self._store.ingest(f"{self._place.directory}/{wanted.path}", wanted.path)
            )
        except FileNotFoundError:
            return FileMissing(wanted.path, f"{wanted.path} does not exist")
        except (OSError, StoreError) as error:
            return FileMissing(wanted.path, explain(error))


def _failed(job: object, error: Exception) -> JobEnded | FileMissing:
    reason = explain(error)
    if isinstance(job, UserFile):
        return FileMissing(job.path, reason)
    trouble = trouble_of(error)
    if trouble:
        return _machines(f"{trouble} ({reason})")
    if isinstance(job, CommandJob) and isinstance(error, DamagedError):
        return JobEnded("failed", reason=reason, fault="inputs", missing=(error.digest,))
    return JobEnded("failed", reason=reason)


def _machines(trouble: str) -> JobEnded:
    return JobEnded("failed", reason=f"the machine cannot do its work: {trouble}", fault="machine")


def explain(error: Exception) -> str:
    """An error as one sentence for the user."""
    if isinstance(error, StoreError):
        return str(error)
    if isinstance(error, OSError) and error.strerror:
        files = [str(name) for name in (error.filename, error.filename2) if name is not None]
        return error.strerror + (f": {' -> '.join(files)}" if files else "")
    return f"unexpected {type(error).__name__}: {error}"


def _confined(rules: str, place: SlotPlace) -> Confined:
    from sureline.peer.confine.rules import decode
    from sureline.peer.slot_confined import Confined

    return Confined(decode(rules), place.root, place.own)


def main(arguments: list[str]) -> None:
    """`arguments`: socket fd, lifeline fd, root, user's directory, run, name, grace, rules."""
    sock_fd, lifeline_fd, root, directory, run, name, grace_s, rules = arguments
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.set_inheritable(int(sock_fd), False)
    os.set_inheritable(int(lifeline_fd), False)
    sys.argv = [""]
    place = SlotPlace(root, directory, run, name, float(grace_s))
    confined = _confined(rules, place) if rules else None
    store = BlobStore(Path(root), Path(directory), Path(place.work))
    lifeline = Lifeline(int(lifeline_fd))
    lifeline.arm()
    channel = Channel(socket.socket(fileno=int(sock_fd)))
    # what a call forks must not hold on to these, or this process's death would go unnoticed
    os.register_at_fork(after_in_child=channel.close)
    os.register_at_fork(after_in_child=lifeline.close)
    slot = Slot(channel, lifeline, place, store, confined)
    channel.say(READY, JobStarted(os.getpid()))
    slot.serve()
