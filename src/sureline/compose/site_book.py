"""What was handed to a site, on disk before the site hears of it, so that a process that takes the
run over finds its jobs there and submits none of them again.

One file for each run and site, of JSON lines that are only added to: what is about to be submitted
under which tag, which jobs it became, which of them are over or not wanted any more, and which
contents lie at the site. A last line that a crash cut short is passed over: what it was to say had
not been done yet.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import msgspec

from sureline.peer.content import hash_bytes
from sureline.peer.jobs import CommandJob
from sureline.sites.port import JobId

Place = tuple[str, int]
"""A tag, and an index within its submission."""


class Submission(msgspec.Struct):
    """Jobs that were, or were to be, submitted together. `over` are indices that need no look."""

    tag: str
    prints: list[str]
    jobs: list[JobId] = []
    over: set[int] = set()


class SiteBook:
    """All methods return when what they say is on disk."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._path = path
        self.submissions: dict[str, Submission] = {}
        self.contents: dict[str, str] = {}
        """By digest: where a content lies at the site, below the site's own directory."""
        for line in self._lines():
            self._apply(line)
        self._file = open(path, "ab")  # noqa: SIM115 - held until `close`

    def _lines(self) -> list[dict[str, Any]]:
        try:
            data = self._path.read_bytes()
        except FileNotFoundError:
            return []
        whole, newline, torn = data.rpartition(b"\n")
        if torn:  # cut off, so that the next line does not become part of it
            os.truncate(self._path, len(whole) + len(newline))
        return [msgspec.json.decode(line) for line in whole.splitlines()]

    def _apply(self, line: dict[str, Any]) -> None:
        match line:
            case {"tag": tag, "prints": prints}:
                self.submissions[tag] = Submission(tag, prints)
            case {"tag": tag, "jobs": jobs}:
                self.submissions[tag].jobs = [JobId(job) for job in jobs]
            case {"over": (tag, index)}:
                self.submissions[tag].over.add(index)
            case {"contents": contents}:
                self.contents.update(contents)

    def _say(self, *lines: dict[str, Any], sync: bool = True) -> None:
        for line in lines:
            self._file.write(msgspec.json.encode(line) + b"\n")
            self._apply(line)
        self._file.flush()
        if sync:
            os.fsync(self._file.fileno())

    def about_to_submit(self, tag: str, prints: list[str]) -> None:
        self._say({"tag": tag, "prints": prints})

    def submitted(self, tag: str, jobs: list[JobId]) -> None:
        self._say({"tag": tag, "jobs": jobs})

    def over(self, place: Place) -> None:
        """Its end was told, or it is to be ended. If a crash loses this, the job is looked at once
        more, and nothing is run twice."""
        self._say({"over": list(place)}, sync=False)

    def holds(self, contents: dict[str, str]) -> None:
        self._say({"contents": contents}, sync=False)

    def close(self) -> None:
        self._file.close()

    def remove(self) -> None:
        """Nothing of the run is at the site any more."""
        self.close()
        self._path.unlink(missing_ok=True)


def print_of(job: CommandJob) -> str:
    """What a job is, whichever attempt of its task: two that are equal do the same."""
    parts = (
        *(job.task, job.run, job.shell, job.stdin, job.timeout_s, job.cores),
        *(sorted(job.env.items()), job.outputs),
        sorted((file.path, file.digest, file.executable) for file in job.inputs),
    )
    return hash_bytes(msgspec.msgpack.encode(parts))
