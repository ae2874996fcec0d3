"""Python calls on a grid of real peers, in their sandboxes, from scripts as users write them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from grid_lab import GRID, GridLab

HEAD = """
import enum, os, sys
from dataclasses import dataclass
from pathlib import Path
import numpy as np
import lib
from sureline import Executor, RunFailedError, Workflow

class Colour(enum.Enum):
    RED = 1

@dataclass
class Found:
    where: str
    colour: Colour
    total: float

class OwnError(Exception):
    pass
"""
LIB = """
import json
from pack import inner

def scaled(array, by):
    return array * by * inner.ONE

class Kept:
    def __init__(self, x):
        self.x = x
"""


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Any:
    with GridLab(tmp_path_factory.mktemp("lab")) as made:
        made.start(2)
        yield made


@pytest.fixture
def where(tmp_path: Path) -> Path:
    (tmp_path / "lib.py").write_text(LIB)
    (tmp_path / "pack").mkdir()
    (tmp_path / "pack/inner.py").write_text("ONE = 1\n")
    (tmp_path / "data").mkdir()
    (tmp_path / "data/in.txt").write_text("an input")
    (tmp_path / "data/other.txt").write_text("another")
    return tmp_path


def script(lab: GridLab, where: Path, text: str) -> str:
    """What a script printed that ended well."""
    (where / "script.py").write_text(HEAD + text)
    done = subprocess.run(
        [sys.executable, "script.py"],
        cwd=where,
        env={**os.environ, **lab.env("p0"), "GRID": GRID},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    logs = {name: peer.log[-2000:] for name, peer in lab.peers.items()}
    assert done.returncode == 0, (done.stdout, done.stderr[-3000:], logs)
    return done.stdout


def test_code_arguments_and_results_travel_by_content(lab: GridLab, where: Path) -> None:
    said = script(
        lab,
        where,
        """
def look(array, kept):
    assert os.path.exists("script.py") and not os.path.exists("data/other.txt")
    return Found(Path("data/in.txt").read_text(), Colour.RED, float(array.sum()) + kept.x)

flow = Workflow("calls")
big = flow.call(lib.scaled, np.ones(100_000), 2.0)          # a long result, which stays there
parts = [flow.using(inputs="data/in.txt").call(look, big, lib.Kept(k)) for k in range(4)]
sizes = flow.task("sizes", run="wc -c < data/in.txt > size.txt", inputs=["data/in.txt"],
                  outputs=["size.txt"])
after = flow.using(inputs="size.txt").call(lambda: int(Path("size.txt").read_text()))
results = flow.run(grid="lab", trust=False)
for k, part in enumerate(parts):
    found = results[part]
    assert type(found) is Found and found.colour is Colour.RED, found
    assert found.total == 200_000 + k, found
    assert found.where == "an input", found
assert results[after] == 8
from sureline.journal.store import Journal
from sureline.workflow.files import result_path
blobs = set(os.listdir(".sureline/blobs"))
assert np.array_equal(results[big], np.full(100_000, 2.0))  # it comes when it is asked for
with Journal.open(Path(".sureline"), create=False, read_only=True) as journal:
    ended = {e.task: e for e in journal.commits(results.run)}
    assert {e.peer for e in ended.values()} <= {"p0", "p1"}
    size = len(journal.graph(results.run))
assert ended[big.task].outputs[0].path == result_path(big.task)
assert size < 100_000, size
again = flow.run(grid="lab")
assert results.outcome.tasks.succeeded == 7
assert again.outcome.tasks.reused >= 5, again.outcome
assert again[parts[3]].total == 200_003
home = flow.run()                                            # embedded: the same, with care
assert home[parts[1]] == results[parts[1]], home.outcome
print("fine")
""",
    )
    assert said == "fine\n"


def test_what_goes_wrong_is_told(lab: GridLab, where: Path) -> None:
    said = script(
        lab,
        where,
        """
def boom(kind):
    raise kind("so it is")

def sneaky():
    return [path.name for path in Path("data").glob("*")]

def failing(*args, **options):
    flow = Workflow("wrong")
    flow.using(**options).call(*args)
    try:
        flow.run(grid="lab")
    except RunFailedError as error:
        return error
    raise AssertionError("it did not fail")

error = failing(boom, OwnError)
assert type(error.__cause__) is OwnError and "so it is" in str(error.__cause__), error.__cause__
assert "boom" in str(error.__cause__.__cause__)
error = failing(sneaky)
assert "data" in str(error) and "inputs=" in str(error), error

class Evil:
    def __reduce__(self):
        return os.mkdir, ("made-by-evil",)

flow = Workflow("evil")
evil = flow.call(lambda: Evil())
results = flow.run(grid="lab")
try:
    results[evil]
except Exception as error:
    assert type(error).__name__ == "UnsafeValueError" and "mkdir" in str(error), error
    assert "trust=True" in str(error)
assert not os.path.exists("made-by-evil")
flow = Workflow("evil in a call")
use = flow.call(lambda x: 1, flow.call(lambda: Evil()))
flow.run(grid="lab")
assert not os.path.exists("made-by-evil")
print("fine")
""",
    )
    assert said == "fine\n"


def test_a_machine_that_does_not_fit_is_not_asked_again(lab: GridLab, where: Path) -> None:
    said = script(
        lab,
        where,
        """
flow = Workflow("alien")
flow.using(env="/usr/nosuch").call(abs, -1)
try:
    flow.run(grid="lab")
except RunFailedError as error:
    assert "p0 has no Python environment /usr/nosuch" in str(error), error
    assert "p1 has no" in str(error), error
    print("fine")
""",
    )
    assert said == "fine\n"


def test_an_executor_has_its_calls_made_by_the_grid(lab: GridLab, where: Path) -> None:
    said = script(
        lab,
        where,
        """
def work(array, k):
    print("said", k)
    return Found(os.environ.get("SURELINE_TASK", ""), Colour.RED, float(array[k]))

def boom():
    raise OwnError("no")

if __name__ == "__main__":
    array = np.arange(50_000.0)
    with Executor(grid="lab") as executor:
        found = [executor.submit(work, array, k) for k in range(3)]
        long = executor.submit(lib.scaled, array, 2.0)
        failed = executor.submit(boom)
        evil = executor.submit(lambda: lambda: 1)
        plain = executor.submit(len, list(range(100_000)))      # long, and not an array
        assert [f.result().total for f in found] == [0.0, 1.0, 2.0]
        assert type(found[0].result()) is Found and found[0].result().colour is Colour.RED
        assert np.array_equal(long.result(), array * 2)
        assert type(failed.exception()) is OwnError, repr(failed.exception())
        assert type(evil.exception()).__name__ == "UnsafeValueError", repr(evil.exception())
        assert plain.result() == 100_000
        assert list(executor.map(abs, range(-3, 3), chunksize=2)) == [3, 2, 1, 0, 1, 2]
        try:
            import dask
        except ImportError:
            print("no Dask")
        else:
            assert dask.delayed(abs)(-7).compute(scheduler=executor) == 7
    try:
        executor.submit(abs, 1)
        raise AssertionError("it was shut down")
    except RuntimeError:
        pass
    print("fine")
""",
    )
    assert said.endswith("fine\n") and "said 2" in said
