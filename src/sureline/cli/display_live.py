"""A run on a terminal: what is told scrolls by, and below it a few lines are kept up to date.

`frame` says what these lines are (a pure function: the same picture for the same snapshot);
`Live` puts them on the screen, over those it put there before. Nothing but plain line erasing and
moving up is asked of the terminal, and nothing needs to be restored if the process is killed.
"""

from __future__ import annotations

import io
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from sureline.cli import console
from sureline.cli.display import Outlook, RunningTask, Sink, Snapshot, Told, printable
from sureline.cli.display_lines import stopping

RUNNING_ROWS_MAX = 12
BAR_CELLS_MIN, BAR_CELLS_MAX = 8, 60
NAME_CELLS_MAX = 48
STYLES = {"failure": "red", "tail": "dim", "retry": "yellow", "again": "yellow", "notice": "bold"}
BESIDE: frozenset[str] = frozenset({"start", "stop"})
"""Told in the frame itself."""


class Signs(NamedTuple):
    """What the picture is drawn with."""

    done: str
    failed: str
    rest: str
    cut: str
    dot: str


UNICODE = Signs("━", "━", "─", "…", "·")
ASCII = Signs("=", "x", "-", "..", "-")


def frame(
    s: Snapshot, outlook: Outlook | None, now: float, width: int, rows: int, signs: Signs = UNICODE
) -> list[Text]:
    """The lines for a screen of `width` columns and at most `rows` rows; none is wider."""
    head = [_head(s, width, signs), _counts(s, now, width, signs)]
    if outlook is not None and not s.stopping:
        head += _finish(outlook, now, width)
    if s.stopping:
        head.append(Text(f"  {stopping(s)}", style="bold yellow"))
    tasks = _running(s, now, width, min(RUNNING_ROWS_MAX, rows - len(head)), signs)
    lines = (head + tasks)[: max(1, rows)]
    for line in lines:
        _fit(line, width, signs)
    return lines


def _fit(line: Text, width: int, signs: Signs) -> None:
    if line.cell_len > width:
        line.truncate(max(0, width - len(signs.cut)))
        line.append(signs.cut)


def _head(s: Snapshot, width: int, signs: Signs) -> Text:
    percent = 100 * s.done // max(1, s.total)
    numbers = f" {s.done}/{s.total} ({percent} %)"
    room = width - cell_len(s.run) - len(numbers) - 2
    line = Text(s.run, style="bold", end="")
    if room < BAR_CELLS_MIN:  # the bar says more than the name
        room = width - len(numbers) - 1
        line = Text("", end="")
    else:
        line.append("  ")
    line.append_text(bar(s, max(0, min(room, BAR_CELLS_MAX)), signs))
    return line.append(numbers, style="not bold")


