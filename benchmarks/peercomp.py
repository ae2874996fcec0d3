"""Finding time for workflows: the tree against an oracle, random probing and the least loaded; what
a message costs from a thousand nodes to a million; what rarer updates save and cost; what it
brings that neighbours in the tree are near each other; and whom policies favour.

    python benchmarks/peercomp.py rivals [--nodes 10000] [--loads 0.7,0.9,1.0] [--minutes 3]
    python benchmarks/peercomp.py scale [--nodes 1000,10000,100000,1000000] [--minutes 2]
    python benchmarks/peercomp.py updates [--nodes 10000] [--every 1,2,5,10,30,60] [--minutes 3]
    python benchmarks/peercomp.py locality [--nodes 10000] [--minutes 3]
    python benchmarks/peercomp.py policies [--nodes 3000] [--loads 2.0] [--minutes 30]

All ways of one load start from the same loaded state and get the same workflows. Prints JSON.
"""

from __future__ import annotations

import argparse
import json
import math
import resource
import sys
import time
from random import Random
from statistics import median

import msgspec

from sureline.experiments.peercomp_grid import Grid
from sureline.experiments.peercomp_policies import POLICIES, policy_compared
from sureline.experiments.peercomp_rivals import WAYS, rivalry
from sureline.experiments.peercomp_sweeps import SweepSettings
from sureline.experiments.peercomp_warm import drawn, settled, state_of

SITE = 100
"""Peers that are near each other."""


def rivals(nodes: int, loads: list[float], minutes: float, seed: int) -> dict[str, object]:
    found = []
    for load in loads:
        donors = state_of(settled(load, seed))
        for way in WAYS:
            one = rivalry(drawn(donors, nodes, seed), way, load, seed + 1, minutes)
            found.append(one)
            print(one, file=sys.stderr, flush=True)
    best = {one.load: one.accepted for one in found if one.way == "oracle"}
    return {
        "rivals": [msgspec.to_builtins(one) for one in found],
        "of_the_oracle": {
            str(one.load): one.accepted / best[one.load] for one in found if one.way == "tree"
        },
    }


def scale(nodes: list[int], minutes: float, seed: int) -> dict[str, object]:
    donors, rows = state_of(settled(1.0, seed)), []
    for count in nodes:
        began_s = time.process_time()
        warm = drawn(donors, count, seed)
        grid = Grid(count, seed + 2, state=warm.queues, epoch_s=warm.time_s)
        built_s, began = time.process_time() - began_s, time.process_time()
        wall = time.monotonic()
        grid.begin(1.0, minutes * 60)
        grid.run(minutes * 60)
        cpu_s = time.process_time() - began
        placed = [one.booked for one in grid.finished if not one.booked.reason]
        updates = grid.sweeps.updates if grid.sweeps is not None else 0
        messages = int(grid.tally.total[2].sum())
        requests = max(1, sum(booked.requests for booked in placed))
        row = {
            "nodes": count, "height": grid.shape.height, "workflows": len(grid.finished),
            "accepted": len(placed) / max(1, len(grid.finished)), "missed": grid.missed(),
            "messages": messages, "updates": updates, "built_cpu_s": round(built_s, 1),
            "cpu_s": round(cpu_s, 1), "wall_s": round(time.monotonic() - wall, 1),
            "cpu_us_per_message": round(1e6 * cpu_s / max(1, messages), 2),
            "messages_per_allocation": (messages - updates) / max(1, len(grid.finished)),
            "hops_per_request": sum(b.hops for b in placed) / requests,
            "allocation_median_s": median([b.took_s for b in placed] or [math.nan]),
            "peak_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
        }  # fmt: skip
        print(row, file=sys.stderr, flush=True)
        rows.append(row)
    return {"scale": rows}


