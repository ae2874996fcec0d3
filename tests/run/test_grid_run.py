"""A run over a grid of peers, in the toy grid: losing peers, results, files and writers."""

from __future__ import annotations

from collections import Counter

import pytest
from grid_scenario import HOME, RUN, GridRun
from toy_grid import ToyGrid, digest_of

from sureline.journal.events import (
    FileFetched,
    PeerJoined,
    PeerLeft,
    TaskBound,
    TaskEnded,
    TaskRevoked,
)
from sureline.peer.messages import Acknowledge, Bind, Finished, Release, Withdraw
from sureline.run.binds import check_travels
from sureline.run.options import CancelRun, Options
from sureline.run.port import Target
from sureline.workflow.mistakes import UserError
from sureline.workflow.model import Call, Command, Graph, Needs, Pause, Task


def diamond(width: int = 6) -> Graph:
    """One task reads a user's file, `width` tasks read what it made, one joins them."""
    tasks = [Task("first", Command("first"), inputs=("source",), outputs=("f0",))]
    for i in range(width):
        tasks.append(Task(f"mid{i}", Command(f"mid {i}"), inputs=("f0",), outputs=(f"m{i}",)))
    tasks.append(
        Task("last", Command("last"), inputs=tuple(f"m{i}" for i in range(width)), outputs=("z",))
    )
    return Graph("diamond", tasks)


def chain(length: int, **extra) -> Graph:
    return Graph(
        "chain",
        [
            Task(
                f"t{i}",
                Command(f"make {i}"),
                inputs=(f"f{i - 1}",) if i else ("source",),
                outputs=(f"f{i}",),
                **extra,
            )
            for i in range(length)
        ],
    )


def alone(count: int, **extra) -> Graph:
    return Graph("alone", [Task(f"t{i}", Command(f"make {i}"), **extra) for i in range(count)])


@pytest.fixture
def grid():
    return ToyGrid()


def outcomes(run):
    return Counter(e.outcome for e in run.of(TaskEnded))


def begun(grid):
    return Counter(job.task for _, _, job in grid.started)


def where(grid, task):
    return [node for _, node, job in grid.started if job.task == task]


def test_a_run_over_three_peers_ends_with_all_outputs_at_home(grid):
    run = GridRun(grid, diamond())
    run.submit()
    run.drive()
    run.check()
    assert outcomes(run) == {"succeeded": 8}
    assert len({node for _, node, job in grid.started if job.task.startswith("mid")}) == 3
    brought = {e.file.path: e.peer for e in run.of(FileFetched) if e.source == "peer"}
    assert set(brought) == {"f0", "z", *(f"m{i}" for i in range(6))}
    last = next(e for e in run.of(TaskEnded) if e.task == "last")
    assert last.here_files + last.peer_files == 6
    assert last.peer_bytes == 10 * last.peer_files > 0


def test_a_lost_peers_tasks_are_placed_again_and_that_is_no_failure(grid):
    grid.duration = lambda job: 10.0
    run = GridRun(grid, alone(6))
    run.submit()
    grid.after(3.0, lambda: run.crash_peer("p1"))
    run.drive()
    run.check()
    assert outcomes(run) == {"succeeded": 6, "lost": 2}
    assert [(e.peer, e.reason) for e in run.of(PeerLeft)] == [("p1", "no answer")]
    lost = [e for e in run.of(TaskEnded) if e.outcome == "lost"]
    assert {e.reason for e in lost} == {"p1 is gone (no answer)"}


def test_a_task_that_is_lost_with_every_peer_fails_in_the_end(grid):
    grid.duration = lambda job: 1e6
    run = GridRun(grid, alone(1))
    run.submit()

    def doom():
        if run.ended is None:
            for node in run.peers:
                run.left(node)
                run.joined(node)
            grid.after(100.0, doom)

    grid.after(5.0, doom)
    assert run.drive().state == "failed"
    assert 10 < outcomes(run)["lost"] <= 40


