"""The commands grid new, grid ls, invite and revoke, as a user meets them."""

from __future__ import annotations

import json
import os
import stat

import cyclopts
import pytest
from grids import admit

from sureline.cli import gridding
from sureline.workflow.mistakes import UserError
from sureline.world.identity.authority import Authority
from sureline.world.identity.credentials import Credentials
from sureline.world.identity.home import PORT_DEFAULT, GridHome
from sureline.world.identity.invitation import Invitation

app = cyclopts.App(name="sureline")
app.command(gridding.grid)
app.command(gridding.invite)
app.command(gridding.revoke)


@pytest.fixture
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("SURELINE_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


def run(*tokens: str) -> None:
    code = app(list(tokens), exit_on_error=False, print_error=False, result_action="return_value")
    assert code == 0


def data(capsys, *tokens: str):
    capsys.readouterr()
    run(*tokens, "--json")
    return json.loads(capsys.readouterr().out)


def mistake(*tokens: str) -> str:
    with pytest.raises(UserError) as caught:
        run(*tokens)
    assert caught.value.code == 2
    return str(caught.value)


def authority() -> Authority:
    return Authority.open(GridHome.open())


def test_a_grid_from_nothing_to_an_invitation(home, capsys):
    run("grid", "new", "lab", "--peer", "lab7")
    assert "made grid lab" in capsys.readouterr().out
    run("invite")
    told = capsys.readouterr()
    assert "no peer serves from this home yet" in told.err
    invitation = Invitation.parse(told.out)
    assert told.out.count("\n") == 1
    assert invitation.grid == "lab"
    assert invitation.addresses[0].endswith(f":{PORT_DEFAULT}")
    record = authority().invited(invitation.id)
    assert record.secret == invitation.secret and record.roles == ("drive", "run", "submit")
    assert stat.S_IMODE(os.stat(home).st_mode) == 0o700


def test_every_command_speaks_json(home, capsys, tmp_path):
    made = data(capsys, "grid", "new", "lab", "--peer", "lab7")
    assert made["grid"] == "lab" and made["peer"] == "lab7" and len(made["fingerprint"]) == 64
    [row] = data(capsys, "grid", "ls")["grids"]
    assert row["peer"] == "lab7" and row["authority"] and row["serving"] is None
    assert row["roles"] == ["drive", "run", "submit"] and row["trouble"] is None
    invited = data(capsys, "invite", "--role", "run", "--expires", "5 min", "--name", "worker")
    assert invited["roles"] == ["run"]
    invitation = Invitation.parse(invited["invitation"])
    assert invitation.fingerprint.hex() == made["fingerprint"]
    assert authority().invited(invitation.id).name == "worker"
    admit(authority(), tmp_path / "other", "bad")
    assert data(capsys, "revoke", "bad") == {
        "grid": "lab",
        "peer": "bad",
        "version": 1,
        "serving": None,
    }


def test_an_invitation_names_the_place_where_the_peer_serves(home, capsys):
    run("grid", "new", "lab")
    claim = GridHome.open().claim()
    claim.announce("lab7@10.0.0.5:4242")
    assert data(capsys, "invite")["addresses"] == ["10.0.0.5:4242"]
    chosen = data(capsys, "invite", "--address", "a.example:1", "--address", "[fe80::1]:2")
    assert chosen["addresses"] == ["a.example:1", "[fe80::1]:2"]
    [row] = data(capsys, "grid", "ls")["grids"]
    assert row["serving"] == "lab7@10.0.0.5:4242"
    claim.announce("lab7@127.0.0.1:4242")
    run("invite")
    assert "from this machine only" in capsys.readouterr().err
    claim.release()


def test_roles_can_be_written_as_one_likes(home, capsys):
    run("grid", "new", "lab")
    for tokens in (
        ("--role", "run,submit"),
        ("--role", "run", "--role", "submit"),
        ("--role", " submit , run"),
    ):
        assert data(capsys, "invite", *tokens)["roles"] == ["run", "submit"]


def test_revoking_is_told_and_takes_effect(home, capsys, tmp_path):
    run("grid", "new", "lab")
    bad = admit(authority(), tmp_path / "other", "bad").identity
    run("revoke", "bad")
    told = capsys.readouterr()
    assert "revoked bad in grid lab" in told.out and "no peer serves" in told.err
    credentials = Credentials.load(GridHome.open())
    assert credentials.refused(bad) == "peer bad has been revoked"


def test_mistakes_are_sentences(home, tmp_path):
    assert "no grid" in mistake("invite")
    assert "no grid" in mistake("revoke", "lab7")
    assert "cannot name a grid" in mistake("grid", "new", "Lab/../x")
    assert "cannot name a peer" in mistake("grid", "new", "lab", "--peer", "a+b")
    run("grid", "new", "lab", "--peer", "lab7")
    assert "already" in mistake("grid", "new", "lab")
    assert "is not a role" in mistake("invite", "--role", "admin")
    assert "--expires" in mistake("invite", "--expires", "soon")
    assert "at most a year" in mistake("invite", "--expires", "2000d")
    assert "HOST:PORT" in mistake("invite", "--address", "lab7")
    assert "no grid 'other'" in mistake("invite", "--grid", "other")
    assert "no peer 'nobody'" in mistake("revoke", "nobody")
    assert "make a new grid" in mistake("revoke", "lab7")
    run("grid", "new", "two")
    assert "say which with --grid" in mistake("invite")
    os.chmod(home / "grids" / "two", 0o755)
    assert "chmod 700" in mistake("invite", "--grid", "two")


def test_only_the_home_that_made_the_grid_invites(home, tmp_path, monkeypatch, capsys):
    run("grid", "new", "lab", "--peer", "maker")
    admit(authority(), tmp_path / "other", "guest")
    monkeypatch.setenv("SURELINE_HOME", str(tmp_path / "other"))
    for tokens in (("invite",), ("revoke", "maker")):
        assert "another home (peer maker)" in mistake(*tokens)
    [row] = data(capsys, "grid", "ls")["grids"]
    assert row["peer"] == "guest" and not row["authority"]


def test_one_broken_grid_does_not_hide_the_others(home, capsys):
    run("grid", "ls")
    assert "grid new" in capsys.readouterr().out
    for name in ("good", "sick"):
        run("grid", "new", name, "--peer", "lab7")
    (home / "grids" / "sick" / "peer.pem").write_bytes(b"junk")
    os.mkdir(home / "grids" / "empty", 0o700)
    capsys.readouterr()
    run("grid", "ls")
    lines = capsys.readouterr().out.splitlines()
    assert (
        "good: this home is lab7 (drive, run, submit), holds the authority, does not serve" in lines
    )
    assert any(line.startswith("sick: ") and "damaged" in line for line in lines)
    assert any(line.startswith("empty: ") and "missing" in line for line in lines)


@pytest.mark.parametrize("command", [["grid", "new"], ["grid", "ls"], ["invite"], ["revoke"]])
def test_help_has_an_example(capsys, command):
    app([*command, "--help"], exit_on_error=False, result_action="return_value")
    text = " ".join(capsys.readouterr().out.split())
    assert f"Example: sureline {' '.join(command)}" in text and "--json" in text
