"""Which results of earlier runs a new one will use again, told before it starts.

Only what the journal knows already counts: a user's file that would have to be hashed first may
have changed, so what reads it is taken to run. The run itself looks again.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

from sureline.journal.store import Journal
from sureline.peer.store import BlobStore
from sureline.run.known import Known
from sureline.workflow.files import FileRecord
from sureline.workflow.model import Graph
from sureline.workflow.shapes import topological_order


def reusable(graph: Graph, journal: Journal, directory: Path) -> Iterator[int]:
    """The tasks whose results are there, each after those that it waits for."""
    known, store = Known(graph), BlobStore(journal.directory, directory)
    found: set[int] = set()
    for task in topological_order(graph):
        if not found.issuperset(graph.parents[task]):
            continue
        if not _identified(task, known, journal, store, directory):
            continue
        key = known.key(task)
        past = journal.result(key) if key else None
        if past is None or not all(store.intact(record) for record in past[1].outputs):
            continue
        known.add(past[1].outputs)
        known.keep_result(task, past[1].result)
        found.add(task)
        yield task


def _identified(
    task: int, known: Known, journal: Journal, store: BlobStore, directory: Path
) -> bool:
    """Whether all the user's files that the task reads have identities now."""
    for path in known.missing(task):
        record = None if known.lies_in_place(path) else _seen(path, journal, directory)
        if record is None or not store.intact(record):
            return False
        known.add([record])
    return True


def _seen(path: str, journal: Journal, directory: Path) -> FileRecord | None:
    """What is known of a file of the user's that looks as it did when it was hashed."""
    status = file_status(directory / path)
    if status is None:
        return None
    return journal.known_file(path, status.st_size, status.st_mtime_ns, status.st_ino)


def file_status(path: Path) -> os.stat_result | None:
    """Of an ordinary file; None for anything else, or nothing."""
    try:
        status = os.stat(path)
    except OSError:
        return None  # whoever needs it will say what is wrong with it
    return status if stat.S_ISREG(status.st_mode) else None
