"""The master of a site: rounds of telling, judging and dealing out.

It has the tasks that the queue gave to the site, and hears which pilots have room. A round tells
the pilots what is new (a TaskList), each answers with its best ranks, and the whole matrix is dealt
out: first what can begin at once, then what is to be fetched ahead. The runs are advised, the
pilots told what will come, and the queue hears of it with the next question.

Rounds follow what happens, but not more often than FLOOR_S apart; if nobody is idle and it is only
about fetching ahead, they wait a little for company. A round with a few askers is told to them
alone. The tasks of the paper's architecture wait for its period.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence
from itertools import islice

import msgspec
import numpy as np

from sureline.overlay.kademlia import Aggregate, Kademlia
from sureline.strategies.latebinding.assignment import NONE, Matrix, Pairs, exact, greedy
from sureline.strategies.latebinding.judging import size_bytes, tier_of
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
from sureline.strategies.latebinding.settings import (
    AHEAD_S,
    ASK_S,
    FLOOR_S,
    LISTED_MAX,
    LISTED_PER_IDLE,
    PERIOD_S,
    PLACES_MAX,
    TOLD_DIRECTLY_MAX,
    WISH_S,
)
from sureline.workflow.model import Needs
from sureline.world.address import NO_NAME, PeerName, name_of
from sureline.world.protocol import AgentId, Timer, World

TOPIC = "latebinding.tasks"
REPLIES_S = 2.0
"""So long a round that was told directly waits for answers."""
QUICK_S = 0.05
ASK_PAUSE_S = 0.4
PATIENT_S = 1.0
ANSWER_S = 1.5
"""So long a round waits for the queue's answer to a new wish: it may know what that pilot holds."""
"""Wishes that come together are answered together."""
LIST_BYTES_MAX = 400_000
WISHES_MAX = 20_000
PLACED_MAX = 5000
PATIENCE = 60
"""A task that went through so many rounds in vain is dealt out before the others."""
PLENTY = 2
"""So many tasks must be left for each pilot if some are to be fetched ahead."""
STALE_S = 3 * WISH_S
TOLD_CENTRAL_S = 30.0
"""Pilots are told so often that the queue matches."""


class _Pooled(msgspec.Struct):
    number: int
    listed: ListedTask
    rounds: int = 0


class _Wished(msgspec.Struct):
    places: int
    ahead: int
    at_s: float
    agent: AgentId
    told: int = 0
    """The last task that it was told of directly."""
    ripe_s: float = 0.0
    """It takes part in rounds from then on: until the queue has answered, it may know of a task
    whose inputs this pilot holds."""
    missed: bool = False
    """The last broadcast did not reach it, or its answer was late."""


