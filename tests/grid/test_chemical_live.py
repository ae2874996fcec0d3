"""Many workflows at once over many real peers, by molecules on a ring; some of the peers, which
hold molecules and run tasks, are killed. All finish, right, and commit each task once.

CHEMICAL_PEERS and CHEMICAL_WORKFLOWS make it smaller. Without `make soak`, which has more patience
with a command (SURELINE_PATIENCE_S), sixty peers that start on two cores can be too slow for one.
"""

from __future__ import annotations

import os
import subprocess
import time
from collections import Counter
from pathlib import Path

import pytest
from grid_lab import GRID, GridLab

from sureline.journal.errors import NoJournalError
from sureline.journal.events import COMMITS, Noted, TaskEnded
from sureline.journal.store import Journal
from sureline.peer import orphans
from sureline.testing import laws
from sureline.testing.live import COMMAND

PEERS = int(os.environ.get("CHEMICAL_PEERS", "60"))
WORKFLOWS = int(os.environ.get("CHEMICAL_WORKFLOWS", "40"))
KILLED = max(1, PEERS // 10)
PATIENCE_S = 2400.0
TASKS = 7
BATCH = 6
"""Peers that start at a time: each costs a second of a core."""
FLOW = """
name: squares
tasks:
  part:
    for: {i: [1, 2, 3]}
    run: sleep 15; echo {{i}} > part.{{i}}
    outputs: ["part.{{i}}"]
  square:
    for: {i: [1, 2, 3]}
    run: sleep 2; read n < part.{{i}}; echo $((n * n + NUMBER)) > square.{{i}}
    inputs: ["part.{{i}}"]
    outputs: ["square.{{i}}"]
  sum:
    run: sort -n square.* > sum.txt
    inputs: ["square.*"]
    outputs: [sum.txt]
"""


@pytest.mark.soak
@pytest.mark.parametrize("barriers", ["off", "on"])
def test_many_workflows_finish_while_holders_and_resources_are_killed(tmp_path, barriers):
    with GridLab(tmp_path / "lab") as lab:
        lab.where.mkdir()
        start(lab)
        places = [tmp_path / f"flow{number}" for number in range(WORKFLOWS)]
        drivers: list[subprocess.Popen[bytes]] = []
        try:
            for number, place in enumerate(places):
                drivers.append(drive(lab, number, place, barriers))
                wait_for(lambda place=place: events_of(place), "a run to be open", every_s=0.2)
            wait_for(lambda: done(places) >= WORKFLOWS, "some tasks to be done")
            for number in range(1, KILLED + 1):
                lab.peers[f"p{number * (PEERS // (KILLED + 1))}"].kill()
            wait_for(
                lambda: all(driver.poll() is not None for driver in drivers),
                "all runs to end",
                why=lambda: what_hinders(places),
            )
            codes = [driver.wait() for driver in drivers]
        finally:
            for driver, place in zip(drivers, places, strict=False):
                driver.kill()
                orphans.kill(f"{os.path.abspath(place / '.sureline')}:", prefix=True)
        told = [(place / "driver.err").read_text()[-500:] for place in places]
        failed = [t for t, code in zip(told, codes, strict=True) if code]
        assert not failed, f"{failed}; {what_hinders(places)}"
        for number, place in enumerate(places):
            right = "".join(f"{n * n + number}\n" for n in (1, 2, 3))
            assert (place / "sum.txt").read_text() == right
            events = events_of(place)
            assert not laws.broken(events, "chemical")
            assert laws.state(events) == "succeeded" and len(laws.committed(events)) == TASKS


def start(lab: GridLab) -> None:
    assert lab.do("p0", "grid", "new", GRID, "--peer", "p0").code == 0
    lab.serve("p0").ready()
    for first in range(1, PEERS, BATCH):
        names = [f"p{number}" for number in range(first, min(PEERS, first + BATCH))]
        for peer in [lab.join(name) for name in names]:
            peer.ready()
    wait_for(lambda: len(lab.present()) == PEERS, "all peers to be there", every_s=2.0)


def drive(lab: GridLab, number: int, place: Path, barriers: str) -> subprocess.Popen[bytes]:
    place.mkdir()
    (place / "flow.yaml").write_text(FLOW.replace("NUMBER", str(number)))
    run = ("run", "flow.yaml", "--grid", GRID, "--strategy", "chemical")
    with open(place / "driver.err", "wb") as log:
        return subprocess.Popen(
            [*COMMAND, *run, "--with", f"barriers={barriers}"],
            cwd=place,
            env={**os.environ, **lab.env("p0")},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=log,
            start_new_session=True,
        )


def wait_for(condition, what: str, every_s: float = 1.0, why=lambda: "") -> None:
    give_up = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < give_up, f"waited in vain for {what}: {why()}"
        time.sleep(every_s)


def what_hinders(places: list[Path]) -> str:
    """Of runs that did not succeed: how attempts ended and why, and what was said last."""
    found = []
    for place in places:
        events = events_of(place)
        if laws.state(events) != "succeeded":
            ends = Counter(
                f"{e.outcome}: {e.reason}"[:160]
                for e in events
                if isinstance(e, TaskEnded) and e.outcome not in COMMITS
            )
            notes = [e.said[:300] for e in events if isinstance(e, Noted)][-3:]
            found.append(f"{place.name}: {len(laws.committed(events))} done, {dict(ends)}, {notes}")
    return "\n".join(found)


def events_of(place: Path):
    try:
        with Journal.open(place / ".sureline", create=False, read_only=True) as journal:
            (run,) = journal.runs()
            return [entry.event for entry in journal.events(run.run)]
    except (NoJournalError, ValueError):
        return []


def done(places: list[Path]) -> int:
    return sum(
        isinstance(event, TaskEnded) and event.outcome in COMMITS
        for place in places
        for event in events_of(place)
    )
