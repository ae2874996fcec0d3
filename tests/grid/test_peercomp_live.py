"""Many workflows with deadlines over very many real peers; a tenth of the peers is killed.

PEERCOMP_PEERS and PEERCOMP_WORKFLOWS make it smaller. What a task does is a timer (`swarm`): some
seconds, and it may take twice as long as it likely does. Every workflow has its driver, a command
of its own, as users' would be; all share two cores with the peers, so they come one by one.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from grid_lab import events_of
from swarm import GRID, Swarm

from sureline.journal.events import TaskBound
from sureline.testing import laws
from sureline.testing.live import COMMAND

PEERS = int(os.environ.get("PEERCOMP_PEERS", "200"))
WORKFLOWS = int(os.environ.get("PEERCOMP_WORKFLOWS", "200"))
EVERY_S = float(os.environ.get("PEERCOMP_EVERY_S", "2.5"))
PER_PROCESS = max(1, PEERS // 20)
"""Two processes are a tenth of the peers."""
DRIVERS_MAX = 16
PATIENCE_S = 300.0
WITHIN_S = 120
FLOW = """
name: deadline
tasks:
  begin: {run: pause 2 100, outputs: [b], takes: 1s .. 2s .. 4s}
  part:
    for: {i: [2, 4, 6]}
    run: pause {{i}} 1000
    inputs: [b]
    outputs: ["part.{{i}}"]
    takes: 2s .. 6s .. 12s
  end: {run: pause 2 10, inputs: ["part.*"], outputs: [end], takes: 1s .. 2s .. 4s}
"""
TASKS = 5


@pytest.mark.soak
@pytest.mark.limit_s(7200)
def test_no_deadline_is_missed_but_where_a_peer_died(tmp_path: Path) -> None:
    with Swarm(tmp_path, PEERS, PER_PROCESS, ()) as swarm:
        _wait(lambda: _alive(swarm) == PEERS, "all know each other")
        places = [tmp_path / "runs" / f"w{number}" for number in range(WORKFLOWS)]
        killed: set[str] = set()
        codes: dict[int, int] = {}
        drivers: dict[int, subprocess.Popen[bytes]] = {}
        try:
            for number, place in enumerate(places):
                _reap(drivers, codes, DRIVERS_MAX - 1)
                drivers[number] = _submit(swarm, place, number)
                time.sleep(EVERY_S)
                if number in (WORKFLOWS // 3, 2 * WORKFLOWS // 3):
                    first = 1 + len(killed)
                    swarm.kill(first)
                    killed |= {f"p{n}" for n in range(first, first + PER_PROCESS)}
            _reap(drivers, codes, 0)
        finally:
            for driver in drivers.values():
                driver.kill()
        _wait(lambda: not swarm.promised(), f"nothing is promised any more: {swarm.promised()}")
        told = Counter(_verdict(place, codes[n], killed) for n, place in enumerate(places))
        spent = resource.getrusage(resource.RUSAGE_CHILDREN)
        drivers_s = (spent.ru_utime + spent.ru_stime) / WORKFLOWS
        print(dict(told), swarm.usage(), f"{drivers_s:.2f} s a driver", file=sys.__stderr__)
        assert not {one for one in told if one.startswith("bad")}, told
        assert told["in time"] + told["in time, though a peer died"] > 0.9 * WORKFLOWS, told


def _alive(swarm: Swarm) -> int:
    line = [*COMMAND, "peers", "--grid", GRID, "--json"]
    told = subprocess.run(line, env=swarm.env("p0"), capture_output=True, check=False)
    return told.stdout.count(b'"alive"') if told.returncode == 0 else 0


def _wait(holds: Callable[[], bool], what: str) -> None:
    give_up_at = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < give_up_at, what
        time.sleep(1.0)


def _submit(swarm: Swarm, place: Path, number: int) -> subprocess.Popen[bytes]:
    place.mkdir(parents=True)
    (place / "flow.yaml").write_text(FLOW)
    terms = ("--strategy", "peercomp", "--within", f"{WITHIN_S}s", "--takeover-after", "never")
    with open(place / "driver.err", "wb") as log:
        return subprocess.Popen(
            [*COMMAND, "run", "flow.yaml", "--grid", GRID, *terms],
            cwd=place,
            env=swarm.env(f"p{PEERS - 1 - number % (PEERS // 2)}"),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=log,
        )


def _reap(drivers: dict[int, subprocess.Popen[bytes]], codes: dict[int, int], most: int) -> None:
    give_up_at = time.monotonic() + PATIENCE_S
    while len(drivers) > most:
        assert time.monotonic() < give_up_at, f"{sorted(drivers)} do not end"
        for number in [n for n, driver in drivers.items() if driver.poll() is not None]:
            codes[number] = drivers.pop(number).returncode
        time.sleep(0.1)


def _verdict(place: Path, code: int, killed: set[str]) -> str:
    """What became of one workflow; `bad` if that must not be."""
    events = events_of(place)
    bound = {event.peer for event in events if isinstance(event, TaskBound)}
    if code == 3 and not bound:
        return "refused"
    if laws.broken(events, "peercomp") or len(laws.committed(events)) != TASKS:
        return "bad: " + (place / "driver.err").read_text()[-300:]
    if code == 0:
        return "in time, though a peer died" if bound & killed else "in time"
    return "late, since a peer died" if bound & killed and code == 3 else f"bad: exit code {code}"
