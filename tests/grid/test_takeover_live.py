"""Real runs whose drivers die: taken over by one, and by peers without anybody's word."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import pytest
from grid_lab import GRID, GridLab
from raw_copies import raw_events, voters_in
from surely import started, until

from sureline.journal.away import Away
from sureline.journal.errors import NoJournalError
from sureline.journal.events import (
    COMMITS,
    Opened,
    RunEnded,
    TaskEnded,
    TaskRevoked,
    TaskStarted,
)
from sureline.journal.store import Journal
from sureline.peer import orphans
from sureline.run.grant import OWN

ALL = "run,submit,drive"
AT_ONCE = 4
FLOW = """
name: many
tasks:
  part:
    for: {i: 1..COUNT}
    run: sleep 0.5; echo {{i}} > part.{{i}}
    outputs: ["part.{{i}}"]
  all:
    run: cat part.* given | sort -n > all.txt
    inputs: ["part.*", given]
    outputs: [all.txt]
"""
GATED = """
name: gated
tasks:
  early:
    for: {i: [1, 2, 3, 4]}
    run: echo $$ > early.{{i}}
    outputs: ["early.{{i}}"]
  late:
    run: 'until [ -e GATE ]; do sleep 0.05; done; cat early.* > late'
    inputs: ["early.*"]
    outputs: [late]
"""


def events(where: Path, run: str) -> list:
    with Journal.open(where / ".sureline", create=False, read_only=True) as journal:
        return [entry.event for entry in journal.events(run)]


def entries(where: Path, run: str) -> dict:
    with Journal.open(where / ".sureline", create=False, read_only=True) as journal:
        return {entry.position: entry.event for entry in journal.events(run)}


def newest(where: Path) -> str:
    with Journal.open(where / ".sureline", create=False, read_only=True) as journal:
        return journal.runs()[-1].run


def commits(found: list) -> list[str]:
    return [e.task for e in found if isinstance(e, TaskEnded) and e.outcome in COMMITS]


def begin(lab: GridLab, count: int) -> None:
    assert lab.do("p0", "grid", "new", GRID, "--peer", "p0").code == 0
    lab.serve("p0").ready()
    joining = [lab.join(f"p{i}", role=ALL) for i in range(1, count)]
    for peer in joining:
        peer.ready()
    lab.until_present({f"p{i}" for i in range(count)})


def test_of_two_who_resume_at_once_one_drives_and_nothing_finished_runs_again(tmp_path):
    """Both took epoch 2, and each ran what was left."""
    where, other, gate = tmp_path / "work", tmp_path / "other", tmp_path / "gate"
    for folder in (where, other, tmp_path / "lab"):
        folder.mkdir()
    (where / "flow.yaml").write_text(GATED.replace("GATE", str(gate)))
    with GridLab(tmp_path / "lab") as lab:
        begin(lab, 4)
        with started(where, "run", "flow.yaml", "--grid", GRID, env=lab.env("p0")) as run:
            until((where / "early.1").exists)
            until(lambda: len(commits(events(where, newest(where)))) == 4, "the early ones")
            name = newest(where)
            lab.until(lambda: kept_by(lab, name) >= 3, "keepers that vote")
            run.kill()
        before = set(commits(events(where, name)))
        with (
            started(where, "resume", name, env=lab.env("p0")) as here,
            started(other, "resume", name, "--grid", GRID, env=lab.env("p1")) as there,
        ):
            until(lambda: "late" in at_work(where, name) | at_work(other, name), "one to drive")
            gate.touch()
            codes = {here.end().code, there.end().code}
        assert 0 in codes and codes <= {0, 1, 2}, codes
        union = entries(where, name)
        for position, event in entries(other, name).items() if has(other, name) else ():
            assert union.setdefault(position, event) == event, "they contradict each other"
        done = commits(list(union.values()))
        assert sorted(done) == sorted(set(done)) and before <= set(done)
        epochs = [e.epoch for e in union.values() if isinstance(e, Opened)]
        assert len(epochs) == len(set(epochs))


GIVEN = """
name: given
tasks:
  early: {run: echo early > early, outputs: [early]}
  late:
    run: 'until [ -e GATE ]; do sleep 0.05; done; cat early > late'
    inputs: [early]
    outputs: [late]
  last: {run: cat late given > last, inputs: [late, given], outputs: [last]}
