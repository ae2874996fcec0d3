"""One slot process, as the runner sees it: a child, a socket to it, and its lifeline."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping

from sureline.peer.frames import (
    MAX_FUNCTIONS,
    RECEIVE_BYTES,
    FrameTooLongError,
    SlotFrames,
    SlotReport,
    decode_said,
)
from sureline.peer.orphans import kill_group

_BOOT = (
    "import sys; sys.path[:] = sys.argv[9:]; "
    "from sureline.peer.slot import main; main(sys.argv[1:9])"
)
_LAST_WORDS_BYTES = 4096


class SlotProcess:
    """Starts a slot process. It leads its own process group and session."""

    def __init__(
        self,
        *,
        name: str,
        root: str,
        directory: str,
        run: str,
        grace_s: float,
        env: Mapping[str, str],
        rules: str = "",
    ) -> None:
        self.name = name
        self.ready = False
        """Whether it has said that it is up; it may be sent work before."""
        self._outputs = f"{root}/work/{run}/{name}/std"
        self._frames = SlotFrames()
        self._unsent = bytearray()
        self._functions: set[str] = set()
        self._sock, theirs = socket.socketpair()
        lifeline, self._lifeline = os.pipe()
        self._sock.setblocking(False)
        tied = [str(theirs.fileno()), str(lifeline)]
        arguments = [*tied, root, directory, run, name, str(grace_s), rules]
        os.makedirs(os.path.dirname(self._outputs), mode=0o700, exist_ok=True)
        out = os.open(f"{self._outputs}.out", _CAPTURE, 0o644)
        err = os.open(f"{self._outputs}.err", _CAPTURE, 0o644)
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-c", _BOOT, *arguments, *(p or os.getcwd() for p in sys.path)],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                env=dict(env),
                pass_fds=(theirs.fileno(), lifeline),
                start_new_session=True,
            )
        except OSError:
            self._sock.close()
            os.close(self._lifeline)
            raise
        finally:
            theirs.close()
            for fd in (lifeline, out, err):
                os.close(fd)
        self.pid = self._process.pid
        self.fd = self._sock.fileno()

    def needs_function(self, digest: str) -> bool:
        return digest not in self._functions

    def has_function(self, digest: str) -> None:
        """Note that the function has been sent."""
        if digest not in self._functions:
            if len(self._functions) >= MAX_FUNCTIONS:
                self._functions.clear()
            self._functions.add(digest)

    def send(self, frame: bytearray) -> bool:
        """Send, or keep what cannot be sent yet; whether something is kept."""
        if self._unsent:
            self._unsent += frame
            return True
        self._unsent = frame
        return self.send_rest()

    def send_rest(self) -> bool:
        """Send more of what is kept; whether something is still kept."""
        try:
            sent = self._sock.send(self._unsent)
        except BlockingIOError:
            return True
        except OSError:  # it is dead; the reader will notice
            self._unsent = bytearray()
            return False
        if sent == len(self._unsent):
            self._unsent = bytearray()
            return False
        del self._unsent[:sent]
        return True

    def receive(self) -> list[SlotReport] | None:
        """What it has said; None when it is gone (or talks nonsense, which ends it)."""
        try:
            data = self._sock.recv(RECEIVE_BYTES)
        except (BlockingIOError, InterruptedError):
            return []
        except OSError:
            return None
        if not data:
            return None
        try:
            return [decode_said(frame) for frame in self._frames.feed(data)]
        except (FrameTooLongError, ValueError):
            return None

    def kill(self) -> None:
        """SIGKILL to its group, unless it has been reaped (the number may be another's then)."""
        if self._process.returncode is None:
            kill_group(self.pid)

    def is_dead(self) -> bool:
        return self._process.poll() is not None

    def wait(self) -> None:
        """Wait for a killed slot."""
        self._process.wait()

    def close(self) -> None:
        """Forget a dead slot."""
        self._let_go()
        for suffix in ("out", "err"):
            try:
                os.unlink(f"{self._outputs}.{suffix}")
            except OSError:
                pass

    def abandon(self) -> None:
        """In a forked process: let go of what is the parent's, and never wait for its child."""
        self._let_go()
        self._process.returncode = 0

    def _let_go(self) -> None:
        self._sock.close()
        lifeline, self._lifeline = self._lifeline, -1
        if lifeline >= 0:  # else the number may be somebody else's by now
            os.close(lifeline)

    @property
    def signal(self) -> int | None:
        code = self._process.returncode
        return -code if code is not None and code < 0 else None

    def epitaph(self) -> str:
        """Why it died, as one sentence."""
        code = self._process.returncode
        if self.signal is None:
            return f"the process that ran it ended with exit code {code}"
        try:
            name = signal.Signals(self.signal).name
        except ValueError:
            name = f"signal {self.signal}"
        hint = "; the system may have run out of memory" if name == "SIGKILL" else ""
        return f"the process that ran it was killed by {name}{hint}"

    def last_words(self) -> str:
        """The end of what it wrote to stderr."""
        try:
            with open(f"{self._outputs}.err", "rb") as file:
                size = file.seek(0, os.SEEK_END)
                file.seek(max(0, size - _LAST_WORDS_BYTES))
                return file.read(_LAST_WORDS_BYTES).decode("utf-8", "replace")
        except OSError:
            return ""


_CAPTURE = os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
