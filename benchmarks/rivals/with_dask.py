"""Dask: a local cluster of worker processes with one thread each, on loopback."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

from dask.delayed import delayed
from distributed import Client, LocalCluster
from work import WORKERS, add, run_true, same, tail

if TYPE_CHECKING:
    from distributed import Security
    from work import Shape, Shared


class Engine:
    def security(self) -> Security | None:
        return None

    def __enter__(self) -> Engine:
        self._cluster = LocalCluster(
            protocol="tcp://" if self.security() is None else "tls://",
            security=self.security(),
            memory_limit=0,
            n_workers=WORKERS,
            threads_per_worker=1,
            host="127.0.0.1",
            dashboard_address=None,
        )
        self._client = Client(self._cluster, security=self.security(), set_as_default=True)
        self._numbers = itertools.count()
        return self

    def __exit__(self, *_: object) -> None:
        self._client.close()
        self._cluster.close()

    def calls(self, count: int) -> list[int]:
        return list(self._client.gather(self._client.map(same, range(count), pure=False)))

    def graph(self, shape: Shape) -> list[int]:
        """Delayed calls, sent as one graph."""
        delayed_same, delayed_add = delayed(same), delayed(add)
        row = [delayed_same(k, dask_key_name=self._key()) for k in range(shape.width)]
        for _ in range(1, shape.levels):
            pairs = map(shape.needs, range(shape.width))
            row = [delayed_add(row[a], row[b], dask_key_name=self._key()) for a, b in pairs]
        return list(self._client.gather(self._client.compute(row, optimize_graph=False)))

    def commands(self, count: int) -> int:
        futures = self._client.map(run_true, range(count), pure=False)
        return list(self._client.gather(futures)).count(0)

    def once(self, value: int) -> int:
        return int(self._client.submit(same, value, pure=False).result())

    def shared(self, shared: Shared) -> list[str]:
        """The contents are scattered over the workers, as its manual advises."""
        held = self._client.scatter([shared.content(k) for k in range(shared.files)], hash=False)
        tasks = [
            self._client.submit(tail, held[k % shared.files], pure=False)
            for k in range(shared.tasks)
        ]
        return list(self._client.gather(tasks))

    def _key(self) -> str:
        return f"node-{next(self._numbers)}"
