"""Pilots: no work without health, no work beyond their time."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest
from grids import new_grid
from surely import sureline

from sureline.compose.node import Listen, LiveNode
from sureline.compose.piloting import NotWellError, Pilot, check_health
from sureline.compose.serving import PeerSettings, ServingPeer
from sureline.peer.capacity import Capacity
from sureline.peer.jobs import JobEnded
from sureline.workflow.mistakes import UserError


def program(place: Path, text: str) -> str:
    path = place / "fit.sh"
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return str(path)


class Runs:
    """Ends every command as it was told to."""

    def __init__(self, outcome: str) -> None:
        self._outcome = outcome

    def start(self, job, on_event, *, after=None):
        ended = JobEnded(self._outcome, reason="" if self._outcome == "succeeded" else "no shell")
        asyncio.get_running_loop().call_soon(on_event, ended)
        return object()

    def stop(self, handle, *, force=False):
        raise AssertionError("nothing has to be stopped")


def checked(pilot: Pilot, place: Path, outcome: str = "succeeded") -> None:
    asyncio.run(check_health(pilot, Runs(outcome), place))


def test_a_machine_on_which_no_command_runs_is_not_well(tmp_path):
    with pytest.raises(NotWellError, match="no command runs here: no shell"):
        checked(Pilot(), tmp_path, "failed")
    checked(Pilot(), tmp_path)


def test_the_owners_program_has_the_last_word(tmp_path):
    checked(Pilot(health=program(tmp_path, "exit 0")), tmp_path)
    with pytest.raises(NotWellError, match=r"says no \(exit code 3\): no licence server"):
        checked(Pilot(health=program(tmp_path, "echo no licence server; exit 3")), tmp_path)


def test_a_program_that_never_answers_says_no_and_leaves_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr("sureline.compose.piloting.HEALTH_S", 0.2)
    script = program(tmp_path, f"sleep 1000 & echo $! > {tmp_path}/pid; wait")
    with pytest.raises(NotWellError, match=r"has not answered within 0\.2 s"):
        checked(Pilot(health=script), tmp_path)
    assert _is_gone(int((tmp_path / "pid").read_text()))


def _is_gone(pid: int) -> bool:
    state = Path(f"/proc/{pid}/stat")
    for _ in range(500):
        if not state.exists() or " Z " in state.read_text():
            return True
        time.sleep(0.01)
    return False


@pytest.mark.parametrize(
    ("lifetime_s", "drain_s", "stop_s"),
    [(None, float("inf"), float("inf")), (7200.0, 6900.0, 7185.0), (100.0, 90.0, 90.0)],
)
def test_when_it_drains_and_stops(lifetime_s, drain_s, stop_s):
    pilot = Pilot(lifetime_s)
    assert (pilot.drain_after_s, pilot.stop_after_s) == (drain_s, stop_s)


def test_a_pilot_tells_its_end_and_goes_by_itself(tmp_path):
    home = new_grid(tmp_path / "home").home
    met: list[LiveNode] = []
    settings = PeerSettings(
        Capacity(1, 1 << 30),
        "cluster",
        {"per_core_hour": 0.0},
        Listen("127.0.0.1"),
        pilot=Pilot(lifetime_s=3.0),
    )
    before = time.time()
    asyncio.run(ServingPeer(home, settings, met.append, print).serve())
    (node,) = met
    offer = node.membership.knowledge.own.offer
    assert offer.extras["pilot"] == 1.0
    assert before + 2.7 <= offer.ends_at <= time.time()
    assert node.membership.knowledge.own.state == "left"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--lifetime", "2h"], "--lifetime is a pilot's; add --pilot"),
        (["--health", "x"], "--health is a pilot's; add --pilot"),
        (["--pilot", "--lifetime", "soon"], "--lifetime: "),
        (["--pilot", "--lifetime", "3s"], "--lifetime 3s is too short; give 60s or more"),
        (["--pilot", "--health", "nothing.sh"], "--health nothing.sh: there is no such program"),
    ],
)
def test_what_makes_no_sense_is_said(tmp_path, arguments, said):
    from sureline.cli.peering import _pilot

    given = dict(zip(arguments[-2::2], arguments[-1::2], strict=True))
    with pytest.raises(UserError, match=said):
        _pilot("--pilot" in arguments, given.get("--lifetime"), given.get("--health"))


def test_an_unwell_machine_leaves_with_one_sentence(tmp_path):
    new_grid(tmp_path / "home")
    script = program(tmp_path, "echo 'no scratch space' >&2; exit 1")
    said = sureline(
        tmp_path,
        *("peer", "--slots", "1", "--pilot", "--health", script, "--listen", "127.0.0.1:0"),
        env={"SURELINE_HOME": str(tmp_path / "home")},
    )
    assert said.code == 1, said
    assert f"{script} says no (exit code 1): no scratch space" in said.err
