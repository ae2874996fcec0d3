"""The task queue: what waits, whose turn it is, and which site has what.

Every node can host it; the one that says so in its offer does or, if nobody says so, the one with
the lowest id. It stays light: a site asks for many tasks at once, and is told of more when there
are; runs tell of many at once. Where the paper's older architectures are asked for, it matches one
pilot at a time, and looks at every task that waits for that.

A task is *waiting*, *listed* (a site's master has it) or *placed* (a pilot was named to its run,
which has not confirmed it). What is listed or placed for too long waits again. The run binds a task
once, whatever the queue gives out twice.

What runs enqueue is durable before it is acknowledged, in pages as it came; the queue that is
started again goes on with it. Should it begin without memory, runs notice by the number in its
answers, and tell it all again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable

import msgspec

from sureline.peer.capacity import Capacity, Ledger
from sureline.strategies.latebinding.central import CentralTasks
from sureline.strategies.latebinding.judging import View, held_bytes, size_bytes
from sureline.strategies.latebinding.messages import (
    Advice,
    AskShares,
    AskTasks,
    Enqueue,
    Enqueued,
    FileReport,
    Handout,
    Heartbeat,
    JobReport,
    ListedTask,
    NotMaster,
    PlacedTask,
    Register,
    Registered,
    Request,
    RequestAnswer,
    RunStanding,
    SetShare,
    TaskId,
    TheShares,
)
from sureline.strategies.latebinding.settings import (
    CENTRAL,
    GONE_S,
    LEASE_S,
    LISTED_MAX,
    PAGE,
    PLACED_S,
    TASKS_MAX,
)
from sureline.strategies.latebinding.shares import Shares
from sureline.world.address import NO_NAME, PeerName, name_of, node_of, peer_of
from sureline.world.agent import Agent, handles
from sureline.world.protocol import AgentId, World

PART = "latebinding.queue"
INDEX = "latebinding.queue"
REQUEST_S = 0.0005
"""What a request costs the queue, and `EXAMINED_S` each task that a full match examines: by the
paper's start of almost 10 minutes for 1,500 pilots and 10,000 tasks. Only the simulator charges."""
EXAMINED_S = 0.00004
TICK_S = 2.0
PAGES_PER_RUN_MAX = 2000
RUNS_MAX = 1000
FILES_MAX = 50_000


_IDLE, _AHEAD, _CHOICE = range(3)
"""What a task is given out for."""


class _Queued(msgspec.Struct):
    listed: ListedTask
    number: int
    state: str = "waiting"
    site: str = ""
    since_s: float = 0.0
    page: int = 0


class _Run(msgspec.Struct):
    writer: AgentId
    user: str
    epoch: int
    priority: int
    heard_s: float
    tasks: dict[str, _Queued] = {}
    pages: dict[int, int] = {}
    """How many tasks of each page still count."""
    waiting: int = 0
    """How many of them nobody has."""


class _Site(msgspec.Struct):
    master: AgentId
    asked_s: float
    idle: list[PeerName] = []
    ahead: list[PeerName] = []
    wanted: int = 0


class _Kept(msgspec.Struct, array_like=True):
    """What the index keeps of a run."""

    run: str
    writer: AgentId
    user: str
    epoch: int
    priority: int
    pages: list[int]


class _Index(msgspec.Struct, array_like=True):
    memory: int
    runs: list[_Kept]
    shares: dict[str, float]


