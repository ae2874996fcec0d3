"""Homes: made whole or not at all, private, one peer at a time."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from grids import admit, new_grid

from sureline.world.identity.authority import Authority
from sureline.world.identity.credentials import Credentials
from sureline.world.identity.errors import IdentityError
from sureline.world.identity.home import CONTACTS_MAX, GridHome, grid_names, home_directory

KILLED_ANYWHERE = """
import os, pathlib, shutil, signal, sys
from sureline.world.identity import certificates
from sureline.world.identity.authority import Authority
from sureline.world.identity.credentials import Credentials
from sureline.world.identity.errors import IdentityError
from sureline.world.identity.home import GridHome, grid_names

base = pathlib.Path(sys.argv[1])
STEPS = ("open", "mkdir", "rename", "fsync", "unlink")

def killed_at(number, action):
    '''Run the action in a process that is killed at its n-th step on the disk; True if it was.'''
    child = os.fork()
    if child == 0:
        left = [number]
        def counting(real):
            def step(*args, **options):
                left[0] -= 1
                if left[0] < 0:
                    os.kill(os.getpid(), signal.SIGKILL)
                return real(*args, **options)
            return step
        for name in STEPS:
            setattr(os, name, counting(getattr(os, name)))
        action()
        os._exit(0)
    _, status = os.waitpid(child, 0)
    assert os.WIFSIGNALED(status) or os.WEXITSTATUS(status) == 0, status
    return os.WIFSIGNALED(status)

def at_every_step(action_at):
    number = 0
    while action_at(number):
        number += 1
    assert number > 5, number
    return number
