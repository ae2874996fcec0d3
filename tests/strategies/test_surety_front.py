"""The front of large problems: what is found is real, and nothing beats the bound."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sureline.strategies.surety.contract import Bid
from sureline.strategies.surety.planning import bounded, exact
from sureline.strategies.surety.planning.bids import Listed, labelled
from sureline.strategies.surety.planning.choices import Choices
from sureline.strategies.surety.planning.front import Schedules, pareto
from sureline.strategies.surety.planning.judging import judge_for
from sureline.strategies.surety.planning.plan import plan
from sureline.workflow.composition import read_composition
from sureline.workflow.model import Graph
from sureline.workflow.terms import Terms


def problem(
    tasks: int, bids: int, seed: int, expiring: bool = False
) -> tuple[Graph, tuple[Listed, ...]]:
    draw = random.Random(seed)
    lines, table = [], []
    for i in range(tasks):
        above = sorted(draw.sample(range(i), min(i, draw.randint(0, 3))))
        lines.append(f"T{i} = s{i}({', '.join(f'T{p}' for p in above)});")
        base = draw.uniform(5, 50)
        for k in range(bids):
            time = base * draw.uniform(0.3, 2)
            cost = base * base / time * draw.uniform(0.7, 1.5)
            expires = draw.uniform(0, 300) if expiring and k % 2 else None
            early, late = time * draw.uniform(0.5, 1), time * draw.uniform(1, 2)
            table.append(Bid(f"s{i}", f"p{k}", cost, time, early, late, expires=expires))
    graph = read_composition("\n".join(lines).encode(), file="t").graph
    return graph, labelled([(b, n) for n, b in enumerate(table)])


@given(st.lists(st.tuples(*[st.integers(0, 4)] * 3), max_size=40))
def test_the_front_is_what_nothing_dominates(points: list[tuple[int, int, int]]) -> None:
    cost, expected, surety = (np.array([float(p[k]) for p in points]) for k in range(3))
    rows = np.arange(len(points), dtype=np.int64).reshape(-1, 1)
    once = np.ones(len(points), dtype=np.int64)
    found = pareto(Schedules(rows, cost, expected, surety, once), 1.0, 1.0)
    kept = {
        p
        for p in points
        if not any(q != p and q[0] <= p[0] and q[1] <= p[1] and q[2] >= p[2] for q in points)
    }
    numbers = (found.cost.tolist(), found.expected.tolist(), found.surety.tolist())
    assert list(zip(*numbers, strict=True)) == sorted(kept)
    assert found.alike.tolist() == [points.count(p) for p in sorted(kept)]
    assert found.schedules[:, 0].tolist() == [points.index(p) for p in sorted(kept)]


@pytest.mark.parametrize("seed", range(4))
def test_the_bound_holds_against_the_exact_front(seed: int) -> None:
    choices = Choices(*problem(7, 4, seed, expiring=seed % 2 == 1))
    terms = Terms(90, surety=0.8)
    judge = judge_for(choices, terms, "pert")
    whole = exact.search(choices, terms, judge).front
    part = bounded.search(choices, terms, judge)
    assert part.front.cost.min() >= whole.cost.min() - 1e-9
    found = part.front
    for cost, expected, floor in zip(found.cost, found.expected, part.floors, strict=True):
        rivals = whole.cost[whole.expected <= expected + 1e-9]
        assert floor <= rivals.min() + 1e-9 <= cost + 2e-9
    for cost, expected in zip(whole.cost, whole.expected, strict=True):
        near = part.front.expected <= expected + part.time_error + 1e-9
        assert part.front.cost[near].min() <= cost + part.cost_error + 1e-6
    enough = whole.surety >= terms.surety
    if enough.any():
        assert part.terms_floor <= whole.cost[enough].min() + 1e-9


def test_a_large_problem_is_planned_and_its_numbers_are_real() -> None:
    graph, bids = problem(40, 10, 3)
    made = plan(graph, bids, Terms(200, surety=0.9), "pert")
    assert made.refused is None and not made.exact and made.schedules is None
    again = plan(graph, bids, Terms(200, surety=0.9), "pert")
    assert again == made
    prices = {(b.bid.service, b.label): b.bid.price for b in bids}
    cost = sum(prices[f"s{task[1:]}", by] for task, by in made.assignment.items())
    assert made.cost == pytest.approx(cost) and made.surety is not None and made.surety >= 0.9
    chosen = next(p for p in made.front if p.assignment == made.assignment)
    assert chosen.cost_at_least is not None and made.cost is not None
    assert 0.8 * made.cost < chosen.cost_at_least <= made.cost
    assert made.error.cost > 0


def test_a_large_refusal_is_proven_or_says_that_it_is_not() -> None:
    graph, bids = problem(25, 8, 4)
    cheapest = plan(graph, bids, Terms(), "pert").cost
    assert cheapest is not None
    poor = plan(graph, bids, Terms(1e4, cheapest * 0.99, 0.9), "pert").refused
    assert poor is not None and poor.proven
    assert poor.nearest.budget == pytest.approx(cheapest)
    hasty = plan(graph, bids, Terms(1, None, 0.9), "pert").refused
    assert hasty is not None and hasty.proven and hasty.nearest.within is not None
    met = plan(graph, bids, Terms(hasty.nearest.within, None, 0.9), "pert")
    assert met.refused is None
    tight = plan(graph, bids, Terms(hasty.nearest.within * 0.99, None, 0.9), "pert").refused
    assert tight is None or not tight.proven


def test_a_large_problem_by_simulation() -> None:
    graph, bids = problem(30, 8, 5)
    by_equations = plan(graph, bids, Terms(200, surety=0.9), "pert")
    made = plan(graph, bids, Terms(200, surety=0.9), "montecarlo")
    assert made.refused is None and made.surety is not None and made.surety >= 0.9
    assert made.cost is not None and by_equations.cost is not None
    assert made.cost >= by_equations.cost * 0.98  # joins cost time, which costs money


def test_expired_bids_are_never_taken_in_large_problems() -> None:
    graph, bids = problem(30, 8, 6, expiring=True)
    made = plan(graph, bids, Terms(400, surety=0.5), "pert")
    assert made.refused is None
    of_label = {(b.bid.service, b.label): b.bid for b in bids}
    for step in made.tasks:
        expires = of_label[step.service, step.provider].expires
        assert expires is None or step.start <= expires + 1e-6


@pytest.mark.soak
def test_a_thousand_tasks_with_ten_bids_each() -> None:
    graph, bids = problem(1000, 10, 7)
    quickest = min(p.expected for p in plan(graph, bids, Terms(), "pert").front)
    made = plan(graph, bids, Terms(quickest * 2, surety=0.9), "pert")
    chosen = next(p for p in made.front if p.assignment == made.assignment)
    assert chosen.cost_at_least is not None and chosen.cost < 1.05 * chosen.cost_at_least
    for point in made.front:
        assert point.cost_at_least is not None and point.cost < 1.25 * point.cost_at_least
