"""Many workflows at once over many real peers, by molecules on a ring; some of the peers, which
hold molecules and run tasks, are killed. All finish, right, and commit each task once.

CHEMICAL_PEERS, CHEMICAL_WORKFLOWS and CHEMICAL_PART_S make it smaller. What a task does is a timer
(`swarm`).
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections import Counter
from functools import partial
from pathlib import Path

import pytest
from blake3 import blake3
from grid_lab import events_of
from swarm import GRID, Swarm, content

from sureline.journal.events import COMMITS, Noted, PeerJoined, TaskBound, TaskEnded
from sureline.testing import laws
from sureline.testing.live import COMMAND

PEERS = int(os.environ.get("CHEMICAL_PEERS", "60"))
WORKFLOWS = int(os.environ.get("CHEMICAL_WORKFLOWS", "40"))
PER_PROCESS = max(1, PEERS // 12)
"""Peers that share an interpreter, and die together."""
STARTING_MAX = 2
"""Drivers that have yet to meet the peers: forty interpreters at once on two cores, each with its
handshakes, are too slow to be heard."""
KILLED = (1, 1 + 3 * PER_PROCESS)
"""The first peer of each process that is killed; none has the home of a driver."""
PART_S = float(os.environ.get("CHEMICAL_PART_S", "75"))
"""Long enough for all runs to begin before the first has ended."""
PATIENCE_S = 2400.0
LOOK_S = 5.0
"""From one reading of all journals to the next."""
PARTS = (1, 2, 3)
TASKS = 7
FLOW = """
name: squares
tasks:
  part:
    for: {i: [1, 2, 3]}
    run: pause SECONDS NUMBER
    outputs: ["part.{{i}}"]
  square:
    for: {i: [1, 2, 3]}
    run: pause 2 100
    inputs: ["part.{{i}}"]
    outputs: ["square.{{i}}"]
  sum: {run: pause 1 100, inputs: ["square.*"], outputs: [sum]}
"""


@pytest.mark.soak
@pytest.mark.limit_s(5000)
@pytest.mark.parametrize("barriers", ["off", "on"])
def test_many_workflows_finish_while_holders_and_resources_are_killed(
    tmp_path: Path, barriers: str
) -> None:
    places = [tmp_path / "runs" / f"w{number}" for number in range(WORKFLOWS)]
    drivers: list[subprocess.Popen[bytes]] = []
    wait = partial(wait_for, places=places, drivers=drivers)
    with Swarm(tmp_path, PEERS, PER_PROCESS, ()) as swarm:
        try:
            for number, place in enumerate(places):
                drivers.append(drive(swarm, number, place, barriers))
                if number >= STARTING_MAX:
                    one = places[number - STARTING_MAX]
                    wait(lambda one=one: has_met(one), "a run to meet the peers")
            last = places[-STARTING_MAX:]
            wait(lambda: all(map(has_met, last)), "the last runs to meet the peers")
            assert not any(driver.poll() == 0 for driver in drivers), "not all at once"
            for tasks, first in zip((WORKFLOWS, 4 * WORKFLOWS), KILLED, strict=True):
                wait(lambda tasks=tasks: done(places) >= tasks, "some tasks", LOOK_S)
                swarm.kill(first)
            wait(lambda: all(one.poll() is not None for one in drivers), "the end")
        finally:
            for driver in drivers:
                driver.kill()
        codes = [driver.wait() for driver in drivers]
        print(swarm.usage(), file=sys.__stderr__)
    assert not any(codes), what_hinders(places)
    killed = {f"p{first + n}" for first in KILLED for n in range(PER_PROCESS)}
    bound_there = 0
    for number, place in enumerate(places):
        events = events_of(place)
        assert not laws.broken(events, "chemical")
        assert laws.state(events) == "succeeded" and len(laws.committed(events)) == TASKS
        assert (place / "sum").read_bytes() == right(number)
        bound_there += sum(isinstance(e, TaskBound) and e.peer in killed for e in events)
    assert bound_there, "nothing ran where peers were killed"


def drive(swarm: Swarm, number: int, place: Path, barriers: str) -> subprocess.Popen[bytes]:
    place.mkdir(parents=True)
    flow = FLOW.replace("SECONDS", f"{PART_S:g}").replace("NUMBER", str(100 + number))
    (place / "flow.yaml").write_text(flow)
    run = ("run", "flow.yaml", "--grid", GRID, "--strategy", "chemical")
    with open(place / "driver.err", "wb") as log:
        return subprocess.Popen(
            [*COMMAND, *run, "--with", f"barriers={barriers}"],
            cwd=place,
            env=swarm.env(f"p{PEERS - 1 - number % (PEERS // 2)}"),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=log,
        )


def has_met(place: Path) -> bool:
    return any(isinstance(event, PeerJoined) for event in events_of(place))


def right(number: int) -> bytes:
    """What a workflow's last file must be, worked out here."""
    parts = {i: content(f"part.{i}", {}, 100 + number) for i in PARTS}
    squares = {
        f"square.{i}": content(f"square.{i}", {f"part.{i}": blake3(part).hexdigest()}, 100)
        for i, part in parts.items()
    }
    return content("sum", {path: blake3(data).hexdigest() for path, data in squares.items()}, 100)


def wait_for(condition, what: str, every_s=0.5, *, places: list[Path], drivers) -> None:
    give_up = time.monotonic() + PATIENCE_S
    while not condition():
        in_vain = time.monotonic() >= give_up or any(driver.poll() for driver in drivers)
        assert not in_vain, f"waited in vain for {what}: {what_hinders(places)}"
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
            said = place / "driver.err"
            told = said.read_text()[-500:] if said.exists() else "not begun"
            of = f"{place.name}: {len(laws.committed(events))} done"
            found.append(f"{of}, {dict(ends)}, {notes}, {told}")
    return "\n".join(found)


def done(places: list[Path]) -> int:
    return sum(
        isinstance(event, TaskEnded) and event.outcome in COMMITS
        for place in places
        for event in events_of(place)
    )
