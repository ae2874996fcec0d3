"""A failed call in words: how it was called, and where it raised."""

from __future__ import annotations

import reprlib
import traceback
from collections.abc import Mapping
from typing import Any

SHOWN_CHARACTERS = 200
TRACE_CHARACTERS = 8_000
_OWN = ("sureline/peer/", "sureline\\peer\\")


class _Shown(reprlib.Repr):
    def __init__(self) -> None:
        super().__init__()
        self.maxstring = self.maxother = 60

    def repr_instance(self, x: Any, level: int) -> str:
        shape = getattr(x, "shape", None)
        more = f" {shape}" if isinstance(shape, tuple) else ""
        name = getattr(x, "__name__", None)
        return str(name) if isinstance(name, str) else f"<{type(x).__name__}{more}>"


_shown = _Shown()


def shown_call(function: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> str:
    """The call as one would write it, cut short."""
    name = getattr(function, "__qualname__", type(function).__name__)
    parts: list[str] = []
    for key, value in [*(("", one) for one in args), *kwargs.items()]:
        try:
            told = _shown.repr(value)
        except Exception:  # a user's __repr__
            told = f"<{type(value).__name__}>"
        parts.append(f"{key}={told}" if key else told)
        if sum(map(len, parts)) > SHOWN_CHARACTERS:
            break
    text = f"{name}({', '.join(parts)})"
    return text if len(text) <= SHOWN_CHARACTERS else f"{text[:SHOWN_CHARACTERS]}..."


def trace_of(error: BaseException, called: str) -> str:
    """What Python would print of the error, without our own frames; cut in the middle."""
    told = traceback.TracebackException.from_exception(error)
    while told.stack and any(own in told.stack[0].filename for own in _OWN):
        del told.stack[0]
    head = f"in the call {called}\n" if called else ""
    text = "".join(told.format())
    if len(text) > TRACE_CHARACTERS:
        half = TRACE_CHARACTERS // 2
        text = f"{text[:half]}\n...\n{text[-half:]}"
    return head + text
