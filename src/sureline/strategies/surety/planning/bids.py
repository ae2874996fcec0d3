"""A table of bids, as a CSV file: who would do which service, for how much, in what time.

Columns, in any order: service, provider, cost, time, and either variance (time - variance to
time + variance, never below 0) or early and late; optional late_fee, cancel_fee, reserve_fee and
expires (time since the start of the workflow until which the service may be started). All numbers
are 0 or more, times in one unit of the table's own. Blank lines and lines that begin with # are
skipped.
"""

from __future__ import annotations

import csv
import io
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

import msgspec

from sureline.strategies.surety.contract import Bid
from sureline.workflow.collect import Collector, did_you_mean
from sureline.workflow.mistakes import Mistake
from sureline.world.address import PeerName

ROWS_MAX = 1_000_000
NUMBER_MAX = 1e15
_REQUIRED = ("service", "provider", "cost", "time")
_SPREAD = ("variance", "early", "late")
_FEES = ("late_fee", "cancel_fee", "reserve_fee")
_COLUMNS = (*_REQUIRED, *_SPREAD, *_FEES, "expires")


class Listed(msgspec.Struct, frozen=True):
    """A bid as it stands in a table. `label` is the provider's name, with a number where one
    provider bids more than once for one service: 'p1#2' is the second of p1's."""

    bid: Bid
    label: str
    line: int


class BidTable(msgspec.Struct, frozen=True):
    """The bids in the order of the file, and what is odd about it without being a mistake."""

    bids: tuple[Listed, ...]
    warnings: tuple[Mistake, ...] = ()


def read_bids(data: bytes, *, file: str) -> BidTable:
    """Raises WorkflowError with all mistakes that are in the table."""
    found = Collector(file)
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        found.add("bad text", "this is not UTF-8 text", "save the table as UTF-8", line)
        text = ""
    found.raise_if_any()
    rows = _rows(text, found)
    header = next(rows, None)
    if header is None:
        found.add("empty tables", "there is no header", f"begin with {','.join(_REQUIRED)},...")
        found.raise_if_any()
        return BidTable(())
    columns, warnings = _columns(header, found)
    found.raise_if_any()
    bids: list[tuple[Bid, int]] = []
    for line, cells in rows:
        bid = _Row(columns, len(header[1]), cells, line, found).bid()
        if bid is not None:
            bids.append((bid, line))
        if len(bids) > ROWS_MAX:
            found.add("long tables", f"there are more than {ROWS_MAX:,} bids", "give fewer", line)
            break
    found.raise_if_any()
    return BidTable(labelled(bids), tuple(warnings))


def labelled(bids: Sequence[tuple[Bid, int]]) -> tuple[Listed, ...]:
    """Every bid with a label that no other bid for its service has."""
    times = Counter((bid.service, bid.provider) for bid, _ in bids)
    taken = set(times)
    numbers: Counter[tuple[str, str]] = Counter()
    found = []
    for bid, line in bids:
        key, label = (bid.service, bid.provider), str(bid.provider)
        if times[key] > 1:
            while label == bid.provider or (bid.service, label) in taken:
                numbers[key] += 1
                label = f"{bid.provider}#{numbers[key]}"
        found.append(Listed(bid, label, line))
    return tuple(found)


def _rows(text: str, found: Collector) -> Iterator[tuple[int, list[str]]]:
    """(line, cells) of every row that says something."""
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    line = 1
    try:
        for cells in reader:
            stripped = [cell.strip() for cell in cells]
            if any(stripped) and not stripped[0].startswith("#"):
                yield line, stripped
            line = reader.line_num + 1
    except csv.Error as error:
        found.add("bad rows", f"this row cannot be read ({error})", "check its quotes", line)


def _columns(
    header: tuple[int, list[str]], found: Collector
) -> tuple[dict[str, int], list[Mistake]]:
    """Where the known columns are; a note for each that is not known."""
    line, cells = header
    names = [cell.lower() for cell in cells]
    warnings = []
    for name, count in Counter(names).items():
        if name and count > 1:
            found.add("columns given twice", f"column '{name}' is there {count} times", "", line)
        if name and name not in _COLUMNS:
            hint = did_you_mean(name, _COLUMNS)
            warnings.append(Mistake(f"column '{name}' is not used", hint, found.file, line))
    for name in _REQUIRED:
        if name not in names:
            hint = did_you_mean(name, names, "the first line names the columns, with commas")
            found.add("missing columns", f"there is no column '{name}'", hint, line)
    if "variance" not in names and not {"early", "late"} <= set(names):
        what = "there is neither a column 'variance' nor columns 'early' and 'late'"
        found.add("missing columns", what, "add variance, 0 where a time is certain", line)
    return {name: i for i, name in enumerate(names) if name in _COLUMNS}, warnings


class _Row:
    def __init__(
        self,
        columns: Mapping[str, int],
        width: int,
        cells: Sequence[str],
        line: int,
        found: Collector,
    ) -> None:
        self._columns = columns
        self._cells = cells
        self._line = line
        self._found = found
        self._good = True
        if any(cells[width:]):
            what = f"this row has {len(cells)} cells, the header {width}"
            self._wrong(what, "quote what contains a comma")

    def bid(self) -> Bid | None:
        for name in ("service", "provider"):
            if not self._cell(name):
                self._wrong(f"{name} is empty", f"name the {name}")
        cost, time = self._number("cost"), self._number("time")
        early, late = self._spread(time)
        fees = [self._number(name, 0.0) for name in _FEES]
        expires = self._number("expires", None) if self._cell("expires") else None
        if not self._good:
            return None
        return Bid(
            self._cell("service"),
            PeerName(self._cell("provider")),
            cost or 0.0,
            time or 0.0,
            early,
            late,
            fees[0] or 0.0,
            fees[1] or 0.0,
            fees[2] or 0.0,
            expires,
        )

    def _spread(self, time: float | None) -> tuple[float, float]:
        """The optimistic and the pessimistic duration."""
        variance, early, late = (self._cell(name) for name in _SPREAD)
        if variance and (early or late):
            self._wrong("it gives both variance and early or late", "leave one of them out")
        elif variance:
            by = self._number("variance")
            if by is not None and time is not None:
                return max(0.0, time - by), time + by
        elif early and late:
            low, high = self._number("early"), self._number("late")
            if low is not None and high is not None and time is not None:
                if not low <= time <= high:
                    what = f"early {low:g}, time {time:g} and late {high:g} are out of order"
                    self._wrong(what, "give early <= time <= late")
                return low, high
        elif early or late:
            self._wrong("it gives only one of early and late", "give both, or variance")
        else:
            self._wrong("it does not say how certain its time is", "give variance; 0 for certain")
        return 0.0, 0.0

    def _cell(self, name: str) -> str:
        position = self._columns.get(name)
        return self._cells[position] if position is not None and position < len(self._cells) else ""

    def _number(self, name: str, otherwise: float | None = math.nan) -> float | None:
        """A number of 0 or more; `otherwise` if the cell is empty and may be."""
        text = self._cell(name)
        if not text and (otherwise is None or not math.isnan(otherwise)):
            return otherwise
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        if 0 <= value <= NUMBER_MAX and "_" not in text:
            return value + 0.0  # -0 is 0
        what = f"{name} '{text[:50]}' is not a number of 0 or more" if text else f"{name} is empty"
        self._wrong(what, "write a plain number, such as 8 or 2.5")
        return None

    def _wrong(self, what: str, hint: str) -> None:
        self._good = False
        self._found.add("bad bids", what, hint, self._line)
