"""What certificates look like here, and how to make and read them.

Keys are P-256. A grid's CA signs peers only (path length 0), and only names below
`GRID.sureline.invalid`: a CA that a browser came to trust could vouch for no real host. A peer's
certificate has the peer's name as its common name; its alternative names are the DNS name
`NAME.GRID.sureline.invalid` and one URI `urn:sureline:role:ROLE` for each role. What a peer is
called and may do is thus what the CA has signed, and nothing that a peer says itself.
"""

from __future__ import annotations

import datetime
import ipaddress
import time
from typing import NamedTuple

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from sureline.world.identity import passphrase
from sureline.world.identity.errors import IdentityError
from sureline.world.identity.names import ROLES, is_name

Certificate = x509.Certificate
PrivateKey = ec.EllipticCurvePrivateKey
PublicKey = ec.EllipticCurvePublicKey

AUTHORITY_VALID_S = 30 * 365 * 86_400.0
PEER_VALID_S = 365 * 86_400.0
RENEW_BEFORE_S = 60 * 86_400.0
"""A certificate that expires within this time may be renewed."""
_BACKDATED_S = 86_400.0
"""Certificates are valid from a day ago: clocks of machines that nobody controls differ."""
_SUFFIX = "sureline.invalid"
_ROLE = "urn:sureline:role:"
_EVERYWHERE = ("0.0.0.0/0", "::/0")


class Identity(NamedTuple):
    """Who a certificate says somebody is."""

    name: str
    roles: frozenset[str]
    serial: str
    """In hexadecimal."""
    not_after: float
    """Seconds since the epoch."""


def new_key() -> PrivateKey:
    return ec.generate_private_key(ec.SECP256R1())


def key_pem(key: PrivateKey, secret: bytes | None = None) -> bytes:
    """With a `secret`, only who knows it can read the key."""
    encryption: serialization.KeySerializationEncryption = serialization.NoEncryption()
    if secret is not None:
        encryption = serialization.BestAvailableEncryption(secret)
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, encryption
    )


def is_locked(pem: bytes) -> bool:
    """Whether the key in it has a passphrase."""
    return b"-----BEGIN ENCRYPTED PRIVATE KEY-----" in pem


def read_key(pem: bytes) -> PrivateKey:
    """Asks for the passphrase, if it has one. Raises IdentityError."""
    secret = passphrase.passphrase() if is_locked(pem) else None
    try:
        key = serialization.load_pem_private_key(pem, secret)
    except (ValueError, TypeError):
        if secret is not None:
            raise passphrase.wrong() from None
        key = None
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise IdentityError("a key file holds no key of ours; restore it, or enrol anew")
    return key


def pem_of(certificate: Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


def own_pem(key: PrivateKey, certificate: Certificate, secret: bytes | None = None) -> bytes:
    """A key and its certificate, as one file holds them."""
    return key_pem(key, secret) + pem_of(certificate)


def der_of(certificate: Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.DER)


def read_pem(pem: bytes) -> Certificate:
    """Raises IdentityError."""
    try:
        return x509.load_pem_x509_certificate(pem)
    except ValueError:
        raise IdentityError("a certificate file is damaged; restore it, or enrol anew") from None


def read_der(der: bytes) -> Certificate:
    """Raises IdentityError."""
    try:
        return x509.load_der_x509_certificate(der)
    except ValueError:
        raise IdentityError("what was sent is no certificate") from None


def fingerprint(certificate: Certificate) -> bytes:
    """SHA-256 of the whole certificate."""
    return certificate.fingerprint(hashes.SHA256())


def new_authority(grid: str) -> tuple[PrivateKey, Certificate]:
    """A grid's own CA: its key and its certificate, signed by itself."""
    key = new_key()
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"grid {grid}"[:64])])
    constraints = x509.NameConstraints(
        permitted_subtrees=[x509.DNSName(f"{grid}.{_SUFFIX}")],
        excluded_subtrees=[x509.IPAddress(ipaddress.ip_network(text)) for text in _EVERYWHERE],
    )
    certificate = (
        _builder(name, key.public_key(), time.time() + AUTHORITY_VALID_S)
        .issuer_name(name)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(signs_certificates=True), critical=True)
        .add_extension(constraints, critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )
    return key, certificate


