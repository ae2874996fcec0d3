"""The grid's authority: the CA's key, the invitations it has given out, the peers it has named.

It exists only in the home that made the grid, in `grids/GRID/authority/`:

| file                 | what                                                                   |
|----------------------|------------------------------------------------------------------------|
| `ca.key`             | the CA's key                                                           |
| `invitations/ID`     | each invitation: its terms, its secret, and whom it has let in         |
| `peers/NAME`         | each name ever given; a name is never given to another                 |
| `revocations`        | the newest list, from which the next version is made                   |
| `lock`               | held while anything here changes                                       |

Every step is durable before the next, in an order that a kill cannot turn into two peers of one
name or two certificates for one invitation: a name is taken first, then the invitation is spent,
then the certificate is handed out. Whoever repeats a request with the same key gets what is
already his.
"""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TypeVar

import msgspec

from sureline.world.identity import certificates, disk
from sureline.world.identity.certificates import (
    RENEW_BEFORE_S,
    Certificate,
    PrivateKey,
    PublicKey,
)
from sureline.world.identity.errors import IdentityError
from sureline.world.identity.home import FILE_BYTES_MAX, GridHome, Issuer, make_home
from sureline.world.identity.invitation import (
    ADDRESSES_MAX,
    ID_BYTES,
    SECRET_BYTES,
    Invitation,
    is_address,
)
from sureline.world.identity.names import (
    ROLES,
    ROLES_DEFAULT,
    check_name,
    check_roles,
    is_name,
    variants,
)
from sureline.world.identity.revocations import RevocationList, Revoked

EXPIRES_S_MAX = 365 * 86_400.0
_KEEP_INVITATIONS_S = 30 * 86_400.0
"""How long after its expiry an invitation is remembered, to say that it has expired."""
_KEEP_REVOKED_S = 30 * 86_400.0
"""How long after a certificate's expiry it stays on the list: clocks differ."""


class Admitted(msgspec.Struct, frozen=True):
    """Whom an invitation has let in."""

    key_digest: bytes
    name: str
    certificate: bytes
    at: float


class Invited(msgspec.Struct, frozen=True):
    """An invitation, as its issuer remembers it."""

    id: str
    secret: bytes
    roles: tuple[str, ...]
    name: str
    expires_at: float
    admitted: Admitted | None = None


class Named(msgspec.Struct, frozen=True):
    """A name that was given, with the serials of all certificates issued for it."""

    name: str
    roles: tuple[str, ...]
    invitation: str
    serials: tuple[str, ...]
    certificate: bytes
    """The newest."""
    not_after: float
    revoked: bool = False


R = TypeVar("R", Invited, Named)


class RefusedInvitationError(IdentityError):
    """The invitation lets nobody in (any more)."""


class SpentInvitationError(RefusedInvitationError):
    pass


class ExpiredInvitationError(RefusedInvitationError):
    pass


