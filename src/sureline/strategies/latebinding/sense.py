"""What others say is weighed only if it makes sense, and told in parts that travel.

A message is of the right types when it arrives, and no more: its numbers may be none, or huge. Who
takes a task or a pilot's answer from elsewhere asks here first, once.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import TypeVar

import msgspec

from sureline.peer.capacity import CORES_MAX, is_possible
from sureline.strategies.latebinding.messages import ListedTask, Ranked
from sureline.strategies.latebinding.settings import AHEAD_MAX, BEST, PLACES_MAX

TASK_BYTES_MAX = 64_000
"""Of one task that is told; inputs beyond that are left out by its run."""
PAGE_BYTES_MAX = 400_000
"""Of tasks in one message: less than half of what a frame holds."""
NUMBER_MAX = 1e15

_Told = TypeVar("_Told")


def is_sensible(listed: ListedTask) -> bool:
    """Whether a task may be judged, dealt out and counted."""
    return (
        is_possible(listed.needs)
        and 0 <= listed.takes_s <= NUMBER_MAX
        and abs(listed.urgency) <= NUMBER_MAX
        and all(0 <= size <= NUMBER_MAX for _, _, size in listed.inputs)
    )


def is_short(listed: ListedTask) -> bool:
    """Whether it fits into messages with others."""
    return len(msgspec.msgpack.encode(listed)) <= TASK_BYTES_MAX


def sensible(ranked: Ranked) -> Ranked:
    """A pilot's answer, as far as it makes sense."""
    ranks = {n: rank for n, rank in ranked.ranks if abs(rank) <= NUMBER_MAX}
    places = min(max(0, ranked.places), PLACES_MAX)
    ahead = min(max(0, ranked.ahead), AHEAD_MAX)
    return msgspec.structs.replace(
        ranked,
        ranks=tuple(ranks.items())[: max(BEST, 2 * (places + ahead))],
        places=places,
        ahead=ahead,
        cores=min(max(0.0, ranked.cores), CORES_MAX) if math.isfinite(ranked.cores) else 0.0,
        memory_bytes=max(0, ranked.memory_bytes),
    )


def pages(items: Iterable[_Told], most: int) -> Iterator[tuple[_Told, ...]]:
    """In parts of so many at most that a message holds."""
    page: list[_Told] = []
    size = 0
    for item in items:
        more = len(msgspec.msgpack.encode(item))
        if page and (len(page) == most or size + more > PAGE_BYTES_MAX):
            yield tuple(page)
            page, size = [], 0
        page.append(item)
        size += more
    if page:
        yield tuple(page)
