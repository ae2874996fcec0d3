"""The lookup as a state machine, against models of a network."""

from __future__ import annotations

from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from sureline.overlay.kademlia.ids import id_of
from sureline.overlay.kademlia.lookup import LIST_MAX, Lookup


def nodes(count: int) -> list[str]:
    return [f"n{number}/kademlia" for number in range(count)]


def nearest(names: list[str], target: int, count: int) -> list[str]:
    return sorted(names, key=lambda c: id_of(c) ^ target)[:count]


@given(
    count=st.integers(1, 80),
    dead=st.floats(0, 0.6),
    width=st.integers(1, 20),
    seed=st.integers(0, 2**32),
)
def test_it_ends_with_answers_of_exactly_the_nearest_living(
    count: int, dead: float, width: int, seed: int
) -> None:
    """Every node knows the 20 nearest to any target, dead ones among them: the search must walk
    past those, and must not stop before the nearest living ones have been asked."""
    random = Random(seed)
    everyone = nodes(count)
    target = random.getrandbits(160)
    living = [n for n in everyone if random.random() >= dead]
    # Without this, no path need exist: all 20 that anyone knows could be dead.
    reachable = nearest(everyone, target, 20)
    lookup = Lookup(target, width, alpha=3, questions_max=500)
    lookup.offer(random.sample(everyone, min(3, count)))
    lookup.offer(reachable)
    under_way: list[str] = []
    while not lookup.over:
        taken = lookup.take()
        under_way += taken
        assert len(under_way) <= 3, "no more than alpha at a time"
        assert under_way, "not over, yet nothing to wait for"
        one = under_way.pop(random.randrange(len(under_way)))
        if one in living:
            lookup.answered(one, reachable)
        else:
            lookup.failed(one)
    known = [n for n in living if n in lookup]
    assert lookup.nearest(width) == nearest(known, target, width)
    assert set(reachable) & set(living) <= set(known)


@given(seed=st.integers(0, 2**32), width=st.sampled_from([3, 20]))
@settings(max_examples=20)
def test_in_a_large_network_it_comes_down_to_the_nearest_of_all(seed: int, width: int) -> None:
    """Every answer names 20 others, hardly any of them twice: there are more candidates than can
    be kept, and the far ones that were asked first must not keep the near ones out."""
    random = Random(seed)
    everyone = nodes(1500)
    target = random.getrandbits(160)
    order = nearest(everyone, target, len(everyone))
    rank = {node: place for place, node in enumerate(order)}
    lookup = Lookup(target, width, alpha=3, questions_max=128)
    lookup.offer(order[-40:])
    while not lookup.over:
        for one in lookup.take():
            # Whoever is asked knows its own neighbourhood, and some others nearer to the target.
            near = rank[one]
            known = order[max(0, near - 5) : near + 15] if near < 30 else []
            lookup.answered(one, [*known, *random.sample(order[: near + 1], min(20, near + 1))])
    assert lookup.nearest(3) == order[:3]


def test_a_slow_candidate_is_stepped_around_but_waited_for_at_the_end() -> None:
    names = nearest(nodes(10), 0, 10)
    lookup = Lookup(0, width=3, alpha=1, questions_max=10)
    lookup.offer(names)
    assert lookup.take() == [names[0]] and lookup.take() == []
    lookup.slow(names[0])
    assert lookup.take() == [names[1]]
    lookup.answered(names[1])
    assert lookup.take() == [names[2]]
    lookup.answered(names[2])
    assert not lookup.over, "the nearest may still answer"
    lookup.failed(names[0])
    assert not lookup.over and lookup.take() == [names[3]], "the next nearest moves up"
    lookup.answered(names[3])
    assert lookup.over and lookup.nearest(9) == names[1:4]


def test_a_late_answer_still_counts() -> None:
    names = nearest(nodes(3), 0, 3)
    lookup = Lookup(0, width=1, alpha=1, questions_max=10)
    lookup.offer([names[2]])
    lookup.take()
    lookup.slow(names[2])
    lookup.answered(names[2], names[:1])
    assert lookup.take() == [names[0]] and lookup.hops == 1
    lookup.answered(names[0])
    assert lookup.over and lookup.hops == 2


def test_questions_and_candidates_are_bounded() -> None:
    lookup = Lookup(0, width=20, alpha=3, questions_max=7)
    lookup.offer(nodes(500))
    asked = 0
    while not lookup.over:
        for one in lookup.take():
            asked += 1
            lookup.failed(one)
        assert len(lookup._list) <= LIST_MAX + lookup.questions
    assert asked == lookup.questions == 7


def test_answers_of_those_who_were_not_asked_change_nothing() -> None:
    names = nodes(2)
    lookup = Lookup(0, width=2, alpha=3, questions_max=7)
    lookup.offer(names[:1])
    lookup.answered(names[0], names[1:])
    lookup.answered("n9/kademlia", names[1:])
    assert names[1] not in lookup and lookup.nearest(5) == []
