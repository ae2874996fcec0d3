"""Simulated runs in machine code: durations drawn, tasks started as the engine would, the end told.

Every duration is a function of (seed, sample, task): a hash of the three chooses a point in the
task's table. So equal questions get equal answers in any thread, and two simulations that differ
in one task differ in nothing else: a difference between their ends is real, not chance.

`loose_ends` is for runs in which nobody ever waits for room: the end of a task is the end of its
last parent and its own duration. Samples are taken LANES at a time, side by side.
`tight_ends` is list scheduling, one sample after another: whenever something ends, the most urgent
ready task that fits starts, until none fits. Both also count the tasks that decided the end: the
last one to end, the one it had waited for (a parent, or who held the room it took), and so on.

One module on purpose, though a long one: compiled code is kept by the file it stands in, and would
not be made anew if a part of it in another file changed.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sureline.compiled import compiled, inlined
from sureline.forecast.shape import Floats, Ints

Keys = NDArray[np.uint32]

LANES = 128
"""Samples side by side: few enough that the ends of 1,000 tasks stay in a processor's cache."""
POINT_SHIFT = np.uint32(20)
"""The upper twelve bits of a hash choose one of the 4,096 points of a table."""
COUNTED_MAX = 1_000
"""Who decided the end is counted in so many samples, which is exact enough."""
UNIT_OF_CHANCE = 2.0**-32
OVERDUE_TAIL = 2.0
"""A task that runs longer than all that is known: its total is the elapsed time times a Pareto
draw with this exponent; the longer it ran, the longer it may."""
_GOLDEN = np.uint32(0x9E3779B9)


UNIT = np.dtype(
    [
        ("key", np.uint32),  # chooses the random numbers
        ("form", np.int64),  # which row of the tables
        ("mood", np.int64),  # which row of the factors
        ("offset_s", np.float64),
        ("scale_s", np.float64),
        ("elapsed_s", np.float64),  # below 0 for a unit that does not run yet
        ("shape", np.float64),  # above 0 for one of many tasks: of a gamma draw of mean scale_s
        ("extra_s", np.float64),  # for bringing in files: a certain time before the rest
        ("not_before_s", np.float64),
        ("place", np.int64),  # in the order of urgency: 0 is the most urgent; each has its own
        ("need", np.int64),  # which kind of room it takes
        ("group", np.int64),  # on which machines it runs, if it does
        ("parents", np.int64),  # where its parents begin in `Scene.parent`
        ("children", np.int64),
        ("original", np.int64),  # itself, or the unit that it is a copy of
        ("ring", np.int64),  # the next copy, around to itself
    ],
    align=True,
)


class Scene(NamedTuple):
    """What is simulated."""

    unit: Any
    """Records of UNIT, with one more at the end that only tells where the families end."""
    order: Ints
    """All units, parents before their children."""
    unit_at: Ints
    """Which unit has a place in the order of urgency."""
    parent: Ints
    child: Ints
    tables: Floats


class Room(NamedTuple):
    """Groups of machines that are alike, each with pools of lanes."""

    lanes: Ints
    """[group, pool]"""
    taking: Ints
    """[group, need, pool]"""
    fits: Ints
    """[group, need]: 1 if tasks of this need can run there at all."""
    speed: Floats
    """[group]"""


@inlined
def mixed(x: np.uint32) -> np.uint32:
    """A hash in which every bit of the argument changes every bit of the result."""
    x = np.uint32(x ^ (x >> np.uint32(16)))
    x = np.uint32(x * np.uint32(0x7FEB352D))
    x = np.uint32(x ^ (x >> np.uint32(15)))
    x = np.uint32(x * np.uint32(0x846CA68B))
    return np.uint32(x ^ (x >> np.uint32(16)))


@inlined
def bits_of(key: np.uint32, sample: np.uint32) -> np.uint32:
    """Random bits for two keys. Both are mixed well already, and the upper bits are used: so less
    is enough than in `mixed`."""
    x = np.uint32((key ^ sample) * np.uint32(0x7FEB352D))
    return np.uint32((x ^ (x >> np.uint32(15))) * np.uint32(0x846CA68B))


@compiled
def keys_of(numbers: Ints, salt: int) -> Keys:
    """A key for each number."""
    found = np.empty(len(numbers), dtype=np.uint32)
    for i in range(len(numbers)):
        low = np.uint32(numbers[i] & 0xFFFFFFFF)
        high = np.uint32((numbers[i] >> 32) & 0xFFFFFFFF)
        found[i] = mixed(mixed(np.uint32(low * _GOLDEN + np.uint32(salt))) ^ high)
    return found


