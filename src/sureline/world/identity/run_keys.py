"""Keys and trust for signed runs (`signing`) on a real grid.

A run's keys are Ed25519: they sign small things often. A home's own key is that of its certificate
(P-256); it signs once per run and writer. Private keys of runs are never written down.
"""

from __future__ import annotations

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, ed25519

from sureline.world.identity import certificates
from sureline.world.identity.certificates import Identity
from sureline.world.identity.credentials import Credentials
from sureline.world.identity.errors import IdentityError
from sureline.world.identity.signing import PapersError


class Ed25519Key:
    """A `RunKey`."""

    def __init__(self) -> None:
        self._key = ed25519.Ed25519PrivateKey.generate()
        self.public = self._key.public_key().public_bytes_raw()

    def sign(self, said: bytes) -> bytes:
        return self._key.sign(said)


class CertifiedHome:
    """A `Certified`: this home. It has its key in memory: not to be kept longer than needed."""

    def __init__(self, credentials: Credentials) -> None:
        self.certificate = credentials.certificate_der
        self._key = credentials.own_key()

    def sign(self, said: bytes) -> bytes:
        return self._key.sign(said, ec.ECDSA(hashes.SHA256()))


class GridTrust:
    """A `Trust`: what the grid's authority has signed, and not revoked."""

    def __init__(self, credentials: Credentials) -> None:
        self._credentials = credentials

    def holder(self, certificate: bytes) -> Identity:
        try:
            identity = self._credentials.identify(certificate)
        except IdentityError as error:
            raise PapersError(str(error)) from None
        refused = self._credentials.refused(identity)
        if refused is not None:
            raise PapersError(refused)
        return identity

    def signed_by_holder(self, certificate: bytes, signature: bytes, said: bytes) -> bool:
        try:
            key = certificates.read_der(certificate).public_key()
            if not isinstance(key, ec.EllipticCurvePublicKey):
                return False
            key.verify(signature, said, ec.ECDSA(hashes.SHA256()))
        except (IdentityError, InvalidSignature, ValueError):
            return False
        return True

    def signed_by_key(self, key: bytes, signature: bytes, said: bytes) -> bool:
        try:
            ed25519.Ed25519PublicKey.from_public_bytes(key).verify(signature, said)
        except (InvalidSignature, ValueError):
            return False
        return True
