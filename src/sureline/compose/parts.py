"""The parts of an embedded world that touch the machine: its recorder and its fetcher."""

from __future__ import annotations

import asyncio
import os
import time
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol, TypeVar

from sureline.compose.foresight import Foresight
from sureline.compose.program import ask_program
from sureline.compose.reuse import file_status
from sureline.journal.control import Sending, control_of
from sureline.journal.events import Event
from sureline.journal.store import Journal
from sureline.journal.writer import RunWriter
from sureline.peer.jobs import FileReady, JobEnded, UserFile, VerifyJob
from sureline.peer.runner import SlotRunner
from sureline.peer.store import BlobStore
from sureline.run.asking import ProgramAsked, SentEarlier, SentFound
from sureline.run.estimates import Estimates
from sureline.run.outlook import Outlook
from sureline.run.past import KeptAnswer, KeptFiles, PastFound, PastResult, PastUnknown
from sureline.workflow.files import FileRecord
from sureline.world.address import Node
from sureline.world.protocol import Action, Fetched, JobEvent, Recordable, Wanted

T = TypeVar("T")

SYNC_S = 0.05
SETTLED_NS = 2_000_000_000
"""A file whose time is more recent than this may still change without its time changing."""
SENT_MAX = 10_000
"""Jobs of earlier runs that are told of, the newest."""


class JournalRecorder:
    """The journal as the world's recorder: events in order, flushed by the world, synced in groups.

    A sync follows the flushes at most SYNC_S later, so that a committed result survives a power
    cut without anybody waiting for it; whoever must wait calls `sync`.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        writer: RunWriter,
        heard: Callable[[Event], None],
        on_failed: Callable[[BaseException], None],
    ) -> None:
        self._loop = loop
        self._writer = writer
        self._heard = heard
        self._on_failed = on_failed
        self._sync_due: asyncio.TimerHandle | None = None

    def record(self, event: Recordable) -> None:
        assert isinstance(event, Event), f"only events can be recorded, not {event!r}"
        self._writer.record(event)
        self._heard(event)

    def flush(self) -> None:
        self._writer.flush()
        if self._sync_due is None:
            self._sync_due = self._loop.call_later(SYNC_S, self._sync_now)

    def _sync_now(self) -> None:
        self._sync_due = None
        try:
            self.sync(lambda: None)
        except Exception as error:  # nobody called: a full disk must still end the run
            self._on_failed(error)

    def sync(self, on_durable: Action) -> None:
        self._writer.sync(on_durable, self._loop.call_soon_threadsafe, self._on_failed)

    def put(self, key: str, value: bytes) -> None:
        self._writer.put(key, value)

    def get(self, key: str) -> bytes | None:
        return self._writer.get(key)

    def close(self) -> None:
        if self._sync_due is not None:
            self._sync_due.cancel()
        self._writer.close()


class Elsewhere(Protocol):
    """What is known of places other than the user's directory. Called in threads."""

    def result(self, key: str) -> Fetched:
        """A result that another directory's run made: PastFound or PastUnknown."""

    def file(self, path: str) -> FileRecord | None:
        """The content that a file which is not in the directory stands for."""


