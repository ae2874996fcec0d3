"""`random`: every target that a task fits on is as likely as any other, and no other is taken."""

from __future__ import annotations

from collections import Counter
from random import Random as Seeded
from types import SimpleNamespace

from toy_engine import NotingEngine

from sureline.peer.capacity import Capacity
from sureline.strategies.random import Random
from sureline.workflow.model import Needs

DRAWS = 3000


def test_it_chooses_evenly_among_those_that_fit():
    world = SimpleNamespace(random=Seeded(7))
    engine = NotingEngine(Random("run", world))
    sizes = {"small": 1, "a": 4, "b": 8, "c": 64}
    for name, cores in sizes.items():
        engine.join(name, Capacity(cores, 0))
    engine.deciding.load("a", 3.0)  # a busy one is as good as any
    drawn: Counter[str] = Counter()
    for task in range(DRAWS):
        engine.ready(task, Needs(cores=2), float(task % 7))
        ((placed, target),) = engine.place()
        assert placed == task
        drawn[target] += 1
        engine.over(task, target)
    assert set(drawn) == {"a", "b", "c"}
    expected = DRAWS / 3
    chi_squared = sum((count - expected) ** 2 / expected for count in drawn.values())
    assert chi_squared < 9.21, f"{drawn}: by chance once in a hundred, and the seed is set"


def test_what_is_full_is_not_drawn():
    world = SimpleNamespace(random=Seeded(7))
    engine = NotingEngine(Random("run", world))
    engine.join("a", Capacity(1, 0))
    engine.join("b", Capacity(3, 0))
    for task in range(6):
        engine.ready(task, Needs(cores=1), 0.0)
    assert Counter(target for _, target in engine.place()) == {"a": 1, "b": 3}
