"""Python calls of others, as a slot sees them: an interpreter, bound as every command is, that
gets its order over a line and gives its word there; a long one is a file in `CALL_DIRECTORY`.

A call of the user's own runs in the slot itself, which may do what the user may. One that came from
elsewhere must not: code in the slot could write to the store, which others trust. Its interpreter
is kept for the next call of the same run, and stands still until then.
"""

from __future__ import annotations

import errno
import os
import signal
import socket
import stat
import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Literal

import msgspec

from sureline.peer import orphans
from sureline.peer.frames import MAX_FUNCTIONS
from sureline.peer.jobs import (
    CALL_DIRECTORY,
    MODULES,
    PYTHON_ENVIRONMENT,
    CommandJob,
    JobEnded,
    LoneCall,
)
from sureline.workflow.files import result_path

if TYPE_CHECKING:
    from sureline.peer.slot_sandbox import Sandbox

ORDER = f"{CALL_DIRECTORY}/order"
WORD = f"{CALL_DIRECTORY}/word"
RESULT = f"{CALL_DIRECTORY}/result"
WORD_BYTES_MAX = 4 << 20
LINE_BYTES_MAX = 64 << 10
"""What goes over the line at once: it holds that much, so nobody waits for the other to read."""
MOVED_BYTES = 4 << 20
"""To move a result of this length into the store pays for another start of the interpreter; a
shorter one is copied, because the interpreter may still have it open."""
AGAIN, SPENT = b"a", b"s"
"""What an interpreter says after a call: whether it may make another. Its word follows, or nothing
if that is a file."""
ORDER_IS_A_FILE = msgspec.msgpack.encode(None)
STANDS_FOR_FILE, STANDS_FOR_DIRECTORY = 0o200, 0o300
"""The modes of what has the name of a user's file that did not come: to be replaced, not read."""
_BOOT = """
import sys
line, own, sys.path[:] = int(sys.argv[1]), sys.argv[2], sys.argv[3:] or sys.path
if own:
    from importlib.util import module_from_spec, spec_from_file_location
    first = f"{own}/__init__.py"
    spec = spec_from_file_location("sureline", first, submodule_search_locations=[own])
    sys.modules["sureline"] = module_from_spec(spec)
    spec.loader.exec_module(sys.modules["sureline"])
from sureline.peer.lone_call import main
main(line)
"""
"""This program is loaded from where it lies: a task may not look into the directory around it."""
_OWN = os.path.dirname(os.path.dirname(__file__))


class Order(msgspec.Struct, frozen=True, array_like=True):
    """What an interpreter is asked for. `env`: what is this call's own of the environment."""

    call: LoneCall
    inputs: list[str]
    env: dict[str, str]


