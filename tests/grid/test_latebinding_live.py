"""Very many real pilots, three workflows at once with files; then the same with chaos: pilots
killed, stopped and cut off, the queue killed and started again, full caches, damaged files.

LATE_PILOTS, LATE_TASKS (of all three workflows together) and LATE_SECONDS (of a task) make it
smaller. What a task does is a timer (`swarm`).
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

import pytest
from blake3 import blake3
from grid_lab import GridLab, events_of
from surely import started, sureline
from swarm import GRID, Swarm, content

from sureline.journal.events import COMMITS, Noted, TaskEnded, TaskStarted
from sureline.testing import laws
from sureline.testing.live import COMMAND, until

PILOTS = int(os.environ.get("LATE_PILOTS", "1500"))
TASKS = int(os.environ.get("LATE_TASKS", "10000"))
SECONDS = float(os.environ.get("LATE_SECONDS", "20"))
PER_PROCESS = max(1, PILOTS // int(os.environ.get("LATE_PROCESSES", "10")))
PATIENCE_S = 5400.0
KINDS = ("serial", "splitting", "merging")


def reads_of(kind: str, tasks: int) -> dict[str, list[str]]:
    """Two steps, as in the paper: which files each task reads; each makes one."""
    first = {"serial": tasks // 2, "splitting": tasks // 3, "merging": tasks // 3 * 2}[kind]
    second = {"serial": first, "splitting": 2 * first, "merging": first // 2}[kind]
    found: dict[str, list[str]] = {f"a{n}": [] for n in range(first)}
    for n in range(second):
        reads = [2 * n, 2 * n + 1] if kind == "merging" else [n % first]
        found[f"b{n}"] = [f"a{k}.out" for k in reads]
    return found


def flow_of(kind: str, tasks: int) -> str:
    lines = [f"name: {kind}", "tasks:"]
    for name, inputs in reads_of(kind, tasks).items():
        files = f"inputs: [{', '.join(inputs)}], outputs: [{name}.out]"
        lines.append(f"  {name}: {{run: pause {SECONDS:g} 1000, {files}}}")
    return "\n".join(lines) + "\n"


def submit(swarm: Swarm, place: Path, kind: str, number: int) -> subprocess.Popen[bytes]:
    place.mkdir(parents=True)
    (place / "flow.yaml").write_text(flow_of(kind, TASKS // 3))
    with open(place / "driver.err", "wb") as log:
        return subprocess.Popen(
            [*COMMAND, "run", "flow.yaml", "--grid", GRID, "--strategy", "latebinding"],
            cwd=place,
            env=swarm.env(f"p{PILOTS - number}"),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=log,
        )


def pilots_there(swarm: Swarm) -> int:
    """Members that run tasks, as a guest hears of them."""
    said = subprocess.run(
        [*COMMAND, "peers", "--grid", GRID, "--json"],
        env=swarm.env("p1"), capture_output=True, text=True, timeout=600, check=False,
    )  # fmt: skip
    if said.returncode:
        return 0
    peers = json.loads(said.stdout)["peers"]
    return sum(peer["state"] == "alive" and peer["slots"] > 0 for peer in peers)


def all_done(swarm: Swarm, where: Path, meanwhile: Callable[[], None]) -> list[list[Any]]:
    """The events of three workflows that ran at once to a good end."""
    places = [where / "runs" / kind for kind in KINDS]
    until(lambda: pilots_there(swarm) >= PILOTS, "all pilots to be known", PATIENCE_S, 2.0)
    drivers = [submit(swarm, place, place.name, 1 + n) for n, place in enumerate(places)]
    try:
        meanwhile()
        give_up_at = time.monotonic() + PATIENCE_S
        while any(driver.poll() is None for driver in drivers):
            assert time.monotonic() < give_up_at, [events_of(p)[-1] for p in places]
            time.sleep(0.5)
    finally:
        for driver in drivers:
            driver.kill()
    for driver, place in zip(drivers, places, strict=True):
        assert driver.returncode == 0, (place / "driver.err").read_text()[-2000:]
    events = [events_of(place) for place in places]
    for one in events:
        assert not laws.broken(one, "latebinding")
        assert laws.state(one) == "succeeded"
    return events


def delays(events: list[list[Any]]) -> Iterator[float]:
    """Between two tasks of a pilot, of whichever run."""
    spans: dict[str, list[tuple[float, float]]] = {}
    for run in events:
        started = {(e.task, e.attempt): e.at for e in run if isinstance(e, TaskStarted)}
        for e in run:
            if isinstance(e, TaskEnded) and e.outcome in COMMITS and (e.task, e.attempt) in started:
                spans.setdefault(e.peer, []).append((started[e.task, e.attempt], e.at))
    for of_pilot in spans.values():
        ordered = sorted(of_pilot)
        yield from (later[0] - sooner[1] for sooner, later in pairwise(ordered))


@pytest.mark.soak
@pytest.mark.limit_s(7200)
def test_three_workflows_on_very_many_pilots(tmp_path: Path) -> None:
    with Swarm(tmp_path, PILOTS + 1, PER_PROCESS, ("north", "south")) as swarm:
        began_s = time.monotonic()
        events = all_done(swarm, tmp_path, lambda: None)
        took_s = time.monotonic() - began_s
        said = subprocess.run(
            [*COMMAND, "queue", "ls", "--grid", GRID, "--json"],
            env=swarm.env("p1"), capture_output=True, text=True, check=True, timeout=600,
        )  # fmt: skip
        requests = json.loads(said.stdout)["requests"]
        ended = [e for run in events for e in run if isinstance(e, TaskEnded)]
        lost, ended = len(ended), [e for e in ended if e.outcome in COMMITS]
        lost -= len(ended)
        waits = sorted(delays(events))
        reads = sum(len(e.inputs) for e in ended)
        here = sum(e.here_files for e in ended)
        peers = sum(e.peer_files for e in ended)
        alone = [e for run in events for e in run if isinstance(e, Noted) and "by itself" in e.said]
        found = {
            "pilots": PILOTS,
            "tasks": len(ended),
            "took_s": round(took_s, 1),
            "queue_requests_per_task": round(requests / len(ended), 3),
            "attempts_lost": lost,
            "median_delay_s": round(median(waits), 3),
            "mean_delay_s": round(sum(waits) / len(waits), 3),
            "delay_s_of_99_percent": round(waits[len(waits) * 99 // 100], 3),
            "hit_ratio": round((here + peers) / max(1, reads), 4),
            "local_hit_ratio": round(here / max(1, reads), 4),
            "placed_without_the_queue": len(alone),
            "cpu_s, bytes": swarm.usage(),
        }
        print(json.dumps(found), file=sys.__stderr__)
        assert requests <= len(ended) or TASKS < 1000  # registrations and signs of life count, too
        assert here + peers >= 0.99 * reads


@pytest.mark.soak
@pytest.mark.limit_s(7200)
def test_all_that_may_befall_pilots(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The queue is killed, then all pilots of a process, both masters among them; others are
    stopped for a while, others cut off though they go on. One cache of ten is full most of the
    time, and all files that a tenth of the pilots have made are damaged."""
    assert PILOTS >= 5 * PER_PROCESS, "five processes of pilots each suffer something else"
    killed, stopped, damaged, *cut_off = range(1, 1 + 5 * PER_PROCESS, PER_PROCESS)
    monkeypatch.setenv("SWARM_SMALL_EVERY", "10")
    with Swarm(tmp_path, PILOTS + 1, PER_PROCESS, ("north", "south")) as swarm:

        def chaos() -> None:
            places = [tmp_path / "runs" / kind for kind in KINDS]
            until(lambda: all(map(is_at_work, places)), "all runs to be at work", PATIENCE_S, 0.5)
            swarm.kill(0)  # the queue
            assert swarm.damage(damaged)
            time.sleep(SECONDS)
            swarm.kill(killed)
            swarm.stop(stopped)
            time.sleep(SECONDS)
            swarm.serve(0, 1)
            swarm.go_on(stopped)
            swarm.cut(*cut_off)
            time.sleep(SECONDS)
            swarm.cut()
            swarm.serve(killed, PER_PROCESS)

        events = all_done(swarm, tmp_path, chaos)
    ended = [event for run in events for event in run if isinstance(event, TaskEnded)]
    outcomes = Counter(event.outcome for event in ended)
    print(json.dumps({"pilots": PILOTS, "attempts": outcomes}), file=sys.__stderr__)
    for kind in KINDS:
        found = {path.name: path.read_bytes() for path in (tmp_path / "runs" / kind).glob("*.out")}
        assert found == right(kind), kind


