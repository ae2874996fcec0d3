"""The master of a site: rounds of telling, judging and dealing out.

It has the tasks that the queue gave to the site, and hears which pilots have room. A round tells
the pilots what is new (a TaskList), each answers with its best ranks, and the whole matrix is dealt
out: first what can begin at once, then what is to be fetched ahead. The runs are advised, the
pilots told what will come, and the queue hears of it with the next question.

It asks the queue for more than it needs now, a store of some tasks for all its pilots, and again
only when that does not suffice: what the queue did not have at once it sends by itself, and tasks
whose inputs a pilot here holds in any case.

Rounds follow what happens, but not more often than the size of the site allows; if nobody is idle
and it is only about fetching ahead, they wait a little for company. A round with a few askers is
told to them alone. Where very many pilots wish for some of very many tasks, each judges a part of
them. The tasks of the paper's architecture wait for its period.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Sequence
from itertools import islice

import msgspec

from sureline.overlay.kademlia import Aggregate, Kademlia
from sureline.strategies.latebinding.dealing import Dealt, deal, decoded, portions
from sureline.strategies.latebinding.fetching import LargeFiles, RoundFetches
from sureline.strategies.latebinding.messages import (
    Advice,
    AskTasks,
    Handout,
    ListedTask,
    PlacedTask,
    PromisedTasks,
    Ranked,
    RankReply,
    RoomWish,
    TaskId,
    TaskList,
)
from sureline.strategies.latebinding.sense import is_sensible, is_short, pages, sensible
from sureline.strategies.latebinding.settings import (
    AHEAD_DEALT_MAX,
    ASK_S,
    COMPANY_S,
    FLOOR_PILOTS,
    FLOOR_S,
    LISTED_MAX,
    LISTED_PER_IDLE,
    PAIRS_MAX,
    PERIOD_S,
    TOLD_DIRECTLY_MAX,
    TREE_MAX,
)
from sureline.strategies.latebinding.wishes import PilotWish, Wishes
from sureline.workflow.model import Needs
from sureline.world.address import PeerName, name_of
from sureline.world.protocol import AgentId, Timer, World
from sureline.world.usual import Usual

TOPIC = "latebinding.tasks"
REPLIES_S = 2.0
"""So long a round that was told directly waits for answers; where they take longer, longer."""
ROUNDS_KEPT = 16
QUICK_S = 0.05
"""Wishes that come together are answered together."""
ASK_PAUSE_S = 0.4
PATIENT_S = 1.0
RIPE_S = 0.7
"""So long a wish waits for the tasks that the pilot's last one has made ready: it holds their
inputs. Where tasks are short, that would take longer than to fetch these: all such pauses are
shorter by as much as pilots fetch more than one task ahead (`Wishes.brisk`)."""
NEWS_S = 5.0
"""The queue hears no more often that pilots are idle who were not before, unless it is asked."""
STORE_SHARE = 4
"""A site has a task in store for every so many of its pilots."""
PLACED_MAX = 5000
PATIENCE = 60
"""A task that went through so many rounds in vain is dealt out before the others."""
PLENTY = 1
"""So many tasks must be left for each pilot if some are to be fetched ahead."""
AHEAD_FLOORS = 4
TOLD_CENTRAL_S = 30.0
"""Pilots are told so often that the queue matches."""


class _Pooled(msgspec.Struct):
    listed: ListedTask
    number: int = 0
    """In the lists of this master; 0 until it is told of."""
    rounds: int = 0


class _Alarm:
    """One thing that is to be done: at the earliest time that somebody has wanted it."""

    def __init__(self, world: World, action: Callable[[], None]) -> None:
        self._world = world
        self._action = action
        self._due: tuple[float, Timer] | None = None

    def set(self, wait_s: float) -> None:
        at_s = self._world.elapsed() + wait_s
        if self._due is not None:
            if self._due[0] <= at_s + 1e-6:
                return
            self._due[1].cancel()
        self._due = at_s, self._world.after(wait_s, self._ring)

    def _ring(self) -> None:
        self._due = None
        self._action()


class Round(msgspec.Struct):
    """One round under way."""

    number: int
    open: dict[int, ListedTask]
    ahead: bool
    """Whether tasks are fetched ahead in it."""
    waits_for: set[PeerName]
    ranked: list[Ranked] = []
    timer: Timer | None = None


class Master:
    """Of one site, from its election to its end. `judge` is this node's own answer to a TaskList;
    `queue` tells where the queue is."""

    def __init__(
        self,
        me: AgentId,
        world: World,
        site: str,
        kademlia: Kademlia,
        queue: Callable[[], AgentId | None],
        judge: Callable[[TaskList], Ranked | None],
    ) -> None:
        self.me = me
        self._world = world
        self._site = site
        self._kademlia = kademlia
        self._queue = queue
        self._judge = judge
        self._pool: dict[TaskId, _Pooled] = {}
        self._wishes = Wishes()
        self._large = LargeFiles()
        self._placed: list[tuple[str, str, int]] = []
        self._numbers = 0
        self._told = 0
        """The last task that a broadcast has told of."""
        self._rounds = 0
        self._began_s: dict[int, float] = {}
        """When the latest rounds began."""
        self._usual = Usual()
        """Until a pilot has answered."""
        self._ended_s = -PERIOD_S
        self._round: Round | None = None
        self._next_round = _Alarm(world, self._begin)
        self._next_question = _Alarm(world, self.ask)
        self._asked_s = -FLOOR_S
        self._credit = 0
        """So many tasks the queue may still send without being asked."""
        self._idle_told = 0
        """So many of the places that it knows of are free."""
        self._news = False
        """Whether somebody wishes for something since it was asked."""
        self._reign = world.random.getrandbits(32)
        self._told_central_s = -TOLD_CENTRAL_S
        self._waiting = 0
        """Tasks that the queue still has."""
        self._central = self._tracked = self._periodic = False
        self._over = False
        self.broadcasts = 0
        self._renew()

    def close(self) -> None:
        """Somebody else is the master now."""
        self._over = True

    # -- the queue -------------------------------------------------------------------------------

    def _renew(self) -> None:
        if self._over:
            return
        now = self._world.elapsed()
        self._wishes.drop_stale(now)
        if now - self._asked_s > ASK_S / 2:
            self.ask()
        self._world.after(ASK_S * (0.8 + 0.4 * self._world.random.random()), self._renew)

    @property
    def _floor_s(self) -> float:
        """Between two rounds, or questions to the queue."""
        return FLOOR_S * min(1.0, self._wishes.pilots / FLOOR_PILOTS)

    def _see_to_store(self) -> None:
        """Ask for more if that is needed, not more often than rounds may follow each other."""
        pause_s = None if self._over else self._ask_pause_s()
        if pause_s is not None:
            self._next_question.set(max(0.0, pause_s))

    def _ask_pause_s(self) -> float | None:
        """A pilot that has just ended a task may hold what the next one needs, and its run has to
        tell the queue of that one first: there is time for it, the more if nobody is idle. None if
        there is nothing to ask."""
        now = self._world.elapsed()
        pause_s = max(ASK_PAUSE_S / self._wishes.brisk, self._asked_s + self._floor_s - now)
        if self._periodic or self._central:
            return max(pause_s, self._ended_s + PERIOD_S - FLOOR_S - now) if self._news else None
        idle, ahead = self._room()
        lacks = idle + ahead - len(self._pool)
        if lacks <= 0:
            return None
        if lacks > self._credit:
            return pause_s if idle else max(pause_s, PATIENT_S / self._wishes.brisk)
        if idle > len(self._pool) and not self._idle_told:
            return max(pause_s, self._asked_s + NEWS_S - now)
        return None

    def _room(self) -> tuple[int, int]:
        """How many tasks could begin at once, and how many are to be fetched ahead."""
        return self._wishes.places, self._wishes.ahead if self._fetches_ahead() else 0

    def ask(self) -> None:
        """Tell the queue who has room."""
        queue = self._queue()
        if self._over or queue is None:
            return
        self._asked_s, self._news = self._world.elapsed(), False
        placed, self._placed = self._placed[:PLACED_MAX], self._placed[PLACED_MAX:]
        idle = [name for name, wish in self._wishes for _ in range(wish.places)]
        ahead = [name for name, wish in self._wishes for _ in range(wish.ahead)]
        if self._periodic:
            ahead = []
        self._idle_told = len(idle)
        self._credit = max(len(idle), self._store_max() - len(self._pool))
        asked = AskTasks(
            self._site,
            tuple(idle[:LISTED_MAX]),
            tuple(ahead[:LISTED_MAX]),
            self._credit,
            tuple(placed),
            len(self._pool) + len(self._placed),
            0 if self._periodic else min(LISTED_MAX, self._wishes.pilots),
        )
        self._world.send(queue, asked)

    def _store_max(self) -> int:
        """How many tasks this site would have."""
        store = 0 if self._periodic else self._wishes.pilots // STORE_SHARE
        return min(LISTED_MAX, self._listed_max() + store)

    def _listed_max(self) -> int:
        """How many tasks a round tells of, besides those whose inputs somebody holds who asks."""
        idle, ahead = self._room()
        choice = idle + min(ahead, self._wishes.pilots)
        return min(LISTED_MAX, idle + ahead + (LISTED_PER_IDLE - 1) * choice)

    def on_handout(self, said: Handout) -> None:
        self._waiting = said.waiting
        if said.whole:
            self._pool.clear()
        for gone in said.gone:
            self._pool.pop(gone, None)
        for listed in (one for one in said.tasks if is_sensible(one) and is_short(one)):
            known = self._pool.get(listed.id)
            is_newer = known is not None and listed.generation > known.listed.generation
            if is_newer or (known is None and len(self._pool) < 2 * LISTED_MAX):
                self._pool[listed.id] = _Pooled(listed)
                self._periodic = listed.architecture == "distributed"
            for holder in listed.holders:
                if (wish := self._wishes.get(holder)) is not None:
                    wish.ripe_s = 0.0
        self._credit = max(0, self._credit - len(said.tasks))
        self._idle_told = max(0, self._idle_told - len(said.tasks))
        self._central, self._tracked = said.central, said.tracked
        self._schedule()
        self._see_to_store()

    # -- when ------------------------------------------------------------------------------------

    def on_wish(self, sender: AgentId, said: RoomWish) -> None:
        name, now = name_of(sender), self._world.elapsed()
        old = self._wishes.get(name)
        before = 0 if old is None else old.places
        wish = self._wishes.hear(name, sender, said, now)
        if wish is not None:
            if wish.places > before and not self._periodic:
                wish.ripe_s = now + RIPE_S / max(1, wish.ahead)
            self._news |= old is None or wish.places > before
            self._schedule(wish.ripe_s - now)
        self._see_to_store()

    def lost(self, name: PeerName) -> None:
        """This pilot is gone: nothing waits for it, and the site is smaller."""
        self._wishes.forget(name)

    def _schedule(self, wait_s: float = 0.0) -> None:
        """Have a round when there is something to deal out, as soon as may be."""
        if self._over or self._round is not None or not self._wishes:
            return
        if not self._pool and not self._central:
            return
        if not self._central and not sum(self._room()):
            return
        since_s = self._world.elapsed() - self._ended_s
        quick_s = min(QUICK_S, self._floor_s)
        self._next_round.set(max(wait_s, quick_s, self._pause_s() - since_s))

    def _pause_s(self) -> float:
        if not self._pool:  # only to have pilots ask the queue
            return self._told_central_s + TOLD_CENTRAL_S - self._ended_s
        if self._periodic:
            return PERIOD_S
        if self._wishes.places:
            return self._floor_s
        return max(AHEAD_FLOORS * self._floor_s, COMPANY_S / self._wishes.brisk)

    # -- telling ---------------------------------------------------------------------------------

    def _begin(self) -> None:
        if self._over or self._round is not None or not self._wishes:
            return
        ahead = self._fetches_ahead()
        askers = self._askers(ahead)
        if not askers and not self._central:
            self._schedule(self._floor_s / 2)
            return
        self._rounds += 1
        self._ended_s = self._world.elapsed()
        current = self._round = Round(self._rounds, self._chosen(askers), ahead, set(askers))
        self._began_s[self._rounds] = self._ended_s
        self._began_s.pop(self._rounds - ROUNDS_KEPT, None)
        many = len(askers) * len(current.open) > PAIRS_MAX and not (self._periodic or self._central)
        if many or len(askers) <= (TREE_MAX if self._periodic else TOLD_DIRECTLY_MAX):
            wait_s = self._usual.within_s(REPLIES_S)
            current.timer = self._world.after(wait_s, lambda: self._end(current))
            if many:
                self._tell_parts(current, askers)
            else:
                self._tell_directly(current, list(askers.values()))
            return
        missed = [wish for wish in askers.values() if wish.missed]
        self._tell_directly(current, missed[:TOLD_DIRECTLY_MAX])
        told = self._list(current, current.open, self._told)
        self._told = _last_of(told)
        self.broadcasts += 1
        mine = self._judge(told)
        if mine is not None and mine.pilot in askers:
            current.ranked.append(mine)

        def replied(found: Aggregate) -> None:
            known = {one.pilot for one in current.ranked}
            answers = [one for one in decoded(found.value) if one.pilot in askers]
            current.ranked += [one for one in answers if one.pilot not in known]
            for name in {one.pilot for one in current.ranked}:
                current.waits_for.discard(name)
            self._end(current)

        self._kademlia.broadcast(TOPIC, msgspec.msgpack.encode(told), replied)

    def _tell_directly(self, current: Round, wishes: Sequence[PilotWish]) -> None:
        since = {wish.told for wish in wishes}
        lists = {last: self._list(current, current.open, last) for last in since}
        for wish in wishes:
            said = lists[wish.told]
            self._world.send(wish.agent, said)
            wish.told = _last_of(said)

    def _tell_parts(self, current: Round, askers: dict[PeerName, PilotWish]) -> None:
        """Each asker hears of the tasks that it is to judge, and of no others."""
        room = {name: wish.places + current.ahead * wish.ahead for name, wish in askers.items()}
        for name, part in portions(list(current.open.items()), room, current.number).items():
            self._world.send(askers[name].agent, self._list(current, part, 0))

    def _fetches_ahead(self) -> bool:
        """Not when few tasks are left for each pilot: somebody who is idle soon could begin them
        sooner."""
        plenty = len(self._pool) + self._waiting >= PLENTY * self._wishes.pilots
        return plenty and not self._periodic

    def _askers(self, ahead: bool) -> dict[PeerName, PilotWish]:
        now = self._world.elapsed() + QUICK_S
        return {
            name: wish
            for name, wish in self._wishes
            if (ahead or wish.places) and wish.ripe_s <= now
        }

    def _chosen(self, askers: Container[PeerName]) -> dict[int, ListedTask]:
        """The tasks of a round: first those whose inputs a pilot holds that asks."""
        held = [p for p in self._pool.values() if any(one in askers for one in p.listed.holders)]
        known = {p.listed.id for p in held}
        others = (p for task, p in self._pool.items() if task not in known)
        chosen = [*held, *islice(others, max(1, self._listed_max()))][:LISTED_MAX]
        for pooled in chosen:
            if not pooled.number:
                self._numbers += 1
                pooled.number = self._numbers
        return {pooled.number: pooled.listed for pooled in chosen}

    def _list(self, current: Round, numbers: Iterable[int], since: int) -> TaskList:
        """Of these tasks those after `since`, as many as a message holds; the others come with a
        later one."""
        fresh = sorted(number for number in numbers if number > since)
        told = next(pages(((n, current.open[n]) for n in fresh), LISTED_MAX), ())
        last = told[-1][0] if told else since
        central = self._queue() if self._central else None
        self._told_central_s = self._world.elapsed() if central else -TOLD_CENTRAL_S
        return TaskList(
            current.number,
            self.me,
            self._reign,
            since,
            told,
            tuple(number for number in numbers if number <= last),
            central,
            self._tracked,
            current.ahead,
        )

    def on_reply(self, sender: AgentId, said: RankReply) -> None:
        current, name, now = self._round, name_of(sender), self._world.elapsed()
        if said.number in self._began_s:
            self._usual.took(now - self._began_s[said.number])
        if current is None or said.number != current.number or name not in current.waits_for:
            if said.ranked.pilot == name:  # too late, but there is room
                room = RoomWish(self._site, said.ranked.places, said.ranked.ahead)
                self.on_wish(sender, room)
            return
        current.waits_for.discard(name)
        if said.ranked.pilot == name:
            current.ranked.append(sensible(said.ranked))
            wish = self._wishes.get(name)
            if said.ranked.lacks and wish is not None:
                wish.told = 0
        if not current.waits_for and current.timer is not None:
            self._end(current)

    # -- dealing out -----------------------------------------------------------------------------

    def _end(self, current: Round) -> None:
        if self._round is not current or self._over:
            return
        self._round = None
        if current.timer is not None:
            current.timer.cancel()
        idle_missed = 0
        for name in current.waits_for:
            wish = self._wishes.get(name)
            if wish is None:
                continue
            if current.timer is not None or wish.missed:
                self._wishes.drop(name)  # it says so again if it is there
            else:
                wish.missed = True
                idle_missed += wish.places
        if any(ranked.lacks for ranked in current.ranked):
            self._told = 0
        by_number = {p.number: p for p in self._pool.values()}
        still = [number for number in current.open if number in by_number]
        first = {number for number in still if by_number[number].rounds >= PATIENCE}
        most = self._ahead_for_each(len(current.ranked))
        left = {one.pilot: [one.places, min(one.ahead, most)] for one in current.ranked}
        later = {one.pilot: one.ahead - left[one.pilot][1] for one in current.ranked}
        tasks = {number: by_number[number].listed for number in still}
        kept = idle_missed if current.ahead else len(self._pool)
        fetching = None if self._periodic else self._fetching()
        dealt = deal(tasks, current.ranked, first, left, kept, fetching)
        for number in still:
            by_number[number].rounds += 1
        self._tell(current, dealt)
        for name, (places, ahead) in left.items():
            self._wishes.settle(name, places, ahead + later[name])
        self._see_to_store()
        self._schedule()

    def _fetching(self) -> RoundFetches:
        idle_s = {name: wish.idle_s for name, wish in self._wishes if wish.places}
        return RoundFetches(self._large, idle_s, self._world.elapsed())

    def _ahead_for_each(self, ranked: int) -> int:
        """How many tasks a pilot may fetch ahead in a round: no more than its part of all, so that
        none has much while others are idle."""
        part = (len(self._pool) + self._waiting) // max(1, self._wishes.pilots)
        return max(1, min(part, AHEAD_DEALT_MAX // max(1, ranked)))

    def _tell(self, current: Round, dealt: Sequence[Dealt]) -> None:
        pilots = len(current.ranked)
        advice: dict[tuple[AgentId, str], list[PlacedTask]] = {}
        promises: dict[PeerName, list[tuple[str, str, Needs]]] = {}
        for one in dealt:
            listed = one.listed
            self._pool.pop(listed.id, None)
            self._placed.append((listed.run, listed.task, listed.generation))
            advice.setdefault((listed.writer, listed.run), []).append(one.placement)
            promised = (listed.run, listed.task, listed.needs)
            promises.setdefault(one.placement.pilot, []).append(promised)
        for pilot, tasks in promises.items():
            wish = self._wishes.get(pilot)
            if wish is not None:
                self._world.send(wish.agent, PromisedTasks(tuple(tasks)))
        for (writer, run), placements in advice.items():
            said = Advice(run, self._site, current.number, pilots, tuple(placements))
            self._world.send(writer, said)


def _last_of(told: TaskList) -> int:
    """The last task that who hears this knows of."""
    return told.tasks[-1][0] if told.tasks else told.since
