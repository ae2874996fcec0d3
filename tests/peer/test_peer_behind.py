"""Commands that begin in a slot where another one ends, with real processes."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path

from peer_bench import Bench, Started, is_written

from sureline.peer.jobs import CommandJob, JobEnded, JobReturned, PauseJob


def command(run: str, label: str) -> CommandJob:
    return CommandJob(label, "t", 1, run)


def returned(started: Started) -> bool:
    return started.events == [JobReturned()]


def waits_for(gate: Path) -> str:
    """A command that lasts until the file is there, and has told its pid beside it."""
    return f"echo $$ > {gate}.pid; until [ -e {gate} ]; do sleep 0.01; done"


def test_a_chain_of_short_commands_runs_in_order(make_bench: Callable[..., Bench]) -> None:
    bench = make_bench(max_slots=1)
    log = bench.directory / "log"
    last = bench.start(command(f"echo 0 >> {log}", "0.1"))
    order = ["0"]
    for number in range(1, 60):
        following = bench.start(command(f"echo {number} >> {log}", f"{number}.1"), after=last)
        bench.until(lambda one=following, before=last: returned(one) or before.ended)
        if returned(following):
            bench.end(last)
            following = bench.start(command(f"echo {number} >> {log}", f"{number}.2"))
        order.append(str(number))
        last = following
    assert bench.end(last).outcome == "succeeded"
    assert log.read_text().split() == order


def test_a_command_behind_a_long_one_is_given_back(make_bench: Callable[..., Bench]) -> None:
    bench = make_bench(max_slots=1)
    gate = bench.directory / "gate"
    mark = bench.directory / "mark"
    long = bench.start(command(waits_for(gate), "0.1"))
    behind = bench.start(command(f"touch {mark}", "1.1"), after=long)
    bench.until(lambda: returned(behind))
    assert long.ended is None
    gate.touch()
    assert bench.end(long).outcome == "succeeded"
    bench.run(command("true", "2.1"))
    assert not mark.exists()
    assert returned(behind)


def test_what_is_not_running_or_not_a_command_is_not_followed(bench: Bench) -> None:
    over = bench.start(command("true", "0.1"))
    bench.end(over)
    pause = bench.start(PauseJob("1.1", "t", 1, 0.01))
    for other in (over, pause):
        behind = bench.start(command("true", "2.1"), after=other)
        bench.until(lambda one=behind: returned(one))


def test_a_second_follower_is_given_back(make_bench: Callable[..., Bench]) -> None:
    bench = make_bench(max_slots=1)
    first = bench.start(command("true", "0.1"))
    second = bench.start(command("true", "1.1"), after=first)
    third = bench.start(command("true", "2.1"), after=first)
    bench.until(lambda: returned(third))
    bench.end(first)
    bench.until(lambda: returned(second) or second.ended)
    assert len(third.events) == 1


def test_a_command_behind_another_can_be_stopped(make_bench: Callable[..., Bench]) -> None:
    bench = make_bench(max_slots=1)
    gate, mark = bench.directory / "gate", bench.directory / "mark"
    long = bench.start(command(waits_for(gate), "0.1"))
    behind = bench.start(command(f"touch {mark}", "1.1"), after=long)
    assert behind.handle is not None
    bench.runner.stop(behind.handle)
    bench.until(lambda: behind.events)
    last = behind.events[-1]
    assert isinstance(last, JobReturned) or (
        isinstance(last, JobEnded) and last.outcome == "cancelled"
    )
    gate.touch()
    bench.end(long)
    assert not mark.exists()
    assert len(behind.events) == 1


def test_a_dead_slot_gives_back_what_had_not_begun(make_bench: Callable[..., Bench]) -> None:
    bench = make_bench(max_slots=1)
    mark = bench.directory / "mark"
    # The slot itself is killed at once by its own job, so that the follower is still behind it.
    first = bench.start(command("kill -9 $PPID", "0.1"))
    behind = bench.start(command(f"touch {mark}", "1.1"), after=first)
    assert bench.end(first).outcome == "lost"
    bench.until(lambda: returned(behind))
    assert not mark.exists()
    assert bench.run(command("true", "2.1")).outcome == "succeeded"


def test_no_job_outlives_the_runner(make_bench: Callable[..., Bench]) -> None:
    bench = make_bench(max_slots=1)
    gate = bench.directory / "gate"
    told = Path(f"{gate}.pid")
    long = bench.start(command(waits_for(gate), "0.1"))
    behind = bench.start(command(f"touch {bench.directory}/mark", "1.1"), after=long)
    bench.until(lambda: is_written(told))
    pid = int(told.read_text())
    bench.runner.close_now()
    seen = list(behind.events)
    try:
        os.kill(pid, signal.SIGCONT)
        state = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
        assert state == "Z"
    except (ProcessLookupError, FileNotFoundError):
        pass
    assert not (bench.directory / "mark").exists()
    assert behind.events == seen
