"""Python calls, run by real slot processes."""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from peer_bench import TIMEOUTS_S, Bench, alive, is_written

from sureline.peer import orphans
from sureline.peer.calls import CallFailedError, Handle, dump_arguments, dump_function, load_error
from sureline.peer.jobs import (
    CallJob,
    CommandJob,
    FileMissing,
    JobEnded,
    JobStarted,
    UserFile,
)
from sureline.workflow.files import FileRecord


def call(
    bench: Bench, function: Callable[..., object], *args: object, label: str = "0.1", **more: object
) -> CallJob:
    digest, data = dump_function(function)
    bench.functions[digest] = data
    arguments, _ = dump_arguments(args, {})
    return CallJob(label, "t", 1, digest, arguments, **more)  # type: ignore[arg-type]  # by name


def value(ended: JobEnded) -> object:
    assert ended.outcome == "succeeded", ended
    assert ended.result is not None
    return pickle.loads(ended.result)


def test_a_call_returns_its_result(bench: Bench) -> None:
    started = bench.start(call(bench, divmod, 17, 5))
    assert value(bench.end(started)) == (3, 2)
    assert [type(e) for e in started.events] == [JobStarted, JobEnded]


def test_lambdas_and_local_classes_travel_by_value(bench: Bench) -> None:
    class Point:
        def __init__(self, x: int) -> None:
            self.x = x

    result = value(bench.run(call(bench, lambda p: Point(p.x + 1), Point(1))))
    assert isinstance(result, Point)
    assert result.x == 2


def test_slots_stay_warm_and_functions_are_sent_once(make_bench: Callable[..., Bench]) -> None:
    bench = make_bench(max_slots=1)
    job = call(bench, os.getpid)
    first = value(bench.run(job))
    bench.functions.clear()
    assert value(bench.run(job)) == first


def test_handles_become_results_short_and_long(bench: Bench) -> None:
    long = list(range(50_000))
    ended = bench.run(call(bench, lambda: list(range(50_000)), label="0.1"))
    assert ended.result is None
    assert [r.path for r in ended.outputs] == [".sureline/results/t"]

    def join(a: list[int], b: dict[str, object], again: list[int]) -> tuple[int, object, bool]:
        return len(a), b["x"], a is again

    digest, data = dump_function(join)
    bench.functions[digest] = data
    arguments, uses = dump_arguments((Handle("long"), {"x": Handle("short")}, Handle("long")), {})
    assert uses == ("long", "short")
    job = CallJob(
        "1.1",
        "t",
        1,
        digest,
        arguments,
        results={"short": pickle.dumps("s")},
        files={"long": ended.outputs[0]},
    )
    assert value(bench.run(job)) == (len(long), "s", True)


def test_a_lost_long_result_fails_the_call(bench: Bench) -> None:
    digest, data = dump_function(len)
    bench.functions[digest] = data
    arguments, _ = dump_arguments((Handle("x"),), {})
    gone = FileRecord("x", "00" * 32, 1)
    ended = bench.run(CallJob("0.1", "t", 1, digest, arguments, files={"x": gone}))
    assert ended.outcome == "failed"


class OddError(Exception):
    def __init__(self, code: int, detail: str) -> None:
        super().__init__(f"odd {code}")


def raise_odd() -> None:
    raise OddError(3, "x")


def test_an_exception_comes_back_whole(bench: Bench) -> None:
    def fail() -> None:
        raise ValueError("bad", 3)

    ended = bench.run(call(bench, fail))
    assert (ended.outcome, ended.reason) == ("failed", "ValueError: ('bad', 3)")
    assert ended.error is not None
    error = load_error(ended.error)
    assert isinstance(error, ValueError)
    assert error.args == ("bad", 3)
    assert "in fail" in str(error.__cause__)


def test_an_exception_that_cannot_travel_is_described(bench: Bench) -> None:
    ended = bench.run(call(bench, raise_odd))
    assert ended.error is not None
    error = load_error(ended.error)
    assert isinstance(error, CallFailedError)
    assert (error.type_name, error.message) == ("OddError", "odd 3")
    assert "raise_odd" in error.trace


