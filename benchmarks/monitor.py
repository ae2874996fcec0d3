"""What watching over a deadline costs: the same runs with the monitor on and off, taking turns.

    python benchmarks/monitor.py [--tasks 4000] [--repeat 5] [--workloads commands] [--json FILE]

Each run is a process of its own, on all cores. With a deadline, the forecast that comes before a
run is made first, as `sureline run` does; what is timed begins afterwards, with the run itself.
`commands` are shell commands that do nothing, `pauses` tasks that end at once, so that nothing but
the engine is at work; there are five times as many of these. Prints throughput (tasks per second),
the processor time of the driving process, and the medians of the ratios of runs that followed each
other. The target is a throughput that falls by less than 3 %.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

LOSS_MAX = 0.03
DEADLINE_S = 3600.0
LAYERS = 20
PAUSES_FACTOR = 5
WORKLOADS = ("commands", "pauses")


def options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--tasks", type=int, default=4000, help="in each run")
    parser.add_argument("--repeat", type=int, default=5, help="pairs of runs")
    parser.add_argument("--workloads", default=",".join(WORKLOADS))
    parser.add_argument("--json", type=Path, help="write all samples and figures to this file")
    parser.add_argument("--child", nargs=2, help=argparse.SUPPRESS)
    given = parser.parse_args(arguments)
    given.workloads = given.workloads.split(",")
    if given.tasks < 1 or given.repeat < 1 or set(given.workloads) - set(WORKLOADS):
        parser.error(f"--tasks and --repeat must be above 0, --workloads of {', '.join(WORKLOADS)}")
    return given


def child(workload: str, watched: bool, tasks: int) -> dict[str, float]:
    """One run; tasks per second, and this process's seconds of processor time."""
    from sureline.compose import HOME, run_workflow
    from sureline.compose.terms import before, verdict
    from sureline.peer.capacity import this_machine
    from sureline.run.options import Options
    from sureline.workflow.model import Command, Graph, Pause, Task

    action = Command("true") if workload == "commands" else Pause(0.0)
    tasks *= PAUSES_FACTOR if workload == "pauses" else 1
    width = max(1, tasks // LAYERS)
    graph = Graph(
        "monitor",
        [
            Task(f"t_{i}", action, after=(f"t_{i - width}",) if i >= width else ())
            for i in range(tasks)
        ],
    )
    with tempfile.TemporaryDirectory() as name:
        where = Path(name)
        machine = this_machine(where)
        asked = Options(deadline_at=time.time() + DEADLINE_S) if watched else Options()
        if watched:
            verdict(graph, machine, before(graph, where / HOME, fresh=True), asked.terms)
        before_s = time.process_time()
        outcome = run_workflow(graph, where, machine, asked)
        assert outcome.state == "succeeded", outcome
        return {
            "tasks_per_s": tasks / outcome.elapsed_s,
            "cpu_s": time.process_time() - before_s,
        }


def play(given: argparse.Namespace, workload: str, watched: bool) -> dict[str, float]:
    how = "watched" if watched else "plain"
    command = [sys.executable, __file__, "--tasks", str(given.tasks), "--child", workload, how]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    figures: dict[str, float] = json.loads(done.stdout)
    told = "  ".join(f"{name} {value:.4g}" for name, value in figures.items())
    print(f"  {workload:9}{how:8}{told}", file=sys.stderr, flush=True)
    return figures


def judged(pairs: list[tuple[dict[str, float], dict[str, float]]]) -> dict[str, Any]:
    """`pairs` of figures, plain and watched."""
    throughput = median(on["tasks_per_s"] / off["tasks_per_s"] for off, on in pairs)
    return {
        "plain_tasks_per_s": median(off["tasks_per_s"] for off, _ in pairs),
        "watched_tasks_per_s": median(on["tasks_per_s"] for _, on in pairs),
        "throughput_ratio": round(throughput, 4),
        "cpu_ratio": round(median(on["cpu_s"] / off["cpu_s"] for off, on in pairs), 4),
        "target_met": throughput > 1 - LOSS_MAX,
    }


def main(arguments: Sequence[str] | None = None) -> int:
    given = options(arguments)
    if given.child:
        workload, how = given.child
        print(json.dumps(child(workload, how == "watched", given.tasks)))
        return 0
    samples = {
        workload: [
            (play(given, workload, False), play(given, workload, True)) for _ in range(given.repeat)
        ]
        for workload in given.workloads
    }
    found = {
        "tasks": given.tasks,
        "loss_max": LOSS_MAX,
        "workloads": {workload: judged(pairs) for workload, pairs in samples.items()},
    }
    print(json.dumps(found, indent=2))
    if given.json:
        given.json.write_text(json.dumps({**found, "samples": samples}, indent=2))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
