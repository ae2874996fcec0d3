"""Accounting for Slurms of a test's own: a MariaDB and a slurmdbd, as processes of this machine.

Clusters that keep their books here know each other, as Slurm's `--clusters` wants it: they share
the key, and slurmdbd says where each is found.

    with SlurmBooks(directory) as books, SlurmLab(directory / "east", name="east", books=books):
        ...
"""

from __future__ import annotations

import shutil
import socket
import subprocess
from pathlib import Path

import slurm_lab
from slurm_lab import Daemons, free_port, search_path, start_munge

PROGRAMS = ("mariadbd", "mariadb-install-db", "slurmdbd", "sacctmgr", "sacct")
PASSWORD = "of-a-test"


def unavailable() -> str:
    """Why there can be no accounting here; '' if there can."""
    missing = [name for name in PROGRAMS if shutil.which(name, path=search_path()) is None]
    return slurm_lab.unavailable() or (f"not installed: {', '.join(missing)}" if missing else "")


class SlurmBooks(Daemons):
    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self.port = free_port()
        self._database_port = free_port()

    def __enter__(self) -> SlurmBooks:
        try:
            self.directory.mkdir(parents=True, exist_ok=True)
            self.directory.chmod(0o755)
            start_munge(self)
            self._start_database()
            self._configure()
            self.start("slurmdbd", ["slurmdbd", "-D"])
            self.wait_for(lambda: self.run("sacctmgr", "-n", "list", "cluster") is not None)
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        for name in list(self.processes):
            self.stop(name)

    def lines(self) -> list[str]:
        """What a cluster's configuration says of its books."""
        return [
            f"AuthInfo=socket={self.directory / 'munge.s'}",
            "AccountingStorageType=accounting_storage/slurmdbd",
            "AccountingStorageHost=127.0.0.1",
            f"AccountingStoragePort={self.port}",
            f"AccountingStoragePass={self.directory / 'munge.s'}",
            "JobAcctGatherType=jobacct_gather/linux",
            "JobAcctGatherFrequency=1",
        ]

    def open_cluster(self, name: str) -> None:
        self.run("sacctmgr", "-i", "add", "cluster", name)

    def _start_database(self) -> None:
        data = self.directory / "db"
        asked = ["--no-defaults", f"--datadir={data}", "--user=root"]
        subprocess.run(
            ["mariadb-install-db", *asked, "--auth-root-authentication-method=normal"],
            check=True,
            capture_output=True,
        )
        first = self.directory / "first.sql"
        first.write_text(
            f"CREATE USER 'slurm'@'127.0.0.1' IDENTIFIED BY '{PASSWORD}';\n"
            "GRANT ALL ON *.* TO 'slurm'@'127.0.0.1';\n"
        )
        options = [
            f"--socket={self.directory / 'db.s'}",
            f"--pid-file={self.directory / 'db.pid'}",
            "--bind-address=127.0.0.1",
            f"--port={self._database_port}",
            f"--init-file={first}",
            "--innodb-buffer-pool-size=32M",
            "--skip-name-resolve",
        ]
        self.start("mariadbd", ["mariadbd", *asked, *options])
        self.wait_for(self._is_up)

    def _is_up(self) -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self._database_port)) == 0

    def _configure(self) -> None:
        here = self.directory
        books = here / "slurmdbd.conf"
        books.write_text(
            "\n".join(
                [
                    "DbdHost=localhost",
                    "DbdAddr=127.0.0.1",
                    f"DbdPort={self.port}",
                    "SlurmUser=root",
                    "AuthType=auth/munge",
                    f"AuthInfo=socket={here / 'munge.s'}",
                    f"LogFile={here / 'dbd.log'}",
                    f"PidFile={here / 'dbd.pid'}",
                    "StorageType=accounting_storage/mysql",
                    "StorageHost=127.0.0.1",
                    f"StoragePort={self._database_port}",
                    "StorageUser=slurm",
                    f"StoragePass={PASSWORD}",
                    "StorageLoc=books",
                    "",
                ]
            )
        )
        books.chmod(0o600)
        # for sacctmgr, before there is any cluster
        self.conf.write_text(
            "\n".join(["ClusterName=none", "SlurmctldHost=localhost", *self.lines(), ""])
        )
