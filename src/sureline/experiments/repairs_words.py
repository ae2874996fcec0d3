"""A comparison of ways to be in time, in lines for a terminal."""

from __future__ import annotations

from collections.abc import Iterator

from sureline.experiments.repairs import Repairs, Row

BAR = 20


def repairs_lines(found: Repairs) -> Iterator[str]:
    before = ""
    for row in found.rows:
        if row.scenario != before:
            if before:
                yield ""
            yield f"{row.scenario}, {row.runs} runs each; {in_hindsight(row)}"
            yield f"  {'way':<14} {'on time':<{BAR + 7}} money    median   repairs"
            before = row.scenario
        yield _line(row)
    yield ""
    yield "repair pays" if found.pays else "repair does not pay here"


def in_hindsight(row: Row) -> str:
    if row.least is None:
        return "none could be in time"
    return f"in hindsight {row.makeable:.0%} could be in time, for {row.least:.2f}"


def _line(row: Row) -> str:
    bar = "#" * round(BAR * row.on_time)
    return (
        f"  {row.way:<14} {row.on_time:5.2f} {bar:<{BAR}} {row.paid:6.2f} {row.took_s:8.0f} s"
        f" {row.repairs:8.1f}"
    )
