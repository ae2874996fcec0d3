"""What can go wrong with identities, in one sentence each."""

from __future__ import annotations


class IdentityError(Exception):
    """A home, certificate, invitation or list that is not as it must be; says what to do."""


class EnrolmentError(IdentityError):
    """The issuer refused an invitation, or could not be reached in time."""

    def __init__(self, sentence: str, *, is_final: bool) -> None:
        super().__init__(sentence)
        self.is_final = is_final
        """The issuer has said so himself: trying again is of no use."""
