"""A home's own certificate at work: TLS contexts, and the judgement of others' certificates.

TLS 1.3 only, and both sides verify against the grid's CA alone. Host names are not checked: a
peer is who its certificate says, wherever it listens. A server lets a client without certificate
through the handshake, since a machine that wants to join has none yet; what such a stranger may
do is the transport's and `enrolment`'s matter.
"""

from __future__ import annotations

import ssl
import time
from functools import lru_cache

from sureline.world.identity import certificates, disk, passphrase
from sureline.world.identity.certificates import Certificate, Identity
from sureline.world.identity.errors import IdentityError
from sureline.world.identity.home import FILE_BYTES_MAX, GridHome
from sureline.world.identity.revocations import RevocationList

IDENTIFIED_MAX = 4096
"""Certificates of others that are remembered."""


class Credentials:
    """Who this home is in its grid, and whom it accepts. Not for use from several threads."""

    def __init__(self, home: GridHome) -> None:
        self.home = home
        self.grid = home.grid
        self.authority = certificates.read_pem(home.authority_certificate())
        self._seen = home.revocations_stamp()
        self._list = self._kept_list()
        self._read_own()

    @classmethod
    def load(cls, home: GridHome) -> Credentials:
        """From a home's files. Raises IdentityError if they are damaged or too open."""
        return cls(home)

    def _own_pem(self) -> bytes:
        path = self.home.credentials_path
        pem = disk.read_secret(path, FILE_BYTES_MAX)
        if pem is None:
            raise IdentityError(f"{path} is missing; restore it, or enrol anew")
        return pem

    def _read_own(self) -> None:
        certificate = certificates.read_pem(self._own_pem())
        self.identity = certificates.identity_of(certificate, self.authority)
        self.certificate_der = certificates.der_of(certificate)
        self._server: ssl.SSLContext | None = None
        self._client: ssl.SSLContext | None = None

    def _kept_list(self) -> RevocationList:
        try:
            return RevocationList.verified(self.home.revocations(), self.authority)
        except IdentityError as error:
            raise IdentityError(
                f"{self.home.path / 'revocations'}: {error}; remove the file, and peers of the "
                "grid will send the newest list"
            ) from None

    @property
    def name(self) -> str:
        return self.identity.name

    def server_context(self) -> ssl.SSLContext:
        """For those that connect to us. The same object until the certificate is renewed."""
        if self._server is None:
            context = self._context(ssl.PROTOCOL_TLS_SERVER)
            context.verify_mode = ssl.CERT_OPTIONAL
            context.num_tickets = 0  # sessions are not resumed, so tickets would only cost
            self._server = context
        return self._server

    def client_context(self) -> ssl.SSLContext:
        """For those to whom we connect. The same object until the certificate is renewed."""
        if self._client is None:
            context = self._context(ssl.PROTOCOL_TLS_CLIENT)
            context.verify_mode = ssl.CERT_REQUIRED
            self._client = context
        return self._client

    def _context(self, protocol: ssl._SSLMethod) -> ssl.SSLContext:
        context = ssl.SSLContext(protocol)
        context.check_hostname = False
        context.minimum_version = context.maximum_version = ssl.TLSVersion.TLSv1_3
        context.verify_flags |= ssl.VERIFY_X509_STRICT
        context.load_verify_locations(cadata=certificates.pem_of(self.authority).decode())
        locked = certificates.is_locked(self._own_pem())
        password = passphrase.passphrase() if locked else None
        try:
            context.load_cert_chain(self.home.credentials_path, password=password)
        except (ssl.SSLError, OSError) as error:
            if locked and isinstance(error, ssl.SSLError):
                raise passphrase.wrong() from None
            raise IdentityError(
                f"{self.home.credentials_path} is damaged; restore it, or enrol anew"
            ) from None
        return context

    def identify(self, der: bytes) -> Identity:
        """Who a certificate is for. Raises IdentityError unless this grid's CA has signed it."""
        return _identified(der, self.authority)

    def refused(self, identity: Identity) -> str | None:
        """Why this peer must be refused now; None if it is welcome."""
        if self._list.has(identity.name, identity.serial):
            return f"peer {identity.name} has been revoked"
        if identity.not_after < time.time():
            return f"the certificate of peer {identity.name} has expired"
        return None

    def renewal_request(self) -> bytes | None:
        """A signing request for our own key, if our certificate should be renewed by now."""
        if self.identity.not_after - time.time() > certificates.RENEW_BEFORE_S:
            return None
        return certificates.new_request(self.own_key())

    def renew(self, der: bytes) -> None:
        """Use this certificate from now on; it must be ours, and last longer. Connections that
        open from now on show it. Raises IdentityError."""
        certificate, key = certificates.read_der(der), self.own_key()
        identity = certificates.identity_of(certificate, self.authority)
        if identity.name != self.name or certificate.public_key() != key.public_key():
            raise IdentityError("the renewed certificate is for somebody else")
        if identity.not_after <= self.identity.not_after:
            raise IdentityError("the renewed certificate does not last longer")
        secret = passphrase.passphrase() if certificates.is_locked(self._own_pem()) else None
        disk.write(self.home.credentials_path, certificates.own_pem(key, certificate, secret))
        self._read_own()

    def lock(self, secret: bytes | None) -> None:
        """Protect this home's key by this passphrase, or by none. Raises IdentityError."""
        key, certificate = self.own_key(), certificates.read_pem(self._own_pem())
        disk.write(self.home.credentials_path, certificates.own_pem(key, certificate, secret))

    def own_key(self) -> certificates.PrivateKey:
        return certificates.read_key(self._own_pem())

    @property
    def revocations(self) -> RevocationList:
        return self._list

    def verified(self, signed: bytes) -> RevocationList | None:
        """The list in these bytes; None unless the CA has signed it."""
        try:
            return RevocationList.verified(signed, self.authority)
        except IdentityError:
            return None

    def adopt(self, revocations: RevocationList) -> bool:
        """Take a verified list if it is newer than ours, and keep it in the home. False if not."""
        if revocations.version <= self._list.version:
            return False
        with self.home.locked():
            kept = self.verified(self.home.revocations())
            if kept is None or kept.version < revocations.version:
                self.home.keep_revocations(revocations.signed)
        self._list = revocations
        return True

    def reload(self) -> RevocationList | None:
        """A newer list that another process has put into this home, if there is one. To be called
        every second or so while serving: it costs a stat of a file."""
        stamp = self.home.revocations_stamp()
        if stamp == self._seen:
            return None
        self._seen = stamp
        found = self.verified(self.home.revocations())
        if found is None or found.version <= self._list.version:
            return None
        self._list = found
        return found


@lru_cache(maxsize=IDENTIFIED_MAX)
def _identified(der: bytes, authority: Certificate) -> Identity:
    """Peers meet again and again, and what was signed once stays signed; whether it has expired or
    been revoked is asked each time (`refused`)."""
    return certificates.identity_of(certificates.read_der(der), authority)
