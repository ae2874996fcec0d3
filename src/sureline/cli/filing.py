"""Commands for files on a grid, by their content: files put, get, locate, ls, rm."""

from __future__ import annotations

import os
import re
import sys
import time
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import cyclopts
from cyclopts import Parameter

from sureline.cli import console
from sureline.cli.gridding import Grid, told
from sureline.cli.options import Json
from sureline.workflow.files import FileRecord
from sureline.workflow.mistakes import UserError

if TYPE_CHECKING:
    from sureline.peer.files.cache import CachedFile, FileCache
    from sureline.peer.files.service import FetchedFile, FileService

T = TypeVar("T")

TOLD_EVERY_S = 1.0
TOLD_EVERY_ON_TERMINAL_S = 0.1
_DIGEST = re.compile("([0-9a-f]{64})(/?)")

Digest = Annotated[
    str,
    Parameter(
        help="The content, as 'files put' printed it: 64 hexadecimal digits, / if it is a "
        "directory."
    ),
]

files = cyclopts.App(
    name="files",
    help="""Share files with a grid by their content, and fetch them.

    A file's name on a grid is the BLAKE3 hash of its content, so what comes under that name is the
    right file, whoever gave it. Every home has a cache of such files, which its peer serves.""",
)


def files_put(
    paths: Annotated[list[Path], Parameter(help="Files or directories.")],
    /,
    *,
    grid: Grid = None,
    json: Json = False,
) -> int:
    """Put copies of files or directories where the whole grid can fetch them; prints their digests.

    They go into this home's cache and stay there until 'sureline files rm'. The peer that serves
    from this home gives them to others.

    Example: sureline files put genome.fa reads/
    """
    with _cache(grid) as cache:
        found = put_all(cache, paths)
        served = cache.shared.served()
    if json:
        console.print_json({"files": [_as_data(*one) for one in found], "served": served})
    else:
        for path, record in found:
            console.say(f"{_name(record)}  {path}")
    if not served:
        console.note(
            "note: no peer serves from this home now, so nobody can fetch this yet; "
            f"start one with: sureline peer{f' --grid {grid}' if grid else ''}"
        )
    return 0


def put_all(cache: FileCache, paths: list[Path]) -> list[tuple[Path, FileRecord]]:
    """Put the user's files into the cache, and leave word to the peer that serves it."""
    found = []
    for path in paths:
        try:
            record = cache.put(os.fspath(path), path.name or os.fspath(path))
        except FileNotFoundError:
            raise UserError(f"there is no file {path}; check the name") from None
        except OSError as error:
            reason = os.strerror(error.errno or 0)
            raise UserError(f"{path} cannot be put into the cache ({reason})") from None
        cache.shared.remember(record.digest, fresh=True)
        found.append((path, record))
    return found


def files_get(
    digest: Digest,
    /,
    *,
    output: Annotated[
        Path | None,
        Parameter(
            name=["--output", "-o"],
            help="Where to put it. Default: the current directory, as the start of its digest.",
        ),
    ] = None,
    grid: Grid = None,
    quiet: Annotated[
        bool, Parameter(name=["--quiet", "-q"], negative="", help="Show no progress.")
    ] = False,
    json: Json = False,
) -> int:
    """Fetch a file or directory from the grid, from all peers that have it at once.

    It is verified, and appears at its place only when it is complete. Fetching goes on where an
    earlier attempt ended.

    Example: sureline files get 81f2...e07a -o genome.fa
    """
    record = _wanted(digest)
    target = output if output is not None else Path(record.digest[:16])
    with _cache(grid) as cache, cache.pin(record, "being fetched"):
        ready, source = cache.ready(record), ""
        if ready is None:
            ready, source = _run(_over_the_grid(grid, record, quiet))
        place(cache, ready, target)
    if json:
        console.print_json({**_as_data(target, ready), "source": source or None})
    elif not quiet:
        console.note(f"{target} is complete" + (f", from {source}" if source else ""))
    return 0


async def _over_the_grid(grid: str | None, record: FileRecord, quiet: bool) -> FetchedFile:
    from sureline.compose.node import open_node

    async with open_node(grid) as node:
        return await fetch(node.files, record, None if quiet else FetchProgress())


async def fetch(
    service: FileService, record: FileRecord, progress: FetchProgress | None
) -> FetchedFile:
    try:
        return await service.fetch(record, (), progress)
    finally:
        if progress is not None:
            progress.end()


def place(cache: FileCache, record: FileRecord, target: Path) -> None:
    """Put a file of the cache at the user's path, atomically."""
    from sureline.peer.publish import publish

    where = os.path.abspath(target)
    parent, name = os.path.split(where)
    if not os.path.isdir(parent):
        raise UserError(f"{parent} is not a directory; make it first, or name another place")
    try:
        publish(cache.store, record, where, parent, f"{parent}/{name}.replaced")
    except OSError as error:
        reason = os.strerror(error.errno or 0)
        raise UserError(f"{target} cannot be written ({reason}); name another place") from None


