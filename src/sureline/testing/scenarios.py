"""The simulated cases of the suite: a small grid, and one thing that befalls the run each time.

Two sites of two machines; for a strategy that spends money the second one asks a price. A strategy
for one machine has one machine. The seed is given by the suite, and repeats a case to the last
event.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from sureline.experiments.scenario import Scenario
from sureline.experiments.scenario_reader import read_scenario
from sureline.run.port import Strategy

TASKS = 18
BUDGET = 50.0

_GRID = """
duration = "2h"
[[grid.site]]
name = "a"
machines = 2
cores = 2
memory = "4GB"
[[grid.site]]
name = "b"
machines = 2
cores = 2
memory = "8GB"
{price}
[network]
delay = "lognormal(5ms, 0.5)"
{network}
"""
_MACHINE = """
duration = "2h"
[grid]
machines = 1
cores = 4
"""
_WORKLOAD = """
[workload]
kind = "layered"
tasks = {tasks}
levels = 4
work = "lognormal(20s, 0.4)"
retries = 3
strategy = "{strategy}"
{terms}
{budget}
"""

FAULTS = {
    "crash": """
[[faults.script]]
what = "crash"
whom = "b1"
at = "25s"
""",
    "machine restarts": """
[[faults.script]]
what = "crash"
whom = "peers"
count = 2
at = "25s"
for = "15s"
""",
    "driver restarts": """
[[faults.script]]
what = "kill"
whom = "submitter"
at = "30s"
for = "10s"
[[faults.script]]
what = "crash"
whom = "submitter"
at = "60s"
for = "10s"
""",
    "takeover": """
[[faults.script]]
what = "crash"
whom = "submitter"
at = "30s"
""",
    "cut off": """
[[faults.script]]
what = "partition"
groups = [["a", "submitter"], ["b"]]
at = "25s"
for = "60s"
""",
    "out of reach": """
[[faults.script]]
what = "cut"
groups = [["submitter"], ["b1"]]
at = "25s"
""",
    "deadline": """
[[faults.script]]
what = "slow"
whom = "a1"
factor = 0.05
at = "20s"
""",
}
NETWORKS = {"loss": "loss = 0.05\nduplication = 0.05\nreordering = true"}
TERMS = {
    "cancel": 'cancel = "30s"',
    "deadline": 'within = "12min"',
    "takeover": 'standbys = 1\nlook = "5s"',
}


def scenario_of(case: str, strategy: Strategy, settings: Mapping[str, Any]) -> Scenario:
    """A case, by its name in FAULTS, NETWORKS or TERMS; 'quiet' is none of them."""
    here = strategy.where == "here"
    price = "price = 2\ncancel_fee = 0.2" if strategy.spends else ""
    budget = f"budget = {BUDGET}" if strategy.spends else ""
    text = _MACHINE if here else _GRID.format(price=price, network=NETWORKS.get(case, ""))
    text += _WORKLOAD.format(
        tasks=TASKS, strategy=strategy.name, terms=TERMS.get(case, ""), budget=budget
    )
    if not (here and case == "deadline"):  # nobody else could do it in time
        text += FAULTS.get(case, "")
    read = read_scenario(text.encode(), file=f"{case}.toml", beside=None)
    workload = msgspec.structs.replace(read.workload, settings=dict(settings))
    return msgspec.structs.replace(read, workload=workload)
