"""One file from one peer to several others: separate processes, loopback, real TLS.

    python benchmarks/files.py [--size-mb 2000] [--receivers 3] [--repeat 1] [--json FILE]

Prints JSON: the aggregate rate of verified delivery, beside a plain TLS copy of the same file to as
many receivers in the same run (`files_plain.py`, which verifies nothing); and a run in which the
source is killed when every receiver has half of the file, and they finish from each other. Exit
code 1 if anything did not arrive whole.
"""

from __future__ import annotations

import argparse
import json
import mmap
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

from blake3 import blake3

from sureline.world.identity import certificates, disk
from sureline.world.identity.authority import Authority
from sureline.world.identity.home import GridHome, Issuer, make_home

HERE = Path(__file__).resolve().parent
GRID = "bench"
NOWHERE = "127.0.0.1:9"
PATIENCE_S = 900.0
CACHE_BYTES = 1 << 40


def make_homes(where: Path, names: list[str]) -> dict[str, Path]:
    """The homes of peers of one grid, as enrolments would have made them."""
    import msgspec

    authority = Authority.create(where / "issuer", GRID, "issuer")
    homes = {}
    for name in names:
        home = where / f"home-{name}"
        invitation = authority.invite(roles=("run",), expires_s=600, addresses=[NOWHERE])
        key = certificates.new_key()
        pem = certificates.own_pem(key, authority.redeem(invitation.id, key.public_key(), name))

        def fill(path: Path, pem: bytes = pem) -> None:
            disk.write(path / "ca.crt", certificates.pem_of(authority.certificate))
            disk.write(path / "peer.pem", pem)
            issuer = Issuer("issuer", (NOWHERE,))
            disk.write(path / "issuer.json", msgspec.json.encode(issuer))

        make_home(home)
        disk.make_directory(GridHome(home, GRID).path, fill)
        homes[name] = home
    return homes


