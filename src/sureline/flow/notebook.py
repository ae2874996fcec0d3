"""A run in a notebook: a display that is kept up to date while it goes on, and stays afterwards."""

from __future__ import annotations

import html
import importlib
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from sureline.compose import Watcher
from sureline.journal.events import Event, TaskEnded

if TYPE_CHECKING:
    from sureline.flow.running import Running, Status

EVERY_S = 0.3
_COLOURS = (("succeeded", "#2a9d4a"), ("reused", "#7bb6e8"), ("failed", "#d1383d"))


def is_here() -> bool:
    """Whether this process is a notebook's kernel."""
    if "IPython" not in sys.modules:
        return False
    shell = sys.modules["IPython"].get_ipython()
    return shell is not None and hasattr(shell, "kernel")


def html_of(status: Status) -> str:
    """A bar, the counts, the surety, and where the report is."""
    bars = "".join(
        f'<div style="background:{colour};width:{100 * getattr(status, name) / status.total:.2f}%">'
        "</div>"
        for name, colour in _COLOURS
        if status.total
    )
    counts = ", ".join(
        f"{getattr(status, name)} {name}" for name, _ in _COLOURS if getattr(status, name)
    )
    surety = "" if status.surety is None else f"; surety {status.surety:.0%}"
    run = html.escape(status.run)
    return (
        f"<div><b>{run}</b>: {status.state}; {counts or 'nothing yet'} of {status.total}{surety}"
        '<div style="display:flex;height:10px;background:#8884;border-radius:4px;overflow:hidden">'
        f"{bars}</div><small>report: <code>sureline report {run}</code></small></div>"
    )


@contextmanager
def display(running: Running) -> Iterator[Watcher]:
    """Shows `running` from a thread of its own; the run never waits for it."""
    over, news = threading.Event(), threading.Event()
    shown = _Shown(running)

    def draw() -> None:
        while not over.is_set():
            news.wait()
            news.clear()
            shown.update()
            over.wait(EVERY_S)

    thread = threading.Thread(target=draw, daemon=True, name="sureline display")
    thread.start()
    try:
        yield _News(news)
    finally:
        over.set()
        news.set()
        thread.join(EVERY_S * 10)
        shown.update()


class _News(Watcher):
    def __init__(self, news: threading.Event) -> None:
        self._news = news

    def submitted(self, run: str, graph: Any, notice: str | None, done: int) -> None:
        self._news.set()

    def event(self, event: Event) -> None:
        if isinstance(event, TaskEnded):
            self._news.set()


class _Shown:
    """One output of the cell, replaced with every update."""

    def __init__(self, running: Running) -> None:
        self._running = running
        self._handle: Any = None
        self._ipython: Any = importlib.import_module("IPython.display")

    def update(self) -> None:
        try:
            made = self._ipython.HTML(html_of(self._running.status))
            if self._handle is None:
                self._handle = self._ipython.display(made, display_id=True)
            else:
                self._handle.update(made)
        except Exception:  # a display that fails falls silent; the run goes on
            pass
