"""The process in which a peer drives a run that nobody writes any more: `python -m` this.

It works in a directory of the peer's own, `driven/RUN`, as any driver does in its user's. When the
run has ended, its results wait in the peer's cache until they are fetched, or DRIVEN_S have passed.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

from sureline.compose import HOME
from sureline.compose.grid_run import GridRun
from sureline.compose.node import open_cache, peer_directory
from sureline.journal.store import Journal
from sureline.peer import orphans
from sureline.peer.files.cache import CacheFullError, FileCache
from sureline.peer.removing import clear_away
from sureline.workflow.files import FileRecord
from sureline.workflow.mistakes import SurelineError
from sureline.world.identity.home import GridHome

DRIVEN_S = 7 * 86_400.0
"""How long results wait, after the run's last event."""


def driven_directory(home: GridHome) -> Path:
    return peer_directory(home) / "driven"


def relieve(home: GridHome, run: str, at_s: float) -> None:
    """Take the run over, not before this time (of `time.monotonic`, which all processes of a
    machine share), and drive it to its end. Raises SurelineError if it is not granted."""
    directory = driven_directory(home) / run
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    with Journal.open(directory / HOME) as journal:
        GridRun(journal, run, directory, home, None, relief_s=at_s).drive()
        cache = open_cache(home)
        try:
            for record in _outputs(journal, run):
                _offer(cache, directory, record)
            cache.sync()
        finally:
            cache.close()


def _offer(cache: FileCache, directory: Path, record: FileRecord) -> None:
    path = directory / record.path
    if os.path.lexists(path):
        try:
            cache.put(str(path), record.path)
        except CacheFullError as error:
            print(f"{record.path} stays with who made it: {error}", file=sys.stderr)


def _outputs(journal: Journal, run: str) -> list[FileRecord]:
    return [record for ended in journal.commits(run) for record in ended.outputs]


def forget_old(home: GridHome, cache: FileCache, now: float) -> None:
    """Let go of results that nobody has fetched for long."""
    place = driven_directory(home)
    for directory in place.iterdir() if place.is_dir() else ():
        if now - directory.stat().st_mtime < DRIVEN_S or not (directory / HOME).is_dir():
            continue
        with Journal.open(directory / HOME, create=False) as journal:
            for one in journal.runs():
                for record in _outputs(journal, one.run):
                    cache.drop(record)
        clear_away(str(directory), orphans.aside_of(str(peer_directory(home))))


def main(grid: str, run: str, at_s: str) -> int:
    try:
        relieve(GridHome.open(grid), run, float(at_s))
    except SurelineError as error:
        print(f"{time.strftime('%F %T')} {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