"""


def submitted(lab: GridLab, home: str, where: Path, gate: Path) -> tuple[str, int]:
    """A run that needs its machine no more, and the process that drives it."""
    where.mkdir()
    (where / "flow.yaml").write_text(GIVEN.replace("GATE", str(gate)))
    (where / "given").write_text("given\n")
    arguments = ("--grid", GRID, "--takeover-after", "10s", "--json")
    said = lab.do(home, "submit", "flow.yaml", *arguments, where=where)
    assert said.code == 0, said
    run = said.json["run"]

    def stays():
        return lab.do(home, "status", run, "--json", where=where).json["stays"]

    lab.until(lambda: stays() == "", "the machine to be free to go")
    return run, said.json["pid"]


def kill_driver(place: Path, pid: int) -> None:
    os.kill(pid, signal.SIGKILL)
    orphans.kill(f"{os.path.abspath(place / '.sureline')}:", prefix=True)


def test_a_submitted_run_ends_without_its_driver_and_comes_home_to_who_waits(tmp_path):
    where, gate = tmp_path / "work", tmp_path / "gate"
    (tmp_path / "lab").mkdir()
    with GridLab(tmp_path / "lab") as lab:
        begin(lab, 3)
        run, pid = submitted(lab, "p2", where, gate)
        kill_driver(where, pid)
        with started(where, "wait", env=lab.env("p2")) as waiting:
            gate.touch()
            said = waiting.end()
            assert said.code == 0, said
        assert (where / "last").read_text() == "early\ngiven\n"
        assert len([e for e in events(where, run) if isinstance(e, Opened)]) == 2


@pytest.mark.soak  # a minute and a half
@pytest.mark.limit_s(300)
def test_submitted_runs_end_without_their_drivers_and_their_results_come_home(tmp_path):
    """Of one the whole machine is lost: an input that nobody had read was lost with it. Of the
    others, the driver alone: one is waited for, and one is asked for by nobody."""
    gate, lost, waited, unasked = (tmp_path / name for name in ("gate", "a", "b", "c"))
    (tmp_path / "lab").mkdir()
    (tmp_path / "other").mkdir()
    with GridLab(tmp_path / "lab") as lab:
        begin(lab, 4)
        begun = {place: submitted(lab, home, place, gate)
                 for place, home in ((lost, "p3"), (waited, "p2"), (unasked, "p2"))}  # fmt: skip
        for run, _ in begun.values():  # of the three one will be lost: the own journal must be none
            kept = [peer.root / "kept" / run / "events" for peer in lab.peers.values()]
            until(
                lambda kept=kept: any(
                    len(found := voters_in(path)) == 3 and not any(v.startswith(OWN) for v in found)
                    for path in kept
                ),
                "three peers that vote",
            )
        for place, (_, pid) in begun.items():
            kill_driver(place, pid)
        lab.peers["p3"].kill()
        shutil.rmtree(lab.home("p3"))
        shutil.rmtree(lost)
        with started(waited, "wait", env=lab.env("p2")) as waiting:
            gate.touch()
            assert waiting.end().code == 0
        assert (waited / "last").read_text() == "early\ngiven\n"
        run = begun[lost][0]

        def fetched():
            said = lab.do("p1", "fetch", run, "--grid", GRID, "--json", where=tmp_path / "other")
            return said.code == 0 and said.json["state"] == "succeeded"

        lab.until(fetched, "the run to end without its machine")
        assert (tmp_path / "other" / "last").read_text() == "early\ngiven\n"
        lab.until((unasked / "last").exists, "results to come home unasked")
        assert (unasked / "last").read_text() == "early\ngiven\n"


def has(where: Path, run: str) -> bool:
    try:
        with Journal.open(where / ".sureline", create=False, read_only=True) as journal:
            return any(one.run == run for one in journal.runs())
    except NoJournalError:
        return False  # also while it is being made


def at_work(where: Path, run: str) -> set[str]:
    found = events(where, run) if has(where, run) else []
    last = max((n for n, e in enumerate(found) if isinstance(e, Opened)), default=0)
    return {e.task for e in found[last:] if isinstance(e, TaskStarted)}


def kept_by(lab: GridLab, run: str) -> int:
    """How many have a copy by which at least three peers vote."""
    kept = [peer.root / "kept" / run / "events" for peer in list(lab.peers.values())]
    return sum(len([v for v in voters_in(path) if not v.startswith(OWN)]) >= 3 for path in kept)


# -- heavy: drivers killed at random instants ---------------------------------------------------


KILLS = {"process": 1, "home": 1, "drivers": 3}
"""How many drivers of a run are killed: the submitter's, its whole machine, each one in turn."""


