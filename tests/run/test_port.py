"""What the engine promises every strategy, and keeps whatever happens to peers and messages."""

from __future__ import annotations

import itertools
from collections import Counter

import pytest
from grid_faults import Faults
from grid_scenario import HOME, GridRun
from toy_grid import ToyGrid
from toy_world import ToyWorld

from sureline.journal.events import Grown, RunEnded, TaskBound, TaskEnded, TaskReady, with_growth
from sureline.peer.agent import PeerAgent
from sureline.peer.capacity import Capacity
from sureline.peer.messages import Bind
from sureline.run.engine import Hearers, RunEngine
from sureline.run.options import CancelRun, Options, Past
from sureline.run.port import Bound, Over, Target
from sureline.run.states import FOLLOWS, State, Tasks
from sureline.strategies.embedded import Embedded
from sureline.strategies.spread import Spread
from sureline.workflow.model import Command, Graph, Task

HERE = Capacity(cores=2, memory_bytes=1000)


def task(name, *inputs):
    return Task(name, Command(f"make {name}"), inputs=inputs, outputs=(f"{name}.out",))


def chain(length):
    return Graph("c", [task(f"t{i}", *([f"t{i - 1}.out"] if i else [])) for i in range(length)])


# -- states ------------------------------------------------------------------------------------


@pytest.mark.parametrize(("before", "after"), list(itertools.permutations(State, 2)))
def test_a_task_makes_no_move_that_is_not_in_the_table(before, after):
    tasks = Tasks(chain(1))
    tasks.state[0] = before
    if after in FOLLOWS[before]:
        tasks.move(0, after)
        assert tasks.state[0] is after
    else:
        with pytest.raises(AssertionError, match="does not follow"):
            tasks.move(0, after)
        assert tasks.state[0] is before


def test_what_a_failed_or_committed_task_may_become():
    assert FOLLOWS[State.FAILED] == {State.COMMITTED}, "by a late result only"
    assert FOLLOWS[State.COMMITTED] == {State.WAITING}, "when its result is gone"
    assert State.BOUND not in FOLLOWS[State.WAITING], "nothing is bound that is not staged"


# -- on a machine ------------------------------------------------------------------------------


class Holding(Embedded):
    """Gives its word when it is told to."""

    def begin(self, engine, past, go):
        self._engine = engine
        self.go = go
        self.told: list[object] = []

    def ready(self, task):
        self.told.append(task)
        super().ready(task)

    def grown(self, tasks):
        self.told.append(tasks)


class OnMachine:
    def __init__(self, graph, deciding, options=None, past=None):
        self.world = ToyWorld()
        self.ends: list[RunEnded] = []
        self.engine = RunEngine(
            "writer",
            self.world.place("writer"),
            "run-1",
            graph,
            options or Options(),
            deciding,
            Hearers(self.ends.append),
            past=past,
        )
        self.world.join(self.engine)
        self.world.join(PeerAgent("here", self.world.place("here"), HERE))
        self.engine.start([Target("here", "here", HERE)])

    def of(self, kind):
        return [event for event in self.world.records if isinstance(event, kind)]


def test_nothing_is_ready_before_the_strategy_lets_it_go():
    deciding = Holding()
    lab = OnMachine(chain(3), deciding)
    lab.world.run()
    assert not lab.of(TaskReady) and not deciding.told and not lab.ends
    deciding.go()
    deciding.go()  # once is enough, twice does no harm
    lab.world.run()
    assert [end.state for end in lab.ends] == ["succeeded"]
    assert deciding.told == [0, 1, 2]


def test_a_run_that_is_cancelled_before_it_is_let_go_ends_then():
    """It used to make tasks ready that nobody would ever bind, and never ended."""
    deciding = Holding()
    lab = OnMachine(chain(3), deciding)
    lab.world.send("writer", CancelRun())
    lab.world.run()
    deciding.go()
    lab.world.run()
    assert [end.state for end in lab.ends] == ["cancelled"]
    assert not lab.of(TaskReady) and not lab.of(TaskBound)


def grown(graph):
    """Two more: one follows the last of those there were, one follows nobody."""
    last = graph.tasks[-1].name
    return Graph("c", [*graph.tasks, task("after", f"{last}.out"), task("apart")])


@pytest.mark.parametrize("when_s", [0.5, 1.5], ids=["during t0", "during t1"])
def test_tasks_that_appear_during_a_run_are_told_become_ready_and_commit(when_s):
    deciding = Holding()
    lab = OnMachine(chain(2), deciding)
    lab.world.after(when_s, lambda: lab.engine.grow(grown(chain(2))))
    deciding.go()
    lab.world.run()
    assert range(2, 4) in deciding.told
    assert deciding.told.index(range(2, 4)) < deciding.told.index(2)
    assert [end.state for end in lab.ends] == ["succeeded"]
    assert {e.task for e in lab.of(TaskEnded)} == {"t0", "t1", "after", "apart"}
    ready = [e.task for e in lab.of(TaskReady)]
    assert sorted(ready) == ["after", "apart", "t0", "t1"]
    assert ready.index("after") > ready.index("t1")


