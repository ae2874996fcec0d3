"""The list of peers that a grid's CA has put out, in the signed form in which it travels.

A list is whole: each version names everybody who is out, and the highest version wins. Names are
never given twice, so a peer is out by its name as well as by the serials of its certificates.
Entries are dropped once their certificates have long expired: those are refused for that.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec

from sureline.world.identity.certificates import Certificate, PrivateKey
from sureline.world.identity.errors import IdentityError

ENTRIES_MAX = 4000
SIGNED_BYTES_MAX = 900_000
"""A list must fit one frame of the network."""
_CONTEXT = b"sureline revocations 1\0"
"""Signed with the list, so that no other signature of the CA can pass for one."""


class Revoked(msgspec.Struct, frozen=True, array_like=True):
    """One peer that is out, with all its certificates."""

    name: str
    serials: tuple[str, ...]
    not_after: float
    """When the last of its certificates expires."""


class _Payload(msgspec.Struct, frozen=True, array_like=True):
    version: int
    revoked: tuple[Revoked, ...]


class _Signed(msgspec.Struct, frozen=True, array_like=True):
    payload: bytes
    signature: bytes


_payload_decoder = msgspec.msgpack.Decoder(_Payload)
_signed_decoder = msgspec.msgpack.Decoder(_Signed)


class RevocationList:
    """A verified list. Version 0 is the one with nobody in it, which needs no signature."""

    __slots__ = ("_names", "_serials", "revoked", "signed", "version")

    def __init__(
        self, version: int = 0, revoked: Sequence[Revoked] = (), signed: bytes = b""
    ) -> None:
        self.version = version
        self.revoked = tuple(revoked)
        self.signed = signed
        self._names = frozenset(entry.name for entry in self.revoked)
        self._serials = frozenset(serial for entry in self.revoked for serial in entry.serials)

    @classmethod
    def sign(cls, version: int, revoked: Sequence[Revoked], key: PrivateKey) -> RevocationList:
        """A new list by the CA. Raises IdentityError if it is too long to travel."""
        payload = msgspec.msgpack.encode(_Payload(version, tuple(revoked)))
        signature = key.sign(_CONTEXT + payload, ec.ECDSA(hashes.SHA256()))
        signed = msgspec.msgpack.encode(_Signed(payload, signature))
        if len(revoked) > ENTRIES_MAX or len(signed) > SIGNED_BYTES_MAX:
            raise IdentityError(
                f"this grid has revoked {ENTRIES_MAX} peers already; make a new grid"
            )
        return cls(version, revoked, signed)

    @classmethod
    def verified(cls, signed: bytes, authority: Certificate) -> RevocationList:
        """The list in these bytes. Raises IdentityError unless the CA has signed it; nothing of
        it is read before that is known."""
        if not signed:
            return cls()
        key = authority.public_key()
        assert isinstance(key, ec.EllipticCurvePublicKey)
        try:
            if len(signed) > SIGNED_BYTES_MAX:
                raise ValueError
            outer = _signed_decoder.decode(signed)
            key.verify(outer.signature, _CONTEXT + outer.payload, ec.ECDSA(hashes.SHA256()))
            inner = _payload_decoder.decode(outer.payload)
        except (ValueError, InvalidSignature, msgspec.MsgspecError):
            raise IdentityError("the list of revoked peers is not signed by this grid") from None
        return cls(inner.version, inner.revoked, signed)

    @property
    def names(self) -> frozenset[str]:
        return self._names

    def has(self, name: str, serial: str) -> bool:
        return name in self._names or serial in self._serials
