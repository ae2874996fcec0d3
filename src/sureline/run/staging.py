"""Staging: a ready task's inputs get identities, and a past result is looked for.

Bounded by STAGING_MAX tasks at a time, the most urgent first. Every task that is given here gets a
ticket; `drop` takes it back, and answers that belong to a ticket that is gone are not heard.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable

from sureline.journal.events import FileFetched
from sureline.peer.jobs import FileMissing, FileReady, UserFile
from sureline.run.known import Known
from sureline.run.past import PastFound, PastResult
from sureline.world.protocol import Fetched, World

STAGING_MAX = 64


class Staging:
    """Tells of each task once: `on_staged(task, key)` if it is to run, `on_found(task, key, past)`
    if it need not, `on_missing(task, reason)` if it cannot; and then, once per answer of the
    world, `settled()`. With `fresh`, no past result is looked for."""

    def __init__(
        self,
        world: World,
        known: Known,
        *,
        fresh: bool,
        on_staged: Callable[[int, str], None],
        on_found: Callable[[int, str, PastFound], None],
        on_missing: Callable[[int, str], None],
        settled: Callable[[], None],
    ) -> None:
        self._world = world
        self._known = known
        self._fresh = fresh
        self._on_staged = on_staged
        self._on_found = on_found
        self._on_missing = on_missing
        self._settled = settled
        self._tickets: dict[int, int] = {}
        self._ticket = 0
        self._waiting: list[tuple[float, int, int]] = []
        self._at_work: set[int] = set()
        self._fetching: dict[str, list[tuple[int, int]]] = {}
        self._unfetched: dict[int, int] = {}

    def add(self, task: int, urgency: float) -> None:
        self._ticket += 1
        self._tickets[task] = self._ticket
        heapq.heappush(self._waiting, (-urgency, task, self._ticket))

    def drop(self, task: int) -> None:
        """It is not to be staged any more."""
        if self._tickets.pop(task, None) is not None:
            self._at_work.discard(task)
            self._unfetched.pop(task, None)

    def clear(self) -> None:
        """Nothing is to be staged any more."""
        self._waiting.clear()
        for task in list(self._tickets):
            self.drop(task)

    def more(self) -> None:
        """Begin with as many as there is room for."""
        while self._waiting and len(self._at_work) < STAGING_MAX:
            _, task, ticket = heapq.heappop(self._waiting)
            if self._tickets.get(task) == ticket:
                self._at_work.add(task)
                self._stage(task, ticket)

    def _stage(self, task: int, ticket: int) -> None:
        wanted = self._known.missing(task)
        if not wanted:
            self._identified(task, ticket)
            return
        self._unfetched[task] = len(wanted)
        for path in wanted:
            waiters = self._fetching.get(path)
            if waiters is not None:
                waiters.append((task, ticket))
                continue
            self._fetching[path] = [(task, ticket)]
            self._world.fetch(UserFile(path, self._known.lies_in_place(path)), (), self._fetched)

    def _fetched(self, fetched: Fetched) -> None:
        if isinstance(fetched, FileReady):
            record = fetched.file
            self._known.add([record])
            self._world.record(FileFetched(self._world.now(), record))
            for task, ticket in self._fetching.pop(record.path):
                if self._tickets.get(task) != ticket:
                    continue
                self._unfetched[task] -= 1
                if not self._unfetched[task]:
                    del self._unfetched[task]
                    self._identified(task, ticket)
        elif isinstance(fetched, FileMissing):
            for task, ticket in self._fetching.pop(fetched.path):
                if self._tickets.get(task) == ticket:
                    self.drop(task)
                    self._on_missing(task, fetched.reason)
        self._settled()

    def _identified(self, task: int, ticket: int) -> None:
        """All inputs have identities: look for a past result, unless told not to."""
        key = self._known.key(task)
        if not key or self._fresh:
            self.drop(task)
            self._on_staged(task, key)
            return

        def looked_up(fetched: Fetched) -> None:
            if self._tickets.get(task) == ticket:
                self.drop(task)
                if isinstance(fetched, PastFound):
                    self._on_found(task, key, fetched)
                else:
                    self._on_staged(task, key)
            self._settled()

        self._world.fetch(PastResult(key), (), looked_up)
