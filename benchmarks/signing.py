"""What signed runs cost: this version against one that does not sign, on grids of loopback peers.

    python benchmarks/signing.py --before SRC [--rounds 6] [--commands 400] [--json FILE]

SRC is the `src` of an earlier checkout (`git worktree add /tmp/before REVISION`). Both grids serve
at the same time, three peers each, and take turns: each round runs the same workflow of commands
that do nothing once on either, in changing order. Prints JSON: commands per second, CPU seconds of
driver and peers per 1,000 commands (together, and apart), bytes of a keeper's copy per event; and
of each the ratio, as the median over the pairs. The machine's other load meets both of a pair.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import median
from typing import Any

from sureline.journal.store import Journal
from sureline.testing.live import GRID, LiveGrid

PEERS = 3
FLOW = "name: nothing\ntasks:\n  t:\n    for: {i: [NUMBERS]}\n    run: 'true'\n"
VERSIONS = ("before", "signed")


@contextmanager
def version(source: str | None) -> Iterator[None]:
    """Commands and peers that are started now are of this version."""
    earlier = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = source or str(Path(__file__).parent.parent / "src")
    try:
        yield
    finally:
        if earlier is None:
            del os.environ["PYTHONPATH"]
        else:
            os.environ["PYTHONPATH"] = earlier


def cpu_s(pids: list[int]) -> float:
    """What these processes, and their children that ended, have used so far."""
    ticks = 0
    for pid in pids:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        ticks += sum(map(int, fields[11:15]))
    return ticks / os.sysconf("SC_CLK_TCK")


def children_cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def kept_bytes(grid: LiveGrid, run: str) -> list[int]:
    found = [peer.root / "kept" / run / "events" for peer in grid.peers.values()]
    return [path.stat().st_size for path in found if path.exists()]


def measured(grid: LiveGrid, where: Path, commands: int) -> dict[str, float]:
    where.mkdir()
    numbers = ", ".join(map(str, range(commands)))
    (where / "flow.yaml").write_text(FLOW.replace("NUMBERS", numbers))
    pids = [peer.process.pid for peer in grid.peers.values()]
    peers_s, driver_s, began_s = cpu_s(pids), children_cpu_s(), time.perf_counter()
    said = grid.do("p0", "run", "flow.yaml", "--grid", GRID, "--json", where=where)
    took_s = time.perf_counter() - began_s
    peers_s, driver_s = cpu_s(pids) - peers_s, children_cpu_s() - driver_s
    assert said.code == 0, said
    run = said.json["run"]
    with Journal.open(where / ".sureline", read_only=True) as journal:
        events = sum(1 for _ in journal.events(run))
    return {
        "commands_per_s": commands / took_s,
        "cpu_s_per_1000": 1000 * (driver_s + peers_s) / commands,
        "driver_cpu_s_per_1000": 1000 * driver_s / commands,
        "peers_cpu_s_per_1000": 1000 * peers_s / commands,
        "bytes_per_event": max(kept_bytes(grid, run)) / events,
    }


def compared(sources: dict[str, str | None], rounds: int, commands: int) -> dict[str, Any]:
    runs: dict[str, list[dict[str, float]]] = {name: [] for name in VERSIONS}
    with tempfile.TemporaryDirectory() as place, ExitStack() as stack:
        grids = {}
        for name in VERSIONS:
            (Path(place) / name / "lab").mkdir(parents=True)
            grids[name] = stack.enter_context(LiveGrid(Path(place) / name / "lab"))
            with version(sources[name]):
                grids[name].start(PEERS)
        for number in range(rounds + 1):
            for name in VERSIONS if number % 2 else reversed(VERSIONS):
                with version(sources[name]):
                    where = Path(place) / name / f"run{number}"
                    found = measured(grids[name], where, commands)
                if number:  # the first is to warm up
                    runs[name].append(found)
                    print(name, found, file=sys.stderr)
    pairs = list(zip(runs["before"], runs["signed"], strict=True))
    return {
        "peers": PEERS,
        "commands": commands,
        "rounds": rounds,
        "figures": {
            figure: {
                **{name: round(median(r[figure] for r in runs[name]), 3) for name in VERSIONS},
                "ratio": round(median(b[figure] / a[figure] for a, b in pairs), 4),
                "ratios": [round(b[figure] / a[figure], 3) for a, b in pairs],
            }
            for figure in runs["signed"][0]
        },
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--before", required=True, help="src of a checkout that does not sign")
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--commands", type=int, default=400)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    found = compared({"before": given.before, "signed": None}, given.rounds, given.commands)
    text = json.dumps(found, indent=2)
    print(text)
    if given.json is not None:
        given.json.write_text(text + "\n")


if __name__ == "__main__":
    main()