def test_results_that_cannot_travel_and_exits_are_failures(bench: Bench) -> None:
    ended = bench.run(call(bench, lambda: (n for n in [1])))
    assert ended.outcome == "failed"
    assert "pickle" in ended.reason
    ended = bench.run(call(bench, sys.exit, 3))
    assert (ended.outcome, ended.reason) == ("failed", "SystemExit: 3")
    ended = bench.run(CallJob("2.1", "t", 1, next(iter(bench.functions)), b"garbage"))
    assert ended.outcome == "failed"


def test_output_is_captured_at_every_level(bench: Bench) -> None:
    def talk() -> None:
        print("python")
        os.write(1, b"descriptor\n")
        os.system("echo child >&2")

    ended = bench.run(call(bench, talk))
    assert sorted(ended.stdout.split()) == ["descriptor", "python"]
    assert ended.stderr == "child\n"
    assert bench.run(call(bench, talk)).stderr == "child\n"
    long = bench.run(call(bench, lambda: print("x" * 10_000), label="5.1"))
    assert long.stdout_file == "logs/r1/5.1.out"
    assert len((bench.root / long.stdout_file).read_text()) == 10_001


def test_calls_run_in_the_users_directory_with_their_environment(
    make_bench: Callable[..., Bench],
) -> None:
    bench = make_bench(max_slots=1)

    def look() -> tuple[str, str | None, str]:
        where = os.getcwd()
        os.chdir("/")
        return where, os.environ.get("MINE"), os.environ["SURELINE_TASK"]

    here = str(bench.directory)
    assert value(bench.run(call(bench, look, env={"MINE": "m"}))) == (here, "m", "t")
    assert value(bench.run(call(bench, look))) == (here, None, "t")


def test_calls_and_commands_share_slots(make_bench: Callable[..., Bench]) -> None:
    bench = make_bench(max_slots=1)

    def meddle() -> None:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        signal.set_wakeup_fd(-1)
        subprocess.Popen(["sleep", "99"])

    for number in range(2):
        command = CommandJob(f"c{number}", "t", 1, "sleep 0.05; echo hi")
        assert bench.run(command).stdout == "hi\n"
        assert bench.run(call(bench, meddle)).outcome == "succeeded"


def hang(mark: str, fork: bool) -> None:
    child = subprocess.Popen(["setsid", "sleep", "99"]) if fork else None
    Path(mark).write_text(f"{child.pid if child else os.getpid()}\n")
    while True:
        time.sleep(0.01)


@pytest.mark.parametrize("way", ["stop", "timeout"])
@pytest.mark.parametrize("fork", [False, True])
def test_a_call_that_is_stopped_takes_its_slot_with_it(bench: Bench, way: str, fork: bool) -> None:
    mark = bench.directory / "pid"
    for timeout_s in TIMEOUTS_S if way == "timeout" else [None]:
        started = bench.start(call(bench, hang, str(mark), fork, timeout_s=timeout_s))
        if timeout_s is None:
            bench.until(lambda: is_written(mark))
            assert started.handle is not None
            bench.runner.stop(started.handle)
        ended = bench.end(started)
        if is_written(mark):
            break
    assert ended.outcome == ("cancelled" if way == "stop" else "timeout")
    assert not alive(int(mark.read_text()))
    assert value(bench.run(call(bench, abs, -1))) == 1


@pytest.mark.parametrize(
    ("die", "reason"),
    [
        (lambda: os.kill(os.getpid(), signal.SIGKILL), "killed by SIGKILL"),
        (lambda: os.kill(os.getpid(), signal.SIGSEGV), "killed by SIGSEGV"),
        (lambda: os._exit(3), "ended with exit code 3"),
    ],
)
def test_a_slot_that_dies_loses_its_job_alone(
    bench: Bench, die: Callable[[], None], reason: str
) -> None:
    gate = bench.directory / "gate"

    def wait_for(path: str) -> str:
        while not os.path.exists(path):
            time.sleep(0.005)
        return "fine"

    other = bench.start(call(bench, wait_for, str(gate), label="1.1"))
    dying = bench.start(call(bench, die))
    waiting = [bench.start(call(bench, abs, -n, label=f"w{n}")) for n in range(3)]
    ended = bench.end(dying)
    assert ended.outcome == "lost"
    assert reason in ended.reason
    gate.touch()
    assert value(bench.end(other)) == "fine"
    assert [value(bench.end(w)) for w in waiting] == [0, 1, 2]


