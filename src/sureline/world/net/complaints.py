"""One line in the log for each kind of trouble and source, not one for each message."""

from __future__ import annotations

import logging
from collections.abc import Callable

log = logging.getLogger("sureline.net")

QUIET_S = 10.0
SOURCES_MAX = 1024


class Complaints:
    """Logs the first complaint about a source at once; the next ones within QUIET_S are counted
    and mentioned with the one after."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._said: dict[tuple[str, str], tuple[float, int]] = {}

    def say(self, kind: str, source: str, text: str) -> None:
        now = self._now()
        since, untold = self._said.pop((kind, source), (-QUIET_S, 0))
        if now - since < QUIET_S:
            self._said[kind, source] = (since, untold + 1)
            return
        if len(self._said) >= SOURCES_MAX:
            del self._said[next(iter(self._said))]
        self._said[kind, source] = (now, 0)
        more = f" (and {untold} more like this)" if untold else ""
        log.warning("%s%s", text, more)
