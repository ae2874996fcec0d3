"""The benchmark's networks at a size that a test can afford, and in full under soak.

Live peers have real sockets, certificates and TLS, and are killed for real.
"""

from __future__ import annotations

from typing import Any

import pytest
from kademlia_bench import live, simulated


def check_found(outcome: dict[str, Any], share: float = 1.0) -> None:
    assert outcome["keys"] > 0
    assert outcome["found"] >= share * outcome["keys"], outcome


def check_cast(cast: dict[str, Any], coverage: float = 1.0) -> None:
    assert cast["coverage"] >= coverage and cast["children_max"] <= 8, cast


def check_simulated(figures: dict[str, Any], keys: int) -> None:
    assert figures["stored_3"] == keys
    check_found(figures["get"])
    check_found(figures["after_kill"], 0.999)
    assert figures["after_kill"]["seconds"]["median"] < 1.0
    check_cast(figures["broadcast"])
    check_cast(figures["broadcast_after_kill"], 0.99)
    # Each hop halves the distance at least twice over, and alpha ask side by side.
    assert figures["get"]["messages_per_lookup"] < 3 * figures["log2_n"]


def check_live(figures: dict[str, Any], keys: int) -> None:
    assert figures["stored"] == {"keys": keys, "with_3": keys}
    check_found(figures["get"])
    check_found(figures["get_after_kill"], 0.999)
    check_cast(figures["broadcast"])
    check_cast(figures["broadcast_after_kill"], 0.99)
    assert figures["links_max"] <= 64


def test_four_hundred_simulated_nodes_lose_a_third_of_them() -> None:
    check_simulated(simulated.measure(400, seed=5, keys=100), 100)


@pytest.mark.soak
def test_a_hundred_and_fifty_live_peers_lose_a_third_of_them() -> None:
    check_live(live.measure(150, 3, keys=30, kill=1), 30)


def test_broadcasts_under_churn_reach_nearly_all() -> None:
    figures = simulated.under_churn(150, seed=3, minutes=2.0)
    check_cast(figures | {"coverage": figures["coverage_min"]}, 0.99)
    check_found(figures["gets"], 0.999)


@pytest.mark.soak
def test_ten_thousand_simulated_nodes_lose_a_third_of_them() -> None:
    check_simulated(simulated.measure(10_000), 2000)


@pytest.mark.soak
def test_fifteen_hundred_live_peers_lose_a_third_of_them() -> None:
    figures = live.measure(1500, 10)
    print(figures)
    check_live(figures, 2000)
    assert figures["get_after_kill"]["seconds"]["median"] < 1.0


@pytest.mark.soak
@pytest.mark.parametrize("silent", [False, True])
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_fifteen_hundred_simulated_nodes_under_churn(seed: int, silent: bool) -> None:
    figures = simulated.under_churn(1500, seed, silent=silent)
    print(figures)
    check_cast(figures | {"coverage": figures["coverage_min"]}, 0.99)
    check_found(figures["gets"], 0.999)


@pytest.mark.soak
def test_the_rival_does_worse_when_peers_die() -> None:
    """The comparison that the documentation quotes, at a size at which it is telling."""
    figures = live.measure_rival(300, 10, keys=300, at_once=10)
    print(figures)
    assert figures["get_after_kill"]["found"] < figures["get_after_kill"]["keys"]
