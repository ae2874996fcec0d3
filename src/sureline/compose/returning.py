"""Runs of this home that others have gone on with: their results come home unasked.

Who submits a run to a grid leaves a note in the home: which run, in which directory. The peer that
serves from the home looks at the notes now and then. A run that has not ended here, or whose
results are not all here, that no process here drives or follows, and that has ended on the grid is
fetched, as by `sureline fetch`.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

from sureline.compose import HOME
from sureline.compose.elsewhere import find_copies
from sureline.compose.node import LiveNode, peer_directory
from sureline.journal.errors import JournalError
from sureline.journal.locks import RunLock
from sureline.journal.store import Journal
from sureline.run.copies import PART, CopyReader
from sureline.workflow.files import result_path
from sureline.world.address import at
from sureline.world.identity.home import GridHome
from sureline.world.identity.questions import ask
from sureline.world.identity.run_keys import GridTrust

NOTES = "submitted"
LOOK_S = 20.0
YOUNG_S = 30.0
"""A run of which something was noted lately may be about to be driven here."""
AGAIN_S, AGAIN_S_MAX = 20.0, 3600.0
"""After a fetch that did not bring all of it, since a peer was away; doubles each time."""
KEPT_S = 30 * 86_400.0
AT_ONCE_MAX = 20
"""Notes that are looked at in one turn."""


def _notes(home: GridHome) -> Path:
    return peer_directory(home) / NOTES


def note_run(home: GridHome, run: str, directory: Path) -> None:
    """The run was submitted from here."""
    place = _notes(home)
    place.mkdir(mode=0o700, parents=True, exist_ok=True)
    (place / f".{run}").write_bytes(os.fsencode(directory.absolute()))
    os.replace(place / f".{run}", place / run)


def left(home: GridHome, now: float) -> list[tuple[str, Path]]:
    """Runs that were submitted from here and have no end here, or not all of their results, with
    their directories. Notes of others are removed."""
    found = []
    place = _notes(home)
    for note in sorted(place.iterdir()) if place.is_dir() else ():
        age_s = now - note.stat().st_mtime
        if note.name.startswith(".") or age_s < YOUNG_S:
            continue
        directory = Path(os.fsdecode(note.read_bytes()))
        if age_s > KEPT_S or _is_over(directory, note.name):
            note.unlink(missing_ok=True)
        elif not RunLock.held_elsewhere(directory / HOME / "work" / note.name):
            found.append((note.name, directory))
    return found[:AT_ONCE_MAX]


def _is_over(directory: Path, run: str) -> bool:
    try:
        with Journal.open(directory / HOME, create=False, read_only=True) as journal:
            if all(one.run != run for one in journal.runs()):
                return True
            return journal.summary(run).ended is not None and _is_here(directory, journal, run)
    except (JournalError, OSError):
        return True


def _is_here(directory: Path, journal: Journal, run: str) -> bool:
    """Whether the results that came home are all there: the journal may have learned of the end
    while a peer that had some of them was away."""
    return all(
        os.path.lexists(directory / record.path)
        for ended in journal.commits(run)
        for record in ended.outputs
        if record.path != result_path(ended.task)
    )


class Returning:
    """Looks after the notes of a home, on the node of its peer. `tell` is for the user."""

    def __init__(self, home: GridHome, node: LiveNode, tell: Callable[[str], None]) -> None:
        self._home = home
        self._node = node
        self._tell = tell
        me = at(node.id, PART)
        self._reader = CopyReader(
            me,
            node.place(me),
            node.kademlia,
            GridTrust(node.credentials),
            lambda start: ask(node.credentials, node.id, start),
            keeps=True,
        )
        node.join(self._reader)
        self._not_before_s: dict[str, float] = {}
        self._again_s: dict[str, float] = {}

    async def run(self) -> None:
        while True:
            await asyncio.sleep(LOOK_S)
            for run, directory in await asyncio.to_thread(left, self._home, time.time()):
                if time.monotonic() >= self._not_before_s.get(run, 0.0):
                    await self._look(run, directory)

    async def _look(self, run: str, directory: Path) -> None:
        copies = await find_copies(self._node, self._reader, run)
        if not any(c.about.run == run and c.about.state != "running" for c in copies):
            return
        again_s = self._again_s.get(run, AGAIN_S)
        self._again_s[run] = min(AGAIN_S_MAX, 2 * again_s)
        self._not_before_s[run] = time.monotonic() + again_s
        if await self._fetch(run, directory) == 0:
            self._tell(f"run {run} has ended elsewhere; its results are in {directory}")

    async def _fetch(self, run: str, directory: Path) -> int:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            *("-m", "sureline", "fetch", run, "--json"),
            cwd=directory,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.DEVNULL,
            env={**os.environ, "SURELINE_HOME": str(self._home.home)},
        )
        try:
            return await process.wait()
        except asyncio.CancelledError:
            with contextlib.suppress(ProcessLookupError):
                process.terminate()
            raise
