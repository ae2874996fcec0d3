"""A Dask scheduler with workers, and a Ray head, as processes of this machine."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from surely import alive, until

PATIENCE_S = 90.0
RAY_ENVIRONMENT = {"RAY_AUTH_MODE": "disabled", "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0"}
"""Of the head and of whoever speaks to it: else each home has a token of its own, and what says
127.0.0.1 is taken for the machine's address on its network."""


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def answers(port: int) -> bool:
    with socket.socket() as probe:
        probe.settimeout(1)
        return probe.connect_ex(("127.0.0.1", port)) == 0


class DaskLab:
    """A scheduler and one worker with so many threads; both can be killed and started anew."""

    def __init__(self, directory: Path, threads: int = 4) -> None:
        self._directory = directory
        self._threads = threads
        self.port = free_port()
        self.address = f"tcp://127.0.0.1:{self.port}"
        self._processes: dict[str, subprocess.Popen[bytes]] = {}

    def __enter__(self) -> DaskLab:
        self.start_scheduler()
        self.start_worker()
        return self

    def __exit__(self, *_: object) -> None:
        for name in list(self._processes):
            self.kill(name)

    def start_scheduler(self) -> None:
        self._start("scheduler", "--host", "127.0.0.1", "--port", str(self.port), "--no-dashboard")
        give_up_at = time.monotonic() + PATIENCE_S
        while not answers(self.port):
            assert time.monotonic() < give_up_at, "the scheduler does not come up"
            time.sleep(0.05)

    def start_worker(self, name: str = "worker") -> None:
        threads = ("--nthreads", str(self._threads), "--no-dashboard", "--no-nanny")
        self._start(name, self.address, *threads, "--local-directory", str(self._directory))

    def _start(self, name: str, *arguments: str) -> None:
        kind = "scheduler" if name == "scheduler" else "worker"
        with open(self._directory / f"{name}.log", "ab") as log:
            self._processes[name] = subprocess.Popen(
                [sys.executable, "-m", "dask", kind, *arguments],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self._directory,
            )

    def kill(self, name: str) -> None:
        process = self._processes.pop(name)
        process.send_signal(signal.SIGKILL)
        process.wait()


@contextlib.contextmanager
def ray_head(directory: Path, cpus: int = 4) -> Iterator[str]:
    """The address of a head of its own."""
    port = free_port()
    argv = [str(Path(sys.executable).parent / "ray"), "start", "--head", "--block"]
    argv += [f"--port={port}", f"--num-cpus={cpus}", "--include-dashboard=false"]
    argv += [
        "--disable-usage-stats",
        "--object-store-memory=80000000",
        "--node-ip-address=127.0.0.1",
    ]
    argv += [
        "--min-worker-port=0",
        "--max-worker-port=0",
    ]
    temporary = Path("/tmp") / f"slr{os.getpid()}.{port}"  # its sockets' names must be short
    with open(directory / "ray.log", "ab") as log:
        head = subprocess.Popen(
            [*argv, f"--temp-dir={temporary}"],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env={**os.environ, **RAY_ENVIRONMENT},
            start_new_session=True,
        )
    try:
        give_up_at = time.monotonic() + PATIENCE_S
        while not answers(port):
            assert head.poll() is None, (directory / "ray.log").read_text()
            assert time.monotonic() < give_up_at, "ray does not come up"
            time.sleep(0.1)
        yield f"127.0.0.1:{port}"
    finally:
        family = _family(head.pid)  # its workers would outlive it by some seconds
        with contextlib.suppress(ProcessLookupError):
            os.killpg(head.pid, signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            head.wait(3)
        for pid in family:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        head.wait()
        until(lambda: not any(alive(pid) for pid in family))
        shutil.rmtree(temporary, ignore_errors=True)


def _family(first: int) -> list[int]:
    """A process and all that it has started, at any remove."""
    parents: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if entry.name.isdigit():
                told = (entry / "stat").read_bytes().rpartition(b") ")[2].split()
                parents[int(entry.name)] = int(told[1])
    found = [first]
    for pid in found:
        found += [child for child, parent in parents.items() if parent == pid]
    return found
