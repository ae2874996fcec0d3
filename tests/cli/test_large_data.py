"""Arguments and results of any size: beside the journal, stored once, mapped."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cli_bench import Bench

from sureline import Executor, Workflow
from sureline.peer.spool import FILE_BYTES, THREADED_BYTES, Spool, equal
from sureline.peer.store import BlobStore

MB = 1 << 20


@pytest.fixture(autouse=True)
def in_an_empty_directory(bench: Bench) -> None:
    """Every workflow here runs in the current directory."""


def item(array: Any, k: int) -> float:
    return float(array[k])


def spread(k: int, size: int) -> Any:
    return np.full(size, float(k))


def blobs(at_least: int) -> list[int]:
    sizes = [path.stat().st_size for path in Path(".sureline/blobs").rglob("*") if path.is_file()]
    return [size for size in sizes if size >= at_least]


def journal_bytes() -> int:
    return sum(path.stat().st_size for path in Path(".sureline").glob("journal.db*"))


def test_one_array_for_many_calls_is_stored_once_and_not_in_the_journal() -> None:
    array = np.arange(72 * MB // 8, dtype=float)  # more than a message to a process may have
    sizes = []
    for round_ in range(3):
        flow = Workflow("shared")
        handles = [flow.call(item, array, k) for k in range(4)]
        results = flow.run()
        assert [results[handle] for handle in handles] == [0.0, 1.0, 2.0, 3.0]
        assert results.outcome.tasks.reused == (4 if round_ else 0)
        sizes.append(journal_bytes())
    assert blobs(MB) == [array.nbytes]
    assert sizes[-1] < 2 * MB
    assert sizes[2] - sizes[1] < 64 << 10


def test_what_an_argument_holds_is_taken_when_the_call_is_described() -> None:
    array = np.zeros(MB)
    flow = Workflow("changing")
    handles = []
    for k in range(3):
        array[:] = k
        handles.append(flow.call(item, array, 0))
    results = flow.run()
    assert [results[handle] for handle in handles] == [0.0, 1.0, 2.0]


def change(array: Any) -> float:
    array += 1
    return float(array[0])


def test_a_call_may_change_its_argument_and_nobody_sees_it() -> None:
    array = np.zeros(MB)
    flow = Workflow("changed")
    first = flow.call(change, array)
    second = flow.using(after=first).call(change, array)
    results = flow.run()
    assert (results[first], results[second], array[0]) == (1.0, 1.0, 0.0)


def test_large_results_go_from_call_to_call() -> None:
    flow = Workflow("results")
    parts = [flow.call(spread, k, MB) for k in range(3)]
    total = flow.call(sum_of, parts)
    results = flow.run()
    assert np.array_equal(results[total], np.full(MB, 3.0))
    results[parts[1]][:] = 7  # one's own copy
    assert results[parts[1]][0] == 1.0
    again = flow.run()
    assert again.outcome.tasks.reused == 4
    assert np.array_equal(again[total], np.full(MB, 3.0))


def sum_of(parts: list[Any]) -> Any:
    return sum(parts)


def test_a_closure_over_an_array() -> None:
    array = np.arange(4.0 * MB)
    flow = Workflow("closure")
    value = flow.call(lambda k: float(array[k]), 5)
    assert flow.run()[value] == 5.0
    assert journal_bytes() < 2 * MB


def test_data_that_is_gone_is_a_failure_that_says_so(bench: Bench) -> None:
    flow = Workflow("gone")
    flow.using(name="first").call(wait_for, os.path.abspath("go"))
    flow.using(name="use", after="first").call(item, np.arange(4.0 * MB), 2)
    with pytest.raises(Exception, match="did not open"):
        flow.run()
    for path in Path(".sureline/blobs").rglob("*"):
        if path.is_file():
            path.unlink()
    Path("go").touch()
    assert bench("resume").code == 1
    assert "stored data that it needs is gone" in bench("show").out


def test_stored_data_that_was_damaged_is_never_computed_with() -> None:
    array = np.arange(4.0 * MB)
    results = []
    for k in range(2):
        flow = Workflow("damaged")
        last = flow.call(item, array, 2 + k)
        results.append(flow.run()[last])
        (blob,) = (path for path in Path(".sureline/blobs").rglob("*") if path.is_file())
        blob.chmod(0o644)
        with blob.open("r+b") as file:
            file.write(bytes(MB))
    assert results == [2.0, 3.0]


def test_buffers_that_differ_in_one_byte_anywhere_are_not_equal() -> None:
    size = THREADED_BYTES + 5
    left, right = bytearray(size), bytearray(size)
    assert equal(left, right)
    for at in (0, size // 2 - 1, size // 2, size // 2 + 1, size - 1):
        right[at] = 1
        assert not equal(left, right), at
        right[at] = 0
    assert not equal(left, right[:-1])


def wait_for(path: str) -> None:
    if not os.path.exists(path):
        raise ValueError("did not open")


def test_a_large_argument_is_written_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / ".sureline/work").mkdir(parents=True)
    store = BlobStore(tmp_path / ".sureline")
    spool = Spool(store)
    apart = spool.keep(memoryview(np.arange(FILE_BYTES // 8, dtype=float)).cast("B"))
    if not spool._files:
        pytest.skip("this file system has no files without a name")
    (fd,) = spool._files.values()
    spool.store(store)
    kept, stored = os.fstat(fd), os.stat(store.blob_path(apart.digest))
    assert kept.st_ino == stored.st_ino, "it was written again"


@pytest.mark.soak
def test_a_gigabyte_goes_in_and_out() -> None:
    array = np.zeros(1 << 27)
    array[-1] = 1.0
    flow = Workflow("gigabyte")
    there = flow.call(np.add, array, 1.0)
    last = flow.call(_last, there)
    results = flow.run()
    assert results[last] == 2.0
    assert results[there].nbytes == 1 << 30 and results[there][-1] == 2.0
    with Executor(1) as executor:
        back = executor.submit(np.add, array, 1.0).result()
        assert back[-1] == 2.0 and back.nbytes == 1 << 30


def _last(array: np.ndarray[Any, Any]) -> float:
    return float(array[-1])