def test_a_peer_that_was_started_again_has_lost_its_tasks_and_nobody_waits_for_them(grid):
    grid.duration = lambda job: 100.0
    run = GridRun(grid, alone(1), peers=1)
    run.submit()
    grid.run(lambda: grid.started)
    grid.after(1.0, lambda: grid.crash("p0"))
    grid.after(2.0, lambda: grid.restart("p0"))  # so soon that its membership never wavers
    run.drive()
    assert [e.reason for e in run.of(TaskEnded)] == ["p0 was started again", ""]
    assert run.ended.at < 110.0


def test_a_late_result_of_a_peer_believed_dead_is_taken_and_the_other_attempt_withdrawn(grid):
    grid.keep_sent = True
    grid.duration = lambda job: 20.0 if job.attempt == 1 else 500.0
    run = GridRun(grid, alone(1), peers=2)
    run.submit()
    grid.run(lambda: grid.started)
    (first,) = where(grid, "t0")
    run.left(first)
    run.drive()
    run.check()
    assert len(where(grid, "t0")) == 2
    commit, beaten = run.of(TaskEnded)[-2:]
    assert (commit.outcome, commit.peer, commit.attempt) == ("succeeded", first, 1)
    assert (beaten.outcome, beaten.attempt) == ("cancelled", 2)
    assert run.ended.at < 30.0
    assert any(isinstance(m, Withdraw) and m.attempt == 2 for _, _, m in grid.sent)


def test_a_peer_that_comes_back_with_an_attempt_under_way_is_not_started_again(grid):
    grid.duration = lambda job: 50.0
    run = GridRun(grid, alone(1), peers=1)
    run.submit()
    grid.run(lambda: grid.started)
    run.left("p0")
    grid.after(10.0, lambda: run.joined("p0"))
    run.drive()
    assert begun(grid) == {"t0": 1}
    assert [e.outcome for e in run.of(TaskEnded)] == ["lost", "succeeded"]


def test_a_bind_that_is_lost_is_said_again_under_the_same_number(grid):
    run = GridRun(grid, alone(1), peers=1)
    run.submit()
    deliver = grid.deliver
    dropped = []

    def drop_first(sender, to, message):
        if isinstance(message, Bind) and not dropped:
            dropped.append(message)
        else:
            deliver(sender, to, message)

    grid.deliver = drop_first
    run.drive()
    assert dropped
    assert [e.attempt for e in run.of(TaskBound)] == [1]
    assert outcomes(run) == {"succeeded": 1}


def test_failures_count_and_retries_end(grid):
    grid.fails = lambda job: True
    run = GridRun(grid, alone(1, retries=2))
    run.submit()
    assert run.drive().state == "failed"
    assert outcomes(run) == {"failed": 3}


def test_reports_are_acknowledged_when_what_came_of_them_is_durable(grid):
    run = GridRun(grid, diamond())
    deliver, seen = grid.deliver, []

    def look(sender, to, message):
        if isinstance(message, Acknowledge):
            home = grid.machine(HOME)
            durable = {e.task for e in home.events[: home.synced] if isinstance(e, TaskEnded)}
            seen.append({task for task, _ in message.reports} <= durable)
        deliver(sender, to, message)

    grid.deliver = look
    run.submit()
    run.drive()
    assert seen and all(seen)


# -- resuming ----------------------------------------------------------------------------------


@pytest.mark.parametrize("power", [False, True])
def test_a_resumed_run_adopts_what_runs_and_takes_what_has_finished(grid, power):
    grid.duration = lambda job: {"t0": 1.0, "t1": 10.0, "t2": 60.0}[job.task]
    run = GridRun(grid, alone(3))
    run.submit()
    grid.run(lambda: any(e.task == "t0" for e in run.of(TaskEnded)))
    grid.after(1.0, lambda: grid.crash(HOME, power=power))
    grid.after(30.0, run.submit)
    run.drive()
    run.check()
    assert begun(grid) == {"t0": 1, "t1": 1, "t2": 1}
    assert run.ended.at == pytest.approx(60.0, abs=5.0)


def test_no_finished_task_runs_again_however_many_reports_are_still_to_come(grid):
    run = GridRun(grid, alone(400, needs=Needs(cores=0.01)), peers=2)
    run.submit()
    grid.run(lambda: len(grid.started) == 400)
    grid.crash(HOME, power=False)
    grid.after(30.0, run.submit)
    run.drive()
    run.check()
    assert set(begun(grid).values()) == {1}


