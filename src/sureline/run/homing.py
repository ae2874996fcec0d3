"""Brings results home: every output is fetched to the writer's node, in the order of commits.

A file whose holders are all away waits GRACE_S for one of them to come back. One that no holder
turns out to have is given up at once. `on_gone` then decides what becomes of the task.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable

import msgspec

from sureline.peer.jobs import Blob, FileReady
from sureline.run.holders import Holders
from sureline.workflow.files import FileRecord
from sureline.world.address import Node
from sureline.world.protocol import Fetched, World

UNDER_WAY_MAX = 8
TRIES_MAX = 3
RETRY_S = 0.5
GRACE_S = 5.0


class _Item(msgspec.Struct):
    task: int
    file: FileRecord
    tries: int = 0
    away_since: float | None = None
    dropped: bool = False


class Homing:
    """`on_home(task, record, source)` for each file that has come; `on_gone(task, path)` for one
    that cannot; `on_idle` when nothing is left."""

    def __init__(
        self,
        world: World,
        holders: Holders,
        *,
        on_home: Callable[[int, FileReady], None],
        on_gone: Callable[[int, str], None],
        on_idle: Callable[[], None],
    ) -> None:
        self._world = world
        self._holders = holders
        self._on_home = on_home
        self._on_gone = on_gone
        self._on_idle = on_idle
        self._waiting: deque[_Item] = deque()
        self._under_way = 0
        self._of_task: dict[int, list[_Item]] = {}
        self._away: dict[int, _Item] = {}
        """Items whose holders are all away, by a number of their own."""
        self._numbers = 0

    @property
    def busy(self) -> bool:
        return bool(self._of_task)

    def add(self, task: int, files: Iterable[FileRecord]) -> None:
        items = [_Item(task, record) for record in files]
        if items:
            self._of_task[task] = items
            self._waiting.extend(items)
            self._next()

    def brings(self, task: int) -> bool:
        """Whether something that the task made is on its way, or has still to be asked for."""
        return task in self._of_task

    def drop(self, task: int) -> None:
        """What the task made is not wanted any more."""
        for item in self._of_task.pop(task, ()):
            item.dropped = True

    def look_again(self) -> None:
        """A peer has come: it may hold what was away."""
        away, self._away = self._away, {}
        self._waiting.extend(away.values())
        self._next()

    def _next(self) -> None:
        while self._waiting and self._under_way < UNDER_WAY_MAX:
            item = self._waiting.popleft()
            if not item.dropped:
                self._fetch(item)

    def _fetch(self, item: _Item) -> None:
        self._under_way += 1
        sources = self._holders.sources(item.file.digest)

        def done(fetched: Fetched) -> None:
            self._under_way -= 1
            if item.dropped:
                pass
            elif isinstance(fetched, FileReady):
                self._settle(item)
                self._holders.add_here(item.file.digest)
                self._on_home(item.task, _named(fetched, item.file))
            else:
                self._missed(item, sources)
            self._next()
            if not self.busy:
                self._on_idle()

        # Also without any source: it may be in this node's store from an earlier process.
        self._world.fetch(Blob(item.file), sources, done)

    def _settle(self, item: _Item) -> None:
        item.dropped = True
        items = self._of_task.get(item.task, [])
        items.remove(item)
        if not items:
            self._of_task.pop(item.task, None)

    def _missed(self, item: _Item, sources: tuple[Node, ...]) -> None:
        if not sources:
            self._wait_for_holders(item)
            return
        item.away_since = None
        item.tries += 1
        if item.tries >= TRIES_MAX:
            item.tries = 0
            self._holders.forget(item.file.digest, sources)
            if not self._holders.sources(item.file.digest):
                self._give_up(item)
                return
        self._world.after(RETRY_S * 2**item.tries, lambda: self._again(item))

    def _again(self, item: _Item) -> None:
        if not item.dropped:
            self._waiting.append(item)
            self._next()

    def _wait_for_holders(self, item: _Item) -> None:
        now = self._world.elapsed()
        if item.away_since is None:
            item.away_since = now
        left_s = item.away_since + GRACE_S - now
        if left_s <= 0:
            self._give_up(item)
            return
        self._numbers += 1
        number = self._numbers
        self._away[number] = item

        def over() -> None:
            if self._away.pop(number, None) is not None:
                self._again(item)

        self._world.after(left_s, over)

    def _give_up(self, item: _Item) -> None:
        self._settle(item)
        self._on_gone(item.task, item.file.path)


def _named(fetched: FileReady, wanted: FileRecord) -> FileReady:
    """What lies in this node's store, under the name that the run uses."""
    stored = fetched.file
    record = msgspec.structs.replace(
        wanted, ctime_ns=stored.ctime_ns, size=stored.size, directory=stored.directory
    )
    return msgspec.structs.replace(fetched, file=record)
