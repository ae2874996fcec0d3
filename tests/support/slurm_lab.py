"""A Slurm of the test's own: munged, slurmctld and slurmd as processes of this machine.

Key, sockets, ports, spool and configuration lie in one directory, and nothing of the system's is
touched; several may run beside each other. It takes about a second to come up. Needs root, since
slurmd does, and Debian's `slurm-wlm` and `munge`; `unavailable()` says what is missing.

    with SlurmLab(directory, nodes=2, cores=4) as lab:
        lab.run("sinfo")

The fixture `slurm` is one for all tests of a session, in whatever process they run: the first that
needs it starts a process that holds it, and that one ends it when nobody uses it any more.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from slurm_books import SlurmBooks

PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "squeue", "scancel")
PATIENCE_S = 60.0
MEMORY_LINES = (
    "TaskPlugin=task/cgroup",
    "SelectTypeParameters=CR_Core_Memory",
    "DefMemPerCPU=100",
)
"""Slurm takes the last of two that say the same."""
CGROUPS = "CgroupPlugin=cgroup/v1\nConstrainRAMSpace=yes\nCgroupMountpoint=/sys/fs/cgroup\n"


def unavailable() -> str:
    """Why there can be no Slurm here; '' if there can."""
    if os.geteuid() != 0:
        return "slurmd needs root"
    missing = [name for name in PROGRAMS if shutil.which(name, path=search_path()) is None]
    return f"not installed: {', '.join(missing)}" if missing else ""


def search_path() -> str:
    return os.environ.get("PATH", "") + ":/usr/sbin:/sbin"


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


class Daemons:
    """Processes in the foreground with their files in one directory, `slurm.conf` among them."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.conf = directory / "slurm.conf"
        self.processes: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, name: str, argv: Sequence[str]) -> None:
        setpriv = shutil.which("setpriv", path=search_path())
        if setpriv is not None:  # a test that is killed leaves no daemons
            argv = [setpriv, "--pdeathsig", "KILL", *argv]
        with (self.directory / f"{name}.out").open("ab") as log:
            self.processes[name] = subprocess.Popen(
                argv, env=self.environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )

    def stop(self, name: str, number: int = signal.SIGTERM) -> None:
        """`slurmctld`, `munged`, or a node's slurmd."""
        process = self.processes.pop(name)
        process.send_signal(number)
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    @property
    def environment(self) -> dict[str, str]:
        own = {k: v for k, v in os.environ.items() if not k.startswith(("SLURM", "SBATCH"))}
        return own | {"SLURM_CONF": str(self.conf), "PATH": search_path()}

    def run(self, *argv: str) -> str:
        asked = subprocess.run(
            argv, env=self.environment, check=True, capture_output=True, text=True, timeout=60
        )
        return asked.stdout

    def wait_for(self, so: Callable[[], bool]) -> None:
        give_up_at = time.monotonic() + PATIENCE_S
        while True:
            with contextlib.suppress(subprocess.CalledProcessError):
                if so():
                    return
            for name, process in self.processes.items():
                assert process.poll() is None, f"{name} has ended: {self._said(name)}"
            assert time.monotonic() < give_up_at, f"not so after {PATIENCE_S:g} s"
            time.sleep(0.05)

    def _said(self, name: str) -> str:
        return (self.directory / f"{name}.out").read_text(errors="replace")[-2000:]


def start_munge(daemons: Daemons) -> None:
    """With a key and a socket of their own."""
    here = daemons.directory
    key = here / "munge.key"
    key.write_bytes(os.urandom(1024))
    key.chmod(0o400)
    places = {"socket": "munge.s", "pid-file": "munge.pid", "log-file": "munge.log"}
    options = [f"--{option}={here / file}" for option, file in places.items()]
    seed = f"--seed-file={here / 'munge.seed'}"
    # --force: a directory below /tmp can be written by others
    daemons.start("munged", ["munged", "-F", "--force", f"--key-file={key}", seed, *options])
    daemons.wait_for((here / "munge.s").exists)


