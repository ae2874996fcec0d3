"""The issuer's side of an enrolment: what a peer does for strangers, in the home with the CA.

A stranger is anybody on the network. The transport bounds how many there are at once, how long
they stay and how much they send; beyond that, all that one can make us do without a valid
invitation is to look for a file, compute one HMAC, and write one line to the log.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

import msgspec

from sureline.world.identity import certificates
from sureline.world.identity import enrolment_wire as wire
from sureline.world.identity.authority import (
    Authority,
    ExpiredInvitationError,
    SpentInvitationError,
)
from sureline.world.identity.credentials import Credentials
from sureline.world.identity.enrolment_wire import EnrolmentCode
from sureline.world.identity.errors import IdentityError
from sureline.world.identity.home import CONTACTS_MAX
from sureline.world.net.complaints import Complaints

log = logging.getLogger("sureline.identity")


class _Outcome(NamedTuple):
    code: EnrolmentCode
    told: str
    """For the log."""
    body: bytes = b""


class EnrolmentDesk:
    """Answers enrolments; one for a peer. Its `answer` is the transport's `on_stranger`."""

    def __init__(
        self,
        authority: Authority,
        credentials: Credentials,
        contacts: Callable[[], Sequence[str]] = lambda: (),
    ) -> None:
        """`contacts` are nodes that a new peer can turn to, best first."""
        self._authority = authority
        self._credentials = credentials
        self._contacts = contacts
        self._complaints = Complaints(time.monotonic)

    async def answer(self, question: bytes, address: str) -> bytes:
        """The answer to what a stranger at this address asked. Raises WireError if that is no
        enrolment: then he deserves none."""
        asked = wire.read_question(question)
        binding = wire.binding_of(self._credentials.certificate_der)
        contacts = tuple(self._contacts())[:CONTACTS_MAX]
        loop = asyncio.get_running_loop()
        try:  # in another thread, since it waits for the disk
            answer, outcome = await loop.run_in_executor(
                None, self._answer, asked, binding, contacts
            )
        except (IdentityError, OSError) as error:
            self._complaints.say("failed", address, f"enrolment from {address} failed: {error}")
            return wire.write_unsigned_answer(EnrolmentCode.BUSY)
        if outcome.code is EnrolmentCode.WELCOME:
            log.info("enrolment from %s: %s", address, outcome.told)
        else:
            text = f"enrolment from {address} refused: {outcome.told}"
            self._complaints.say("enrolment", address, text)
        return answer

    def _answer(
        self, asked: wire.Question, binding: bytes, contacts: tuple[str, ...]
    ) -> tuple[bytes, _Outcome]:
        invited = self._authority.invited(asked.invitation)
        if invited is None or not wire.same(
            asked.mac, wire.question_mac(invited.secret, binding, asked.fixed, asked.body)
        ):
            outcome = _Outcome(EnrolmentCode.UNKNOWN, "an unknown or altered invitation")
            return wire.write_unsigned_answer(EnrolmentCode.UNKNOWN), outcome
        outcome = self._admit(asked, contacts)
        answer = wire.write_answer(outcome.code, invited.secret, binding, asked.mac, outcome.body)
        return answer, outcome

    def _admit(self, asked: wire.Question, contacts: tuple[str, ...]) -> _Outcome:
        """What to say to somebody who knows the invitation's secret."""
        try:
            request = msgspec.msgpack.decode(asked.body, type=wire.EnrolmentRequest)
            key = certificates.requested_key(request.signing_request)
            certificate = self._authority.redeem(asked.invitation, key, request.wanted_name)
        except (IdentityError, msgspec.MsgspecError) as error:
            return _Outcome(_code_of(error), str(error))
        welcome = wire.Welcome(
            certificate=certificates.der_of(certificate),
            authority=certificates.der_of(self._authority.certificate),
            revocations=self._authority.revocations().signed,
            contacts=contacts,
            issuer=self._credentials.name,
        )
        name = certificates.identity_of(certificate, self._authority.certificate).name
        told = f"{name}, with invitation {asked.invitation.hex()}"
        return _Outcome(EnrolmentCode.WELCOME, told, msgspec.msgpack.encode(welcome))


def _code_of(error: Exception) -> EnrolmentCode:
    if isinstance(error, SpentInvitationError):
        return EnrolmentCode.USED
    return (
        EnrolmentCode.EXPIRED if isinstance(error, ExpiredInvitationError) else EnrolmentCode.UNFIT
    )
