"""Plans against an independent account of the paper's equations: all paths, exact fractions."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction
from statistics import NormalDist
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sureline.strategies.surety.contract import Bid
from sureline.strategies.surety.planning.bids import Listed, labelled
from sureline.strategies.surety.planning.judging import Method
from sureline.strategies.surety.planning.plan import Plan, Weights, plan
from sureline.workflow.composition import read_composition
from sureline.workflow.model import Graph
from sureline.workflow.terms import Terms

PAPER = read_composition(
    b"A = s1(); B = s2(); C = s3(A, B); D = s4(C); E = s5(C);", file="paper"
).graph
TABLE = {
    "s1": [(8, 8, 2), (9, 10, 1), (11, 6, 0)],
    "s2": [(10, 5, 2), (12, 4, 1)],
    "s3": [(5, 6, 0)],
    "s4": [(15, 2, 0), (10, 4, 2)],
    "s5": [(20, 1, 0), (10, 2, 2), (5, 3, 1)],
}


def bid(service: str, provider: str, cost: float, time: float, by: float, **more: float) -> Bid:
    return Bid(service, provider, cost, time, max(0.0, time - by), time + by, **more)


def listed(*bids: Bid) -> tuple[Listed, ...]:
    return labelled([(one, line) for line, one in enumerate(bids, start=2)])


BIDS = listed(
    *(bid(s, f"p{k}", *numbers) for s, rows in TABLE.items() for k, numbers in enumerate(rows))
)


class Seen(NamedTuple):
    """One schedule, by the oracle."""

    cost: Fraction
    expected: Fraction
    surety: float
    usable: bool


def oracle(graph: Graph, bids: tuple[Listed, ...], deadline: Fraction) -> list[Seen]:
    """Every schedule, every path of it, in exact fractions."""
    of_task = [[b.bid for b in bids if b.bid.service == t.kind_name] for t in graph.tasks]
    paths = _paths(graph)
    found = []
    for chosen in itertools.product(*of_task):
        e = [(4 * Fraction(b.time) + Fraction(b.early) + Fraction(b.late)) / 6 for b in chosen]
        v = [((Fraction(b.late) - Fraction(b.early)) / 6) ** 2 for b in chosen]
        none = Fraction(0)
        lengths = [(sum((e[i] for i in p), none), sum((v[i] for i in p), none)) for p in paths]
        mean, variance = max(lengths)
        usable = all(
            b.expires is None or _start(graph, e, i) <= Fraction(b.expires)
            for i, b in enumerate(chosen)
        )
        cost = sum((Fraction(b.cost) + Fraction(b.reserve_fee) for b in chosen), Fraction(0))
        found.append(Seen(cost, mean, _surety(deadline, mean, variance), usable))
    return found


def _surety(deadline: Fraction, mean: Fraction, variance: Fraction) -> float:
    if not variance:
        return float(mean <= deadline)
    return NormalDist().cdf(float(deadline - mean) / math.sqrt(variance))


def _paths(graph: Graph) -> list[list[int]]:
    def below(i: int) -> list[list[int]]:
        if not graph.children[i]:
            return [[i]]
        return [[i, *rest] for child in graph.children[i] for rest in below(child)]

    return [path for i, above in enumerate(graph.parents) if not above for path in below(i)]


def _start(graph: Graph, e: list[Fraction], i: int) -> Fraction:
    return max((_start(graph, e, p) + e[p] for p in graph.parents[i]), default=Fraction(0))


def best(seen: list[Seen]) -> set[tuple[float, float, float]]:
    def dominates(a: Seen, b: Seen) -> bool:
        no_worse = a.cost <= b.cost and a.expected <= b.expected and a.surety >= b.surety
        return no_worse and a[:3] != b[:3]

    kept = [one for one in seen if not any(dominates(other, one) for other in seen)]
    return {_rounded(float(k.cost), float(k.expected), k.surety) for k in kept}


def _rounded(cost: float, expected: float, surety: float) -> tuple[float, float, float]:
    return round(cost, 9), round(expected, 9), round(surety, 9)


def front_of(made: Plan) -> set[tuple[float, float, float]]:
    return {_rounded(p.cost, p.expected, p.surety or 0.0) for p in made.front}


def test_the_papers_plan() -> None:
    made = plan(PAPER, BIDS, Terms(20, 65, 0.9), "pert")
    assert (made.cost, made.reserve, made.expected) == (38, 27, 18)
    assert (made.earliest, made.latest) == (14, 22)
    assert made.surety == pytest.approx(0.98305257)
    assert made.critical_path == ["A", "C", "D"]
    assert made.assignment == {"A": "p0", "B": "p0", "C": "p0", "D": "p1", "E": "p2"}
    assert [(p.cost, p.expected) for p in made.front] == [(38, 18), (41, 16), (46, 15), (51, 14)]
    assert made.schedules == 36 and made.exact and made.refused is None


def test_earliest_and_latest_are_of_the_whole_graph() -> None:
    graph = read_composition(b"A = a(); B = b(); C = c(A, B);", file="c").graph
    bids = listed(bid("a", "p", 1, 10, 5), bid("b", "p", 1, 9, 0), bid("c", "p", 1, 1, 0))
    made = plan(graph, bids, Terms(20), "pert")
    assert (made.expected, made.earliest, made.latest) == (11, 10, 16)


@st.composite
def problems(draw: st.DrawFn) -> tuple[Graph, tuple[Listed, ...], Terms]:
    tasks = draw(st.integers(1, 5))
    lines = []
    for i in range(tasks):
        above = draw(st.sets(st.integers(0, i - 1), max_size=2)) if i else set()
        lines.append(f"T{i} = s{i}({', '.join(f'T{p}' for p in sorted(above))});")
    graph = read_composition("\n".join(lines).encode(), file="t").graph
    quarters = st.integers(0, 24).map(lambda n: n / 4)
    bids = []
    for i in range(tasks):
        for k in range(draw(st.integers(1, 3))):
            early, time, late = sorted(draw(st.tuples(quarters, quarters, quarters)))
            expires = draw(st.none() | quarters)
            money = st.integers(0, 6).map(float)
            fee = draw(st.sampled_from([0.0, 0.0, 1.0]))
            made = Bid(f"s{i}", f"p{k}", draw(money), time, early, late, 0, 0, fee, expires)
            bids.append(made)
    terms = Terms(
        draw(quarters) * draw(st.integers(1, 3)),
        draw(st.none() | st.integers(0, 20).map(float)),
        draw(st.sampled_from([0.0, 0.3, 0.5, 0.9, 0.99, 1.0])),
    )
    return graph, listed(*bids), terms


@settings(max_examples=60, deadline=None)
@given(problems())
def test_front_choice_and_refusal_are_those_of_the_oracle(
    problem: tuple[Graph, tuple[Listed, ...], Terms],
) -> None:
    graph, bids, terms = problem
    assert terms.deadline_at is not None
    deadline = Fraction(terms.deadline_at)
    seen = [one for one in oracle(graph, bids, deadline) if one.usable]
    made = plan(graph, bids, terms, "pert")
    assert front_of(made) == best(seen)
    payable = [s for s in seen if terms.budget is None or s.cost <= terms.budget]
    sure = [s for s in seen if s.surety >= terms.surety - 1e-12]
    good = [s for s in payable if s.surety >= terms.surety - 1e-12]
    if good:
        assert made.refused is None
        cheapest = min(good, key=lambda s: (s.cost, -s.surety, s.expected))
        assert _rounded(made.cost or 0, made.expected or 0, made.surety or 0) == _rounded(
            float(cheapest.cost), float(cheapest.expected), cheapest.surety
        )
        return
    assert made.refused is not None and made.cost is None and made.assignment == {}
    near = made.refused.nearest
    if terms.budget is not None and sure:
        assert near.budget == pytest.approx(float(min(s.cost for s in sure)))
    else:
        assert near.budget is None
    if payable and max(s.surety for s in payable) > 0:
        assert near.surety == pytest.approx(max(s.surety for s in payable))
    else:
        assert near.surety is None
    if payable:
        assert near.within is not None
        _check_nearest_deadline(graph, bids, terms, near.within)
    else:
        assert near.within is None


def _check_nearest_deadline(
    graph: Graph, bids: tuple[Listed, ...], terms: Terms, within: float
) -> None:
    """It is enough, and (but for a surety of 1, which a normal has nowhere) nothing less is."""
    enough = plan(graph, bids, Terms(within, terms.budget, terms.surety), "pert")
    assert enough.refused is None
    if within > 0.01 and terms.surety < 1:
        less = Terms(within * 0.999 - 1e-6, terms.budget, terms.surety)
        assert plan(graph, bids, less, "pert").refused is not None


@pytest.mark.parametrize(
    ("deadline", "by", "surety"),
    [(10, 0, 1.0), (10.0001, 0, 1.0), (9.9999, 0, 0.0), (10, 3, 0.5)],
)
def test_a_deadline_at_the_expected_time(deadline: float, by: float, surety: float) -> None:
    graph = read_composition(b"A = a(); B = a(A);", file="c").graph
    made = plan(graph, listed(bid("a", "p", 1, 5, by)), Terms(deadline, surety=0.0), "pert")
    assert made.surety == surety


def test_sums_of_decimals_count_as_what_they_mean() -> None:
    graph = read_composition(b"A = a(); B = b(A);", file="c").graph
    bids = listed(bid("a", "p", 0.1, 0.1, 0), bid("b", "p", 0.2, 0.2, 0))
    assert plan(graph, bids, Terms(0.3, 0.3, 1.0), "pert").refused is None


@pytest.mark.parametrize("method", ["pert", "cpm", "montecarlo"])
def test_methods_agree_where_nothing_is_uncertain(method: Method) -> None:
    bids = listed(*(bid(s, "p", *rows[0][:2], 0) for s, rows in TABLE.items()))
    made = plan(PAPER, bids, Terms(16, 100, 0.9), method)
    assert (made.expected, made.surety, made.surety_error) == (16, 1.0, 0.0)
    late = plan(PAPER, bids, Terms(15.9, 100, 0.9), method)
    assert late.refused is not None
    assert late.refused.nearest.within == 16 and late.refused.nearest.surety is None


def test_simulation_sees_what_parallel_paths_do() -> None:
    """Of two like paths, each in time with 1/2, both are with 1/4."""
    graph = read_composition(b"A = a(); B = a();", file="c").graph
    bids = listed(bid("a", "p", 1, 5, 2))
    terms = Terms(5, surety=0.1)
    assert plan(graph, bids, terms, "pert").surety == 0.5
    made = plan(graph, bids, terms, "montecarlo")
    assert made.surety is not None
    assert abs(made.surety - 0.25) < 4 * made.surety_error


def test_simulation_agrees_with_plain_sampling() -> None:
    """Of a plan with skewed bids: drawn by numpy, task by task, nothing shared with ours."""
    table = {"s1": (8, 5, 14), "s2": (7, 6, 15), "s3": (6, 6, 6), "s4": (4, 2, 9), "s5": (5, 1, 6)}
    bids = listed(*(Bid(s, "p", 1, m, a, b) for s, (m, a, b) in table.items()))
    draw, n = np.random.default_rng(5), 200_000
    times = {}
    for service, (m, a, b) in table.items():
        width = b - a
        alpha = 1 + 4 * (m - a) / width if width else 1.0
        times[service] = a + width * draw.beta(alpha, 6 - alpha, n)
    begin = np.maximum(times["s1"], times["s2"]) + times["s3"]
    ends = np.maximum(begin + times["s4"], begin + times["s5"])
    for deadline in (19.0, 21.0, 23.0):
        made = plan(PAPER, bids, Terms(deadline, surety=0.0), "montecarlo")
        assert made.surety is not None and made.expected is not None
        assert abs(made.surety - (ends <= deadline).mean()) < 4 * made.surety_error
        assert made.expected == pytest.approx(ends.mean(), abs=0.05)


def test_simulated_bids_have_the_means_of_the_equations() -> None:
    graph = read_composition(b"A = a();", file="c").graph
    skewed = listed(Bid("a", "p", 1, 2, 1, 9))
    made = plan(graph, skewed, Terms(9), "montecarlo")
    assert made.expected == pytest.approx((2 * 2 + (1 + 9) / 2) / 3, abs=0.01)
    assert made.surety == 1.0 and (made.earliest, made.latest) == (1, 9)


def test_cpm_takes_expected_times_for_certain() -> None:
    made = plan(PAPER, BIDS, Terms(18, 65, 0.9), "cpm")
    assert (made.cost, made.surety, made.refused) == (38, 1.0, None)


def test_simulations_repeat_with_their_seed() -> None:
    terms = Terms(19, 65, 0.5)
    once, again = (plan(PAPER, BIDS, terms, "montecarlo", seed=7) for _ in range(2))
    assert once == again
    assert plan(PAPER, BIDS, terms, "montecarlo", seed=8).surety != once.surety


@pytest.mark.parametrize(
    ("weights", "cost"), [((1, 0, 0), 51), ((0, 1, 0), 38), ((0, 0, 1), 46), ((1, 1, 0), 41)]
)
def test_weights(weights: tuple[float, float, float], cost: float) -> None:
    made = plan(PAPER, BIDS, Terms(20, 65, 0.9), "pert", Weights(*weights))
    assert made.cost == cost


def test_weights_stay_within_the_terms() -> None:
    made = plan(PAPER, BIDS, Terms(20, 45, 0.9), "pert", Weights(1, 0, 0))
    assert made.cost == 41


def test_nobody_bids() -> None:
    made = plan(PAPER, BIDS[:-3], Terms(20, 65, 0.9), "pert")
    assert made.refused is not None and made.refused.why == "nobody bids for s5"
    assert made.front == [] and made.refused.nearest.within is None


def test_no_money_and_free_bids() -> None:
    graph = read_composition(b"A = a();", file="c").graph
    free, paid = bid("a", "free", 0, 9, 0), bid("a", "paid", 5, 1, 0)
    assert plan(graph, listed(free, paid), Terms(budget=0), "pert").assignment == {"A": "free"}
    made = plan(graph, listed(free, paid), Terms(5, 0, 0.9), "pert")
    assert made.refused is not None
    assert (made.refused.nearest.within, made.refused.nearest.budget) == (9, 5)


def test_without_a_deadline_there_is_no_surety() -> None:
    made = plan(PAPER, BIDS, Terms(), "pert")
    assert made.surety is None and made.cost == 38
    assert [p.surety for p in made.front] == [None] * 4


def test_a_bid_that_expires_too_soon_is_not_taken() -> None:
    graph = read_composition(b"A = a(); B = b(A);", file="c").graph
    quick, slow = bid("a", "quick", 9, 2, 0), bid("a", "slow", 1, 4, 0)
    cheap, dear = bid("b", "cheap", 1, 1, 0, expires=3), bid("b", "dear", 20, 1, 0)
    both = listed(quick, slow, cheap, dear)
    assert plan(graph, both, Terms(), "pert").assignment == {"A": "quick", "B": "cheap"}
    at_expiry = listed(slow, bid("b", "cheap", 1, 1, 0, expires=4), dear)
    assert plan(graph, at_expiry, Terms(), "pert").assignment["B"] == "cheap"
    refused = plan(graph, listed(slow, cheap), Terms(100, 100, 0.5), "pert").refused
    assert refused is not None and "expire" in refused.why
    assert refused.nearest.within is None


def test_reservation_fees_are_paid() -> None:
    graph = read_composition(b"A = a();", file="c").graph
    held = bid("a", "held", 5, 1, 0, reserve_fee=3)
    free = bid("a", "free", 7, 1, 0)
    made = plan(graph, listed(held, free), Terms(), "pert")
    assert (made.cost, made.assignment) == (7, {"A": "free"})
    assert plan(graph, listed(held), Terms(), "pert").cost == 8


def test_ties_are_one_point_of_the_front() -> None:
    graph = read_composition(b"A = a();", file="c").graph
    twins = listed(bid("a", "p", 5, 2, 1), bid("a", "q", 5, 2, 1), bid("a", "r", 6, 2, 1))
    made = plan(graph, twins, Terms(3), "pert")
    assert [(p.assignment, p.alike) for p in made.front] == [({"A": "p"}, 2)]


def test_of_equally_long_paths_the_most_uncertain_counts() -> None:
    graph = read_composition(b"A = a(); B = b();", file="c").graph
    bids = listed(bid("a", "p", 1, 5, 0), bid("b", "p", 1, 5, 3))
    made = plan(graph, bids, Terms(6), "pert")
    assert made.refused is not None
    assert made.front[0].surety == pytest.approx(NormalDist().cdf(1.0))


def test_a_service_that_is_used_twice_may_go_to_two_providers() -> None:
    graph = read_composition(b"A = a(); B = a(); C = b(A);", file="c").graph
    bids = listed(bid("a", "dear", 9, 1, 0), bid("a", "cheap", 1, 5, 0), bid("b", "p", 1, 4, 0))
    made = plan(graph, bids, Terms(5, surety=1.0), "pert")
    assert made.assignment == {"A": "dear", "B": "cheap", "C": "p"}
    assert made.critical_path == ["B"]  # as long as A, C, and it ends first in the file
