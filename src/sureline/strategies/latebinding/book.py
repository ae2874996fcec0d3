"""What waits in the queue: tasks by run and state.

A task is *waiting*, *listed* (a site's master has it) or *placed* (a pilot was named to its run,
which has not confirmed it).

Tasks are not on disk: what is gone since would come back with them. Runs tell the queue that was
started again what waits, for it knows them by other numbers (`QueuedRun.memory`). On disk is what
they cannot tell: priorities that were changed, shares, and who has used how much.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Iterator

import msgspec

from sureline.strategies.latebinding.central import CentralTasks
from sureline.strategies.latebinding.messages import Enqueue, ListedTask, TaskId
from sureline.strategies.latebinding.sense import is_sensible, is_short
from sureline.strategies.latebinding.settings import CENTRAL, TASKS_MAX
from sureline.strategies.latebinding.shares import Shares
from sureline.world.protocol import AgentId, World

INDEX = "latebinding.queue"
GONE_MAX = 20_000
"""Tasks of a run that are gone and remembered, for a message from before that may come late."""

Listed = dict[str, list[TaskId]]
"""By site, tasks that its master has and that wait no longer."""


class QueuedTask(msgspec.Struct):
    listed: ListedTask
    told: int
    """The number of the message that told of it."""
    number: int = 0
    state: str = "new"
    site: str = ""
    since_s: float = 0.0
    charged_s: float = 0.0
    """When it was listed, or placed here."""


class QueuedRun(msgspec.Struct):
    writer: AgentId
    user: str
    epoch: int
    priority: int
    heard_s: float
    memory: int
    """Another number whenever the queue begins to hear of it: its writer tells all that waits
    again."""
    tasks: dict[str, QueuedTask] = {}
    waiting: int = 0
    """How many of them nobody has, """
    listed: int = 0
    """and how many the masters of sites have."""
    whole: int = 0
    """The number of the message from which on it has said all that waits."""
    gone: dict[str, int] = {}
    """By task, the number of the latest message that said so; of the latest tasks."""


class _KeptRun(msgspec.Struct, array_like=True):
    """What the index keeps of a run."""

    run: str
    writer: AgentId
    user: str
    epoch: int
    priority: int
    used_s: float


class _Index(msgspec.Struct, array_like=True):
    runs: list[_KeptRun] = []
    shares: dict[str, float] = {}
    used_s: dict[str, float] = {}


class QueueBook:
    def __init__(self, world: World) -> None:
        self._world = world
        self._numbers = 0
        self._listed: dict[str, dict[TaskId, QueuedTask]] = {}
        """By the site that has them."""
        self._kept = b""
        self.runs: dict[str, QueuedRun] = {}
        self.shares = Shares(self._is_waiting)
        self.central = CentralTasks()

    # -- on disk ---------------------------------------------------------------------------------

    def open(self) -> None:
        """Take up what an earlier process left."""
        self._kept = self._world.get(INDEX) or b""
        index = _decoded(self._kept)
        self.shares.take_up(index.shares, index.used_s, self._world.elapsed())
        for one in index.runs:
            self.open_run(one.run, one.writer, one.user, one.epoch, one.priority)
            self.shares.runs[one.run].used_s = one.used_s

    def keep(self, on_durable: Callable[[], None] = lambda: None) -> None:
        """What cannot be told by others."""
        runs = [
            _KeptRun(name, one.writer, one.user, one.epoch, one.priority, used_s)
            for name, one in self.runs.items()
            for used_s in (self.shares.runs[name].used_s,)
        ]
        index = msgspec.msgpack.encode(_Index(runs, self.shares.shares, self.shares.used_s))
        if index != self._kept:
            self._kept = index
            self._world.put(INDEX, index)
        self._world.sync(on_durable)

    # -- runs ------------------------------------------------------------------------------------

    def open_run(
        self, run: str, writer: AgentId, user: str, epoch: int, priority: int
    ) -> QueuedRun:
        self.shares.open(run, user, priority)
        now, memory = self._world.elapsed(), self._world.random.getrandbits(48) + 1
        made = self.runs[run] = QueuedRun(writer, user, epoch, priority, now, memory)
        return made

    def close_run(self, name: str) -> Listed:
        listed = self.forget(name, list(self.runs[name].tasks))
        del self.runs[name]
        self.shares.close(name)
        return listed

    def hear(self, name: str) -> bool:
        """Its writer speaks: its turn comes again. Whether that is new."""
        share = self.shares.runs[name]
        was_mute, share.is_mute = share.is_mute, False
        for queued in list(self.runs[name].tasks.values()) if was_mute else ():
            if queued.state == "waiting" and queued.listed.architecture in CENTRAL:
                self.wait(queued, queued.since_s)
        return was_mute

    def mute(self, name: str) -> None:
        """Its turn does not come until its writer speaks."""
        self.shares.runs[name].is_mute = True
        for queued in self.runs[name].tasks.values():
            self.central.remove(queued.listed.id)

    def is_mute(self, name: str) -> bool:
        return self.shares.runs[name].is_mute

    def take_gone(self, said: Enqueue) -> list[Listed]:
        """What a message, which may be late, says of tasks told before."""
        run, number = self.runs[said.run], said.number
        if number < run.whole:
            return []
        ended = [self.forget(said.run, self._told_before(run, number, said.gone), bound=True)]
        for task in said.gone:
            run.gone[task] = max(number, run.gone.pop(task, 0))
        while len(run.gone) > GONE_MAX:
            del run.gone[next(iter(run.gone))]
        if said.whole:
            run.whole = number
            ended.append(self.forget(said.run, self._told_before(run, number, run.tasks)))
        return ended

    def take(self, said: Enqueue) -> Listed | None:
        """The tasks of a message; None if there is no room for them now. A task that makes no
        sense is left to its run, and one that a later message has told of is left as it is."""
        run, number = self.runs[said.run], said.number
        fresh = {
            listed.task: listed
            for listed in said.tasks
            if number >= run.whole
            and run.gone.get(listed.task, 0) <= number
            and (listed.task not in run.tasks or run.tasks[listed.task].told < number)
            and (listed.run, listed.writer) == (said.run, run.writer)
            and is_sensible(listed)
            and is_short(listed)
        }
        if sum(len(one.tasks) for one in self.runs.values()) + len(fresh) > TASKS_MAX:
            return None
        earlier = self.forget(said.run, fresh)
        for task, listed in fresh.items():
            run.tasks[task] = QueuedTask(listed, number)
            self.wait(run.tasks[task])
        return earlier

    def _told_before(self, run: QueuedRun, number: int, tasks: Iterable[str]) -> list[str]:
        return [task for task in tasks if task in run.tasks and run.tasks[task].told < number]

    def forget(self, name: str, tasks: Collection[str], *, bound: bool = False) -> Listed:
        """These wait no longer: bound, as a rule, or not wanted any more."""
        run = self.runs[name]
        listed: Listed = {}
        for task in tasks:
            queued = run.tasks.pop(task, None)
            if queued is None:
                continue
            self.central.remove(queued.listed.id)
            if not bound:
                self._give_back(queued)
            run.waiting -= queued.state == "waiting"
            if queued.state == "listed":
                self._unlist(queued)
                listed.setdefault(queued.site, []).append((name, task))
        return listed

    # -- states ----------------------------------------------------------------------------------

    def wait(self, queued: QueuedTask, since_s: float | None = None) -> None:
        """It waits, again or from now on."""
        listed = queued.listed
        self._numbers += 1
        self._give_back(queued)
        if queued.state == "listed":
            self._unlist(queued)
        if queued.state != "waiting":
            self.runs[listed.run].waiting += 1
        queued.number, queued.state = self._numbers, "waiting"
        queued.since_s = self._world.elapsed() if since_s is None else since_s
        if listed.architecture in CENTRAL:
            if not self.is_mute(listed.run):
                self.central.add(queued.number, listed)
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
        queued.state = state
        queued.since_s = queued.charged_s = self._world.elapsed()
        self.shares.charge(queued.listed)
        return queued

    def _give_back(self, queued: QueuedTask) -> None:
        if queued.state in ("listed", "placed"):
            self.shares.give_back(queued.listed, self._world.elapsed() - queued.charged_s)

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
            for name, other in self.runs.items()
            if other.waiting + other.listed and not self.is_mute(name)
        )

    def all(self) -> Iterator[QueuedTask]:
        for run in self.runs.values():
            yield from run.tasks.values()

    @property
    def waiting(self) -> int:
        """How many nobody has, of runs whose writers speak."""
        return sum(run.waiting for name, run in self.runs.items() if not self.is_mute(name))

    def _is_waiting(self, run: str, task: str, number: int) -> bool:
        found = self.runs.get(run)
        queued = None if found is None else found.tasks.get(task)
        return queued is not None and queued.number == number and queued.state == "waiting"


def _decoded(kept: bytes) -> _Index:
    try:
        return msgspec.msgpack.decode(kept, type=_Index)
    except msgspec.DecodeError:  # of another version, or none
        return _Index()
