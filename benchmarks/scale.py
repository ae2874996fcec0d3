"""How the cost of a task grows with the size of the workflow.

For each size, in a process of its own: CPU to read and check a workflow of that many tasks, CPU
until its first task has started, and CPU per task of the whole run (the engine's own process, and
its slot processes with the commands), with the peak memory of the engine. The rival is the same
engine at the smallest size: the ratios say how flat the cost is.

    python benchmarks/scale.py [--sizes 1000,10000,100000] [--json FILE]
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

FLOW = """\
name: scale
params: {n: "1000"}
tasks:
  make:
    for: {i: "1..{{n}}"}
    run: "true"
  use:
    for: {i: "1..{{n}}"}
    run: "true"
    after: ["make:{{i}}"]
"""


def cpu_s(who: int = resource.RUSAGE_SELF) -> float:
    used = resource.getrusage(who)
    return used.ru_utime + used.ru_stime


def measure(size: int) -> dict[str, float]:
    """One whole run, in this process."""
    from sureline.compose import Watcher, run_workflow
    from sureline.journal.events import Event, TaskStarted
    from sureline.peer.capacity import this_machine
    from sureline.workflow.model import Graph
    from sureline.workflow.read import read_workflow

    class FirstStart(Watcher):
        started_cpu_s = 0.0
        started_peak_bytes = 0

        def event(self, event: Event) -> None:
            if not self.started_cpu_s and isinstance(event, TaskStarted):
                self.started_cpu_s = cpu_s()
                self.started_peak_bytes = peak_bytes()

    where = Path.cwd()
    reading = read_workflow(where / "flow.yaml", directory=where, overrides={"n": str(size // 2)})
    graph: Graph = reading.graph
    read_cpu_s = cpu_s()
    watcher = FirstStart()
    began = time.monotonic()
    outcome = run_workflow(graph, where, this_machine(where), watcher=watcher)
    assert outcome.state == "succeeded" and outcome.tasks.succeeded == size, outcome
    wall_s = time.monotonic() - began
    journal_bytes = sum(p.stat().st_size for p in (where / ".sureline").glob("journal.db*"))
    return {
        "tasks": size,
        "read_cpu_s": read_cpu_s,
        "started_cpu_s": watcher.started_cpu_s,
        "started_peak_bytes": watcher.started_peak_bytes,
        "engine_cpu_us_per_task": (cpu_s() - watcher.started_cpu_s) / size * 1e6,
        "slots_cpu_us_per_task": cpu_s(resource.RUSAGE_CHILDREN) / size * 1e6,
        "tasks_per_s": size / wall_s,
        "peak_bytes": peak_bytes(),
        "journal_bytes_per_task": journal_bytes / size,
    }


def peak_bytes() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def in_a_process(size: int) -> dict[str, float]:
    with tempfile.TemporaryDirectory(prefix="sureline-scale-") as where:
        (Path(where) / "flow.yaml").write_text(FLOW)
        done = subprocess.run(
            [sys.executable, str(Path(__file__).resolve()), "--one", str(size)],
            cwd=where,
            stdout=subprocess.PIPE,
            check=True,
        )
    found: dict[str, float] = json.loads(done.stdout)
    return found


def table(rows: list[dict[str, float]]) -> str:
    lines = [
        "| tasks | read+check, CPU s | started, CPU s | memory when started | engine us/task "
        "| slots us/task | tasks/s | peak memory | journal B/task |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for r in rows:
        lines.append(
            f"| {r['tasks']:,.0f} | {r['read_cpu_s']:.2f} | {r['started_cpu_s']:.2f} "
            f"| {r['started_peak_bytes'] / 1e6:.0f} MB | {r['engine_cpu_us_per_task']:.0f} "
            f"| {r['slots_cpu_us_per_task']:.0f} | {r['tasks_per_s']:.0f} "
            f"| {r['peak_bytes'] / 1e6:.0f} MB | {r['journal_bytes_per_task']:.0f} |"
        )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--sizes", default="1000,10000,100000")
    parser.add_argument("--json", type=Path, help="write the figures to this file too")
    parser.add_argument("--one", type=int, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.one:
        print(json.dumps(measure(given.one)))
        return
    rows = []
    for size in [int(text) for text in given.sizes.split(",")]:
        print(f"{size} tasks ...", file=sys.stderr)
        rows.append(in_a_process(size))
    first = rows[0]["engine_cpu_us_per_task"]
    ratios = {f"{r['tasks']:.0f}": r["engine_cpu_us_per_task"] / first for r in rows}
    result = {"benchmark": "scale", "rows": rows, "engine_cost_against_smallest": ratios}
    if given.json:
        given.json.write_text(json.dumps(result, indent=2) + "\n")
    print(table(rows))
    print(json.dumps(ratios))


if __name__ == "__main__":
    main()
