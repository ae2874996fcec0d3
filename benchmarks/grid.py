"""Sureline on a grid of peers against Dask (with and without TLS), Ray, Parsl and HyperQueue.

    python benchmarks/grid.py [--only sureline_spread,dask] [--workloads commands] [--scale 0.1]

10,000 no-op tasks and 2,000 commands through 4 peers of one core each, and 500 tasks that share
2 GB of inputs over 8. The contestants take turns, each in a network namespace of its own, so that
the bytes it moves can be told. Prints JSON: medians, Sureline's figures as ratios to each rival's,
all samples. Journal, signatures and TLS are on, as they always are. `rivals/stage.py` says how CPU
and bytes are measured, docs/benchmarks.md what the tasks are. Needs root, for the namespaces.
Exit code 1 if a Sureline failed anywhere; a rival's failure is told, not fatal.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import time
from dataclasses import asdict
from pathlib import Path
from statistics import median
from typing import Any

from local import machine, names, replace, say, told
from rivals import install, stage
from rivals.work import GRID_WORKLOADS

OURS = ("sureline_spread", "sureline_latebinding", "sureline_calls")
RIVALS = {"dask": "dask", "dask_tls": "dask", "ray": "ray", "parsl": "parsl"}
RIVALS["hyperqueue"] = "hyperqueue"
"""Whose environment each needs."""
CONTESTANTS = (*OURS, *RIVALS)
ENTERED = {
    "calls": CONTESTANTS,
    "commands": tuple(name for name in CONTESTANTS if name != "sureline_calls"),
    "shared": ("sureline_spread", "sureline_latebinding", "dask", "dask_tls"),
}
WORKERS = {"calls": 4, "commands": 4, "shared": 8}
FIGURES = ("per_s", "cpu_ms_per_task", "elapsed_s", "moved_bytes", "peak_bytes")
LIMIT_S = 1200.0


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", type=names(CONTESTANTS), default=list(CONTESTANTS))
    parser.add_argument("--workloads", type=names(GRID_WORKLOADS), default=list(GRID_WORKLOADS))
    parser.add_argument("--repeat", type=int, default=3, help="how often; medians are reported")
    parser.add_argument("--scale", type=float, default=1.0, help="0.02 for a quick look")
    parser.add_argument("--rivals", type=Path, default=install.default_directory())
    parser.add_argument("--json", type=Path, help="write it to this file, too")
    given = parser.parse_args()
    if given.repeat < 1 or not 0 < given.scale <= 100:
        parser.error("--repeat must be 1 or more, --scale above 0 and at most 100")
    if os.getuid() != 0:
        parser.error("it makes network namespaces: run it as root")
    return given


def environment(name: str, directory: Path) -> install.Environment:
    if name in OURS:
        return install.Environment(Path(sys.executable), {})
    return install.environment(RIVALS[name], directory)


def medians(samples: list[stage.Sample]) -> dict[str, dict[str, dict[str, float]]]:
    """workload -> contestant -> figure, over the samples that delivered."""
    found: dict[str, dict[str, dict[str, float]]] = {}
    for workload in GRID_WORKLOADS:
        for name in CONTESTANTS:
            figures = [
                sample.figures
                for sample in samples
                if (sample.contestant, sample.workload, sample.reason) == (name, workload, "")
            ]
            if figures:
                row = {key: median(one[key] for one in figures) for key in FIGURES}
                found.setdefault(workload, {})[name] = row
    return found


def ratios(figures: dict[str, dict[str, dict[str, float]]]) -> dict[str, Any]:
    """workload -> Sureline -> rival: its tasks a second, and bytes moved, as parts of theirs."""
    return {
        workload: {
            mine: {
                name: {
                    "per_s": row[mine]["per_s"] / theirs["per_s"],
                    "moved_bytes": row[mine]["moved_bytes"] / max(theirs["moved_bytes"], 1),
                }
                for name, theirs in row.items()
                if name not in OURS
            }
            for mine in OURS
            if mine in row
        }
        for workload, row in figures.items()
    }


def main() -> int:
    given = options()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended by a signal"))
    stage.become_subreaper()
    found = {name: environment(name, given.rivals.resolve()) for name in given.only}
    samples: list[stage.Sample] = []
    result: dict[str, Any] = {}
    for repeat in range(given.repeat):
        for workload in given.workloads:
            setting = stage.Setting(given.scale, WORKERS[workload], True, LIMIT_S)
            for name in (one for one in given.only if one in ENTERED[workload]):
                sample = stage.Sample(name, workload, repeat, found[name].reason)
                if not sample.reason:
                    sample = stage.play(name, found[name].python, workload, setting, repeat)
                samples.append(sample)
                say(f"  {workload:9}{name:17}{sample.reason or told(sample)}")
        figures = medians(samples)
        result = {
            "benchmark": "grid",
            "date": time.strftime("%Y-%m-%d", time.gmtime()),
            "repeat": repeat + 1,
            "scale": given.scale,
            "machine": machine(),
            "versions": {name: one.versions for name, one in found.items()},
            "medians": figures,
            "ratios": ratios(figures),
            "failures": [f"{s.workload} {s.contestant}: {s.reason}" for s in samples if s.reason],
            "samples": [asdict(sample) for sample in samples],
        }
        if given.json:  # after each repeat: a long run that is broken off is not lost
            replace(given.json, json.dumps(result, indent=2) + "\n")
    print(json.dumps(result, indent=2))
    return int(any(s.reason for s in samples if s.contestant in OURS))


if __name__ == "__main__":
    sys.exit(main())
