"""What calls printed, shown where their caller prints."""

from __future__ import annotations

from typing import IO

from sureline.cli.console import harmless


def echo(stream: IO[str] | None, text: str, *, foreign: bool = False) -> None:
    """Show what a call printed; a caller whose stream is closed must still get its result. What
    another machine sent is shown without what a terminal would take for orders."""
    try:
        if text and stream is not None:
            stream.write(harmless(text) if foreign else text)
    except (OSError, ValueError):
        pass