@compiled
def factors(
    kinds: Keys,
    sources: Keys,
    samples: Keys,
    common: Floats,
    shift: Floats,
    normal: Floats,
    stretch: Floats,
) -> Floats:
    """What a kind's durations are multiplied by in each sample; row 0 is all ones, for tasks of
    which that is not so.

    `common` [kind, source] is how a kind moves with each of the sources, which all kinds share;
    `shift` is what is the kind's alone. `normal` and `stretch` are tables."""
    found = np.ones((len(kinds) + 1, len(samples)))
    of_run = np.empty(len(sources))
    for s in range(len(samples)):
        wide = stretch[bits_of(sources[0], np.uint32(~samples[s])) >> POINT_SHIFT]
        for r in range(len(sources)):
            of_run[r] = wide * normal[bits_of(sources[r], samples[s]) >> POINT_SHIFT]
        for k in range(len(kinds)):
            log = shift[k] * normal[bits_of(kinds[k], samples[s]) >> POINT_SHIFT]
            for r in range(len(sources)):
                log += common[k, r] * of_run[r]
            found[k + 1, s] = np.exp(log)
    return found


@inlined
def drawn_s(unit: Any, tables: Floats, sample: np.uint32, factor: float) -> float:
    """How long a unit takes without its `extra_s`, or how long it still does if it runs."""
    bits = bits_of(unit.key, sample)
    point = np.int64(bits >> POINT_SHIFT)
    if unit.shape > 0:  # Wilson and Hilferty: the cube root of a gamma draw is nearly normal
        third = 1 / (9 * unit.shape)
        root = 1 - third + tables[unit.form, point] * np.sqrt(third)
        return float(unit.scale_s * max(0.0, root) ** 3 * factor)
    if unit.elapsed_s < 0:
        return float(max(0.0, unit.offset_s + unit.scale_s * tables[unit.form, point]) * factor)
    points = tables.shape[1]
    low, high = 0, points  # the first point that is beyond the elapsed time
    while low < high:
        middle = (low + high) // 2
        if (unit.offset_s + unit.scale_s * tables[unit.form, middle]) * factor > unit.elapsed_s:
            high = middle
        else:
            low = middle + 1
    chance = bits * UNIT_OF_CHANCE
    if low == points:
        return float(unit.elapsed_s * ((1 - chance) ** (-1 / OVERDUE_TAIL) - 1))
    point = low + np.int64(chance * (points - low))
    total_s = (unit.offset_s + unit.scale_s * tables[unit.form, point]) * factor
    return float(max(0.0, total_s - unit.elapsed_s))


@compiled
def loose_ends(scene: Scene, factor: Floats, samples: Keys, ends: Floats, decided: Ints) -> None:
    """Fill `ends` by sample, and count in `decided` the units that decided them."""
    # No views of rows in the loops: counting who holds them would cost more than the work.
    unit, order, parent, tables = scene.unit, scene.order, scene.parent, scene.tables
    count = len(samples)
    end, last = np.zeros((len(order), LANES)), np.zeros(LANES)
    points = np.zeros(LANES, dtype=np.uint32)
    for first in range(0, count, LANES):
        width = min(LANES, count - first)
        for i in range(width):
            last[i] = 0.0
        for u in order:
            not_before_s = unit[u].not_before_s
            for i in range(width):
                end[u, i] = not_before_s
            for e in range(unit[u].parents, unit[u + 1].parents):
                p = parent[e]
                for i in range(width):
                    end[u, i] = max(end[u, i], end[p, i])
            _add_drawn(end, u, unit[u], tables, samples, factor, first, width, points)
            for i in range(width):
                last[i] = max(last[i], end[u, i])
        for i in range(width):
            ends[first + i] = last[i]
            if first + i < COUNTED_MAX:
                _count_loose(unit, parent, end, i, last[i], decided)


@inlined
def _add_drawn(
    end: Floats,
    u: int,
    unit: Any,
    tables: Floats,
    samples: Keys,
    factor: Floats,
    first: int,
    width: int,
    points: Keys,
) -> None:
    """Add what unit u takes in each lane."""
    mood, form, extra_s = unit.mood, unit.form, unit.extra_s
    if unit.shape > 0 or unit.elapsed_s >= 0:
        for i in range(width):
            own_s = drawn_s(unit, tables, samples[first + i], factor[mood, first + i])
            end[u, i] += own_s + extra_s
    else:
        # In two steps, each of which runs on several samples at once.
        key, offset_s, scale_s = unit.key, unit.offset_s, unit.scale_s
        for i in range(width):
            points[i] = bits_of(key, samples[first + i]) >> POINT_SHIFT
        for i in range(width):
            own_s = max(0.0, offset_s + scale_s * tables[form, points[i]])
            end[u, i] += own_s * factor[mood, first + i] + extra_s


