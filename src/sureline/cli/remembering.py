"""The command `history`: what is remembered of how long tasks took."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from sureline.cli import console
from sureline.cli.options import Directory, Json
from sureline.cli.reading import local_journal
from sureline.workflow.mistakes import UserError

if TYPE_CHECKING:
    from sureline.journal.history import KindSummary, Observed

STEADY = 0.1
"""A drift below this (10 %) is called steady."""
RUNS_SHOWN = 20


def history(
    kind: Annotated[
        str | None, Parameter(help="A kind of tasks: what it took, run by run. Default: all kinds.")
    ] = None,
    /,
    *,
    json: Json = False,
    directory: Directory = Path("."),
) -> int:
    """Show what tasks took in earlier runs, by kind: what forecasts rest on.

    Tasks of a kind are alike: count:00 and count:01 are of the kind count. Shown are how often it
    was seen and in how many runs, the middle duration, the spread (9 of 10 took longer than the
    first number, 9 of 10 less than the second), and whether newer runs take longer than older
    ones.

    Example: sureline history count
    """
    from sureline.journal.errors import NoJournalError

    kinds: list[KindSummary] = []
    seen: Sequence[Observed] = ()
    try:
        with local_journal(directory) as journal:
            kinds = journal.kinds()
            if kind is not None:
                seen = journal.durations([kind]).get(kind, ())
    except NoJournalError:
        pass
    if kind is not None:
        kinds = _only(kinds, kind)
    if json:
        console.print_json(_data(kinds, kind, seen))
    elif not kinds:
        console.say("nothing is remembered here yet; every run that succeeds adds to it")
    else:
        _table(kinds)
        if kind is not None:
            _runs(seen)
    return 0


def _only(kinds: Sequence[KindSummary], kind: str) -> list[KindSummary]:
    found = [one for one in kinds if one.kind == kind]
    if not found:
        from sureline.journal.words import listed

        known = listed([one.kind for one in kinds], most=5)
        other = f"; known are {known}" if known else "; every run that succeeds adds to it"
        raise UserError(f"nothing is remembered of a kind '{kind}' here{other}")
    return found


def _data(
    kinds: Sequence[KindSummary], kind: str | None, seen: Sequence[Observed]
) -> dict[str, Any]:
    rows = [
        {
            "kind": one.kind,
            "n": one.n,
            "runs": one.runs,
            "median_s": round(one.median_s, 6),
            "p10_s": round(one.p10_s, 6),
            "p90_s": round(one.p90_s, 6),
            "drift": None if one.drift is None else round(one.drift, 4),
            "newest": console.moment(one.newest),
        }
        for one in kinds
    ]
    if kind is None:
        return {"kinds": rows}
    observed = [
        {
            "run": one.run,
            "ended": console.moment(one.at),
            "elapsed_s": round(one.elapsed_s, 6),
            "input_bytes": one.input_bytes,
            "peer": one.peer,
        }
        for one in seen
    ]
    return {"kinds": rows, "observed": observed}


def _table(kinds: Sequence[KindSummary]) -> None:
    rows = [("kind", "n", "runs", "median", "spread", "drift", "newest")]
    rows += [
        (
            one.kind,
            f"{one.n:,}",
            f"{one.runs:,}",
            console.duration(one.median_s),
            f"{console.duration(one.p10_s)} .. {console.duration(one.p90_s)}",
            _drift(one.drift),
            console.moment(one.newest),
        )
        for one in kinds
    ]
    _print(rows)


def _runs(seen: Sequence[Observed]) -> None:
    """The newest runs, one line each."""
    import statistics

    by_run: dict[str, list[Observed]] = {}
    for one in seen:
        by_run.setdefault(one.run, []).append(one)
    rows = [("run", "n", "median", "newest")]
    rows += [
        (
            run,
            str(len(of_run)),
            console.duration(statistics.median(one.elapsed_s for one in of_run)),
            console.moment(of_run[0].at),
        )
        for run, of_run in list(by_run.items())[:RUNS_SHOWN]
    ]
    console.say()
    _print(rows)
    if len(by_run) > RUNS_SHOWN:
        console.say(f"and {len(by_run) - RUNS_SHOWN} older runs (all: --json)")


def _print(rows: Sequence[tuple[str, ...]]) -> None:
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    for row in rows:
        cells = [cell.ljust(width) for cell, width in zip(row, widths, strict=True)]
        console.say("  ".join(cells).rstrip())


def _drift(drift: float | None) -> str:
    """
    >>> _drift(None), _drift(1.02), _drift(1.5), _drift(0.5)
    ('-', 'steady', '+50 %', '-50 %')
    """
    if drift is None:
        return "-"
    return "steady" if abs(drift - 1) < STEADY else f"{100 * (drift - 1):+.0f} %"