def test_a_peer_that_comes_after_a_resume_is_asked_then(grid):
    grid.duration = lambda job: 40.0
    run = GridRun(grid, alone(1), peers=2)
    run.submit()
    grid.run(lambda: grid.started)
    (node,) = where(grid, "t0")
    grid.crash(HOME, power=False)
    run.left(node)
    grid.after(1.0, run.submit)
    grid.after(20.0, lambda: run.joined(node))
    run.drive()
    run.check()
    commit, _beaten = run.of(TaskEnded)[-2:]
    assert commit.peer == node, "it finished first, though another had been started meanwhile"
    assert begun(grid) == {"t0": 2}


def test_an_older_writer_stops_without_another_word(grid):
    grid.duration = lambda job: 10.0
    run = GridRun(grid, chain(4))
    old = run.submit()
    grid.run(lambda: len(run.of(TaskEnded)) == 1)
    grid.after(2.0, lambda: run.take_over("home2"))
    grid.run(lambda: run.fenced)
    written = len(grid.machine(HOME).events)
    run.drive()
    run.check()
    assert begun(grid) == {f"t{i}": 1 for i in range(4)}
    assert len(grid.machine(HOME).events) == written
    assert f"run {RUN} was taken over" in run.fenced[0]
    assert len(run.fenced) == 1
    old.target_left("p0", "whatever")
    old.receive("x/peer", CancelRun())
    assert len(grid.machine(HOME).events) == written


def test_outputs_made_before_a_resume_come_home_from_where_they_are(grid):
    grid.transfer_s = lambda: 20.0
    run = GridRun(grid, chain(2))
    run.submit()
    grid.run(lambda: len(run.of(TaskEnded)) == 2)
    grid.after(0.1, lambda: grid.crash(HOME))
    grid.after(1.0, run.submit)
    run.drive()
    run.check()
    assert begun(grid) == {"t0": 1, "t1": 1}


# -- files that are gone ------------------------------------------------------------------------


def test_what_nobody_holds_any_more_is_made_again_and_what_that_needs_too(grid):
    grid.transfer_s = lambda: 30.0  # nothing is home when the peer dies
    run = GridRun(grid, chain(3), peers=1)
    run.submit()
    grid.run(lambda: len(run.of(TaskEnded)) == 3)
    run.crash_peer("p0", wipe=True)
    grid.after(20.0, lambda: run.restart_peer("p0"))
    grid.after(21.0, lambda: setattr(grid, "transfer_s", lambda: 0.05))
    run.drive()
    run.check()
    assert {e.task for e in run.of(TaskRevoked)} == {"t0", "t1", "t2"}
    assert begun(grid) == {"t0": 2, "t1": 2, "t2": 2}


def test_a_holder_that_comes_back_soon_enough_spares_the_work(grid):
    grid.transfer_s = lambda: 10.0
    run = GridRun(grid, chain(2), peers=1)
    run.submit()
    grid.run(lambda: len(run.of(TaskEnded)) == 2)
    run.crash_peer("p0")
    grid.after(12.0, lambda: run.restart_peer("p0"))
    run.drive()
    run.check()
    assert run.of(TaskRevoked) == []
    assert begun(grid) == {"t0": 1, "t1": 1}


def test_a_task_whose_input_is_away_waits_for_it_to_be_home(grid):
    """The maker's peer is gone, but its output was already on its way home."""
    run = GridRun(grid, chain(2), peers=2)
    run.submit()
    grid.transfer_s = lambda: 3.0
    grid.run(lambda: len(run.of(TaskEnded)) == 1)
    (maker,) = where(grid, "t0")
    run.left(maker)  # it can still be fetched from, whatever the membership believes
    run.drive()
    run.check()
    assert run.of(TaskRevoked) == []
    assert begun(grid) == {"t0": 1, "t1": 1}