class Authority:
    """Use from several processes and threads is safe: changes hold the lock."""

    def __init__(self, home: GridHome) -> None:
        self.home = home
        self.path = home.path / "authority"
        self.certificate = certificates.read_pem(home.authority_certificate())

    @classmethod
    def create(cls, home: Path, grid: str, name: str) -> Authority:
        """Make a grid, with this home as its first peer, called `name`, in all roles. Raises
        IdentityError if the home has a grid of that name already."""
        check_name(grid, "a grid")
        check_name(name, "a peer")
        made = GridHome(home, grid)
        make_home(home)
        if not disk.make_directory(made.path, lambda path: _fill(path, grid, name)):
            raise IdentityError(f"this home has a grid {grid!r} already; choose another name")
        return cls(made)

    @classmethod
    def open(cls, home: GridHome) -> Authority:
        """Raises IdentityError if the grid was made in another home."""
        if not home.holds_authority:
            issuer = home.issuer().name
            raise IdentityError(
                f"grid {home.grid!r} was made in another home (peer {issuer}); invite and revoke "
                "there"
            )
        disk.check_private(home.path / "authority")
        return cls(home)

    def invite(
        self,
        *,
        roles: Iterable[str] = ROLES_DEFAULT,
        expires_s: float,
        addresses: Sequence[str],
        name: str = "",
    ) -> Invitation:
        """A new invitation, good for one peer, until `expires_s` from now. Raises IdentityError."""
        if name:
            check_name(name, "a peer")
        for address in addresses:
            if not is_address(address):
                raise IdentityError(f"{address!r} is no address; write HOST:PORT")
        if not 0 < len(addresses) <= ADDRESSES_MAX:
            raise IdentityError(f"an invitation has 1 to {ADDRESSES_MAX} addresses")
        if not 0 < expires_s <= EXPIRES_S_MAX:
            raise IdentityError("an invitation is good for more than no time, at most a year")
        invitation = Invitation(
            grid=self.home.grid,
            addresses=tuple(addresses),
            fingerprint=certificates.fingerprint(self.certificate),
            id=secrets.token_bytes(ID_BYTES),
            secret=secrets.token_bytes(SECRET_BYTES),
        )
        record = Invited(
            id=invitation.id.hex(),
            secret=invitation.secret,
            roles=tuple(sorted(check_roles(roles))),
            name=name,
            expires_at=time.time() + expires_s,
        )
        with disk.locked(self.path / "lock"):
            self._forget_old_invitations()
            self._write(f"invitations/{record.id}", record)
        return invitation

    def invited(self, id_: bytes) -> Invited | None:
        """What is known of an invitation, if anything."""
        if len(id_) != ID_BYTES:
            return None
        return self._read(f"invitations/{id_.hex()}", Invited)

    def redeem(self, id_: bytes, key: PublicKey, wanted: str) -> Certificate:
        """The certificate of the peer that this invitation lets in: one, ever; asking again with
        the same key gives the same. The caller has proved to know the invitation's secret.
        Raises RefusedInvitationError."""
        digest = certificates.key_digest(key)
        with disk.locked(self.path / "lock"):
            record = self.invited(id_)
            if record is None:
                raise RefusedInvitationError(f"invitation {id_.hex()} is not known")
            if record.admitted is not None:
                if record.admitted.key_digest != digest:
                    raise SpentInvitationError(
                        f"invitation {record.id} has been used by {record.admitted.name}"
                    )
                return certificates.read_der(record.admitted.certificate)
            if record.expires_at < time.time():
                raise ExpiredInvitationError(f"invitation {record.id} has expired")
            name = self._take_name(record.name or wanted, record.id)
            certificate = self._certify(key, name, record.roles, record.id)
            der = certificates.der_of(certificate)
            admitted = Admitted(key_digest=digest, name=name, certificate=der, at=time.time())
            self._write(
                f"invitations/{record.id}", msgspec.structs.replace(record, admitted=admitted)
            )
            return certificate

    def renew(self, name: str, key: PublicKey) -> Certificate:
        """A new certificate for a peer that has proved to be `name`; asking again with the same
        key gives the same. Raises IdentityError if the peer is out, or not known, or if its
        certificate is good for a long time yet."""
        with disk.locked(self.path / "lock"):
            record = self._read(f"peers/{name}", Named) if is_name(name) else None
            if record is None or record.revoked:
                raise IdentityError(f"peer {name} is not one whose certificate can be renewed")
            if record.not_after - time.time() < RENEW_BEFORE_S:
                return self._certify(key, name, record.roles, record.invitation)
            newest = certificates.read_der(record.certificate)
            if newest.public_key() != key:
                raise IdentityError(f"the certificate of peer {name} need not be renewed yet")
            return newest

    def revoke(self, name: str) -> RevocationList:
        """Put a peer out of the grid, for good: its name, and every certificate it has. The new
        list is in this home when this returns. Raises IdentityError for an unknown peer."""
        own = self.home.issuer().name
        if name == own:
            raise IdentityError(
                f"{name} is this home's own peer, which holds the grid's authority; "
                "it cannot be revoked: make a new grid instead"
            )
        with disk.locked(self.path / "lock"):
            record = self._read(f"peers/{name}", Named) if is_name(name) else None
            if record is None:
                raise IdentityError(f"there is no peer {name!r} in grid {self.home.grid!r}")
            self._write(f"peers/{name}", msgspec.structs.replace(record, revoked=True))
            return self._publish(record)

    def peers(self) -> list[Named]:
        """Everybody who was ever given a name, in order of name."""
        names = sorted(name for name in os.listdir(self.path / "peers") if is_name(name))
        found = [self._read(f"peers/{name}", Named) for name in names]
        return [record for record in found if record is not None]

    def _publish(self, record: Named) -> RevocationList:
        newest = self.revocations()
        horizon = time.time() - _KEEP_REVOKED_S
        kept = [r for r in newest.revoked if r.not_after > horizon and r.name != record.name]
        added = Revoked(name=record.name, serials=record.serials, not_after=record.not_after)
        signed = RevocationList.sign(newest.version + 1, [*kept, added], self._key())
        disk.write(self.path / "revocations", signed.signed)
        with self.home.locked():
            self.home.keep_revocations(signed.signed)
        return signed

    def revocations(self) -> RevocationList:
        """The newest list that this authority has signed."""
        signed = disk.read(self.path / "revocations", FILE_BYTES_MAX) or b""
        return RevocationList.verified(signed, self.certificate)

    def _take_name(self, wanted: str, invitation: str) -> str:
        """A name nobody has had; or the one this invitation took before a crash."""
        check_name(wanted, "a peer")
        for name in variants(wanted):
            taken = self._read(f"peers/{name}", Named)
            if taken is None or taken.invitation == invitation:
                return name
        raise IdentityError(f"there are too many peers called {wanted!r}; choose another name")

    def _certify(
        self, key: PublicKey, name: str, roles: Sequence[str], invitation: str
    ) -> Certificate:
        """Issue a certificate and note its serial with the name, so that it can be revoked."""
        certificate = certificates.issue(
            self._key(),
            self.certificate,
            key,
            grid=self.home.grid,
            name=name,
            roles=frozenset(roles),
        )
        self._note(certificate, name, roles, invitation)
        return certificate

    def _note(
        self, certificate: Certificate, name: str, roles: Sequence[str], invitation: str
    ) -> None:
        known = self._read(f"peers/{name}", Named)
        serials = known.serials if known is not None else ()
        record = Named(
            name=name,
            roles=tuple(roles),
            invitation=invitation,
            serials=(*serials[-15:], f"{certificate.serial_number:x}"),
            certificate=certificates.der_of(certificate),
            not_after=certificate.not_valid_after_utc.timestamp(),
        )
        self._write(f"peers/{name}", record)

    def lock(self, secret: bytes | None) -> None:
        """Protect the CA's key by this passphrase, or by none. Raises IdentityError."""
        disk.write(self.path / "ca.key", certificates.key_pem(self._key(), secret))

    def _key(self) -> PrivateKey:
        pem = disk.read_secret(self.path / "ca.key", FILE_BYTES_MAX)
        if pem is None:
            raise IdentityError(f"{self.path / 'ca.key'} is missing; restore it")
        return certificates.read_key(pem)

    def _forget_old_invitations(self) -> None:
        horizon = time.time() - _KEEP_INVITATIONS_S
        disk.sweep(self.path / "invitations")
        for entry in list(os.scandir(self.path / "invitations")):
            if entry.stat().st_mtime < horizon:  # it expired no earlier than it was written
                record = self._read(f"invitations/{entry.name}", Invited)
                if record is not None and record.expires_at < horizon:
                    os.unlink(entry.path)

    def _read(self, name: str, kind: type[R]) -> R | None:
        content = disk.read(self.path / name, FILE_BYTES_MAX)
        if content is None:
            return None
        try:
            return msgspec.json.decode(content, type=kind)
        except msgspec.MsgspecError:
            raise IdentityError(f"{self.path / name} is damaged; restore it") from None

    def _write(self, name: str, record: msgspec.Struct) -> None:
        disk.write(self.path / name, msgspec.json.encode(record))


def _fill(path: Path, grid: str, name: str) -> None:
    """Put a new grid's files into a directory: the CA, and its home's own peer."""
    authority_key, authority = certificates.new_authority(grid)
    key = certificates.new_key()
    certificate = certificates.issue(
        authority_key, authority, key.public_key(), grid=grid, name=name, roles=frozenset(ROLES)
    )
    own = Named(
        name=name,
        roles=ROLES,
        invitation="",
        serials=(f"{certificate.serial_number:x}",),
        certificate=certificates.der_of(certificate),
        not_after=certificate.not_valid_after_utc.timestamp(),
    )
    for directory in ("authority", "authority/invitations", "authority/peers"):
        os.mkdir(path / directory, 0o700)
    disk.write(path / "authority/ca.key", certificates.key_pem(authority_key))
    disk.write(path / f"authority/peers/{name}", msgspec.json.encode(own))
    disk.write(path / "ca.crt", certificates.pem_of(authority))
    disk.write(path / "peer.pem", certificates.own_pem(key, certificate))
    disk.write(path / "issuer.json", msgspec.json.encode(Issuer(name=name)))
