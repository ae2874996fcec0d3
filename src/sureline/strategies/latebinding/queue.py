"""The task queue: what waits, whose turn it is, and which site has what.

Every node can host it; the one that says so in its offer does or, if nobody says so, the one with
the lowest id. It stays light: a site asks for many tasks at once, and is told of more when there
are; runs tell of many at once. Where the paper's older architectures are asked for, it matches one
pilot at a time, and looks at every task that waits for that.

What is listed or placed for too long (`book`) waits again, and what one site keeps while pilots are
idle elsewhere is called back. The run binds a task once, whatever the queue gives out twice.

A queue that is started again says so to the runs that it knows from before, and is told all that
waits. Only the pilots of a site speak for it, and a run has one writer: another user's, of a later
epoch, is heard when the one before is silent.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Container, Iterable

import msgspec

from sureline.peer.capacity import CORES_MAX, Capacity, Ledger
from sureline.strategies.latebinding.book import Listed, QueueBook, QueuedRun
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
from sureline.strategies.latebinding.sense import NUMBER_MAX, pages
from sureline.strategies.latebinding.settings import (
    GONE_S,
    LEASE_S,
    LISTED_MAX,
    MUTE_S,
    PAGE,
    PLACED_S,
)
from sureline.world.address import NO_NAME, Node, PeerName, at, name_of, node_of, peer_of
from sureline.world.agent import Agent, handles
from sureline.world.identity.signing import is_run_name
from sureline.world.protocol import AgentId, Message, World

PART = "latebinding.queue"
REQUEST_S = 0.0005
"""What a request costs the queue, and `EXAMINED_S` each task that a full match examines: by the
paper's start of almost 10 minutes for 1,500 pilots and 10,000 tasks, though only those that are
ready are known here. At twice as much it never catches up. Only the simulator charges."""
EXAMINED_S = 0.00004
TICK_S = 2.0
LOST_S = 3.0
"""What a site was given so long ago has reached it, or never will."""
ANEW_S = 5.0
RECALL_S = 5.0
"""So long a site may keep tasks that it does not place while pilots are idle elsewhere."""
KEEP_S = 30.0
"""So often it is written down who has used how much."""
RUNS_MAX = 1000
FILES_MAX = 50_000


_IDLE, _AHEAD, _CHOICE, _NEAR = range(4)
"""What a task is given out for."""


class _Site(msgspec.Struct):
    master: AgentId
    asked_s: float
    idle: list[PeerName] = []
    ahead: list[PeerName] = []
    wanted: int = 0
    near: int = 0


class TaskQueue(Agent):
    """`is_there` tells of a node's agent whether its node is a member that is not gone, and
    `site_of` for which site an agent may speak as a pilot, if for any."""

    def __init__(
        self,
        me: AgentId,
        world: World,
        is_there: Callable[[AgentId], bool],
        site_of: Callable[[AgentId], str | None],
    ) -> None:
        super().__init__(me, world)
        self._is_there = is_there
        self._site_of = site_of
        self._book = QueueBook(world)
        self._sites: dict[str, _Site] = {}
        self._files: dict[Node, dict[str, None]] = {}
        self._matching = 0
        self._open = self._ticking = False
        self._kept_s = 0.0
        self._dealt_s = -ANEW_S
        """When all was dealt out anew."""
        self.counts: Counter[str] = Counter()
        """Requests by the name of their message."""

    def _wake(self) -> None:
        """Somebody believes that the queue is here."""
        if not self._open:
            self._open = True
            self._book.open()
            for name, run in self._book.runs.items():
                self.world.send(run.writer, Enqueued(name, 0, run.memory, 0, run.priority))
        if not self._ticking:
            self._ticking = True
            self.world.after(TICK_S, self._tick)
            self._book.shares.age(self.world.elapsed())  # or what is used now would age with it

    # -- runs ----------------------------------------------------------------------------------

    @handles(Enqueue)
    def on_enqueue(self, sender: AgentId, asked: Enqueue) -> None:
        self._wake()
        self._count("Enqueue")
        book, run = self._book, self._run_of(sender, asked)
        if run is None:
            return
        run.writer, run.heard_s = sender, self.world.elapsed()
        nobody_matched, had_none = not len(book.central), not run.tasks
        was_mute = book.hear(asked.run)
        for ended in book.take_gone(asked):
            self._tell_gone(ended)
        earlier = book.take(asked)
        if earlier is None:
            return  # it is said again
        self._tell_gone(earlier)
        if asked.over:
            self._tell_gone(book.close_run(asked.run))
            book.keep()
        waiting, priority = len(run.tasks), run.priority
        self.world.send(sender, Enqueued(asked.run, asked.number, run.memory, waiting, priority))
        if nobody_matched and len(book.central):
            self._tell_central()
        if had_none and waiting and self._overtakes(asked.run):
            self._deal_anew()
        elif asked.tasks or was_mute:
            self._serve()

    def _run_of(self, sender: AgentId, asked: Enqueue) -> QueuedRun | None:
        """The run that somebody speaks for; None if that is not for him, or not now."""
        book, user, run = self._book, peer_of(sender), self._book.runs.get(asked.run)
        if run is None:
            if asked.over or len(book.runs) >= RUNS_MAX or not is_run_name(asked.run):
                return None
            priority = asked.priority
        elif run.epoch == asked.epoch:
            return run if run.user == user else None
        else:
            silent_s = self.world.elapsed() - run.heard_s
            if asked.epoch < run.epoch or (run.user != user and silent_s <= MUTE_S):
                return None
            priority = run.priority
            self._tell_gone(book.close_run(asked.run))
        run = book.open_run(asked.run, sender, user, asked.epoch, priority)
        book.keep()
        return run

    def _overtakes(self, run: str) -> bool:
        """Whether a run that had nothing to do comes before others whose tasks are listed; not
        again and again, for all sites begin anew."""
        others = {one.listed.run for site in self._sites for one in self._book.listed_at(site)}
        turn, now = self._book.shares.turn, self.world.elapsed()
        before = any(turn(run) < turn(other) for other in others if other != run)
        return before and now - self._dealt_s > ANEW_S

    def _tell_gone(self, listed: Listed) -> None:
        """Masters have these no longer to place."""
        for site, gone in listed.items():
            for part in pages(gone, LISTED_MAX) if site in self._sites else ():
                self.world.send(self._sites[site].master, Handout(gone=part))

    # -- sites ---------------------------------------------------------------------------------

    @handles(Register)
    def on_register(self, sender: AgentId, asked: Register) -> None:
        self._wake()
        self._count("Register")
        site = self._sites.get(asked.site)
        if site is None or not self._is_there(site.master):
            site = self._speaks(asked.site, sender) or site
        if site is not None:
            self.world.send(sender, Registered(asked.site, site.master))

    def _speaks(self, name: str, master: AgentId) -> _Site | None:
        """If this is a pilot of the site, it speaks for it now, and for no other; what the one
        before had waits again."""
        if self._site_of(master) != name:
            return None
        for other in [other for other, site in self._sites.items() if site.master == master]:
            self._forget_site(other)
        site = self._sites[name] = _Site(master, self.world.elapsed())
        self._book.take_back(name)
        return site

    def _forget_site(self, name: str) -> None:
        self._book.take_back(name)
        del self._sites[name]

    @handles(AskTasks)
    def on_ask_tasks(self, sender: AgentId, asked: AskTasks) -> None:
        self._wake()
        self._count("AskTasks")
        now, site = self.world.elapsed(), self._sites.get(asked.site)
        if site is None or (
            site.master != sender
            and (not self._is_there(site.master) or now - site.asked_s > LEASE_S)
        ):
            site = self._speaks(asked.site, sender) or site
        if site is None:
            return
        if site.master != sender:
            self.world.send(sender, NotMaster(asked.site, site.master))
            return
        site.asked_s = now
        for placed in asked.placed:
            self._book.was_placed(*placed, asked.site)
        site.wanted = min(max(0, asked.wanted), LISTED_MAX)
        site.near = min(max(0, asked.near), LISTED_MAX)
        site.idle, site.ahead = list(asked.idle[:LISTED_MAX]), list(asked.ahead[:LISTED_MAX])
        # More than it says it has: a message to it was lost, or it began anew.
        lost = len(self._book.listed_at(asked.site, now - LOST_S)) > asked.held
        if lost:
            site.wanted += self._book.take_back(asked.site)
        self._serve(answer=asked.site, whole=(asked.site,) if lost else ())

    def _serve(self, answer: str | None = None, whole: Container[str] = ()) -> None:
        """Give out what waits: first what could begin at once, to the sites in turns, then what
        is to be fetched ahead, then what they want to choose from, and what lies near them. Those
        that are told the `whole` forget what they had."""
        chosen: dict[str, list[ListedTask]] = {name: [] for name in self._sites}
        for kind in (_IDLE, _AHEAD, _CHOICE, _NEAR):
            asking = list(self._sites)
            while asking:
                asking = [name for name in asking if self._give(name, chosen[name], kind)]
        for name, tasks in chosen.items():
            if tasks or name in whole or name == answer:
                self._hand_out(self._sites[name].master, tasks, whole=name in whole)

    def _give(self, name: str, chosen: list[ListedTask], kind: int) -> bool:
        """One task for this site; False if it wants no more of this kind, or there is none."""
        site, shares, now = self._sites[name], self._book.shares, self.world.elapsed()
        pilots = (site.idle, site.ahead, [NO_NAME], [NO_NAME])[kind]
        if not pilots or (site.near if kind == _NEAR else site.wanted) <= 0:
            return False
        if kind == _NEAR:
            found = shares.next_near(name, self._book.is_first)
        else:
            found = shares.next(name, pilots[-1], self._asks, now, at_once=kind == _IDLE)
        if found is None:
            return False
        pilots.pop()
        chosen.append(self._book.list_at(found, name))
        if kind == _NEAR:
            site.near -= 1
        else:
            site.wanted -= 1
        return True

    def _hand_out(self, master: AgentId, tasks: list[ListedTask], *, whole: bool) -> None:
        book = self._book
        waiting = book.waiting // max(1, len(self._sites))
        parts: Iterable[tuple[ListedTask, ...]] = list(pages(tasks, PAGE)) or [()]
        for part in parts:
            central, tracked = len(book.central) > 0, book.central.tracked
            self.world.send(master, Handout(part, (), whole, central, tracked, waiting))
            whole = False

    def _asks(self, site: str) -> bool:
        return site in self._sites and self._is_there(self._sites[site].master)

    def _tick(self) -> None:
        now, book = self.world.elapsed(), self._book
        self._ticking = bool(book.runs) or any(
            now - site.asked_s <= LEASE_S for site in self._sites.values()
        )
        if not self._ticking:
            return  # it was taken for the queue while it began, or has nothing to do
        self.world.after(TICK_S, self._tick)
        book.shares.age(now)
        for name, site in list(self._sites.items()):
            is_there = self._is_there(site.master)
            if now - site.asked_s > LEASE_S or not is_there:
                book.take_back(name)
            if now - site.asked_s > GONE_S and not is_there:
                self._forget_site(name)
        for node in [node for node in self._files if not self._is_there(at(node, PART))]:
            del self._files[node]
        for name, run in list(book.runs.items()):
            if now - run.heard_s > GONE_S:
                self._tell_gone(book.close_run(name))
                book.keep()
            elif now - run.heard_s > MUTE_S and not book.is_mute(name):
                book.mute(name)
        if now - self._kept_s > KEEP_S:
            self._kept_s = now
            book.keep()
        for queued in book.all():
            if queued.state == "placed" and now - queued.since_s > PLACED_S:
                book.wait(queued)
        self._recall(now)
        self._serve()

    def _recall(self, now: float) -> None:
        """Have tasks back that one site keeps while pilots of another are idle."""
        idle = {name: len(site.idle) for name, site in self._sites.items() if site.idle}
        room = sum(idle.values())
        if not room or self._book.waiting:
            return
        kept = [
            queued
            for name in self._sites
            if name not in idle
            for queued in self._book.listed_at(name, now - RECALL_S)
            if queued.listed.architecture == "event"
        ]
        gone: dict[str, list[TaskId]] = {}
        for queued in kept[-room:]:
            gone.setdefault(queued.site, []).append(queued.listed.id)
            self._book.wait(queued, queued.since_s)
        self._tell_gone(gone)

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
        central = self._book.central
        self.world.busy(EXAMINED_S * len(central))
        pilot = name_of(sender)
        told = self._files.get(node_of(sender), {})
        held = told if asked.tracked else dict.fromkeys(asked.held)
        turn = self._book.shares.turn
        found = central.best(_view(pilot, asked, held), held, self._asks, turn)
        if found is None:
            self.world.send(sender, RequestAnswer(found=False, more=len(central) > 0))
            return
        rank, listed = found
        central.remove(listed.id)
        self._book.place(listed.id)
        self._matching += 1
        held_now, size = held_bytes(listed, held), size_bytes(listed)
        placed = PlacedTask(
            listed.task, listed.generation, pilot, rank, NO_NAME, 0.0, False, held_now, size
        )
        self.world.send(listed.writer, Advice(listed.run, "", self._matching, 1, (placed,)))
        self.world.send(sender, RequestAnswer(found=True, more=len(central) > 0))

    @handles(FileReport)
    def on_file_report(self, sender: AgentId, said: FileReport) -> None:
        self._count("FileReport")
        if not self._is_there(sender):
            return
        files = self._files.setdefault(node_of(sender), {})
        files |= dict.fromkeys(said.made)
        for digest in said.gone:
            files.pop(digest, None)
        while len(files) > FILES_MAX:
            del files[next(iter(files))]

    @handles(JobReport, Heartbeat)
    def on_report(self, sender: AgentId, said: Message) -> None:
        """The paper's pilots say so; nothing follows from it here."""
        self._count(type(said).__name__)

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
            run = self._book.runs.get(asked.run)
            if run is None:
                refused = f"no run {asked.run} has tasks in the queue"
            elif run.user != peer_of(sender):
                refused = f"{asked.run} is a run of {run.user}, who alone may change its priority"
            else:
                run.priority = self._book.shares.runs[asked.run].priority = asked.priority
        elif asked.user:
            refused = self._book.shares.set_share(asked.user, asked.share)
        if not refused:
            self._deal_anew()
        self._book.keep(lambda: self._tell_shares(sender, asked.number, refused))

    def _deal_anew(self) -> None:
        """Other tasks come first now: sites give back what they have not placed."""
        self._dealt_s = self.world.elapsed()
        for name, site in self._sites.items():
            site.wanted += self._book.take_back(name)
        self._serve(whole=self._sites)

    def _tell_shares(self, to: AgentId, number: int, refused: str = "") -> None:
        runs, all_shares = [], self._book.shares
        for name, run in self._book.runs.items():
            states = Counter(queued.state for queued in run.tasks.values())
            runs.append(
                RunStanding(
                    name,
                    run.user,
                    run.priority,
                    states["waiting"],
                    states["listed"],
                    states["placed"],
                    round(all_shares.runs[name].used_s, 1),
                )
            )
        sites = {name: str(name_of(node_of(s.master))) for name, s in self._sites.items()}
        shown = next(pages(runs, RUNS_MAX), ())
        more, requests = len(runs) - len(shown), self.counts.total()
        shares = dict(all_shares.shares)
        said = TheShares(number, shown, shares, sites, requests, refused, more)
        self.world.send(to, said)


def _view(pilot: PeerName, asked: Request, held: dict[str, None]) -> View:
    """A pilot as it has described itself."""
    told = (_sensible(one) for one in (*asked.features[:7], *[0.0] * 7))
    cores, memory, disk, gpus, all_cores, all_memory, lifetime_s, *_ = told
    cores, all_cores = min(cores, CORES_MAX), min(all_cores, CORES_MAX)
    whole = Capacity(all_cores, int(all_memory), int(disk), int(gpus), dict(asked.tags))
    free = Ledger(whole)
    free.millicores, free.memory_bytes = round(cores * 1000), int(memory)
    return View(pilot, asked.site, free, whole, lifetime_s, held)


def _sensible(feature: float | str) -> float:
    """Of what a pilot says of itself, a number that can be one."""
    return feature if isinstance(feature, float | int) and 0 <= feature <= NUMBER_MAX else 0.0
