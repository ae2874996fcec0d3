"""Running one command in a slot: start it, wait for it, stop it in time, and account for it."""

from __future__ import annotations

import errno
import os
import select
import signal
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Literal

import msgspec

from sureline.peer import orphans, slot_lone, task_progress
from sureline.peer.commands import SCRIPT, find_program, shell_argv, start_of
from sureline.peer.health import trouble_at
from sureline.peer.jobs import CommandJob, JobEnded, JobProgressed, JobStarted
from sureline.peer.slot_capture import RSS_UNIT_BYTES, Capture
from sureline.peer.slot_channel import Channel, Lifeline
from sureline.peer.slot_lone import Interpreter
from sureline.peer.slot_sandbox import Sandbox
from sureline.peer.store import BlobStore, StoreError

if TYPE_CHECKING:
    from sureline.peer.slot_confined import Confined

_ANNOUNCE_AFTER_S = 0.005
"""A job that ends sooner is announced together with its end: one message, not two."""
_RESET = tuple(signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP})
"""The job starts with the defaults, whatever this process or its caller ignores. (All are named:
of a signal that is not, the C library asks first how it stands.)"""

_KEPT_S = 5.0
"""For so long an interpreter waits for another call."""

How = Literal["ended", "timeout", "cancelled", "excess"]


class SlotPlace(msgspec.Struct, frozen=True):
    """Where a slot works, and for whom."""

    root: str
    directory: str
    run: str
    name: str
    grace_s: float

    @property
    def work(self) -> str:
        return f"{self.root}/work/{self.run}"

    @property
    def own(self) -> str:
        """The directory of this slot alone."""
        return f"{self.work}/{self.name}"


