"""The paper's testbed, made small: the agents that run live, in all architectures."""

from __future__ import annotations

import msgspec
import pytest

from sureline.experiments.latebinding import (
    ARCHITECTURES,
    NEEDS_FULL,
    SIZES,
    _cells,
    _claims,
    rank_sums,
)
from sureline.experiments.latebinding_beyond import broadcasts, bulk_curve, priority_effect
from sureline.experiments.latebinding_sites import KINDS, Testbed, workflow


@pytest.fixture(scope="module")
def small():
    return {a: Testbed(a, "serial", 40, 160, 1).run() for a in ARCHITECTURES}


def test_all_is_done_in_every_architecture(small):
    assert {a: run.done for a, run in small.items()} == dict.fromkeys(ARCHITECTURES, 160)


def test_requests_fall_from_architecture_to_architecture(small):
    requests = [small[a].requests + small[a].files for a in ARCHITECTURES[:3]]
    assert requests == sorted(requests, reverse=True)
    assert small["pre-dht"].by_name["FileReport"] and not small["centralized"].by_name.get(
        "FileReport"
    )
    assert not small["event"].by_name.get("Request") and not small["distributed"].by_name.get(
        "Request"
    )


def test_ours_asks_the_queue_less_than_once_for_a_task():
    """Of a hundred pilots two register: the others ask a pilot of their site who is master."""
    run = Testbed("event", "splitting", 100, 600, 1).run()
    assert run.requests < 0.8 * run.tasks
    assert run.by_name["Register"] <= 4


def test_rounds_of_the_paper_cost_its_period_and_ours_do_not(small):
    assert 5.0 < small["distributed"].delay_s < 25.0
    assert small["event"].delay_s < small["distributed"].delay_s / 2
    assert small["event"].turnaround_s < small["distributed"].turnaround_s


def test_files_come_from_caches_and_mostly_from_the_local_one(small):
    for architecture in ("centralized", "distributed", "event"):
        run = small[architecture]
        assert run.local + run.from_peers == run.reads == 80
    assert small["pre-dht"].from_peers == 0
    assert small["distributed"].local > 0.9 * small["distributed"].reads


def test_a_queue_that_is_gone_for_minutes_loses_nothing():
    run = Testbed("event", "merging", 20, 60, 2, outage=(100.0, 180.0)).run()
    assert run.done == run.tasks == 60


def test_the_same_seed_gives_the_same_run(small):
    assert Testbed("event", "serial", 40, 160, 1).run() == small["event"]


def test_completions_told_in_bulk_cost_requests_or_time():
    often, seldom = bulk_curve(1, (0.25, 20.0))
    assert seldom.dependent_delay_s > often.dependent_delay_s + 5.0
    assert seldom.requests_per_job < often.requests_per_job


def test_a_changed_priority_has_effect_within_seconds():
    """Also where the other run has waited for long, and sees pilots idle between two tasks. (With
    seed 2 a site has some of the other run in store, more depends on them, and they go first.)"""
    effects = [priority_effect(40, seed) for seed in (1, 3)]
    assert all(effect.others_s < 5.0 for effect in effects)
    # How soon anything is bound depends on when a pilot is free: tasks take 20 s.
    assert min(effect.first_s for effect in effects) < 10.0
    assert max(effect.first_s for effect in effects) < 25.0


def test_broadcasts_reach_all_but_few_while_pilots_come_and_go():
    calm, churned = broadcasts(60, 0.0, 1), broadcasts(60, 0.3, 1)
    assert calm.reached == 1.0 and churned.reached > 0.95
    assert 1.0 <= calm.messages_per_node < 4.0


@pytest.mark.parametrize("kind", KINDS)
def test_workflows_are_those_of_the_paper(kind):
    graph = workflow(kind, 300)
    second = [n for n in range(len(graph)) if graph.parents[n]]
    readers = [len(graph.children[n]) for n in range(len(graph)) if not graph.parents[n]]
    assert len(graph) == 300
    assert {len(graph.parents[n]) for n in second} == {2 if kind == "merging" else 1}
    assert set(readers) == {2 if kind == "splitting" else 1}


def test_exact_assignment_is_never_worse():
    sums = rank_sums(60, 40, 3).shares
    assert sums["exact"] == 1.0
    assert sums["first column"] < 1.0 and sums["greedy"] <= 1.0


@pytest.mark.parametrize(("sizes", "verdict"), [(SIZES[:2], NEEDS_FULL), (SIZES, "disagrees")])
def test_what_is_said_of_the_largest_testbed_is_judged_there_only(small, sizes, verdict):
    """Here every size is the same run, so nothing grows."""
    found = [
        msgspec.structs.replace(run, pilots=pilots, tasks=tasks, kind=kind)
        for run in small.values()
        for pilots, tasks in sizes
        for kind in KINDS
    ]
    verdicts = {one.what: one.verdict for one in _claims(found, list(_cells(found, sizes)), sizes)}
    grow = {what: told for what, told in verdicts.items() if "grows with the size" in what}
    assert len(grow) == 3 and set(grow.values()) == {verdict}
    assert (
        verdicts["of the largest testbed, distributed is done first (Fig. 4)"] == NEEDS_FULL
    ) == (sizes != SIZES)
