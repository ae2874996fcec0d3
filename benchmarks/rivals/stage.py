"""One contestant in one workload: run it, read the clocks of its whole process tree, end it.

CPU. This process is a subreaper: whatever a contestant leaves behind (daemons too) becomes our
child, so the tree below us is always complete. At the marks `begin` and `end`, the CPU time of the
tree is the sum, over all living processes in it, of their own time and that of the children they
have waited for, plus what we ourselves have reaped. Nothing is estimated; the limits are the
kernel's clock (10 ms a process) and children of a process that ignores SIGCHLD, whose time the
kernel drops.

Memory. The resident sets of the tree are summed at both marks and every SAMPLE_S in between; the
peak is the largest sum. Pages shared by several processes count once for each of them, and a
peak shorter than the interval may be missed.

Noise. What the whole machine used between the marks, less what the tree used, is what others
used: the number of cores they kept busy is recorded with every sample.

Network. A contestant that is played `apart` has a network namespace of its own, whose loopback
nobody else uses: what went over it between the marks is what it moved.
"""

from __future__ import annotations

import ctypes
import json
import os
import resource
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
SAMPLE_S = 0.2
LIMIT_S = 420.0
"""For one contestant in one workload, from its start to its result."""
GRACE_S = 20.0
"""For a contestant to close its engine after its result; what is left then is killed."""
REASON_CHARS_MAX = 300
TICKS_PER_S = os.sysconf("SC_CLK_TCK")
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
PR_SET_CHILD_SUBREAPER = 36
APART = ("unshare", "--net", "sh", "-c", 'ip link set lo up && exec "$@"', "sh")
REAP_ROUNDS_MAX = 1000


@dataclass
class Sample:
    """What one contestant showed in one workload, once; or why it showed nothing."""

    contestant: str
    workload: str
    repeat: int
    reason: str = ""
    figures: dict[str, float] = field(default_factory=dict)


@dataclass
class Reading:
    """The clocks of the tree and of the machine, at one moment."""

    at_s: float
    tree_cpu_s: float
    machine_cpu_s: float
    resident_bytes: int
    moved_bytes: int
    """Over the loopback that the contestant sees."""


def become_subreaper() -> None:
    """Orphans below this process become its children, not init's."""
    if ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "cannot become a subreaper; Linux is needed")


@dataclass(frozen=True)
class Setting:
    """What is the same for all contestants of a contest."""

    scale: float
    workers: int = 2
    apart: bool = False
    limit_s: float = LIMIT_S


def play(contestant: str, python: Path, workload: str, setting: Setting, repeat: int) -> Sample:
    """Run it, in a fresh process and a fresh directory. Nothing of it is left when this returns."""
    sample = Sample(contestant, workload, repeat)
    where = tempfile.mkdtemp(prefix="sl-")  # short: sockets below it have short names at most
    try:
        _Play(sample, python, setting, where).run()
    except _LostError as error:
        sample.reason = str(error)
        sample.figures = {}
    finally:
        _end_all()
        shutil.rmtree(where, ignore_errors=True)
    return sample


class _LostError(Exception):
    """The contestant did not deliver."""


class _Play:
    def __init__(self, sample: Sample, python: Path, setting: Setting, where: str) -> None:
        self._sample = sample
        self._setting = setting
        self._marks: dict[str, Reading] = {}
        self._peak_bytes = 0
        self._said: dict[str, Any] = {}
        self._buffer = b""
        self._errors_path = os.path.join(where, "errors")
        report_out, report_in = os.pipe()
        go_out, go_in = os.pipe()
        told = [sample.contestant, sample.workload, str(setting.scale)]
        command = [str(python), str(HERE / "drive.py"), *told, str(report_in), str(go_out)]
        environment = {**_environment(python, where), "CONTEST_WORKERS": str(setting.workers)}
        with open(self._errors_path, "wb") as errors:
            self._began = time.monotonic()
            self._process = subprocess.Popen(
                [*(APART if setting.apart else ()), *command],
                cwd=where,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=errors,
                pass_fds=(report_in, go_out),
            )
        os.close(report_in)
        os.close(go_out)
        self._report_fd, self._go_fd = report_out, go_in

    def run(self) -> None:
        try:
            self._listen(self._began + self._setting.limit_s)
            self._sample.figures = self._figures()
            self._wait(time.monotonic() + GRACE_S)
        finally:
            os.close(self._report_fd)
            os.close(self._go_fd)

    def _listen(self, until: float) -> None:
        """Hear the contestant until it has said its result."""
        while not self._said:
            if time.monotonic() > until:
                limit_s = self._setting.limit_s
                raise _LostError(f"no result within {limit_s:.0f} s; {self._errors()}")
            if select.select([self._report_fd], [], [], SAMPLE_S)[0]:
                data = os.read(self._report_fd, 65536)
                if not data:
                    raise _LostError(self._errors())
                self._hear(data)
            elif "begin" in self._marks and "end" not in self._marks:
                self._peak_bytes = max(self._peak_bytes, resident_bytes(tree()))
            self._note_ends()

    def _hear(self, data: bytes) -> None:
        *lines, self._buffer = (self._buffer + data).split(b"\n")
        for line in lines:
            told = json.loads(line)
            if "mark" in told:
                reading = read_clocks(self._process.pid)
                self._marks[told["mark"]] = reading
                self._peak_bytes = max(self._peak_bytes, reading.resident_bytes)
                os.write(self._go_fd, b"g")
            else:
                self._said = told

    def _figures(self) -> dict[str, float]:
        said = self._said
        if "first_at" in said:
            return {
                "cold_s": said["first_at"] - self._began,
                "peak_bytes": self._peak_bytes,
            }
        begin, end = self._marks["begin"], self._marks["end"]
        cpu_s = end.tree_cpu_s - begin.tree_cpu_s
        others_s = end.machine_cpu_s - begin.machine_cpu_s - cpu_s
        moved_bytes = end.moved_bytes - begin.moved_bytes
        return {
            **said,
            "per_s": said["tasks"] / said.get("clock_s", said["elapsed_s"]),
            "cpu_ms_per_task": cpu_s / said["tasks"] * 1e3,
            "peak_bytes": self._peak_bytes,
            "others_cores": max(0.0, others_s / (end.at_s - begin.at_s)),
            **({"moved_bytes": moved_bytes} if self._setting.apart else {}),
        }

    def _wait(self, until: float) -> None:
        while self._process.returncode is None and time.monotonic() < until:
            self._note_ends()
            time.sleep(0.02)

    def _note_ends(self) -> None:
        if self._process.pid in _reap():
            self._process.returncode = 0  # whatever it was: the result line alone counts

    def _errors(self) -> str:
        """The last line of what the contestant complained of, or how it ended."""
        with open(self._errors_path, errors="replace") as file:
            lines = [line.strip() for line in file.read()[-20_000:].splitlines() if line.strip()]
        return lines[-1][:REASON_CHARS_MAX] if lines else "it ended without a word"