@inlined
def _count_loose(
    unit: Any, parent: Ints, end: Floats, lane: int, last: float, decided: Ints
) -> None:
    u = len(end) - 1
    while u >= 0 and end[u, lane] < last:
        u -= 1
    while u >= 0:
        decided[u] += 1
        latest, found = unit[u].not_before_s, -1
        for e in range(unit[u].parents, unit[u + 1].parents):
            above = parent[e]
            if end[above, lane] > latest:
                latest, found = end[above, lane], above
        u = found


EVENT = np.dtype([("at", np.float64), ("item", np.int64)], align=True)
STATE = np.dtype(
    [
        ("missing", np.int64),  # how many parents have not ended
        ("state", np.int64),
        ("where", np.int64),  # the group it runs on
        ("ready_at", np.float64),
        ("because", np.int64),  # whose end it had waited for; -1 for nobody's
    ],
    align=True,
)
_WAITS, _RUNS, _OVER = 0, 1, 2


class Book(NamedTuple):
    """The state of one simulated run; made once and used again for every sample."""

    of: Any
    """STATE by unit."""
    event: Any
    """A heap of EVENTs, the next one first: the end of a unit, or (plus the number of units) that
    it may start."""
    ready: Ints
    """The places of ready units: a heap for every need, from `begin` on, `waiting` long."""
    begin: Ints
    waiting: Ints
    free: Ints
    """[group, pool]"""


@compiled
def tight_ends(
    scene: Scene,
    room: Room,
    book: Book,
    factor: Floats,
    samples: Keys,
    ends: Floats,
    decided: Ints,
) -> None:
    """Fill `ends` by sample, and count in `decided` the units that decided them."""
    # Taken out of their tuples once: every time would cost more than what is done with them.
    unit, unit_at, child, tables = scene.unit, scene.unit_at, scene.child, scene.tables
    of, event, ready, begin, waiting = book.of, book.event, book.ready, book.begin, book.waiting
    free, lanes, taking, fits, speed = book.free, room.lanes, room.taking, room.fits, room.speed
    units = len(scene.order)
    for s in range(len(samples)):
        sample = samples[s]
        _clear(free, lanes, waiting)
        events = _open(unit, tables, of, event, free, taking, factor, sample, s)
        last_at, last = 0.0, -1
        while events > 0:
            now, freed_by = event[0].at, -1
            while events > 0 and event[0].at <= now:
                item = event[0].item
                events -= 1
                _drop(event, events)
                if item >= units:
                    _make_ready(unit, of, ready, begin, waiting, item - units, now)
                elif of[item].state != _OVER:  # else a copy was sooner
                    freed_by = item
                    _end(unit, of, free, taking, item)
                    original = unit[item].original
                    for e in range(unit[original].children, unit[original + 1].children):
                        c = child[e]
                        of[c].missing -= 1
                        # A child that runs already was not waiting: its parent is made again.
                        if of[c].missing == 0 and of[c].state == _WAITS:
                            of[c].because = item
                            if unit[c].not_before_s > now:
                                _push(event, events, unit[c].not_before_s, c + units)
                                events += 1
                            else:
                                _make_ready(unit, of, ready, begin, waiting, c, now)
            if freed_by >= 0:
                last_at, last = now, freed_by
            while True:
                u = _most_urgent(
                    of, unit_at, ready, begin, waiting, free, lanes, taking, fits, speed
                )
                if u < 0:
                    break
                group = of[u].where
                _take(free, taking, unit[u].need, group, 1)
                if of[u].ready_at < now:
                    of[u].because = freed_by
                own_s = drawn_s(unit[u], tables, sample, factor[unit[u].mood, s])
                _push(event, events, now + unit[u].extra_s + own_s / speed[group], u)
                events += 1
        ends[s] = last_at
        while last >= 0 and s < COUNTED_MAX:
            decided[unit[last].original] += 1
            last = of[last].because


@inlined
def _clear(free: Ints, lanes: Ints, waiting: Ints) -> None:
    for g in range(lanes.shape[0]):
        for p in range(lanes.shape[1]):
            free[g, p] = lanes[g, p]
    for n in range(len(waiting)):
        waiting[n] = 0


@inlined
def _push(event: Any, size: int, at: float, item: int) -> None:
    place = size
    while place > 0:
        above = (place - 1) >> 1
        if event[above].at <= at:
            break
        event[place].at = event[above].at
        event[place].item = event[above].item
        place = above
    event[place].at = at
    event[place].item = item


