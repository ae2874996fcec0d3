"""The run of an executor on a grid grows by what is submitted, in parts that it takes."""

from __future__ import annotations

import itertools
import threading
from typing import Any

import pytest

from sureline.compose import open_run
from sureline.executor.grid import GridPool
from sureline.run.course import GROWTH_BYTES_MAX
from sureline.workflow.model import Carried, Graph


class Grows:
    """In the place of a run: takes what comes."""

    def __init__(self, *_: Any) -> None:
        self.graphs: list[Graph] = [Graph("executor", [], carried=Carried())]
        self.closed = threading.Event()
        self.all_submitted = threading.Event()
        runs.append(self)

    def grow(self, graph: Graph) -> None:
        self.all_submitted.wait()
        self.graphs.append(graph)

    def drive(self) -> None:
        self.closed.wait()

    def close(self) -> None:
        self.closed.set()


runs: list[Grows] = []


@pytest.mark.parametrize("alike", [True, False])
def test_each_part_is_as_long_as_a_run_takes_at_once(
    monkeypatch: pytest.MonkeyPatch, *, alike: bool
) -> None:
    monkeypatch.setattr(open_run, "OpenRun", Grows)
    pool = GridPool("grid", "", False)

    def made(text: str) -> Any:
        return lambda: text

    count = 1000
    same = made("x" * 2000)
    futures = [pool.submit(same if alike else made(f"{k:2000}"), (), {}) for k in range(count)]
    runs[0].all_submitted.set()
    pool.close(cancel_futures=False)
    pool.join()
    graphs = runs.pop().graphs
    assert len(graphs[-1]) == len(futures) == count
    sizes = [len(after.growth(before)) for before, after in itertools.pairwise(graphs)]
    assert max(sizes) <= GROWTH_BYTES_MAX
    assert len(sizes) > 1 if not alike else len(graphs[-1].functions) == 1
