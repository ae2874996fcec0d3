"""Showing a run while it goes on, without ever being able to hold it up.

The run's thread hands immutable snapshots to a `Display`, a daemon thread with a mailbox of one
slot: a newer snapshot replaces one that was not yet shown. Only that thread writes, straight to
the stream's descriptor: Python's buffered streams have locks, and a write that blocks for ever (a
terminal stopped with Ctrl-S, a full pipe) would hold one when the interpreter wants to end. What a
snapshot looks like is up to a `Face`; when writing fails, it falls silent and the run goes on.
"""

from __future__ import annotations

import contextlib
import os
import re
import select
import threading
from typing import Literal, NamedTuple, Protocol, TextIO

import msgspec

TICK_S = 1.0
"""Shown again so often although nothing happened, so that clocks move."""
LAST_WORDS_S = 1.0
"""The end of a run waits at most so long for its display."""
LINE_LENGTH_MAX = 500

ToldKind = Literal["notice", "start", "failure", "tail", "retry", "again", "repair", "stop"]


class Sentence(NamedTuple):
    """A sentence said once, in the order in which things happened."""

    kind: ToldKind
    text: str


class RunningTask(NamedTuple):
    task: str
    started_at: float
    fraction: float = 0.0
    """How much of it is done, if it says so."""


class Snapshot(msgspec.Struct, frozen=True):
    """All that a face needs to know of a run at one moment."""

    run: str
    total: int
    began_at: float
    done: int = 0
    """Tasks with a result, reused ones among them."""
    reused: int = 0
    failed: int = 0
    """Tasks that failed and will not be tried again."""
    retrying: int = 0
    running: int = 0
    longest: tuple[RunningTask, ...] = ()
    """Those that run longest, in the order in which they started; not all if there are many."""
    told: tuple[Sentence, ...] = ()
    """Everything said so far; it only grows, and is bounded."""
    stopping: Literal["", "drain", "stop"] = ""
    over: bool = False


class DisplayOutlook(Protocol):
    """What can be said about the time to come. Called in the display's thread."""

    def words(self, now: float) -> str | None:
        """When the run will be done, as an interval with its basis; None if not known yet."""

    def expected_s(self, task: str) -> float | None:
        """How long a running task is likely to take in all."""


class Face(Protocol):
    """Called in the display's thread only; may block and may raise OSError."""

    def show(self, snapshot: Snapshot) -> None: ...


class Display:
    """The thread that shows, and its mailbox."""

    def __init__(self, face: Face) -> None:
        self._face = face
        self._slot: Snapshot | None = None
        self._news = threading.Event()
        self._thread = threading.Thread(target=self._show_all, name="sureline-display", daemon=True)
        self._thread.start()

    def post(self, snapshot: Snapshot) -> None:
        """Show this next, instead of anything posted before. Never waits."""
        self._slot = snapshot
        self._news.set()

    def close(self, last: Snapshot) -> None:
        """Show the last snapshot and end; waits for that LAST_WORDS_S at most."""
        self.post(msgspec.structs.replace(last, over=True))
        self._thread.join(LAST_WORDS_S)

    def _show_all(self) -> None:
        shown: Snapshot | None = None
        while shown is None or not shown.over:
            self._news.wait(TICK_S)
            self._news.clear()
            shown = self._slot
            if shown is None:
                continue
            try:
                self._face.show(shown)
            except OSError:
                return  # nobody can read us any more
            except Exception as error:  # a mistake of ours must not cost a run
                with contextlib.suppress(OSError):
                    os.write(2, f"sureline: the display broke ({error!r})\n".encode())
                return


class Sink:
    """A stream to write to past its buffer. Where it has no descriptor, the stream itself."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self.encoding = getattr(stream, "encoding", None) or "utf-8"
        try:
            self.descriptor: int | None = stream.fileno()
        except (OSError, ValueError):  # replaced by something that is no file, or closed
            self.descriptor = None

    @property
    def is_terminal(self) -> bool:
        return self.descriptor is not None and os.isatty(self.descriptor)

    @property
    def speaks_unicode(self) -> bool:
        try:
            "━…·".encode(self.encoding)
        except (UnicodeEncodeError, LookupError):
            return False
        return True

    def size(self) -> os.terminal_size:
        """Columns and rows; 80 x 24 where nobody says."""
        try:
            found = os.get_terminal_size(self.descriptor if self.descriptor is not None else -1)
        except OSError:
            return os.terminal_size((80, 24))
        return found if found.columns > 0 and found.lines > 0 else os.terminal_size((80, 24))

    def write(self, text: str) -> None:
        """All of it, however long that takes. Raises OSError if nobody reads."""
        if self.descriptor is None:
            self._write_to_stream(text)
            return
        data = text.encode(self.encoding, "backslashreplace")
        while data:
            try:
                data = data[os.write(self.descriptor, data) :]
            except BlockingIOError:  # somebody made the terminal non-blocking
                select.select([], [self.descriptor], [])

    def _write_to_stream(self, text: str) -> None:
        try:
            self._stream.write(text)
            self._stream.flush()
        except ValueError as error:  # closed
            raise OSError(str(error)) from None


_ESCAPES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-_])")
_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


def printable(text: str) -> str:
    """One line that moves no cursor and rings no bell, whatever a task wrote; cut if very long."""
    text = _CONTROLS.sub("?", _ESCAPES.sub("", text[: 2 * LINE_LENGTH_MAX]))
    text = text.replace("\n", " ").expandtabs()
    return text if len(text) <= LINE_LENGTH_MAX else text[:LINE_LENGTH_MAX] + "..."
