"""What runs at a site: the first process of every job, and the answers about jobs.

This file is brought to sites as it is, and run there by whatever Python they have: it uses the
standard library only, and nothing newer than Python 3.9.

The spool is a directory at the site: `TAG/work.json` says what was submitted, `TAG/state.N` what
became of its job N (replaced whole, each time), `TAG/out.N` what it printed, `TAG/cancel.N` that
somebody ended it, `TAG/void` that its submitter has given it up: what has not begun never will. (A
job writes its state before it looks for that, and who writes it looks for states afterwards.)

    at_site.py job SPOOL TAG N      the first process of a job; its exit code is the job's
    at_site.py call                 a request as JSON on stdin, the answer as JSON on stdout
    at_site.py put TARGET SIZE MODE a file from stdin, whole or not at all
    at_site.py get SOURCE           a file to stdout
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

GRACE_S = 10.0
"""Between SIGTERM and SIGKILL."""
BEGINS_WITHIN_S = 60.0
"""A job that was submitted and has not said a word for so long was never started."""
VOID = "void"
SLOT_LOOK_S = 0.2
SIGN_OF_LIFE_S = 30.0
"""A job that is there touches its state so often."""
State = dict[str, Any]


# -- the spool ---------------------------------------------------------------------------------


def write_whole(path: str, data: bytes, mode: int = 0o600) -> None:
    new = f"{path}.{os.getpid()}.new"
    with open(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode), "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    os.replace(new, path)


def read_json(path: str) -> State | None:
    try:
        with open(path, "rb") as file:
            found = json.loads(file.read().decode())
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) else None


def state_path(spool: str, tag: str, index: int) -> str:
    return os.path.join(spool, tag, f"state.{index}")


def prepare(spool: str, work: State) -> None:
    """Write down what is submitted. Raises FileExistsError if the tag was used before."""
    directory = os.path.join(spool, work["tag"])
    os.makedirs(spool, mode=0o700, exist_ok=True)
    try:
        os.mkdir(directory, 0o700)
    except FileExistsError:
        if any(name.startswith(("state.", "submitted")) for name in os.listdir(directory)):
            raise  # else a crash came before anything was started
    write_whole(os.path.join(directory, "work.json"), json.dumps(work).encode())


def born(pid: int) -> str:
    """When a process began, as a word that no later process of that number shares; '' if it is
    not there."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            fields = file.read().rpartition(b") ")[2].split()
        with open("/proc/sys/kernel/random/boot_id") as boot:
            return "" if fields[0] == b"Z" else f"{fields[19].decode()}/{boot.read().strip()}"
    except OSError:
        pass
    if os.path.isdir("/proc/self"):
        return ""
    asked = subprocess.run(
        ["ps", "-o", "lstart=", "-p", str(pid)], check=False, stdout=subprocess.PIPE
    )
    return asked.stdout.decode().strip()


def is_alive(state: State) -> bool:
    return bool(state.get("born")) and born(int(state["pid"])) == state["born"]


# -- a job -------------------------------------------------------------------------------------


