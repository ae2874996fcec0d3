"""The executor as a drop-in: chunks, initializers, replaced processes, forks, kills, large data."""

from __future__ import annotations

import functools
import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable
from concurrent.futures import BrokenExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sureline
from sureline import Executor

PATIENCE_S = 60.0


def wait_until(condition: Callable[[], bool]) -> None:
    give_up_at = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < give_up_at, "it never came true"
        time.sleep(0.01)


def python(text: str, **more: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-W", "ignore::DeprecationWarning", "-c", textwrap.dedent(text)],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
        env={**os.environ, **more},
    )


def test_map_in_chunks_gives_what_map_gives() -> None:
    with Executor(2) as executor:
        for size in (1, 2, 7, 1000):
            assert list(executor.map(pow, range(20), range(20), chunksize=size)) == [
                k**k for k in range(20)
            ]
        assert list(executor.map(pow, [], [], chunksize=3)) == []
        with pytest.raises(ZeroDivisionError):
            list(executor.map(divmod, [1, 1], [1, 0], chunksize=2))
        with pytest.raises(ValueError, match="chunksize must be >= 1"):
            executor.map(abs, [1], chunksize=0)


def test_chunks_are_sent_whole() -> None:
    """What a process is asked for is counted, not timed: a hundred thousand items, 100 calls."""
    with Executor(2) as executor:
        total = sum(executor.map(abs, range(100_000), chunksize=1000))
        assert total == sum(range(100_000))
        assert executor._pool._serial == 100


state = "fresh"


def set_state(to: str) -> None:
    global state
    state = to


def get_state(_: int = 0) -> tuple[str, int]:
    return state, os.getpid()


def test_every_process_is_initialised_also_those_that_come_later() -> None:
    with Executor(2, initializer=set_state, initargs=("set",), max_tasks_per_child=3) as executor:
        answers = list(executor.map(get_state, range(20)))
    assert {answer for answer, _ in answers} == {"set"}
    pids = [pid for _, pid in answers]
    assert all(pids.count(pid) <= 3 for pid in pids)
    assert len(set(pids)) >= 7


def fail() -> None:
    raise ValueError("no good")


def test_an_initializer_that_fails_breaks_the_executor() -> None:
    with Executor(1, initializer=fail) as executor:
        futures = []
        try:
            futures = [executor.submit(get_state) for _ in range(3)]
        except BrokenExecutor:
            pass
        for future in futures:
            with pytest.raises(BrokenExecutor):
                future.result(PATIENCE_S)
        wait_until(lambda: bool(executor._broken))
        with pytest.raises(BrokenExecutor):
            executor.submit(get_state)


def test_arguments_are_checked_as_elsewhere() -> None:
    with pytest.raises(ValueError, match="max_workers must be greater than 0"):
        Executor(0)
    with pytest.raises(TypeError, match="initializer must be a callable"):
        Executor(1, initializer="x")  # type: ignore[arg-type]  # on purpose
    with pytest.raises(ValueError, match="max_tasks_per_child must be >= 1"):
        Executor(1, max_tasks_per_child=0)


def test_large_arrays_go_both_ways() -> None:
    array = np.arange(3_000_000.0)
    with Executor(1) as executor:
        there = executor.submit(functools.partial(np.multiply, 2.0), array).result(PATIENCE_S)
        assert np.array_equal(there, 2 * array)
        there += 1  # one's own copy
        assert executor.submit(len, "x" * 5_000_000).result(PATIENCE_S) == 5_000_000
        root = executor._pool._root
        left = [file for _, _, files in os.walk(root) for file in files if "arguments" in file]
        assert left == [], "arguments are gone after the call"


def change(array: object) -> object:
    array *= 2  # type: ignore[operator]  # an array
    return array


def test_a_call_may_change_its_large_argument() -> None:
    array = np.ones(1_000_000)
    with Executor(1) as executor:
        assert executor.submit(change, array).result(PATIENCE_S)[0] == 2  # type: ignore[index]  # an array
    assert array[0] == 1


def test_a_forked_process_neither_disturbs_nor_is_disturbed() -> None:
    """The child uses the executor it was born with, and ends; the parent's goes on."""
    ended = python(
        """\
        import os, sys, time
        from sureline import Executor
        executor = Executor(2)
        before = executor.submit(os.getpid).result()
        going = executor.submit(time.sleep, 0.5)
        pid = os.fork()
        if not pid:
            print("child", executor.submit(pow, 2, 5).result(30), flush=True)
            executor.shutdown()
            sys.exit(0)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
        going.result(30)
        assert list(executor.map(abs, [-1, -2])) == [1, 2]
        assert os.path.isdir(executor._pool._root)
        executor.shutdown()
        print("parent")
        """
    )
    assert ended.stderr == ""
    assert ended.stdout == "child 32\nparent\n"


