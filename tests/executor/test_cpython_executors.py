"""CPython's own tests of executors, with ours in the place of theirs.

Left out is what cannot be asked of another executor: tests that look into ProcessPoolExecutor (its
queues and processes), and those that start a Python which imports the executor's name from
`concurrent.futures`; `test_executor.py` has the like of these.
"""

from __future__ import annotations

import sys
import unittest

import pytest

import sureline

try:
    from test.support import use_resources  # noqa: F401 - whether there is such a package
    from test.test_concurrent_futures import executor as theirs
    from test.test_concurrent_futures import test_as_completed, test_init, test_shutdown, test_wait
    from test.test_concurrent_futures.util import BaseTestCase, ExecutorMixin
except ImportError:
    pytest.skip(
        f"Python {sys.version.split()[0]} is installed without its tests of executors "
        "(test.test_concurrent_futures)",
        allow_module_level=True,
    )

BY_NAME = (
    "test_interpreter_shutdown",
    "test_submit_after_interpreter_shutdown",
    "test_hang_gh83386",
    "test_hang_gh94440",
)


class Ours(ExecutorMixin):  # type: ignore[misc]  # CPython's tests are untyped
    executor_type = sureline.Executor


class TestExecutor(Ours, theirs.ExecutorTest, BaseTestCase):  # type: ignore[misc]  # as above
    pass


class TestShutdown(Ours, test_shutdown.ExecutorShutdownTest, BaseTestCase):  # type: ignore[misc]  # as above
    pass


class TestWait(Ours, test_wait.WaitTests, BaseTestCase):  # type: ignore[misc]  # as above
    pass


class TestAsCompleted(Ours, test_as_completed.AsCompletedTests, BaseTestCase):  # type: ignore[misc]  # as above
    pass


class TestInitializer(Ours, test_init.InitializerMixin, BaseTestCase):  # type: ignore[misc]  # as above
    pass


class TestFailingInitializer(Ours, test_init.FailingInitializerMixin, BaseTestCase):  # type: ignore[misc]  # as above
    pass


for name in BY_NAME:
    setattr(
        TestShutdown,
        name,
        unittest.skip("starts a Python that imports the executor from concurrent.futures")(
            getattr(TestShutdown, name)
        ),
    )