def test_a_run_with_a_deadline_watches_over_what_appears():
    deciding = Holding()
    lab = OnMachine(chain(2), deciding, Options(deadline_at=1e9))
    lab.world.after(0.5, lambda: lab.engine.grow(grown(chain(2))))
    deciding.go()
    lab.world.run()
    assert [end.state for end in lab.ends] == ["succeeded"]
    assert len(lab.of(TaskEnded)) == 4


def test_a_run_goes_on_with_what_it_has_grown_by():
    deciding = Holding()
    lab = OnMachine(chain(2), deciding)
    lab.world.after(0.5, lambda: lab.engine.grow(grown(chain(2))))
    deciding.go()
    lab.world.run()
    events = lab.world.records
    graph = with_growth(chain(2), events)
    assert [t.name for t in graph.tasks] == ["t0", "t1", "after", "apart"]
    assert graph.created == chain(2).to_bytes(), "keepers have it as it was"
    done = {e.task: e for e in events if isinstance(e, TaskEnded) and e.task in ("t0", "after")}
    again = OnMachine(graph, Holding(), past=Past(committed=done, attempts={"t0": 1}))
    again.engine._deciding.go()
    again.world.run()
    assert [end.state for end in again.ends] == ["succeeded"]
    assert {e.task for e in again.of(TaskEnded)} == {"t1", "apart"}


def test_what_is_added_at_once_is_bounded():
    lab = OnMachine(chain(1), Holding())
    many = Graph("c", [*chain(1).tasks, *(task(f"more{'x' * 100}{n}") for n in range(3000))])
    with pytest.raises(ValueError, match="at a time"):
        lab.engine.grow(many)
    assert not lab.of(Grown)


def test_what_appears_before_the_beginning_waits_for_it():
    deciding = Holding()
    lab = OnMachine(chain(2), deciding)
    lab.engine.grow(grown(chain(2)))
    lab.world.run()
    assert not lab.of(TaskReady)
    deciding.go()
    lab.world.run()
    assert len(lab.of(TaskEnded)) == 4


def test_tasks_that_were_there_cannot_be_changed():
    lab = OnMachine(chain(2), Holding())
    with pytest.raises(ValueError, match="keeps its tasks"):
        lab.engine.grow(Graph("c", [task("other"), *chain(2).tasks[1:]]))


# -- on a grid ---------------------------------------------------------------------------------


def watch_binds(grid):
    """Have every Bind checked that leaves the writer: what it says would survive a kill."""
    deliver = grid.deliver
    seen = Counter()

    def checked(sender, to, message):
        if isinstance(message, Bind):
            home = grid.machine(sender.split("/")[0])
            flushed = home.events[: home.flushed]
            bound = {(e.task, e.attempt) for e in flushed if isinstance(e, TaskBound)}
            assert (message.task, message.attempt) in bound, "it was told before it was flushed"
            seen[message.task] += 1
        deliver(sender, to, message)

    grid.deliver = checked
    return seen


def test_a_bind_is_flushed_before_its_peer_is_told():
    grid = ToyGrid()
    seen = watch_binds(grid)
    apart = Graph("apart", [task(f"t{i}") for i in range(6)])
    run = GridRun(grid, apart, peers=2, cores=1)
    run.submit()
    run.drive()
    run.check()
    assert set(seen) == {t.name for t in apart.tasks}


class Counting(Spread):
    """Keeps the engine's word: what is bound, and what is over."""

    def __init__(self):
        super().__init__("r1")
        self.open: dict[tuple[str, int, int], Bound] = {}
        self.overs = 0

    def bound(self, bound):
        assert self._key(bound) not in self.open, "told twice"
        self.open[self._key(bound)] = bound
        super().bound(bound)

    def over(self, over: Over):
        assert self.open.pop(self._key(over.bound), None) is over.bound, "over, and never bound"
        self.overs += 1
        super().over(over)

    def gone(self, target):
        assert not [key for key in self.open if key[0] == target], "gone before all was over"
        super().gone(target)

    @staticmethod
    def _key(bound):
        return bound.target, bound.task, bound.attempt


@pytest.mark.parametrize("first", range(500, 600, 20))
def test_over_is_told_once_for_each_bound_whatever_happens(first):
    for seed in range(first, first + 20):
        try:
            faults = Faults(seed)
            lives: list[Counting] = []

            def counting(lives=lives):
                lives.append(Counting())
                return lives[-1]

            faults.run.deciding = counting
            faults.drive()
            last = lives[-1]
            assert last.overs or len(lives) > 1
            assert all(bound.withdrawn for bound in last.open.values()), "it is not of use any more"
        except BaseException as error:
            raise AssertionError(f"seed {seed}") from error


def test_tasks_appear_during_a_run_over_a_grid():
    grid = ToyGrid()
    run = GridRun(grid, chain(3), peers=2)
    engine = run.submit()
    run.graph = grown(chain(3))
    grid.after(1.0, lambda: engine.grow(run.graph))
    run.drive()
    run.check()
    assert run.grid.machine(HOME).published.keys() >= {"after.out", "apart.out"}