class SiteJob:
    """The first process of a job: waits for room, starts the work, passes signals on to it, holds
    it to its limit, and writes down what becomes of it."""

    def __init__(self, spool: str, tag: str, index: int) -> None:
        self.directory = os.path.join(spool, tag)
        self.path = state_path(spool, tag, index)
        self.cancel = os.path.join(self.directory, f"cancel.{index}")
        self.void = os.path.join(self.directory, VOID)
        self.spool, self.tag, self.index = spool, tag, index
        work = read_json(os.path.join(self.directory, "work.json"))
        if work is None:
            raise SystemExit(f"{self.directory}: nothing was submitted under this tag")
        self.work: State = work
        before = read_json(self.path) or {}
        self.state: State = {
            "word": "queued",
            "pid": os.getpid(),
            "born": born(os.getpid()),
            "node": socket.gethostname(),
            "submitted_at": before.get("submitted_at", time.time()),
            "starts": before.get("starts", 0),
        }
        self.child: subprocess.Popen[bytes] | None = None
        self.ends: list[list[float]] = []
        self.told = self.late = self.given_up = False

    def run(self) -> int:
        self.say()
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1, signal.SIGUSR2):
            signal.signal(number, self.passed_on)
        signal.signal(signal.SIGALRM, lambda number, frame: self.at_time())
        with self.room():
            code = self.work_done()
        self.finish(code)
        return code if code >= 0 else 128 - code

    def work_done(self) -> int:
        self.given_up = os.path.exists(self.void)
        if self.given_up:
            self.state["reason"] = "its submitter had given it up before it began"
            return -signal.SIGTERM
        if self.told or os.path.exists(self.cancel):
            self.told = True
            return -signal.SIGTERM
        directory = self.work.get("directory") or self.directory
        environment = dict(os.environ, **self.work.get("environment", {}))
        environment["SURELINE_INDEX"] = str(self.index)
        self.state.update(word="running", started_at=time.time(), starts=self.state["starts"] + 1)
        self.say()
        try:
            os.makedirs(directory, exist_ok=True)
            self.child = subprocess.Popen(
                self.work["argv"], cwd=directory, env=environment, stdin=subprocess.DEVNULL
            )
        except OSError as error:
            print(f"cannot start {self.work['argv'][0]}: {error}", file=sys.stderr)
            return 127
        self.set_limits()
        return self.child.wait()

    def set_limits(self) -> None:
        if self.told:  # a signal came while the work was being started
            self.signal_child(signal.SIGTERM)
        limit_s, warn_s = self.work.get("limit_s"), self.work.get("warn_s") or 0.0
        if limit_s and self.work.get("enforced"):
            if warn_s:
                self.ends.append([time.monotonic() + limit_s - warn_s, signal.SIGUSR1])
            self.ends.append([time.monotonic() + limit_s, signal.SIGTERM])
        self.at_time()

    def at_time(self) -> None:
        """Send what is due, and have the clock wake us for the next."""
        now = time.monotonic()
        for end in [end for end in self.ends if end[0] <= now]:
            self.ends.remove(end)
            if end[1] == signal.SIGTERM:
                self.late = True
                self.ends.append([now + GRACE_S, signal.SIGKILL])
            self.signal_child(int(end[1]))
        with contextlib.suppress(OSError):
            os.utime(self.path)
        next_s = min([SIGN_OF_LIFE_S, *(end[0] - now for end in self.ends)])
        signal.setitimer(signal.ITIMER_REAL, max(0.001, next_s))

    def passed_on(self, number: int, frame: Any) -> None:
        if number in (signal.SIGTERM, signal.SIGINT) and not self.told:
            self.told = True
            self.ends.append([time.monotonic() + GRACE_S, signal.SIGKILL])
            self.at_time()
        self.signal_child(number)

    def signal_child(self, number: int) -> None:
        if self.child is not None:
            with contextlib.suppress(ProcessLookupError):
                self.child.send_signal(number)

    def finish(self, code: int) -> None:
        word = "ended" if code == 0 else "failed"
        if self.late:
            word = "timeout"
        elif self.given_up:
            word = "lost"
        elif self.told:
            word = "cancelled"
        self.state.update(word=word, exit_code=code, ended_at=time.time())
        self.say()

    def say(self) -> None:
        write_whole(self.path, json.dumps(self.state).encode())

    @contextlib.contextmanager
    def room(self) -> Iterator[None]:
        """Hold as many of the site's slots as the job has cores, once they are free."""
        slots = self.work.get("slots")
        if not slots:
            yield
            return
        held: list[int] = []
        try:
            while not self.told and not os.path.exists(self.cancel):
                held = taken_slots(os.path.join(self.spool, ".slots"), slots, self.work["cores"])
                if held:
                    break
                time.sleep(SLOT_LOOK_S)
            yield
        finally:
            for descriptor in held:
                os.close(descriptor)