def issue(
    authority_key: PrivateKey,
    authority: Certificate,
    public_key: PublicKey,
    *,
    grid: str,
    name: str,
    roles: frozenset[str],
    valid_s: float = PEER_VALID_S,
) -> Certificate:
    """A peer's certificate, valid for `valid_s` but no longer than the CA's own."""
    not_after = min(time.time() + valid_s, authority.not_valid_after_utc.timestamp())
    alternative = [x509.DNSName(f"{name}.{grid}.{_SUFFIX}")]
    named = x509.SubjectAlternativeName(
        [*alternative, *(x509.UniformResourceIdentifier(_ROLE + role) for role in sorted(roles))]
    )
    usages = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
    issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(authority_key.public_key())
    return (
        _builder(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]), public_key, not_after)
        .issuer_name(authority.subject)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(signs_certificates=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage(usages), critical=False)
        .add_extension(named, critical=False)
        .add_extension(issuer, critical=False)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(public_key), critical=False)
        .sign(authority_key, hashes.SHA256())
    )


def new_request(key: PrivateKey) -> bytes:
    """A signing request (DER): proves that its sender has the key. It names nobody; the CA does."""
    builder = x509.CertificateSigningRequestBuilder().subject_name(x509.Name([]))
    return builder.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.DER)


def requested_key(request: bytes) -> PublicKey:
    """The key for which a signing request asks a certificate. Raises IdentityError."""
    try:
        found = x509.load_der_x509_csr(request)
        valid = found.is_signature_valid
        key = found.public_key()
    except (ValueError, TypeError, InvalidSignature):
        valid, key = False, None
    if not valid or not isinstance(key, ec.EllipticCurvePublicKey):
        raise IdentityError("the signing request is damaged")
    if not isinstance(key.curve, ec.SECP256R1):
        raise IdentityError("the signing request's key is of another kind than P-256")
    return key


def key_digest(key: PublicKey) -> bytes:
    """SHA-256 of a public key: equal for the same key only."""
    digest = hashes.Hash(hashes.SHA256())
    digest.update(
        key.public_bytes(
            serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
        )
    )
    return digest.finalize()


def identity_of(certificate: Certificate, authority: Certificate) -> Identity:
    """Who the certificate is for. Raises IdentityError unless this CA has signed it for a peer;
    whether it has expired or been revoked is another question."""
    try:
        certificate.verify_directly_issued_by(authority)
        constraints = certificate.extensions.get_extension_for_class(x509.BasicConstraints)
        named = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        common = certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
    except (ValueError, TypeError, InvalidSignature, x509.ExtensionNotFound):
        raise IdentityError("the certificate was not issued by this grid") from None
    name = str(common[0].value) if len(common) == 1 else ""
    if constraints.value.ca or not is_name(name):
        raise IdentityError("the certificate is not one of a peer")
    uris = named.get_values_for_type(x509.UniformResourceIdentifier)
    return Identity(
        name=name,
        roles=frozenset(role for role in ROLES if _ROLE + role in uris),
        serial=f"{certificate.serial_number:x}",
        not_after=certificate.not_valid_after_utc.timestamp(),
    )


def _builder(
    subject: x509.Name, public_key: PublicKey, not_after: float
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .public_key(public_key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(_moment(time.time() - _BACKDATED_S))
        .not_valid_after(_moment(not_after))
    )


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _moment(seconds: float) -> datetime.datetime:
    return datetime.datetime.fromtimestamp(int(seconds), datetime.UTC)
