"""The new machine's side of an enrolment: from an invitation to a home in the grid.

The key is made here and never leaves. It is kept, in `grids/.joining-INVITATION`, before the
invitation is used: a machine that is killed, or whose answer was lost, asks again with the same
key and gets the same certificate. The grid's directory then appears in one step.
"""

from __future__ import annotations

import asyncio
import os
import random
import shutil
import socket
import ssl
import struct
from collections.abc import Callable
from pathlib import Path

import msgspec

from sureline.world.address import endpoint_of
from sureline.world.identity import certificates, disk
from sureline.world.identity import enrolment_wire as wire
from sureline.world.identity.certificates import Certificate, PrivateKey
from sureline.world.identity.credentials import Credentials
from sureline.world.identity.enrolment_wire import EnrolmentCode
from sureline.world.identity.errors import EnrolmentError, IdentityError
from sureline.world.identity.home import (
    FILE_BYTES_MAX,
    GridHome,
    Issuer,
    encode_contacts,
    grid_names,
    grids_directory,
    make_home,
)
from sureline.world.identity.invitation import Invitation
from sureline.world.identity.names import check_name
from sureline.world.identity.revocations import RevocationList

ATTEMPT_S_MAX = 10.0
PAUSE_S_FIRST, PAUSE_S_MAX = 0.2, 5.0

_SENTENCES = {
    EnrolmentCode.UNKNOWN: "the issuer does not know this invitation, or somebody in between has "
    "changed it; ask for a new one",
    EnrolmentCode.EXPIRED: "the invitation has expired; ask for a new one",
    EnrolmentCode.USED: "the invitation has been used by another machine; ask for a new one",
    EnrolmentCode.UNFIT: "the issuer could not grant this request; ask for a new invitation",
}

_NO_PEER = "whoever listens there is no peer of this grid"
_LENGTH = struct.Struct(">I")


class _UnprovenError(Exception):
    """Somebody answered who has not proved to be the issuer."""


async def enrol(
    home: Path,
    invitation: Invitation,
    name: str,
    *,
    timeout_s: float = 600.0,
    on_progress: Callable[[str], None] = lambda sentence: None,
) -> Credentials:
    """Join a grid, as `name` if that is free; try again until the issuer answers, for at most
    `timeout_s`. If this home has joined with this invitation before, that is all right.

    Raises EnrolmentError if the issuer refuses or cannot be reached, IdentityError if this home
    is in such a grid already.
    """
    check_name(name, "a peer")
    make_home(home)
    present = _present(home, invitation)
    if present is not None:
        return present
    key = _kept_key(home, invitation)
    request = wire.EnrolmentRequest(certificates.new_request(key), name)
    try:
        welcome = await _ask_until_answered(invitation, request, timeout_s, on_progress)
        return _settle(home, invitation, key, welcome)
    except EnrolmentError as error:
        if error.is_final:
            shutil.rmtree(_joining(home, invitation), ignore_errors=True)
        raise


def _present(home: Path, invitation: Invitation) -> Credentials | None:
    """What this home has already, if it will do; None if it should enrol."""
    if invitation.grid not in grid_names(home):
        return None
    known = GridHome.open(invitation.grid, home)
    authority = certificates.read_pem(known.authority_certificate())
    if certificates.fingerprint(authority) != invitation.fingerprint:
        raise IdentityError(
            f"this home is in another grid that is called {known.grid!r} too; "
            "set SURELINE_HOME to another directory, and join from there"
        )
    credentials = Credentials.load(known)
    trouble = credentials.refused(credentials.identity)
    if known.issuer().invitation == invitation.id.hex():
        if trouble is not None:
            raise IdentityError(f"{trouble}; ask for a new invitation")
        return credentials
    if trouble is not None:
        return None  # a new invitation gives it a new start, under a new name
    raise IdentityError(
        f"this home is in grid {known.grid!r} already, as {credentials.name}; serve with "
        f"'sureline peer --grid {known.grid}', or set SURELINE_HOME for another peer"
    )


