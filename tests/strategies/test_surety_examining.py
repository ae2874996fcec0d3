"""What is late is asked after, not too often; what has ended is asked for again."""

from __future__ import annotations

import pytest
from market_lab import MarketLab, fan

from sureline.strategies.surety.client.examining import EXAMINE_S, EXAMINED_MAX, Examiner, Late
from sureline.strategies.surety.invocation import Examined, Extract
from sureline.strategies.surety.pricing import Tariff


class Post:
    """As much of a world as an examiner needs."""

    def __init__(self) -> None:
        self.time_s = 100.0
        self.sent = []

    def elapsed(self) -> float:
        return self.time_s

    def send(self, to, message) -> None:
        self.sent.append((to, message))


@pytest.fixture
def post() -> Post:
    return Post()


def test_each_late_attempt_is_asked_after_now_and_then(post):
    examiner = Examiner(post, "run")
    late = [Late("m1@h:1", "a", 1), Late("m2@h:1", "b", 2)]
    examiner.look_at(late)
    examiner.look_at(late)
    assert [(to, m.task, m.attempt) for to, m in post.sent] == [
        ("m1@h:1/market", "a", 1),
        ("m2@h:1/market", "b", 2),
    ]
    post.time_s += EXAMINE_S
    examiner.look_at(late[:1])
    assert [m.task for _, m in post.sent] == ["a", "b", "a"]


def test_many_late_attempts_take_turns(post):
    examiner = Examiner(post, "run")
    late = [Late("m1@h:1", f"t{n}", 1) for n in range(EXAMINED_MAX + 5)]
    examiner.look_at(late)
    assert len(post.sent) == EXAMINED_MAX
    examiner.look_at(late)
    assert {m.task for _, m in post.sent} == {one.task for one in late}


def test_only_what_has_ended_is_extracted(post):
    examiner = Examiner(post, "run")
    for state in ("running", "waiting", "unknown", "ended"):
        examiner.heard("m1@h:1/market", Examined("run", 0, 1, state, "a", 3))
    ((to, message),) = post.sent
    assert to == "m1@h:1/market"
    assert isinstance(message, Extract) and (message.task, message.attempt) == ("a", 3)


def test_a_late_provider_is_examined_in_a_run():
    lab = MarketLab(fan(4), {"m2": Tariff(60.0)}, budget=20, repair=False)
    lab.grid.at(30.0, lambda: lab.grid.slow("m1", 0.2))
    lab.drive()
    lab.check()
    sent = lab.grid.sim.counters.by_type()
    assert sent["surety.examine"].sent > 0
    assert sent["surety.examined"].sent > 0