def test_forks_after_its_end_are_left_alone() -> None:
    """What it had open is closed: the same numbers may be others' files by now."""
    ended = python(
        """\
        import multiprocessing
        from concurrent.futures import ProcessPoolExecutor
        from sureline import Executor
        executor = Executor(2)
        assert list(executor.map(abs, [-1, -2])) == [1, 2]
        executor.shutdown()
        with ProcessPoolExecutor(2, multiprocessing.get_context("fork")) as theirs:
            print(list(theirs.map(abs, [-1, -2])))
        """
    )
    assert (ended.stdout, ended.stderr) == ("[1, 2]\n", "")


def test_a_kill_leaves_no_directory(tmp_path: Path) -> None:
    ended = python(
        """\
        import os, signal, time
        from sureline import Executor
        executor = Executor(2)
        executor.submit(abs, -1).result()
        executor.submit(time.sleep, 60)
        assert os.listdir(os.environ["TMPDIR"])
        os.kill(os.getpid(), signal.SIGKILL)
        """,
        TMPDIR=str(tmp_path),
    )
    assert ended.returncode == -signal.SIGKILL, ended.stderr
    wait_until(lambda: os.listdir(tmp_path) == [])


def test_the_interpreter_ends_when_all_calls_have() -> None:
    ended = python(
        """\
        import time
        from sureline import Executor
        def late(): time.sleep(0.3); print("apple")
        executor = Executor(3)
        executor.submit(late)
        executor.shutdown(wait=False)
        Executor(1).submit(late)
        """
    )
    assert (ended.stdout, ended.stderr) == ("apple\napple\n", "")


def test_nothing_is_taken_after_the_interpreters_end() -> None:
    ended = python(
        """\
        import atexit
        @atexit.register
        def last():
            try:
                executor.submit(id, None)
            except RuntimeError:
                print("refused")
        from sureline import Executor
        executor = Executor(1)
        executor.submit(id, 1).result()
        """
    )
    assert (ended.stdout, ended.stderr) == ("refused\n", "")


def test_the_package_shows_its_names() -> None:
    assert set(sureline.__all__) <= set(dir(sureline))


def test_one_copy_of_an_argument_serves_all_calls(tmp_path: Path) -> None:
    gate = tmp_path / "gate"

    def total(array: np.ndarray[Any, Any]) -> float:
        while not gate.exists():
            time.sleep(0.01)
        return float(array.sum())

    with sureline.Executor(2) as executor:
        array = np.ones(100_000)
        first = [executor.submit(total, array) for _ in range(5)]
        array[0] = 2.0  # those that were submitted do not see it
        second = [executor.submit(total, array) for _ in range(5)]
        shared = executor._pool._shared  # type: ignore[union-attr]  # it is a pool of this machine
        assert shared is not None
        assert len(os.listdir(shared.directory)) == 2
        gate.touch()
        assert {future.result() for future in first} == {100_000.0}
        assert {future.result() for future in second} == {100_001.0}
        wait_until(lambda: len(os.listdir(shared.directory)) == 1)


def test_arguments_that_are_long_and_no_arrays_go_through_a_file() -> None:
    with sureline.Executor(1) as executor:
        assert executor.submit(len, [str(k) for k in range(300_000)]).result() == 300_000


def test_joblib_works_with_it() -> None:
    joblib = pytest.importorskip("joblib", reason="joblib is not installed")

    class OnExecutor(joblib.parallel.ParallelBackendBase):  # type: ignore[misc,name-defined]  # untyped
        """What joblib asks of a backend, by an executor alone."""

        def __init__(self, executor: sureline.Executor, **options: Any) -> None:
            super().__init__(**options)
            self.executor = executor

        def effective_n_jobs(self, n_jobs: int) -> int:
            return 2

        def configure(self, n_jobs: int = 1, parallel: Any = None, **options: Any) -> int:
            self.parallel = parallel
            return 2

        def submit(self, func: Any, callback: Any = None) -> Any:
            future = self.executor.submit(func)
            future.get = future.result  # type: ignore[attr-defined]  # joblib's word for it
            if callback is not None:
                future.add_done_callback(callback)
            return future

        apply_async = submit

    joblib.register_parallel_backend("sureline", OnExecutor)
    with sureline.Executor(2) as executor, joblib.parallel_config("sureline", executor=executor):
        assert joblib.Parallel()(joblib.delayed(abs)(-k) for k in range(20)) == list(range(20))
