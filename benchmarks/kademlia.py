"""The hash table and its broadcast, simulated and live, against the `kademlia` package.

Simulated: networks from 100 to 100,000 nodes: how long a join takes and what it costs, messages
and hops per lookup against log2 n, memory per node, gets before and after 30 % are killed at once,
and the broadcast's coverage, messages and latency; the same under churn of 5 % per minute.
Live: peers with real sockets and TLS in several processes, three in ten of which are killed; and
the `kademlia` package (plain UDP, no TLS) doing the same.

    python benchmarks/kademlia.py [--sizes 100,1000,10000] [--churn 1500] [--live 1500]
        [--processes 10] [--rival 1500] [--keys 2000] [--json FILE]
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import sys
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any


def alone(measure: Callable[..., dict[str, Any]], *arguments: object) -> dict[str, Any]:
    """Measure in a process of its own, whose memory is nobody else's."""
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        return pool.submit(measure, *arguments).result()


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--sizes", default="100,1000,10000", help="simulated nodes; '' for none")
    parser.add_argument("--churn", type=int, default=1500, help="simulated nodes under churn")
    parser.add_argument("--live", type=int, default=1500, help="live peers; 0 for none")
    parser.add_argument("--processes", type=int, default=10)
    parser.add_argument("--rival", type=int, default=1500, help="peers of the rival; 0 for none")
    parser.add_argument("--keys", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    chosen = parser.parse_args()

    from kademlia_grid import live, simulated

    figures: dict[str, Any] = {"cores": os.cpu_count(), "simulated": [], "churn": []}

    def tell(what: str, found: dict[str, Any]) -> None:
        print(what, json.dumps(found), file=sys.stderr, flush=True)

    for size in [int(size) for size in chosen.sizes.split(",") if size]:
        found = alone(simulated.measure, size, chosen.seed, chosen.keys)
        figures["simulated"].append(found)
        tell("simulated", found)
    if chosen.churn:
        for share, silent in ((0.0, False), (0.05, False), (0.05, True)):
            found = simulated.under_churn(chosen.churn, chosen.seed, share, silent=silent)
            figures["churn"].append(found)
            tell("churn", found)
    kill = round(0.3 * chosen.processes)
    if chosen.live:
        figures["live"] = live.measure(chosen.live, chosen.processes, keys=chosen.keys, kill=kill)
        tell("live", figures["live"])
    if chosen.rival:
        # A get of the rival's waits 5 s for each dead node, so many must wait at once.
        found = live.measure_rival(
            chosen.rival, chosen.processes, keys=chosen.keys, kill=kill, at_once=20
        )
        figures["rival"] = found
        tell("rival", found)
    text = json.dumps(figures, indent=2)
    print(text)
    if chosen.json:
        chosen.json.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
