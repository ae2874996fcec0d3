"""Bad peers as real processes among good ones, over TLS: runs end rightly, and say who was bad."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from pathlib import Path

import malice
import pytest
from grid_lab import GRID, GridLab, Peer
from surely import started, sureline, until

from sureline.journal.errors import NoJournalError
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


def has_work(where: Path, peer: str) -> bool:
    with contextlib.suppress(NoJournalError):
        return peer in {event.peer for event in events(where) if isinstance(event, TaskBound)}
    return False


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


@pytest.mark.soak
def test_refusers_claimers_and_chatterers_among_good_peers(lab: Lab, tmp_path: Path) -> None:
    for kind in ("refuser", "claimer", "chatterer"):
        lab.serve_bad(kind, kind)
    told = run_among(lab, tmp_path, "refuser")
    took_s = told[-1].at - told[0].at
    recorded = sum(isinstance(e, TaskProgressed) for e in told)
    assert recorded <= 25 * (took_s + 1), f"{recorded} words of progress in {took_s} s"
    for kind in ("refuser", "claimer", "chatterer"):
        lab.end(kind)


@pytest.mark.soak
def test_a_peer_that_only_the_driver_cannot_reach(lab: Lab, tmp_path: Path) -> None:
    lab.serve_bad("deaf", "deaf")
    (tmp_path / "many.yaml").write_text(FLOW.replace("sleep 0.3", "sleep 3"))
    with started(tmp_path, "run", "many.yaml", "--grid", GRID, env=lab.env("p0")) as run:
        until(lambda: has_work(tmp_path, "deaf"), "the deaf one to have work", every_s=0.1)
        (lab.where / "deaf.cut").touch()
        said = run.end()
    assert said.code == 0, said
    assert (tmp_path / "all.txt").read_text() == RIGHT
    assert "deaf cannot be reached from here" in said.err
    assert "deaf" in lab.present("p1"), "all others hear it"
    lab.end("deaf")


@pytest.fixture
def small_disk(lab: Lab):
    """The place where a peer `ill` keeps all that it works with: a disk of 16 MB."""
    place = lab.home("ill") / "grids" / GRID / "peer"
    lab.join("ill", role="run").ready()
    lab.peers.pop("ill").kill()
    mounted = ["mount", "-t", "tmpfs", "-o", "size=16m,mode=700", "none", str(place)]
    if subprocess.run(mounted, capture_output=True, check=False).returncode:
        pytest.skip("cannot mount here")
    yield place
    if "ill" in lab.peers:
        lab.peers.pop("ill").clear()
    for _ in range(2):  # one may lie over the other
        subprocess.run(["umount", "--lazy", str(place)], capture_output=True, check=False)


@pytest.mark.parametrize("how", ["full", "read-only"])
def test_a_peer_whose_disk_fails_it_fails_no_run(
    lab: Lab, small_disk: Path, tmp_path: Path, how: str
) -> None:
    lab.serve("ill", "--slots=8").ready()
    lab.until(lambda: "ill" in lab.present(), "it to be there")
    (tmp_path / "many.yaml").write_text(FLOW)
    with started(tmp_path, "run", "many.yaml", "--grid", GRID, env=lab.env("p0")) as run:
        until(lambda: has_work(tmp_path, "ill"), "it to have work", every_s=0.05)
        if how == "full":
            with open(small_disk / "ballast", "wb", 0) as ballast, contextlib.suppress(OSError):
                while True:
                    ballast.write(bytes(1 << 16))
        else:
            aside = tmp_path / "aside"
            aside.mkdir()
            subprocess.run(["mount", "--bind", str(small_disk), str(aside)], check=True)
            subprocess.run(["mount", "-o", "remount,ro,bind", str(aside)], check=True)
            subprocess.run(["mount", "--move", str(aside), str(small_disk)], check=True)
        said = run.end()
    assert said.code == 0, said
    assert (tmp_path / "all.txt").read_text() == RIGHT
    ends = [event for event in events(tmp_path) if isinstance(event, TaskEnded)]
    assert {event.outcome for event in ends} <= {"succeeded", "lost", "cancelled"}, ends
