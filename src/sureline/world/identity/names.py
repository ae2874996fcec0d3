"""Names of peers and grids, and the roles a peer can have."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from sureline.world.identity.errors import IdentityError

ROLES = ("run", "submit", "drive")
"""`run`: runs tasks for others. `submit`: may have its tasks run by others. `drive`: may go on with
runs of others whose driver is gone, if they were delegated."""
ROLES_DEFAULT = ROLES
"""Of who is invited without a word about roles: runs go on by themselves only where somebody may
drive them, and who may submit can do about as much (docs/decisions/0191-default-roles.md)."""
NAME_LENGTH_MAX = 63
_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,62}", re.ASCII)
_VARIANTS_MAX = 100_000


def is_name(text: str) -> bool:
    return _NAME.fullmatch(text) is not None


def check_name(text: str, what: str) -> str:
    """The text itself, if it can name a peer or a grid. Raises IdentityError."""
    if not is_name(text):
        shown = text if len(text) <= 80 else text[:80] + "..."
        raise IdentityError(
            f"{shown!r} cannot name {what}; use a-z, 0-9 and '-', at most {NAME_LENGTH_MAX} "
            "of them, not beginning with '-'"
        )
    return text


def as_name(text: str) -> str:
    """The nearest possible name: what a host calls itself may not be one.

    >>> as_name("Lab7.example.org"), as_name("my_host"), as_name("--")
    ('lab7', 'my-host', 'peer')
    """
    first = text.partition(".")[0].lower()
    return re.sub(r"[^a-z0-9]+", "-", first).strip("-")[:NAME_LENGTH_MAX] or "peer"


def variants(name: str) -> Iterator[str]:
    """The name, then numbered ones.

    >>> from itertools import islice
    >>> list(islice(variants("lab7"), 3))
    ['lab7', 'lab7-2', 'lab7-3']
    """
    yield name
    for number in range(2, _VARIANTS_MAX):
        suffix = f"-{number}"
        yield name[: NAME_LENGTH_MAX - len(suffix)] + suffix


def check_roles(roles: Iterable[str]) -> frozenset[str]:
    """The roles as a set. Raises IdentityError for an unknown one, or for none."""
    found = frozenset(roles)
    unknown = sorted(found - frozenset(ROLES))
    if unknown or not found:
        named = repr(unknown[0]) if unknown else "nothing"
        raise IdentityError(f"{named} is not a role; give one or more of {', '.join(ROLES)}")
    return found