class Story:
    """One run of many tasks, and what became of it. `home` submits it."""

    def __init__(self, lab: GridLab, home: str, where: Path, kind: str, tasks: int) -> None:
        self.lab, self.home, self.where, self.kind, self.tasks = lab, home, where, kind, tasks
        self.random = random.Random(where.name)
        self.killed: list[float] = []

    def tell(self) -> dict:
        self.where.mkdir()
        (self.where / "flow.yaml").write_text(FLOW.replace("COUNT", str(self.tasks)))
        (self.where / "given").write_text("0\n")
        arguments = ("submit", "flow.yaml", "--grid", GRID, "--json")
        said = self.lab.do(self.home, *arguments, where=self.where)
        assert said.code == 0, said
        self.run = said.json["run"]
        self.lab.until(lambda: kept_by(self.lab, self.run) >= 3, "keepers that vote")
        time.sleep(self.random.uniform(0.2, 6.0))
        if self.kind == "home":
            until(lambda: not Away(events(self.where, self.run)).why_stay(), "it to be free", 120.0)
        self._kill(said.json["pid"])
        if self.kind == "home":
            self.lab.peers[self.home].kill()
            shutil.rmtree(self.lab.home(self.home))
            shutil.rmtree(self.where)
            self.where.mkdir()
        while len(self.killed) < KILLS[self.kind]:
            until(lambda: self._driver() or self._is_over(), "a peer to drive it", 120.0, 0.2)
            time.sleep(self.random.uniform(0.2, 5.0))
            if self._is_over():
                break
            self._kill(self._driver())
        until(self._is_over, "the run to end without a person", 300.0, 1.0)
        union = self._union()
        home = "p0" if self.kind == "home" else self.home
        said = self.lab.do(home, "fetch", self.run, "--grid", GRID, "--json", where=self.where)
        assert said.code == 0 and said.json["state"] == "succeeded", said
        wanted = "".join(f"{n}\n" for n in range(self.tasks + 1))
        assert (self.where / "all.txt").read_text() == wanted, "outputs must be equal"
        return self._figures(union)

    def _kill(self, pid: int) -> None:
        assert pid > 0
        with suppress(ProcessLookupError):  # it has just ended
            os.kill(pid, signal.SIGKILL)
            self.killed.append(time.time())
        orphans.kill(f"{os.path.abspath(self.where / '.sureline')}:", prefix=True)

    def _driver(self) -> int:
        """The process of a peer that has opened it since the last was killed; 0 if none has."""
        found = [p.root / "driven" / self.run for p in list(self.lab.peers.values())]
        driven = [e for where in found if has(where, self.run) for e in events(where, self.run)]
        opened = [e for e in driven if isinstance(e, Opened) and e.at > self.killed[-1]]
        return max(opened, key=lambda e: e.epoch).pid if opened else 0

    def _is_over(self) -> bool:
        kept = [p.root / "kept" / self.run / "events" for p in list(self.lab.peers.values())]
        return any(isinstance(e, RunEnded) for path in kept for e in raw_events(path).values())

    def _union(self) -> tuple[dict, dict]:
        """Everything that any journal has of the run, and what any keeper has of it: what a driver
        recorded in its last half second before it was killed may be with nobody else."""
        everything = {} if self.kind == "home" else entries(self.where, self.run)
        kept: dict = {}
        for peer in list(self.lab.peers.values()):
            driven = peer.root / "driven" / self.run
            more = entries(driven, self.run) if has(driven, self.run) else {}
            copy = raw_events(peer.root / "kept" / self.run / "events")
            for part, into in ((more, everything), (copy, everything), (copy, kept)):
                for position, event in part.items():
                    assert into.setdefault(position, event) == event, "two writers of one epoch"
        return everything, kept

    def _figures(self, union: tuple[dict, dict]) -> dict:
        final = entries(self.where, self.run)
        committed: set[str] = set()
        for event in final.values():
            if isinstance(event, TaskRevoked):
                committed.discard(event.task)
            elif isinstance(event, TaskEnded) and event.outcome in COMMITS:
                assert event.task not in committed, f"{event.task} committed twice"
                committed.add(event.task)
        assert len(committed) == self.tasks + 1
        everything, kept = union
        told_again, done_again = self._again(everything)
        assert self._again({**kept, **final})[1] == 0, "a result that was kept has changed"
        opened = [e.at for e in final.values() if isinstance(e, Opened)]
        ended = max(e.at for e in final.values() if isinstance(e, RunEnded))
        lost = [min(o for o in opened if o > k) - k for k in self.killed if k < ended]
        return {
            "kind": self.kind,
            "lost_s": [round(s, 1) for s in lost],
            "epochs": len(opened),
            "told_again": told_again,
            "done_again": done_again,
        }

    def _again(self, union: dict) -> tuple[int, int]:
        """Of tasks with two commits in all journals together, those where the second is the same
        result, told once more to the next writer, since no majority had the first; and those where
        it is another."""
        by_task: dict[str, set] = {}
        times: dict[str, int] = {}
        for event in union.values():
            if isinstance(event, TaskEnded) and event.outcome in COMMITS:
                outputs = tuple((o.path, o.digest) for o in event.outputs)
                by_task.setdefault(event.task, set()).add((event.attempt, event.peer, outputs))
                times[event.task] = times.get(event.task, 0) + 1
        other = sum(len(results) > 1 for results in by_task.values())
        return sum(count > 1 for count in times.values()) - other, other


