"""An invitation: what a user carries from the issuing machine to the one that shall join.

As text it is one word, `sureline1.` and base64 (of the URL kind, so that no shell minds it). It
ends in a checksum, so that a copy cut short is noticed at once. It is a secret until it has been
used: whoever has it can join.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import re

import msgspec

from sureline.world.address import endpoint_of
from sureline.world.identity.errors import IdentityError
from sureline.world.identity.names import is_name

ID_BYTES = 12
SECRET_BYTES = 24
FINGERPRINT_BYTES = 32
ADDRESSES_MAX = 8
_PREFIX = "sureline1."
_CHECKSUM_BYTES = 4
_TEXT_LENGTH_MAX = 4000
_ADDRESS = re.compile(r"[A-Za-z0-9._:%\[\]-]{1,300}", re.ASCII)


class Invitation(msgspec.Struct, frozen=True, array_like=True, repr_omit_defaults=True):
    """`Invitation.parse(str(invitation))` gives it back."""

    grid: str
    addresses: tuple[str, ...]
    """Where the issuer listens: `HOST:PORT`, to be tried in this order."""
    fingerprint: bytes
    """SHA-256 of the CA's certificate."""
    id: bytes
    secret: bytes

    def __str__(self) -> str:
        content = msgspec.msgpack.encode(self)
        return _PREFIX + base64.urlsafe_b64encode(content + _checksum(content)).decode().rstrip("=")

    def __repr__(self) -> str:
        return f"<Invitation to {self.grid}, {self.id.hex()}>"  # a secret is not for logs

    @classmethod
    def parse(cls, text: str) -> Invitation:
        """Raises IdentityError."""
        word = "".join(text.split())  # a terminal may have broken it into lines
        if not word.startswith(_PREFIX) or len(word) > _TEXT_LENGTH_MAX:
            raise IdentityError(
                f"this is not an invitation (they begin with {_PREFIX!r}); "
                "copy what 'sureline invite' printed"
            )
        encoded = word.removeprefix(_PREFIX)
        try:
            joined = base64.b64decode(encoded + "=" * (-len(encoded) % 4), b"-_", validate=True)
        except (ValueError, binascii.Error):
            joined = b""
        content, checksum = joined[:-_CHECKSUM_BYTES], joined[-_CHECKSUM_BYTES:]
        if _checksum(content) != checksum:
            raise IdentityError("the invitation is incomplete or altered; copy the whole of it")
        try:
            found = msgspec.msgpack.decode(content, type=cls)
        except msgspec.MsgspecError:
            found = None
        if found is None or not found._is_sound():
            raise IdentityError("the invitation is not one that this version of sureline can read")
        return found

    def _is_sound(self) -> bool:
        return (
            is_name(self.grid)
            and 0 < len(self.addresses) <= ADDRESSES_MAX
            and all(map(is_address, self.addresses))
            and len(self.fingerprint) == FINGERPRINT_BYTES
            and len(self.id) == ID_BYTES
            and len(self.secret) == SECRET_BYTES
        )


def is_address(text: str) -> bool:
    """
    >>> is_address("lab7.example:7733"), is_address("[::1]:7733"), is_address("lab7")
    (True, True, False)
    """
    if _ADDRESS.fullmatch(text) is None:
        return False
    try:
        return endpoint_of(f"issuer@{text}").port > 0
    except ValueError:
        return False


def _checksum(content: bytes) -> bytes:
    return hashlib.sha256(b"sureline invitation" + content).digest()[:_CHECKSUM_BYTES]
