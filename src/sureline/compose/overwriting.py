"""Nobody's file is overwritten silently: what stands where results go, before and after a run.

A file that no run of this directory made is somebody's own: a run whose outputs would replace it
is refused, unless it is told to overwrite. Whatever a result replaces is kept (`peer.publish`).
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sureline.compose.session import Watcher
from sureline.journal.errors import NoJournalError
from sureline.journal.store import Journal
from sureline.workflow.mistakes import UserError
from sureline.workflow.model import Graph, Pause

TOLD_MAX = 5


def refuse_to_overwrite(graph: Graph, home: Path) -> None:
    """Raise a UserError that names what the graph's outputs would replace and no run here made."""
    standing = _standing(graph, home.parent)
    if not standing:
        return
    try:
        with Journal.open(home, create=False, read_only=True) as journal:
            standing = _of_nobody(standing, journal)
    except NoJournalError:
        pass
    if standing:
        more = len(standing) - TOLD_MAX
        shown = ", ".join(sorted(standing)[:TOLD_MAX]) + (f" and {more} more" if more > 0 else "")
        raise UserError(
            f"{shown} would be overwritten, and was not made by a run here; "
            "move it away, or give --overwrite (what is replaced is kept in .sureline/replaced/)"
        )


def _standing(graph: Graph, directory: Path) -> set[str]:
    """The outputs that are there already."""
    top = str(directory)
    return {
        path
        for task in graph.tasks
        if not isinstance(task.action, Pause)
        for path in task.outputs
        if os.path.lexists(f"{top}/{path}")
    }


def _of_nobody(paths: set[str], journal: Journal) -> set[str]:
    """Those that no run of the journal has made; the newest runs know most of them."""
    for one in reversed(journal.runs()):
        if not paths:
            break
        earlier = journal.workflow(one.run)
        if paths.isdisjoint(earlier.producer):
            continue
        made = {path for name in journal.committed(one.run) for path in earlier.task(name).outputs}
        paths = paths - made
    return paths


@contextmanager
def telling_replaced(home: Path, watcher: Watcher | None) -> Iterator[None]:
    """Say in one line what results have replaced meanwhile."""
    before = set(_replaced(home))
    yield
    found = sorted(set(_replaced(home)) - before)
    if found and watcher is not None:
        more = len(found) - TOLD_MAX
        shown = ", ".join(found[:TOLD_MAX]) + (f" and {more} more" if more > 0 else "")
        watcher.told(f"what results replaced is kept in .sureline/replaced/: {shown}")


def _replaced(home: Path) -> Iterator[str]:
    """What lies there, by path: a file NAME.N, or a directory of that name."""
    top = str(home / "replaced")
    for at, directories, files in os.walk(top):
        kept = [name for name in directories if _is_numbered(name)]
        for name in [*files, *kept]:
            yield os.path.relpath(f"{at}/{name}", top)
        directories[:] = [name for name in directories if name not in kept]


def _is_numbered(name: str) -> bool:
    return name.rpartition(".")[2].isdigit()
