"""Certificates are renewed before they expire, by the peer in the home with the CA."""

from __future__ import annotations

import time

import pytest
from grids import admit, new_grid

from sureline.overlay.renewal import CHECK_S, Renewal, RenewalAsk, RenewalDone
from sureline.world.identity import certificates
from sureline.world.identity.credentials import Credentials
from sureline.world.identity.errors import IdentityError
from sureline.world.identity.home import GridHome
from sureline.world.identity.renewing import accepting, issuing
from sureline.world.simulated import Simulation

YEAR_S = certificates.PEER_VALID_S
DAY_S = 86_400.0


@pytest.fixture
def authority(tmp_path):
    return new_grid(tmp_path / "issuer")


@pytest.fixture
def pass_time(monkeypatch):
    real = time.time
    passed = [0.0]
    monkeypatch.setattr(time, "time", lambda: real() + passed[0])

    def by(seconds: float) -> None:
        passed[0] += seconds

    return by


class Node:
    def __init__(self, sim: Simulation, credentials: Credentials, issue=None) -> None:
        me = f"{credentials.name}@host:1/renewal"
        self.credentials = credentials
        self.agent = Renewal(
            me,
            sim.place(me),
            request=credentials.renewal_request,
            accept=accepting(credentials),
            issuers=lambda: ["issuer@host:1"],
            issue=issue,
        )
        sim.join(self.agent)
        self.agent.start()


def test_a_certificate_is_renewed_in_time_with_name_roles_and_key(authority, tmp_path, pass_time):
    sim = Simulation(seed=1)
    issuer = Node(sim, Credentials.load(authority.home), issuing(authority))
    peer = Node(sim, admit(authority, tmp_path / "peer", "lab7", roles=["run"]))
    before = peer.credentials.identity
    context = peer.credentials.server_context()
    sim.run(until=3 * CHECK_S)
    assert peer.credentials.identity == before  # not due yet
    assert peer.credentials.server_context() is context

    pass_time(YEAR_S - 30 * DAY_S)
    sim.run(until=6 * CHECK_S)
    after = peer.credentials.identity
    assert (after.name, after.roles) == ("lab7", {"run"})
    assert after.not_after > before.not_after + 300 * DAY_S and after.serial != before.serial
    assert peer.credentials.server_context() is not context
    assert Credentials.load(GridHome.open("lab", tmp_path / "peer")).identity == after
    assert issuer.credentials.refused(after) is None
    # The issuer renews its own like any other's.
    assert issuer.credentials.identity.not_after > time.time() + 300 * DAY_S


def test_only_the_name_that_the_transport_vouches_for_is_renewed(authority, tmp_path, pass_time):
    peer = admit(authority, tmp_path / "peer", "lab7")
    issue = issuing(authority)
    request = certificates.new_request(certificates.new_key())
    assert issue("lab7", request) is None  # not due: no stock of certificates
    pass_time(YEAR_S - 30 * DAY_S)
    assert issue("lab7", b"junk") is None
    assert issue("nobody", request) is None
    assert issue("../issuer", request) is None
    first = issue("lab7", request)
    assert issue("lab7", request) == first  # the answer was lost
    with pytest.raises(IdentityError, match="somebody else"):
        peer.renew(first)
    authority.revoke("lab7")
    assert issue("lab7", request) is None
    assert authority.revocations().has("", peer.identify(first).serial)


def test_an_answer_that_was_not_asked_for_is_not_taken(authority, tmp_path):
    taken = []
    sim = Simulation(seed=1)
    agent = Renewal(
        "a@host:1/renewal",
        sim.place("a@host:1/renewal"),
        request=lambda: b"request",
        accept=taken.append,
        issuers=lambda: ["issuer@host:1"],
    )
    sim.join(agent)
    agent.receive("issuer@host:1/renewal", RenewalDone(b"early"))
    agent.start()
    agent.receive("other@host:1/renewal", RenewalDone(b"forged"))
    agent.receive("other@host:1/renewal", RenewalAsk(b"not here"))
    assert taken == []
    agent.receive("issuer@host:1/renewal", RenewalDone(b"good"))
    agent.receive("issuer@host:1/renewal", RenewalDone(b"late"))
    assert taken == [b"good"]


def test_a_certificate_that_is_no_better_is_not_taken(authority, tmp_path):
    peer = admit(authority, tmp_path / "peer", "lab7")
    other = admit(authority, tmp_path / "other", "other")
    before = peer.home.credentials_path.read_bytes()
    for der in (peer.certificate_der, other.certificate_der):
        with pytest.raises(IdentityError):
            peer.renew(der)
    assert peer.home.credentials_path.read_bytes() == before
