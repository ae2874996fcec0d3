"""A grid of real processes: workflows over it; peers and drivers killed, runs taken over."""

from __future__ import annotations

import hashlib
import shutil
from pathlib import Path

import pytest
from grid_lab import GRID, GridLab
from surely import started, sureline, until

from sureline.journal.events import COMMITS, TaskEnded, TaskRevoked, TaskStarted
from sureline.journal.store import Journal

PARTS = 12

FLOW = """
name: digests
params: {gate: /dev/null}
tasks:
  split:
    run: split -n l/12 -d --suffix-length=2 big.txt part.
    inputs: [big.txt]
    outputs: [PARTS]
  sum:
    for: {i: [NUMBERS]}
    run: |
      case {{i}} in 0[0-3]) ;; *) until [ -e {{gate}} ]; do sleep 0.05; done ;; esac
      sha256sum part.{{i}} > sum.{{i}}
      echo started >&2
    inputs: ["part.{{i}}"]
    outputs: ["sum.{{i}}"]
  total:
    run: cat sum.* | sha256sum > total.txt
    inputs: ["sum.*"]
    outputs: [total.txt]
""".replace("PARTS", ", ".join(f"part.{i:02}" for i in range(PARTS))).replace(
    "NUMBERS", ", ".join(f'"{i:02}"' for i in range(PARTS))
)


@pytest.fixture(scope="module")
def lab(tmp_path_factory):
    with GridLab(tmp_path_factory.mktemp("lab")) as made:
        made.start(8)
        yield made


@pytest.fixture
def where(tmp_path):
    folder = tmp_path / "work"
    folder.mkdir()
    (folder / "flow.yaml").write_text(FLOW)
    lines = "".join(
        f"line {n} {hashlib.sha256(str(n).encode()).hexdigest()}\n" for n in range(3000)
    )
    (folder / "big.txt").write_text(lines)
    return folder


def right_total(where: Path) -> str:
    """What a run on this machine alone makes of it."""
    alone = where.parent / "alone"
    if not alone.exists():
        alone.mkdir()
        for name in ("flow.yaml", "big.txt"):
            shutil.copy(where / name, alone / name)
        said = sureline(alone, "run", "flow.yaml", "--quiet")
        assert said.code == 0, said
    return (alone / "total.txt").read_text()


def ends(where: Path, run: str) -> list[TaskEnded]:
    with Journal.open(where / ".sureline", create=False, read_only=True) as journal:
        return [e.event for e in journal.events(run) if isinstance(e.event, TaskEnded)]


def committed_once(where: Path, run: str, tasks: int = PARTS + 2) -> None:
    """A second result of a task follows only on a revocation of the first."""
    committed: set[str] = set()
    with Journal.open(where / ".sureline", create=False, read_only=True) as journal:
        for entry in journal.events(run):
            match entry.event:
                case TaskRevoked(task=task):
                    assert task in committed
                    committed.discard(task)
                case TaskEnded(task=task, outcome=outcome) if outcome in COMMITS:
                    assert task not in committed, f"{task} committed twice"
                    committed.add(task)
    assert len(committed) == tasks


def done_parts(where: Path, run: str) -> int:
    return sum(e.outcome in COMMITS and e.task.startswith("sum") for e in ends(where, run))


def at_work(where: Path, run: str) -> set[str]:
    """The peers on which tasks have started."""
    with Journal.open(where / ".sureline", create=False, read_only=True) as journal:
        return {e.event.peer for e in journal.events(run) if isinstance(e.event, TaskStarted)}


def newest(where: Path) -> str:
    with Journal.open(where / ".sureline", create=False, read_only=True) as journal:
        return journal.runs()[-1].run


def test_two_of_eight_peers_are_killed_during_a_run(lab, where):
    gate = where / "gate"
    arguments = ("run", "flow.yaml", "--set", f"gate={gate}", "--grid", GRID, "--json")
    with started(where, *arguments, env=lab.env("p0")) as run:
        until((where / "part.11").exists)
        name = newest(where)
        until(lambda: {"p6", "p7"} <= at_work(where, name), "the two to be at work")
        for peer in ("p6", "p7"):
            lab.peers[peer].kill()
        gate.touch()
        said = run.end()
    assert said.code == 0, said
    assert (where / "total.txt").read_text() == right_total(where)
    committed_once(where, name)
    assert {"p6", "p7"} <= {e.peer for e in ends(where, name) if e.outcome == "lost"}
    for peer in ("p6", "p7"):  # they come back under their names
        lab.serve(peer).ready()
    lab.until_present({f"p{i}" for i in range(8)})


def test_a_killed_driver_is_resumed_and_nothing_finished_runs_again(lab, where):
    gate = where / "gate"
    arguments = ("run", "flow.yaml", "--set", f"gate={gate}", "--grid", GRID)
    with started(where, *arguments, env=lab.env("p1")) as run:
        until((where / "part.11").exists)
        name = newest(where)
        until(lambda: done_parts(where, name) >= 4)
        run.kill()
    gate.touch()  # what runs now ends while nobody drives
    before = [e.task for e in ends(where, name) if e.outcome in COMMITS]
    said = lab.do("p1", "resume", name, "--json", where=where)
    assert said.code == 0, said
    assert (where / "total.txt").read_text() == right_total(where)
    committed_once(where, name)
    after = [e.task for e in ends(where, name)][len(before) :]
    assert not set(before) & set(after), "a finished task ran again"


