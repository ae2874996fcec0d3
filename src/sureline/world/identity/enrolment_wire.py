"""The one question and answer of an enrolment, as bytes.

A machine that joins has no certificate, so TLS gives it a private channel to somebody unknown.
Both sides then prove that they know the invitation's secret: each message carries an HMAC over
all of it and over the certificate that the server showed. A man in the middle must show another
certificate than the issuer's, so what one side computes the other refuses. Of the body nothing is
parsed before its HMAC is verified; what precedes it has a fixed form.
"""

from __future__ import annotations

import enum
import hashlib
import hmac
import struct
from typing import NamedTuple

import msgspec

from sureline.world.identity.invitation import ID_BYTES
from sureline.world.identity.revocations import SIGNED_BYTES_MAX

MAC_BYTES = 32
QUESTION_BODY_BYTES_MAX = 4096
ANSWER_BYTES_MAX = SIGNED_BYTES_MAX + 64 * 1024
_VERSION = 1
_QUESTION = struct.Struct(f">4sB{ID_BYTES}sI")
_ANSWER = struct.Struct(">4sBBI")
_QUESTION_MAGIC, _ANSWER_MAGIC = b"SLEQ", b"SLEA"


class EnrolmentCode(enum.IntEnum):
    """What the issuer says. The sentences are the client's own: text from an unknown machine is
    not shown to a user."""

    WELCOME = 0
    UNKNOWN = 1
    """No such invitation, or a wrong HMAC: which of the two is nobody's business. Not signed."""
    EXPIRED = 2
    USED = 3
    UNFIT = 4
    """The request was from a guest, but cannot be granted: no such name, no such key."""
    BUSY = 5
    """Try again. Not signed."""


UNSIGNED = (EnrolmentCode.UNKNOWN, EnrolmentCode.BUSY)
_CODES = tuple(code.value for code in EnrolmentCode)


class EnrolmentRequest(msgspec.Struct, frozen=True, array_like=True):
    """The body of the question."""

    signing_request: bytes
    wanted_name: str


class Welcome(msgspec.Struct, frozen=True, array_like=True):
    """The body of the answer to one who is let in."""

    certificate: bytes
    authority: bytes
    revocations: bytes
    contacts: tuple[str, ...]
    issuer: str


class Question(NamedTuple):
    """A question, cut into its parts; nothing of its body has been looked at."""

    invitation: bytes
    fixed: bytes
    mac: bytes
    body: bytes


class _Answer(NamedTuple):
    """An answer, cut into its parts likewise."""

    code: EnrolmentCode
    fixed: bytes
    mac: bytes
    body: bytes


class WireError(Exception):
    """Bytes that are no enrolment message."""


def binding_of(server_certificate_der: bytes) -> bytes:
    """What ties messages to the TLS channel: the certificate that the server showed."""
    return hashlib.sha256(server_certificate_der).digest()


def write_question(invitation: bytes, secret: bytes, binding: bytes, body: bytes) -> bytes:
    fixed = _QUESTION.pack(_QUESTION_MAGIC, _VERSION, invitation, len(body))
    return fixed + question_mac(secret, binding, fixed, body) + body


def read_question(data: bytes) -> Question:
    """Raises WireError unless the data is one whole question in form."""
    if len(data) < _QUESTION.size + MAC_BYTES:
        raise WireError("not an enrolment")
    magic, version, invitation, size = _QUESTION.unpack_from(data)
    fixed, mac, body = _cut(data, _QUESTION.size)
    if (magic, version, size) != (_QUESTION_MAGIC, _VERSION, len(body)):
        raise WireError("not an enrolment")
    if size > QUESTION_BODY_BYTES_MAX:
        raise WireError("too large an enrolment")
    return Question(invitation, fixed, mac, body)


def question_mac(secret: bytes, binding: bytes, fixed: bytes, body: bytes) -> bytes:
    return hmac.digest(secret, b"sureline enrol question\0" + binding + fixed + body, "sha256")


def write_answer(
    code: EnrolmentCode, secret: bytes, binding: bytes, question: bytes, body: bytes
) -> bytes:
    """`question` is the MAC of what is answered: no answer fits another question."""
    fixed = _ANSWER.pack(_ANSWER_MAGIC, _VERSION, code, len(body))
    return fixed + answer_mac(secret, binding, question, fixed, body) + body


def write_unsigned_answer(code: EnrolmentCode) -> bytes:
    assert code in UNSIGNED
    return _ANSWER.pack(_ANSWER_MAGIC, _VERSION, code, 0) + bytes(MAC_BYTES)


def read_answer(data: bytes) -> _Answer:
    """Raises WireError unless the data is one whole answer in form."""
    if len(data) < _ANSWER.size + MAC_BYTES:
        raise WireError("not an answer to an enrolment")
    magic, version, code, size = _ANSWER.unpack_from(data)
    fixed, mac, body = _cut(data, _ANSWER.size)
    if (magic, version, size) != (_ANSWER_MAGIC, _VERSION, len(body)) or code not in _CODES:
        raise WireError("not an answer to an enrolment")
    return _Answer(EnrolmentCode(code), fixed, mac, body)


def _cut(data: bytes, fixed_bytes: int) -> tuple[bytes, bytes, bytes]:
    """The fixed part, the HMAC, and the rest."""
    after = fixed_bytes + MAC_BYTES
    return data[:fixed_bytes], data[fixed_bytes:after], data[after:]


def answer_mac(secret: bytes, binding: bytes, question: bytes, fixed: bytes, body: bytes) -> bytes:
    signed = b"sureline enrol answer\0" + binding + question + fixed + body
    return hmac.digest(secret, signed, "sha256")


def same(one: bytes, other: bytes) -> bool:
    """Compares in a time that tells nothing."""
    return hmac.compare_digest(one, other)
