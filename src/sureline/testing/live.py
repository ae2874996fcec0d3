"""A real grid on this machine: homes, peers as processes of their own, real sockets and TLS.

Every wait has a deadline that is generous (tests share their machine) and ends as soon as what is
waited for holds. Leave the block to end all that was started.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from sureline.peer import orphans

GRID = "lab"
COMMAND = (sys.executable, "-m", "sureline")
PATIENCE_S = float(os.environ.get("SURELINE_PATIENCE_S", "60"))
"""How long a condition may take before it is given up. Heavy proofs give more: many processes share
a few cores there."""
ROLES = "run,submit"
ASKED_EVERY_S = 0.3

T = TypeVar("T")


class Said(NamedTuple):
    """What a command that ended said."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


def until(
    what: Callable[[], T], told: str = "", timeout_s: float = PATIENCE_S, every_s: float = 0.01
) -> T:
    """Wait for `what()` to be true, and return it. Fails when patience ends."""
    give_up = time.monotonic() + timeout_s
    while not (found := what()):
        if time.monotonic() > give_up:
            raise AssertionError(f"waited {timeout_s:g} s in vain for {told or what}")
        time.sleep(every_s)
    return found


def command(where: Path, *arguments: str, env: Mapping[str, str]) -> Said:
    """Run `sureline` in this directory to its end."""
    done = subprocess.run(
        [*COMMAND, *arguments],
        cwd=where,
        env={**os.environ, **env},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    return Said(done.returncode, done.stdout, done.stderr)


@contextmanager
def driving(
    where: Path, *arguments: str, env: Mapping[str, str]
) -> Iterator[subprocess.Popen[bytes]]:
    """`sureline`, running; nothing of it is left when the block is left."""
    with open(where / "driver.err", "ab") as log:
        process = subprocess.Popen(
            [*COMMAND, *arguments],
            cwd=where,
            env={**os.environ, **env},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=log,
            start_new_session=True,
        )
    try:
        yield process
    finally:
        if process.poll() is None:
            process.kill()
            process.wait(PATIENCE_S)
        orphans.kill(f"{os.path.abspath(where / '.sureline')}:", prefix=True)


class LivePeer:
    """One `sureline peer` process, serving from a home of its own."""

    command: tuple[str, ...] = COMMAND

    def __init__(self, lab: LiveGrid, name: str, arguments: list[str]) -> None:
        self.name = name
        self.home = lab.home(name)
        self._log = lab.where / f"{name}.{time.monotonic_ns()}.log"
        self._out = self._log.with_suffix(".out")
        with open(self._out, "wb") as out, open(self._log, "wb") as log:
            self.process = subprocess.Popen(
                [*self.command, "peer", "--json", "--listen", "127.0.0.1:0", *arguments],
                cwd=lab.where,
                env={**os.environ, "SURELINE_HOME": str(self.home)},
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=log,
                start_new_session=True,
            )

    @property
    def log(self) -> str:
        return self._log.read_text()

    def ready(self) -> dict[str, Any]:
        """What it said when others could reach it."""

        def said() -> str:
            assert self.process.poll() is None, f"{self.name} ended: {self.log}"
            return self._out.read_text()

        told: dict[str, Any] = json.loads(until(said, f"{self.name} to be ready"))
        return told

    def kill(self) -> None:
        """As a power cut would: nothing is said to anybody, and its tasks die too."""
        self.process.send_signal(signal.SIGKILL)
        self.process.wait(PATIENCE_S)
        orphans.kill(f"{self.root}:", prefix=True)

    def stop(self) -> None:
        self.process.send_signal(signal.SIGSTOP)

    def go_on(self) -> None:
        self.process.send_signal(signal.SIGCONT)

    @property
    def root(self) -> Path:
        return self.home / "grids" / GRID / "peer"

    def clear(self) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGCONT)
            self.process.kill()
            self.process.wait(PATIENCE_S)
        orphans.kill(f"{self.root}:", prefix=True)


class LiveGrid:
    """Peers are named p0 (which made the grid), p1, ...; leave the block to end them all."""

    def __init__(self, where: Path) -> None:
        self.where = where
        self.peers: dict[str, LivePeer] = {}

    def __enter__(self) -> LiveGrid:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        for peer in self.peers.values():
            peer.clear()

    def home(self, name: str) -> Path:
        return self.where / "homes" / name

    def env(self, name: str) -> dict[str, str]:
        return {"SURELINE_HOME": str(self.home(name))}

    def do(self, name: str, *arguments: str, where: Path | None = None) -> Said:
        """Run a command in the home of a peer."""
        return command(where or self.where, *arguments, env=self.env(name))

    def start(self, count: int, *arguments: str, role: str = ROLES) -> None:
        """Make the grid and have so many peers of one slot serve it."""
        said = self.do("p0", "grid", "new", GRID, "--peer", "p0")
        assert said.code == 0, said
        self.serve("p0", *arguments).ready()
        joining = [self.join(f"p{i}", *arguments, role=role) for i in range(1, count)]
        for peer in joining:
            peer.ready()
        self.until_present({f"p{i}" for i in range(count)})

    def invite(self, *arguments: str) -> str:
        said = self.do("p0", "invite", "--json", *arguments)
        assert said.code == 0, said
        return str(said.json["invitation"])

    def join(self, name: str, *arguments: str, role: str = ROLES) -> LivePeer:
        invitation = self.invite("--role", role)
        return self.serve(name, "--join", invitation, "--name", name, *arguments)

    def serve(self, name: str, *arguments: str) -> LivePeer:
        """Start (again) the peer of a home."""
        if not any(a.startswith("--slots") for a in arguments):
            arguments = (*arguments, "--slots=1")
        # tests hold tasks back by files of their own, beside the lab
        arguments = (*arguments, "--share", str(self.where.parent))
        peer = self.peers[name] = LivePeer(self, name, list(arguments))
        return peer

    def present(self, asked: str = "p0") -> dict[str, Any]:
        """The peers that this one believes to be there."""
        said = self.do(asked, "peers", "--no-reach", "--json")
        assert said.code == 0, said
        return {one["peer"]: one for one in said.json["peers"] if one["state"] == "alive"}

    def until_present(self, names: set[str], asked: str = "p0") -> None:
        self.until(lambda: set(self.present(asked)) == names, f"{names} to be there")

    def until(self, what: Callable[[], object], told: str) -> None:
        """Wait for what a command must tell: asking costs the peers, and us, some effort."""
        until(what, told, every_s=ASKED_EVERY_S)
