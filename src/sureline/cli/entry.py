"""The first thing the `sureline` command runs: an interrupt at any moment is no traceback."""

from __future__ import annotations

import gc
import signal
import sys

_GARBAGE_AFTER = (50_000, 20, 50)
"""Imports, graphs and events live long and hold few circles: looking for garbage as often as Python
does by default costs a run of many short commands some percent."""

_own_process = False


def is_own_process() -> bool:
    """Whether this process is the command and nothing else, with no children but its own."""
    return _own_process


def main() -> None:
    """Never returns; exits with the code the command earned."""
    global _own_process
    _own_process = True
    gc.set_threshold(*_GARBAGE_AFTER)
    try:
        from sureline.cli.main import run_process

        code = run_process(sys.argv[1:])
    except KeyboardInterrupt:
        code = 130
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # what was done is done: the code stands
    sys.exit(code)
