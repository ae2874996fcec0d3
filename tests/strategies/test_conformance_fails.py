"""The suite fails for strategies that deserve it."""

from __future__ import annotations

import random

import pytest

from sureline.run.port import Strategy
from sureline.strategies import known
from sureline.strategies.spread import Spread
from sureline.testing import StrategyConformance as Suite


class Forgetful(Spread):
    """A task that was ready once is not heard of again."""

    def __init__(self, salt):
        super().__init__(salt)
        self._heard = set()

    def ready(self, task):
        if task not in self._heard:
            self._heard.add(task)
            super().ready(task)


class Dice(Spread):
    """Draws from elsewhere than its world."""

    def _nearest(self, task, needs, best, load):
        return random.choice(self._books.all_fitting(needs))


class Twice(Spread):
    """Starts everything a second time."""

    def started(self, bound):
        spare = self.spare(self._engine.graph.tasks[bound.task].needs, (bound.target,))
        if bound.attempt == 1 and spare is not None:
            self._engine.duplicate(bound.task, spare)


@pytest.mark.parametrize(
    ("made", "case"),
    [
        (Forgetful, lambda suite: suite.test_crash(2)),  # in which two attempts are lost
        (Dice, lambda suite: suite.test_repeats()),
        (Twice, lambda suite: suite.test_quiet(1)),
    ],
    ids=["forgetful", "dice", "twice"],
)
def test_who_breaks_a_rule_does_not_pass(made, case, monkeypatch):
    bad = Strategy(name="bad", summary="", deciding=lambda seat: made(seat.run))
    for room in ("strategies", "experiments.scenario_reader", "experiments.grid"):
        monkeypatch.setattr(f"sureline.{room}.known", lambda: {**known(), "bad": bad})

    class OfBad(Suite):
        strategy = "bad"

    with pytest.raises(AssertionError):
        case(OfBad())
