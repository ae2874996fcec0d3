"""Sureline on a grid: peers of one slot each, real processes with TLS, and `sureline run --grid`.

Its no-op is a pretended task of no time: it goes the whole way (bound, admitted, reported,
recorded, acknowledged), but starts no process. `with_sureline_calls` measures Python calls.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from work import TAIL_BYTES, TRUE, WORKERS

from sureline.testing.live import GRID, LiveGrid

if TYPE_CHECKING:
    from work import Shared

COMMANDS = f"""\
name: commands
tasks:
  noop:
    for: {{i: 1..%d}}
    run: {TRUE}
"""
READS = (
    "  tail{i}: {{run: 'tail -c {n} in.{k} | sha256sum > out.{i}', inputs: [in.{k}],"
    " outputs: [out.{i}]}}\n"
)


class Engine:
    """Every workflow runs in a fresh directory, so that nothing is reused."""

    strategy = "spread"
    serving: tuple[str, ...] = ()
    """What peers are started with."""
    extra: dict[str, float]

    def __init__(self) -> None:
        self.extra = {}
        self._grid = LiveGrid(Path("grid").resolve())

    def __enter__(self) -> Engine:
        self._grid.where.mkdir()
        self._grid.start(WORKERS, *self.serving)
        return self

    def __exit__(self, *_: object) -> None:
        self._grid.close()

    def calls(self, count: int) -> list[int]:
        tasks = [
            {"name": "noop", "id": f"t{k}", "parents": [], "children": []} for k in range(count)
        ]
        ran = [{"id": f"t{k}", "runtimeInSeconds": 0} for k in range(count)]
        makespan = {"makespanInSeconds": 0, "executedAt": "2026-01-01T00:00:00Z", "tasks": ran}
        flow = {"specification": {"tasks": tasks}, "execution": makespan}
        text = json.dumps({"name": "noop", "schemaVersion": "1.5", "workflow": flow})
        return list(range(self._run(text, "flow.json", "--pretend")))

    def commands(self, count: int) -> int:
        return self._run(COMMANDS % count, "flow.yaml")

    def shared(self, shared: Shared) -> list[str]:
        """Each task reads the one file that its number says."""
        where = Path(tempfile.mkdtemp(dir=".")).resolve()
        for number in range(shared.files):
            (where / f"in.{number}").write_bytes(shared.content(number))
        tasks = "".join(
            READS.format(i=i, k=i % shared.files, n=TAIL_BYTES) for i in range(shared.tasks)
        )
        self._run(f"name: shared\ntasks:\n{tasks}", "flow.yaml", where=where)
        return [(where / f"out.{i}").read_text().split()[0] for i in range(shared.tasks)]

    def _run(self, text: str, name: str, *options: str, where: Path | None = None) -> int:
        """How many succeeded. The run tells its own time, without the start of its program."""
        where = where or Path(tempfile.mkdtemp(dir=".")).resolve()
        (where / name).write_text(text)
        command = os.path.join(os.path.dirname(sys.executable), "sureline")
        given: list[Any] = ["--grid", GRID, "--strategy", self.strategy, "--json", *options]
        done = subprocess.run(
            [command, "run", name, *given],
            cwd=where,
            env={**os.environ, **self._grid.env("p0")},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            check=True,
        )
        outcome = json.loads(done.stdout)
        self.extra = {"clock_s": outcome["elapsed_s"]}
        return int(outcome["tasks"]["succeeded"])
