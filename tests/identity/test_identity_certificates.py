"""What certificates say, whom TLS lets through, and whom credentials accept."""

from __future__ import annotations

import ssl

import pytest
from grids import admit, new_grid, settle

from sureline.world.identity import certificates
from sureline.world.identity.credentials import Credentials
from sureline.world.identity.errors import IdentityError


@pytest.fixture
def authority(tmp_path):
    return new_grid(tmp_path / "issuer")


def shake(server: ssl.SSLContext, client: ssl.SSLContext):
    """A handshake in memory; the two ends, or an SSLError of the one that refuses."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    serving = server.wrap_bio(to_server, to_client, server_side=True)
    calling = client.wrap_bio(to_client, to_server)
    for _ in range(4):
        for end in (calling, serving):
            try:
                end.do_handshake()
            except ssl.SSLWantReadError:
                pass
    return serving, calling


def nobody() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def test_a_certificate_says_who_a_peer_is_and_what_it_may_do(authority, tmp_path):
    runner = admit(authority, tmp_path / "runner", "lab7", roles=["run"])
    issuer = Credentials.load(authority.home)
    serving, calling = shake(issuer.server_context(), runner.client_context())
    assert serving.version() == "TLSv1.3"
    seen = issuer.identify(serving.getpeercert(binary_form=True))
    assert (seen.name, seen.roles) == ("lab7", {"run"})
    assert seen == runner.identity
    assert issuer.refused(seen) is None
    assert runner.identify(calling.getpeercert(binary_form=True)) == issuer.identity
    assert issuer.identity.roles == {"run", "submit", "drive"}


def test_tls_lets_a_stranger_through_but_knows_that_it_is_one(authority):
    issuer = Credentials.load(authority.home)
    serving, _ = shake(issuer.server_context(), nobody())
    assert serving.getpeercert(binary_form=True) is None


def test_tls_refuses_the_certificate_of_another_grid_on_both_sides(authority, tmp_path):
    ours = Credentials.load(authority.home)
    theirs = Credentials.load(new_grid(tmp_path / "other", "lab", "issuer").home)
    for server, client in ((ours, theirs), (theirs, ours)):
        with pytest.raises(ssl.SSLCertVerificationError):
            shake(server.server_context(), client.client_context())
    # A server that we would believe does not believe us, and says so.
    forgiving = nobody()
    forgiving.load_cert_chain(theirs.home.credentials_path)
    with pytest.raises(ssl.SSLCertVerificationError):
        shake(ours.server_context(), forgiving)
    with pytest.raises(IdentityError, match="not issued by this grid"):
        ours.identify(theirs.certificate_der)


def test_older_tls_is_refused(authority):
    old = nobody()
    old.maximum_version = ssl.TLSVersion.TLSv1_2
    with pytest.raises(ssl.SSLError):
        shake(Credentials.load(authority.home).server_context(), old)


def test_an_expired_certificate_is_refused_by_tls_and_by_the_credentials(authority, tmp_path):
    key = certificates.new_key()
    expired = certificates.issue(
        authority._key(),
        authority.certificate,
        key.public_key(),
        grid="lab",
        name="old",
        roles=frozenset({"run"}),
        valid_s=-60,
    )
    own = settle(authority, tmp_path / "old", certificates.own_pem(key, expired))
    issuer = Credentials.load(authority.home)
    with pytest.raises(ssl.SSLCertVerificationError):
        shake(issuer.server_context(), own.client_context())
    assert "expired" in issuer.refused(issuer.identify(certificates.der_of(expired)))


def test_a_peer_cannot_sign_others(authority, tmp_path):
    """A certificate signed with a peer's key, or the CA's own, identifies nobody."""
    peer = admit(authority, tmp_path / "peer", "peer")
    issuer = Credentials.load(authority.home)
    pem = peer.home.credentials_path.read_bytes()
    key = certificates.new_key()
    forged = certificates.issue(
        certificates.read_key(pem),
        certificates.read_pem(pem),
        key.public_key(),
        grid="lab",
        name="issuer",
        roles=frozenset({"submit"}),
    )
    for der in (certificates.der_of(forged), certificates.der_of(authority.certificate)):
        with pytest.raises(IdentityError):
            issuer.identify(der)
    context = nobody()
    (tmp_path / "forged.pem").write_bytes(
        certificates.own_pem(key, forged) + certificates.pem_of(certificates.read_pem(pem))
    )
    context.load_cert_chain(tmp_path / "forged.pem")
    with pytest.raises(ssl.SSLCertVerificationError):
        shake(issuer.server_context(), context)


def test_a_role_outside_the_signed_part_is_no_role(authority, tmp_path):
    """Changing a single byte of a certificate makes it nobody's."""
    der = admit(authority, tmp_path / "peer", "peer", roles=["run"]).certificate_der
    issuer = Credentials.load(authority.home)
    assert issuer.identify(der).roles == {"run"}
    altered = der.replace(b"urn:sureline:role:run", b"urn:sureline:role:rum")
    assert altered != der
    with pytest.raises(IdentityError):
        issuer.identify(altered)


@pytest.mark.parametrize("junk", [b"", b"junk", bytes(5000)])
def test_junk_is_no_certificate(authority, junk):
    with pytest.raises(IdentityError):
        Credentials.load(authority.home).identify(junk)
    with pytest.raises(IdentityError):
        certificates.requested_key(junk)
