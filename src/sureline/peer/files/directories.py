"""Fetching a directory: its manifest, then every file that the manifest names and is not here.

The manifest is fetched by its digest, so nobody can alter it; but anybody may have made it, so it
is checked before anything is done with it (`tree.from_manifest`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, NamedTuple, Protocol

from sureline.peer.files.cache import CacheFullError, FileCache
from sureline.peer.files.finding import FetchError
from sureline.peer.files.wire import unique
from sureline.peer.store import StoreError
from sureline.peer.tree import TreeEntry
from sureline.workflow.files import FileRecord
from sureline.world.address import NO_NODE, Node

UNKNOWN_SIZE = -1
"""The size of a file of which only the digest is known."""
AT_ONCE = 16
"""So many files of one directory are asked for at a time."""


class Content(Protocol):
    """Brings one content into the cache; the node that gave it. Raises FetchError."""

    def __call__(
        self, digest: str, size: int, executable: bool, sources: Sequence[Node]
    ) -> Awaitable[Node]: ...


class DirectoryKit(NamedTuple):
    cache: FileCache
    content: Content
    in_thread: Callable[[Callable[[], Any]], Awaitable[Any]]
    locate: Callable[[str], Awaitable[list[Node]]]


async def fetch(kit: DirectoryKit, record: FileRecord, sources: Sequence[Node]) -> Node:
    """Bring all of a directory into the cache; the node that gave most files. Raises FetchError."""
    given: dict[Node, int] = {}
    if kit.cache.path(record.digest) is None:
        source = await kit.content(record.digest, UNKNOWN_SIZE, False, sources)
        given[source] = 1
    try:
        entries = await kit.in_thread(lambda: kit.cache.store.entries(record))
        missing: list[TreeEntry] = await kit.in_thread(lambda: kit.cache.missing_parts(entries))
        await kit.in_thread(lambda: kit.cache.make_room(sum(entry.size for entry in missing)))
    except (StoreError, CacheFullError) as error:
        raise FetchError(str(error)) from None
    if missing:
        likely = unique([*given, *sources, *await kit.locate(record.digest)])
        await _fetch_all(kit, missing, likely, given)
    return max(given, key=given.__getitem__, default=NO_NODE)


async def _fetch_all(
    kit: DirectoryKit, missing: list[TreeEntry], likely: Sequence[Node], given: dict[Node, int]
) -> None:
    """A bounded number of workers share the list; the first failure ends all of them."""
    waiting = iter(missing)

    async def work() -> None:
        for entry in waiting:
            program = entry.kind == "program"
            source = await kit.content(entry.what, entry.size, program, likely)
            given[source] = given.get(source, 0) + entry.size

    workers = [asyncio.ensure_future(work()) for _ in range(min(AT_ONCE, len(missing)))]
    try:
        await asyncio.gather(*workers)
    finally:
        for worker in workers:
            worker.cancel()
        await asyncio.gather(*workers, return_exceptions=True)
