"""Keys: who may use them, who may ask with them, and where tasks never come near them."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest
from grid_lab import GridLab, Peer
from grids import admit, new_grid
from surely import sureline

from sureline.world.identity import certificates, passphrase, questions
from sureline.world.identity.authority import Authority
from sureline.world.identity.credentials import Credentials
from sureline.world.identity.errors import IdentityError
from sureline.world.identity.home import GridHome

NODE = "asker+1@127.0.0.1:1"


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return new_grid(tmp_path / "issuer")


@pytest.fixture(autouse=True)
def forgotten():
    passphrase.use(None)
    yield
    passphrase.use(None)


# -- questions that others pass on ---------------------------------------------------------------


def test_only_who_may_submit_can_ask_for_runs(authority: Authority, tmp_path: Path) -> None:
    peer = Credentials.load(authority.home)
    submits = admit(authority, tmp_path / "a", "asker", ("submit",))
    assert questions.asked(peer, questions.ask(submits, NODE, "x"), NODE, "submit") == "x"
    runs = admit(authority, tmp_path / "b", "runner", ("run",))
    node = NODE.replace("asker", "runner")
    assert questions.asked(peer, questions.ask(runs, node, "x"), node, "submit") is None


def test_a_question_is_good_for_its_node_and_for_a_while(
    authority: Authority, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    peer = Credentials.load(authority.home)
    submits = admit(authority, tmp_path / "a", "asker", ("submit",))
    question = questions.ask(submits, NODE, "x")
    assert questions.asked(peer, question, NODE.replace("+1", "+2"), "submit") is None
    assert questions.asked(peer, question[:-1] + b"x", NODE, "submit") is None
    assert questions.asked(peer, b"", NODE, "submit") is None
    posing = questions.ask(submits, NODE.replace("asker", "issuer"), "x")
    assert questions.asked(peer, posing, NODE.replace("asker", "issuer"), "submit") is None
    authority.revoke("asker")
    assert questions.asked(Credentials.load(authority.home), question, NODE, "submit") is None
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now + 2 * questions.AGE_S_MAX)
    assert questions.asked(peer, question, NODE, "submit") is None


def test_another_grid_of_the_same_name_asks_in_vain(authority: Authority, tmp_path: Path) -> None:
    other = admit(new_grid(tmp_path / "other"), tmp_path / "c", "asker", ("submit",))
    question = questions.ask(other, NODE, "x")
    assert questions.asked(Credentials.load(authority.home), question, NODE, "submit") is None


# -- passphrases ---------------------------------------------------------------------------------


def test_a_locked_key_needs_its_passphrase(authority: Authority) -> None:
    home = authority.home
    credentials = Credentials.load(home)
    before = credentials.own_key().public_key()
    credentials.lock(b"open sesame")
    authority.lock(b"open sesame")
    for path in (home.credentials_path, authority.path / "ca.key"):
        assert certificates.is_locked(path.read_bytes())
    locked = Credentials.load(home)
    with pytest.raises(IdentityError, match="PASSPHRASE_FILE"):
        locked.server_context()
    passphrase.use(b"wrong")
    with pytest.raises(IdentityError, match="another"):
        locked.client_context()
    passphrase.use(b"open sesame")
    assert locked.own_key().public_key() == before
    locked.server_context()
    authority.invite(roles=["run"], expires_s=60, addresses=["127.0.0.1:1"])
    locked.lock(None)
    passphrase.use(None)
    Credentials.load(home).server_context()


def test_the_command_locks_changes_and_unlocks(tmp_path: Path) -> None:
    home = {"SURELINE_HOME": str(tmp_path / "home")}
    assert sureline(tmp_path, "grid", "new", "lab", "--peer", "p0", env=home).code == 0
    said = sureline(tmp_path, "grid", "passphrase", env=home)
    assert said.code == 2 and "no new passphrase" in said.err
    new = {**home, "SURELINE_NEW_PASSPHRASE": "one"}
    said = sureline(tmp_path, "grid", "passphrase", "--json", env=new)
    assert said.code == 0 and json.loads(said.out) == {"grid": "lab", "locked": True}
    assert sureline(tmp_path, "revoke", "p9", env=home).code == 2, "the key is needed for that"
    (tmp_path / "pass").write_text("one\n")
    file = {**home, "SURELINE_PASSPHRASE_FILE": str(tmp_path / "pass")}
    wrong = {**home, "SURELINE_PASSPHRASE": "two"}
    again = {"SURELINE_NEW_PASSPHRASE": "two"}
    assert sureline(tmp_path, "grid", "passphrase", env={**wrong, **again}).code == 2
    assert sureline(tmp_path, "grid", "passphrase", env={**file, **again}).code == 0
    said = sureline(tmp_path, "grid", "passphrase", "--remove", env=wrong)
    assert said.code == 0 and "no passphrase" in said.out
    GridHome.open("lab", tmp_path / "home")


def test_the_authoritys_home_runs_no_tasks_unless_told(tmp_path: Path) -> None:
    with GridLab(tmp_path / "lab") as lab:
        (tmp_path / "lab").mkdir()
        assert lab.do("p0", "grid", "new", "lab", "--peer", "p0").code == 0
        peer = lab.peers["p0"] = Peer(lab, "p0", [])
        ready = peer.ready()
        assert ready["slots"] == 0
        assert "runs no tasks" in peer.log
