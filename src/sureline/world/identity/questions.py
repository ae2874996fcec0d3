"""A question that says who asks it, although others pass it on.

A message that comes straight from a peer needs no proof: its connection has one. What travels
through others (a broadcast) is signed by the one who asks, with the certificate beside it, so that
those who answer can see what the asker may know. It is good for a few minutes, and for the node
that it names.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import msgspec
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec

from sureline.world.address import Node
from sureline.world.identity import certificates
from sureline.world.identity.errors import IdentityError

if TYPE_CHECKING:
    from sureline.world.identity.credentials import Credentials

AGE_S_MAX = 600.0
"""Clocks of machines that nobody controls differ."""
BYTES_MAX = 8192
_CONTEXT = b"sureline question\0"


class _Body(msgspec.Struct, frozen=True, array_like=True):
    node: Node
    text: str
    at: float


class _Signed(msgspec.Struct, frozen=True, array_like=True):
    body: bytes
    certificate: bytes
    signature: bytes


_encode = msgspec.msgpack.Encoder().encode
_signed = msgspec.msgpack.Decoder(_Signed).decode
_body = msgspec.msgpack.Decoder(_Body).decode


def ask(credentials: Credentials, node: Node, text: str) -> bytes:
    """The question, signed by this home for its process `node`."""
    body = _encode(_Body(node, text, time.time()))
    signature = credentials.own_key().sign(_CONTEXT + body, ec.ECDSA(hashes.SHA256()))
    return _encode(_Signed(body, credentials.certificate_der, signature))


def asked(credentials: Credentials, question: bytes, node: Node, role: str) -> str | None:
    """What `node` asks, if the one who signed it has this role (one of 'a|b') and is of the grid;
    else None."""
    if len(question) > BYTES_MAX:
        return None
    try:
        found = _signed(question)
        identity = credentials.identify(found.certificate)
        key = certificates.read_der(found.certificate).public_key()
        if not isinstance(key, ec.EllipticCurvePublicKey):
            return None
        key.verify(found.signature, _CONTEXT + found.body, ec.ECDSA(hashes.SHA256()))
        body = _body(found.body)
    except (msgspec.MsgspecError, IdentityError, InvalidSignature, ValueError):
        return None
    if credentials.refused(identity) is not None or identity.roles.isdisjoint(role.split("|")):
        return None
    own = body.node.partition("@")[0].partition("+")[0] == identity.name
    recent = abs(time.time() - body.at) <= AGE_S_MAX
    return body.text if own and recent and body.node == node else None