def test_peers_hear_what_they_need_not_keep(grid):
    grid.keep_sent = True
    grid.duration = lambda job: 5.0
    run = GridRun(grid, chain(2), peers=1)
    run.submit()
    run.drive()
    releases = [m for _, _, m in grid.sent if isinstance(m, Release)]
    made = [r.digest for e in run.of(TaskEnded) for r in e.outputs]
    assert [d for m in releases for d in m.digests] == made
    assert [m.over for m in releases].count(True) == 1


# -- peers that come and go ---------------------------------------------------------------------


def test_a_run_waits_for_a_peer_that_can_run_it(grid):
    graph = Graph(
        "g",
        [
            Task("wide", Command("wide"), needs=Needs(cores=4)),
            *(Task(f"t{i}", Command(f"{i}")) for i in range(300)),
        ],
    )
    run = GridRun(grid, graph, peers=2)
    engine = run.submit()
    grid.run(lambda: outcomes(run)["succeeded"] == 300)
    assert run.ended is None
    wide = run.capacity.__class__(cores=4, memory_bytes=0)
    run.capacity = wide
    run.peers.append("big")
    grid.boot("big", lambda: run._boot_peer("big"))
    engine.target_joined(Target("big", "big/peer", wide, "lab"))
    run.drive()
    assert where(grid, "wide") == ["big"]
    assert run.of(PeerJoined)[-1].site == "lab"


def test_a_run_without_any_peer_waits_and_can_be_cancelled(grid):
    run = GridRun(grid, chain(2), peers=0)
    engine = run.submit()
    grid.after(100.0, lambda: engine.receive("x/y", CancelRun()))
    assert run.drive().state == "cancelled"


def test_a_peer_may_come_back_at_another_address(grid):
    grid.duration = lambda job: 30.0
    run = GridRun(grid, chain(2), peers=0)
    run.peers = ["lab@h:1"]
    run.here = dict.fromkeys(run.peers)
    grid.boot("lab@h:1", lambda: run._boot_peer("lab@h:1"))
    engine = run.submit()
    grid.run(lambda: len(run.of(TaskEnded)) == 1)
    grid.run(lambda: len(grid.started) == 2)
    old = grid.machine("lab@h:1")
    grid.crash("lab@h:1")
    new = grid.machine("lab@h:2")
    new.files, new.puts, new.synced_puts = old.files, dict(old.puts), dict(old.synced_puts)
    grid.boot("lab@h:2", lambda: run._boot_peer("lab@h:2"))
    engine.target_joined(Target("lab", "lab@h:2/peer", run.capacity))
    engine.target_left("lab@h:1", "no answer")  # late news of the old address
    run.drive()
    run.check()
    assert outcomes(run) == {"succeeded": 2, "lost": 1}
    assert {e.peer for e in run.of(TaskBound)} == {"lab"}


# -- cancelling ---------------------------------------------------------------------------------


@pytest.mark.parametrize(("drain", "expected"), [(True, "succeeded"), (False, "cancelled")])
def test_cancelling(grid, drain, expected):
    grid.duration = lambda job: 10.0
    run = GridRun(grid, alone(20), peers=2)
    engine = run.submit()
    grid.after(5.0, lambda: engine.receive("x/y", CancelRun(drain=drain)))
    assert run.drive().state == "cancelled"
    assert outcomes(run) == {expected: 4}


def test_cancelling_by_force_waits_for_nobody(grid):
    grid.duration = lambda job: 1e5
    run = GridRun(grid, alone(4), peers=2)
    engine = run.submit()
    grid.run(lambda: len(grid.started) == 4)
    grid.freeze("p0")
    grid.after(1.0, lambda: engine.receive("x/y", CancelRun(force=True)))
    ended = run.drive()
    assert ended.state == "cancelled"
    assert ended.at < 5.0
    assert run.events[-1] == ended


def test_a_cancelled_run_can_be_resumed_and_what_it_left_is_not_done_again(grid):
    grid.duration = lambda job: 10.0
    run = GridRun(grid, chain(3))
    engine = run.submit()
    grid.after(15.0, lambda: engine.receive("x/y", CancelRun(drain=True)))
    assert run.drive().state == "cancelled"
    run.ended = None
    run.submit()
    run.drive()
    run.check()
    assert begun(grid) == {"t0": 1, "t1": 1, "t2": 1}