def _environment(python: Path, where: str) -> dict[str, str]:
    """The caller's environment, with the contestant's programs first and its own directories."""
    path = f"{python.parent}{os.pathsep}{os.environ.get('PATH', os.defpath)}"
    return {**os.environ, "PATH": path, "PYTHONPATH": str(HERE), "TMPDIR": where, "HOME": where}


# -- the process tree --------------------------------------------------------------------------


def tree() -> list[int]:
    """All descendants of this process, zombies too."""
    found: list[int] = []
    frontier = [os.getpid()]
    while frontier:
        pid = frontier.pop()
        try:
            tasks = os.listdir(f"/proc/{pid}/task")
        except OSError:
            continue  # it has gone
        for task in tasks:
            children = [int(text) for text in _read(f"/proc/{pid}/task/{task}/children").split()]
            found.extend(children)
            frontier.extend(children)
    return found


def resident_bytes(pids: list[int]) -> int:
    total_pages = 0
    for pid in pids:
        fields = _read(f"/proc/{pid}/statm").split()
        total_pages += int(fields[1]) if fields else 0
    return total_pages * PAGE_BYTES


def read_clocks(contestant: int) -> Reading:
    pids = tree()
    tree_cpu_s = _cpu_s(resource.getrusage(resource.RUSAGE_CHILDREN))
    for pid in pids:
        after_name = _read(f"/proc/{pid}/stat").rpartition(")")[2].split()
        if after_name:
            # utime, stime, cutime, cstime: fields 14 to 17; the text here begins with field 3.
            tree_cpu_s += sum(map(int, after_name[11:15])) / TICKS_PER_S
    moved_bytes = loopback_bytes(contestant)
    return Reading(time.monotonic(), tree_cpu_s, machine_cpu_s(), resident_bytes(pids), moved_bytes)


def loopback_bytes(pid: int) -> int:
    """What was received over the loopback of the network that this process sees."""
    for line in _read(f"/proc/{pid}/net/dev").splitlines():
        name, _, counts = line.partition(":")
        if name.strip() == "lo":
            return int(counts.split()[0])
    return 0


def machine_cpu_s() -> float:
    """What all processors together have worked since the machine started."""
    user, nice, system, _idle, _iowait, irq, softirq = map(
        int, _read("/proc/stat").splitlines()[0].split()[1:8]
    )
    return (user + nice + system + irq + softirq) / TICKS_PER_S


def _cpu_s(used: resource.struct_rusage) -> float:
    return used.ru_utime + used.ru_stime


def _read(path: str) -> str:
    try:
        with open(path) as file:
            return file.read()
    except OSError:
        return ""  # the process has gone


def _reap() -> set[int]:
    """Wait for children that have ended: the contestant, and orphans that became ours."""
    ended = set()
    for _ in range(REAP_ROUNDS_MAX):
        try:
            pid, _status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            break
        if pid == 0:
            break
        ended.add(pid)
    return ended


def _end_all() -> None:
    """Kill and reap whatever is left below this process."""
    for _ in range(REAP_ROUNDS_MAX):
        for pid in tree():
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass  # it has just ended
        _reap()
        if not tree():
            return
        time.sleep(0.01)
    print("some processes of a contestant could not be ended", file=sys.stderr)
