"""Parsl: its HighThroughputExecutor with two workers on loopback, started by a LocalProvider."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import parsl
from parsl.config import Config
from parsl.executors import HighThroughputExecutor
from parsl.providers import LocalProvider
from work import TRUE, WORKERS, add, same

if TYPE_CHECKING:
    from work import Shape


def true_line() -> str:
    """The command line of a bash app."""
    return TRUE


class Engine:
    def __enter__(self) -> Engine:
        executor = HighThroughputExecutor(
            label="local",
            address="127.0.0.1",
            loopback_address="127.0.0.1",
            max_workers_per_node=WORKERS,
            cores_per_worker=1,
            provider=LocalProvider(init_blocks=1, min_blocks=1, max_blocks=1),
        )
        parsl.load(
            Config(
                executors=[executor],
                strategy="none",
                run_dir=os.path.abspath("runinfo"),
                usage_tracking=0,
                initialize_logging=False,
            )
        )
        self._same = parsl.python_app(same)
        self._add = parsl.python_app(add)
        self._true = parsl.bash_app(true_line)
        return self

    def __exit__(self, *_: object) -> None:
        parsl.dfk().cleanup()

    def calls(self, count: int) -> list[int]:
        return [future.result() for future in [self._same(k) for k in range(count)]]

    def graph(self, shape: Shape) -> list[int]:
        row = [self._same(k) for k in range(shape.width)]
        for _ in range(1, shape.levels):
            row = [self._add(row[a], row[b]) for a, b in map(shape.needs, range(shape.width))]
        return [future.result() for future in row]

    def commands(self, count: int) -> int:
        return [future.result() for future in [self._true() for _ in range(count)]].count(0)

    def once(self, value: int) -> int:
        return int(self._same(value).result())
