"""Signatures for simulated grids: as hard to forge for an agent, and as cheap as a hash.

A simulated certificate is the peer's name. What stands for a signature is a keyed hash; the roll
alone has the keys, and hands out who may sign with them. So a test can forge as on a real grid, and
the same seed gives the same bytes.
"""

from __future__ import annotations

import hashlib
from typing import NamedTuple

from sureline.world.identity.signing import DRIVE, SUBMIT, PapersError

ALL_ROLES = frozenset({"run", SUBMIT, DRIVE})


class Enrolled(NamedTuple):
    name: str
    roles: frozenset[str]


class _Hand:
    """A `Certified` and a `RunKey`: somebody who can sign."""

    def __init__(self, public: bytes, secret: bytes) -> None:
        self.public = self.certificate = public
        self._secret = secret

    def sign(self, said: bytes) -> bytes:
        return _signature(self._secret, said)


class Roll:
    """A grid's authority and a `Trust`. Whoever is not on it has all roles."""

    def __init__(self, seed: int = 0) -> None:
        self._seed = seed
        self._roles: dict[str, frozenset[str]] = {}
        self._keys = 0

    def enrol(self, name: str, roles: frozenset[str]) -> None:
        """With no roles, it is revoked."""
        self._roles[name] = roles

    def certified(self, name: str) -> _Hand:
        """For the process of this peer alone."""
        return self._hand(b"peer " + name.encode())

    def new_key(self) -> _Hand:
        self._keys += 1
        return self._hand(b"key %d" % self._keys)

    def _hand(self, public: bytes) -> _Hand:
        return _Hand(public, self._secret(public))

    def _secret(self, public: bytes) -> bytes:
        return hashlib.blake2b(public, key=b"%d" % self._seed, digest_size=32).digest()

    def holder(self, certificate: bytes) -> Enrolled:
        if not certificate.startswith(b"peer "):
            raise PapersError("the certificate was not issued by this grid")
        name = certificate[5:].decode(errors="replace")
        roles = self._roles.get(name, ALL_ROLES)
        if not roles:
            raise PapersError(f"peer {name} has been revoked")
        return Enrolled(name, roles)

    def signed_by_holder(self, certificate: bytes, signature: bytes, said: bytes) -> bool:
        return signature == _signature(self._secret(certificate), said)

    def signed_by_key(self, key: bytes, signature: bytes, said: bytes) -> bool:
        return signature == _signature(self._secret(key), said)


def _signature(secret: bytes, said: bytes) -> bytes:
    return hashlib.blake2b(said, key=secret, digest_size=32).digest()