class EmbeddedFetcher:
    """What an embedded world can fetch: the user's files, results of earlier runs, forecasts."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        directory: Path,
        journal: Journal,
        writer: RunWriter,
        store: BlobStore,
        runner: SlotRunner,
        foresight: Foresight,
        elsewhere: Elsewhere | None = None,
    ) -> None:
        self._elsewhere = elsewhere
        self._loop = loop
        self._foresight = foresight
        self._directory = directory
        self._journal = journal
        self._writer = writer
        self._store = store
        self._runner = runner
        self._own: set[str] = set()
        """Keys whose newest result is this run's own: no need to look again."""

    def fetch(
        self, wanted: Wanted, sources: Sequence[Node], on_done: Callable[[Fetched], None]
    ) -> None:
        match wanted:
            case UserFile():
                self._user_file(wanted, on_done)
            case PastResult(key=key):
                self._find_past(key, on_done)
            case KeptFiles(files=files, by_content=True):
                self._verify(files, on_done)
            case KeptFiles(files=files):
                whole = all(self._store.intact(file) for file in files)
                self._loop.call_soon(on_done, KeptAnswer(whole))
            case Outlook() | Estimates():
                self._foresight.fetch(wanted, on_done)
            case ProgramAsked():
                ask_program(self._loop, wanted, on_done)
            case SentEarlier(runs=number):
                args = (self._journal.directory, self._writer.run, number)
                self._in_thread(lambda: _sent_earlier(*args), on_done)
            case _:
                raise AssertionError(f"nobody fetches {wanted}")

    def _verify(self, files: tuple[FileRecord, ...], on_done: Callable[[Fetched], None]) -> None:
        """Hashing takes long: a slot does it."""

        def heard(event: JobEvent) -> None:
            if isinstance(event, JobEnded):
                on_done(KeptAnswer(event.outcome == "succeeded"))

        self._runner.start(VerifyJob("verify", files), heard)

    def _find_past(self, key: str, on_done: Callable[[Fetched], None]) -> None:
        found = self._past(key)
        if isinstance(found, PastFound) or self._elsewhere is None:
            self._loop.call_soon(on_done, found)
            return
        elsewhere = self._elsewhere
        self._in_thread(lambda: elsewhere.result(key), on_done)

    def _in_thread(self, work: Callable[[], T], on_done: Callable[[T], None]) -> None:
        looking = self._loop.run_in_executor(None, work)
        looking.add_done_callback(lambda done: on_done(done.result()))

    def _past(self, key: str) -> Fetched:
        if key in self._own:
            return PastUnknown()
        found = self._journal.result(key)
        if found is None:
            return PastUnknown()
        run, ended = found
        if run == self._writer.run:
            self._own.add(key)
            return PastUnknown()  # two equal tasks of one run are both meant to run
        if not all(self._store.intact(file) for file in ended.outputs):
            return PastUnknown()
        told = (ended.stdout, ended.stderr, ended.foreign)
        return PastFound(run, ended.outputs, ended.result, *told)

    def _user_file(self, wanted: UserFile, on_done: Callable[[Fetched], None]) -> None:
        seen = None if wanted.in_place else file_status(self._directory / wanted.path)
        if seen is not None:
            known = self._journal.known_file(
                wanted.path, seen.st_size, seen.st_mtime_ns, seen.st_ino
            )
            if known is not None and self._store.intact(known):
                self._loop.call_soon(on_done, FileReady(known))
                return

        if seen is None and not wanted.in_place and self._elsewhere is not None:
            self._given_elsewhere(self._elsewhere, wanted, on_done)
            return

        def done(fetched: Fetched) -> None:
            if seen is not None and isinstance(fetched, FileReady):
                self._remember(seen, fetched)
            on_done(fetched)

        self._runner.fetch(wanted, done)

    def _given_elsewhere(
        self, elsewhere: Elsewhere, wanted: UserFile, on_done: Callable[[Fetched], None]
    ) -> None:
        def found(record: FileRecord | None) -> None:
            if record is not None:
                on_done(FileReady(record))
            else:  # a directory, or not there: it will be told
                self._runner.fetch(wanted, on_done)

        self._in_thread(lambda: elsewhere.file(wanted.path), found)

    def _remember(self, seen: os.stat_result, fetched: FileReady) -> None:
        if time.time_ns() - seen.st_mtime_ns > SETTLED_NS:
            self._writer.remember_file(seen.st_size, seen.st_mtime_ns, seen.st_ino, fetched.file)


def _sent_earlier(home: Path, run: str, number: int) -> SentFound:
    rows: deque[Sending] = deque(maxlen=SENT_MAX)
    with Journal.open(home, create=False, read_only=True) as journal:
        for one in [one.run for one in journal.runs() if one.run != run][-number:]:
            control_of((entry.event for entry in journal.events(one)), rows.append)
    return SentFound(tuple(rows))