def updates(
    nodes: int, every_s: list[float], load: float, minutes: float, seed: int
) -> dict[str, object]:
    """What is known at a branch is as old as news take to rise: two levels with every update."""
    donors, rows = state_of(settled(load, seed)), []
    for period_s in every_s:
        warm, sweeping = drawn(donors, nodes, seed), SweepSettings(every_s=period_s)
        grid = Grid(nodes, seed + 2, state=warm.queues, epoch_s=warm.time_s, sweeping=sweeping)
        grid.begin(load, minutes * 60)
        grid.run(minutes * 60 + 60.0)
        placed = [one.booked for one in grid.finished if not one.booked.reason]
        assert grid.sweeps is not None
        each = nodes * (minutes * 60 + 60.0)
        row = {
            "every_s": period_s, "workflows": len(grid.finished),
            "accepted": len(placed) / max(1, len(grid.finished)), "missed": grid.missed(),
            "updates_per_node_and_s": grid.sweeps.updates / each,
            "bytes_per_node_and_s": float(grid.tally.total[0].sum()) / each,
            "hops_per_request": sum(b.hops for b in placed) / sum(b.requests for b in placed),
            "allocation_median_s": median([b.took_s for b in placed] or [math.nan]),
        }  # fmt: skip
        print(row, file=sys.stderr, flush=True)
        rows.append(row)
    return {"load": load, "updates": rows}


def locality(nodes: int, minutes: float, seed: int) -> dict[str, object]:
    """Sites of SITE peers: as neighbours in the tree, and shuffled."""
    donors, rows = state_of(settled(1.0, seed)), []
    places = list(range(nodes))
    for order in ("by address", "shuffled"):
        if order == "shuffled":
            Random(seed).shuffle(places)
        sites = [f"s{place // SITE}" for place in places]
        warm = drawn(donors, nodes, seed)
        grid = Grid(nodes, seed + 2, state=warm.queues, epoch_s=warm.time_s, sites=sites)
        grid.begin(1.0, minutes * 60)
        grid.run(minutes * 60 + 60.0)
        placed = [one.booked for one in grid.finished if not one.booked.reason]
        took_s = sorted(booked.took_s for booked in placed)
        row = {
            "leaves": order, "workflows": len(grid.finished),
            "accepted": len(placed) / max(1, len(grid.finished)), "missed": grid.missed(),
            "allocation_median_s": median(took_s), "allocation_90_s": took_s[len(took_s) * 9 // 10],
            "hops_per_request": sum(b.hops for b in placed) / sum(b.requests for b in placed),
        }  # fmt: skip
        print(row, file=sys.stderr, flush=True)
        rows.append(row)
    return {"site": SITE, "locality": rows}


def policies(nodes: int, load: float, minutes: float, seed: int) -> dict[str, object]:
    donors, rows = state_of(settled(load, seed)), []
    for policy, aims in POLICIES:
        one = policy_compared(drawn(donors, nodes, seed), policy, aims, load, seed + 1, minutes)
        print(one, file=sys.stderr, flush=True)
        rows.append(msgspec.to_builtins(one))
    return {"policies": rows}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=["rivals", "scale", "updates", "locality", "policies"])
    parser.add_argument("--nodes", default="")
    parser.add_argument("--loads", default="")
    parser.add_argument("--every", default="1,2,5,10,30,60")
    parser.add_argument("--minutes", type=float, default=0.0)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    usual = "2.0" if given.what == "policies" else "0.7,0.9,1.0"
    loads = [float(load) for load in (given.loads or usual).split(",")]
    if given.what == "updates":
        every_s = [float(period_s) for period_s in given.every.split(",")]
        count, minutes = int(given.nodes or 10_000), given.minutes or 3.0
        made = updates(count, every_s, loads[-1], minutes, given.seed)
    elif given.what == "policies":
        nodes, minutes = int(given.nodes or 3000), given.minutes or 30.0
        made = policies(nodes, loads[-1], minutes, given.seed)
    elif given.what == "locality":
        made = locality(int(given.nodes or 10_000), given.minutes or 3.0, given.seed)
    elif given.what == "rivals":
        made = rivals(int(given.nodes or 10_000), loads, given.minutes or 3.0, given.seed)
    else:
        counts = [int(n) for n in (given.nodes or "1000,10000,100000,1000000").split(",")]
        made = scale(counts, given.minutes or 2.0, given.seed)
    print(json.dumps(made, indent=1))


if __name__ == "__main__":
    main()