def files_locate(digest: Digest, /, *, grid: Grid = None, json: Json = False) -> int:
    """List the peers that are known to have a file.

    Exit code 1 if there are none.

    Example: sureline files locate 81f2...e07a
    """
    record = _wanted(digest)
    with _cache(grid) as cache:
        here = cache.ready(record) is not None
    nodes = _run(_located(grid, record.digest))
    if json:
        console.print_json({"digest": record.digest, "here": here, "nodes": nodes})
    else:
        if here:
            console.say("in this home's cache")
        for node in nodes:
            console.say(node)
        if not here and not nodes:
            console.note(f"no peer is known to have {record.digest}")
    return 0 if here or nodes else 1


async def _located(grid: str | None, digest: str) -> list[str]:
    from sureline.compose.node import open_node

    async with open_node(grid) as node:
        return sorted(await node.files.locate(digest))


def files_ls(*, grid: Grid = None, json: Json = False) -> int:
    """List what this home's cache holds: digest, size, when it was last used, what keeps it.

    Example: sureline files ls
    """
    with _cache(grid) as cache:
        held = cache.held()
        served, bound = cache.shared.served(), cache.shared.bound()
    total = sum(one.size for one in held)
    if json:
        rows = [_row(one) for one in held]
        console.print_json({"files": rows, "size": total, "size_max": bound, "served": served})
        return 0
    now = time.time()
    for one in held:
        why = "; ".join(_reasons(one))
        ago = console.duration(max(0.0, now - one.used_at))
        console.say(f"{one.digest}  {console.size(one.size):>9}  {ago:>12} ago  {why}".rstrip())
    of = "" if bound is None else f" of {console.size(bound)}"
    console.say(f"{console.counted(len(held), 'file')}, {console.size(total)}{of}")
    return 0


def files_rm(
    digests: Annotated[list[str], Parameter(help="What 'files put' printed.")],
    /,
    *,
    grid: Grid = None,
    json: Json = False,
) -> int:
    """Take back what 'files put' put into this home's cache.

    What a run or a task still needs stays until it is over; exit code 1 then. Copies that other
    peers have fetched are theirs.

    Example: sureline files rm 81f2...e07a
    """
    wanted = [_wanted(digest) for digest in digests]
    with _cache(grid) as cache:
        kept = {record.digest: cache.drop(record) for record in wanted}
    if json:
        console.print_json({"removed": [digest for digest, why in kept.items() if not why]})
    for digest, why in kept.items():
        if why:
            console.note(f"{digest} stays for now: {why}")
    return 1 if any(kept.values()) else 0


def _run(work: Coroutine[Any, Any, T]) -> T:
    from sureline.compose.node import grid_loop

    with grid_loop() as loop:
        return loop.run(work)


files.command(files_put, name="put")
files.command(files_get, name="get")
files.command(files_locate, name="locate")
files.command(files_ls, name="ls")
files.command(files_rm, name="rm")


class FetchProgress:
    """Tells on stderr how far a fetch is: one line that changes on a terminal, else a line now and
    then."""

    def __init__(self, write: Callable[[str], object] | None = None) -> None:
        self._live = write is None and sys.stderr.isatty()
        self._write = write or sys.stderr.write
        self._every_s = TOLD_EVERY_ON_TERMINAL_S if self._live else TOLD_EVERY_S
        self._started = time.monotonic()
        self._told_at = 0.0

    def __call__(self, there: int, size: int) -> None:
        now = time.monotonic()
        if now - self._told_at < self._every_s:
            return
        self._told_at = now
        rate = there / max(1e-3, now - self._started)
        share = 100 * there // max(1, size)
        text = f"{share:3d} % of {console.size(size)}, {console.size(rate)}/s"
        self._write(f"\r{text:<60}" if self._live else f"{text}\n")

    def end(self) -> None:
        if self._live and self._told_at:
            self._write(f"\r{'':<60}\r")


@contextmanager
def _cache(grid: str | None) -> Iterator[FileCache]:
    from sureline.compose.node import open_cache
    from sureline.world.identity.home import GridHome

    with told():
        cache = open_cache(GridHome.open(grid))
    try:
        yield cache
    finally:
        cache.close()


def _wanted(digest: str) -> FileRecord:
    from sureline.peer.files.service import UNKNOWN_SIZE

    match = _DIGEST.fullmatch(digest)
    if match is None:
        raise UserError(
            f"{digest!r} is not a digest; give the 64 hexadecimal digits that 'files put' printed"
        )
    return FileRecord(digest[:16], match[1], UNKNOWN_SIZE, directory=bool(match[2]))


def _name(record: FileRecord) -> str:
    return record.digest + ("/" if record.directory else "")


def _as_data(path: Path, record: FileRecord) -> dict[str, Any]:
    return {
        "path": os.fspath(path),
        "digest": _name(record),
        "directory": record.directory,
        "size": record.size,
    }


def _reasons(one: CachedFile) -> list[str]:
    return list(dict.fromkeys(claim.why for claim in one.claims))


def _row(one: CachedFile) -> dict[str, Any]:
    return {
        "digest": one.digest,
        "size": one.size,
        "last_used": console.moment(one.used_at),
        "kept_for": _reasons(one),
    }