def _joining(home: Path, invitation: Invitation) -> Path:
    return grids_directory(home) / f".joining-{invitation.id.hex()}"


def _kept_key(home: Path, invitation: Invitation) -> PrivateKey:
    path = _joining(home, invitation)

    def fill(directory: Path) -> None:
        disk.write(directory / "peer.pem", certificates.key_pem(certificates.new_key()))

    disk.make_directory(path, fill)
    pem = disk.read_secret(path / "peer.pem", FILE_BYTES_MAX)
    if pem is None:
        raise IdentityError(f"{path} is damaged; remove it, and try again")
    return certificates.read_key(pem)


async def _ask_until_answered(
    invitation: Invitation,
    request: wire.EnrolmentRequest,
    timeout_s: float,
    on_progress: Callable[[str], None],
) -> wire.Welcome:
    """Ask at each address, in rounds, with growing pauses."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + timeout_s
    pause_s = PAUSE_S_FIRST
    while True:
        troubles: list[Exception] = []
        for address in invitation.addresses:
            try:
                async with asyncio.timeout(min(ATTEMPT_S_MAX, max(0.1, deadline - loop.time()))):
                    return await _ask(address, invitation, request)
            except (OSError, asyncio.IncompleteReadError, TimeoutError, _UnprovenError) as trouble:
                troubles.append(trouble)
                on_progress(f"{address}: {_said(trouble)}")
        if all(isinstance(trouble, _UnprovenError) for trouble in troubles):
            raise EnrolmentError(_said(troubles[0]), is_final=False)
        if loop.time() + pause_s > deadline:
            where = ", ".join(invitation.addresses)
            raise EnrolmentError(
                f"the issuer did not answer at {where} ({_said(troubles[0])}); start "
                f"'sureline peer --grid {invitation.grid}' there, and check the address",
                is_final=False,
            )
        await asyncio.sleep(pause_s * random.uniform(0.7, 1.0))
        pause_s = min(2 * pause_s, PAUSE_S_MAX)


async def _ask(
    address: str, invitation: Invitation, request: wire.EnrolmentRequest
) -> wire.Welcome:
    """One attempt at one address. Raises EnrolmentError if the issuer itself refuses."""
    endpoint = endpoint_of(f"issuer@{address}")
    try:
        reader, writer = await asyncio.open_connection(
            endpoint.host, endpoint.port, ssl=_stranger_context()
        )
    except UnicodeError:
        raise ConnectionError("no host can have that name") from None
    try:
        channel = writer.get_extra_info("ssl_object")
        shown = channel.getpeercert(binary_form=True)
        binding = wire.binding_of(shown)
        body = msgspec.msgpack.encode(request)
        question = wire.write_question(invitation.id, invitation.secret, binding, body)
        writer.write(_LENGTH.pack(len(question)) + question)
        answer = await _read_frame(reader)
    finally:
        writer.transport.abort()
    welcome = _accepted(answer, invitation, binding, wire.read_question(question).mac)
    _check(welcome, shown, invitation)
    return welcome


def _stranger_context() -> ssl.SSLContext:
    """Trusts nobody yet and shows nothing: the HMACs decide."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


async def _read_frame(reader: asyncio.StreamReader) -> bytes:
    (size,) = _LENGTH.unpack(await reader.readexactly(_LENGTH.size))
    if size > wire.ANSWER_BYTES_MAX:
        raise _UnprovenError(_NO_PEER)
    return await reader.readexactly(size)


def _accepted(data: bytes, invitation: Invitation, binding: bytes, question: bytes) -> wire.Welcome:
    """The welcome in an answer that the issuer has proved to be his."""
    try:
        answer = wire.read_answer(data)
    except wire.WireError:
        raise _UnprovenError(_NO_PEER) from None
    if answer.code is EnrolmentCode.BUSY:
        raise ConnectionError("the issuer is busy")
    if answer.code is EnrolmentCode.UNKNOWN:
        raise _UnprovenError(_SENTENCES[EnrolmentCode.UNKNOWN])
    expected = wire.answer_mac(invitation.secret, binding, question, answer.fixed, answer.body)
    if not wire.same(expected, answer.mac):
        raise _UnprovenError("whoever listens there is not the issuer, but pretends to be")
    if answer.code is not EnrolmentCode.WELCOME:
        raise EnrolmentError(_SENTENCES[answer.code], is_final=True)
    return _decoded(answer.body)


