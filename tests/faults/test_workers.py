"""Python calls whose worker processes die, whose errors are odd, whose values are large: through
`Workflow.call`, and through `Executor`."""

from __future__ import annotations

import concurrent.futures
import ctypes
import os
import pickle
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NoReturn

import pytest
from surely import PATIENCE_S, alive, events, none_survives, states, until

import sureline
from sureline.executor import WorkerLostError
from sureline.executor.pool import INLINE_BYTES
from sureline.journal.events import TaskEnded
from sureline.peer.calls import CallFailedError

# -- what is called ---------------------------------------------------------------------------


def kill_self() -> NoReturn:
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError("still here")


def exit_hard() -> NoReturn:
    os._exit(3)


def segfault() -> None:
    ctypes.string_at(0)


DEATHS: dict[str, Callable[[], object]] = {
    "SIGKILL": kill_self,
    "_exit": exit_hard,
    "segfault": segfault,
}
SAID = {"SIGKILL": "SIGKILL", "_exit": "3", "segfault": "SIGSEGV"}


def square(x: int) -> int:
    return x * x


def die_as_a_parent(mark: str) -> NoReturn:
    """Leave a child behind, in a session of its own, and the word of it."""
    child = subprocess.Popen(["sleep", "1000"], start_new_session=True)
    Path(mark).with_suffix(".new").write_text(str(child.pid))
    os.rename(Path(mark).with_suffix(".new"), mark)
    kill_self()


def outlive(mark: str) -> bool:
    """Whether the child that is named there has ended, as soon as it has."""
    until(lambda: os.path.exists(mark), "a child")
    pid = int(Path(mark).read_text())
    until(lambda: not alive(pid), "the end of the child")
    return True