class Round(msgspec.Struct):
    """One round under way."""

    number: int
    open: list[int]
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
        self._wishes: dict[PeerName, _Wished] = {}
        self._placed: list[TaskId] = []
        self._numbers = 0
        self._told = 0
        """The last task that a broadcast has told of."""
        self._rounds = 0
        self._ended_s = -PERIOD_S
        self._round: Round | None = None
        self._due: tuple[float, Timer] | None = None
        self._asking = False
        self._asked_s = -FLOOR_S
        self._told_queue: dict[PeerName, int] = {}
        """The pilots of whose room the queue knows, and how many tasks could begin there."""
        self._told_central_s = -TOLD_CENTRAL_S
        self._waiting = 0
        """Tasks that the queue still has."""
        self._pilots: dict[PeerName, None] = {}
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
        for name in [n for n, wish in self._wishes.items() if now - wish.at_s > STALE_S]:
            del self._wishes[name]
        self.ask()
        self._world.after(ASK_S * (0.8 + 0.4 * self._world.random.random()), self._renew)

    def _ask_soon(self) -> None:
        """Not more often than rounds may follow each other."""
        if not self._asking and not self._over:
            self._asking = True
            self._world.after(self._ask_pause_s(), self.ask)

    def _ask_pause_s(self) -> float:
        """A pilot that has just ended a task may hold what the next one needs, and its run has to
        tell the queue of that one first: there is time for it, the more if nobody is idle."""
        now = self._world.elapsed()
        pause_s = max(ASK_PAUSE_S, self._asked_s + FLOOR_S - now)
        if self._periodic:
            return max(pause_s, self._ended_s + PERIOD_S - FLOOR_S - now)
        idle = any(wish.places for wish in self._wishes.values())
        return pause_s if idle else max(pause_s, PATIENT_S)

    def ask(self) -> None:
        """Tell the queue who has room."""
        self._asking = False
        queue = self._queue()
        if self._over or queue is None:
            return
        self._asked_s = self._world.elapsed()
        placed, self._placed = self._placed, []
        self._told_queue = {name: wish.places for name, wish in self._wishes.items()}
        idle = [name for name, wish in self._wishes.items() for _ in range(wish.places)]
        ahead = [name for name, wish in self._wishes.items() for _ in range(wish.ahead)]
        if self._periodic:
            ahead = []
        wanted = max(len(idle) + len(ahead), self._listed_max() - len(self._pool))
        asked = AskTasks(
            self._site,
            tuple(idle[:LISTED_MAX]),
            tuple(ahead[:LISTED_MAX]),
            wanted,
            tuple(placed[:PLACED_MAX]),
            len(self._pool),
        )
        self._world.send(queue, asked)

    def _listed_max(self) -> int:
        ahead = self._fetches_ahead()
        places = sum(wish.places + ahead * wish.ahead for wish in self._wishes.values())
        return min(LISTED_MAX, LISTED_PER_IDLE * places)

    def on_handout(self, said: Handout) -> None:
        self._waiting = said.waiting
        if said.whole:
            self._pool.clear()
        for gone in said.gone:
            self._pool.pop(gone, None)
        for listed in said.tasks:
            if listed.id not in self._pool and len(self._pool) < 2 * LISTED_MAX:
                self._numbers += 1
                self._pool[listed.id] = _Pooled(self._numbers, listed)
                self._periodic = listed.architecture == "distributed"
        self._central, self._tracked = said.central, said.tracked
        now = self._world.elapsed()
        for name in self._told_queue:
            if name in self._wishes:
                self._wishes[name].ripe_s = min(self._wishes[name].ripe_s, now)
        self._schedule()

    # -- when ------------------------------------------------------------------------------------

    def on_wish(self, sender: AgentId, said: RoomWish) -> None:
        name = name_of(sender)
        if name not in self._wishes and len(self._wishes) >= WISHES_MAX:
            return
        old, now = self._wishes.get(name), self._world.elapsed()
        told = 0 if old is None else old.told
        places, ahead = min(max(0, said.places), PLACES_MAX), min(max(0, said.ahead), PLACES_MAX)
        known = self._told_queue.get(name, -1) >= places
        if places or ahead:
            ripe_s = now + ANSWER_S if old is None or not known else old.ripe_s
            self._wishes[name] = _Wished(places, ahead, now, sender, told, ripe_s)
            self._pilots[name] = None
        if not known:
            self._ask_soon()
        self._schedule(QUICK_S if known else ANSWER_S)

    def _schedule(self, wait_s: float = QUICK_S) -> None:
        """Have a round when there is something to deal out, as soon as may be."""
        if self._over or self._round is not None or not self._wishes:
            return
        if not self._pool and not self._central:
            return
        if not self._central and not any(
            wish.places or self._fetches_ahead() for wish in self._wishes.values()
        ):
            return
        now = self._world.elapsed()
        at_s = max(now + wait_s, self._ended_s + self._pause_s())
        if self._due is not None:
            if self._due[0] <= at_s + 1e-6:
                return
            self._due[1].cancel()
        self._due = at_s, self._world.after(at_s - now, self._begin)

    def _pause_s(self) -> float:
        if not self._pool:  # only to have pilots ask the queue
            return self._told_central_s + TOLD_CENTRAL_S - self._ended_s
        if self._periodic:
            return PERIOD_S
        return FLOOR_S if any(wish.places for wish in self._wishes.values()) else AHEAD_S

    # -- telling ---------------------------------------------------------------------------------

    def _begin(self) -> None:
        self._due = None
        if self._over or self._round is not None or not self._wishes:
            return
        ahead = self._fetches_ahead()
        askers = self._askers(ahead)
        if not askers and not self._central:
            self._schedule(FLOOR_S)
            return
        self._rounds += 1
        self._ended_s = self._world.elapsed()
        current = self._round = Round(self._rounds, self._chosen(askers), ahead, set(askers))
        if len(askers) <= TOLD_DIRECTLY_MAX:
            current.timer = self._world.after(REPLIES_S, lambda: self._end(current))
            for wish in askers.values():
                self._world.send(wish.agent, self._list(current, wish.told))
                wish.told = self._numbers
            return
        missed = [wish for wish in askers.values() if wish.missed]
        for wish in missed[:TOLD_DIRECTLY_MAX]:
            self._world.send(wish.agent, self._list(current, wish.told))
            wish.told = self._numbers
        told = self._list(current, self._told)
        self._told = self._numbers
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

    def _fetches_ahead(self) -> bool:
        """Not when few tasks are left for each pilot: somebody who is idle soon could begin them
        sooner."""
        plenty = len(self._pool) + self._waiting >= PLENTY * len(self._pilots)
        return plenty and not self._periodic

    def _askers(self, ahead: bool) -> dict[PeerName, _Wished]:
        now = self._world.elapsed() + QUICK_S
        return {
            name: wish
            for name, wish in self._wishes.items()
            if (ahead or wish.places) and wish.ripe_s <= now
        }

    def _chosen(self, askers: Container[PeerName]) -> list[int]:
        """The tasks of a round: first those whose inputs a pilot holds that asks."""
        held = [p.number for p in self._pool.values() if p.listed.holder in askers]
        known = set(held)
        others = (p.number for p in self._pool.values() if p.number not in known)
        return [*held, *islice(others, max(1, self._listed_max()))][:LISTED_MAX]

    def _list(self, current: Round, since: int) -> TaskList:
        """The tasks after `since`, as many as a message holds; the others come with a later one."""
        wanted = set(current.open)
        tasks = [(p.number, p.listed) for p in self._pool.values() if p.number in wanted]
        fresh = [one for one in tasks if one[0] > since]
        size = 0
        for place, one in enumerate(fresh):
            size += len(msgspec.msgpack.encode(one))
            if size > LIST_BYTES_MAX:
                kept = {number for number, _ in fresh[:place]}
                current.open = [n for n in current.open if n <= since or n in kept]
                fresh = fresh[:place]
                break
        central = self._queue() if self._central else None
        self._told_central_s = self._world.elapsed() if central else -TOLD_CENTRAL_S
        return TaskList(
            current.number,
            self.me,
            since,
            tuple(fresh),
            tuple(current.open),
            central,
            self._tracked,
            current.ahead,
        )

    def on_reply(self, sender: AgentId, said: RankReply) -> None:
        current, name = self._round, name_of(sender)
        if current is None or said.number != current.number or name not in current.waits_for:
            return
        current.waits_for.discard(name)
        if said.ranked.pilot == name:
            current.ranked.append(said.ranked)
            if said.ranked.lacks and name in self._wishes:
                self._wishes[name].told = 0
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
                del self._wishes[name]  # it says so again if it is there
            else:
                wish.missed = True
                idle_missed += wish.places
        if any(ranked.lacks for ranked in current.ranked):
            self._told = 0
        by_number = {p.number: p for p in self._pool.values()}
        still = [number for number in current.open if number in by_number]
        first = {number for number in still if by_number[number].rounds >= PATIENCE}
        left = {one.pilot: [one.places, one.ahead] for one in current.ranked}
        tasks = {number: by_number[number].listed for number in still}
        kept = idle_missed if current.ahead else len(self._pool)
        dealt = deal(tasks, current.ranked, first, left, kept)
        for number in still:
            by_number[number].rounds += 1
        self._tell(current, dealt)
        self._settle(left)
        for one in dealt:
            self._told_queue.pop(one.placement.pilot, None)
        if any(name not in self._told_queue for name in self._wishes):
            self._ask_soon()
        self._schedule()

    def _settle(self, left: dict[PeerName, list[int]]) -> None:
        """What pilots wish for now: what they said, less what they were given."""
        for name, (places, ahead) in left.items():
            wish = self._wishes.get(name)
            if wish is not None:
                wish.places, wish.ahead = places, ahead
                if not places and not ahead:
                    del self._wishes[name]

    def _tell(self, current: Round, dealt: Sequence[Dealt]) -> None:
        pilots = len(current.ranked)
        advice: dict[tuple[AgentId, str], list[PlacedTask]] = {}
        promises: dict[PeerName, list[tuple[str, str, Needs]]] = {}
        for one in dealt:
            listed = one.listed
            self._pool.pop(listed.id, None)
            self._placed.append(listed.id)
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


