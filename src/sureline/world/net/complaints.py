"""One line in the log for each kind of trouble and source, not one for each message.

Who makes trouble may do so under many names (addresses that it has others call, reasons that it
words anew each time), so the lines of one kind are bounded too, whatever their sources.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

log = logging.getLogger("sureline.net")

QUIET_S = 10.0
SOURCES_MAX = 1024
LINES_MAX = 20
"""Of one kind, within QUIET_S."""


class Complaints:
    """Logs the first complaint about a source at once; the next ones within QUIET_S are counted
    and mentioned with the one after."""

    def __init__(self, now: Callable[[], float], to: logging.Logger = log) -> None:
        self._now = now
        self._log = to
        self._said: dict[tuple[str, str], tuple[float, int]] = {}
        self._lines: dict[str, tuple[float, int]] = {}
        """By kind: when its present QUIET_S began, and the complaints since then."""

    def say(self, kind: str, source: str, text: str) -> None:
        now = self._now()
        since, untold = self._said.pop((kind, source), (-QUIET_S, 0))
        if now - since < QUIET_S:
            self._said[kind, source] = (since, untold + 1)
            return
        if len(self._said) >= SOURCES_MAX:
            del self._said[next(iter(self._said))]
        self._said[kind, source] = (now, 0)
        began, lines = self._lines.get(kind, (-QUIET_S, 0))
        if now - began >= QUIET_S:
            untold += max(0, lines - LINES_MAX)
            began, lines = now, 0
        self._lines[kind] = (began, lines + 1)
        if lines < LINES_MAX:
            more = f" (and {untold} more like this)" if untold else ""
            self._log.warning("%s%s", text, more)
