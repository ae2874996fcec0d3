"""A run as text: canonical JSON lines, and reading them back.

The first line is the header (format, version, run, graph); each further line is one event with
its origin and sequence. Keys are sorted and nothing depends on when or where it is exported, so
equal runs give equal text. Importing merges: lines that are known already change nothing, and
the order of the lines after the header does not matter.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Literal

import msgspec

from sureline.journal.events import AnyEvent
from sureline.journal.schema import POSITIONS_PER_EPOCH
from sureline.journal.store import Entry, Journal
from sureline.workflow.mistakes import UserError

_ORIGIN = "writer."


class _Header(msgspec.Struct, forbid_unknown_fields=True):
    format: Literal["sureline-journal"]
    graph: bytes
    run: str
    version: Literal[1]


class _Line(msgspec.Struct, forbid_unknown_fields=True):
    event: AnyEvent
    origin: str
    sequence: int


_encoder = msgspec.json.Encoder(order="sorted")
_header_decoder = msgspec.json.Decoder(_Header)
_line_decoder = msgspec.json.Decoder(_Line)


def export_jsonl(journal: Journal, run: str) -> Iterator[str]:
    """The lines of a run, without line ends."""
    return export_entries(run, journal.graph(run), journal.events(run))


def export_entries(run: str, graph: bytes, entries: Iterable[Entry]) -> Iterator[str]:
    """The same for a run that lies in no journal, such as a simulated one."""
    yield _encoder.encode(_Header("sureline-journal", graph, run, 1)).decode()
    for entry in entries:
        yield _encoder.encode(_Line(entry.event, entry.origin, entry.sequence)).decode()


def import_jsonl(journal: Journal, lines: Iterable[str]) -> str:
    """Merge exported lines into the journal, all or nothing, and return the run's name.

    The results are not offered for reuse: the files they name lie on another machine. Raises
    UserError for text that is no export, or that contradicts what the journal has of the run.
    """
    numbered = ((number, line) for number, line in enumerate(lines, 1) if line.strip())
    try:
        _, first = next(numbered)
        header = _header_decoder.decode(first)
    except StopIteration:
        raise UserError("the file is empty; export a run with its journal first") from None
    except msgspec.DecodeError as error:
        raise UserError(f"line 1 is not the header of an exported run: {error}") from error
    journal.merge(header.run, header.graph, _entries(numbered))
    return header.run


def exported_events(lines: Iterable[str]) -> list[AnyEvent]:
    """The events of an exported run, in order. Raises UserError as `import_jsonl`."""
    numbered = ((number, line) for number, line in enumerate(lines, 1) if line.strip())
    next(numbered, None)  # the header
    return [entry.event for entry in _entries(numbered)]


def _entries(numbered: Iterable[tuple[int, str]]) -> Iterator[Entry]:
    for number, text in numbered:
        try:
            line = _line_decoder.decode(text)
        except msgspec.DecodeError as error:
            raise UserError(f"line {number} is not an event: {error}") from error
        epoch = line.origin.removeprefix(_ORIGIN)
        if not epoch.isdecimal() or not 0 < line.sequence < POSITIONS_PER_EPOCH:
            raise UserError(f"line {number} has an unknown origin or sequence: {line.origin}")
        yield Entry(int(epoch) * POSITIONS_PER_EPOCH + line.sequence, line.event)
