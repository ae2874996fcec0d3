"""The passphrase of a home's keys, if they have one.

It comes from the file that $SURELINE_PASSPHRASE_FILE names, from $SURELINE_PASSPHRASE, or from the
terminal, once for each process. The variable is taken out of the environment as soon as it is read,
so that nothing this process starts has it.
"""

from __future__ import annotations

import os
import sys

from sureline.world.identity.errors import IdentityError

VARIABLE = "SURELINE_PASSPHRASE"
NEW_VARIABLE = "SURELINE_NEW_PASSPHRASE"
FILE_VARIABLE = "SURELINE_PASSPHRASE_FILE"
BYTES_MAX = 1024

_known: bytes | None = None


def passphrase() -> bytes:
    """Raises IdentityError if there is no way to learn it."""
    global _known
    if _known is None:
        _known = _found(VARIABLE) or _from_terminal("passphrase of this home's keys: ")
    if _known is None:
        raise IdentityError(
            f"this home's keys have a passphrase; give it in a file named by ${FILE_VARIABLE}, in "
            f"${VARIABLE}, or on a terminal"
        )
    return _known


def new_passphrase() -> bytes:
    """One that was never used here, asked for twice. Raises IdentityError."""
    given = os.environ.pop(NEW_VARIABLE, "").encode("utf-8", "surrogateescape")
    if not given:
        given = _from_terminal("new passphrase: ") or b""
        if given and _from_terminal("once more: ") != given:
            raise IdentityError("the two passphrases differ; nothing was changed")
    if not given or len(given) > BYTES_MAX:
        raise IdentityError(
            f"there is no new passphrase; give at most {BYTES_MAX} bytes on a terminal, or in "
            f"${NEW_VARIABLE}"
        )
    return given


def use(known: bytes | None) -> None:
    """This is it from now on, in this process."""
    global _known
    _known = known


def wrong() -> IdentityError:
    use(None)
    return IdentityError("the passphrase of this home's keys is another; nothing was changed")


def _found(variable: str) -> bytes | None:
    given = os.environ.pop(variable, "")
    if given:
        return given.encode("utf-8", "surrogateescape")
    path = os.environ.get(FILE_VARIABLE)
    if not path:
        return None
    try:
        with open(path, "rb") as file:
            return file.read(BYTES_MAX).rstrip(b"\r\n") or None
    except OSError as error:
        reason = os.strerror(error.errno or 0)
        raise IdentityError(f"${FILE_VARIABLE}: {path} cannot be read ({reason})") from None


def _from_terminal(prompt: str) -> bytes | None:
    if not (sys.stdin and sys.stdin.isatty()):
        return None
    import getpass

    return getpass.getpass(prompt).encode() or None
