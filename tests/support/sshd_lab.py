"""An ssh server of the test's own, on the loopback, with a key and a configuration of its own."""

from __future__ import annotations

import getpass
import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from slurm_lab import free_port, search_path

PATIENCE_S = 30.0


def unavailable() -> str:
    missing = [
        name
        for name in ("sshd", "ssh", "ssh-keygen")
        if shutil.which(name, path=search_path()) is None
    ]
    return f"not installed: {', '.join(missing)}" if missing else ""


class SshdLab:
    """`home` is what a login finds as its home."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.home = directory / "home"
        self.port = free_port()
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def options(self) -> tuple[str, ...]:
        """For ssh, so that it finds this server and nothing of the user's own."""
        return ("-F", str(self.directory / "client.conf"))

    def __enter__(self) -> SshdLab:
        self.home.mkdir(parents=True)
        for key in ("host_key", "user_key"):
            subprocess.run(
                ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", self.directory / key],
                check=True,
            )
        (self.directory / "authorized").write_bytes((self.directory / "user_key.pub").read_bytes())
        server = [
            f"Port {self.port}",
            "ListenAddress 127.0.0.1",
            f"HostKey {self.directory / 'host_key'}",
            f"AuthorizedKeysFile {self.directory / 'authorized'}",
            f"PidFile {self.directory / 'sshd.pid'}",
            "PasswordAuthentication no",
            "KbdInteractiveAuthentication no",
            "StrictModes no",
            "UsePAM no",
            "PermitRootLogin yes",
            f'SetEnv HOME="{self.home}"',
            "MaxStartups 100",
        ]
        (self.directory / "sshd.conf").write_text("\n".join(server) + "\n")
        host_key = (self.directory / "host_key.pub").read_text()
        (self.directory / "known").write_text(f"[127.0.0.1]:{self.port} {host_key}")
        client = [
            "Host lab lab2",
            "  HostName 127.0.0.1",
            f"  Port {self.port}",
            f"  User {getpass.getuser()}",
            f"  IdentityFile {self.directory / 'user_key'}",
            "  IdentitiesOnly yes",
            f"  UserKnownHostsFile {self.directory / 'known'}",
        ]
        (self.directory / "client.conf").write_text("\n".join(client) + "\n")
        self.start()
        return self

    def start(self) -> None:
        if os.geteuid() == 0:
            os.makedirs("/run/sshd", exist_ok=True)
        sshd = shutil.which("sshd", path=search_path())
        assert sshd is not None
        argv = [sshd, "-D", "-e", "-f", str(self.directory / "sshd.conf")]
        with (self.directory / "sshd.log").open("ab") as log:
            self._process = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stderr=log)
        give_up_at = time.monotonic() + PATIENCE_S
        knock = ["ssh", *self.options, "lab", "true"]
        while subprocess.run(knock, check=False, capture_output=True).returncode:
            assert time.monotonic() < give_up_at, (self.directory / "sshd.log").read_text()
            time.sleep(0.05)

    def stop(self) -> None:
        if self._process is not None:
            self._process.terminate()
            self._process.wait()
            self._process = None

    def __exit__(self, *_: object) -> None:
        self.stop()


@pytest.fixture(scope="session")
def sshd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SshdLab]:
    why = unavailable()
    if why:
        pytest.skip(f"no ssh here: {why}")
    with SshdLab(tmp_path_factory.mktemp("ssh")) as lab:
        yield lab
