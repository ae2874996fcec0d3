"""The first thing the `sureline` command runs: an interrupt at any moment is no traceback."""

from __future__ import annotations

import signal
import sys


def main() -> None:
    """Never returns; exits with the code the command earned."""
    try:
        from sureline.cli.main import run_process

        code = run_process(sys.argv[1:])
    except KeyboardInterrupt:
        code = 130
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # what was done is done: the code stands
    sys.exit(code)
