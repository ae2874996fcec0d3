"""What an idle grid costs: messages, bytes and processor time of every peer and minute. The tree of
`peercomp` and the ring of `chemical` stand beside the membership that every grid has.

    python benchmarks/idle.py [--machines 100] [--minutes 10]

Simulated, so messages and bytes do not depend on this machine; processor time is the simulation's,
and a ratio to that of the membership alone. Prints JSON.
"""

from __future__ import annotations

import argparse
import json
import time
from collections import Counter

from sureline.experiments.grid import SimulatedGrid
from sureline.experiments.scenario_reader import read_scenario
from sureline.strategies import strategy

SCENARIO = """
duration = "8h"
[grid]
machines = {machines}
cores = 2
memory = "8GB"
[network]
delay = "lognormal(5ms, 0.5)"
[workload]
kind = "layered"
tasks = 1
"""
SETTLE_S = 120.0


def idle(machines: int, minutes: float, names: tuple[str, ...]) -> dict[str, object]:
    text = SCENARIO.format(machines=machines)
    scenario = read_scenario(text.encode(), file="idle.toml", beside=None)
    grid = SimulatedGrid(scenario, 1, None, [strategy(name) for name in names])
    grid.boot_peers()
    grid.sim.run(until=SETTLE_S)
    kinds = grid.sim.counters.by_type().items()
    before = {tag: (one.sent, one.sent_bytes) for tag, one in kinds}
    began_s = time.process_time()
    grid.sim.run(until=SETTLE_S + 60 * minutes)
    cpu_s = time.process_time() - began_s
    messages: Counter[str] = Counter()
    sizes: Counter[str] = Counter()
    for tag, now in grid.sim.counters.by_type().items():
        whose, (sent, sent_bytes) = tag.split(".")[0], before.get(tag, (0, 0))
        messages[whose] += now.sent - sent
        sizes[whose] += now.sent_bytes - sent_bytes
    each = machines * minutes
    return {
        "strategies": names,
        "messages": {name: round(count / each, 1) for name, count in messages.most_common()},
        "bytes": {name: round(size / each) for name, size in sizes.most_common()},
        "cpu_ms": round(1000 * cpu_s / each, 2),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--machines", type=int, default=100)
    parser.add_argument("--minutes", type=float, default=10.0)
    given = parser.parse_args()
    cases: list[tuple[str, ...]] = [(), ("peercomp",), ("chemical",)]
    found = [idle(given.machines, given.minutes, names) for names in cases]
    print(json.dumps({"machines": given.machines, "per_peer_and_minute": found}, indent=1))


if __name__ == "__main__":
    main()