class Process:
    """A child that speaks JSON lines."""

    def __init__(self, script: str, *arguments: object) -> None:
        command = [sys.executable, str(HERE / script), *map(str, arguments)]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self.events: list[dict[str, Any]] = []

    def tell(self, **command: object) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(command) + "\n")
        self._process.stdin.flush()

    def hear(self, wanted: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        """The next event that is wanted."""
        assert self._process.stdout is not None
        for line in self._process.stdout:
            event: dict[str, Any] = json.loads(line)
            self.events.append(event)
            if wanted(event):
                return event
        raise RuntimeError(f"{self._process.args!r} ended with {self._process.wait()}")

    def kill(self) -> None:
        self._process.kill()
        self.wait()

    def wait(self) -> int:
        """Until it has ended by itself; how."""
        code = self._process.wait(PATIENCE_S)
        self._close()
        return code

    def end(self) -> float:
        """How much CPU it has used."""
        self.tell(do="end")
        cpu_s = float(self.hear(has("cpu_s"))["cpu_s"])
        self._process.wait(PATIENCE_S)
        self._close()
        return cpu_s

    def _close(self) -> None:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.close()
        self._process.stdout.close()


def has(key: str) -> Callable[[dict[str, Any]], bool]:
    return lambda event: key in event


class Warmth:
    """Memory that the kernel need not fetch from a host before it can hold what is written.

    A virtual machine gives free memory back to its host within seconds, and getting a page again
    costs ten times what writing it does; whoever is slower would be slowed down further. So memory
    is held here, and let go of little by little, a step ahead of what the receivers write.
    """

    AHEAD_BYTES = 32 << 20

    def __init__(self, size: int, written: Callable[[], int]) -> None:
        self._memory = mmap.mmap(-1, size + self.AHEAD_BYTES)
        for start in range(0, len(self._memory), mmap.PAGESIZE):
            self._memory[start] = 1
        self._written = written
        self._released = 0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._follow)

    def __enter__(self) -> None:
        self._release(self.AHEAD_BYTES)
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()
        self._memory.close()

    def _follow(self) -> None:
        while not self._over.wait(0.005):
            self._release(self._written() + self.AHEAD_BYTES)

    def _release(self, until: int) -> None:
        until = min(len(self._memory), until // mmap.PAGESIZE * mmap.PAGESIZE)
        if until > self._released:
            self._memory.madvise(mmap.MADV_DONTNEED, self._released, until - self._released)
            self._released = until


def on_disk(where: Path, *patterns: str) -> Callable[[], int]:
    """Looks how much the files of these names take."""

    def look() -> int:
        total = 0
        for path in [path for pattern in patterns for path in where.glob(pattern)]:
            try:
                total += path.stat().st_blocks * 512
            except FileNotFoundError:
                pass  # it has another name by now
        return total

    return look


def plain_copy(
    where: Path, homes: dict[str, Path], path: Path, receivers: list[str]
) -> dict[str, Any]:
    """From the start of the receivers' connections to the last byte written."""
    sender = Process("files_plain.py", "send", homes["source"], path)
    port = sender.hear(has("port"))["port"]
    copies = [where / f"copy-{name}" for name in receivers]
    processes = [
        Process("files_plain.py", "receive", homes[name], port, copy)
        for name, copy in zip(receivers, copies, strict=True)
    ]
    for process in processes:
        process.hear(has("ready"))
    with Warmth(path.stat().st_size * len(receivers), on_disk(where, "copy-*")):
        started = time.time()
        for process in processes:
            process.tell(do="begin")
        ended = [process.hear(has("bytes")) for process in processes]
    cpu_s = sender.end() + sum(float(one["cpu_s"]) for one in ended)
    for process in processes:
        process.wait()
    size = path.stat().st_size
    if any(one["bytes"] != size for one in ended):
        raise RuntimeError("the plain copy is not whole")
    for copy in copies:
        copy.unlink()
    return {"elapsed_s": max(float(one["at"]) for one in ended) - started, "cpu_s": cpu_s}


def swarm(
    where: Path, homes: dict[str, Path], path: Path, receivers: list[str], *, kill_source: bool
) -> dict[str, Any]:
    caches = {name: where / f"cache-{name}" for name in ("source", *receivers)}
    peers = {
        name: Process("files_peer.py", homes[name], caches[name], CACHE_BYTES) for name in caches
    }
    nodes = {name: peer.hear(has("node"))["node"] for name, peer in peers.items()}
    peers["source"].tell(do="put", path=str(path))
    put = peers["source"].hear(has("put"))
    found: dict[str, Any] = {}
    written = on_disk(where, "cache-peer*/incoming/*.data", "cache-peer*/blobs/*/*")
    with Warmth(put["size"] * len(receivers), written):
        started = time.time()
        for name in receivers:
            peers[name].tell(
                do="fetch", digest=put["put"], size=put["size"], sources=[nodes["source"]]
            )
        if kill_source:
            half = put["size"] / 2
            for name in receivers:
                peers[name].hear(lambda event: event.get("there", 0) >= half or "fetched" in event)
            peers.pop("source").kill()
            found["killed_after_s"] = time.time() - started
        ended = [peers[name].hear(lambda e: "fetched" in e or "missing" in e) for name in receivers]
    found["whole"] = all(
        _digest(caches[name], put["put"]) == put["put"] for name in receivers
    ) and all("fetched" in one for one in ended)
    found["missing"] = [one["missing"] for one in ended if "missing" in one]
    found["elapsed_s"] = max(float(one.get("at", time.time())) for one in ended) - started
    found["cpu_s"] = sum(peer.end() for peer in peers.values())
    if not kill_source:
        found["cpu_s"] -= put["cpu_s"]  # hashing it first is no part of the transfer
    for cache in caches.values():
        shutil.rmtree(cache)
    return found


def _digest(cache: Path, digest: str) -> str:
    blob = cache / "blobs" / digest[:2] / digest[2:]
    return str(blake3(max_threads=2).update_mmap(blob).hexdigest()) if blob.exists() else ""


def make_file(path: Path, size: int) -> None:
    """Noise, so that nothing on the way can make it smaller."""
    with path.open("wb") as file:
        written = 0
        while written < size:
            written += file.write(os.urandom(min(1 << 22, size - written)))


def measure(where: Path, size: int, receivers: int, repeat: int) -> dict[str, Any]:
    names = [f"peer{k}" for k in range(1, receivers + 1)]
    homes = make_homes(where, ["source", *names])
    path = where / "data"
    make_file(path, size)
    plain, ours = [], []
    for _ in range(repeat):
        os.sync()
        plain.append(plain_copy(where, homes, path, names))
        os.sync()
        ours.append(swarm(where, homes, path, names, kill_source=False))
    os.sync()
    killed = swarm(where, homes, path, names, kill_source=True)
    total_mb = size * receivers / 1e6
    rates = {
        "plain_mb_s": total_mb / median(one["elapsed_s"] for one in plain),
        "ours_mb_s": total_mb / median(one["elapsed_s"] for one in ours),
    }
    return {
        "size_bytes": size,
        "receivers": receivers,
        **rates,
        "ratio": rates["ours_mb_s"] / rates["plain_mb_s"],
        "whole": all(one["whole"] for one in ours),
        "plain": plain,
        "ours": ours,
        "source_killed_halfway": killed,
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--size-mb", type=int, default=2000)
    parser.add_argument("--receivers", type=int, default=3)
    parser.add_argument("--repeat", type=int, default=1)
    parser.add_argument("--json", type=Path)
    parser.add_argument(
        "--where", type=Path, help="where the copies go; default: a temporary place"
    )
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=chosen.where) as where:
        found = measure(Path(where), chosen.size_mb * 10**6, chosen.receivers, chosen.repeat)
    text = json.dumps(found, indent=2)
    print(text)
    if chosen.json is not None:
        chosen.json.write_text(text + "\n")
    return 0 if found["whole"] and found["source_killed_halfway"]["whole"] else 1


if __name__ == "__main__":
    sys.exit(main())
