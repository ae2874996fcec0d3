"""Sureline's executor on a grid: calls are made by confined interpreters, one for each slot."""

from __future__ import annotations

import os

import with_sureline_spread
from work import same

from sureline import Executor
from sureline.testing.live import GRID


class Engine(with_sureline_spread.Engine):
    def __enter__(self) -> Engine:
        super().__enter__()
        os.environ.update(self._grid.env("p0"))
        self._executor = Executor(grid=GRID)
        return self

    def __exit__(self, *_: object) -> None:
        self._executor.shutdown()
        super().__exit__()

    def calls(self, count: int) -> list[int]:
        return [f.result() for f in [self._executor.submit(same, k) for k in range(count)]]
