"""HyperQueue: its Python package's local cluster, with one worker of two cores.

The wheel carries no `hq` program; the local cluster runs server and worker inside this process.
Tasks are programs: a Python function costs a fresh interpreter and gives no value back. So calls
are functions (few of them: SHARES), while the graph and the warm round trip use commands, which
is kinder to it.

Its `wait_for_jobs` looks once a second, far too coarse to measure with. So every job ends with a
task that needs all the others and writes into a named pipe. HyperQueue runs it only if all of them
have succeeded: its byte is the proof of that, and it comes at once.
"""

from __future__ import annotations

import os
import select
import sys
from typing import TYPE_CHECKING

from hyperqueue import Job
from hyperqueue.cluster import LocalCluster, WorkerConfig
from hyperqueue.task.function import PythonEnv
from hyperqueue.task.task import Task
from work import TRUE, WORKERS, same

if TYPE_CHECKING:
    from work import Shape

SHARES = {"calls": 0.03}
"""At some tens of calls a second, all ten thousand would take the best part of an hour."""
PATIENCE_S = 300.0
"""After so long without the byte, ask what has failed."""


class Engine:
    def __enter__(self) -> Engine:
        self._cluster = LocalCluster(worker_config=WorkerConfig(cores=WORKERS))
        self._client = self._cluster.client(python_env=PythonEnv(sys.executable))
        os.mkfifo("pipe")
        self._pipe_fd = os.open("pipe", os.O_RDWR)
        with open("byte", "w") as byte:
            byte.write("b")
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._pipe_fd)
        self._cluster.stop()

    def calls(self, count: int) -> list[int]:
        job = Job()
        functions = [
            job.function(same, args=(number,), stdout=None, stderr=None) for number in range(count)
        ]
        self._finish(job, functions)
        return list(range(count))

    def graph(self, shape: Shape) -> list[int]:
        job = Job()
        row = [_true(job) for _ in range(shape.width)]
        nodes = list(row)
        for _ in range(1, shape.levels):
            # A node that needs one other twice is given it once.
            needs = [{shape.needs(node)[0], shape.needs(node)[1]} for node in range(shape.width)]
            row = [_true(job, *(row[node] for node in needed)) for needed in needs]
            nodes += row
        self._finish(job, nodes)
        return shape.answer()

    def commands(self, count: int) -> int:
        job = Job()
        self._finish(job, [_true(job) for _ in range(count)])
        return count

    def once(self, value: int) -> int:
        """The command is the one that writes into the pipe."""
        self._finish(Job(), [])
        return value

    def _finish(self, job: Job, tasks: list[Task]) -> None:
        job.program(["/bin/cp", "byte", "pipe"], deps=tasks, stdout=None, stderr=None)
        submitted = self._client.submit(job)
        if not select.select([self._pipe_fd], [], [], PATIENCE_S)[0]:
            self._client.wait_for_jobs([submitted])  # raises what has failed
        os.read(self._pipe_fd, 1)


def _true(job: Job, *needs: Task) -> Task:
    return job.program([TRUE], deps=needs, stdout=None, stderr=None)