"""


def run_script(body: str, where: Path) -> str:
    done = subprocess.run(
        [sys.executable, "-c", KILLED_ANYWHERE + textwrap.dedent(body), os.fspath(where)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_kill_at_any_step_leaves_no_grid_or_a_whole_one(tmp_path):
    run_script(
        """
        def attempt(number):
            home = base / str(number)
            killed = killed_at(number, lambda: Authority.create(home, "lab", "lab7"))
            if "lab" not in grid_names(home):
                assert killed
                Authority.create(home, "lab", "lab7")
            grid = GridHome.open("lab", home)
            assert Credentials.load(grid).name == "lab7"
            authority = Authority.open(grid)
            authority.invite(expires_s=60, addresses=["localhost:1"])
            assert [peer.name for peer in authority.peers()] == ["lab7"]
            shutil.rmtree(home)
            return killed

        at_every_step(attempt)
        """,
        tmp_path,
    )


def test_a_kill_at_any_step_of_an_admission_neither_loses_nor_doubles_it(tmp_path):
    run_script(
        """
        authority = Authority.create(base, "lab", "issuer")
        keys = []

        def attempt(number):
            wanted = f"peer{number}"
            invitation = authority.invite(expires_s=60, addresses=["localhost:1"])
            key = certificates.new_key().public_key()
            redeem = lambda key=key: authority.redeem(invitation.id, key, wanted)
            killed = killed_at(number, redeem)
            first, again = redeem(), redeem()
            assert first == again
            identity = certificates.identity_of(first, authority.certificate)
            assert identity.name == wanted
            try:
                redeem(certificates.new_key().public_key())
            except IdentityError:
                pass
            else:
                raise AssertionError("a second machine was let in")
            names = [peer.name for peer in authority.peers()]
            assert len(names) == number + 2 and wanted in names, names
            serials = [s for peer in authority.peers() for s in peer.serials]
            assert identity.serial in serials
            return killed

        at_every_step(attempt)
        """,
        tmp_path,
    )


def test_a_kill_at_any_step_of_a_revocation_leaves_a_list_that_can_be_continued(tmp_path):
    run_script(
        """
        authority = Authority.create(base, "lab", "issuer")

        def attempt(number):
            wanted = f"peer{number}"
            invitation = authority.invite(expires_s=60, addresses=["localhost:1"])
            authority.redeem(invitation.id, certificates.new_key().public_key(), wanted)
            killed = killed_at(number, lambda: authority.revoke(wanted))
            before = Credentials.load(authority.home).revocations.version
            after = authority.revoke(wanted)
            assert after.version > before and wanted in after.names
            assert Credentials.load(authority.home).revocations.version == after.version
            return killed

        at_every_step(attempt)
        """,
        tmp_path,
    )


def test_a_kill_at_any_step_of_joining_leaves_nothing_or_a_whole_home(tmp_path):
    run_script(
        """
        from sureline.world.identity import enrolment_wire as wire, joining
        from sureline.world.identity.home import make_home

        authority = Authority.create(base / "issuer", "lab", "issuer")
        admitted = authority.invite(expires_s=60, addresses=["localhost:1"])
        authority.redeem(admitted.id, certificates.new_key().public_key(), "bad")
        authority.revoke("bad")

        def join(home, invitation):
            make_home(home)
            known = joining._present(home, invitation)
            if known is not None:
                return known
            key = joining._kept_key(home, invitation)
            certificate = authority.redeem(invitation.id, key.public_key(), "lab7")
            welcome = wire.Welcome(
                certificates.der_of(certificate),
                certificates.der_of(authority.certificate),
                authority.revocations().signed,
                ("issuer@localhost:1",),
                "issuer",
            )
            return joining._settle(home, invitation, key, welcome)

        def attempt(number):
            home = base / str(number)
            invitation = authority.invite(
                expires_s=60, addresses=["localhost:1"], name=f"lab{number}"
            )
            killed = killed_at(number, lambda: join(home, invitation))
            if "lab" in grid_names(home):
                Credentials.load(GridHome.open("lab", home))
            joined = join(home, invitation)
            assert joined.name == f"lab{number}", joined.name
            assert joined.revocations.names == {"bad"}
            assert joined.home.contacts() == ("issuer@localhost:1",)
            return killed

        at_every_step(attempt)
        """,
        tmp_path,
    )


def test_everything_in_a_home_is_private(tmp_path):
    old = os.umask(0)
    try:
        authority = new_grid(tmp_path / "home")
        authority.invite(expires_s=60, addresses=["localhost:1"])
        admit(authority, tmp_path / "other", "other")
        authority.revoke("other")
        claim = authority.home.claim()
        claim.announce("issuer@localhost:1")
        authority.home.keep_contacts(["other@localhost:2"])
    finally:
        os.umask(old)
    found = 0
    for directory, _, files in os.walk(tmp_path / "home"):
        assert stat.S_IMODE(os.stat(directory).st_mode) == 0o700, directory
        for name in files:
            path = os.path.join(directory, name)
            assert stat.S_IMODE(os.stat(path).st_mode) == 0o600, path
            found += 1
    assert found >= 9
    claim.release()


@pytest.mark.parametrize(
    ("part", "mode", "remedy"),
    [
        ("home", 0o777, "chmod go-w"),
        ("home/grids", 0o755, "chmod 700"),
        ("home/grids/lab", 0o750, "chmod 700"),
        ("home/grids/lab/peer.pem", 0o644, "chmod 600"),
        ("home/grids/lab/authority", 0o710, "chmod 700"),
        ("home/grids/lab/authority/ca.key", 0o640, "chmod 600"),
    ],
)
def test_what_others_could_read_or_change_is_refused_with_the_remedy(tmp_path, part, mode, remedy):
    authority = new_grid(tmp_path / "home")
    admit(authority, tmp_path / "other", "other")
    os.chmod(tmp_path / part, mode)
    with pytest.raises(IdentityError, match=remedy):
        opened = GridHome.open("lab", tmp_path / "home")
        Credentials.load(opened)
        Authority.open(opened).revoke("other")


def test_a_second_grid_of_the_same_name_is_refused_and_the_first_is_unharmed(tmp_path):
    before = Credentials.load(new_grid(tmp_path).home).certificate_der
    with pytest.raises(IdentityError, match="already"):
        new_grid(tmp_path)
    assert Credentials.load(GridHome.open(home=tmp_path)).certificate_der == before


def test_the_only_grid_need_not_be_named(tmp_path):
    with pytest.raises(IdentityError, match="grid new"):
        GridHome.open(home=tmp_path)
    new_grid(tmp_path, "one")
    assert GridHome.open(home=tmp_path).grid == "one"
    new_grid(tmp_path, "two")
    with pytest.raises(IdentityError, match="one, two"):
        GridHome.open(home=tmp_path)
    with pytest.raises(IdentityError, match="no grid 'three'"):
        GridHome.open("three", tmp_path)
    assert grid_names(tmp_path) == ["one", "two"]


@pytest.mark.parametrize("name", ["", "Lab", "a/b", "../x", "a@b", "a+b", "-x", "a" * 64, "a b"])
def test_impossible_names_are_refused_before_anything_is_made(tmp_path, name):
    with pytest.raises(IdentityError, match="cannot name"):
        Authority.create(tmp_path / "home", name, "peer")
    with pytest.raises(IdentityError, match="cannot name"):
        Authority.create(tmp_path / "home", "lab", name)
    assert not (tmp_path / "home").exists()


def test_the_home_is_where_the_environment_says(monkeypatch, tmp_path):
    monkeypatch.setenv("SURELINE_HOME", str(tmp_path / "mine"))
    assert home_directory() == tmp_path / "mine"
    monkeypatch.delenv("SURELINE_HOME")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    assert home_directory() == tmp_path / "config" / "sureline"
    monkeypatch.delenv("XDG_CONFIG_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert home_directory() == tmp_path / ".config" / "sureline"


def test_one_peer_at_a_time_serves_from_a_home(tmp_path):
    home = new_grid(tmp_path).home
    assert home.serving() is None
    claim = home.claim()
    claim.announce("issuer@localhost:7733")
    assert home.serving().node == "issuer@localhost:7733"
    with pytest.raises(IdentityError, match="issuer@localhost:7733"):
        home.claim()
    claim.release()
    claim.release()
    assert home.serving() is None
    home.claim().release()


def test_a_peer_that_was_killed_serves_no_more(tmp_path):
    new_grid(tmp_path)
    run_script(
        """
        def serve():
            GridHome.open("lab", base).claim().announce("issuer@localhost:1")
            os.kill(os.getpid(), signal.SIGKILL)

        killed_at(10**6, serve)
        """,
        tmp_path,
    )
    home = GridHome.open("lab", tmp_path)
    assert (home.path / "serving.json").exists()
    assert home.serving() is None
    home.claim().release()


def test_contacts_are_few_distinct_and_only_a_hint(tmp_path):
    home = new_grid(tmp_path).home
    assert home.contacts() == ()
    home.keep_contacts(f"n{number // 2}@localhost:1" for number in range(200))
    assert home.contacts() == tuple(f"n{number}@localhost:1" for number in range(CONTACTS_MAX))
    (home.path / "contacts.json").write_text("{")
    assert home.contacts() == ()