def _decoded(body: bytes) -> wire.Welcome:
    try:
        return msgspec.msgpack.decode(body, type=wire.Welcome)
    except msgspec.MsgspecError:
        raise EnrolmentError(
            "the issuer runs another version of sureline; use the same here", is_final=False
        ) from None


def _check(welcome: wire.Welcome, shown: bytes, invitation: Invitation) -> None:
    """The CA is the invitation's, and it has signed the certificate that the server showed."""
    try:
        authority = certificates.read_der(welcome.authority)
        if certificates.fingerprint(authority) != invitation.fingerprint:
            raise IdentityError("another CA")
        certificates.identity_of(certificates.read_der(shown), authority)
        RevocationList.verified(welcome.revocations, authority)
    except IdentityError:
        raise _UnprovenError(
            "whoever listens there is not of the grid to which the invitation invites"
        ) from None


def _settle(
    home: Path, invitation: Invitation, key: PrivateKey, welcome: wire.Welcome
) -> Credentials:
    """Put what was received into the home, in one step."""
    authority = certificates.read_der(welcome.authority)
    certificate = certificates.read_der(welcome.certificate)
    _check_own(certificate, authority, key)
    files = {
        "ca.crt": certificates.pem_of(authority),
        "contacts.json": encode_contacts(welcome.contacts),
        "issuer.json": msgspec.json.encode(
            Issuer(welcome.issuer, invitation.addresses, invitation.id.hex())
        ),
        "revocations": welcome.revocations,
        "peer.pem": certificates.own_pem(key, certificate),
    }
    joined = GridHome(home, invitation.grid)
    with disk.locked(grids_directory(home) / ".lock"):
        if joined.path.exists():
            _replace(joined, files, authority)
        else:
            _move_in(_joining(home, invitation), joined, files)
    shutil.rmtree(_joining(home, invitation), ignore_errors=True)
    return Credentials.load(GridHome.open(invitation.grid, home))


def _check_own(certificate: Certificate, authority: Certificate, key: PrivateKey) -> None:
    certificates.identity_of(certificate, authority)
    if certificate.public_key() != key.public_key():
        raise EnrolmentError("the issuer sent a certificate for another key", is_final=False)


def _move_in(path: Path, joined: GridHome, files: dict[str, bytes]) -> None:
    for name, content in files.items():
        disk.write(path / name, content)
    if not disk.move_directory(path, joined.path):
        raise IdentityError(f"{joined.path} is in the way; remove it, and try again")


def _replace(joined: GridHome, files: dict[str, bytes], authority: Certificate) -> None:
    """Give a home of this grid a new identity. `peer.pem` changes before `issuer.json` says from
    which invitation it is: a kill between the two leaves a home that works."""
    with joined.locked():
        kept = RevocationList.verified(joined.revocations(), authority)
        sent = RevocationList.verified(files["revocations"], authority)
        if sent.version > kept.version:
            joined.keep_revocations(sent.signed)
    for name in ("peer.pem", "issuer.json", "contacts.json"):
        disk.write(joined.path / name, files[name])


def _said(trouble: Exception) -> str:
    """What went wrong, for a user."""
    if isinstance(trouble, _UnprovenError):
        return str(trouble)
    if isinstance(trouble, TimeoutError):
        return "no answer"
    if isinstance(trouble, ConnectionRefusedError):
        return "nobody listens there yet"
    if isinstance(trouble, asyncio.IncompleteReadError | ConnectionResetError):
        return "the connection was closed"
    if isinstance(trouble, socket.gaierror):
        return "the host's name is not known"
    if isinstance(trouble, ssl.SSLError):
        return "no secure connection could be made"
    if isinstance(trouble, OSError) and trouble.errno:
        return os.strerror(trouble.errno).lower()
    return str(trouble)
