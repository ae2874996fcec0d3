"""Every test has a time limit: one that hangs fails, with its name and with where all threads are.

LIMIT_S for each of its phases (fixtures, the test, what is undone after it); `limit_s(seconds)`
raises it, and heavy proofs have an hour. A test that cannot even be interrupted, because no Python
code of it runs any more, ends its process a little later, with the same dump.
"""

from __future__ import annotations

import faulthandler
import signal
import sys
import threading
from collections.abc import Generator
from types import FrameType
from typing import NoReturn

import hypothesis
import pytest

LIMIT_S = 120.0
LIMIT_OF_SOAK_S = 3600.0
AGAIN_S = 10.0
"""Whoever catches the failure and goes on is interrupted again after so long."""
STUCK_S = 60.0


def pytest_configure(config: pytest.Config) -> None:
    # How long an example takes says how busy the machine is; what hangs is ended by the limit
    # below.
    hypothesis.settings.register_profile("house", deadline=None)
    hypothesis.settings.load_profile("house")
    config.addinivalue_line("markers", "limit_s(seconds): how long a phase of this test may take")


def limit_of(item: pytest.Item) -> float:
    marker = item.get_closest_marker("limit_s")
    if marker is not None:
        return float(marker.args[0])
    return LIMIT_OF_SOAK_S if item.get_closest_marker("soak") else LIMIT_S


def _limited(item: pytest.Item) -> Generator[None, object, object]:
    """Let a phase run, and end it when its time is over."""
    if threading.current_thread() is not threading.main_thread():
        return (yield)  # no signal would reach it
    limit_s = limit_of(item)

    def too_long(number: int, frame: FrameType | None) -> NoReturn:
        faulthandler.dump_traceback(sys.__stderr__ or 2)
        pytest.fail(f"{item.nodeid} took longer than {limit_s:g} s", pytrace=True)

    before = signal.signal(signal.SIGALRM, too_long)
    faulthandler.dump_traceback_later(limit_s + STUCK_S, exit=True, file=sys.__stderr__ or 2)
    signal.setitimer(signal.ITIMER_REAL, limit_s, AGAIN_S)
    try:
        return (yield)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        faulthandler.cancel_dump_traceback_later()
        signal.signal(signal.SIGALRM, before)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup(item: pytest.Item) -> Generator[None, object, object]:
    return (yield from _limited(item))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    return (yield from _limited(item))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item) -> Generator[None, object, object]:
    return (yield from _limited(item))