@inlined
def _drop(event: Any, size: int) -> None:
    """Take the next event away; `size` are left."""
    at, item, place = event[size].at, event[size].item, 0
    while True:
        below = 2 * place + 1
        if below >= size:
            break
        if below + 1 < size and event[below + 1].at < event[below].at:
            below += 1
        if event[below].at >= at:
            break
        event[place].at = event[below].at
        event[place].item = event[below].item
        place = below
    event[place].at = at
    event[place].item = item


@inlined
def _push_ready(ready: Ints, begin: int, size: int, place: int) -> None:
    at = size
    while at > 0:
        above = (at - 1) >> 1
        if ready[begin + above] <= place:
            break
        ready[begin + at] = ready[begin + above]
        at = above
    ready[begin + at] = place


@inlined
def _drop_ready(ready: Ints, begin: int, size: int) -> None:
    """Take the first away; `size` are left."""
    place, at = ready[begin + size], 0
    while True:
        below = 2 * at + 1
        if below >= size:
            break
        if below + 1 < size and ready[begin + below + 1] < ready[begin + below]:
            below += 1
        if ready[begin + below] >= place:
            break
        ready[begin + at] = ready[begin + below]
        at = below
    ready[begin + at] = place


@inlined
def _take(free: Ints, taking: Ints, need: int, group: int, sign: int) -> None:
    """Take lanes (sign 1) or give them back (-1)."""
    for p in range(free.shape[1]):
        free[group, p] -= sign * taking[group, need, p]


@inlined
def _open(
    unit: Any,
    tables: Floats,
    of: Any,
    event: Any,
    free: Ints,
    taking: Ints,
    factor: Floats,
    sample: np.uint32,
    s: int,
) -> int:
    """The state at the beginning of a sample: who runs holds his room already. The number of
    events to come."""
    units, events = len(of), 0
    for u in range(units):
        of[u].missing = unit[u + 1].parents - unit[u].parents
        of[u].state = _WAITS
        of[u].because = -1
        if unit[u].elapsed_s >= 0:
            of[u].state = _RUNS
            of[u].where = unit[u].group
            _take(free, taking, unit[u].need, unit[u].group, 1)
            _push(event, events, drawn_s(unit[u], tables, sample, factor[unit[u].mood, s]), u)
            events += 1
        elif of[u].missing == 0:
            _push(event, events, unit[u].not_before_s, u + units)
            events += 1
    return events


@inlined
def _make_ready(
    unit: Any, of: Any, ready: Ints, begin: Ints, waiting: Ints, u: int, now: float
) -> None:
    if of[u].state == _WAITS:
        need = unit[u].need
        of[u].ready_at = now
        _push_ready(ready, begin[need], waiting[need], unit[u].place)
        waiting[need] += 1


@inlined
def _end(unit: Any, of: Any, free: Ints, taking: Ints, u: int) -> None:
    """A unit ends, and its copies with it."""
    copy = u
    while True:
        if of[copy].state == _RUNS:
            _take(free, taking, unit[copy].need, of[copy].where, -1)
        of[copy].state = _OVER
        copy = unit[copy].ring
        if copy == u:
            break


@inlined
def _group_for(free: Ints, lanes: Ints, taking: Ints, fits: Ints, speed: Floats, need: int) -> int:
    """The group with the largest free share that has room, the faster of equals; -1 if none."""
    best, best_share = -1, -1.0
    for g in range(len(speed)):
        has_room = fits[g, need] != 0
        for p in range(lanes.shape[1]):
            has_room = has_room and free[g, p] >= taking[g, need, p]
        if has_room:
            share = free[g, 0] / max(1, lanes[g, 0]) + 1e-6 * speed[g]
            if share > best_share:
                best, best_share = g, share
    return best


@inlined
def _most_urgent(
    of: Any,
    unit_at: Ints,
    ready: Ints,
    begin: Ints,
    waiting: Ints,
    free: Ints,
    lanes: Ints,
    taking: Ints,
    fits: Ints,
    speed: Floats,
) -> int:
    """The most urgent ready unit that fits, no longer ready, and where it goes noted; -1 if none
    fits."""
    best, group, need = len(of), -1, -1
    for n in range(len(waiting)):
        while waiting[n] > 0 and of[unit_at[ready[begin[n]]]].state == _OVER:
            waiting[n] -= 1
            _drop_ready(ready, begin[n], waiting[n])
        if waiting[n] > 0 and ready[begin[n]] < best:
            g = _group_for(free, lanes, taking, fits, speed, n)
            if g >= 0:
                best, group, need = ready[begin[n]], g, n
    if group < 0:
        return -1
    waiting[need] -= 1
    _drop_ready(ready, begin[need], waiting[need])
    u = unit_at[best]
    of[u].state = _RUNS
    of[u].where = group
    return int(u)