def is_at_work(place: Path) -> bool:
    return any(isinstance(event, TaskEnded) for event in events_of(place))


def right(kind: str) -> dict[str, bytes]:
    """What an undisturbed run makes: it depends on names and inputs alone (`swarm`)."""
    made: dict[str, bytes] = {}
    for name, inputs in reads_of(kind, TASKS // 3).items():
        digests = {path: blake3(made[path]).hexdigest() for path in inputs}
        made[f"{name}.out"] = content(f"{name}.out", digests, 1000)
    return made


FLOW = """
name: pilots
params: {gate: /dev/null}
tasks:
  make:
    for: {i: 1..6}
    run: |
      until [ -e {{gate}} ]; do sleep 0.05; done
      echo {{i}} > made.{{i}}
    outputs: ["made.{{i}}"]
    requires: lifetime > 10min and site == "north"
  all:
    run: cat made.* > all.txt
    inputs: ["made.*"]
    outputs: [all.txt]
    rank: held() / size
"""


@pytest.mark.soak  # half a minute, most of it until peers notice who is gone
@pytest.mark.limit_s(300)
def test_a_queue_is_looked_at_changed_killed_and_started_again(tmp_path: Path) -> None:
    """Two real pilots and a queue of its own; a run is not lost with the queue, and says why its
    tasks are where they are."""
    where, gate = tmp_path / "work", tmp_path / "gate"
    where.mkdir()
    (where / "flow.yaml").write_text(FLOW)
    arguments = ("run", "flow.yaml", "--grid", GRID, "--strategy", "latebinding", "--json")
    with GridLab(tmp_path / "lab") as lab:
        (tmp_path / "lab").mkdir()
        assert lab.do("p0", "grid", "new", GRID, "--peer", "p0").code == 0
        lab.serve("p0", "--queue", "--slots=0").ready()
        for name in ("p1", "p2"):
            pilot = ("--pilot", "--lifetime", "1h", "--site", "north", "--slots=1")
            told = lab.join(name, *pilot).ready()
            assert told["pilot"] is True
        with started(where, *arguments, "--set", f"gate={gate}", env=lab.env("p1")) as run:
            queued = lambda: lab.do("p1", "queue", "ls", "--json").json["runs"]  # noqa: E731 - asked again and again
            left = lambda: sum(one["waiting"] + one["listed"] for one in queued())  # noqa: E731 - as above
            lab.until(left, "tasks to be left in the queue")
            (one,) = queued()
            assert (one["user"], one["priority"], one["share"]) == ("p1", 0, 1.0)
            said = lab.do("p1", "queue", "priority", one["run"], "5", "--json")
            assert said.json["runs"][0]["priority"] == 5
            said = lab.do("p2", "queue", "priority", one["run"], "6")
            assert said.code == 2 and "a run of p1" in said.err
            said = lab.do("p2", "queue", "share", "p1", "2")
            assert said.code == 0 and said.out.startswith("p1 has the share 2\n")
            said = lab.do("p2", "queue", "share", "stranger", "3")
            assert said.code == 0 and "nobody of that name" in said.out.splitlines()[0]
            lab.peers["p0"].kill()
            lab.serve("p0", "--queue", "--slots=0").ready()
            lab.until(lambda: queued() and queued()[0]["priority"] == 5, "the queue to remember")
            gate.touch()
            said = run.end()
        assert said.code == 0, said
        assert (where / "all.txt").read_text() == "1\n2\n3\n4\n5\n6\n"
        told = sureline(where, "explain", "last", "make:1").out
    assert "round " in told and "of site north" in told and "rank 0" in told, told
