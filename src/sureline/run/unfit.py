"""Who will never run which tasks: machines that lack what a call was described with.

What one call asks of an interpreter, many do: a machine that is unfit for one is not asked for the
others. It is asked again when it has come back, since it may have been mended.
"""

from __future__ import annotations

from collections.abc import Collection

from sureline.run.known import Known
from sureline.world.address import PeerName

TOLD_MAX = 3
"""Of how many machines it is told why they are unfit."""


class Unfit:
    def __init__(self, known: Known) -> None:
        self._known = known
        self._why: dict[object, dict[PeerName, str]] = {}
        """By what is asked: who has not got it, and why."""

    def note(self, task: int, target: PeerName, reason: str) -> None:
        self._why.setdefault(self._known.asks(task), {})[target] = reason

    def forget(self, target: PeerName) -> None:
        for refused in self._why.values():
            refused.pop(target, None)

    def of(self, task: int) -> Collection[PeerName]:
        if not self._why:
            return ()
        return self._why.get(self._known.asks(task), {}).keys()

    def hopeless(self, task: int, present: Collection[PeerName]) -> str:
        """Why nobody who is there can run it; '' if somebody may."""
        if not self._why or not present:
            return ""
        refused = self._why.get(self._known.asks(task), {})
        if not all(target in refused for target in present):
            return ""
        return "; ".join([refused[target] for target in present][:TOLD_MAX])
