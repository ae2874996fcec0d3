"""A floor: ProcessPoolExecutor, every call submitted by itself; graphs by hand, level by level."""

from __future__ import annotations

from concurrent.futures import ProcessPoolExecutor
from typing import TYPE_CHECKING

from work import WORKERS, add, run_true, same

if TYPE_CHECKING:
    from work import Shape


class Engine:
    def __enter__(self) -> Engine:
        self._pool = ProcessPoolExecutor(WORKERS)
        return self

    def __exit__(self, *_: object) -> None:
        self._pool.shutdown()

    def calls(self, count: int) -> list[int]:
        return [f.result() for f in [self._pool.submit(same, k) for k in range(count)]]

    def graph(self, shape: Shape) -> list[int]:
        row = self.calls(shape.width)
        for _ in range(1, shape.levels):
            pairs = map(shape.needs, range(shape.width))
            futures = [self._pool.submit(add, row[a], row[b]) for a, b in pairs]
            row = [future.result() for future in futures]
        return row

    def commands(self, count: int) -> int:
        futures = [self._pool.submit(run_true, k) for k in range(count)]
        return [future.result() for future in futures].count(0)

    def once(self, value: int) -> int:
        return self._pool.submit(same, value).result()
