"""How states look: one colour and one sign each, in drawings and in the report alike.

A state is never told by colour alone: every place that paints one also shows its sign or its name.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple


class _Look(NamedTuple):
    """`light` and `dark` are the colours on a light and on a dark page; both stand out there."""

    sign: str
    light: str
    dark: str
    words: str


LOOKS: dict[str, _Look] = {
    "succeeded": _Look("\u2713", "#2c7a57", "#57b38a", "succeeded"),
    "reused": _Look("\u21ba", "#3b6fb0", "#7aa9e0", "reused"),
    "failed": _Look("\u2715", "#bd3124", "#f07f72", "failed"),
    "timeout": _Look("\u2715", "#a8440f", "#f0945c", "ran out of time"),
    "lost": _Look("?", "#86429f", "#c790dc", "lost with its process"),
    "cancelled": _Look("\u2013", "#6b7280", "#9aa3b2", "not finished"),
    "running": _Look("\u25b6", "#9a6700", "#e0b04a", "running"),
    "retrying": _Look("\u27f3", "#9a6700", "#e0b04a", "waiting to be tried again"),
    "bound": _Look("\u25d4", "#5a6b86", "#a9b8d0", "about to start"),
    "ready": _Look("\u25cb", "#5a6b86", "#a9b8d0", "ready"),
    "waiting": _Look("\u00b7", "#7b8494", "#8a93a3", "waiting"),
}
"""By the state of a task or the outcome of an attempt."""

ORDER: tuple[str, ...] = tuple(LOOKS)
"""States as they are listed side by side: what is done first, what has not begun last."""

_TELLING = ("failed", "running", "retrying", "bound", "ready", "cancelled", "waiting")


def telling(states: Mapping[str, int]) -> str:
    """Of the states of several tasks, the one a reader wants to know of first."""
    return next((state for state in _TELLING if state in states), next(iter(states)))


def variables() -> str:
    """The colours as CSS declarations, `--state-NAME`; the page's colour scheme chooses."""
    return "".join(
        f"--state-{name}:light-dark({look.light},{look.dark});" for name, look in LOOKS.items()
    )
