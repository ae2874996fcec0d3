"""A test that hangs fails by itself: its name and where it hung are told, and the others go on."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

CONFTEST = Path(__file__).parents[1] / "conftest.py"
HANGING = """
import asyncio, threading, time
import pytest
limit = pytest.mark.limit_s(0.2)

@limit
def test_sleeps():
    time.sleep(60)

@limit
def test_awaits():
    asyncio.run(asyncio.Event().wait())

@limit
def test_joins():
    try:
        threading.Event().wait(60)
    except Exception:
        pass

@pytest.fixture
def slow():
    yield time.sleep(60)

@limit
def test_waits_for_its_fixture(slow):
    pass

def test_is_quick():
    assert True
"""
STUCK = """
import pytest, signal, time

@pytest.mark.limit_s(0.1)
def test_cannot_be_interrupted():
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGALRM})
    time.sleep(60)
"""


def run(where: Path, text: str, *options: str) -> subprocess.CompletedProcess[str]:
    conftest = CONFTEST.read_text().replace("STUCK_S = 60.0", "STUCK_S = 0.5")
    (where / "conftest.py").write_text(conftest)
    (where / "test_it.py").write_text(text)
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *options, "."],
        cwd=where,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )


def test_what_hangs_fails_with_its_name_and_the_rest_runs(tmp_path: Path) -> None:
    said = run(tmp_path, HANGING)
    assert said.returncode == 1
    for name in ("sleeps", "awaits", "joins", "waits_for_its_fixture"):
        assert f"test_it.py::test_{name} took longer than 0.2 s" in said.stdout, said.stdout
    assert "3 failed, 1 passed, 1 error" in said.stdout
    assert "most recent call first" in said.stdout, "where all threads were"


def test_what_cannot_be_interrupted_ends_its_process_with_a_dump(tmp_path: Path) -> None:
    said = run(tmp_path, STUCK, "-s")
    assert said.returncode != 0
    assert "1 failed" not in said.stdout, "nothing could be done but to end the process"
    assert "in test_cannot_be_interrupted" in said.stderr