def story(lab: GridLab, where: Path, number: int) -> Story:
    kind = ("process", "home", "drivers", "drivers")[number % 4]
    home = f"h{number}" if kind == "home" else "p5"
    if kind == "home":
        lab.join(home, role=ALL).ready()
        lab.until(lambda: home in lab.present(), "it to be there")
    return Story(lab, home, where / f"s{number}", kind, 150)


def told(one: Story) -> dict:
    try:
        return one.tell()
    except Exception as error:  # the others are told first
        return {"kind": one.kind, "where": str(one.where), "lost_s": [], "failed": repr(error)}


@pytest.mark.soak
@pytest.mark.limit_s(36_000)
def test_drivers_killed_at_random_instants(tmp_path):
    """At least SURELINE_KILLS (50) of them, in runs of 150 tasks, four at a time, unless
    SURELINE_MINUTES are over before; SURELINE_FIRST is the number of the first run, which seeds
    when it happens. A line about each run is printed."""
    (tmp_path / "lab").mkdir()
    kills, first, minutes = (
        int(os.environ.get(f"SURELINE_{name}", usual))
        for name, usual in (("KILLS", 50), ("FIRST", 0), ("MINUTES", 600))
    )
    give_up_s, count, failed = time.monotonic() + 60.0 * minutes, 0, []
    with GridLab(tmp_path / "lab") as lab, ThreadPoolExecutor(AT_ONCE) as pool:
        begin(lab, 7)
        while count < kills and time.monotonic() < give_up_s:
            stories = [story(lab, tmp_path, first + n) for n in range(AT_ONCE)]
            first += AT_ONCE
            for one in pool.map(told, stories):
                count += len(one["lost_s"])
                failed += [one] if "failed" in one else []
                print(json.dumps(one), flush=True)
    assert not failed
