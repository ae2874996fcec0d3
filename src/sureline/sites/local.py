"""The site `local`: processes of this machine, which go on when whoever started them is gone."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from sureline.sites import at_site
from sureline.sites.port import JobId, JobStatus, SiteError, SiteWork


class LocalSite:
    """`spool` is where jobs are kept; `slots`, if given, the cores that run at once, and what has
    no room waits."""

    name = "local"
    where = ""
    shares_files = True

    def __init__(self, spool: Path, slots: int | None = None) -> None:
        self._spool = str(spool.absolute())
        self._slots = slots

    def submit(self, work: SiteWork) -> list[JobId]:
        if work.options:
            raise SiteError(
                f"site {self.name} has no options, such as {work.options[0]}", again=False
            )
        try:
            at_site.submit(self._spool, plain(work, self._slots))
        except FileExistsError:
            raise SiteError(f"the tag {work.tag} was used before", again=False) from None
        except OSError as error:
            raise SiteError(f"cannot start a process here: {error}", again=True) from None
        return numbered(work)

    def look(self, jobs: Iterable[JobId]) -> Mapping[JobId, JobStatus]:
        return statuses(at_site.look(self._spool, [str(job) for job in jobs]))

    def find(self, tag: str = "") -> Mapping[JobId, str]:
        return {JobId(job): found for job, found in at_site.find(self._spool, tag).items()}

    def cancel(self, jobs: Iterable[JobId]) -> None:
        at_site.cancel(self._spool, [str(job) for job in jobs])

    def output(self, job: JobId, limit_bytes: int = 1 << 16) -> bytes:
        return at_site.output(self._spool, job, limit_bytes)

    def forget(self, tag: str) -> None:
        at_site.forget(self._spool, tag)

    def ahead(self, options: Sequence[str] = ()) -> int | None:
        return None

    def put(self, source: Path, target: str) -> None:
        copy_whole(source, Path(self._spool, target))

    def get(self, source: str, target: Path) -> None:
        copy_whole(Path(self._spool, source), target)


def plain(work: SiteWork, slots: int | None = None) -> dict[str, Any]:
    """A submission as `at_site` takes it, which enforces the limit itself."""
    found: dict[str, Any] = msgspec.to_builtins(work)
    return {**found, "enforced": True, "slots": slots}


def numbered(work: SiteWork) -> list[JobId]:
    return [JobId(f"{work.tag}/{index}") for index in range(work.count)]


def statuses(answer: Mapping[str, Mapping[str, Any]]) -> dict[JobId, JobStatus]:
    """What `at_site` answers; it comes from another machine, and is checked as such."""
    return {JobId(job): msgspec.convert(state, JobStatus) for job, state in answer.items()}


def copy_whole(source: Path, target: Path) -> None:
    try:
        target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=target.parent, delete=False) as new:
            with source.open("rb") as old:
                shutil.copyfileobj(old, new)
            shutil.copymode(source, new.name)
        Path(new.name).replace(target)
    except OSError as error:
        raise SiteError(f"cannot copy {source} to {target}: {error}", again=False) from None
