"""Forecasts for the agent that drives a run: made in a thread, so that the run's loop never waits.

The kernel lets go of the interpreter while it computes; who asks (`run.monitor`) sees to it that
all this stays a small share of a core.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Mapping, Sequence

from sureline.forecast.result import Forecast
from sureline.journal.history import Observed
from sureline.run.estimates import Estimates
from sureline.run.outlook import Outlook, OutlookFound, OutlookMissing, Seer
from sureline.world.protocol import Fetched

History = Mapping[str, Sequence[Observed]]


class Foresight:
    """`history` is asked for once, when the first outlook is; `on_made` hears of every forecast of
    the run as it stands. Both on the loop's thread."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        history: Callable[[], History],
        on_made: Callable[[Forecast], None],
    ) -> None:
        self._loop = loop
        self._history = history
        self._on_made = on_made
        self._seer: Seer | None = None

    def fetch(self, wanted: Outlook | Estimates, on_done: Callable[[Fetched], None]) -> None:
        if self._seer is None:
            self._seer = Seer(self._history())
        # A daemon: at its end, a process does not wait for a forecast that nobody needs.
        threading.Thread(
            target=self._answer,
            args=(self._seer, wanted, on_done),
            name="sureline-foresight",
            daemon=True,
        ).start()

    def _answer(
        self, seer: Seer, wanted: Outlook | Estimates, on_done: Callable[[Fetched], None]
    ) -> None:
        answer: Fetched
        try:
            if isinstance(wanted, Estimates):
                answer = seer.estimates(wanted)
            else:
                answer = seer.answer(wanted)
        except Exception as error:  # a mistake of ours must not cost a run
            answer = OutlookMissing(f"no forecast could be made ({error!r:.200})")
        with contextlib.suppress(RuntimeError):  # the run is over and its loop closed
            self._loop.call_soon_threadsafe(self._tell, answer, on_done)

    def _tell(self, answer: Fetched, on_done: Callable[[Fetched], None]) -> None:
        if isinstance(answer, OutlookFound):
            self._on_made(answer.forecast)
        on_done(answer)