def bar(s: Snapshot, cells: int, signs: Signs) -> Text:
    """Done, failed and the rest, to scale; what is not nothing gets a cell, if there is one."""
    total = max(1, s.total)
    failed = min(cells, max(s.failed * cells // total, 1 if s.failed else 0))
    done = min(cells - failed, max(s.done * cells // total, 1 if s.done else 0))
    if done + failed == cells and s.done + s.failed < total and done:
        done -= 1
    return Text.assemble(
        (signs.done * done, "not bold green"),
        (signs.failed * failed, "not bold red"),
        (signs.rest * (cells - done - failed), "not bold bright_black"),
        end="",
    )


def _counts(s: Snapshot, now: float, width: int, signs: Signs) -> Text:
    parts = [(f"{s.running} running", "cyan")]
    if s.failed:
        parts.append((f"{s.failed} failed", "red"))
    if s.retrying:
        parts.append((f"{s.retrying} to be tried again", "yellow"))
    if s.reused:
        parts.append((f"{s.reused} reused", "green"))
    parts.append((f"{max(0, s.total - s.done - s.failed - s.running - s.retrying)} waiting", ""))
    parts.append((f"{console.duration(max(0.0, now - s.began_at))} so far", ""))
    line = Text("  ", end="")
    for k, (words, style) in enumerate(parts):
        line.append(f" {signs.dot} " if k else "").append(words, style=style)
    return line


def _finish(outlook: Outlook, now: float, width: int) -> list[Text]:
    """On a wide screen with its basis beside it, on a narrow one below."""
    words, basis = f"  {outlook.words(now)}", f"by {outlook.basis}"
    if len(words) + len(basis) + 2 <= width:
        return [Text.assemble((words, "magenta"), (f", {basis}", "dim"), end="")]
    return [Text(words, style="magenta", end=""), Text(f"    {basis}", style="dim", end="")]


def _running(s: Snapshot, now: float, width: int, rows: int, signs: Signs) -> list[Text]:
    if rows < 2 or not s.longest:
        return []
    shown = s.longest[:rows] if s.running <= rows else s.longest[: rows - 1]
    clocks = [_clock(one, now) for one in shown]
    clock_cells = max(len(clock) for clock in clocks)
    names = [printable(one.task) for one in shown]
    name_cells = min(
        max(cell_len(name) for name in names), NAME_CELLS_MAX, max(8, width - clock_cells - 6)
    )
    lines = []
    for one, name, clock in zip(shown, names, clocks, strict=True):
        cell = Text(f"    {name}", end="")
        _fit(cell, name_cells + 4, signs)
        cell.pad_right(name_cells + 4 - cell.cell_len)
        late = one.expected_s is not None and now - one.started_at > 2 * one.expected_s + 1
        lines.append(cell.append(f"  {clock}", style="yellow" if late else "dim"))
    if s.running > len(shown):
        lines.append(Text(f"    and {s.running - len(shown)} more", style="dim", end=""))
    return lines


def _clock(one: RunningTask, now: float) -> str:
    elapsed = console.duration(max(0.0, now - one.started_at))
    if one.expected_s is None:
        return elapsed
    return f"{elapsed} of about {console.duration(one.expected_s)}"


class Live:
    """A face for a terminal."""

    def __init__(self, sink: Sink, outlook: Callable[[], Outlook | None]) -> None:
        self._sink = sink
        self._outlook = outlook
        self._signs = UNICODE if sink.speaks_unicode else ASCII
        self._told = 0
        self._widths: list[int] = []
        """How wide each line of the frame on the screen is."""

    def show(self, snapshot: Snapshot) -> None:
        width, rows = self._sink.size()
        text = self._back(width)
        news = [told for told in snapshot.told[self._told :] if told.kind not in BESIDE]
        text += rendered([_told(told) for told in news], None)
        self._told = len(snapshot.told)
        # One column stays free: a terminal that wraps at its last one would add a row.
        lines = (
            []
            if snapshot.over
            else frame(
                snapshot, self._outlook(), time.time(), max(1, width - 1), rows - 1, self._signs
            )
        )
        self._widths = [line.cell_len for line in lines]
        self._sink.write(text + rendered(lines, width) + "\x1b[J")

    def _back(self, width: int) -> str:
        """To the first row of the frame, also if the terminal has become narrower meanwhile."""
        rows = sum(max(1, -(-cells // max(1, width))) for cells in self._widths)
        return f"\r\x1b[{rows}A" if rows else "\r"


def _told(told: Told) -> Text:
    return Text(told.text, style=STYLES.get(told.kind, ""))


def rendered(lines: Sequence[Text], width: int | None) -> str:
    """The lines with colours, as the terminal and the user's environment want them.

    Each erases what was on its row. Without a width a line is as long as it is, and may wrap.
    """
    file = io.StringIO()
    terminal = Console(
        file=file,
        force_terminal=True,
        legacy_windows=False,
        width=width or 10_000,
        soft_wrap=True,
        highlight=False,
        markup=False,
        emoji=False,
    )
    for line in lines:
        terminal.print(line, end="\x1b[K\n", soft_wrap=True)
    return file.getvalue()