def test_a_run_is_seen_cancelled_and_taken_over_from_another_peer(lab, where, tmp_path):
    gate = tmp_path / "gate"
    arguments = ("submit", "flow.yaml", "--set", f"gate={gate}", "--grid", GRID, "--json")
    said = lab.do("p2", *arguments, where=where)
    assert said.code == 0, said
    name = said.json["run"]
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()

    def seen() -> bool:
        told = lab.do("p5", "status", name, "--grid", GRID, "--json", where=elsewhere)
        return told.code == 0 and told.json["tasks"]["succeeded"] >= 5

    lab.until(seen, "the run to be seen from another peer")
    assert name in {r["run"] for r in lab.do("p4", "runs", "--grid", GRID, "--json").json["runs"]}
    assert lab.do("p4", "resume", name, "--grid", GRID, where=elsewhere).code == 2, "it is driven"
    said = lab.do("p5", "cancel", name, "--grid", GRID, "--json", where=elsewhere)
    assert said.json == {"run": name, "state": "cancelled"}
    assert lab.do("p2", "wait", name, where=where).code == 130

    gate.touch()
    said = lab.do("p4", "resume", name, "--grid", GRID, where=elsewhere)
    assert said.code == 2 and "p4 has not the role drive" in said.err, said
    said = lab.do("p0", "resume", name, "--grid", GRID, "--json", where=elsewhere)
    assert said.code == 0, said
    assert (elsewhere / "total.txt").read_text() == right_total(where)
    committed_once(elsewhere, name)
    said = lab.do("p3", "logs", name, "sum:03", "--stderr", "--grid", GRID, where=tmp_path)
    assert "started" in said.err, said
    said = lab.do("p3", "explain", name, "total", "--grid", GRID, where=tmp_path)
    assert said.code == 0, said
    report = tmp_path / "report.html"
    said = lab.do("p3", "report", name, "--grid", GRID, "-o", str(report), where=tmp_path)
    assert said.code == 0 and report.stat().st_size > 10_000, said


def test_only_env_travels(lab, where):
    (where / "env.yaml").write_text(
        "name: env\ntasks:\n  show:\n    run: env | sort > env.txt\n    outputs: [env.txt]\n"
        "    env: {GIVEN: 'yes'}\n"
    )
    said = sureline(where, "run", "env.yaml", "--grid", GRID, env={**lab.env("p3"), "MINE": "no"})
    assert said.code == 0, said
    seen = dict(line.split("=", 1) for line in (where / "env.txt").read_text().splitlines())
    assert seen["GIVEN"] == "yes"
    assert "MINE" not in seen


def test_long_logs_can_be_read_from_any_peer(lab, where, tmp_path):
    (where / "loud.yaml").write_text(
        "name: loud\ntasks:\n  talk:\n    run: seq 1 20000; echo last words >&2\n"
    )
    said = lab.do("p2", "run", "loud.yaml", "--grid", GRID, "--json", where=where)
    assert said.code == 0, said
    run = said.json["run"]
    told = lab.do("p4", "logs", run, "talk", "--grid", GRID, where=tmp_path)
    assert told.out == "".join(f"{n}\n" for n in range(1, 20001))
    assert "last words" in told.err
    assert lab.do("p2", "logs", run, "talk", where=where).out == told.out


def test_a_peer_that_may_not_submit_is_told_so(lab, where):
    lab.join("worker", role="run").ready()
    said = lab.do("worker", "run", "flow.yaml", "--grid", GRID, where=where)
    assert said.code == 2
    assert "may not submit" in said.err
    assert not (where / ".sureline").exists()
    assert lab.do("worker", "leave").code == 0
    lab.until(lambda: "worker" not in lab.present(), "it to be gone")


def test_a_revoked_peer_is_refused_everywhere_also_after_restarts(lab):
    bad = lab.join("bad")
    bad.ready()
    lab.until(lambda: "bad" in lab.present("p5"), "it to be there")
    assert lab.do("p0", "revoke", "bad").code == 0
    lab.until(lambda: "bad" not in lab.present("p5"), "the others to drop it")
    until(lambda: "refuse" in bad.log, "it to be told why")
    bad.kill()
    lab.peers["p5"].kill()
    lab.serve("p5").ready()
    lab.serve("bad").ready()
    lab.until(lambda: "p5" in lab.present(), "p5 to be back")
    said = lab.do("bad", "peers", "--json")
    met = {one["peer"] for one in said.json["peers"]} if said.code == 0 else set()
    assert met <= {"bad"}, "somebody speaks with it"
    assert "bad" not in lab.present("p5")


def test_a_stopped_peer_is_noticed_and_welcome_again(lab):
    lab.peers["p3"].stop()
    try:
        lab.until(lambda: "p3" not in lab.present("p1"), "a stopped peer to be missed")
    finally:
        lab.peers["p3"].go_on()
    lab.until(lambda: "p3" in lab.present("p1"), "a peer that goes on to be there again")
