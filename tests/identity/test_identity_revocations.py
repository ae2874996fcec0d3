"""The list of who is out: signed, kept, never going back."""

from __future__ import annotations

import time

import pytest
from grids import admit, new_grid

from sureline.world.identity import authority as authority_module
from sureline.world.identity import certificates
from sureline.world.identity.authority import Authority
from sureline.world.identity.credentials import Credentials
from sureline.world.identity.errors import IdentityError
from sureline.world.identity.home import GridHome
from sureline.world.identity.revocations import ENTRIES_MAX, RevocationList, Revoked


@pytest.fixture
def authority(tmp_path):
    return new_grid(tmp_path / "issuer")


def test_a_revoked_peer_is_refused_by_all_who_know_also_after_restarts(authority, tmp_path):
    bad = admit(authority, tmp_path / "bad", "bad").identity
    good = admit(authority, tmp_path / "good", "good")
    assert good.refused(bad) is None
    revoked = authority.revoke("bad")
    assert good.refused(bad) is None  # it cannot know yet
    assert good.adopt(revoked)
    assert good.refused(bad) == "peer bad has been revoked"
    assert good.refused(good.identity) is None
    again = Credentials.load(GridHome.open("lab", tmp_path / "good"))
    assert again.refused(bad) == "peer bad has been revoked"
    assert again.revocations.version == 1


def test_the_serving_peer_notices_a_revocation_in_its_home(authority, tmp_path):
    serving = Credentials.load(authority.home)
    bad = admit(authority, tmp_path / "bad", "bad").identity
    assert serving.reload() is None
    authority.revoke("bad")
    assert serving.reload().names == {"bad"}
    assert serving.reload() is None
    assert serving.refused(bad)
    (authority.home.path / "revocations").write_bytes(b"junk")
    assert serving.reload() is None
    assert serving.refused(bad)


def test_a_damaged_list_is_not_taken_for_an_empty_one(authority, tmp_path):
    admit(authority, tmp_path / "bad", "bad")
    authority.revoke("bad")
    path = authority.home.path / "revocations"
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(IdentityError, match="remove the file"):
        Credentials.load(authority.home)


def test_lists_never_go_back(authority, tmp_path):
    peer = admit(authority, tmp_path / "peer", "peer")
    for number in range(3):
        admit(authority, tmp_path / str(number), f"bad{number}")
    lists = [authority.revoke(f"bad{number}") for number in range(3)]
    assert [found.version for found in lists] == [1, 2, 3]
    assert lists[2].names == {"bad0", "bad1", "bad2"}
    assert peer.adopt(lists[1])
    assert not peer.adopt(lists[0]) and not peer.adopt(lists[1])
    assert peer.revocations.names == {"bad0", "bad1"}
    assert peer.adopt(lists[2])
    # Another process of the same home that is behind does not undo it.
    peer.home.keep_revocations(lists[0].signed)
    behind = Credentials.load(peer.home)
    peer.home.keep_revocations(lists[2].signed)
    assert behind.adopt(lists[1])
    assert Credentials.load(peer.home).revocations.version == 3


def test_versions_go_on_though_the_home_lost_its_copy(authority, tmp_path):
    for name in ("bad", "worse"):
        admit(authority, tmp_path / name, name)
    authority.revoke("bad")
    (authority.home.path / "revocations").unlink()
    assert Authority.open(authority.home).revoke("worse").version == 2


def test_a_list_that_the_authority_has_not_signed_is_none(authority, tmp_path):
    peer = admit(authority, tmp_path / "peer", "peer")
    admit(authority, tmp_path / "bad", "bad")
    real = authority.revoke("bad").signed
    other = RevocationList.sign(9, [Revoked("issuer", ("1",), 1e10)], certificates.new_key())
    own_key = certificates.read_key(peer.home.credentials_path.read_bytes())
    by_peer = RevocationList.sign(9, [Revoked("issuer", ("1",), 1e10)], own_key)
    for signed in (other.signed, by_peer.signed, b"junk", real[:-1], real + b"x", bytes(10**6)):
        assert peer.verified(signed) is None
    for place in range(0, len(real), 3):
        altered = bytearray(real)
        altered[place] ^= 4
        assert peer.verified(bytes(altered)) is None
    assert peer.verified(real).version == 1
    assert peer.verified(b"").version == 0


def test_all_certificates_of_a_peer_are_out(authority, tmp_path, monkeypatch):
    peer = admit(authority, tmp_path / "peer", "peer")
    later = time.time() + certificates.PEER_VALID_S - 86_400
    monkeypatch.setattr(authority_module.time, "time", lambda: later)
    newer = authority.renew("peer", certificates.new_key().public_key())
    revoked = authority.revoke("peer")
    identity = certificates.identity_of(newer, authority.certificate)
    assert revoked.has("other", identity.serial)
    assert revoked.has("other", peer.identity.serial)
    with pytest.raises(IdentityError):
        authority.renew("peer", certificates.new_key().public_key())


def test_whom_one_cannot_revoke(authority, tmp_path):
    for name in ("nobody", "../ca.key", ""):
        with pytest.raises(IdentityError, match="no peer"):
            authority.revoke(name)
    with pytest.raises(IdentityError, match="make a new grid"):
        authority.revoke("issuer")
    admitted = admit(authority, tmp_path / "peer", "peer")
    with pytest.raises(IdentityError, match="another home"):
        Authority.open(admitted.home)
    assert authority.revocations().version == 0


def test_a_list_stays_bounded(authority, tmp_path, monkeypatch):
    many = [Revoked(f"p{i}", (f"{i:040x}",), time.time() + 1) for i in range(ENTRIES_MAX)]
    full = RevocationList.sign(1, many, authority._key())
    assert len(full.signed) < 900_000
    with pytest.raises(IdentityError, match="new grid"):
        RevocationList.sign(2, [*many, many[0]], authority._key())
    (authority.path / "revocations").write_bytes(full.signed)
    admit(authority, tmp_path / "bad", "bad")
    later = time.time() + 40 * 86_400
    monkeypatch.setattr(authority_module.time, "time", lambda: later)
    assert authority.revoke("bad").names == {"bad"}  # the others' certificates expired long ago