# -- what cannot travel -------------------------------------------------------------------------


def test_calls_and_files_in_place_are_refused_before_anything_starts():
    check_travels(Graph("g", [Task("a", Command("x")), Task("b", Pause(1.0))]))
    with pytest.raises(UserError, match=r"^add is a Python call.*grid="):
        check_travels(Graph("g", [Task("add", Call("digest", b""))]))
    big = Task("a", Command("x"), inputs=("big",), in_place=("big",))
    with pytest.raises(UserError, match=r"^a uses big in place.*do not travel"):
        check_travels(Graph("g", [big]))


def test_a_task_whose_description_cannot_travel_fails_with_a_reason(grid):
    run = GridRun(grid, Graph("g", [Task("t0", Command("x" * 1_000_000))]))
    run.submit()
    assert run.drive().state == "failed"
    assert "cannot travel" in run.of(TaskEnded)[0].reason


def test_stop_on_failure_lets_what_runs_finish(grid):
    grid.fails = lambda job: job.task == "t0"
    grid.duration = lambda job: 1.0 if job.task == "t0" else 5.0
    run = GridRun(grid, alone(20), peers=1, options=Options(stop_on_failure=True))
    run.submit()
    assert run.drive().state == "failed"
    assert outcomes(run) == {"failed": 1, "succeeded": 1}


def test_a_report_that_comes_twice_commits_once(grid):
    grid.repeat = 1.0
    run = GridRun(grid, diamond())
    run.submit()
    run.drive()
    run.check()
    assert outcomes(run)["succeeded"] == 8
    assert begun(grid)["first"] == 1


def test_many_tasks_need_few_messages(grid):
    grid.keep_sent = True
    run = GridRun(grid, alone(200), peers=4)
    run.submit()
    run.drive()
    kinds = Counter(type(m).__name__ for _, _, m in grid.sent)
    assert kinds[Bind.__name__] == kinds[Finished.__name__] == 200
    assert sum(kinds.values()) < 200 * 4.5


class Watched(ToyGrid):
    """Looks, whenever the writer tells a peer something, whether its journal has it by then."""

    def __init__(self):
        super().__init__()
        self.seen = Counter()

    def deliver(self, sender, to, message):
        home = self.machine(HOME)
        if isinstance(message, Bind):
            bound = [(e.task, e.attempt) for e in home.events[: home.flushed] if _is(e, TaskBound)]
            assert (message.task, message.attempt) in bound, "a kill would unsay it"
            self.seen["bind"] += 1
        elif isinstance(message, Acknowledge):
            ended = {(e.task, e.attempt) for e in home.events[: home.synced] if _is(e, TaskEnded)}
            assert ended.issuperset(message.reports), "a power cut would unsay it"
            self.seen["acknowledge"] += 1
        super().deliver(sender, to, message)


def _is(event, kind):
    return isinstance(event, kind)


def test_peers_are_told_nothing_that_the_writer_could_forget():
    grid = Watched()
    run = GridRun(grid, diamond())
    run.submit()
    assert run.drive().state == "succeeded"
    assert grid.seen["bind"] == 8 and grid.seen["acknowledge"] > 0


@pytest.mark.parametrize("whose", ["made", "the user's"])
def test_an_input_that_is_lost_everywhere_is_made_or_read_again(grid, whose):
    """Also the copy that had come home: somebody cleared the run's own store."""
    grid.duration = lambda job: 50.0 if job.task == "slow" else 1.0
    tasks = [
        Task("first", Command("first"), inputs=("source",), outputs=("f0",)),
        Task("slow", Command("slow"), outputs=("s0",)),
        Task("last", Command("last"), inputs=("f0", "s0", "other"), outputs=("z",)),
    ]
    run = GridRun(grid, Graph("lost", tasks))
    run.submit()
    grid.run(lambda: "last" in {event.task for event in run.of(TaskBound)})
    lost = run.expected()["f0"] if whose == "made" else digest_of("user", "other")
    for machine in grid.machines.values():
        machine.files.discard(lost)
    run.drive(600.0)
    run.check()
    assert [e.task for e in run.of(TaskRevoked)] == (["first"] if whose == "made" else [])
