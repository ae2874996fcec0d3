"""How a node splits the region it must cover in a broadcast among its children.

The difficulty is that nobody knows everybody. What a node does know, if its table is in order, is
at least one node in every bucket that is not empty, that is, in the other half of every region
that it lives in itself. So about a region with an *insider*, whose knowledge is at hand, the
absence of contacts in one half means that nobody is there. About any other region it means
nothing: such a region is not split where only one half is known, but goes whole to a contact in
it, who is an insider there and knows the other half as its own bucket. Splitting this way loses
nobody and needs no complete knowledge at any depth.

The region that a node lives in itself must go to somebody else too, since eight children are all
it may have. So the child is told which nodes of its region have the broadcast already, and one or
two contacts from each of their buckets there: with these, it can stand in for them as insiders.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from sureline.overlay.kademlia.ids import ID_BITS, Region, id_of
from sureline.world.protocol import AgentId

PASSED_ON_PER_BUCKET = 2
PASSED_ON_MAX = 48


class RegionPart(NamedTuple):
    """A part of a region, and who is known there: the preferred first, at least one."""

    region: Region
    contacts: list[AgentId]
    insiders: list[AgentId]
    """Nodes of the part that have the broadcast already."""


def split(
    region: Region, contacts: Sequence[AgentId], insiders: Sequence[AgentId], parts_max: int
) -> list[RegionPart]:
    """Divide a region into at most `parts_max` parts of about equal size, which together hold
    everybody in it except the insiders. `contacts` are all those known there, without insiders."""
    if not contacts:
        return []
    parts = [RegionPart(region, list(contacts), list(insiders))]
    whole: list[RegionPart] = []
    while parts and len(parts) + len(whole) < parts_max:
        largest = min(parts, key=lambda part: part.region.length)
        parts.remove(largest)
        halves = _halve(largest)
        if halves is None:
            whole.append(largest)
        else:
            parts += halves
    return parts + whole


def _halve(part: RegionPart) -> list[RegionPart] | None:
    """The halves of a part in which anybody is known; None if it must stay whole."""
    if part.region.length == ID_BITS or (len(part.contacts) == 1 and not part.insiders):
        return None
    halves = []
    for half in part.region.halves():
        there = [c for c in part.contacts if id_of(c) in half]
        if there:
            halves.append(RegionPart(half, there, [i for i in part.insiders if id_of(i) in half]))
    if len(halves) == 2 or part.insiders:
        return halves
    return None


def passed_on(part: RegionPart) -> tuple[AgentId, ...]:
    """Of the contacts in a part, those that make its child know what its insiders know."""
    chosen: dict[AgentId, None] = {}
    for insider in part.insiders:
        count: dict[int, int] = {}
        for contact in part.contacts:
            order = (id_of(contact) ^ id_of(insider)).bit_length()
            count[order] = count.get(order, 0) + 1
            if count[order] <= PASSED_ON_PER_BUCKET:
                chosen[contact] = None
    # The nearest buckets are the ones nobody else knows about.
    nearest = sorted(chosen, key=lambda c: min(id_of(c) ^ id_of(i) for i in part.insiders))
    return tuple(nearest[:PASSED_ON_MAX])
