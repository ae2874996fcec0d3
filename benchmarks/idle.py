"""What an idle grid costs: messages, bytes and processor time of every peer.

    python benchmarks/idle.py [--machines 100] [--minutes 10]
    python benchmarks/idle.py --live 20,60,200 [--seconds 30]

Simulated, per peer and minute: the tree of `peercomp` and the ring of `chemical` beside the
membership that every grid has. Messages and bytes do not depend on this machine then; processor
time is the simulation's, and a ratio to that of the membership alone.

Live, per peer and second: real peers with TLS on this machine, several to a process, as the heavy
tests host them (`tests/support/swarm.py`); after they have met, and nobody has work for them. Their
processor time, messages, connections opened and open, and memory. Prints JSON.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from sureline.experiments.grid import SimulatedGrid
from sureline.experiments.scenario_reader import read_scenario
from sureline.strategies import strategy

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests" / "support"))
from swarm import Swarm

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
SETTLE_LIVE_S = 20.0
PER_PROCESS = 20
FIGURES = ("bytes", "opened", "open")


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


def idle_live(peers: int, seconds: float) -> dict[str, object]:
    with (
        tempfile.TemporaryDirectory() as where,
        Swarm(Path(where), peers, PER_PROCESS, ()) as swarm,
    ):
        joined_s = swarm.usage()[0]
        time.sleep(SETTLE_LIVE_S + peers / 20)
        before, (settled_s, _) = swarm.traffic(), swarm.usage()
        began_s = time.monotonic()
        time.sleep(seconds)
        (cpu_s, held), after = swarm.usage(), swarm.traffic()
        each = peers * (time.monotonic() - began_s)
    done = {name: after[name] - before[name] for name in after}
    messages: Counter[str] = Counter()
    for tag, sent in done.items():
        if tag not in FIGURES:
            messages[tag.split(".")[0]] += sent
    return {
        "peers": peers,
        "cpu_ms": round(1000 * (cpu_s - settled_s) / each, 3),
        "messages": {name: round(sent / each, 3) for name, sent in messages.most_common()},
        "bytes": round(done["bytes"] / each),
        "connections_opened": round(done["opened"] / 2 / each, 4),
        "connections_open": round(after["open"] / peers, 1),
        "memory_mb": round(held / peers / 1e6, 1),
        "cpu_s_to_join": round(joined_s / peers, 3),
        "cpu_s_to_settle": round(settled_s / peers, 3),
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--machines", type=int, default=100)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--live", help="numbers of real peers, such as 20,60,200")
    parser.add_argument("--seconds", type=float, default=30.0, help="of looking at real peers")
    given = parser.parse_args()
    if given.live:
        live = [idle_live(int(peers), given.seconds) for peers in given.live.split(",")]
        print(json.dumps({"seconds": given.seconds, "per_peer_and_second": live}, indent=1))
        return
    cases: list[tuple[str, ...]] = [(), ("peercomp",), ("chemical",)]
    found = [idle(given.machines, given.minutes, names) for names in cases]
    print(json.dumps({"machines": given.machines, "per_peer_and_minute": found}, indent=1))


if __name__ == "__main__":
    main()
