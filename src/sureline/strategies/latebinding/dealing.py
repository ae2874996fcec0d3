"""From what the pilots of a site think to who gets what: answers on their way up, and a round's
matrix dealt out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import islice

import msgspec
import numpy as np

from sureline.strategies.latebinding.assignment import NONE, Matrix, Pairs, exact, greedy
from sureline.strategies.latebinding.fetching import RoundFetches
from sureline.strategies.latebinding.judging import size_bytes, tier_of
from sureline.strategies.latebinding.messages import ListedTask, PlacedTask, Ranked
from sureline.strategies.latebinding.sense import sensible
from sureline.strategies.latebinding.settings import BEST, JUDGED_BY
from sureline.world.address import NO_NAME, PeerName

PASSES = 8
"""So often a round looks for something else for pilots of which others fetch the same."""


class Dealt(msgspec.Struct, frozen=True):
    listed: ListedTask
    placement: PlacedTask


def portions(
    tasks: Sequence[tuple[int, ListedTask]], room: Mapping[PeerName, int], turn: int
) -> dict[PeerName, list[int]]:
    """Which of very many tasks each of very many pilots judges, by how many it has room for: those
    whose inputs it holds, as far as its run knows, and its part of those that come first: of twice
    as many as there is room for. It is another part in each turn, for some can run at few only."""
    found: dict[PeerName, dict[int, None]] = {pilot: {} for pilot in room}
    for number, listed in tasks:
        for holder in listed.holders:
            if holder in found:
                found[holder][number] = None
    first = sorted(tasks, key=lambda one: -tier_of(one[1]))[: max(BEST, 2 * sum(room.values()))]
    count, each = len(first), JUDGED_BY * -(-len(first) // max(1, len(room)))
    for place, (pilot, free) in enumerate(room.items()):
        share = min(count, max(BEST, 2 * free, each))
        start = place * count // len(room) + turn * share
        for number, _ in (first[(start + step) % count] for step in range(share)):
            found[pilot][number] = None
    return {pilot: list(numbers) for pilot, numbers in found.items()}


def deal(
    tasks: dict[int, ListedTask],
    ranked: Sequence[Ranked],
    first: set[int],
    left: dict[PeerName, list[int]],
    kept: int = 0,
    fetching: RoundFetches | None = None,
) -> list[Dealt]:
    """Which task goes to which pilot: what begins at once before what is fetched ahead, what has
    waited long (`first`) before the rest, and what much depends on before what little does. `left`
    has the places of each pilot, at once and ahead, and is lessened. So many as are `kept` are not
    fetched ahead: others could begin them at once."""
    rivals = _rivals(tasks, ranked)
    open_ = dict(tasks)
    room = {one.pilot: [one.cores, float(one.memory_bytes)] for one in ranked}
    dealt: list[Dealt] = []

    def once(chosen: dict[int, ListedTask], *, ahead: bool) -> bool:
        """Whether something was not dealt only because another fetches its files now."""
        waits = False
        able = ranked if fetching is None else fetching.able(ranked, chosen, ahead=ahead)
        for number, pilot, rank in _assigned(chosen, able, left, int(ahead)):
            listed, free = open_[number], room[pilot]
            needs = listed.needs
            if not ahead and (needs.cores > free[0] + 1e-6 or needs.memory_bytes > free[1]):
                continue
            if fetching is not None and not fetching.takes(listed, pilot, rank, ahead=ahead):
                waits = True
                continue
            free[0] -= needs.cores
            free[1] -= needs.memory_bytes
            left[pilot][int(ahead)] -= 1
            del open_[number]
            if fetching is not None:
                fetching.dealt(listed, pilot, rank)
            rival = next(((p, r) for p, r in rivals[number] if p != pilot), (NO_NAME, 0.0))
            dealt.append(Dealt(listed, _placement(listed, pilot, rank, rival, ahead=ahead)))
        return waits

    tiers = sorted({(n not in first, -tier_of(task)) for n, task in tasks.items()})
    for ahead in (False, True):
        for tier in tiers:
            for _ in range(PASSES):
                chosen = {n: t for n, t in open_.items() if (n not in first, -tier_of(t)) == tier}
                if ahead:
                    most = max(0, len(open_) - kept)
                    able = (n for n, t in chosen.items() if t.architecture == "event")
                    chosen = {n: chosen[n] for n in islice(able, most)}
                if not once(chosen, ahead=ahead):
                    break
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
    rows: dict[int, int] = {}
    columns: list[int] = []
    entries: list[tuple[int, int, float]] = []
    for pilot, one in enumerate(ranked):
        room = left[one.pilot][which]
        known = [(n, rank) for n, rank in one.ranks if n in tasks] if room else []
        entries += [(rows.setdefault(n, len(rows)), pilot, rank) for n, rank in known]
        columns += [pilot] * min(room, len(known))
    if not entries:
        return []
    ranks: Matrix = np.full((len(rows), len(ranked)), NONE)
    for row, pilot, rank in entries:
        ranks[row, pilot] = rank
    numbers = list(rows)
    way = exact if all(tasks[number].exact for number in numbers) else greedy
    pairs: Pairs = way(ranks[:, columns])
    return [
        (numbers[row], ranked[columns[column]].pilot, float(ranks[row, columns[column]]))
        for row, column in pairs
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
    """What makes sense of them, and of each pilot one."""
    try:
        return list({one.pilot: sensible(one) for one in _decoder.decode(body or b"")}.values())
    except msgspec.DecodeError:
        return []


def merged(replies: Sequence[bytes]) -> bytes:
    return encoded([ranked for reply in replies for ranked in decoded(reply)])
