"""A run on a terminal: what is told scrolls by, and below it a few lines are kept up to date.

`frame` says what these lines are (a pure function: the same picture for the same snapshot);
`Live` puts them on the screen, over those it put there before. Nothing but plain line erasing and
moving up is asked of the terminal, and nothing needs to be restored if the process is killed.
"""

from __future__ import annotations

import io
import time
from collections.abc import Sequence
from typing import NamedTuple

from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from sureline.cli import console
from sureline.cli.display import (
    LINE_LENGTH_MAX,
    DisplayOutlook,
    Sentence,
    Sink,
    Snapshot,
    printable,
)
from sureline.cli.display_lines import stopping

RUNNING_ROWS_MAX = 12
BAR_CELLS_MIN, BAR_CELLS_MAX = 8, 60
NAME_CELLS_MAX = 48
STYLES = {
    "failure": "red",
    "tail": "dim",
    "retry": "yellow",
    "again": "yellow",
    "repair": "yellow",
    "notice": "bold",
}
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
    s: Snapshot, outlook: DisplayOutlook, now: float, width: int, rows: int, signs: Signs = UNICODE
) -> list[Text]:
    """The lines for a screen of `width` columns and at most `rows` rows; none is wider."""
    head = [_head(s, width, signs), _counts(s, now, signs)]
    if words := outlook.words(now):
        head += _finish(words, width)
    if s.stopping:
        head += _stopping(s, width)
    tasks = _running(s, outlook, now, width, min(RUNNING_ROWS_MAX, rows - len(head)), signs)
    lines = (head + tasks)[: max(1, rows)]
    for line in lines:
        _fit(line, width, signs)
    return lines


def _fit(line: Text, width: int, signs: Signs) -> None:
    if line.cell_len > width:
        cut = signs.cut[:width]
        line.truncate(width - len(cut))
        line.append(cut)


def _head(s: Snapshot, width: int, signs: Signs) -> Text:
    percent = 100 * s.done // max(1, s.total)
    numbers = f" {s.done}/{s.total} ({percent} %)"
    name = f"{s.run}  " if s.run else "  "
    room = width - cell_len(name) - len(numbers)
    if room < BAR_CELLS_MIN:  # the bar says more than the name
        name, room = "", width - len(numbers)
    line = Text(name, style="bold", end="")
    line.append_text(bar(s, max(0, min(room, BAR_CELLS_MAX)), signs))
    return line.append(numbers, style="not bold")


