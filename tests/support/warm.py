"""The `sureline` command without its start-up: processes forked from one that has it loaded.

Loading the command takes a third of a second of processor time, and tests give it hundreds of
times. So one process loads it once and is then forked for every command: a process of its own,
with its own directory, environment and streams, as if freshly started. Tests of the start itself,
and of terminals, start the command for real.
"""

from __future__ import annotations

import array
import atexit
import contextlib
import gc
import json
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from typing import IO, Any

REQUEST_BYTES_MAX = 1 << 20
LOADED = (
    "numba",
    "sureline.cli.main",
    "sureline.cli.progress",
    "sureline.compose.elsewhere",
    "sureline.compose.session",
    "sureline.forecast.follow",
    "sureline.journal.store",
    "sureline.journal.views",
    "sureline.workflow.read",
)
"""What many commands need; each loads the rest by itself. Nothing here may start a thread."""
WITHOUT_THREADS = {"OPENBLAS_NUM_THREADS": "1"}
OF_THE_START = ("PYTHON", "LC_", "LANG")
"""Variables that a process heeds when it starts: for others than ours it must start."""


def fits(env: dict[str, str]) -> bool:
    """Whether a forked process can do what one started with these variables would."""
    return not any(name.startswith(OF_THE_START) for name in env)


class Forked:
    """A command that was started, as far as its process matters to who started it."""

    def __init__(self, asked: socket.socket) -> None:
        self._asked = asked
        self._code: int | None = None
        self.pid = int(self._line())

    def _line(self) -> bytes:
        line = b""
        while not line.endswith(b"\n"):
            byte = self._asked.recv(1)
            if not byte:
                raise RuntimeError("the process that has the command loaded died")
            line += byte
        return line

    def wait(self, timeout_s: float) -> int:
        """The exit code, when it has ended; negative if a signal ended it.

        Raises subprocess.TimeoutExpired.
        """
        if self._code is None:
            if not select.select([self._asked], [], [], timeout_s)[0]:
                raise subprocess.TimeoutExpired("sureline", timeout_s)
            self._code = os.waitstatus_to_exitcode(int(self._line()))
            self._asked.close()
        return self._code

    def poll(self) -> int | None:
        with contextlib.suppress(subprocess.TimeoutExpired):
            return self.wait(0.0)
        return None


class WarmCommand:
    """The loaded process, and commands given to it. It ends with the process that made it."""

    def __init__(self) -> None:
        self._scratch = tempfile.TemporaryDirectory(prefix="warm-")
        self._address = str(Path(self._scratch.name) / "socket")
        listening = socket.socket(socket.AF_UNIX)
        listening.bind(self._address)
        listening.listen(64)
        self._life, theirs = socket.socketpair()
        fds = (listening.fileno(), theirs.fileno())
        self._process = subprocess.Popen(
            [sys.executable, __file__, *map(str, fds)],
            env={**os.environ, **WITHOUT_THREADS},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            pass_fds=fds,
        )
        listening.close()
        theirs.close()
        atexit.register(self.close)

    def start(
        self,
        arguments: tuple[str, ...],
        where: Path,
        env: dict[str, str],
        out: IO[bytes],
        err: IO[bytes],
    ) -> Forked:
        """A command in a session of its own, saying what it says into these files."""
        asked = socket.socket(socket.AF_UNIX)
        asked.connect(self._address)
        request = {"arguments": arguments, "where": str(where), "env": env}
        with open(os.devnull, "rb") as nothing:
            fds = [one.fileno() for one in (nothing, out, err)]
            socket.send_fds(asked, [json.dumps(request).encode()], fds)
        asked.shutdown(socket.SHUT_WR)
        return Forked(asked)

    def run(
        self, arguments: tuple[str, ...], where: Path, env: dict[str, str], timeout_s: float
    ) -> tuple[int, str, str]:
        """Run a command to its end: its exit code and what it said.

        Raises subprocess.TimeoutExpired, the process being killed, if it takes too long.
        """
        with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
            forked = self.start(arguments, where, env, out, err)
            try:
                code = forked.wait(timeout_s)
            except subprocess.TimeoutExpired:
                os.kill(forked.pid, signal.SIGKILL)
                forked.wait(timeout_s)
                raise
            said = []
            for stream in (out, err):
                stream.seek(0)
                said.append(stream.read().decode())
        return code, said[0], said[1]

    def close(self) -> None:
        self._life.close()
        self._process.wait()
        self._scratch.cleanup()


_made: list[WarmCommand] = []
_making = threading.Lock()


def warm() -> WarmCommand:
    """The one of this process, made when first needed."""
    with _making:
        if not _made:
            _made.append(WarmCommand())
        return _made[0]


# -- in the loaded process ------------------------------------------------------------------------


def serve(listening: socket.socket, life: socket.socket) -> None:
    """Fork for each request; returns only in a process that is to become the command."""
    while True:
        ready, _, _ = select.select([listening, life], [], [])
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        if life in ready:
            os._exit(0)
        asked, _ = listening.accept()
        if os.fork() == 0:
            listening.close()
            life.close()
            attend(asked)
            return
        asked.close()


def attend(asked: socket.socket) -> None:
    """Read a request, fork once more, and wait for what comes of it. Returns in the child."""
    text, fds = receive(asked)
    request = json.loads(text)
    child = os.fork()
    if child:
        for fd in fds:
            os.close(fd)
        asked.sendall(b"%d\n" % child)
        _, status = os.waitpid(child, 0)
        with contextlib.suppress(OSError):
            asked.sendall(b"%d\n" % status)
        os._exit(0)
    asked.close()
    become(request, fds)


def receive(asked: socket.socket) -> tuple[bytes, list[int]]:
    size = array.array("i").itemsize
    data, ancillary, _, _ = asked.recvmsg(REQUEST_BYTES_MAX, socket.CMSG_SPACE(3 * size))
    fds = array.array("i", b"".join(content for _, _, content in ancillary))
    while more := asked.recv(REQUEST_BYTES_MAX):
        data += more
    return data, list(fds)


def become(request: dict[str, Any], fds: list[int]) -> None:
    """Take on the session, the directory, the environment and the streams of a fresh process."""
    os.setsid()
    for number, fd in enumerate(fds):
        os.dup2(fd, number, inheritable=True)
        os.close(fd)
    os.chdir(request["where"])
    os.environ.clear()
    os.environ.update(request["env"])
    sys.argv = ["sureline", *request["arguments"]]


def main() -> None:
    import importlib

    listening, life = (socket.socket(fileno=int(fd)) for fd in sys.argv[1:])
    sys.path.remove(str(Path(__file__).parent))  # the command would not have it
    for name in LOADED:
        importlib.import_module(name)
    gc.collect()
    gc.freeze()
    serve(listening, life)
    from sureline.cli.entry import main as command

    command()


if __name__ == "__main__":
    main()
