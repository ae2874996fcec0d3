"""Ray: one local node with two CPUs; no dashboard, no usage reports, a small object store."""

from __future__ import annotations

import os
import tempfile
from typing import TYPE_CHECKING

import ray
from work import WORKERS, add, run_true, same

if TYPE_CHECKING:
    from work import Shape

STORE_BYTES = 100_000_000


class Engine:
    def __enter__(self) -> Engine:
        os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
        ray.init(
            num_cpus=WORKERS,
            include_dashboard=False,
            object_store_memory=STORE_BYTES,
            log_to_driver=False,
            logging_level="error",
            _node_ip_address="127.0.0.1",
            _temp_dir=tempfile.gettempdir(),
        )
        self._same = ray.remote(same)
        self._add = ray.remote(add)
        self._run_true = ray.remote(run_true)
        return self

    def __exit__(self, *_: object) -> None:
        ray.shutdown()

    def calls(self, count: int) -> list[int]:
        return list(ray.get([self._same.remote(k) for k in range(count)]))

    def graph(self, shape: Shape) -> list[int]:
        row = [self._same.remote(k) for k in range(shape.width)]
        for _ in range(1, shape.levels):
            pairs = map(shape.needs, range(shape.width))
            row = [self._add.remote(row[a], row[b]) for a, b in pairs]
        return list(ray.get(row))

    def commands(self, count: int) -> int:
        return list(ray.get([self._run_true.remote(k) for k in range(count)])).count(0)

    def once(self, value: int) -> int:
        return int(ray.get(self._same.remote(value)))
