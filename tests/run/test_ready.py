"""The order of ready tasks."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from sureline.peer.capacity import Capacity, Ledger
from sureline.run.ready import PATIENCE, ReadyQueue
from sureline.workflow.model import Needs

ONE = Needs()
WIDE = Needs(cores=4)


def ledger(cores=4):
    return Ledger(Capacity(cores=cores, memory_bytes=0))


def test_the_most_urgent_comes_first_and_ties_go_to_the_earlier():
    queue = ReadyQueue()
    for task, urgency in [(0, 1.0), (1, 3.0), (2, 3.0), (3, 2.0)]:
        queue.push(task, ONE, urgency)
    free = ledger()
    assert [queue.pop_fitting(free)[0] for _ in range(4)] == [1, 2, 3, 0]
    assert queue.pop_fitting(free) is None


def test_a_smaller_task_overtakes_one_that_does_not_fit():
    queue = ReadyQueue()
    queue.push(0, WIDE, 9.0)
    queue.push(1, ONE, 1.0)
    assert queue.pop_fitting(ledger(2)) == (1, ONE)
    assert queue.pop_fitting(ledger(2)) is None
    assert queue.pop_fitting(ledger(4)) == (0, WIDE)


def test_a_wide_task_does_not_starve():
    queue = ReadyQueue()
    queue.push(0, WIDE, 9.0)
    for task in range(1, PATIENCE + 50):
        queue.push(task, ONE, 1.0)
    small = ledger(2)
    taken = 0
    while queue.pop_fitting(small) is not None:
        taken += 1
    assert taken == PATIENCE
    assert queue.pop_fitting(ledger(4)) == (0, WIDE)
    assert queue.pop_fitting(small) is not None


@given(st.lists(st.tuples(st.floats(0, 10), st.sampled_from([1, 2, 3, 4])), max_size=60))
def test_everything_pushed_comes_out_in_order_of_urgency(items):
    queue = ReadyQueue()
    for task, (urgency, cores) in enumerate(items):
        queue.push(task, Needs(cores=cores), urgency)
    assert len(queue) == len(items)
    out = []
    while (found := queue.pop_fitting(ledger())) is not None:
        out.append(found[0])
    assert out == sorted(range(len(items)), key=lambda t: (-items[t][0], t))
    assert len(queue) == 0
