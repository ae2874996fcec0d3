"""A real grid on this machine: homes, peers as processes of their own, real sockets and TLS."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from surely import COMMAND, PATIENCE_S, Said, sureline, until

from sureline.peer import orphans

GRID = "lab"
ASKED_EVERY_S = 0.3


class Peer:
    """One `sureline peer` process, serving from a home of its own."""

    def __init__(self, lab: GridLab, name: str, arguments: list[str]) -> None:
        self.name = name
        self.home = lab.home(name)
        self._log = lab.where / f"{name}.{time.monotonic_ns()}.log"
        self._out = self._log.with_suffix(".out")
        with open(self._out, "wb") as out, open(self._log, "wb") as log:
            self.process = subprocess.Popen(
                [COMMAND, "peer", "--json", "--listen", "127.0.0.1:0", *arguments],
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

        return json.loads(until(said, f"{self.name} to be ready"))

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


class GridLab:
    """Peers are named p0 (which made the grid), p1, ...; leave the block to end them all."""

    def __init__(self, where: Path) -> None:
        self.where = where
        self.peers: dict[str, Peer] = {}

    def __enter__(self) -> GridLab:
        return self

    def __exit__(self, *_: object) -> None:
        for peer in self.peers.values():
            peer.clear()

    def home(self, name: str) -> Path:
        return self.where / "homes" / name

    def env(self, name: str) -> dict[str, str]:
        return {"SURELINE_HOME": str(self.home(name))}

    def do(self, name: str, *arguments: str, where: Path | None = None, **options: Any) -> Said:
        """Run a command in the home of a peer."""
        return sureline(where or self.where, *arguments, env=self.env(name), **options)

    def start(self, count: int, *arguments: str) -> None:
        """Make the grid and have so many peers of one slot serve it."""
        said = self.do("p0", "grid", "new", GRID, "--peer", "p0")
        assert said.code == 0, said
        self.serve("p0", *arguments).ready()
        joining = [self.join(f"p{i}", *arguments) for i in range(1, count)]
        for peer in joining:
            peer.ready()
        self.until_present({f"p{i}" for i in range(count)})

    def invite(self, *arguments: str) -> str:
        said = self.do("p0", "invite", "--json", *arguments)
        assert said.code == 0, said
        return str(said.json["invitation"])

    def join(self, name: str, *arguments: str, role: str = "run,submit") -> Peer:
        invitation = self.invite("--role", role)
        return self.serve(name, "--join", invitation, "--name", name, *arguments)

    def serve(self, name: str, *arguments: str) -> Peer:
        """Start (again) the peer of a home."""
        if not any(a.startswith("--slots") for a in arguments):
            arguments = (*arguments, "--slots=1")
        # tests hold tasks back by files of their own, beside the lab
        arguments = (*arguments, "--share", str(self.where.parent))
        peer = self.peers[name] = Peer(self, name, list(arguments))
        return peer

    def present(self, asked: str = "p0") -> dict[str, Any]:
        """The peers that this one believes to be there."""
        said = self.do(asked, "peers", "--json")
        assert said.code == 0, said
        return {one["peer"]: one for one in said.json["peers"] if one["state"] == "alive"}

    def until_present(self, names: set[str], asked: str = "p0") -> None:
        self.until(lambda: set(self.present(asked)) == names, f"{names} to be there")

    def until(self, what: Callable[[], object], told: str) -> None:
        """Wait for what a command must tell: asking costs the peers, and us, some effort."""
        until(what, told, every_s=ASKED_EVERY_S)
