"""How the renewal of certificates touches the disk, at both ends; see `overlay.renewal`."""

from __future__ import annotations

import logging
from collections.abc import Callable

from sureline.world.identity import certificates
from sureline.world.identity.authority import Authority
from sureline.world.identity.credentials import Credentials
from sureline.world.identity.errors import IdentityError

log = logging.getLogger("sureline.identity")


def issuing(authority: Authority) -> Callable[[str, bytes], bytes | None]:
    """For the peer in the home with the CA: makes the certificate of a peer that asks."""

    def issue(name: str, signing_request: bytes) -> bytes | None:
        try:
            key = certificates.requested_key(signing_request)
            return certificates.der_of(authority.renew(name, key))
        except IdentityError as error:
            log.warning("no new certificate for %s: %s", name, error)
            return None

    return issue


def accepting(credentials: Credentials) -> Callable[[bytes], None]:
    """For any peer: takes the certificate that the issuer sent."""

    def accept(der: bytes) -> None:
        try:
            credentials.renew(der)
            log.info("the certificate of this peer has been renewed")
        except IdentityError as error:
            log.warning("a renewed certificate was not taken: %s", error)

    return accept
