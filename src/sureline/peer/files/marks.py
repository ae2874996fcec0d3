"""What a grid's peer agent says must stay in its store, said to the file cache."""

from __future__ import annotations

import re
from collections.abc import Iterable

from sureline.peer.files.cache import PUT, FileCache
from sureline.peer.files.claims import Pin
from sureline.workflow.files import FileRecord

DIGEST = re.compile("[0-9a-f]{64}")


class CacheMarks:
    """`peer.marks.Marks` on a file cache. What several need is pinned there once."""

    def __init__(self, cache: FileCache) -> None:
        self._cache = cache
        self._pins: dict[tuple[str, bool], tuple[Pin, set[str]]] = {}
        """By digest, and whether it is a directory; with who needs it."""
        self._pinned: dict[str, list[tuple[str, bool]]] = {}

    def pin(self, files: Iterable[FileRecord], why: str) -> None:
        for record in files:
            what = record.digest, record.directory
            if what not in self._pins:
                self._pins[what] = self._cache.pin(record, why), set()
            self._pins[what][1].add(why)
            self._pinned.setdefault(why, []).append(what)

    def unpin(self, why: str) -> None:
        for what in self._pinned.pop(why, ()):
            pin, needed_by = self._pins.get(what, (None, set()))
            needed_by.discard(why)
            if pin is not None and not needed_by:
                del self._pins[what]
                pin.release()

    def keep(self, files: Iterable[FileRecord], run: str) -> None:
        for record in files:
            self._cache.mark_only_copy(record, run)

    def release(self, digests: Iterable[str], run: str) -> None:
        for digest in digests:
            if run == PUT or not DIGEST.fullmatch(digest):
                continue  # the writer may say anything, and marks are files
            for directory in (False, True):  # whichever it is: the other has no mark
                record = FileRecord("", digest, 0, directory=directory)
                self._cache.release_only_copy(record, run)

    def release_run(self, run: str) -> None:
        if run != PUT:  # what the user put here is no writer's to release
            self._cache.release_run(run)

    def runs(self) -> Iterable[str]:
        return self._cache.marked_runs()
