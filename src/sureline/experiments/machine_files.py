"""Files on a simulated machine: its store, and fetching into it.

A store knows which contents it holds, not what they are. It is bounded: what was used longest ago
goes first, but never the only copy of what a job made here. `keeps` says whether it survives a
crash of its machine. The user's directory is a second place, which only publishing writes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Protocol

from sureline.experiments.host import Host
from sureline.experiments.work import TaskJob, Work
from sureline.peer.jobs import Blob, CommandJob, FileMissing, FileReady, JobEnded, UserFile
from sureline.run.past import KeptAnswer, KeptFiles, PastResult, PastUnknown
from sureline.workflow.files import FileRecord
from sureline.world.address import Node, node_of
from sureline.world.protocol import AgentId, Fetched, Timer, Wanted

HASH_BYTES_S = 1e9
LOOK_S = 0.0002
ASK_BYTES = 200
STALLED_S = 10.0
"""A source that sends nothing for so long is given up."""


class Store:
    """Contents by digest, least recently used first. `others` are the stores of all machines."""

    def __init__(
        self, node: Node, bound_bytes: int, keeps: bool, others: Mapping[Node, Store]
    ) -> None:
        self.node = node
        self.keeps = keeps
        self._bound_bytes = bound_bytes
        self._others = others
        self._sizes: dict[str, int] = {}
        self._made: dict[str, None] = {}
        self.used_bytes = 0
        self.published: dict[str, str] = {}
        """The user's directory: path -> digest."""

    def __contains__(self, digest: str) -> bool:
        return digest in self._sizes

    def use(self, digest: str) -> None:
        """It is the last to go from now on."""
        self._sizes[digest] = self._sizes.pop(digest)

    def keep(self, file: FileRecord) -> str:
        """Take a content in; '' or a sentence on why there is no room for it."""
        if file.digest in self._sizes:
            self.use(file.digest)
            return ""
        self._sizes[file.digest] = file.size
        self.used_bytes += file.size
        self._evict(file.digest)
        if self.used_bytes > self._bound_bytes:
            self._drop(file.digest)
            return f"no room for {file.path} on {self.node}"
        return ""

    def keep_made(self, files: Iterable[FileRecord]) -> str:
        """As `keep`, for what a job made here: nobody else has it."""
        for file in files:
            refused = self.keep(file)
            if refused:
                return refused
            self._made[file.digest] = None
        return ""

    def _evict(self, spared: str) -> None:
        for digest in list(self._sizes):
            if self.used_bytes <= self._bound_bytes:
                return
            if digest != spared and not (digest in self._made and self._is_only(digest)):
                self._drop(digest)

    def _is_only(self, digest: str) -> bool:
        return not any(digest in other for other in self._others.values() if other is not self)

    def _drop(self, digest: str) -> None:
        self.used_bytes -= self._sizes.pop(digest)
        self._made.pop(digest, None)

    def crashed(self) -> None:
        if not self.keeps:
            self._sizes.clear()
            self._made.clear()
            self.used_bytes = 0

    def first_missing(self, job: TaskJob) -> str:
        """The path of an input that is not here; '' if all are."""
        if not isinstance(job, CommandJob):
            return ""
        for file in job.inputs:
            if file.digest not in self._sizes:
                return file.path
            self.use(file.digest)
        return ""

    def publish(self, files: Sequence[FileRecord]) -> JobEnded:
        verified = self.verify(files)
        if verified.outcome == "succeeded":
            for file in files:
                self.published[file.path] = file.digest
        return verified

    def verify(self, files: Sequence[FileRecord]) -> JobEnded:
        for file in files:
            if file.digest not in self._sizes:
                return JobEnded("failed", reason=f"{file.path} is not in the store")
        return JobEnded("succeeded")


class Carrier(Protocol):
    """The network, as far as bulk transfers go."""

    def transfer(
        self, source: Node, target: Node, size_bytes: float, on_done: Callable[[], None]
    ) -> None: ...


class SimulatedFetcher:
    def __init__(
        self, host: Host, work: Work, store: Store, stores: Mapping[Node, Store], carrier: Carrier
    ) -> None:
        self._host = host
        self._work = work
        self._store = store
        self._stores = stores
        self._carrier = carrier

    def fetch(
        self, wanted: Wanted, sources: Sequence[AgentId], on_done: Callable[[Fetched], None]
    ) -> None:
        match wanted:
            case UserFile(path=path):
                self._user_file(self._work.user_file(path), on_done)
            case Blob(file=file) if file.digest in self._store:
                self._store.use(file.digest)
                self._host.after(LOOK_S, lambda: on_done(FileReady(file)))
            case Blob(file=file):
                nodes = [node for source in sources if (node := node_of(source)) != self._host.node]
                _Transfer(self, file, list(dict.fromkeys(nodes)), on_done).try_next()
            case PastResult():
                self._host.after(LOOK_S, lambda: on_done(PastUnknown()))
            case KeptFiles(files=files, by_content=by_content):
                whole = all(file.digest in self._store for file in files)
                seconds = LOOK_S
                if by_content:
                    seconds += sum(file.size for file in files) / HASH_BYTES_S
                self._host.after(seconds, lambda: on_done(KeptAnswer(whole)))
            case _:
                raise AssertionError(f"nobody fetches {wanted}")

    def _user_file(self, file: FileRecord, on_done: Callable[[Fetched], None]) -> None:
        def hashed() -> None:
            refused = self._store.keep(file)
            on_done(FileMissing(file.path, refused) if refused else FileReady(file))

        self._host.after(LOOK_S + file.size / HASH_BYTES_S, hashed)


class _Transfer:
    """One content, from the first source that gives it: ask, wait, take it in."""

    def __init__(
        self,
        fetcher: SimulatedFetcher,
        file: FileRecord,
        sources: list[Node],
        on_done: Callable[[Fetched], None],
    ) -> None:
        self._fetcher = fetcher
        self._file = file
        self._sources = sources
        self._on_done = on_done
        self._tried = 0
        self._patience: Timer | None = None

    def try_next(self) -> None:
        host = self._fetcher._host
        if self._tried == len(self._sources):
            reason = f"{self._file.path} could not be had from any of {len(self._sources)} sources"
            host.after(LOOK_S, lambda: self._on_done(FileMissing(self._file.path, reason)))
            return
        number = self._tried
        source = self._sources[number]
        self._tried += 1
        self._patience = host.after(STALLED_S, lambda: self._stalled(number))
        carrier = self._fetcher._carrier
        carrier.transfer(host.node, source, ASK_BYTES, lambda: self._asked(number, source))

    def _asked(self, number: int, source: Node) -> None:
        """At the source: send it, or say that it is not here."""
        store = self._fetcher._stores.get(source)
        has = store is not None and self._file.digest in store
        size_bytes = self._file.size if has else ASK_BYTES
        self._fetcher._carrier.transfer(
            source,
            self._fetcher._host.node,
            size_bytes,
            lambda: self._answered(number, source, has),
        )

    def _answered(self, number: int, source: Node, has: bool) -> None:
        if number != self._tried - 1 or self._patience is None:
            return  # it was given up meanwhile
        self._patience.cancel()
        self._patience = None
        if not has:
            self.try_next()
            return
        refused = self._fetcher._store.keep(self._file)
        path = self._file.path
        self._on_done(FileMissing(path, refused) if refused else FileReady(self._file, source))

    def _stalled(self, number: int) -> None:
        if number == self._tried - 1:
            self._patience = None
            self.try_next()
