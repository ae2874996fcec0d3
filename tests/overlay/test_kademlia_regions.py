"""How a broadcast divides the space: everybody once, eight children at most, whatever is known.

The network here is a model without messages: each node knows at least one other in every bucket
of its own that is not empty, which is all that a table in order promises, and perhaps more.
"""

from __future__ import annotations

from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from sureline.overlay.kademlia.ids import EVERYWHERE, Region, id_of
from sureline.overlay.kademlia.regions import PASSED_ON_MAX, passed_on, split


def known_by(node: str, everyone: list[str], per_bucket: int, random: Random) -> list[str]:
    buckets: dict[int, list[str]] = {}
    for other in everyone:
        if other != node:
            buckets.setdefault((id_of(other) ^ id_of(node)).bit_length(), []).append(other)
    return [
        other
        for bucket in buckets.values()
        for other in random.sample(bucket, min(per_bucket, len(bucket)))
    ]


def cast(everyone: list[str], per_bucket: int, random: Random) -> tuple[dict[str, int], int]:
    """A broadcast to its end: how often each was reached, and how deep it went."""
    tables = {node: known_by(node, everyone, per_bucket, random) for node in everyone}
    root = random.choice(everyone)
    reached = {root: 1}
    duties: list[tuple[str, Region, tuple[str, ...], tuple[str, ...], int]] = [
        (root, EVERYWHERE, (), (), 0)
    ]
    deepest = 0
    while duties:
        node, region, without, told, depth = duties.pop()
        deepest = max(deepest, depth)
        insiders = [i for i in (node, *without) if id_of(i) in region]
        contacts = [
            c
            for c in dict.fromkeys((*tables[node], *told))
            if id_of(c) in region and c not in insiders
        ]
        parts = split(region, contacts, insiders, 8)
        assert len(parts) <= 8
        for part in parts:
            child = part.contacts[0]
            reached[child] = reached.get(child, 0) + 1
            known = passed_on(part)
            assert len(known) <= PASSED_ON_MAX
            duties.append((child, part.region, tuple(part.insiders), known, depth + 1))
    return reached, deepest


@settings(max_examples=60)
@given(st.integers(1, 150), st.integers(1, 20), st.integers(0, 2**32))
def test_everybody_is_reached_exactly_once(count: int, per_bucket: int, seed: int) -> None:
    everyone = [f"n{number}" for number in range(count)]
    reached, _ = cast(everyone, per_bucket, Random(seed))
    assert reached == dict.fromkeys(reached, 1)
    assert sorted(reached) == sorted(everyone)


def test_the_tree_is_flat() -> None:
    """Eight ways at each level: log8(600) is 3.1, and the space is never filled evenly."""
    reached, deepest = cast([f"n{number}" for number in range(600)], 20, Random(1))
    assert len(reached) == 600 and deepest <= 6


def test_a_region_half_unknown_goes_whole_to_who_lives_there() -> None:
    """An outsider's ignorance of one half proves nothing, so it must not be left out."""
    names = [f"n{number}" for number in range(100)]
    region = Region(0, 1)
    inside = [n for n in names if id_of(n) in Region(0, 2)]
    assert [part.region for part in split(region, inside[:1], [], 8)] == [region]
    assert all(id_of(c) in Region(0, 2) for p in split(region, inside, [], 8) for c in p.contacts)
    covered = sum(part.region.span for part in split(region, inside, [], 8))
    assert covered == region.span, "nothing is left out"


def test_an_insider_knows_that_a_half_is_empty() -> None:
    inside = [f"n{n}" for n in range(100) if id_of(f"n{n}") in Region(0, 2)]
    parts = split(Region(0, 1), inside[1:], inside[:1], 8)
    assert sum(part.region.span for part in parts) <= Region(0, 2).span


def test_a_region_without_contacts_has_no_parts() -> None:
    assert split(EVERYWHERE, [], ["n1"], 8) == []
