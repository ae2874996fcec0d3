"""The chemical strategy beside `spread` and `heft`: the same simulated grid, the same workflows.

    python benchmarks/chemical.py [--machines 20] [--seeds 1]

Prints JSON: for each case and strategy the mean and last makespan (virtual seconds), messages in
all and per task, the busiest node's, and each by that of `spread`. Everything is virtual, so the
machine's load does not matter.
"""

from __future__ import annotations

import argparse
import json
import sys
from statistics import fmean
from typing import Any

import msgspec

from sureline.experiments.drive import run_scenario
from sureline.experiments.scenario_reader import read_scenario

SCENARIO = """
duration = "8h"
[grid]
machines = {machines}
cores = 2
memory = "8GB"
[network]
delay = "lognormal(5ms, 0.5)"
[workload]
kind = "{kind}"
tasks = {tasks}
{levels}
work = "lognormal({work}, 0.6)"
strategy = "{strategy}"
runs = {runs}
every = "1s"
"""
CASES: dict[str, dict[str, Any]] = {
    "one workflow, 120 tasks of 20 s": {"kind": "layered", "tasks": 120, "work": "20s", "runs": 1},
    "six at once, 40 tasks of 20 s each": {
        "kind": "layered",
        "tasks": 40,
        "work": "20s",
        "runs": 6,
    },
    "six at once, 40 tasks of 1 s each": {
        "kind": "layered",
        "tasks": 40,
        "work": "1s",
        "runs": 6,
    },
    "three montages, 60 tasks each": {"kind": "montage", "tasks": 60, "work": "10s", "runs": 3},
}
RIVALS: dict[str, tuple[str, dict[str, str]]] = {
    "spread": ("spread", {}),
    "heft": ("heft", {}),
    "chemical": ("chemical", {}),
    "chemical, barriers": ("chemical", {"barriers": "on"}),
}


def measured(case: dict[str, Any], rival: str, machines: int, seeds: int) -> dict[str, float]:
    name, settings = RIVALS[rival]
    levels = "levels = 6" if case["kind"] == "layered" else ""
    text = SCENARIO.format(machines=machines, strategy=name, levels=levels, **case)
    scenario = read_scenario(text.encode(), file="chemical.toml", beside=None)
    workload = msgspec.structs.replace(scenario.workload, settings=settings)
    scenario = msgspec.structs.replace(scenario, workload=workload)
    means, lasts, messages, per_task, busiest = [], [], [], [], []
    for seed in range(1, seeds + 1):
        outcome = run_scenario(scenario, seed)
        broken = [check for check in outcome.checks if not check.held]
        assert not broken, broken
        spans = [run.makespan_s for run in outcome.runs]
        means.append(fmean(spans))
        lasts.append(max(spans))
        messages.append(outcome.traffic.messages)
        per_task.append(outcome.traffic.messages_per_task)
        busiest.append(outcome.traffic.busiest_messages)
    return {
        "makespan_mean_s": round(fmean(means), 1),
        "makespan_last_s": round(fmean(lasts), 1),
        "messages": round(fmean(messages)),
        "messages_per_task": round(fmean(per_task), 1),
        "busiest_node_messages": round(fmean(busiest)),
    }


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--machines", type=int, default=20)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--cases", type=int, default=len(CASES), help="only the first so many")
    given = parser.parse_args(arguments)
    found: dict[str, dict[str, dict[str, float]]] = {}
    for name, case in list(CASES.items())[: given.cases]:
        found[name] = {}
        for rival in RIVALS:
            print(f"{name}: {rival}", file=sys.stderr)
            one = measured(case, rival, given.machines, given.seeds)
            base = found[name].get("spread", one)
            ratios = {f"{key}_by_spread": round(one[key] / base[key], 2) for key in one}
            found[name][rival] = {**one, **ratios}
    print(json.dumps({"machines": given.machines, "seeds": given.seeds, "cases": found}, indent=1))


if __name__ == "__main__":
    main(sys.argv[1:])