class Dealt(msgspec.Struct, frozen=True):
    listed: ListedTask
    placement: PlacedTask


def deal(
    tasks: dict[int, ListedTask],
    ranked: Sequence[Ranked],
    first: set[int],
    left: dict[PeerName, list[int]],
    kept: int = 0,
) -> list[Dealt]:
    """Which task goes to which pilot: what begins at once before what is fetched ahead, what has
    waited long (`first`) before the rest, and what much depends on before what little does. `left`
    has the places of each pilot, at once and ahead, and is lessened. So many as are `kept` are not
    fetched ahead: others could begin them at once."""
    rivals = _rivals(tasks, ranked)
    open_ = dict(tasks)
    room = {one.pilot: [one.cores, float(one.memory_bytes)] for one in ranked}
    dealt: list[Dealt] = []
    tiers = sorted({(n not in first, -tier_of(task)) for n, task in tasks.items()})
    for ahead in (False, True):
        for tier in tiers:
            chosen = {n: t for n, t in open_.items() if (n not in first, -tier_of(t)) == tier}
            if ahead:
                most = max(0, len(open_) - kept)
                able = (n for n, t in chosen.items() if t.architecture == "event")
                chosen = {n: chosen[n] for n in islice(able, most)}
            for number, pilot, rank in _assigned(chosen, ranked, left, int(ahead)):
                listed, free = open_[number], room[pilot]
                needs = listed.needs
                if not ahead and (needs.cores > free[0] + 1e-6 or needs.memory_bytes > free[1]):
                    continue
                free[0] -= needs.cores
                free[1] -= needs.memory_bytes
                left[pilot][int(ahead)] -= 1
                del open_[number]
                rival = next(((p, r) for p, r in rivals[number] if p != pilot), (NO_NAME, 0.0))
                dealt.append(Dealt(listed, _placement(listed, pilot, rank, rival, ahead=ahead)))
    return dealt