def test_a_slot_that_dies_is_noticed_though_its_forked_child_lives(bench: Bench) -> None:
    def fork_and_die() -> None:
        if os.fork() == 0:
            os.setsid()
            time.sleep(99)
        os.kill(os.getpid(), signal.SIGKILL)

    assert bench.run(call(bench, fork_and_die)).outcome == "lost"
    assert not orphans.find(orphans.token_of(str(bench.root), "r1", "slot-1"))


def test_a_slot_that_cannot_be_started_is_reported(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", "/nonexistent/python")
    started = [bench.start(call(bench, abs, -n)) for n in range(2)]
    for each in started:
        ended = bench.end(each)
        assert ended.outcome == "lost"
        assert "no process could be started" in ended.reason
    assert isinstance(bench.fetch(UserFile("a")), FileMissing)


def test_what_a_dying_call_wrote_is_reported(bench: Bench) -> None:
    def die() -> None:
        os.write(2, b"last words\n")
        os.abort()

    ended = bench.run(call(bench, die))
    assert ended.signal == signal.SIGABRT
    assert "last words" in ended.stderr


def test_a_slot_killed_under_a_command_leaves_nothing_of_it(bench: Bench) -> None:
    mark = bench.directory / "pid"
    script = f"setsid sleep 98 & echo $PPID > {mark}; sleep 99"
    started = bench.start(CommandJob("0.1", "t", 1, script))
    bench.until(lambda: mark.exists() and mark.read_text().endswith("\n"))
    os.kill(int(mark.read_text()), signal.SIGKILL)
    ended = bench.end(started)
    assert ended.outcome == "lost"
    assert not orphans.find(orphans.token_of(str(bench.root), "r1", "0.1"))
    assert bench.run(CommandJob("1.1", "t", 1, "true")).outcome == "succeeded"


def test_arguments_past_the_bound_fail_that_call(bench: Bench) -> None:
    ended = bench.run(call(bench, len, b"x" * (65 << 20)))
    assert ended.outcome == "failed"
    assert "too long" in ended.reason
    assert value(bench.run(call(bench, len, b"x" * (5 << 20)))) == 5 << 20


def test_a_slot_keeps_a_bounded_number_of_functions(
    make_bench: Callable[..., Bench], monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = make_bench(max_slots=1)
    job = call(bench, abs, -1)
    template = bench.functions[job.function]
    for number in range(1030):
        bench.functions[f"f{number}"] = template
    jobs = [
        CallJob(f"{n}.1", "t", 1, f"f{n % 1030}", job.arguments) for n in [*range(1030), *range(30)]
    ]
    started = [bench.start(j) for j in jobs]
    assert all(value(bench.end(s)) == 1 for s in started)


def test_functions_of_the_users_script_work(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        textwrap.dedent("""
        import asyncio, pickle, sys
        from pathlib import Path
        from sureline.peer.calls import dump_arguments, dump_function
        from sureline.peer.jobs import CallJob, JobEnded
        from sureline.peer.runner import SlotRunner

        class Pair:
            def __init__(self, a, b): self.a, self.b = a, b

        def helper(p): return p.a * p.b

        def work(p): return Pair(helper(p), sys.argv)

        async def main():
            digest, data = dump_function(work)
            runner = SlotRunner(asyncio.get_running_loop(), root=Path(".sureline"),
                            directory=Path("."), run="r1", functions={digest: data}, max_slots=1)
            done = asyncio.get_running_loop().create_future()
            job = CallJob("0.1", "t", 1, digest, dump_arguments((Pair(6, 7),), {})[0])
            runner.start(job, lambda e: done.set_result(e) if isinstance(e, JobEnded) else None)
            ended = await done
            assert ended.outcome == "succeeded", ended
            result = pickle.loads(ended.result)
            assert type(result) is Pair
            print(result.a)
            await runner.close()

        if __name__ == "__main__":
            asyncio.run(main())
        """)
    )
    done = subprocess.run(
        [sys.executable, str(script)], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert (done.stdout, done.stderr) == ("42\n", "")


def test_fetching_survives_a_dead_slot(make_bench: Callable[..., Bench]) -> None:
    bench = make_bench(max_slots=1)
    (bench.directory / "a").write_text("x")
    bench.run(call(bench, os._exit, 1))
    fetched = bench.fetch(UserFile("a"))
    assert getattr(fetched, "file", None) is not None
