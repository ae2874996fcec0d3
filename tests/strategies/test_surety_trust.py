"""How far providers are believed, and what a run's repairs may use up."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from sureline.run.free_repair import DUPLICATES_OF_RUN_MIN, Allowance
from sureline.run.monitor import combined
from sureline.run.repair import Remedy
from sureline.strategies.surety.client.trust import ProviderTrust
from sureline.workflow.model import Graph, Pause, Task


def test_lanes_are_believed_until_somebody_is_caught_and_then_as_far_as_they_are_proven() -> None:
    trust = ProviderTrust()
    trust.kept("good", 60.0, 66.0, at_once=4)
    assert trust.lanes("good", 16) == 16 and trust.lanes("new", 12) == 12
    trust.kept("bad", 60.0, 240.0, at_once=8)
    assert trust.lanes("good", 16) == 8, "twice what it did at once"
    assert trust.lanes("new", 12) == 3 and trust.lanes("bad", 12) == 3
    assert trust.lanes("new", 1) == 1
    trust.kept("new", 60.0, 60.0, at_once=3)
    assert trust.lanes("new", 12) == 6


@given(st.lists(st.tuples(st.sampled_from("ab"), st.floats(1, 1e4), st.integers(1, 64))))
def test_nobody_is_believed_to_have_more_lanes_than_it_says_or_none(
    kept: list[tuple[str, float, int]],
) -> None:
    trust = ProviderTrust()
    for provider, took_s, at_once in kept:
        trust.kept(provider, 60.0, took_s, at_once)
    for claimed in (1, 2, 12, 100):
        assert 1 <= trust.lanes("a", claimed) <= claimed


def test_added_attempts_that_brought_the_result_use_up_nothing() -> None:
    tasks = [Task(f"t{number}", Pause(1.0)) for number in range(2 * DUPLICATES_OF_RUN_MIN)]
    allowance = Allowance(Graph("g", tasks))
    for task in range(DUPLICATES_OF_RUN_MIN):
        allowance.use(task, 2)
    last = len(tasks) - 1
    assert not allowance.allows(last)
    allowance.done(0, 1)
    assert not allowance.allows(last), "its first attempt was done: the second was for nothing"
    allowance.done(1, 2)
    assert allowance.allows(last)
    allowance.done(1, 2)
    allowance.use(last, 2)
    assert not allowance.allows(last - 1), "given back once"


def test_the_first_for_each_task_go_together_and_so_do_the_second() -> None:
    cheap = [Remedy("duplicate", (), task, cost=1.0, to_peer="cheap") for task in (0, 1)]
    plans = [Remedy("substitute", (), -1, cost=cost, token=str(cost)) for cost in (1.0, 3.0)]
    quick = [Remedy("duplicate", (), task, cost=2.0, to_peer="quick") for task in (0, 1)]
    found = [option.remedies for option in combined([*cheap, *plans, *quick], 100.0)]
    assert (*cheap, plans[0]) in found and (plans[1], *quick) in found
    assert (cheap[0], quick[1]) not in found