class Commands:
    def __init__(
        self,
        store: BlobStore,
        capture: Capture,
        channel: Channel,
        lifeline: Lifeline,
        place: SlotPlace,
        confined: Confined | None,
    ) -> None:
        self._capture = capture
        self._channel = channel
        self._lifeline = lifeline
        self._place = place
        self._confined = confined
        boxes = f"{place.own}-" if confined is None else f"{confined.box}/"
        self._sandbox = Sandbox(store, place.root, place.directory, boxes)
        where = place.own if confined is None else confined.temporary
        self._progress = f"{where}/progress"
        self._environment = dict(os.environ)
        self._interpreter = Interpreter()
        self._children = Children(self._interpreter)
        self._memory = Memory()
        self._wake, self._wake_write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._watching = False
        self._excess = ""
        self._reaped = False
        """Whether the number of the job's process may be another's by now."""
        self._poller = select.poll()
        self._poller.register(channel.fd, select.POLLIN)
        self._poller.register(self._wake, select.POLLIN)
        self._end_poller = select.poll()
        self._end_poller.register(self._wake, select.POLLIN)

    def note_foreign_code(self) -> None:
        """A user's code runs in this process now: it may have children and handlers of its own."""
        self._children.foreign = True
        self._watching = False

    def rest(self) -> None:
        """Nothing is to be done: wait, while something is kept that should not be for long."""
        if self._interpreter.pid and not self._channel.has_order_within(_KEPT_S):
            self._interpreter.end()
            self._sandbox.clear_unless_for(None)

    def run(self, serial: int, job: CommandJob) -> JobEnded:
        if not self._watching:
            self._watch_children()
        started = time.monotonic()
        self._interpreter.end_unless_for(job)
        if not self._sandbox.clear_unless_for(job if self._interpreter.pid else None):
            self._interpreter.end()
        self._children.begin()
        usable = False
        try:
            self._sandbox.prepare(job, self._interpreter.loaded)
            self._lifeline.disarm()
            try:
                ended = self._run(serial, job, started)
            finally:
                self._lifeline.arm()
            usable = self._children.none_left()
        finally:
            if not usable:
                self._interpreter.end()
            self._forget_progress()
            again = job.call is not None and bool(self._interpreter.pid)
            if not self._sandbox.clean(reusable=usable, again=again):
                self._interpreter.end()
            if self._confined is not None:
                self._confined.clean(self._sandbox.path)
            if not usable:
                self._capture.renew()
        return ended

    def _forget_progress(self) -> None:
        try:
            os.unlink(self._progress)
        except OSError:
            pass  # most jobs say nothing

    def _watch_children(self) -> None:
        """Have SIGCHLD wake the poll."""
        signal.signal(signal.SIGCHLD, lambda number, frame: None)
        signal.set_wakeup_fd(self._wake_write, warn_on_full_buffer=False)
        if self._confined is not None:
            self._confined.hear_only_ends()
        self._watching = True

    def _run(self, serial: int, job: CommandJob, started: float) -> JobEnded:
        token = orphans.token_of(self._place.root, self._place.run, job.label)
        inherited: Mapping[str, str] = self._environment
        if self._confined is not None:
            inherited = self._confined.environment(self._sandbox.path)
        own = {
            "SURELINE_TASK": job.task,
            "SURELINE_ATTEMPT": str(job.attempt),
            "SURELINE_CORES": f"{job.cores:g}",
            task_progress.VARIABLE: self._progress,
            orphans.TOKEN: token,
        }
        try:
            self._reaped = False
            pid = self._start(job, {**inherited, **job.env, **own}, own)
        except OSError as error:
            return _not_started(job, error)
        self._channel.say_held()  # how the job before it ended
        how = self._wait(pid, serial, job, started, token)
        code, cpu_s, peak = self._end_of(pid, job, how)
        if how != "ended" or self._confined is not None or self._sandbox.lease_wanted():
            self._children.kill_descendants(token)

        def before_taking() -> None:  # it may last: this slot must not outlive its runner by that
            self._lifeline.hear(lambda: self._die_with(pid, token))

        elapsed_s = time.monotonic() - started
        captured = self._capture.collect(job.label)
        if captured.stdout_file or captured.stderr_file:
            self._interpreter.end()  # it would go on writing there
        ended = JobEnded(
            "succeeded",
            exit_code=code if code >= 0 else None,
            signal=-code if code < 0 else None,
            elapsed_s=elapsed_s,
            cpu_s=cpu_s,
            memory_peak_bytes=self._memory.peak_bytes(peak),
            stdout=captured.stdout,
            stderr=captured.stderr,
            stdout_file=captured.stdout_file,
            stderr_file=captured.stderr_file,
        )
        return self._judge(job, how, code, ended, before_taking)

    def _end_of(self, pid: int, job: CommandJob, how: How) -> tuple[int, float, int]:
        """The exit code of what has ended, the time that it spent, and its peak of memory."""
        if job.call is not None:
            kept = self._interpreter
            if how == "ended" and kept.has_answered():
                self._forget_line()
                cpu_s, peak = kept.spent_s(), _peak(kept.read_status("status"))
                if not kept.is_good() or not self._children.none_left():
                    kept.end()
                self._reaped = not kept.pid
                return 0, cpu_s, peak
            self._forget_line()
            kept.forget()
        orphans.kill_group(pid)
        _, status, usage = os.wait4(pid, 0)
        self._reaped = True
        code = os.waitstatus_to_exitcode(status)
        return code, usage.ru_utime + usage.ru_stime, usage.ru_maxrss

    def _forget_line(self) -> None:
        if self._interpreter.line is not None:
            self._poller.unregister(self._interpreter.line)
            self._end_poller.unregister(self._interpreter.line)

    def _judge(
        self,
        job: CommandJob,
        how: How,
        code: int,
        ended: JobEnded,
        before_taking: Callable[[], None],
    ) -> JobEnded:
        damaged = self._sandbox.written_inputs()
        if how == "timeout":
            reason = f"took longer than its timeout of {job.timeout_s:g} s"
            return msgspec.structs.replace(ended, outcome="timeout", reason=reason)
        if how == "excess":
            reason = f"was stopped: it used {self._excess}, which is what a task may use here"
            return msgspec.structs.replace(ended, outcome="failed", reason=reason)
        if how == "cancelled":
            return msgspec.structs.replace(ended, outcome="cancelled", reason="was stopped")
        if damaged:
            reason = (
                f"its input {', '.join(damaged)} was written to while it ran; inputs are read-only"
            )
        elif code != 0:
            reason = f"exit code {code}" if code > 0 else f"killed by {signal_name(-code)}"
            if job.call is not None:
                reason = f"its Python ended with {reason}"
                ended = slot_lone.unfit_if_alien(job, ended)
            trouble = trouble_at(self._sandbox.path)
            if trouble:
                # what the command said about it may have found no room either
                reason += f"; the machine is to blame: {trouble}; mend that, then resume the run"
                ended = msgspec.structs.replace(ended, fault="machine")
        elif job.call is not None:
            alone = self._children.none_left()
            return slot_lone.told(
                job, ended, self._sandbox, self._interpreter, alone, before_taking
            )
        elif job.outputs:
            before_taking()
            try:
                alone = self._children.none_left()
                taken = self._sandbox.take_outputs(job, alone=alone)
                return msgspec.structs.replace(ended, outputs=taken)
            except StoreError as error:
                reason = str(error)
        else:
            return ended
        return msgspec.structs.replace(ended, outcome="failed", reason=reason)

    def _start(self, job: CommandJob, environment: dict[str, str], own: dict[str, str]) -> int:
        """`own`: what of the environment belongs to this job alone."""
        if job.call is None:
            return self._bound(lambda: self._spawn(job, environment))
        environment[orphans.TOKEN] = orphans.token_of(
            self._place.root, self._place.run, self._place.name
        )

        def start(argv: list[str]) -> int:
            return self._bound(lambda: _posix_spawn(argv[0], argv, environment, []))

        pid = self._interpreter.ask(job, self._sandbox.path, own, start)
        assert self._interpreter.line is not None
        self._poller.register(self._interpreter.line, select.POLLIN)
        self._end_poller.register(self._interpreter.line, select.POLLIN)
        return pid

    def _bound(self, spawn: Callable[[], int]) -> int:
        return spawn() if self._confined is None else self._confined.start(spawn)

    def _spawn(self, job: CommandJob, environment: dict[str, str]) -> int:
        path = environment.get("PATH")
        argv, is_script = start_of(job.run, path, job.shell)
        if is_script:
            with open(SCRIPT, "x", encoding="utf-8", errors="surrogateescape") as script:
                script.write(job.run)
        program = find_program(argv[0], path) or argv[0]
        actions = []
        if job.stdin is not None:
            actions.append((os.POSIX_SPAWN_OPEN, 0, job.stdin, os.O_RDONLY, 0))
        try:
            return _posix_spawn(program, argv, environment, actions)
        except OSError as error:
            if error.errno != errno.ENOEXEC:
                raise
            # a script without a "#!" line: the shell runs such files itself
            argv = shell_argv(job.run, path)
            program = find_program(argv[0], path) or argv[0]
            return _posix_spawn(program, argv, environment, actions)

    def _wait(self, pid: int, serial: int, job: CommandJob, started: float, token: str) -> How:
        """Wait until the main process has ended (it is not reaped yet), stopping it if asked to
        or if its time is up."""
        how: How = "ended"
        announce_at: float | None = started + _ANNOUNCE_AFTER_S
        act_at = None if job.timeout_s is None else started + job.timeout_s
        usage = None if self._confined is None else self._confined.usage()
        listener, look_at = (
            task_progress.Listener((1, 2), self._progress),
            started + task_progress.EVERY_S,
        )
        while not (job.call is not None and self._interpreter.has_answered()) and not _has_ended(
            pid
        ):
            soonest = min(t for t in (announce_at, act_at, look_at) if t is not None)
            wait_ms = max(0.0, soonest - time.monotonic()) * 1000
            # Until it is announced, only its end matters: an order for the next job would wake us
            # for nothing, and a request to stop can wait those few milliseconds.
            poller = self._poller if announce_at is None else self._end_poller
            for fd, _ in poller.poll(wait_ms):
                if fd == self._wake:
                    _drain(fd)
                    if self._sandbox.lease_wanted():
                        orphans.kill_group(pid)  # it would wait to write until its time is up
                elif fd == self._channel.fd and not self._channel.pump():
                    self._die_with(pid, token)
            now = time.monotonic()
            stop = self._channel.stop_for(serial)
            if announce_at is not None and now >= announce_at:
                self._channel.say(serial, JobStarted(pid))
                announce_at = None
            if now >= look_at:
                look_at = now + task_progress.EVERY_S
                fraction = listener.news()
                if fraction is not None:
                    self._channel.say(serial, JobProgressed(fraction))
                self._excess = usage.excess() if usage is not None else ""
                if self._excess and how == "ended":
                    how = "excess"
                    orphans.kill_group(pid)
            if stop is not None:
                orphans.kill_group(pid, signal.SIGKILL if stop.force else signal.SIGTERM)
                if how == "ended":
                    how = "cancelled"
                    act_at = now + self._place.grace_s
            elif act_at is not None and now >= act_at:
                if how == "ended":
                    how = "timeout"
                    orphans.kill_group(pid, signal.SIGTERM)
                    act_at = now + self._place.grace_s
                else:
                    orphans.kill_group(pid, signal.SIGKILL)
                    act_at = None
        if announce_at is not None:
            self._channel.say_later(serial, JobStarted(pid))
        return how

    def _die_with(self, pid: int, token: str) -> None:
        """The runner is gone: leave nothing running."""
        if not self._reaped:
            orphans.kill_group(pid)
        self._children.kill_descendants(token)
        os._exit(0)


