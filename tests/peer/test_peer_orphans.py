"""What is left when the process that drives a run is killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from sureline.peer import orphans

PARENT = """
import asyncio, os, sys, time
from pathlib import Path
from sureline.peer.calls import dump_arguments, dump_function
from sureline.peer.jobs import CallJob, CommandJob
from sureline.peer.runner import SlotRunner

def hang(mark, busy):
    Path(mark).write_text(f"{os.getpid()}\\n")
    if busy:
        hold_the_lock()
    while True:
        time.sleep(1)

def hold_the_lock():
    import ctypes
    ctypes.PyDLL(None).sleep(99)

async def main():
    loop = asyncio.get_running_loop()
    digest, data = dump_function(hang)
    runner = SlotRunner(loop, root=Path(".sureline"), directory=Path("."), run="r1",
                    functions={digest: data}, max_slots=4)
    say = lambda event: None
    script = "trap '' TERM HUP; setsid sleep 99 & echo $$ > {0}; while :; do sleep 0.1; done"
    runner.start(CommandJob("0.1", "t", 1, script.format(Path("m0").absolute())), say)
    for n in (1, 2):
        arguments = dump_arguments((str(Path(f"m{n}").absolute()), n == 2), {})[0]
        runner.start(CallJob(f"{n}.1", "t", 1, digest, arguments), say)
    await asyncio.sleep(99)

asyncio.run(main())
"""
PATIENCE_S = 30.0


def until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, "waited too long"
        time.sleep(0.01)


@pytest.fixture
def driver(tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    (tmp_path / "parent.py").write_text(PARENT)
    process = subprocess.Popen([sys.executable, "parent.py"], cwd=tmp_path)
    try:
        marks = [tmp_path / f"m{n}" for n in range(3)]
        until(lambda: all(m.exists() and m.read_text().endswith("\n") for m in marks))
        yield process
    finally:
        process.kill()
        process.wait()
        orphans.clear_run(tmp_path / ".sureline", "r1")


def left(tmp_path: Path) -> list[int]:
    return orphans.find(orphans.token_of(str(tmp_path / ".sureline"), "r1", ""), prefix=True)


def test_no_job_outlives_a_killed_driver(driver: subprocess.Popen[bytes], tmp_path: Path) -> None:
    assert len(left(tmp_path)) >= 5  # three slots, the script, the escaped sleep
    os.kill(driver.pid, signal.SIGKILL)
    until(lambda: not left(tmp_path))


def test_what_a_dead_run_left_can_be_cleared(
    driver: subprocess.Popen[bytes], tmp_path: Path
) -> None:
    """Even slots that are stopped, and so cannot end themselves, are found and killed."""
    slots = left(tmp_path)
    for pid in slots:
        os.kill(pid, signal.SIGSTOP)
    os.kill(driver.pid, signal.SIGKILL)
    driver.wait()
    orphans.clear_run(tmp_path / ".sureline", "r1")
    assert not left(tmp_path)
    assert not (tmp_path / ".sureline/work/r1").exists()
    assert orphans.clear_run(tmp_path / ".sureline", "r1") == 0


def test_only_the_wanted_run_is_found(tmp_path: Path) -> None:
    root = str(tmp_path)
    tokens = [orphans.token_of(root, run, "1.1") for run in ("r1", "r11")]
    sleepers = [
        subprocess.Popen(["sleep", "99"], env={**os.environ, orphans.TOKEN: t}) for t in tokens
    ]
    try:
        prefix = orphans.token_of(root, "r1", "")
        until(lambda: orphans.find(prefix, prefix=True))
        assert orphans.find(prefix, prefix=True) == [sleepers[0].pid]
        assert orphans.find(tokens[1]) == [sleepers[1].pid]
        assert orphans.find(orphans.token_of(root, "r1", "1")) == []
    finally:
        for sleeper in sleepers:
            sleeper.kill()
            sleeper.wait()
