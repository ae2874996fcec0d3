"""What waits in the queue: tasks by run and state, on disk in pages as they came.

A task is *waiting*, *listed* (a site's master has it) or *placed* (a pilot was named to its run,
which has not confirmed it).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator

import msgspec

from sureline.strategies.latebinding.central import CentralTasks
from sureline.strategies.latebinding.messages import ListedTask, TaskId
from sureline.strategies.latebinding.settings import CENTRAL, TASKS_MAX
from sureline.strategies.latebinding.shares import Shares
from sureline.world.protocol import AgentId, World

INDEX = "latebinding.queue"
PAGES_PER_RUN_MAX = 2000


class QueuedTask(msgspec.Struct):
    listed: ListedTask
    number: int
    state: str = "waiting"
    site: str = ""
    since_s: float = 0.0
    page: int = 0


class QueuedRun(msgspec.Struct):
    writer: AgentId
    user: str
    epoch: int
    priority: int
    heard_s: float
    tasks: dict[str, QueuedTask] = {}
    pages: dict[int, int] = {}
    """How many tasks of each page still count."""
    waiting: int = 0
    """How many of them nobody has, """
    listed: int = 0
    """and how many the masters of sites have."""
    whole: int = 0
    """The number of the message from which on it has said all that waits."""
    heard: dict[int, None] = {}
    """The numbers of its latest messages: what comes again does not count again."""


class _KeptRun(msgspec.Struct, array_like=True):
    """What the index keeps of a run."""

    run: str
    writer: AgentId
    user: str
    epoch: int
    priority: int
    pages: list[int]
    whole: int = 0


class _Index(msgspec.Struct, array_like=True):
    memory: int
    runs: list[_KeptRun]
    shares: dict[str, float]


class QueueBook:
    def __init__(self, world: World) -> None:
        self._world = world
        self._numbers = 0
        self._listed: dict[str, dict[TaskId, QueuedTask]] = {}
        """By the site that has them."""
        self.runs: dict[str, QueuedRun] = {}
        self.shares = Shares(self._is_waiting)
        self.central = CentralTasks()
        self.tracked = False
        """Whether pilots are to tell the queue of their files."""
        self.memory = 0
        """A number of its own; 0 until it was opened."""

    # -- on disk ---------------------------------------------------------------------------------

    def open(self) -> None:
        """Take up what an earlier process left."""
        kept = self._world.get(INDEX)
        index = _Index(0, [], {}) if not kept else _decoded(kept)
        self.memory = index.memory or self._world.random.getrandbits(48) + 1
        self.shares.shares = dict(index.shares)
        for one in index.runs:
            self.open_run(one.run, one.writer, one.user, one.epoch, one.priority).whole = one.whole
            for page in one.pages:
                self._take_page(one.run, page)

    def _take_page(self, run: str, page: int) -> None:
        body = self._world.get(_page_key(run, page))
        if body:
            self.runs[run].pages[page] = 0
            for listed in msgspec.msgpack.decode(body, type=tuple[ListedTask, ...]):
                self._add(listed, page)

    def keep_index(self) -> None:
        runs = [
            _KeptRun(run, one.writer, one.user, one.epoch, one.priority, [*one.pages], one.whole)
            for run, one in self.runs.items()
        ]
        index = _Index(self.memory, runs, self.shares.shares)
        self._world.put(INDEX, msgspec.msgpack.encode(index))

    # -- runs ------------------------------------------------------------------------------------

    def open_run(
        self, run: str, writer: AgentId, user: str, epoch: int, priority: int
    ) -> QueuedRun:
        self.shares.open(run, user, priority)
        made = self.runs[run] = QueuedRun(writer, user, epoch, priority, self._world.elapsed())
        return made

    def close_run(self, name: str) -> dict[str, list[TaskId]]:
        """What its tasks were listed at, as `forget` tells."""
        listed = self.forget(name, list(self.runs[name].tasks))
        del self.runs[name]
        self.shares.close(name)
        return listed

    def take(self, name: str, tasks: Iterable[ListedTask]) -> dict[str, list[TaskId]]:
        """New tasks of a run, as one page. Where earlier ones of their names were listed, as
        `forget` tells."""
        run = self.runs[name]
        fresh = [t for t in tasks if t.run == name and t.writer == run.writer]
        held = sum(len(one.tasks) for one in self.runs.values())
        fresh = fresh[: max(0, TASKS_MAX - held)]
        if not fresh or len(run.pages) >= PAGES_PER_RUN_MAX:
            return {}
        earlier = self.forget(name, [listed.task for listed in fresh])
        page = max(run.pages, default=0) + 1
        run.pages[page] = 0
        self._world.put(_page_key(name, page), msgspec.msgpack.encode(fresh))
        for listed in fresh:
            self._add(listed, page)
        return earlier

    def _add(self, listed: ListedTask, page: int) -> None:
        run = self.runs[listed.run]
        if listed.task in run.tasks:
            self.forget(listed.run, [listed.task])
        queued = run.tasks[listed.task] = QueuedTask(listed, 0, "new", page=page)
        run.pages[page] += 1
        self.wait(queued)

    def forget(self, name: str, tasks: Iterable[str]) -> dict[str, list[TaskId]]:
        """These wait no longer: bound, done, or not wanted any more. By site, which of them its
        master has."""
        run = self.runs[name]
        listed: dict[str, list[TaskId]] = {}
        for task in tasks:
            queued = run.tasks.pop(task, None)
            if queued is None:
                continue
            self.central.remove(queued.listed.id)
            run.waiting -= queued.state == "waiting"
            if queued.state == "listed":
                self._unlist(queued)
                listed.setdefault(queued.site, []).append((name, task))
            left = run.pages.get(queued.page, 0) - 1
            if left > 0:
                run.pages[queued.page] = left
            else:
                run.pages.pop(queued.page, None)
                self._world.put(_page_key(name, queued.page), b"")
        return listed

    # -- states ----------------------------------------------------------------------------------

    def wait(self, queued: QueuedTask, since_s: float | None = None) -> None:
        """It waits, again or from now on."""
        listed = queued.listed
        self._numbers += 1
        if queued.state == "listed":
            self._unlist(queued)
        if queued.state != "waiting":
            self.runs[listed.run].waiting += 1
        queued.number, queued.state = self._numbers, "waiting"
        queued.since_s = self._world.elapsed() if since_s is None else since_s
        if listed.architecture in CENTRAL:
            self.central.add(queued.number, listed)
            self.tracked = listed.architecture == "pre-dht"
        else:
            self.shares.push(listed, queued.number, queued.since_s)

    def list_at(self, task: TaskId, site: str) -> ListedTask:
        """It was given to the master of a site."""
        queued = self._given(task, "listed")
        queued.site = site
        self._listed.setdefault(site, {})[task] = queued
        self.runs[task[0]].listed += 1
        return queued.listed

    def _unlist(self, queued: QueuedTask) -> None:
        del self._listed[queued.site][queued.listed.id]
        self.runs[queued.listed.run].listed -= 1

    def place(self, task: TaskId) -> None:
        """A pilot was named for it here."""
        self._given(task, "placed")

    def _given(self, task: TaskId, state: str) -> QueuedTask:
        run = self.runs[task[0]]
        queued = run.tasks[task[1]]
        run.waiting -= 1
        queued.state, queued.since_s = state, self._world.elapsed()
        self.shares.charge(queued.listed)
        return queued

    def was_placed(self, run: str, task: str, generation: int, site: str) -> None:
        """Its site says that a pilot was named."""
        queued = self._listed.get(site, {}).get((run, task))
        if queued is not None and queued.listed.generation == generation:
            self._unlist(queued)
            queued.state, queued.since_s = "placed", self._world.elapsed()

    def listed_at(self, site: str, before_s: float = math.inf) -> list[QueuedTask]:
        """What the site was given before then, and has not placed."""
        return [one for one in self._listed.get(site, {}).values() if one.since_s < before_s]

    def take_back(self, site: str) -> int:
        """What the site was given and did not place waits again; how many these are."""
        mine = self.listed_at(site)
        for queued in mine:
            self.wait(queued)
        return len(mine)

    def is_first(self, run: str) -> bool:
        """Whether no other run of its user comes before it."""
        mine = self.runs[run]
        return not any(
            other.user == mine.user and other.priority > mine.priority
            for other in self.runs.values()
            if other.waiting + other.listed
        )

    def all(self) -> Iterator[QueuedTask]:
        for run in self.runs.values():
            yield from run.tasks.values()

    @property
    def waiting(self) -> int:
        return sum(run.waiting for run in self.runs.values())

    def _is_waiting(self, run: str, task: str, number: int) -> bool:
        found = self.runs.get(run)
        queued = None if found is None else found.tasks.get(task)
        return queued is not None and queued.number == number and queued.state == "waiting"


def _page_key(run: str, page: int) -> str:
    return f"{INDEX}.{run}.{page}"


def _decoded(kept: bytes) -> _Index:
    try:
        return msgspec.msgpack.decode(kept, type=_Index)
    except msgspec.DecodeError:  # of another version: runs tell it all again
        return _Index(0, [], {})
