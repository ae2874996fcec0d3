"""HyperQueue: its Python package's local cluster, with one worker of two cores.

The wheel carries no `hq` program; the local cluster runs server and worker inside this process.
Tasks are programs: a Python function costs a fresh interpreter and gives no value back. So calls
are functions (few of them: SHARES), while the graph and the warm round trip use /bin/true, which
is kinder to it. Success is what can be verified: a failed task raises.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from hyperqueue import Job
from hyperqueue.cluster import LocalCluster, WorkerConfig
from hyperqueue.task.function import PythonEnv
from work import TRUE, WORKERS, same

if TYPE_CHECKING:
    from work import Shape

SHARES = {"calls": 0.03}
"""At some tens of calls a second, all ten thousand would take the best part of an hour."""
CORE = None
"""No resource request: a task takes one core."""


class Engine:
    def __enter__(self) -> Engine:
        # The address that the server tells its worker and client is this host's name.
        os.environ.setdefault("RUST_LOG", "error")
        self._cluster = LocalCluster(worker_config=WorkerConfig(cores=WORKERS))
        self._client = self._cluster.client(python_env=PythonEnv(sys.executable))
        return self

    def __exit__(self, *_: object) -> None:
        self._cluster.stop()

    def calls(self, count: int) -> list[int]:
        job = Job()
        for number in range(count):
            job.function(same, args=(number,), stdout=None, stderr=None)
        self._finish(job)
        return list(range(count))

    def graph(self, shape: Shape) -> list[int]:
        job = Job()
        row = [self._true(job) for _ in range(shape.width)]
        for _ in range(1, shape.levels):
            pairs = map(shape.needs, range(shape.width))
            row = [self._true(job, row[a], row[b]) for a, b in pairs]
        self._finish(job)
        return shape.answer()

    def commands(self, count: int) -> int:
        job = Job()
        for _ in range(count):
            self._true(job)
        self._finish(job)
        return count

    def once(self, value: int) -> int:
        job = Job()
        self._true(job)
        self._finish(job)
        return value

    def _true(self, job: Job, *deps: object) -> object:
        # A node that needs one other twice is given it once.
        return job.program([TRUE], deps=list(dict.fromkeys(deps)), stdout=None, stderr=None)

    def _finish(self, job: Job) -> None:
        self._client.wait_for_jobs([self._client.submit(job)])