class Word(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a call's interpreter leaves behind. `has_file`: the result lies in RESULT."""

    outcome: Literal["succeeded", "failed", "unfit"]
    reason: str = ""
    result: bytes | None = None
    has_file: bool = False
    error: bytes | None = None
    trace: str = ""
    unkept: str = ""


_decode = msgspec.msgpack.Decoder(Word).decode


def _environment(job: CommandJob) -> str:
    return job.env.get(PYTHON_ENVIRONMENT, "")


Start = Callable[[list[str]], int]
"""Starts a process with these arguments; its number."""


class Interpreter:
    """One that makes the calls of one run, in one directory; or none."""

    def __init__(self) -> None:
        self.pid = 0
        self.line: socket.socket | None = None
        self._for: tuple[str, str, dict[str, str]] = ("", "", {})
        self._modules: dict[str, str] = {}
        self.loaded: set[str] = set()
        """The code that it has, by digest: of functions whose calls went well."""
        self._answer = b""
        self._cpu_s = 0.0
        self._told: dict[str, int] = {}
        """What the kernel tells of it, open: it is asked after each call."""

    def ask(self, job: CommandJob, here: str, env: dict[str, str], start: Start) -> int:
        """Have a call made in the directory `here`; the number of the process that does. `env`: the
        environment that is this call's own. Raises OSError if none can be started."""
        assert job.call is not None
        order = msgspec.msgpack.encode(Order(job.call, [file.path for file in job.inputs], env))
        if len(order) > LINE_BYTES_MAX:
            os.makedirs(CALL_DIRECTORY, exist_ok=True)
            with open(ORDER, "xb") as file:
                file.write(order)
            order = ORDER_IS_A_FILE
        if not self.pid:
            self._start(job, start)
            self._for, self._modules, self._cpu_s = (run_of(job), here, job.env), {}, 0.0
        assert self._for[1] == here
        self._modules |= _modules_of(job)
        self._answer = b""
        assert self.line is not None
        try:
            self.line.send(order)
        except OSError:  # it is dead, or has not read what it was sent: its end is seen
            os.kill(self.pid, signal.SIGKILL)
        os.kill(self.pid, signal.SIGCONT)
        return self.pid

    def _start(self, job: CommandJob, start: Start) -> None:
        self.line, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.line.setblocking(False)
        with theirs:
            theirs.set_inheritable(True)
            environment = _environment(job)
            program = f"{environment}/bin/python" if environment else sys.executable
            paths = [] if environment else [_OWN, *(path for path in sys.path if path)]
            boot = [program, "-P", "-c", _BOOT, str(theirs.fileno()), *(paths or [""])]
            try:
                self.pid = start(boot)
            except OSError:
                self.line.close()
                self.line = None
                raise

    def has_answered(self) -> bool:
        """Whether the call is over. It stands still then."""
        if not self._answer and self.line is not None:
            try:
                self._answer = self.line.recv(LINE_BYTES_MAX)
                if self._answer:
                    os.kill(self.pid, signal.SIGSTOP)
                    os.waitid(os.P_PID, self.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)
                else:  # it is dead, or will never answer
                    os.kill(self.pid, signal.SIGKILL)
            except BlockingIOError:
                pass
            except ConnectionError:
                os.kill(self.pid, signal.SIGKILL)
        return bool(self._answer)

    def spent_s(self) -> float:
        """The time of the processor that it has used for this call, with its children."""
        ticks = sum(map(int, self.read_status("stat").rpartition(b")")[2].split()[13:15]))
        before_s, self._cpu_s = self._cpu_s, _cpu_s(self.pid) + ticks / _TICKS_PER_S
        return max(0.0, self._cpu_s - before_s)

    def read_status(self, name: str) -> bytes:
        """What the kernel tells of it; nothing if it has ended."""
        try:
            if name not in self._told:
                path = f"/proc/{self.pid}/{name}"
                self._told[name] = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            return os.pread(self._told[name], STATUS_BYTES_MAX, 0)
        except OSError:
            return b""

    def is_alone(self) -> bool:
        """Whether it stands still, and has no children. It can make none while it does."""
        if not self._answer:
            return False
        try:
            threads = os.stat(f"/proc/{self.pid}/task").st_nlink - _LINKS_OF_NO_THREAD
        except OSError:
            return False
        if threads == 1:
            return not self.read_status(f"task/{self.pid}/children")
        return not orphans.children_of(self.pid)

    def is_good(self) -> bool:
        """Whether it may make another call."""
        return self._answer[:1] == AGAIN

    def word(self) -> bytes:
        """Of how the call went. Raises ValueError if it has given none, and OSError."""
        if not self._answer:
            raise ValueError("it ended before the call did")
        return self._answer[1:] or _left_behind(WORD)

    def end_unless_for(self, job: CommandJob) -> None:
        """Before a job begins: nothing of another run is to be there, nor an interpreter that
        cannot make its call."""
        if self.pid and os.waitpid(self.pid, os.WNOHANG)[0]:
            self.forget()  # it was killed while it stood still
        if self.pid and (run_of(job) != self._for[0] or (job.call and not self._suits(job))):
            self.end()

    def _suits(self, job: CommandJob) -> bool:
        modules = _modules_of(job).items()
        return job.env == self._for[2] and all(self._modules.get(m, d) == d for m, d in modules)

    def end(self) -> None:
        """Kill it, if there is one."""
        if self.pid:
            orphans.kill_group(self.pid)
            try:
                os.waitpid(self.pid, 0)
            except ChildProcessError:
                pass  # it was dead, and has been waited for
            self.forget()

    def forget(self) -> None:
        """It has ended."""
        self.pid = 0
        self.loaded = set()
        for fd in self._told.values():
            os.close(fd)
        self._told = {}
        if self.line is not None:
            self.line.close()
            self.line = None


def run_of(job: CommandJob) -> str:
    """The run that a job belongs to, on a machine that serves several."""
    return job.label.rpartition(".")[0].rpartition(".")[0]


def _modules_of(job: CommandJob) -> dict[str, str]:
    return {file.path: file.digest for file in job.inputs if file.path.startswith(MODULES)}


def _cpu_s(pid: int) -> float:
    """A process's own time, from the kernel's clock."""
    try:
        return time.clock_gettime((~pid << 3) | _OF_PROCESS)
    except OSError:
        return 0.0


_OF_PROCESS = 2
"""The clock of a process's time, in the number of a clock."""
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_LINKS_OF_NO_THREAD = 2
STATUS_BYTES_MAX = 1 << 14


def told(
    job: CommandJob,
    ended: JobEnded,
    sandbox: Sandbox,
    interpreter: Interpreter,
    alone: bool,
    before_taking: Callable[[], None],
) -> JobEnded:
    """What a call that is over left behind. It may be anything: it is checked. `alone`: no process
    of the call is left, but for its interpreter."""
    try:
        word = _decode(interpreter.word())
        assert job.call is not None
        if word.result is not None and len(word.result) > job.call.inline_bytes:
            raise ValueError("its result is longer than agreed")
    except (OSError, ValueError, msgspec.MsgspecError) as error:
        reason = f"its Python left no word of how it went ({error})"
        return msgspec.structs.replace(ended, outcome="failed", reason=reason)
    if word.outcome == "unfit":
        return _unfit(ended, word.reason)
    if word.outcome == "succeeded" and interpreter.pid and len(interpreter.loaded) < MAX_FUNCTIONS:
        interpreter.loaded.add(job.call.function)
    if word.outcome == "succeeded" and word.has_file:
        before_taking()
        if os.lstat(RESULT).st_size >= MOVED_BYTES:
            interpreter.end()
        move = alone and not interpreter.pid
        taken = sandbox.take(RESULT, result_path(job.task), move=move)
        ended = msgspec.structs.replace(ended, outputs=(taken,))
    return msgspec.structs.replace(
        ended,
        outcome=word.outcome,
        reason=word.reason,
        exit_code=None,
        result=word.result,
        error=word.error,
        trace=word.trace,
        unkept=word.unkept,
    )


def _left_behind(path: str) -> bytes:
    """A file that the call wrote. It may be a link to what only this process can read; a pipe."""
    top, _, name = path.partition("/")
    directory = os.open(top, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        with open(os.open(name, flags, dir_fd=directory), "rb") as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise ValueError("it is no file")
            return file.read(WORD_BYTES_MAX)
    finally:
        os.close(directory)


def no_python(job: CommandJob, error: OSError) -> JobEnded:
    """The interpreter could not be started."""
    where = _environment(job) or sys.prefix
    if error.errno not in (errno.ENOENT, errno.EACCES, errno.ENOEXEC):
        return JobEnded("failed", reason=f"cannot start Python: {error.strerror}", fault="machine")
    return _unfit(JobEnded("failed"), f"has no Python environment {where} that tasks may use")


def unfit_if_alien(job: CommandJob, ended: JobEnded) -> JobEnded:
    """An environment of the user's choice that cannot even begin with the call does not fit."""
    if _environment(job) and "sureline" in ended.stderr:
        told = ended.stderr.strip().rsplit("\n", 1)[-1]
        return _unfit(ended, f"its Python environment {_environment(job)} lacks Sureline: {told}")
    return ended


def _unfit(ended: JobEnded, reason: str) -> JobEnded:
    return msgspec.structs.replace(
        ended, outcome="failed", fault="unfit", exit_code=None, reason=reason
    )