class TaskQueue(Agent):
    """`is_there` tells of a node's agent whether its node is a member that is not gone."""

    def __init__(self, me: AgentId, world: World, is_there: Callable[[AgentId], bool]) -> None:
        super().__init__(me, world)
        self._is_there = is_there
        self._runs: dict[str, _Run] = {}
        self._sites: dict[str, _Site] = {}
        self._shares = Shares(self._is_waiting)
        self._memory = 0
        self._numbers = 0
        self._central = CentralTasks()
        self._tracked = False
        """Whether pilots are to tell this queue of their files."""
        self._files: dict[PeerName, dict[str, None]] = {}
        self._ticking = False
        self._matching = 0
        self.counts: Counter[str] = Counter()
        """Requests by the name of their message."""

    # -- memory --------------------------------------------------------------------------------

    def _wake(self) -> None:
        """Somebody believes that the queue is here: take up what an earlier process left."""
        if self._memory:
            return
        kept = self.world.get(INDEX)
        index = _Index(0, [], {}) if not kept else _decoded(kept)
        self._memory = index.memory or self.world.random.getrandbits(48) + 1
        self._shares.shares = dict(index.shares)
        for one in index.runs:
            self._open(one.run, one.writer, one.user, one.epoch, one.priority)
            for page in one.pages:
                self._take_page(one.run, page)
        self.world.after(TICK_S, self._tick)

    def _take_page(self, run: str, page: int) -> None:
        body = self.world.get(_page_key(run, page))
        if body:
            tasks = msgspec.msgpack.decode(body, type=tuple[ListedTask, ...])
            self._runs[run].pages[page] = 0
            for listed in tasks:
                self._add(listed, page)

    def _keep_index(self) -> None:
        runs = [
            _Kept(run, one.writer, one.user, one.epoch, one.priority, list(one.pages))
            for run, one in self._runs.items()
        ]
        index = _Index(self._memory, runs, self._shares.shares)
        self.world.put(INDEX, msgspec.msgpack.encode(index))

    def _open(self, run: str, writer: AgentId, user: str, epoch: int, priority: int) -> _Run:
        self._shares.open(run, user, priority)
        made = self._runs[run] = _Run(writer, user, epoch, priority, self.world.elapsed())
        return made

    # -- runs ----------------------------------------------------------------------------------

    @handles(Enqueue)
    def on_enqueue(self, sender: AgentId, asked: Enqueue) -> None:
        self._wake()
        self._count("Enqueue")
        user, run = peer_of(sender), self._runs.get(asked.run)
        if run is not None and (
            asked.epoch < run.epoch or (run.user != user and asked.epoch == run.epoch)
        ):
            return
        if run is None or run.epoch < asked.epoch:
            if asked.over or (run is None and len(self._runs) >= RUNS_MAX):
                return
            priority = asked.priority if run is None else run.priority
            if run is not None:
                self._close(asked.run)
            run = self._open(asked.run, sender, user, asked.epoch, priority)
        run.writer, run.heard_s = sender, self.world.elapsed()
        if asked.whole:
            self._forget(asked.run, list(run.tasks))
        self._forget(asked.run, asked.gone)
        self._take(asked.run, run, asked.tasks[:PAGE])
        if asked.over:
            self._close(asked.run)
        waiting = 0 if asked.over else len(run.tasks)
        answer = Enqueued(asked.run, asked.number, self._memory, waiting)
        if asked.tasks or asked.over or asked.whole:
            self._keep_index()
            self.world.sync(lambda: self.world.send(sender, answer))
        else:
            self.world.send(sender, answer)
        if asked.tasks:
            self._serve()

    def _take(self, name: str, run: _Run, tasks: Iterable[ListedTask]) -> None:
        fresh = [t for t in tasks if t.run == name and t.writer == run.writer]
        held = sum(len(one.tasks) for one in self._runs.values())
        fresh = fresh[: max(0, TASKS_MAX - held)]
        if not fresh or len(run.pages) >= PAGES_PER_RUN_MAX:
            return
        page = max(run.pages, default=0) + 1
        run.pages[page] = 0
        self.world.put(_page_key(name, page), msgspec.msgpack.encode(fresh))
        for listed in fresh:
            self._add(listed, page)

    def _add(self, listed: ListedTask, page: int) -> None:
        run = self._runs[listed.run]
        old = run.tasks.get(listed.task)
        if old is not None:
            self._forget(listed.run, [listed.task])
        self._numbers += 1
        queued = run.tasks[listed.task] = _Queued(listed, self._numbers, "new", page=page)
        run.pages[page] += 1
        self._wait(queued)

    def _wait(self, queued: _Queued) -> None:
        listed = queued.listed
        self._numbers += 1
        if queued.state != "waiting":
            self._runs[listed.run].waiting += 1
        queued.number, queued.state = self._numbers, "waiting"
        queued.since_s = self.world.elapsed()
        if listed.architecture in CENTRAL:
            if not len(self._central):
                self.world.after(0.0, self._tell_central)
            self._central.add(queued.number, listed)
            self._tracked = listed.architecture == "pre-dht"
        else:
            self._shares.push(listed, queued.number, queued.since_s)

    def _is_waiting(self, run: str, task: str, number: int) -> bool:
        found = self._runs.get(run)
        queued = None if found is None else found.tasks.get(task)
        return queued is not None and queued.number == number and queued.state == "waiting"

    def _forget(self, name: str, tasks: Iterable[str]) -> None:
        """These wait no longer: bound, done, or not wanted any more."""
        run = self._runs[name]
        listed: dict[str, list[TaskId]] = {}
        for task in tasks:
            queued = run.tasks.pop(task, None)
            if queued is None:
                continue
            self._central.remove(queued.listed.id)
            run.waiting -= queued.state == "waiting"
            if queued.state == "listed":
                listed.setdefault(queued.site, []).append((name, task))
            left = run.pages.get(queued.page, 0) - 1
            if left > 0:
                run.pages[queued.page] = left
            else:
                run.pages.pop(queued.page, None)
                self.world.put(_page_key(name, queued.page), b"")
        for site, gone in listed.items():
            if site in self._sites:
                self.world.send(self._sites[site].master, Handout(gone=tuple(gone)))

    def _close(self, name: str) -> None:
        self._forget(name, list(self._runs[name].tasks))
        del self._runs[name]
        self._shares.close(name)

    # -- sites ---------------------------------------------------------------------------------

    @handles(Register)
    def on_register(self, sender: AgentId, asked: Register) -> None:
        self._wake()
        self._count("Register")
        site = self._sites.get(asked.site)
        if site is None or not self._is_there(site.master):
            self._speaks(asked.site, sender)
        self.world.send(sender, Registered(asked.site, self._sites[asked.site].master))

    def _speaks(self, name: str, master: AgentId) -> _Site:
        """Somebody else speaks for this site now; what the one before had waits again."""
        site = self._sites[name] = _Site(master, self.world.elapsed())
        self._take_back(name)
        return site

    @handles(AskTasks)
    def on_ask_tasks(self, sender: AgentId, asked: AskTasks) -> None:
        self._wake()
        self._count("AskTasks")
        now, site = self.world.elapsed(), self._sites.get(asked.site)
        if site is None or (
            site.master != sender
            and (not self._is_there(site.master) or now - site.asked_s > LEASE_S)
        ):
            site = self._speaks(asked.site, sender)
        if site.master != sender:
            self.world.send(sender, NotMaster(asked.site, site.master))
            return
        site.asked_s = now
        for name, task in asked.placed:
            run = self._runs.get(name)
            queued = None if run is None else run.tasks.get(task)
            if queued is not None and queued.state == "listed" and queued.site == asked.site:
                queued.state, queued.since_s = "placed", now
        if not asked.held:
            self._take_back(asked.site)
        site.wanted = min(max(0, asked.wanted), LISTED_MAX)
        site.idle, site.ahead = list(asked.idle[:LISTED_MAX]), list(asked.ahead[:LISTED_MAX])
        self._serve(answer=asked.site)

    def _take_back(self, site: str) -> None:
        for run in self._runs.values():
            for queued in run.tasks.values():
                if queued.state == "listed" and queued.site == site:
                    self._wait(queued)

    def _serve(self, answer: str | None = None, *, whole: bool = False) -> None:
        """Give out what waits: first what could begin at once, to the sites in turns, then what
        is to be fetched ahead, then what they want to choose from."""
        chosen: dict[str, list[ListedTask]] = {name: [] for name in self._sites}
        for kind in (_IDLE, _AHEAD, _CHOICE):
            asking = list(self._sites)
            while asking:
                asking = [name for name in asking if self._give(name, chosen[name], kind)]
        for name, tasks in chosen.items():
            if tasks or whole or name == answer:
                self._hand_out(self._sites[name].master, tasks, whole=whole)

    def _give(self, name: str, chosen: list[ListedTask], kind: int) -> bool:
        """One task for this site; False if it wants no more of this kind, or there is none."""
        site, now = self._sites[name], self.world.elapsed()
        pilots = (site.idle, site.ahead, [NO_NAME])[kind]
        if not pilots or site.wanted <= 0:
            return False
        at_once = kind == _IDLE
        found = self._shares.next(name, pilots[-1], self._asks, now, at_once=at_once)
        if found is None:
            return False
        pilots.pop()
        queued = self._runs[found[0]].tasks[found[1]]
        self._runs[found[0]].waiting -= 1
        queued.state, queued.site, queued.since_s = "listed", name, now
        self._shares.charge(queued.listed)
        chosen.append(queued.listed)
        site.wanted -= 1
        return True

    def _hand_out(self, master: AgentId, tasks: list[ListedTask], *, whole: bool) -> None:
        waiting = sum(run.waiting for run in self._runs.values()) // max(1, len(self._sites))
        for start in range(0, max(1, len(tasks)), PAGE):
            part, first = tuple(tasks[start : start + PAGE]), whole and start == 0
            central = len(self._central) > 0
            said = Handout(part, (), first, central, self._tracked, waiting)
            self.world.send(master, said)

    def _asks(self, site: str) -> bool:
        return site in self._sites and self._is_there(self._sites[site].master)

    def _tick(self) -> None:
        self.world.after(TICK_S, self._tick)
        now = self.world.elapsed()
        self._shares.age(now)
        silent = {
            name
            for name, site in self._sites.items()
            if now - site.asked_s > LEASE_S or not self._is_there(site.master)
        }
        for name, run in list(self._runs.items()):
            if now - run.heard_s > GONE_S:
                self._close(name)
                self._keep_index()
                continue
            for queued in run.tasks.values():
                lost = queued.state == "placed" and now - queued.since_s > PLACED_S
                if lost or (queued.state == "listed" and queued.site in silent):
                    self._wait(queued)
        self._serve()

    def _tell_central(self) -> None:
        for site in self._sites.values():
            self._hand_out(site.master, [], whole=False)

    # -- where this queue matches ----------------------------------------------------------------

    @handles(Request)
    def on_request(self, sender: AgentId, asked: Request) -> None:
        """One pilot, all tasks: the first with the highest rank, as if its column were the only
        one."""
        self._wake()
        self._count("Request")
        self.world.busy(EXAMINED_S * len(self._central))
        pilot = name_of(sender)
        held = self._files.get(pilot, {}) if asked.tracked else dict.fromkeys(asked.held)
        found = self._central.best(_view(pilot, asked, held), held, self._asks)
        if found is None:
            self.world.send(sender, RequestAnswer(found=False, more=len(self._central) > 0))
            return
        (rank, _, _), listed = found
        queued = self._runs[listed.run].tasks[listed.task]
        self._central.remove(listed.id)
        self._runs[listed.run].waiting -= 1
        queued.state, queued.since_s = "placed", self.world.elapsed()
        self._shares.charge(listed)
        self._matching += 1
        held_now, size = held_bytes(listed, held), size_bytes(listed)
        placed = PlacedTask(
            listed.task, listed.generation, pilot, rank, NO_NAME, 0.0, False, held_now, size
        )
        self.world.send(listed.writer, Advice(listed.run, "", self._matching, 1, (placed,)))
        self.world.send(sender, RequestAnswer(found=True, more=len(self._central) > 0))

    @handles(FileReport)
    def on_file_report(self, sender: AgentId, said: FileReport) -> None:
        self._count("FileReport")
        files = self._files.setdefault(name_of(sender), {})
        files |= dict.fromkeys(said.made)
        for digest in said.gone:
            files.pop(digest, None)
        while len(files) > FILES_MAX:
            del files[next(iter(files))]

    @handles(JobReport)
    def on_job_report(self, sender: AgentId, said: JobReport) -> None:
        self._count("JobReport")

    @handles(Heartbeat)
    def on_heartbeat(self, sender: AgentId, said: Heartbeat) -> None:
        self._count("Heartbeat")

    def _count(self, what: str) -> None:
        self.counts[what] += 1
        self.world.busy(REQUEST_S)

    # -- people ----------------------------------------------------------------------------------

    @handles(AskShares)
    def on_ask_shares(self, sender: AgentId, asked: AskShares) -> None:
        self._wake()
        self._tell_shares(sender, asked.number)

    @handles(SetShare)
    def on_set_share(self, sender: AgentId, asked: SetShare) -> None:
        """A run's priority is for its user to say; a share is for everybody who may submit."""
        self._wake()
        refused = ""
        if asked.run:
            run = self._runs.get(asked.run)
            if run is None:
                refused = f"no run {asked.run} has tasks in the queue"
            elif run.user != peer_of(sender):
                refused = f"{asked.run} is a run of {run.user}, who alone may change its priority"
            else:
                run.priority = self._shares.runs[asked.run].priority = asked.priority
        elif asked.user:
            self._shares.shares[asked.user] = min(max(asked.share, 0.001), 1000.0)
        if not refused:
            self._keep_index()
            self._deal_anew()
        self.world.sync(lambda: self._tell_shares(sender, asked.number, refused))

    def _deal_anew(self) -> None:
        """Other tasks come first now: sites give back what they have not placed."""
        for name, site in self._sites.items():
            mine = [
                queued
                for run in self._runs.values()
                for queued in run.tasks.values()
                if queued.state == "listed" and queued.site == name
            ]
            for queued in mine:
                self._wait(queued)
            site.wanted += len(mine)
        self._serve(whole=True)

    def _tell_shares(self, to: AgentId, number: int, refused: str = "") -> None:
        runs = []
        for name, run in self._runs.items():
            states = Counter(queued.state for queued in run.tasks.values())
            runs.append(
                RunStanding(
                    name,
                    run.user,
                    run.priority,
                    states["waiting"],
                    states["listed"],
                    states["placed"],
                    round(self._shares.runs[name].used_s, 1),
                )
            )
        sites = {name: str(name_of(node_of(s.master))) for name, s in self._sites.items()}
        shares = dict(self._shares.shares)
        said = TheShares(number, tuple(runs[:PAGE]), shares, sites, self.counts.total(), refused)
        self.world.send(to, said)


def _view(pilot: PeerName, asked: Request, held: dict[str, None]) -> View:
    """A pilot as it has described itself."""
    cores, memory, disk, gpus, all_cores, all_memory, lifetime_s, *_ = [
        one if isinstance(one, float | int) else 0.0 for one in (*asked.features, *[0.0] * 10)
    ][:10]
    whole = Capacity(all_cores, int(all_memory), int(disk), int(gpus), dict(asked.tags))
    free = Ledger(whole)
    free.millicores, free.memory_bytes = round(cores * 1000), int(memory)
    return View(pilot, asked.site, free, whole, lifetime_s, held)


def _page_key(run: str, page: int) -> str:
    return f"{INDEX}.{run}.{page}"


def _decoded(kept: bytes) -> _Index:
    try:
        return msgspec.msgpack.decode(kept, type=_Index)
    except msgspec.DecodeError:  # of another version: runs tell it all again
        return _Index(0, [], {})
