"""Sureline: Executor for calls, a journalled Workflow for graphs, `sureline run` for commands."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from work import TRUE, WORKERS, add, same

if TYPE_CHECKING:
    from work import Shape

FLOW = f"""\
name: commands
tasks:
  noop:
    for: {{i: 1..%d}}
    run: {TRUE}
"""


class Engine:
    """Every workflow runs in a fresh directory, so that nothing is reused."""

    extra: dict[str, float]
    """What `sureline run` itself said of the latest commands: their time without its start."""

    def __init__(self) -> None:
        self.extra = {}
        self._executor: Any = None

    def __enter__(self) -> Engine:
        return self

    def __exit__(self, *_: object) -> None:
        if self._executor is not None:
            self._executor.shutdown()

    def calls(self, count: int) -> list[int]:
        executor = self._started()
        return [f.result() for f in [executor.submit(same, k) for k in range(count)]]

    def graph(self, shape: Shape) -> list[int]:
        """From an empty workflow to the values of its last level, the journal's syncs included."""
        from sureline import Workflow

        flow = Workflow("graph")
        row = [flow.call(same, k) for k in range(shape.width)]
        for _ in range(1, shape.levels):
            row = [flow.call(add, row[a], row[b]) for a, b in map(shape.needs, range(shape.width))]
        results = flow.run(tempfile.mkdtemp(dir="."), cores=WORKERS)
        return [results[handle] for handle in row]

    def commands(self, count: int) -> int:
        """The command line, timed by itself from taking the run over to its last event: as for the
        other engines, the start of the program comes before the clock starts."""
        where = Path(tempfile.mkdtemp(dir=".")).resolve()
        (where / "flow.yaml").write_text(FLOW % count)
        command = os.path.join(os.path.dirname(sys.executable), "sureline")
        done = subprocess.run(
            [command, "run", "flow.yaml", "--json", "--cores", str(WORKERS)],
            cwd=where,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            check=True,
        )
        outcome = json.loads(done.stdout)
        self.extra = {"clock_s": outcome["elapsed_s"]}
        return int(outcome["tasks"]["succeeded"])

    def once(self, value: int) -> int:
        return int(self._started().submit(same, value).result())

    def _started(self) -> Any:
        if self._executor is None:
            from sureline import Executor

            self._executor = Executor(WORKERS)
        return self._executor
