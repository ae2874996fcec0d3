"""The files of jobs at a site: inputs that are brought there, reports and outputs that come back.

A content goes to a site once, whoever reads it there; what was made there is there, too. All of it
is on the site's book, so that a process that takes the run over knows it.
"""

from __future__ import annotations

import asyncio
import tarfile
import tempfile
from collections.abc import Callable
from concurrent.futures import Executor
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import msgspec

from sureline.catalog.replicas import Replica
from sureline.compose.site_book import Place, SiteBook
from sureline.peer.jobs import CommandJob, JobEnded
from sureline.peer.store import BlobStore, DamagedError
from sureline.peer.tree import StoreError
from sureline.sites import task_at_site
from sureline.sites.port import Site, SiteError
from sureline.workflow.files import FileRecord

PAUSES_S = (1.0, 2.0, 4.0)
"""Before a site that is down is tried again; then its jobs are given back as lost."""

T = TypeVar("T")


class PlacedInput(NamedTuple):
    """Where an input of a task lies at the site, how, and whether it was brought for it."""

    path: str
    source: str
    sort: str
    brought: bool
    sha256: str = ""
    """If it is a copy of the user's own, which is checked there."""


class SiteReport(msgspec.Struct):
    """What `task_at_site` leaves behind; it comes from elsewhere, and is checked as such."""

    outcome: str
    reason: str = ""
    exit_code: int | None = None
    signal: int | None = None
    elapsed_s: float = 0.0
    cpu_s: float = 0.0
    memory_peak_bytes: int = 0
    stdout: str = ""
    stderr: str = ""
    made: list[tuple[str, str, int]] = []
    """(path, sort, bytes) of each output."""


async def again(what: Callable[[], Any]) -> Any:
    """Do it, and again if the site is down; raises the last SiteError."""
    for pause_s in PAUSES_S:
        try:
            return await what()
        except SiteError as error:
            if not error.again or error.unsure:
                raise
            await asyncio.sleep(pause_s)
    return await what()


class SiteFiles:
    """`name` is a directory at the site for what is brought; `replicas` are contents that the user
    has there, by digest; `elsewhere` finds a copy of one that is not in the store. Calls of the
    site are made in threads of `pool`."""

    def __init__(
        self,
        site: Site,
        name: str,
        book: SiteBook,
        pool: Executor,
        *,
        home: Path,
        directory: Path,
        scratch: Path,
        replicas: dict[str, Replica],
        elsewhere: Callable[[FileRecord, Path], Path | None],
    ) -> None:
        self._site = site
        self._files = name
        self._book = book
        self._pool = pool
        self._home = home
        self._directory = directory
        self._scratch = scratch
        self._replicas = replicas
        self._elsewhere = elsewhere
        self._moving: dict[str, asyncio.Future[None]] = {}

    async def _move(self, call: Callable[..., T], *args: Any) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._pool, call, *args)

    async def bring_tasks(self, tag: str, tasks: list[dict[str, Any]]) -> None:
        with tempfile.TemporaryDirectory(dir=self._scratch) as directory:
            listed = Path(directory, "tasks.json")
            await self._move(listed.write_bytes, msgspec.json.encode(tasks))
            await self._move(self._site.put, listed, f"{tag}/tasks.json")
            program = Path(task_at_site.__file__)
            await self._move(self._site.put, program, f"{tag}/task_at_site.py")

    async def placed(self, record: FileRecord) -> PlacedInput:
        """An input at the site; brought there if it is not."""
        replica = self._replicas.get(record.digest)
        if replica is not None and not record.directory:
            return PlacedInput(record.path, replica.path, "link", False, replica.sha256)
        sort = "tar" if record.directory else "program" if record.executable else "file"
        is_new = False
        if record.digest not in self._book.contents:
            moving = self._moving.get(record.digest)
            if moving is None:
                moving = self._moving[record.digest] = asyncio.ensure_future(
                    again(lambda: self._bring(record))
                )
                moving.add_done_callback(lambda _: self._moving.pop(record.digest, None))
                is_new = True
            await asyncio.shield(moving)
        there = f"../{self._book.contents[record.digest]}"
        return PlacedInput(record.path, there, sort, is_new)

    async def _bring(self, record: FileRecord) -> None:
        with tempfile.TemporaryDirectory(dir=self._scratch) as directory:
            source = await self._move(self._materialised, record, Path(directory))
            target = f"{self._files}/{record.digest}"
            await self._move(self._site.put, source, target)
        self._book.holds({record.digest: target})

    def _materialised(self, record: FileRecord, directory: Path) -> Path:
        """A whole copy of a stored file, or of one that is elsewhere, or a tar of a directory."""
        copy = directory / "copy"
        store = BlobStore(self._home, self._directory)
        try:
            store.materialise(record, str(copy))
        except DamagedError:
            found = self._elsewhere(record, directory)
            if found is None:
                raise
            if found.parent != directory:  # this machine reads it where it lies
                return found
            store.take_file(str(found), record.path, move=True)  # for other sites
            store.materialise(record, str(copy))
        if not record.directory:
            return copy
        packed = directory / "tar"
        with tarfile.open(packed, "w") as archive:
            archive.add(copy, ".")
        return packed

    async def collect(self, job: CommandJob, place: Place) -> JobEnded:
        """How a job went, by its report; what it made is in the store."""
        tag, index = place
        with tempfile.TemporaryDirectory(dir=self._scratch) as directory:
            where = Path(directory)
            await self._move(self._site.get, f"{tag}/report.{index}", where / "report")
            report = msgspec.json.decode((where / "report").read_bytes(), type=SiteReport)
            if [path for path, _, _ in report.made] != list(job.outputs) and (
                report.outcome == "succeeded" and job.outputs
            ):
                raise StoreError("its report names other outputs than it was to make")
            outputs: list[FileRecord] = []
            contents = {}
            for number, (path, sort, _) in enumerate(report.made):
                there = f"{tag}/made.{index}/{number}"
                record = await self._take(there, where / f"copy.{number}", path, sort)
                outputs.append(record)
                contents[record.digest] = there
        if contents:
            self._book.holds(contents)
        if report.outcome == task_at_site.CHANGED:
            return self._distrusted(job, report.reason)
        if report.outcome not in ("succeeded", "failed", "timeout"):
            raise StoreError(f"its report says {report.outcome!r}, which means nothing")
        return msgspec.convert(
            {**msgspec.to_builtins(report), "outputs": outputs}, JobEnded, from_attributes=True
        )

    def _distrusted(self, job: CommandJob, path: str) -> JobEnded:
        """A copy of the user's own there is not what it was: it is not used again."""
        for record in job.inputs:
            if record.path == path:
                self._replicas.pop(record.digest, None)
        reason = f"the registered copy of {path} there is not what it was"
        return JobEnded("lost", reason=reason, fault="machine")

    async def _take(self, there: str, copy: Path, path: str, sort: str) -> FileRecord:
        await self._move(self._site.get, there, copy)

        def stored() -> FileRecord:
            made = copy
            if sort == "tar":
                made = copy.with_suffix(".d")
                with tarfile.open(copy) as archive:
                    archive.extractall(made, filter="data")
            else:
                copy.chmod(0o755 if sort == "program" else 0o644)
            store = BlobStore(self._home, self._directory)
            return store.take(str(made), path, within=str(copy.parent), move=True)

        return await self._move(stored)
