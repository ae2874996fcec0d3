"""Bad peers as real processes among good ones, over TLS: runs end rightly, and say who was bad."""

from __future__ import annotations

import sys
from pathlib import Path

import malice
import pytest
from grid_lab import GRID, GridLab, Peer
from surely import started, sureline, until

from sureline.journal.events import PeerLeft, TaskBound, TaskEnded, TaskProgressed
from sureline.journal.store import Journal

FLOW = """\
name: many
tasks:
  first:
    for: {i: 1..12}
    run: sleep 0.3; echo {{i}} > first.{{i}}
    outputs: ["first.{{i}}"]
  second:
    for: {i: 1..12}
    run: cat first.{{i}} first.{{i}} > second.{{i}}
    inputs: ["first.{{i}}"]
    outputs: ["second.{{i}}"]
  all:
    run: cat second.* | sort -n > all.txt
    inputs: ["second.*"]
    outputs: [all.txt]
"""
RIGHT = "".join(f"{i}\n{i}\n" for i in range(1, 13))


class Lab(GridLab):
    """Two good peers, and homes for bad ones."""

    def serve_bad(self, kind: str, name: str, *arguments: str) -> Peer:
        class Bad(Peer):
            command = (sys.executable, malice.__file__, kind)

        invitation = self.invite("--role", "run")
        asked = ["--join", invitation, "--name", name, "--slots=8", *arguments]
        peer = self.peers[name] = Bad(self, name, asked)
        peer.ready()
        self.until(lambda: name in self.present(), f"{name} to be there")
        return peer

    def end(self, name: str) -> None:
        self.peers.pop(name).kill()
        self.until(lambda: name not in self.present(), f"{name} to be gone")


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory):
    with Lab(tmp_path_factory.mktemp("lab")) as made:
        made.start(2, "--slots=2")
        yield made


def events(where: Path) -> list:
    with Journal.open(where / ".sureline", create=False, read_only=True) as journal:
        return [e.event for run in journal.runs()[-1:] for e in journal.events(run.run)]


def run_among(lab: Lab, where: Path, *bad: str) -> list:
    """A run to its right end, with these about; its events."""
    (where / "many.yaml").write_text(FLOW)
    said = sureline(where, "run", "many.yaml", "--grid", GRID, "--fresh", env=lab.env("p0"))
    assert said.code == 0, (said, events(where))
    assert (where / "all.txt").read_text() == RIGHT
    told = events(where)
    for name in bad:
        assert name in {e.peer for e in told if isinstance(e, TaskBound)}, "it had its chance"
        assert f"{name} is set aside" in said.err, said.err
    return told


def test_liars_among_good_peers(lab: Lab, tmp_path: Path) -> None:
    for kind in ("boaster", "garbler"):
        lab.serve_bad(kind, kind)
    told = run_among(lab, tmp_path, "boaster", "garbler")
    taken = {e.peer for e in told if isinstance(e, TaskEnded) and e.outcome == "succeeded"}
    assert "garbler" not in taken
    asides = {e.peer: e for e in told if isinstance(e, PeerLeft) and e.strikes}
    assert set(asides) == {"boaster", "garbler"}
    shown = lab.present()
    assert {name for name in shown if shown[name]["strikes"]} == {"boaster", "garbler"}
    assert "makes no sense" in shown["garbler"]["refuted"]
    again = run_among(lab, tmp_path)  # remembered: the next pause is longer at once
    later = [e.strikes for e in again if isinstance(e, PeerLeft) and e.strikes]
    assert not later or min(later) > 1
    assert lab.do("p0", "peers", "--forgive", "garbler").code == 0
    assert not lab.present()["garbler"]["strikes"]
    assert lab.do("p0", "peers", "--forgive", "garbler").code == 2
    for kind in ("boaster", "garbler"):
        lab.end(kind)


def test_refusers_claimers_and_chatterers_among_good_peers(lab: Lab, tmp_path: Path) -> None:
    for kind in ("refuser", "claimer", "chatterer"):
        lab.serve_bad(kind, kind)
    told = run_among(lab, tmp_path, "refuser")
    took_s = told[-1].at - told[0].at
    recorded = sum(isinstance(e, TaskProgressed) for e in told)
    assert recorded <= 25 * (took_s + 1), f"{recorded} words of progress in {took_s} s"
    for kind in ("refuser", "claimer", "chatterer"):
        lab.end(kind)


def test_a_peer_that_only_the_driver_cannot_reach(lab: Lab, tmp_path: Path) -> None:
    lab.serve_bad("deaf", "deaf")
    (tmp_path / "many.yaml").write_text(FLOW.replace("sleep 0.3", "sleep 3"))

    def has_work() -> bool:
        bound = [e for e in events(tmp_path) if isinstance(e, TaskBound)]
        return "deaf" in {e.peer for e in bound}

    with started(tmp_path, "run", "many.yaml", "--grid", GRID, env=lab.env("p0")) as run:
        until((tmp_path / ".sureline" / "journal.db").exists)
        until(has_work, "the deaf one to have work", every_s=0.1)
        (lab.where / "deaf.cut").touch()
        said = run.end()
    assert said.code == 0, said
    assert (tmp_path / "all.txt").read_text() == RIGHT
    assert "deaf cannot be reached from here" in said.err
    assert "deaf" in lab.present("p1"), "all others hear it"
    lab.end("deaf")
