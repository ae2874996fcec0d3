"""The user's inputs are held by peers before the machine that has them may leave."""

from __future__ import annotations

from grid_scenario import HOME, GridRun
from toy_grid import ToyGrid

from sureline.journal.events import Entrusted, FileFetched
from sureline.peer.messages import Entrust, Holds
from sureline.run.options import Options
from sureline.workflow.model import Command, Graph, Task


def begun(peers=3, tasks=4, **options):
    """A run whose tasks read a file of the user's each, one after the other, and take long."""
    grid = ToyGrid()
    grid.duration = lambda job: 100.0
    made = [
        Task(f"t{n}", Command(f"t{n}"), (f"in{n}", *([f"out{n - 1}"] if n else [])), (f"out{n}",))
        for n in range(tasks)
    ]
    run = GridRun(grid, Graph("flow", made), peers=peers, options=Options(**options))
    grid.machine(HOME).files |= {f"in{n}" for n in range(tasks)}
    run.submit()
    return grid, run


def told(run):
    return [event for event in run.events if isinstance(event, Entrusted)]


def test_two_peers_hold_each_input_long_before_a_task_reads_it():
    grid, run = begun()
    grid.run(lambda: told(run) and told(run)[-1].whole, 60.0)
    assert grid.time < 100.0, "no second task has begun"
    last = told(run)[-1]
    assert (last.files, last.of_files) == (4, 4) and set(last.by) <= set(run.peers)
    recorded = {e.file.path: e.file.digest for e in run.events if isinstance(e, FileFetched)}
    for name in ("in0", "in1", "in2", "in3"):  # who goes on must know what they are
        has = [peer for peer in run.peers if recorded[name] in grid.machine(peer).files]
        assert len(has) >= 2


def test_who_holds_it_and_is_gone_is_replaced():
    grid, run = begun(peers=4)
    grid.run(lambda: told(run) and told(run)[-1].whole, 60.0)
    gone = told(run)[-1].by[0]
    run.crash_peer(gone, wipe=True)
    grid.run(lambda: told(run)[-1].whole and gone not in told(run)[-1].by, 200.0)


def test_nothing_is_told_after_the_end_and_nothing_moves_where_nobody_takes_over():
    grid, run = begun(peers=2, tasks=1)
    run.drive()
    grid.run(lambda: grid.time > 300.0)
    assert run.events[-1] is run.ended or not isinstance(run.events[-1], Entrusted)
    grid, run = begun(peers=2, tasks=1, takeover_after_s=0.0)
    run.drive()
    assert not told(run)


def test_inputs_are_entrusted_to_those_who_have_read_them():
    grid = ToyGrid()
    grid.duration = lambda job: 0.5 if job.task == "first" else 100.0
    tasks = [
        Task("first", Command("first"), ("in",), ("made",)),
        Task("then", Command("then"), ("made",), ("out",)),
    ]
    run = GridRun(grid, Graph("flow", tasks), peers=8)
    grid.machine(HOME).files |= {"in"}
    run.submit()
    grid.run(lambda: told(run) and told(run)[-1].whole, 60.0)
    (first,) = [event for event in run.events if getattr(event, "task", "") == "first"][-1:]
    assert first.peer in told(run)[-1].by


def watched(run, grid):
    """What is asked for, and what is there then."""
    asked, held, seen, deliver = [], [], [], grid.deliver

    def watch(sender, to, message):
        if isinstance(message, Holds):
            held.append(message.digest)
        if isinstance(message, Entrust):
            asked.extend(file.digest for file in message.files)
            seen.append((len(asked), set(held), len(asked) - len(held)))
        deliver(sender, to, message)

    grid.deliver = watch
    grid.run(lambda: told(run) and told(run)[-1].whole, 60.0)
    assert len(asked) == 8
    return seen


def test_second_copies_wait_until_there_is_a_first_of_everything():
    grid, run = begun(peers=6)
    assert all(len(held) == 4 for asked, held, _ in watched(run, grid) if asked > 4)


def test_no_more_of_second_copies_is_on_its_way_than_tasks_can_bear(monkeypatch):
    monkeypatch.setattr("sureline.run.entrusting.SECOND_BYTES", 1)
    grid, run = begun(peers=6)
    assert all(under_way == 1 for asked, _, under_way in watched(run, grid) if asked > 4)


def test_one_that_never_gets_its_first_copies_does_not_keep_others_from_second_ones():
    grid, run = begun(peers=6)
    deliver, dropped = grid.deliver, []

    def deaf(sender, to, message):
        if isinstance(message, Entrust) and (not dropped or to in dropped):
            dropped.append(to)
        else:
            deliver(sender, to, message)

    grid.deliver = deaf
    grid.run(lambda: told(run) and told(run)[-1].files == 4, 90.0)
