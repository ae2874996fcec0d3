"""Which sandbox this machine can give: the strongest that works here, tried before it is relied on.

python -m sureline.peer.confine.choosing   # what works on this machine
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from typing import NamedTuple

from sureline.peer.confine import landlock, namespaces
from sureline.peer.confine.rules import Kind, Rules

_TRY = (
    "import sys; sys.path[:] = sys.argv[2:]; "
    "from sureline.peer.confine.choosing import enter_here; enter_here(sys.argv[1])"
)
_PATIENCE_S = 30.0
SIGNALS_FROM = 6
NET_FROM = 4


class Choice(NamedTuple):
    kind: Kind
    word: str
    """What is missing, as a sentence for the one who serves; '' if nothing is."""


def choose(*, network: bool) -> Choice:
    version = landlock.abi()
    whole = _full_works()
    if whole and version >= SIGNALS_FROM:
        return Choice("full", "")
    if whole and version:
        return Choice("full", "tasks can stop the processes of this user (Landlock is old here)")
    if version:
        lacking = "tasks can see the names of your files and change their modes"
        if not network:
            reach = "UDP" if version >= NET_FROM else "the network"
            lacking += f", and can use {reach}"
        return Choice("landlock", f"{lacking} (there are no user namespaces here)")
    return Choice("none", "")


def _full_works() -> bool:
    """In a process of its own: one that fails halfway is of no use any more."""
    with tempfile.TemporaryDirectory() as place:
        try:
            tried = subprocess.run(
                [sys.executable, "-c", _TRY, place, *(p for p in sys.path if p)],
                capture_output=True,
                timeout=_PATIENCE_S,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired):
            return False
    return tried.returncode == 0


def enter_here(place: str) -> None:
    namespaces.enter(Rules("full", network=False), place, place)


if __name__ == "__main__":
    found = choose(network=False)
    print(found.kind, found.word)