def bar(s: Snapshot, cells: int, signs: Signs) -> Text:
    """Done, failed and the rest, to scale; what is not nothing gets a cell, if there is one."""
    total = max(1, s.total)
    failed = min(cells, max(s.failed * cells // total, 1 if s.failed else 0))
    done = min(cells - failed, max(s.done * cells // total, 1 if s.done else 0))
    if s.done + s.failed >= total:  # nothing is left, so no cell may say so
        done, failed = (cells - failed, failed) if s.done else (0, cells)
    elif done + failed == cells and done:
        done -= 1
    return Text.assemble(
        (signs.done * done, "not bold green"),
        (signs.failed * failed, "not bold red"),
        (signs.rest * (cells - done - failed), "not bold bright_black"),
        end="",
    )


def _counts(s: Snapshot, now: float, signs: Signs) -> Text:
    rest = max(0, s.total - s.done - s.failed - s.running - s.retrying)
    age = console.duration(max(0.0, now - s.began_at))
    parts = [
        ("" if s.over else f"{s.running} running", "cyan"),
        (f"{s.failed} failed" if s.failed else "", "red"),
        (f"{s.retrying} to be tried again" if s.retrying else "", "yellow"),
        (f"{s.reused} reused" if s.reused else "", "green"),
        (f"{rest} {'not run' if s.over else 'waiting'}" if rest or not s.over else "", ""),
        (f"took {age}" if s.over else f"{age} so far", ""),
    ]
    told = [Text(words, style=style) for words, style in parts if words]
    return Text("  ", end="").append_text(Text(f" {signs.dot} ").join(told))


def _finish(words: str, width: int) -> list[Text]:
    """On a wide screen with its basis beside it, on a narrow one below."""
    interval, bracket, basis = words.partition(" (")
    if len(words) + 2 <= width or not bracket:
        return [Text.assemble("  ", (interval, "magenta"), (bracket + basis, "dim"), end="")]
    below = basis.removesuffix(")").split("; ")
    return [
        Text(f"  {interval}", style="magenta", end=""),
        *(Text(f"    {part}", style="dim", end="") for part in below),
    ]


def _stopping(s: Snapshot, width: int) -> list[Text]:
    words = stopping(s)
    parts = [words] if len(words) + 2 <= width else words.split("; ")
    return [Text(f"  {part}", style="bold yellow", end="") for part in parts]


def _running(
    s: Snapshot, outlook: DisplayOutlook, now: float, width: int, rows: int, signs: Signs
) -> list[Text]:
    if rows < 2 or not s.longest:
        return []
    shown = s.longest[:rows] if s.running <= rows else s.longest[: rows - 1]
    expected_s = [outlook.expected_s(one.task) for one in shown]
    elapsed_s = [max(0.0, now - one.started_at) for one in shown]
    fractions = [one.fraction for one in shown]
    clocks = [_clock(*of) for of in zip(elapsed_s, expected_s, fractions, strict=True)]
    clock_cells = max(len(clock) for clock in clocks)
    names = [printable(one.task) for one in shown]
    name_cells = min(
        max(cell_len(name) for name in names), NAME_CELLS_MAX, max(8, width - clock_cells - 6)
    )
    lines = []
    for k, (name, clock) in enumerate(zip(names, clocks, strict=True)):
        cell = Text(f"    {name}", end="")
        _fit(cell, name_cells + 4, signs)
        cell.pad_right(name_cells + 4 - cell.cell_len)
        late = elapsed_s[k] > 2 * (expected_s[k] or elapsed_s[k]) + 1
        lines.append(cell.append(f"  {clock}", style="yellow" if late else "dim"))
    if s.running > len(shown):
        lines.append(Text(f"    and {s.running - len(shown)} more", style="dim", end=""))
    return lines


def _clock(elapsed_s: float, expected_s: float | None, fraction: float) -> str:
    done = f", {100 * fraction:.0f} % done" if fraction else ""
    if expected_s is None:
        return f"{console.duration(elapsed_s)}{done}"
    return f"{console.duration(elapsed_s)} of about {console.duration(expected_s)}{done}"


class Painter:
    """Puts lines on a terminal, over those it put there before."""

    def __init__(self) -> None:
        self._widths: list[int] = []
        """How wide each line on the screen is."""

    def painted(self, lines: Sequence[Text], width: int, above: Sequence[Text] = ()) -> str:
        """What to write; `above` scrolls by and stays, `lines` will be painted over.

        Each line must be narrower than `width` and there must be fewer than the screen has rows.
        """
        # If the terminal has become narrower, it has broken our lines into more rows.
        rows = sum(max(1, -(-cells // max(1, width))) for cells in self._widths)
        back = f"\r\x1b[{rows}A" if rows else "\r"
        self._widths = [line.cell_len for line in lines]
        return f"{back}{rendered(above)}{rendered(lines)}\x1b[J"


class Live:
    """A face for a terminal."""

    def __init__(self, sink: Sink, outlook: DisplayOutlook) -> None:
        self._sink = sink
        self._outlook = outlook
        self._signs = UNICODE if sink.speaks_unicode else ASCII
        self._painter = Painter()
        self._told = 0

    def show(self, snapshot: Snapshot) -> None:
        width, rows = self._sink.size()
        news = [told for told in snapshot.told[self._told :] if told.kind not in BESIDE]
        self._told = len(snapshot.told)
        lines: list[Text] = []
        if not snapshot.over:
            # One column stays free: a terminal that wraps at its last one would add a row.
            now = time.time()
            lines = frame(snapshot, self._outlook, now, max(1, width - 1), rows - 1, self._signs)
        self._sink.write(self._painter.painted(lines, width, [told_line(one) for one in news]))


def told_line(told: Sentence) -> Text:
    return Text(told.text, style=STYLES.get(told.kind, ""))


def rendered(lines: Sequence[Text]) -> str:
    """The lines with colours, as the terminal and the user's environment want them.

    Each erases what was on its row; one that is wider than the screen wraps.
    """
    if not lines:
        return ""
    file = io.StringIO()
    terminal = Console(
        file=file,
        force_terminal=True,
        legacy_windows=False,
        width=2 * LINE_LENGTH_MAX,
        highlight=False,
        markup=False,
        emoji=False,
    )
    for line in lines:
        terminal.print(line, end="\x1b[K\n", soft_wrap=True)
    return file.getvalue()
