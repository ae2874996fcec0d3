"""The paper's experiments on the chemically coordinated shared space: the model, and what is said
of it. The whole command is a heavy proof."""

from __future__ import annotations

import math
import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sureline.experiments import chemical, chemical_agents
from sureline.experiments.chemical_model import PaperRing
from sureline.experiments.chemical_ring import make_ids, owner_of, route
from sureline.experiments.chemical_words import lines
from sureline.web.chemical import chemical_page


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 300), st.integers(0, 1000), st.integers(0, 2**64 - 1), st.data())
def test_a_message_reaches_the_owner_in_few_hops(nodes, seed, key, data):
    ids = make_ids(nodes, seed)
    load = np.zeros(nodes, dtype=np.int64)
    start = data.draw(st.integers(0, nodes - 1))
    hops = route(ids, load, start, np.uint64(key))
    owner = owner_of(ids, np.uint64(key))
    assert owner == (np.searchsorted(ids, np.uint64(key)) % nodes)
    assert load.sum() == hops and (hops == 0 or load[owner] == 1)
    assert (hops == 0) == (start == owner)
    assert hops <= 2 * math.log2(nodes) + 6


@pytest.mark.parametrize("exclusive", [False, True])
@pytest.mark.parametrize("barriers", [False, True])
def test_all_workflows_end_and_every_message_is_counted(exclusive, barriers):
    ring = PaperRing(60, 12, 3, exclusive=exclusive, barriers=barriers)
    cell = ring.run()
    assert all(flow.done == flow.tasks and flow.ended > 0 for flow in ring._flows)
    assert cell.tasks == sum(flow.tasks for flow in ring._flows)
    assert cell.queries >= cell.tasks and cell.messages > cell.query_messages > 0
    assert (cell.republishing > 0) == exclusive
    assert PaperRing(60, 12, 3, exclusive=exclusive, barriers=barriers).run() == cell


def test_with_exclusive_capture_a_resource_has_one_task_at_a_time():
    ring = PaperRing(20, 10, 1, exclusive=True)
    take, push = ring._take, ring._publish
    busy: set[int] = set()

    def taken(start, limit):
        node = take(start, limit)
        if node is not None:
            assert node not in busy
            busy.add(node)
        return node

    published = 0

    def publish(node):
        nonlocal published
        published += 1
        busy.discard(node)
        push(node)

    ring._take, ring._publish = taken, publish
    cell = ring.run()
    assert published == 2 * cell.tasks, "withdrawn once and published once for each"


def test_barriers_cost_time_where_there_are_resources_enough():
    on, off = (PaperRing(500, 20, 2, barriers=b).run() for b in (True, False))
    assert on.tasks == off.tasks and off.mean_steps < on.mean_steps


def test_growth_is_fitted():
    slope, r2 = chemical._line([1, 2, 3], [5, 7, 9])
    assert (round(slope, 6), round(r2, 6)) == (2.0, 1.0)
    cells = [PaperRing(n, 10, 0).run() for n in (64, 256, 1024)]
    found = {(f.what.split()[0], f.over): f for f in chemical.fits(cells)}
    assert found["messages", "log^2 n"].r2 > 0.95 and found["steps", "log n"].slope > 0


def test_five_tasks_on_four_resources():
    said = [step.said for step in chemical_agents.fig5(1)]
    first, later = said[: said.index("TASK:E finds none, and waits")], said[-3:]
    assert sum("DEPLOY" in line for line in first) == 3, "three find one at once"
    assert any(line == "TASK:A finds none, and waits" for line in first)
    assert "TASK:E, RES:R2 -> DEPLOY" in later


def test_what_was_found_is_told_in_lines_and_as_a_page(monkeypatch):
    monkeypatch.setattr(chemical, "RINGS", (8,))
    monkeypatch.setattr(chemical, "crashes", lambda seed: chemical_agents.crashes(seed, ()))
    told: list[str] = []
    made = chemical.reproduce(400, 20, 0, told.append)
    assert {(c.nodes, c.workflows) for c in made.cells} == {
        (n, w) for n in (100, 400) for w in (10, 20)
    }
    assert told and all(claim.verdict in ("agrees", "disagrees") for claim in made.claims)
    text = "\n".join(lines(made))
    assert "having fewer nodes leads to better performance" in text
    page = chemical_page(made)
    assert page.count("<svg") == 6 and not re.search(r"(src|href)=", page)
    assert made.ranges[0].right == made.ranges[0].asked
