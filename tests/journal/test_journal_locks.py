from __future__ import annotations

import errno
import fcntl
import os
import platform
import signal
import subprocess
import sys
import threading
from pathlib import Path

import msgspec
import pytest

from sureline.journal.locks import LOCK, Holder, RunLock, boot_id, holder, this_process

_CHILD = """
import sys
from pathlib import Path
from sureline.journal.locks import RunLock

lock = RunLock.acquire(Path(sys.argv[1]))
print(lock is not None, flush=True)
sys.stdin.read()
"""


def _start(directory: Path, program: str = _CHILD) -> subprocess.Popen[str]:
    child = subprocess.Popen(
        [sys.executable, "-c", program, str(directory)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert child.stdout is not None and child.stdout.readline() == "True\n"
    return child


def test_a_lock_is_held_until_its_process_dies(tmp_path: Path) -> None:
    directory = tmp_path / "work" / "run-1"
    assert not RunLock.held_elsewhere(directory)
    child = _start(directory)
    assert RunLock.held_elsewhere(directory)
    assert RunLock.acquire(directory) is None
    assert holder(directory) == Holder(platform.node(), child.pid, boot_id())
    child.send_signal(signal.SIGKILL)
    child.communicate()
    assert not RunLock.held_elsewhere(directory)
    lock = RunLock.acquire(directory)
    assert lock is not None and lock.notice is None
    assert holder(directory) == this_process()
    lock.release()
    lock.release()
    assert not RunLock.held_elsewhere(directory)
    assert holder(directory) is None


_PARENT_OF_A_WORKER = """
import os, sys
from pathlib import Path
from sureline.journal.locks import RunLock

lock = RunLock.acquire(Path(sys.argv[1]))
forked, say = os.pipe()
if os.fork() == 0:
    os.write(say, b"x")
    os.close(1)
    sys.stdin.read()  # outlives its parent, until the test lets go
    os._exit(0)
os.read(forked, 1)
print(lock is not None, flush=True)
os.kill(os.getpid(), 9)
"""


def test_a_forked_worker_that_outlives_its_parent_does_not_keep_the_lock(tmp_path: Path) -> None:
    child = _start(tmp_path, _PARENT_OF_A_WORKER)
    assert child.wait() == -signal.SIGKILL
    assert not RunLock.held_elsewhere(tmp_path)
    child.communicate()


def test_asking_does_not_keep_anybody_from_acquiring(tmp_path: Path) -> None:
    stop = threading.Event()

    def ask() -> None:
        while not stop.is_set():
            RunLock.held_elsewhere(tmp_path)

    asker = threading.Thread(target=ask)
    asker.start()
    try:
        for _ in range(50):
            lock = RunLock.acquire(tmp_path)
            assert lock is not None
            lock.release()
    finally:
        stop.set()
        asker.join()


@pytest.fixture
def no_locks(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(descriptor: int, operation: int) -> None:
        raise OSError(errno.ENOTSUP, "Operation not supported")

    monkeypatch.setattr(fcntl, "flock", refuse)


@pytest.mark.usefixtures("no_locks")
@pytest.mark.parametrize(
    ("owner", "alive"),
    [
        (this_process(), True),
        (Holder(platform.node(), 2**22 + 1, boot_id()), False),  # beyond the largest pid
        (Holder(platform.node(), os.getpid(), "another boot"), False),
        (Holder("another-host", 1, "x"), True),
        (None, False),
    ],
)
def test_without_locks_the_holders_process_decides(
    tmp_path: Path, owner: Holder | None, alive: bool
) -> None:
    (tmp_path / LOCK).write_bytes(b"" if owner is None else msgspec.json.encode(owner))
    assert RunLock.held_elsewhere(tmp_path) is alive
    lock = RunLock.acquire(tmp_path)
    assert (lock is None) is alive
    if lock is not None:
        assert lock.notice is not None and "without locks" in lock.notice
        assert RunLock.held_elsewhere(tmp_path)
        lock.release()
        assert not RunLock.held_elsewhere(tmp_path)