def die_once(mark: str) -> str:
    try:
        os.close(os.open(mark, os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return "alive"
    kill_self()


class WholeError(Exception):
    def __init__(self, text: str, number: int) -> None:
        super().__init__(text, number)
        self.number = number
        self.extra = {"deep": [1, 2]}


class OtherArgumentsError(Exception):
    """Pickles well, and cannot be loaded: the constructor wants two, args has one."""

    def __init__(self, first: int, second: int) -> None:
        super().__init__(f"{first} and {second}")


class UnpicklableError(Exception):
    def __init__(self) -> None:
        super().__init__("holds a lock")
        self.lock = threading.Lock()


def raise_whole() -> NoReturn:
    error = WholeError("broken", 7)
    error.late = "set later"  # type: ignore[attr-defined]  # attributes are part of the promise
    raise error


def raise_other_arguments() -> NoReturn:
    raise OtherArgumentsError(1, 2)


def raise_unpicklable() -> NoReturn:
    raise UnpicklableError


def raise_chained() -> NoReturn:
    try:
        raise KeyError("first")
    except KeyError as error:
        raise ValueError("second") from error


def leave(code: object) -> NoReturn:
    sys.exit(code)  # type: ignore[arg-type]  # anything may be given


def shout(lines: int) -> int:
    for k in range(lines):
        print(f"line {k} " + "x" * 80)
    print("the end", file=sys.stderr)
    return lines


def blob(size: int) -> bytes:
    return b"\xa5" * size


def measure(data: bytes) -> int:
    return len(data)


# -- Workflow.call -----------------------------------------------------------------------------


@pytest.mark.parametrize("death", list(DEATHS))
def test_a_dead_worker_fails_its_task_alone(tmp_path: Path, death: str) -> None:
    flow = sureline.Workflow("deaths")
    good = [flow.call(square, k) for k in range(10)]
    bad = flow.using(name="bad").call(DEATHS[death])
    after = flow.call(square, bad)
    with pytest.raises(sureline.RunFailedError) as caught:
        flow.run(tmp_path)
    results = caught.value.results
    assert [results[handle] for handle in good] == [k * k for k in range(10)]
    assert (results.outcome.tasks.succeeded, results.outcome.tasks.failed) == (10, 1)
    assert states(tmp_path)["bad"] == "failed"
    (ended,) = [e for e in events(tmp_path) if isinstance(e, TaskEnded) and e.task == "bad"]
    assert ended.outcome == "lost"
    assert SAID[death] in ended.reason
    assert ended.reason in str(caught.value)
    with pytest.raises(KeyError):
        results[after]
    none_survives(tmp_path, 0.0)


def test_the_children_of_a_dead_worker_end_with_it(tmp_path: Path) -> None:
    """Not only with the run, which goes on until they have ended."""
    flow = sureline.Workflow("orphans")
    mark = str(tmp_path / "mark")
    flow.using(name="bad").call(die_as_a_parent, mark)
    rest = flow.call(outlive, mark)
    with pytest.raises(sureline.RunFailedError) as caught:
        flow.run(tmp_path, cores=2)
    assert caught.value.results[rest] is True


def test_a_dead_worker_is_retried(tmp_path: Path) -> None:
    flow = sureline.Workflow("again")
    handle = flow.using(retries=1).call(die_once, str(tmp_path / "mark"))
    results = flow.run(tmp_path, retry_delay="10ms")
    assert results[handle] == "alive"
    ends = [e.outcome for e in events(tmp_path) if isinstance(e, TaskEnded)]
    assert ends == ["lost", "succeeded"]


def failure_of(tmp_path: Path, function: Callable[..., object], *args: object) -> BaseException:
    flow = sureline.Workflow("fails")
    flow.call(function, *args)
    with pytest.raises(sureline.RunFailedError) as caught:
        flow.run(tmp_path)
    cause = caught.value.__cause__
    assert cause is not None
    return cause


def check_whole(error: BaseException | None) -> None:
    assert isinstance(error, WholeError)
    assert error.args == ("broken", 7)
    assert (error.number, error.extra) == (7, {"deep": [1, 2]})
    assert vars(error)["late"] == "set later"
    assert "in raise_whole" in str(error.__cause__)
    assert "WholeError: ('broken', 7)" in str(error.__cause__)


def check_other_arguments(error: BaseException | None) -> None:
    assert isinstance(error, CallFailedError)
    assert (error.type_name, error.message) == ("OtherArgumentsError", "1 and 2")
    assert "in raise_other_arguments" in error.trace


def check_unpicklable(error: BaseException | None) -> None:
    assert isinstance(error, CallFailedError)
    assert (error.type_name, error.message) == ("UnpicklableError", "holds a lock")
    assert "in raise_unpicklable" in error.trace


def check_chained(error: BaseException | None) -> None:
    assert isinstance(error, ValueError)
    told = str(error.__cause__)
    assert "KeyError: 'first'" in told
    assert "direct cause" in told


ERRORS = [
    (raise_whole, check_whole),
    (raise_other_arguments, check_other_arguments),
    (raise_unpicklable, check_unpicklable),
    (raise_chained, check_chained),
]


@pytest.mark.parametrize(("function", "check"), ERRORS)
def test_exceptions_come_back_whole(
    tmp_path: Path,
    function: Callable[[], object],
    check: Callable[[BaseException | None], None],
) -> None:
    check(failure_of(tmp_path, function))


@pytest.mark.parametrize("code", [0, 5, "a word", None])
def test_leaving_is_a_failure_of_the_call(tmp_path: Path, code: object) -> None:
    """Even with code 0: there is no result."""
    error = failure_of(tmp_path, leave, code)
    assert isinstance(error, SystemExit)
    assert error.code == code


def test_a_call_that_prints_a_lot(tmp_path: Path) -> None:
    flow = sureline.Workflow("loud")
    handle = flow.using(name="loud").call(shout, 20_000)
    assert flow.run(tmp_path)[handle] == 20_000
    (ended,) = [e for e in events(tmp_path) if isinstance(e, TaskEnded)]
    assert ended.stdout_file is not None
    whole = (tmp_path / ".sureline" / ended.stdout_file).read_text().splitlines()
    assert len(whole) == 20_000
    assert whole[-1].startswith("line 19999 ")
    assert ended.stderr == "the end\n"


def test_large_results_go_from_call_to_call(tmp_path: Path) -> None:
    flow = sureline.Workflow("large")
    made = flow.call(blob, 5_000_000)
    size = flow.call(measure, made)
    results = flow.run(tmp_path)
    assert results[size] == 5_000_000
    assert results[made] == blob(5_000_000)


# -- Executor ----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def executor() -> Iterator[sureline.Executor]:
    """One for all: whatever a test does to its workers, it serves the next."""
    with sureline.Executor(2) as made:
        yield made


@pytest.mark.parametrize("death", list(DEATHS))
def test_a_dead_worker_loses_its_call_alone(executor: sureline.Executor, death: str) -> None:
    before = [executor.submit(square, k) for k in range(20)]
    bad = executor.submit(DEATHS[death])
    after = [executor.submit(square, k) for k in range(20)]
    with pytest.raises(WorkerLostError, match=SAID[death]):
        bad.result(PATIENCE_S)
    assert [f.result(PATIENCE_S) for f in before + after] == [k * k for k in range(20)] * 2


def test_the_children_of_a_dead_worker_end_while_the_executor_goes_on(
    executor: sureline.Executor, tmp_path: Path
) -> None:
    mark = str(tmp_path / "mark")
    lost = executor.submit(die_as_a_parent, mark)
    assert isinstance(lost.exception(PATIENCE_S), WorkerLostError)
    assert outlive(mark)


def test_many_deaths_in_a_row(executor: sureline.Executor) -> None:
    lost = [executor.submit(kill_self) for _ in range(4)]
    good = [executor.submit(square, k) for k in range(8)]
    assert all(isinstance(f.exception(PATIENCE_S), WorkerLostError) for f in lost)
    assert [f.result(PATIENCE_S) for f in good] == [k * k for k in range(8)]


def test_a_worker_that_dies_while_idle(executor: sureline.Executor) -> None:
    pid = executor.submit(os.getpid).result(PATIENCE_S)
    os.kill(pid, signal.SIGKILL)
    until(lambda: not alive(pid), "the worker's death")
    for _ in range(3):  # the first may be given to the dead before it is missed; it says so then
        error = executor.submit(square, 3).exception(PATIENCE_S)
        assert error is None or isinstance(error, WorkerLostError)
    assert executor.submit(square, 3).result(PATIENCE_S) == 9


@pytest.mark.parametrize(("function", "check"), ERRORS)
def test_the_executors_exceptions_come_back_whole(
    executor: sureline.Executor,
    function: Callable[[], object],
    check: Callable[[BaseException | None], None],
) -> None:
    check(executor.submit(function).exception(PATIENCE_S))


def test_leaving_a_call(executor: sureline.Executor) -> None:
    error = executor.submit(leave, 5).exception(PATIENCE_S)
    assert isinstance(error, SystemExit)
    assert executor.submit(square, 2).result(PATIENCE_S) == 4


def test_a_loud_call(executor: sureline.Executor, capfd: pytest.CaptureFixture[str]) -> None:
    assert executor.submit(shout, 5_000).result(PATIENCE_S) == 5_000
    out, err = capfd.readouterr()
    assert out.splitlines()[-1].startswith("line 4999")
    assert "the end" in err


def test_results_keep_the_order_of_the_arguments(executor: sureline.Executor) -> None:
    assert list(executor.map(square, range(200))) == [k * k for k in range(200)]
    assert list(executor.map(pow, [2, 3], [5, 2])) == [32, 9]


def test_calls_start_in_order() -> None:
    with sureline.Executor(1) as one:
        futures = [one.submit(time.monotonic_ns) for _ in range(50)]
        stamps = [future.result(PATIENCE_S) for future in futures]
    assert stamps == sorted(stamps)


def wait_for(path: str) -> str:
    while not os.path.exists(path):
        time.sleep(0.01)
    return path


def test_a_waiting_future_can_be_cancelled(tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    with sureline.Executor(1) as one:
        running = one.submit(wait_for, str(gate))
        waiting = [one.submit(square, k) for k in range(5)]
        until(running.running, "the first call to start")
        assert not running.cancel()
        assert waiting[1].cancel() and waiting[3].cancel()
        gate.touch()
        assert running.result(PATIENCE_S) == str(gate)
        assert [f.result(PATIENCE_S) for f in waiting if not f.cancelled()] == [0, 4, 16]
        assert [f.cancelled() for f in waiting] == [False, True, False, True, False]
        done, not_done = concurrent.futures.wait([running, *waiting], PATIENCE_S)
        assert (len(done), len(not_done)) == (6, 0)


def test_shutdown_finishes_what_was_submitted() -> None:
    one = sureline.Executor(1)
    futures = [one.submit(square, k) for k in range(10)]
    one.shutdown()
    assert all(f.done() for f in futures)
    assert [f.result() for f in futures] == [k * k for k in range(10)]
    with pytest.raises(RuntimeError, match="after shutdown"):
        one.submit(square, 1)
    one.shutdown()


def test_shutdown_can_cancel_what_waits(tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    one = sureline.Executor(1)
    running = one.submit(wait_for, str(gate))
    waiting = [one.submit(square, k) for k in range(5)]
    one.shutdown(wait=False, cancel_futures=True)
    assert all(f.cancelled() for f in waiting)
    assert not running.done()
    gate.touch()
    assert running.result(PATIENCE_S) == str(gate)


def test_shutdown_need_not_wait(tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    one = sureline.Executor(1)
    running = one.submit(wait_for, str(gate))
    waiting = one.submit(square, 3)
    one.shutdown(wait=False)
    assert not running.done()
    gate.touch()
    assert waiting.result(PATIENCE_S) == 9


def test_an_executor_that_was_never_used() -> None:
    sureline.Executor().shutdown()
    with pytest.raises(ValueError, match="max_workers"):
        sureline.Executor(0)


def test_callbacks_may_submit(executor: sureline.Executor) -> None:
    done = threading.Event()
    seen: list[int] = []

    def again(future: concurrent.futures.Future[int]) -> None:
        seen.append(future.result())
        if len(seen) < 20:
            executor.submit(square, len(seen)).add_done_callback(again)
        else:
            done.set()

    executor.submit(square, 0).add_done_callback(again)
    assert done.wait(PATIENCE_S)
    assert seen == [k * k for k in range(20)]


@pytest.mark.parametrize("size", [1_000_000, 100_000_000])
def test_large_values(executor: sureline.Executor, size: int) -> None:
    result = executor.submit(blob, size).result(PATIENCE_S)
    assert len(result) == size
    assert executor.submit(measure, result[:20_000_000]).result(PATIENCE_S) == min(size, 20_000_000)


def test_large_results_do_not_pile_up(executor: sureline.Executor) -> None:
    """What a result took in the temporary store is given back once it has been read."""
    roots = Path(executor._pool._root)
    for k in range(3):
        size = INLINE_BYTES + k  # with what pickling adds, too long for a message
        assert len(executor.submit(os.urandom, size).result(PATIENCE_S)) == size
        stores = list(roots.glob("*/blobs"))
        assert stores, "each worker has a store of its own"
        held = [path for store in stores for path in store.rglob("*") if path.is_file()]
        assert sum(path.stat().st_size for path in held) == 0


def test_lambdas_closures_and_methods(executor: sureline.Executor) -> None:
    factor = 2

    def times(x: int) -> int:
        return factor * x

    assert executor.submit(lambda x: x + 1, 1).result(PATIENCE_S) == 2
    assert executor.submit(times, 5).result(PATIENCE_S) == 10
    factor = 3
    assert executor.submit(times, 5).result(PATIENCE_S) == 15
    assert executor.submit("a b".split).result(PATIENCE_S) == ["a", "b"]


def test_a_functions_changed_defaults_are_seen(executor: sureline.Executor) -> None:
    def add(x: int, more: int = 1) -> int:
        return x + more

    assert executor.submit(add, 1).result(PATIENCE_S) == 2
    add.__defaults__ = (10,)
    assert executor.submit(add, 1).result(PATIENCE_S) == 11


def test_a_functions_changed_globals_are_seen(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "import sureline\n"
        "more = 1\n"
        "def add(x): return x + more\n"
        "if __name__ == '__main__':\n"
        "    with sureline.Executor(1) as executor:\n"
        "        first = executor.submit(add, 1).result()\n"
        "        more = 10\n"
        "        print(first, executor.submit(add, 1).result())\n"
    )
    done = subprocess.run(
        [sys.executable, script], check=True, capture_output=True, text=True, timeout=PATIENCE_S
    )
    assert done.stdout == "2 11\n"


class OnlyOneWay:
    """Pickles, and refuses to be loaded in another process."""

    def __reduce__(self) -> tuple[Any, ...]:
        return _refuse, (os.getpid(),)


def _refuse(pid: int) -> OnlyOneWay:
    if pid != os.getpid():
        raise ValueError("not here")
    return OnlyOneWay()


def make_one_way() -> OnlyOneWay:
    return OnlyOneWay()


def test_values_that_cannot_travel(executor: sureline.Executor) -> None:
    assert isinstance(executor.submit(threading.Lock).exception(PATIENCE_S), TypeError)
    with pytest.raises((TypeError, pickle.PicklingError)):
        executor.submit(measure, threading.Lock()).result(PATIENCE_S)
    error = executor.submit(make_one_way).exception(PATIENCE_S)
    assert isinstance(error, ValueError)
    error = executor.submit(measure, OnlyOneWay()).exception(PATIENCE_S)
    assert isinstance(error, ValueError)
    assert executor.submit(square, 2).result(PATIENCE_S) == 4


# -- Dask --------------------------------------------------------------------------------------


def test_dask_computes_arrays(executor: sureline.Executor) -> None:
    da = pytest.importorskip("dask.array")
    x = da.arange(10_000, chunks=1_000)
    assert (x**2).sum().compute(scheduler=executor) == sum(k * k for k in range(10_000))
    y = da.ones((300, 300), chunks=(100, 100))
    assert (y @ y.T).sum().compute(scheduler=executor) == 300.0**3


def test_dask_computes_delayed_graphs(executor: sureline.Executor) -> None:
    dask = pytest.importorskip("dask")
    parts = [dask.delayed(square)(k) for k in range(10)]
    total = dask.delayed(sum)(parts)
    assert dask.compute(total, parts[3], scheduler=executor) == (285, 9)


def test_dask_hears_of_a_failed_task(executor: sureline.Executor) -> None:
    dask = pytest.importorskip("dask")
    with pytest.raises(WholeError):
        dask.compute(dask.delayed(raise_whole)(), scheduler=executor)
    assert dask.compute(dask.delayed(square)(3), scheduler=executor) == (9,)


# -- scripts -----------------------------------------------------------------------------------


def script(tmp_path: Path, text: str) -> subprocess.CompletedProcess[str]:
    """Run a script with a temporary directory of its own, which must be empty afterwards."""
    (tmp_path / "tmp").mkdir()
    (tmp_path / "script.py").write_text(text)
    done = subprocess.run(
        [sys.executable, "script.py"],
        cwd=tmp_path,
        env={**os.environ, "TMPDIR": str(tmp_path / "tmp")},
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert os.listdir(tmp_path / "tmp") == []
    return done


def test_functions_of_main(tmp_path: Path) -> None:
    done = script(
        tmp_path,
        "import dataclasses, sureline\n"
        "OFFSET = 5\n"
        "@dataclasses.dataclass\n"
        "class Point:\n"
        "    x: int\n"
        "class Mine(Exception):\n"
        "    pass\n"
        "def helper(p): return p.x + OFFSET\n"
        "def move(p): return Point(helper(p))\n"
        "def fail(): raise Mine('mine')\n"
        "with sureline.Executor(2) as e:\n"
        "    print(e.submit(move, Point(2)).result() == Point(7))\n"
        "    try: e.submit(fail).result()\n"
        "    except Mine as error: print(error)\n"
        "flow = sureline.Workflow('main')\n"
        "h = flow.call(move, Point(1))\n"
        "g = flow.call(move, h)\n"
        "print(flow.run()[g])\n",
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["True", "mine", "Point(x=11)"]
    assert done.stderr == ""


def test_exit_without_shutdown_finishes_the_calls(tmp_path: Path) -> None:
    done = script(
        tmp_path,
        "import pathlib, sureline, time\n"
        "def slow(k):\n"
        "    time.sleep(0.05)\n"
        "    pathlib.Path(f'made.{k}').touch()\n"
        "executor = sureline.Executor(2)\n"
        "for k in range(4): executor.submit(slow, k)\n",
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert sorted(p.name for p in tmp_path.glob("made.*")) == [f"made.{k}" for k in range(4)]


def test_a_dropped_executor_ends_its_workers(tmp_path: Path) -> None:
    done = script(
        tmp_path,
        "import gc, os, sureline, sys, time\n"
        "executor = sureline.Executor(1)\n"
        "pid = executor.submit(os.getpid).result()\n"
        "del executor\n"
        "gc.collect()\n"
        "for _ in range(2000):\n"
        "    try: os.kill(pid, 0)\n"
        "    except ProcessLookupError: break\n"
        "    time.sleep(0.01)\n"
        "else: sys.exit('the worker is still there')\n",
    )
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("how", ["sys.stdout.close()", "sys.stdout = None"])
def test_a_caller_without_stdout_gets_its_results(tmp_path: Path, how: str) -> None:
    done = script(
        tmp_path,
        "import sureline, sys\n"
        "def loud(): print('loud'); return 7\n"
        f"{how}\n"
        "with sureline.Executor(1) as executor:\n"
        "    sys.exit(executor.submit(loud).result(30))\n",
    )
    assert done.returncode == 7, done.stderr


def test_an_executor_that_cannot_go_on_says_so(tmp_path: Path) -> None:
    """Its working directory is gone when a new worker is due: no future may wait for ever."""
    done = script(
        tmp_path,
        "import os, sureline, time\n"
        "def die():\n"
        "    open(place + '.going', 'w').close()\n"
        "    while os.path.exists(place): time.sleep(0.01)\n"
        "    os._exit(1)\n"
        "place = os.path.abspath('gone')\n"
        "os.mkdir(place)\n"
        "os.chdir(place)\n"
        "executor = sureline.Executor(1)\n"
        "first = executor.submit(die)\n"
        "second = executor.submit(abs, -1)\n"
        "while not os.path.exists(place + '.going'): time.sleep(0.01)\n"
        "os.rmdir(place)\n"
        "print(type(first.exception(30)).__name__)\n"
        "print(type(second.exception(30)).__name__)\n"
        "try: executor.submit(abs, -1)\n"
        "except RuntimeError as error: print(error)\n",
    )
    assert (done.returncode, done.stderr) == (0, "")
    first, second, third = done.stdout.splitlines()
    assert (first, second) == ("WorkerLostError", "FileNotFoundError")
    assert "shutdown" in third


def test_workers_end_with_their_caller(tmp_path: Path) -> None:
    """Also if it is killed while a call goes on."""
    text = (
        "import os, sureline, sys, time\n"
        "def nap():\n"
        "    open('pid.tmp', 'w').write(str(os.getpid()))\n"
        "    os.rename('pid.tmp', 'pid')\n"
        "    time.sleep(600)\n"
        "sureline.Executor(1).submit(nap).result()\n"
    )
    (tmp_path / "script.py").write_text(text)
    caller = subprocess.Popen(
        [sys.executable, "script.py"], cwd=tmp_path, env={**os.environ, "TMPDIR": str(tmp_path)}
    )
    try:
        until((tmp_path / "pid").exists, "the call to start")
    finally:
        caller.kill()
        caller.wait()
    pid = int((tmp_path / "pid").read_text())
    until(lambda: not alive(pid), "the worker's end")


def test_ctrl_c_reaches_the_caller_not_the_workers(tmp_path: Path) -> None:
    text = (
        "import os, signal, sureline, sys, time\n"
        # Whoever started the tests in the background may have had the signal ignored.
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "def nap(): open('going', 'w').close(); time.sleep(1); return 'slept'\n"
        "executor = sureline.Executor(1)\n"
        "future = executor.submit(nap)\n"
        "try:\n"
        "    future.result()\n"
        "except KeyboardInterrupt:\n"
        "    print('interrupted', future.result())\n"
    )
    (tmp_path / "script.py").write_text(text)
    caller = subprocess.Popen(
        [sys.executable, "script.py"],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        until((tmp_path / "going").exists, "the call to start")
        os.killpg(caller.pid, signal.SIGINT)
        out, err = caller.communicate(timeout=PATIENCE_S)
    finally:
        caller.kill()
        caller.communicate()
    assert (out, err) == ("interrupted slept\n", "")