class SlurmLab(Daemons):
    """`nodes` slurmds of `cores` each, all on this machine. Partitions: `main` (the default),
    `scavenge`, whose jobs are requeued when `main` needs the room, `doomed`, whose jobs are
    cancelled then, and `tiny`, with a limit of one minute and one core."""

    def __init__(
        self,
        directory: Path,
        *,
        nodes: int = 1,
        cores: int = 8,
        name: str = "lab",
        more: str = "",
        books: SlurmBooks | None = None,
        memory: bool = False,
    ) -> None:
        """`memory`: jobs are held to the memory that they ask for, by control groups."""
        super().__init__(directory)
        self._books = books
        self._memory = memory
        self.nodes = [f"n{number}" for number in range(nodes)]
        self.cores = cores
        self.name = name
        self._more = more

    # -- its life --------------------------------------------------------------------------------

    def __enter__(self) -> SlurmLab:
        try:
            self._configure()
            if self._books is None:
                start_munge(self)
            else:
                self._books.open_cluster(self.name)
            self.start_controller()
            for node in self.nodes:
                self.start_node(node)
            self.wait_for(lambda: self.run("sinfo", "-h", "-o", "%D", "-t", "idle").strip() != "")
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End all jobs and all processes."""
        if "slurmctld" in self.processes:
            with contextlib.suppress(subprocess.CalledProcessError):
                self.run("scancel", "--user=root")
            self._wait_until_empty()
        for name in list(self.processes):
            self.stop(name)
        for node in self.nodes if self._memory else ():
            with contextlib.suppress(OSError):
                Path(f"/sys/fs/cgroup/memory/slurm_{node}").rmdir()

    def _wait_until_empty(self) -> None:
        give_up_at = time.monotonic() + PATIENCE_S
        while time.monotonic() < give_up_at:
            try:
                if not self.run("squeue", "-h"):
                    return
            except subprocess.CalledProcessError:
                return
            time.sleep(0.1)

    def start_controller(self) -> None:
        self.start("slurmctld", ["slurmctld", "-D", "-f", str(self.conf)])

    def start_node(self, node: str) -> None:
        self.start(node, ["slurmd", "-D", "-N", node, "-f", str(self.conf)])

    def _configure(self) -> None:
        self.directory.mkdir(parents=True, exist_ok=True)
        self.directory.chmod(0o755)
        lines = [
            f"ClusterName={self.name}",
            f"SlurmctldHost={socket.gethostname()}(127.0.0.1)",
            f"SlurmctldPort={free_port()}",
            "SlurmUser=root",
            "SlurmdUser=root",
            "AuthType=auth/munge",
            *(self._books.lines() if self._books else self._own_lines()),
            "CredType=cred/munge",
            "ProctrackType=proctrack/pgid",
            "TaskPlugin=task/none",
            "MpiDefault=none",
            "SelectType=select/cons_tres",
            "SelectTypeParameters=CR_Core",
            "SlurmdParameters=config_overrides",
            "PreemptType=preempt/partition_prio",
            "PreemptMode=REQUEUE",
            "SchedulerType=sched/backfill",
            "SchedulerParameters=bf_interval=2,sched_min_interval=100000,bf_window=60",
            "KillWait=5",
            "MinJobAge=300",
            "InactiveLimit=0",
            "SlurmctldTimeout=300",
            "SlurmdTimeout=10",
            "ReturnToService=2",
            "JobRequeue=1",
            f"StateSaveLocation={self.directory / 'state'}",
            f"SlurmdSpoolDir={self.directory / 'spool.%n'}",
            f"SlurmctldPidFile={self.directory / 'ctld.pid'}",
            f"SlurmdPidFile={self.directory / 'd.%n.pid'}",
            f"SlurmctldLogFile={self.directory / 'ctld.log'}",
            f"SlurmdLogFile={self.directory / 'd.%n.log'}",
            "JobCompType=jobcomp/none",
            *(
                f"NodeName={node} NodeHostname={socket.gethostname()} NodeAddr=127.0.0.1 "
                f"Port={free_port()} CPUs={self.cores} RealMemory=4000 State=UNKNOWN"
                for node in self.nodes
            ),
            "PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE PriorityTier=10 State=UP",
            "PartitionName=scavenge Nodes=ALL MaxTime=INFINITE PriorityTier=1 State=UP",
            "PartitionName=doomed Nodes=ALL PriorityTier=1 PreemptMode=CANCEL State=UP",
            "PartitionName=tiny Nodes=ALL MaxTime=1 MaxCPUsPerNode=1 PriorityTier=10 State=UP",
            *(MEMORY_LINES if self._memory else ()),
            self._more,
        ]
        (self.directory / "state").mkdir(exist_ok=True)
        for node in self.nodes:
            (self.directory / f"spool.{node}").mkdir(exist_ok=True)
        self.conf.write_text("\n".join(lines) + "\n")
        (self.directory / "cgroup.conf").write_text(CGROUPS if self._memory else "")

    def _own_lines(self) -> list[str]:
        return [f"AuthInfo=socket={self.directory / 'munge.s'}"]

    # -- speaking with it ------------------------------------------------------------------------

    def submit(self, script: str, *options: str) -> str:
        """A job that is none of ours; its number."""
        argv = ["sbatch", "--parsable", "--output=/dev/null", *options, "--wrap", script]
        return self.run(*argv).strip()


def _of_all(place: Path) -> SlurmLab:
    return SlurmLab(place / "lab", nodes=2)


@contextlib.contextmanager
def shared_lab(place: Path) -> Iterator[SlurmLab]:
    """Use the Slurm of this place, which is started if there is none. A lock that is shared says
    that it is in use; the system gives it back for a process that dies."""
    place.mkdir(parents=True, exist_ok=True)
    with (place / "door").open("w") as door, (place / "in-use").open("w") as in_use:
        fcntl.flock(door, fcntl.LOCK_EX)
        fcntl.flock(in_use, fcntl.LOCK_SH)
        if not (place / "ready").exists():
            argv = [sys.executable, __file__, str(place)]
            said = os.open(place / "holder.out", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
            # it may outlive this process, for others: nobody here waits for its end
            actions = [(os.POSIX_SPAWN_DUP2, said, number) for number in (1, 2)]
            holder = os.posix_spawn(argv[0], argv, os.environ, file_actions=actions, setsid=True)
            os.close(said)
            while not (place / "ready").exists():
                ended, _ = os.waitpid(holder, os.WNOHANG)
                assert not ended, (place / "holder.out").read_text()[-2000:]
                time.sleep(0.05)
        fcntl.flock(door, fcntl.LOCK_UN)
        yield _of_all(place)


def hold(place: Path) -> None:
    """Run the Slurm of this place until nobody uses it. Who comes while it ends waits for that."""
    with (place / "in-use").open("w") as in_use, _of_all(place):
        (place / "ready").touch()
        fcntl.flock(in_use, fcntl.LOCK_EX)
        (place / "ready").unlink()


@pytest.fixture(scope="session")
def slurm_lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SlurmLab]:
    """One for all; a test that breaks it makes one of its own. Others' jobs may be there."""
    why = unavailable()
    if why:
        pytest.skip(f"no Slurm here: {why}")
    place = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        place = place.parent
    with shared_lab(place / "slurm") as lab:
        yield lab


@pytest.fixture
def slurm(slurm_lab: SlurmLab, monkeypatch: pytest.MonkeyPatch) -> SlurmLab:
    """The session's Slurm, as this process and its children find it."""
    monkeypatch.setenv("SLURM_CONF", str(slurm_lab.conf))
    return slurm_lab


if __name__ == "__main__":
    hold(Path(sys.argv[1]))