def taken_slots(directory: str, slots: int, wanted: int) -> list[int]:
    """Locks on so many slots, all or none."""
    import fcntl

    os.makedirs(directory, mode=0o700, exist_ok=True)
    held: list[int] = []
    for number in range(slots):
        descriptor = os.open(os.path.join(directory, str(number)), os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(descriptor)
            continue
        held.append(descriptor)
        if len(held) == min(wanted, slots):
            return held
    for descriptor in held:
        os.close(descriptor)
    return []


# -- answers -----------------------------------------------------------------------------------


def submit(spool: str, work: State) -> list[int]:
    """Start the jobs as processes that need nobody; their pids."""
    prepare(spool, work)
    pids = []
    for index in range(work["count"]):
        out = os.path.join(spool, work["tag"], f"out.{index}")
        argv = [sys.executable, os.path.abspath(__file__), "job", spool, work["tag"], str(index)]
        with open(out, "ab") as printed:
            started = subprocess.Popen(
                argv,
                stdin=subprocess.DEVNULL,
                stdout=printed,
                stderr=printed,
                start_new_session=True,
            )
        pids.append(started.pid)
        _children.append(started)
    return pids


_children: list[subprocess.Popen[bytes]] = []
"""What this process has started: reaped when it looks, that none stays as a zombie."""


def look(spool: str, jobs: list[str]) -> dict[str, State]:
    _children[:] = [child for child in _children if child.poll() is None]
    found = {}
    for job in jobs:
        tag, _, index = job.rpartition("/")
        state = looked(spool, tag, int(index))
        if state is not None:
            found[job] = state
    return found


def looked(spool: str, tag: str, index: int) -> State | None:
    work = os.path.join(spool, tag, "work.json")
    state = read_json(state_path(spool, tag, index))
    if state is None:
        try:
            submitted_at = os.stat(work).st_mtime
        except OSError:
            return None
        if time.time() - submitted_at < BEGINS_WITHIN_S:
            return {"word": "queued", "submitted_at": submitted_at}
        return {"word": "lost", "reason": "it was never started", "submitted_at": submitted_at}
    if "ended_at" in state or is_alive(state):
        return state
    state = read_json(state_path(spool, tag, index)) or state  # it may have ended meanwhile
    if "ended_at" in state:
        return state
    if os.path.exists(os.path.join(spool, tag, f"cancel.{index}")):
        return dict(state, word="cancelled", reason="it was killed")
    return dict(state, word="lost", reason="its process is gone: killed, or the machine restarted")


def find(spool: str, tag: str) -> dict[str, str]:
    try:
        tags = [tag] if tag else sorted(os.listdir(spool))
    except OSError:
        return {}
    found = {}
    for one in tags:
        work = read_json(os.path.join(spool, one, "work.json")) or {"count": 0}
        for index in range(work["count"]):
            out = os.path.join(spool, one, f"out.{index}")  # there before its process is
            if os.path.exists(out) or os.path.exists(state_path(spool, one, index)):
                found[f"{one}/{index}"] = one
    return found


def cancel(spool: str, jobs: list[str]) -> None:
    for job in jobs:
        tag, _, index = job.rpartition("/")
        if not os.path.isdir(os.path.join(spool, tag)):
            continue
        state = looked(spool, tag, int(index))
        if state is not None and ("ended_at" in state or state["word"] == "lost"):
            continue
        write_whole(os.path.join(spool, tag, f"cancel.{index}"), b"")
        if state is not None and is_alive(state):
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(state["pid"]), signal.SIGTERM)


def output(spool: str, job: str, limit_bytes: int) -> bytes:
    tag, _, index = job.rpartition("/")
    try:
        with open(os.path.join(spool, tag, f"out.{index}"), "rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - limit_bytes))
            return file.read(limit_bytes)
    except OSError:
        return b""


def forget(spool: str, tag: str) -> None:
    shutil.rmtree(os.path.join(spool, tag), ignore_errors=True)


def _called(request: State) -> Any:
    spool = os.path.expanduser(request["spool"])
    what = request["call"]
    if what == "submit":
        return submit(spool, request["work"])
    if what == "look":
        return look(spool, request["jobs"])
    if what == "find":
        return find(spool, request["tag"])
    if what == "cancel":
        return cancel(spool, request["jobs"])
    if what == "output":
        return output(spool, request["job"], request["limit_bytes"]).decode("latin-1")
    if what == "forget":
        return forget(spool, request["tag"])
    raise ValueError(f"no such call: {what}")


def _main(argv: list[str]) -> int:
    if argv[0] == "job":
        job = SiteJob(argv[1], argv[2], int(argv[3]))
        code = job.run()
        if job.work.get("enforced"):
            os.killpg(0, signal.SIGKILL)  # what the work has left behind, and ourselves with it
        return code
    if argv[0] == "call":
        try:
            answer = {"answer": _called(json.loads(sys.stdin.buffer.read().decode()))}
        except (OSError, ValueError) as error:
            answer = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(answer))
        return 0
    path = os.path.expanduser(argv[1])
    if argv[0] == "get":
        with open(path, "rb") as file:
            shutil.copyfileobj(file, sys.stdout.buffer)
        return 0
    data = sys.stdin.buffer.read(int(argv[2]) + 1)
    if len(data) != int(argv[2]):
        print(f"{len(data)} bytes came of {argv[2]}", file=sys.stderr)
        return 1
    os.makedirs(os.path.dirname(os.path.abspath(path)), mode=0o700, exist_ok=True)
    write_whole(path, data, int(argv[3], 8))
    return 0


if __name__ == "__main__":
    sys.exit(_main(sys.argv[1:]))
