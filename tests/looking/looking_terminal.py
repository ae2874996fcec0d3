"""A terminal for tests: a real pseudo-terminal, and a screen that understands what we write."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import re
import struct
import subprocess
import termios
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path

from surely import COMMAND, PATIENCE_S
from surely import until as until_true

_PIECES = re.compile(r"\x1b\[([0-9;]*)([A-Za-z])|(\r)|(\n)|([^\x1b\r\n]+)")


class Screen:
    """What a person sees, scrolled-away lines included: enough for line-wise displays."""

    def __init__(self, columns: int) -> None:
        self._columns = columns
        self.rows: list[str] = [""]
        self._row = self._column = 0

    def feed(self, text: str) -> None:
        for number, command, back, line, plain in _PIECES.findall(text):
            if command == "A":
                self._row = max(0, self._row - int(number or 1))
            elif command == "K":
                self.rows[self._row] = self.rows[self._row][: self._column]
            elif command == "J":
                self.rows[self._row] = self.rows[self._row][: self._column]
                del self.rows[self._row + 1 :]
            elif back:
                self._column = 0
            elif line:
                self._down()
            elif plain:
                self._put(plain)
            else:
                assert command == "m", f"an escape we did not mean to use: {number}{command}"

    def _down(self) -> None:
        self._row += 1
        if self._row == len(self.rows):
            self.rows.append("")

    def _put(self, text: str) -> None:
        for sign in text:
            if self._column == self._columns:
                self._down()
                self._column = 0
            row = self.rows[self._row].ljust(self._column)
            self.rows[self._row] = row[: self._column] + sign + row[self._column + 1 :]
            self._column += 1

    @property
    def text(self) -> str:
        return "\n".join(row.rstrip() for row in self.rows).rstrip()


class Terminal:
    """A pseudo-terminal; what is written to it is read only if `reading`."""

    def __init__(self, columns: int = 80, rows: int = 24, *, reading: bool = True) -> None:
        self.master, self.slave = pty.openpty()
        self.resize(columns, rows)
        self._columns = columns
        self._heard: list[bytes] = []
        self._closed = False
        if reading:
            self._reader = threading.Thread(target=self._read, daemon=True)
            self._reader.start()

    def resize(self, columns: int, rows: int) -> None:
        fcntl.ioctl(self.slave, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def _read(self) -> None:
        with contextlib.suppress(OSError):
            while data := os.read(self.master, 65536):
                self._heard.append(data)

    @property
    def raw(self) -> str:
        return b"".join(self._heard).decode(errors="replace")

    @property
    def screen(self) -> str:
        screen = Screen(self._columns)
        screen.feed(self.raw)
        return screen.text

    def until(self, text: str) -> str:
        """The screen, once it shows `text`."""
        until_true(lambda: text in self.screen, f"{text!r} on the screen")
        return self.screen

    def fill(self) -> None:
        """As if Ctrl-S had been pressed a while ago: the next write waits for ever."""
        os.set_blocking(self.slave, False)
        with contextlib.suppress(BlockingIOError):
            while True:
                os.write(self.slave, b"x" * 1024)
        with contextlib.suppress(BlockingIOError):
            while True:
                os.write(self.slave, b"x")
        os.set_blocking(self.slave, True)

    def hang_up(self) -> None:
        """Close both ends here: who writes on gets an error."""
        if not self._closed:
            self._closed = True
            os.close(self.slave)
            os.close(self.master)


class OnTerminal:
    """A command whose stderr is a terminal; its stdout is a file."""

    def __init__(
        self, where: Path, terminal: Terminal, *arguments: str, env: Mapping[str, str] = {}
    ) -> None:
        self._out = where.parent / f"{where.name}.out"
        base = {k: v for k, v in os.environ.items() if k not in ("NO_COLOR", "COLUMNS", "LINES")}
        with open(self._out, "wb") as out:
            self.process = subprocess.Popen(
                [COMMAND, *arguments],
                cwd=where,
                env={**base, "TERM": "xterm-256color", "LANG": "C.UTF-8", **env},
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=terminal.slave,
                start_new_session=True,
            )

    def end(self) -> int:
        return self.process.wait(PATIENCE_S)

    @property
    def out(self) -> str:
        return self._out.read_text()


@contextlib.contextmanager
def on_terminal(
    where: Path, terminal: Terminal, *arguments: str, env: Mapping[str, str] = {}
) -> Iterator[OnTerminal]:
    """The command, running; nothing of it or of the terminal is left when the block is left."""
    one = OnTerminal(where, terminal, *arguments, env=env)
    try:
        yield one
    finally:
        if one.process.poll() is None:
            one.process.kill()
            one.process.wait()
        terminal.hang_up()