def _placement(
    listed: ListedTask, pilot: PeerName, rank: float, rival: tuple[PeerName, float], *, ahead: bool
) -> PlacedTask:
    size = size_bytes(listed)
    held = -1 if listed.rank else min(size, int(rank))
    return PlacedTask(listed.task, listed.generation, pilot, rank, *rival, ahead, held, size)


def _assigned(
    tasks: dict[int, ListedTask],
    ranked: Sequence[Ranked],
    left: dict[PeerName, list[int]],
    which: int,
) -> list[tuple[int, PeerName, float]]:
    """(task, pilot, rank) by the way that the tasks ask for: exactly, unless one wants greedily."""
    rows = {number: row for row, number in enumerate(tasks)}
    columns: list[PeerName] = []
    entries: list[tuple[int, int, float]] = []
    for one in ranked:
        known = [(rows[number], rank) for number, rank in one.ranks if number in rows]
        for _ in range(min(left[one.pilot][which], len(known))):
            entries += [(row, len(columns), rank) for row, rank in known]
            columns.append(one.pilot)
    if not entries:
        return []
    used = sorted({row for row, _, _ in entries})
    packed = {row: place for place, row in enumerate(used)}
    matrix: Matrix = np.full((len(used), len(columns)), NONE)
    for row, column, rank in entries:
        matrix[packed[row], column] = rank
    numbers = list(tasks)
    way = exact if all(tasks[numbers[row]].exact for row in used) else greedy
    pairs: Pairs = way(matrix)
    return [
        (numbers[used[row]], columns[column], float(matrix[row, column])) for row, column in pairs
    ]


def _rivals(
    tasks: dict[int, ListedTask], ranked: Sequence[Ranked]
) -> dict[int, list[tuple[PeerName, float]]]:
    """The two pilots that ranked each task highest."""
    found: dict[int, list[tuple[PeerName, float]]] = {number: [] for number in tasks}
    for one in ranked:
        for number, rank in one.ranks:
            if number in found:
                best = found[number]
                best.append((one.pilot, rank))
                best.sort(key=lambda pair: (-pair[1], pair[0]))
                del best[2:]
    return found


# -- replies on their way up -----------------------------------------------------------------------

REPLY_BYTES_MAX = 200_000

_decoder = msgspec.msgpack.Decoder(list[Ranked])


def encoded(ranked: Sequence[Ranked]) -> bytes:
    """As many of the best ranks of each pilot as a reply may hold."""
    body = msgspec.msgpack.encode(ranked)
    most = max((len(one.ranks) for one in ranked), default=0)
    while len(body) > REPLY_BYTES_MAX and most > 1:
        most //= 2
        ranked = [msgspec.structs.replace(one, ranks=one.ranks[:most]) for one in ranked]
        body = msgspec.msgpack.encode(ranked)
    return body


def decoded(body: bytes | None) -> list[Ranked]:
    if not body:
        return []
    try:
        return _decoder.decode(body)
    except msgspec.DecodeError:
        return []


def merged(replies: Sequence[bytes]) -> bytes:
    return encoded([ranked for reply in replies for ranked in decoded(reply)])
