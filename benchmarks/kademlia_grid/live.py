"""A live network of Kademlia peers over real sockets and real TLS, in several processes.

Every peer has its own listening socket, its own certificate and its own connections; a process
hosts many of them. Some of the processes are killed (SIGKILL), and all of their peers are gone
without a word.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from kademlia_grid.figures import resident_bytes, spread
from sureline.world.identity import certificates

WORKER = Path(__file__).parent / "worker.py"
RIVAL = Path(__file__).parent / "rival.py"


class Process:
    """One worker and its orders."""

    def __init__(self, script: Path, *arguments: str) -> None:
        self.popen = subprocess.Popen(
            [sys.executable, "-P", str(script), *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def order(self, do: str, **details: object) -> None:
        assert self.popen.stdin is not None
        print(json.dumps({"do": do, **details}), file=self.popen.stdin, flush=True)

    def answer(self) -> Any:
        assert self.popen.stdout is not None
        line = self.popen.stdout.readline()
        if not line:
            raise RuntimeError(f"a worker of the benchmark died: {self.popen.wait()}")
        return json.loads(line)

    def ask(self, do: str, **details: object) -> Any:
        self.order(do, **details)
        return self.answer()

    def kill(self) -> None:
        """Idempotent."""
        self.popen.kill()
        self.popen.wait()
        for pipe in (self.popen.stdin, self.popen.stdout):
            if pipe is not None:
                pipe.close()


def ask_all(processes: list[Process], do: str, **details: object) -> list[Any]:
    for process in processes:
        process.order(do, **details)
    return [process.answer() for process in processes]


def share_out(processes: list[Process], do: str, keys: list[int], at_once: int) -> list[Any]:
    """Have the processes do something with all keys, each with its share."""
    for number, process in enumerate(processes):
        process.order(do, keys=keys[number :: len(processes)], at_once=at_once)
    return [result for process in processes for result in process.answer()]


def measure(
    peers: int, processes: int, *, keys: int = 2000, kill: int = 3, at_once: int = 1
) -> dict[str, Any]:
    """A network from its first peer to the loss of `kill` of its processes."""
    with tempfile.TemporaryDirectory() as scratch:
        make_authority(Path(scratch))
        workers = [Process(WORKER, str(number), scratch) for number in range(processes)]
        return _measure(workers, peers // processes, keys, kill, at_once, ours=True)


def measure_rival(
    peers: int, processes: int, *, keys: int = 2000, kill: int = 3, at_once: int = 1
) -> dict[str, Any]:
    """The same with the `kademlia` package, which has no broadcast."""
    workers = [Process(RIVAL, str(number)) for number in range(processes)]
    return _measure(workers, peers // processes, keys, kill, at_once, ours=False)


def make_authority(directory: Path) -> None:
    key, certificate = certificates.new_authority("bench")
    descriptor = os.open(directory / "authority.key", os.O_WRONLY | os.O_CREAT, 0o600)
    with open(descriptor, "wb") as file:
        file.write(certificates.key_pem(key))
    (directory / "authority.pem").write_bytes(certificates.pem_of(certificate))


def _measure(
    workers: list[Process], each: int, keys: int, kill: int, at_once: int, *, ours: bool
) -> dict[str, Any]:
    try:
        figures = _quiet(workers, each, keys, at_once, ours)
        if kill:
            for worker in workers[:kill]:
                worker.kill()
            left = (len(workers) - kill) * each
            figures |= _after_kill(workers[kill:], keys, left, at_once, ours)
        return figures
    finally:
        for worker in workers:
            worker.kill()


def _quiet(
    workers: list[Process], each: int, keys: int, at_once: int, ours: bool
) -> dict[str, Any]:
    """Join, store, find; nobody dies."""
    clock = Stopwatch()
    ask_all(workers, "ready")
    empty_bytes = sum(resident_bytes(worker.popen.pid) for worker in workers)
    nodes = [node for nodes in ask_all(workers, "listen", peers=each) for node in nodes]
    figures: dict[str, Any] = {"peers": len(nodes), "processes": len(workers)}
    figures["listen_s"] = clock.lap()
    # One of each process is known to all; the others get to know those, and each other.
    joins = ask_all(workers, "join", contacts=nodes[::each], at_once=2)
    figures["join_s"] = spread([seconds for done in joins for seconds in done])
    figures["all_joined_s"] = clock.lap()
    joined = ask_all(workers, "told")
    numbers = list(range(keys))
    stored = share_out(workers, "store", numbers, at_once)
    figures["stored"] = {"keys": len(stored), "with_3": sum(n >= 3 for n in stored)}
    figures["stores_s"] = clock.lap()
    before = ask_all(workers, "told")
    figures["get"] = outcome(share_out(workers, "find", numbers, at_once))
    figures["gets_s"] = clock.lap()
    after = ask_all(workers, "told")
    full_bytes = sum(resident_bytes(worker.popen.pid) for worker in workers)
    figures["bytes_per_peer"] = (full_bytes - empty_bytes) // len(nodes)
    figures["cpu_s"] = round(sum(told["cpu_s"] for told in after), 1)
    if ours:
        asked = _rise(before, after, "questions") / max(1, _rise(before, after, "searches"))
        figures["get"]["messages_per_lookup"] = round(2 * asked, 2)
        figures["join_messages"] = round(sum(t["sent"] for t in joined) / len(nodes), 1)
        figures["contacts"] = round(sum(t["contacts"] for t in after) / len(nodes), 1)
        figures["links_max"] = max(told["links_max"] for told in after)
        figures["broadcast"] = broadcast(workers, len(nodes))
    return figures


def _after_kill(
    workers: list[Process], keys: int, left: int, at_once: int, ours: bool
) -> dict[str, Any]:
    held = sorted({number for found in ask_all(workers, "held", keys=keys) for number in found})
    clock = Stopwatch()
    figures = {"get_after_kill": outcome(share_out(workers, "find", held, at_once))}
    figures["get_after_kill"]["gets_s"] = clock.lap()
    if ours:
        figures["broadcast_after_kill"] = broadcast(workers, left)
    return figures


def broadcast(workers: list[Process], peers: int) -> dict[str, Any]:
    before = ask_all(workers, "told")
    figures: dict[str, Any] = workers[0].ask("broadcast")
    after = ask_all(workers, "told")
    figures["latency_s"] = round(figures["latency_s"], 4)
    figures["peers"] = peers - 1
    figures["reached"] = _rise(before, after, "heard")
    figures["coverage"] = round(figures["reached"] / (peers - 1), 5)
    figures["children_max"] = max(t["children_max"] for t in after)
    return figures


def outcome(found: list[tuple[bool, float]]) -> dict[str, Any]:
    return {
        "keys": len(found),
        "found": sum(there for there, _ in found),
        "seconds": spread([seconds for _, seconds in found]),
    }


def _rise(before: list[dict[str, Any]], after: list[dict[str, Any]], what: str) -> int:
    return sum(t[what] for t in after) - sum(t[what] for t in before)


class Stopwatch:
    def __init__(self) -> None:
        self._at = time.perf_counter()

    def lap(self) -> float:
        began, self._at = self._at, time.perf_counter()
        return round(self._at - began, 2)
