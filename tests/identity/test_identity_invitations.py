"""Invitations as text, and what the authority makes of them."""

from __future__ import annotations

import time

import pytest
from grids import NOWHERE, admit, new_grid
from hypothesis import given
from hypothesis import strategies as st

from sureline.world.identity import authority as authority_module
from sureline.world.identity import certificates
from sureline.world.identity.authority import ExpiredInvitationError, SpentInvitationError
from sureline.world.identity.errors import IdentityError
from sureline.world.identity.invitation import Invitation, is_address
from sureline.world.identity.names import as_name, is_name, variants


@pytest.fixture
def authority(tmp_path):
    return new_grid(tmp_path / "issuer")


def key():
    return certificates.new_key().public_key()


invitations = st.builds(
    Invitation,
    grid=st.from_regex(r"[a-z0-9][a-z0-9-]{0,62}", fullmatch=True),
    addresses=st.lists(
        st.sampled_from(["10.0.0.5:7733", "[fe80::1]:1", "lab7.example.org:65535"]),
        min_size=1,
        max_size=8,
    ).map(tuple),
    fingerprint=st.binary(min_size=32, max_size=32),
    id=st.binary(min_size=12, max_size=12),
    secret=st.binary(min_size=24, max_size=24),
)


@given(invitations)
def test_an_invitation_is_one_word_that_reads_back(invitation):
    word = str(invitation)
    assert word.split() == [word] and word.isascii() and not word.startswith("-")
    assert Invitation.parse(word) == invitation
    assert Invitation.parse(f"  {word[:50]}\n{word[50:]}\n") == invitation
    assert invitation.secret.hex() not in repr(invitation)


@given(invitations, st.data())
def test_a_damaged_invitation_is_noticed(invitation, data):
    word = str(invitation)
    place = data.draw(st.integers(0, len(word) - 1))
    for damaged in (word[:place], word[:place] + "~" + word[place + 1 :], word + "AAAA"):
        with pytest.raises(IdentityError):
            Invitation.parse(damaged)


@given(st.text(max_size=300))
def test_no_text_but_an_invitation_is_one(text):
    for word in (text, "sureline1." + text):
        with pytest.raises(IdentityError):
            Invitation.parse(word)


def test_it_invites_once(authority):
    invitation = authority.invite(expires_s=60, addresses=[NOWHERE])
    mine = key()
    first = authority.redeem(invitation.id, mine, "lab7")
    assert authority.redeem(invitation.id, mine, "other") == first
    with pytest.raises(SpentInvitationError, match="lab7"):
        authority.redeem(invitation.id, key(), "thief")
    assert [peer.name for peer in authority.peers()] == ["issuer", "lab7"]


def test_it_expires_but_who_came_in_time_may_ask_again(authority, monkeypatch):
    used = authority.invite(expires_s=60, addresses=[NOWHERE])
    unused = authority.invite(expires_s=60, addresses=[NOWHERE])
    mine = key()
    first = authority.redeem(used.id, mine, "lab7")
    later = time.time() + 61
    monkeypatch.setattr(authority_module.time, "time", lambda: later)
    with pytest.raises(ExpiredInvitationError):
        authority.redeem(unused.id, key(), "late")
    assert authority.redeem(used.id, mine, "lab7") == first


def test_long_expired_invitations_are_forgotten(authority, monkeypatch):
    for _ in range(3):
        authority.invite(expires_s=60, addresses=[NOWHERE])
    later = time.time() + 60 + 31 * 86_400
    monkeypatch.setattr(authority_module.time, "time", lambda: later)
    authority.invite(expires_s=60, addresses=[NOWHERE])
    assert len(list((authority.path / "invitations").iterdir())) == 1


def test_names_are_unique_and_never_given_again(authority, tmp_path):
    names = [admit(authority, tmp_path / str(i), "lab7").name for i in range(3)]
    assert names == ["lab7", "lab7-2", "lab7-3"]
    assert admit(authority, tmp_path / "i", "issuer").name == "issuer-2"
    authority.revoke("lab7-2")
    assert admit(authority, tmp_path / "again", "lab7-2").name == "lab7-2-2"
    assert admit(authority, tmp_path / "more", "lab7").name == "lab7-4"


def test_an_invitation_can_fix_the_name_and_the_roles(authority):
    invitation = authority.invite(
        expires_s=60, addresses=[NOWHERE], name="printer", roles=["submit"]
    )
    certificate = authority.redeem(invitation.id, key(), "root")
    identity = certificates.identity_of(certificate, authority.certificate)
    assert (identity.name, identity.roles) == ("printer", {"submit"})


@pytest.mark.parametrize(
    "wrong",
    [
        {"roles": ["admin"]},
        {"roles": []},
        {"name": "a/b"},
        {"addresses": []},
        {"addresses": ["lab7"]},
        {"addresses": ["lab7:0"]},
        {"addresses": ["evil/../x:1"]},
        {"addresses": [NOWHERE] * 9},
        {"expires_s": 0},
        {"expires_s": 1e9},
        {"expires_s": float("nan")},
    ],
)
def test_impossible_invitations_are_refused(authority, wrong):
    with pytest.raises(IdentityError):
        authority.invite(**{"expires_s": 60, "addresses": [NOWHERE], **wrong})
    assert not list((authority.path / "invitations").iterdir())


@given(st.text(max_size=200))
def test_any_host_name_gives_a_possible_peer_name(text):
    name = as_name(text)
    assert is_name(name)
    numbered = variants(name)
    assert all(is_name(next(numbered)) for _ in range(12))


@given(st.text(max_size=50))
def test_an_address_can_be_connected_to_or_is_none(text):
    if is_address(text):
        assert text.rpartition(":")[2].isdecimal()