class Children:
    """The descendants of a job, also those that left its session.

    Where the system allows, this process adopts orphans, so that "no child" means "nothing is
    left of the job". `foreign`: this process also has children that no job started. `kept` is a
    child that belongs to no job.
    """

    def __init__(self, kept: Interpreter) -> None:
        self.foreign = False
        self._kept = kept
        self._adopts: bool | None = None
        self._alone = False
        self._none_left = False
        """Known of the last job: then nothing is there that could start anything."""
        self._own = -1
        """What the kernel tells of this process's children, open."""

    def begin(self) -> None:
        """A job is about to start; what is left of earlier ones is not its doing."""
        if self._adopts is None:
            self._adopts = orphans.become_reaper()
        self._alone = self.none_left()
        self._none_left = False

    def none_left(self) -> bool:
        """Whether provably no process of a job is left; reaps those that have ended."""
        if self.foreign or not self._adopts:
            return False
        self._none_left = self._none_left or self._look()
        return self._none_left

    def _look(self) -> bool:
        try:
            while ended := os.waitpid(-1, os.WNOHANG)[0]:
                if ended == self._kept.pid:
                    self._kept.forget()
        except ChildProcessError:
            return True
        if not self._kept.pid:
            return False
        return self._kept.is_alone() and not self._children()

    def _children(self) -> list[int]:
        """Adopted ones too; their own children follow when they are killed."""
        try:
            if self._own < 0:
                path = f"/proc/self/task/{os.getpid()}/children"
                self._own = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            found = os.pread(self._own, slot_lone.STATUS_BYTES_MAX, 0).split()
        except OSError:
            return []  # the system does not tell
        return [pid for pid in map(int, found) if pid != self._kept.pid]

    def kill_descendants(self, token: str) -> None:
        """SIGKILL all that is left of a job that was cut short."""
        orphans.kill_all(lambda: self._descendants(token))

    def _descendants(self, token: str) -> list[int]:
        if not self._alone:
            return orphans.find(token)
        return [] if self.none_left() else self._children()


