"""Sites as network namespaces of this machine, with real peers in them; see examples/sites.sh."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sureline.peer import orphans
from sureline.testing.live import PATIENCE_S, Said, until

SCRIPT = Path(__file__).resolve().parents[2] / "examples" / "sites.sh"
COMMAND = (sys.executable, "-m", "sureline")
GRID = "lab"


def why_not() -> str:
    """Why there can be no sites here; '' if there can."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    lacking = [name for name in ("ip", "nft", "tc", "bash") if shutil.which(name) is None]
    if lacking:
        return f"{', '.join(lacking)} is not installed"
    name = f"sl{os.getpid()}-try"
    if subprocess.run(["ip", "netns", "add", name], capture_output=True, check=False).returncode:
        return "this system lets nobody make network namespaces"
    try:
        tried = ["ip", "netns", "exec", name, "nft", "add", "table", "inet", "t"]
        return (
            ""
            if not subprocess.run(tried, capture_output=True, check=False).returncode
            else ("this kernel has no nftables")
        )
    finally:
        subprocess.run(["ip", "netns", "del", name], check=False)


class Sites:
    """Leave the block to end all that was started, and the network with it."""

    def __init__(self, where: Path) -> None:
        self.where = where
        self.prefix = f"sl{os.getpid()}"
        self._peers: dict[str, subprocess.Popen[bytes]] = {}

    def __enter__(self) -> Sites:
        self.net("up")
        return self

    def __exit__(self, *_: object) -> None:
        for machine, process in self._peers.items():
            process.kill()
            process.wait(PATIENCE_S)
            orphans.kill(f"{self.home(machine)}/grids/{GRID}/peer:", prefix=True)
        self.net("down")

    def net(self, what: str, *machines: str) -> None:
        subprocess.run(["bash", str(SCRIPT), what, self.prefix, *machines], check=True)

    def home(self, machine: str) -> Path:
        return self.where / machine

    def _there(self, machine: str, *arguments: str) -> list[str]:
        return ["ip", "netns", "exec", f"{self.prefix}-{machine}", *COMMAND, *arguments]

    def _env(self, machine: str) -> dict[str, str]:
        return {**os.environ, "SURELINE_HOME": str(self.home(machine))}

    def do(self, machine: str, *arguments: str, where: Path | None = None) -> Said:
        done = subprocess.run(
            self._there(machine, *arguments),
            cwd=where or self.where,
            env=self._env(machine),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=False,
        )
        return Said(done.returncode, done.stdout, done.stderr)

    @contextmanager
    def doing(
        self, machine: str, *arguments: str, where: Path
    ) -> Iterator[subprocess.Popen[bytes]]:
        """A command that runs there while the block does."""
        with open(where / "driver.err", "wb") as log:
            process = subprocess.Popen(
                self._there(machine, *arguments),
                cwd=where,
                env=self._env(machine),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        try:
            yield process
        finally:
            process.kill()
            process.wait(PATIENCE_S)
            orphans.kill(f"{where / '.sureline'}:", prefix=True)

    def serve(self, machine: str, *arguments: str) -> dict[str, Any]:
        """Start a peer there, and wait for what it says when it is ready."""
        out = self.where / f"{machine}.out"
        with open(out, "wb") as said, open(self.where / f"{machine}.log", "wb") as log:
            process = self._peers[machine] = subprocess.Popen(
                self._there(machine, "peer", "--json", *arguments),
                cwd=self.where,
                env=self._env(machine),
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=log,
                start_new_session=True,
            )

        def ready() -> str:
            assert process.poll() is None, self.log(machine)
            return out.read_text()

        told: dict[str, Any] = json.loads(until(ready, f"{machine} to be ready"))
        return told

    def join(self, machine: str, *arguments: str) -> dict[str, Any]:
        """The same, after an invitation of lab1."""
        invited = self.do("lab1", "invite", "--json")
        assert invited.code == 0, invited
        word = invited.json["invitation"]
        return self.serve(machine, "--join", word, "--name", machine, *arguments)

    def log(self, machine: str) -> str:
        return (self.where / f"{machine}.log").read_text()

    def peers(self, machine: str) -> dict[str, Any]:
        said = self.do(machine, "peers", "--json")
        assert said.code == 0, said
        return {one["peer"]: one for one in said.json["peers"]}
