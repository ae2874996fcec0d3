"""Plans where nobody bids: this machine, or peers that ask so much for a core-hour."""

from __future__ import annotations

import pytest

from sureline.forecast.machines import MachinePart
from sureline.strategies.surety.planning.unbid import Peer, plan_on
from sureline.workflow.model import Command, Graph, Task
from sureline.workflow.quantities import parse_takes
from sureline.workflow.terms import Terms

HOUR_S = 3600.0
WIDE = Graph(
    "wide", [Task(f"t{i}", Command("x"), takes=parse_takes("1h"), kind="t") for i in range(8)]
)


def peer(name: str, cores: float, price: float) -> Peer:
    return Peer(name, MachinePart(name, cores, 2**33, 0, {}), price)


def test_more_peers_cost_more_and_are_quicker() -> None:
    peers = [peer("dear", 4, 3.0), peer("free", 1, 0.0), peer("cheap", 3, 1.0)]
    made = plan_on(WIDE, peers, {}, Terms())
    assert [p.cost for p in made.front] == pytest.approx([0, 8 * 3 / 4, 8 * 15 / 8])
    assert [p.expected / HOUR_S for p in made.front] == pytest.approx([8, 2, 1])
    assert [p.peers for p in made.front] == [
        ["free"],
        ["free", "cheap"],
        ["free", "cheap", "dear"],
    ]
    assert (made.cost, made.peers) == (0, ["free"])


def test_the_cheapest_that_meets_the_terms() -> None:
    peers = [peer("dear", 4, 3.0), peer("free", 1, 0.0), peer("cheap", 3, 1.0)]
    made = plan_on(WIDE, peers, {}, Terms(2.5 * HOUR_S, 10))
    assert made.peers == ["free", "cheap"] and made.reserve == pytest.approx(4)
    assert [made.chose(point) for point in made.front] == [False, True, False]
    assert made.surety == 1 and max(step.end for step in made.tasks) == pytest.approx(2 * HOUR_S)
    refused = plan_on(WIDE, peers, {}, Terms(1.5 * HOUR_S, 10)).refused
    assert refused is not None
    assert refused.nearest.within == pytest.approx(2 * HOUR_S)
    assert refused.nearest.budget == pytest.approx(15)


def test_peers_of_one_price_are_used_together() -> None:
    made = plan_on(WIDE, [peer("a", 1, 2.0), peer("b", 1, 2.0)], {}, Terms())
    (point,) = made.front
    assert point.cost == pytest.approx(16) and point.peers == ["a", "b"]


def test_pert_looks_at_the_critical_path_only() -> None:
    made = plan_on(WIDE, [peer("", 1, 0)], {}, Terms(HOUR_S), "pert")
    assert made.expected == HOUR_S and made.surety == 1 and made.peers == []


def test_nothing_known_is_said() -> None:
    graph = Graph("g", [Task("a", Command("x"))])
    made = plan_on(graph, [peer("", 1, 0)], {}, Terms())
    assert "guess" in made.source and made.critical_path == ["a"]