class Memory:
    """Peaks of memory. Exec hands the peak of the process that spawned on to the new program, so
    a value that is no higher than this process's own says nothing."""

    def __init__(self) -> None:
        self._own = 0
        self._last = 0

    def peak_bytes(self, measured: int) -> int:
        """What a child reached, from its `ru_maxrss`; 0 if it cannot be told."""
        if measured > self._own and measured != self._last:
            self._last = measured
            self._own = _own_peak()
        return measured * RSS_UNIT_BYTES if measured > self._own else 0


def _own_peak() -> int:
    try:
        with open("/proc/self/status", "rb", buffering=0) as file:
            return _peak(file.read())
    except OSError:
        return 0


def _peak(status: bytes) -> int:
    """What the kernel tells of a process, in the unit of `ru_maxrss`; 0 if it does not."""
    _, found, rest = status.partition(b"VmHWM:")
    return int(rest.split(None, 1)[0]) if found else 0


def _posix_spawn(
    program: str,
    argv: list[str],
    environment: dict[str, str],
    actions: list[tuple[int, int, str, int, int]],
) -> int:
    return os.posix_spawn(
        program,
        argv,
        environment,
        file_actions=actions,
        setsid=True,
        setsigmask=(),
        setsigdef=_RESET,
    )


def _has_ended(pid: int) -> bool:
    return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


def _drain(fd: int) -> None:
    try:
        os.read(fd, 512)
    except BlockingIOError:
        pass


def _not_started(job: CommandJob, error: OSError) -> JobEnded:
    if job.call is not None:
        return slot_lone.no_python(job, error)
    words = (job.shell or job.run.split("\n", 1)[0].removeprefix("#!")).split()
    word = words[0] if words else job.run
    code = 127 if error.errno == errno.ENOENT else 126
    return JobEnded("failed", exit_code=code, reason=f"cannot run {word!r}: {error.strerror}")


def signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
