"""A plan in a terminal: what was chosen, the front, the distribution of the end, a Gantt chart."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import pairwise
from statistics import NormalDist
from typing import TYPE_CHECKING

from sureline.cli.console import counted, duration

if TYPE_CHECKING:
    from sureline.strategies.surety.planning.plan import FrontPoint, Plan

WIDTH = 60
HEIGHT = 12
FRONT_SHOWN = 12
TASKS_SHOWN = 20
PATH_SHOWN = 12


def lines(made: Plan) -> Iterator[str]:
    """The plan, or the refusal, and the pictures that belong to it."""
    if made.refused is not None:
        yield from _refusal(made)
    else:
        yield from _chosen(made)
    if len(made.front) > 1 or (made.front and made.refused is not None):
        yield ""
        yield from _front(made)
    if made.refused is None:
        yield ""
        yield from _distribution(made)
    if made.tasks:
        yield ""
        yield from _gantt(made)


def number(value: float | None) -> str:
    """Up to six digits, without the noise that sums of decimals have."""
    return "-" if value is None else f"{value:.6g}"


def when(made: Plan, value: float | None) -> str:
    """A time: in the unit of the bids, which nobody knows, or in seconds, minutes, hours."""
    if value is None or made.source == "bids":
        return number(value)
    return duration(value)


def percent(share: float | None) -> str:
    """Never rounded up to certainty."""
    if share is None:
        return "-"
    if 0.99995 <= share < 1:
        return "> 99.99 %"
    return f"{share * 100:.2f} %"


def _chosen(made: Plan) -> Iterator[str]:
    terms = made.terms
    asked = []
    if terms.deadline_at is not None:
        asked.append(
            f"within {when(made, terms.deadline_at)}, surety {percent(terms.surety)} or more"
        )
    if terms.budget is not None:
        asked.append(f"budget {number(terms.budget)}")
    yield f"{made.name}: " + ("; ".join(asked) if asked else "no terms")
    reserve = "" if made.reserve is None else f", leaving {number(made.reserve)} in reserve"
    yield f"  cost      {number(made.cost)}{reserve}"
    between = f"between {when(made, made.earliest)} and {when(made, made.latest)}"
    yield f"  expected  {when(made, made.expected)}, {between}"
    if made.surety is not None:
        error = f" +- {made.surety_error * 100:.2f}" if made.surety_error else ""
        yield f"  surety    {percent(made.surety)}{error} ({made.method})"
    if made.source != "bids":
        yield f"  source    {made.source}"
    if made.peers:
        yield f"  peers     {', '.join(made.peers[:PATH_SHOWN])}"
    if made.critical_path:
        path = made.critical_path[:PATH_SHOWN]
        more = [f"({len(made.critical_path) - PATH_SHOWN} more)"]
        yield "  critical  " + " -> ".join(path + more * (len(made.critical_path) > PATH_SHOWN))


def _refusal(made: Plan) -> Iterator[str]:
    assert made.refused is not None
    yield f"refused: {made.refused.why}"
    near = made.refused.nearest
    offers = []
    if near.within is not None:
        offers.append(f"--within {rounded_up(near.within)}")
    if near.budget is not None:
        offers.append(f"--budget {rounded_up(near.budget)}")
    if near.surety is not None:
        offers.append(f"--surety {rounded_down(near.surety)}")
    if offers:
        yield "one of these alone would do: " + ", or ".join(offers)
    elif made.front:
        yield "no change of one term alone would do; these plans there are:"


def rounded_up(value: float) -> str:
    """Six digits, and still enough."""
    return _rounded(value, math.ceil)


def rounded_down(value: float) -> str:
    return _rounded(value, math.floor)


def _rounded(value: float, way: object) -> str:
    if value == 0:
        return "0"
    digits = 5 - math.floor(math.log10(abs(value)))
    scaled = value * 10.0**digits
    near = round(scaled)
    exact = math.isclose(scaled, near, rel_tol=1e-12)
    whole = near if exact else (math.ceil(scaled) if way is math.ceil else math.floor(scaled))
    return f"{whole / 10.0**digits:.10g}"


def _front(made: Plan) -> Iterator[str]:
    none = "none" if made.exact else "none that was found"
    yield f"{counted(len(made.front), 'plan')} than which {none} is cheaper, quicker and surer:"
    chosen = _chosen_point(made)
    if not made.exact:
        yield (
            f"  (for any other there is one of these that is expected at most "
            f"{number(made.error.expected)} later and costs at most {number(made.error.cost)} more"
        )
        if chosen is not None and chosen.cost_at_least is not None:
            least = number(chosen.cost_at_least)
            yield f"   no plan that is expected as early as the chosen one costs less than {least})"
    shown = _spread(made.front, chosen)
    yield f"    {'cost':>10} {'expected':>10} {'surety':>10}"
    for point in shown:
        mark = "*" if point is chosen else " "
        row = (
            f"{number(point.cost):>10} {when(made, point.expected):>10} {percent(point.surety):>10}"
        )
        yield f"  {mark} {row}"
    if len(shown) < len(made.front):
        yield f"    ... {len(made.front)} in all; --json lists them"
    if len(made.front) > 1:
        yield ""
        yield from _scatter(made, chosen)


def _chosen_point(made: Plan) -> FrontPoint | None:
    return next((point for point in made.front if made.chose(point)), None)


def _spread(front: Sequence[FrontPoint], chosen: FrontPoint | None) -> list[FrontPoint]:
    """Few enough to read, the ends and the chosen one among them."""
    if len(front) <= FRONT_SHOWN:
        return list(front)
    step = (len(front) - 1) / (FRONT_SHOWN - 1)
    rows = {round(k * step) for k in range(FRONT_SHOWN)}
    return [p for row, p in enumerate(front) if row in rows or p is chosen]


def _scatter(made: Plan, chosen: FrontPoint | None) -> Iterator[str]:
    """Expected time to the right, cost upwards."""
    times = [p.expected for p in made.front]
    costs = [p.cost for p in made.front]
    grid = [[" "] * WIDTH for _ in range(HEIGHT)]
    deadline = made.terms.deadline_at
    low, high = min(times), max(times)
    if deadline is not None and low <= deadline <= high + (high - low):
        high = max(high, deadline)
        for row in grid:
            row[_place(deadline, low, high, WIDTH)] = "¦"
    for point in [*made.front, *([chosen] if chosen else [])]:
        x = _place(point.expected, low, high, WIDTH)
        y = HEIGHT - 1 - _place(point.cost, min(costs), max(costs), HEIGHT)
        grid[y][x] = "●" if point is chosen else "○"
    labels = {0: number(max(costs)), HEIGHT - 1: number(min(costs))}
    wide = max(4, *(len(label) for label in labels.values()))
    yield f"  {'cost':>{wide}}"
    for y, row in enumerate(grid):
        yield f"  {labels.get(y, ''):>{wide}} │{''.join(row).rstrip()}"
    yield f"  {'':>{wide}} └{'─' * WIDTH}"
    first, last = when(made, low), when(made, high)
    yield f"  {'':>{wide}}  {first}{last:>{WIDTH - len(first)}}  expected end"


def _place(value: float, low: float, high: float, cells: int) -> int:
    share = (value - low) / (high - low) if high > low else 0.0
    return min(cells - 1, max(0, round(share * (cells - 1))))


def _distribution(made: Plan) -> Iterator[str]:
    """How the end is spread, as a row of bars, the deadline marked."""
    ats = [at for _, at in made.quantiles]
    if not ats or ats[-1] <= ats[0]:
        yield f"the end: {number(made.expected)} for certain, as {made.method} sees it"
        return
    deadline = made.terms.deadline_at
    room = (ats[-1] - ats[0]) * 0.05
    low, high = max(0.0, ats[0] - room), ats[-1] + room
    if deadline is not None and low - (high - low) <= deadline <= high + (high - low):
        low, high = min(low, deadline), max(high, deadline)
    edges = [low + (high - low) * k / WIDTH for k in range(WIDTH + 1)]
    shares = [chance_by(made, edge) for edge in edges]
    bars = [b - a for a, b in pairwise(shares)]
    top = max(bars)
    marks = " ▁▂▃▄▅▆▇█"
    yield "when it ends:"
    yield "  " + "".join(marks[math.ceil(8 * bar / top) if bar > 0 else 0] for bar in bars)
    if deadline is not None and low <= deadline <= high:
        yield "  " + " " * _place(deadline, low, high, WIDTH) + f"¦ {when(made, deadline)}"
    first, last = when(made, low), when(made, high)
    yield f"  {first}{last:>{WIDTH - len(first)}}"


def chance_by(made: Plan, at: float) -> float:
    """The chance of an end by then: between the quantiles as a straight line, outside 0 or 1."""
    known = made.quantiles
    if made.method == "pert" and made.expected is not None and known[-1][1] > known[0][1]:
        sigma = (known[-1][1] - known[0][1]) / (2 * NormalDist().inv_cdf(known[-1][0]))
        return NormalDist(made.expected, sigma).cdf(at)
    if at <= known[0][1]:
        return 0.0
    for (low, low_at), (high, high_at) in pairwise(known):
        if at <= high_at:
            share = (at - low_at) / (high_at - low_at) if high_at > low_at else 1.0
            return low + (high - low) * share
    return 1.0


def _gantt(made: Plan) -> Iterator[str]:
    """When the tasks are expected to run; what is critical is drawn solid."""
    end = max(step.end for step in made.tasks)
    few = len(made.tasks) <= TASKS_SHOWN
    kept = [step for step in made.tasks if few or step.critical]
    shown = sorted(kept, key=lambda step: (step.start, step.end))[:TASKS_SHOWN]
    wide = min(20, max(len(step.task) for step in shown))
    side = min(24, max(len(f"{step.service} {step.provider}") for step in shown))
    yield "who does what, when (█ critical, ░ slack):"
    for step in shown:
        first, last = (_cell(at, end) for at in (step.start, step.end))
        slack = _cell(step.end + step.slack, end)
        bar = " " * first + ("█" if step.critical else "▒") * max(1, last - first)
        bar = bar[:WIDTH].ljust(last) + "░" * max(0, slack - max(last, len(bar)))
        who = f"{step.service} {step.provider}".strip()
        cost = number(step.cost) if made.source == "bids" else ""
        yield (
            f"  {_cut(step.task, wide):<{wide}} {bar:<{WIDTH}} "
            f"{_cut(who, side):<{side}} {cost}".rstrip()
        )
    if len(made.tasks) > len(shown):
        yield f"  (critical ones of {len(made.tasks)} tasks; --html draws more, --json lists all)"
    yield f"  {'':<{wide}} 0{when(made, end):>{WIDTH - 1}}"


def _cell(at: float, end: float) -> int:
    return round(at / end * WIDTH) if end > 0 else 0


def _cut(text: str, wide: int) -> str:
    return text if len(text) <= wide else text[: wide - 1] + "…"
