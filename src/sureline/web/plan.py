"""A plan as one HTML page: the front, when it would end, who does what when. No script."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from html import escape
from itertools import pairwise
from statistics import NormalDist
from typing import NamedTuple

from sureline.strategies.surety.planning.plan import FrontPoint, Plan, Step

WIDTH, HEIGHT = 720.0, 300.0
LEFT, RIGHT, TOP, BOTTOM = 70.0, 24.0, 20.0, 44.0
ROW = 22.0
TASKS_MAX = 400
ROWS_MAX = 1_000
ROWS_OPEN = 12
"""A longer table is shown when it is asked for."""

_STYLE = """
:root{color-scheme:light dark;--ground:light-dark(#f4f5f7,#0f1319);--card:light-dark(#fff,#171c24);
--line:light-dark(#dde1e7,#2c3440);--ink:light-dark(#1d2430,#e6e9ee);
--soft:light-dark(#5c6675,#9aa5b5);--one:light-dark(#3b6fb0,#7aa9e0);
--pick:light-dark(#2c7a57,#57b38a);--late:light-dark(#bd3124,#f07f72)}
body{margin:0;background:var(--ground);color:var(--ink);
font:15px/1.5 system-ui,-apple-system,"Segoe UI","DejaVu Sans",sans-serif}
main{max-width:860px;margin:0 auto;padding:28px}
section{background:var(--card);border:1px solid var(--line);border-radius:12px;padding:18px 24px;
margin:18px 0}
h1{font-size:26px;margin:0 0 6px;overflow-wrap:anywhere}h2{font-size:17px;margin:0 0 8px}
p{margin:0 0 10px}.soft{color:var(--soft)}.refused{color:var(--late);font-weight:600}
dl{display:flex;flex-wrap:wrap;gap:8px 34px;margin:12px 0 0}dt{color:var(--soft);font-size:13px}
dd{margin:0;font-size:18px}table{border-collapse:collapse;font-size:14px}
td,th{padding:3px 16px 3px 0;text-align:right;font-weight:400}th{color:var(--soft)}
td:last-child,th:last-child{text-align:left;overflow-wrap:anywhere}
tr.pick td{font-weight:650;color:var(--pick)}
svg{display:block;width:100%;height:auto}text{font-size:12px;fill:var(--ink)}
text.soft{fill:var(--soft)}.axis{stroke:var(--line);fill:none}.stairs{stroke:var(--one);
fill:none;opacity:.45}.dot{fill:var(--card);stroke:var(--one);stroke-width:2}
.dot.sure{fill:var(--one)}.dot.pick{fill:var(--pick);stroke:var(--pick)}
.deadline{stroke:var(--late);stroke-width:1.5;stroke-dasharray:5 4}.mark{fill:var(--late)}
.curve{fill:var(--one);fill-opacity:.25;stroke:var(--one);stroke-width:1.6}
.bar{fill:var(--one)}.bar.critical{fill:var(--pick)}.slack{fill:var(--soft);opacity:.3}
"""


def page(made: Plan) -> str:
    """The page, as text; it needs nothing else."""
    parts = [_head(made)]
    if len(made.front) > 1 or (made.front and made.refused is not None):
        parts.append(_section("What can be had", _front_words(made), _front(made), _table(made)))
    if made.quantiles:
        parts.append(_section("When it would end", "", _distribution(made)))
    if made.tasks:
        parts.append(_section("Who does what, when", _gantt_words(made), _gantt(made)))
    title = _text(f"{made.name} \u00b7 plan")
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta http-equiv="Content-Security-Policy" '
        "content=\"default-src 'none'; style-src 'unsafe-inline'\">"
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        f"<title>{title}</title><style>{_STYLE}</style></head>\n<body><main>\n"
        + "\n".join(parts)
        + "\n</main></body></html>\n"
    )


def _head(made: Plan) -> str:
    terms = made.terms
    asked = []
    if terms.deadline_at is not None:
        within = f"{_number(terms.deadline_at)}{'' if made.source == 'bids' else ' s'}"
        asked.append(f"within {within}, surety {terms.surety:.4g} or more")
    if terms.budget is not None:
        asked.append(f"for at most {_number(terms.budget)}")
    told = f'<h1>{_text(made.name)}</h1><p class="soft">{"; ".join(asked) or "no terms"}</p>'
    if made.refused is not None:
        near = made.refused.nearest
        named = (("within", near.within), ("budget", near.budget), ("surety", near.surety))
        offers = [f"{name} {value:.6g}" for name, value in named if value is not None]
        would = f"One of these alone would do: {', or '.join(offers)}." if offers else ""
        return f'{told}<p class="refused">Refused: {_text(made.refused.why)}.</p><p>{would}</p>'
    facts = [
        ("cost", _number(made.cost)),
        ("reserve", _number(made.reserve)),
        (f"expected end{_unit(made)}", _number(made.expected)),
        (f"between{_unit(made)}", f"{_number(made.earliest)} and {_number(made.latest)}"),
        ("surety", _percent(made.surety)),
        ("by", made.method),
    ]
    listed = "".join(f"<div><dt>{name}</dt><dd>{value}</dd></div>" for name, value in facts)
    path = " \u2192 ".join(made.critical_path[:40])
    critical = f'<p class="soft">critical path: {_text(path)}</p>' if path else ""
    return f"{told}<dl>{listed}</dl>{critical}"


def _section(title: str, words: str, *parts: str) -> str:
    told = f'<p class="soft">{_text(words)}</p>' if words else ""
    return f"<section><h2>{title}</h2>{told}{''.join(parts)}</section>"


def _front_words(made: Plan) -> str:
    if made.exact:
        return "No plan is cheaper, quicker and surer than any of these. Filled: sure enough."
    return (
        "Of the plans that were looked at, none is cheaper, quicker and surer than any of these. "
        f"Of any other plan, one of these is at most {_number(made.error.expected)} later and "
        f"{_number(made.error.cost)} dearer."
    )


class _Axis(NamedTuple):
    low: float
    high: float
    start: float
    length: float

    def at(self, value: float) -> float:
        share = (value - self.low) / (self.high - self.low) if self.high > self.low else 0.5
        return self.start + share * self.length


def _axis(values: Sequence[float], start: float, length: float) -> _Axis:
    """Some room on both sides."""
    room = (max(values) - min(values)) * 0.06 or max(1.0, abs(max(values))) * 0.05
    return _Axis(min(values) - room, max(values) + room, start, length)


def _front(made: Plan) -> str:
    times = [point.expected for point in made.front]
    deadline = made.terms.deadline_at
    if deadline is not None and deadline <= max(times) + 2 * (max(times) - min(times)) + 1:
        times.append(deadline)
    x = _axis(times, LEFT, WIDTH - LEFT - RIGHT)
    costs = [point.cost for point in made.front]
    y = _axis(costs, HEIGHT - BOTTOM, -(HEIGHT - TOP - BOTTOM))
    drawn = [*_axes(x, y, f"expected end{_unit(made)}", "cost"), *_deadline(deadline, x)]
    stairs = _stairs(made.front, x, y)
    drawn.append(f'<path class="stairs" d="{stairs}"/>')
    for point in made.front:
        told = (
            f"cost {_number(point.cost)}, expected {_number(point.expected)}, "
            f"surety {_percent(point.surety)}"
        )
        drawn.append(
            f'<circle class="{_dot(made, point)}" cx="{x.at(point.expected):.1f}" '
            f'cy="{y.at(point.cost):.1f}" r="5"><title>{told}</title></circle>'
        )
    return _svg(HEIGHT, "The front: cost against the expected end", drawn)


def _dot(made: Plan, point: FrontPoint) -> str:
    if made.chose(point):
        return "dot pick"
    sure = point.surety is None or point.surety >= made.terms.surety
    return "dot sure" if sure else "dot"


def _stairs(front: Sequence[FrontPoint], x: _Axis, y: _Axis) -> str:
    """The edge of what can be had for less money with more time."""
    edge, best = "", math.inf
    for point in sorted(front, key=lambda p: (p.expected, p.cost)):
        if point.cost < best:
            best = point.cost
            at = f"{x.at(point.expected):.1f}"
            edge += f"H{at}V{y.at(best):.1f}" if edge else f"M{at} {y.at(best):.1f}"
    return edge


def _table(made: Plan) -> str:
    rows = []
    for point in made.front[:ROWS_MAX]:
        named = [f"{task} {by}" for task, by in point.assignment.items()] or point.peers
        who, more = ", ".join(named[:8]), " \u2026" if len(named) > 8 else ""
        css = ' class="pick"' if made.chose(point) else ""
        rows.append(
            f"<tr{css}><td>{_number(point.cost)}</td><td>{_number(point.expected)}</td>"
            f"<td>{_percent(point.surety)}</td><td>{_text(who)}{more}</td></tr>"
        )
    head = "<tr><th>cost</th><th>expected</th><th>surety</th><th>who</th></tr>"
    table = f"<table>{head}{''.join(rows)}</table>"
    if len(rows) <= ROWS_OPEN:
        return table
    return f"<details><summary>all {len(made.front)} plans</summary>{table}</details>"


def _distribution(made: Plan) -> str:
    ats = [at for _, at in made.quantiles]
    deadline = made.terms.deadline_at
    if ats[-1] <= ats[0]:
        return f"<p>{_number(ats[0])}, for certain, as {made.method} sees it.</p>"
    known = [*ats, *([deadline] if deadline is not None else [])]
    x = _axis(known, LEFT, WIDTH - LEFT - RIGHT)
    curve = _density(made)
    top = max(height for _, height in curve)
    y = _Axis(0.0, top * 1.08, 220.0 - BOTTOM, -(220.0 - TOP - BOTTOM))
    path = f"M{x.at(curve[0][0]):.1f} {y.at(0):.1f}"
    path += "".join(f"L{x.at(at):.1f} {y.at(height):.1f}" for at, height in curve)
    path += f"L{x.at(curve[-1][0]):.1f} {y.at(0):.1f}Z"
    drawn = [
        f'<path class="curve" d="{path}"/>',
        *_ticks(x, 220.0 - BOTTOM, f"when it ends{_unit(made)}"),
        *_deadline(deadline, x, 220.0 - BOTTOM),
    ]
    return _svg(220.0, "How likely each end is", drawn)


def _density(made: Plan) -> list[tuple[float, float]]:
    """(time, density) along the curve: the normal one of PERT, or steps between quantiles."""
    known = made.quantiles
    if made.method == "pert" and made.expected is not None:
        sigma = (known[-1][1] - known[0][1]) / (2 * NormalDist().inv_cdf(known[-1][0]))
        normal = NormalDist(made.expected, sigma)
        ats = [made.expected + sigma * (k - 60) / 20 for k in range(121)]
        return [(at, normal.pdf(at)) for at in ats]
    middle = []
    for (low, low_at), (high, high_at) in pairwise(known):
        if high_at > low_at:
            middle.append(((low_at + high_at) / 2, (high - low) / (high_at - low_at)))
    return [(known[0][1], 0.0), *middle, (known[-1][1], 0.0)]


def _gantt_words(made: Plan) -> str:
    shown = len(made.tasks) if len(made.tasks) <= TASKS_MAX else TASKS_MAX
    more = f" The first {shown} of {len(made.tasks)} tasks." if shown < len(made.tasks) else ""
    return "If every task takes its expected time. Green: critical; grey: slack." + more


def _gantt(made: Plan) -> str:
    steps = sorted(made.tasks, key=lambda s: (s.start, s.end))[:TASKS_MAX]
    end = max(step.end + step.slack for step in steps)
    left = 150.0
    deadline_at = made.terms.deadline_at
    if deadline_at is not None and end < deadline_at <= 2 * end:
        end = deadline_at
    x = _Axis(0.0, end or 1.0, left, WIDTH - left - RIGHT)
    bottom = TOP + ROW * len(steps)
    bars = (part for row, step in enumerate(steps) for part in _bar(step, row, x))
    deadline = _deadline(made.terms.deadline_at, x, bottom)
    drawn = [*bars, *_ticks(x, bottom, f"time{_unit(made)}"), *deadline]
    return _svg(bottom + BOTTOM, "Who does what, when", drawn)


def _bar(step: Step, row: int, x: _Axis) -> Iterator[str]:
    y = TOP + ROW * row
    who = f"{step.service} by {step.provider}" if step.provider else step.service
    told = f"{step.task}: {who}, {_number(step.start)} to {_number(step.end)}"
    told += f", cost {_number(step.cost)}"
    wide = max(1.0, x.at(step.end) - x.at(step.start))
    if step.slack > 0:
        extra = x.at(step.end + step.slack) - x.at(step.end)
        yield (
            f'<rect class="slack" x="{x.at(step.end):.1f}" y="{y + 7:.1f}" '
            f'width="{extra:.1f}" height="8"/>'
        )
    css = "bar critical" if step.critical else "bar"
    yield (
        f'<rect class="{css}" x="{x.at(step.start):.1f}" y="{y + 4:.1f}" width="{wide:.1f}" '
        f'height="14" rx="3"><title>{_text(told)}</title></rect>'
    )
    label = step.task if len(step.task) <= 20 else step.task[:19] + "\u2026"
    yield f'<text x="{x.start - 8:.0f}" y="{y + 15:.0f}" text-anchor="end">{_text(label)}</text>'


def _axes(x: _Axis, y: _Axis, x_words: str, y_words: str) -> Iterator[str]:
    yield from _ticks(x, y.start, x_words)
    for value in _round_numbers(y.low, y.high):
        at = y.at(value)
        yield f'<path class="axis" d="M{LEFT:.0f} {at:.1f}H{WIDTH - RIGHT:.0f}"/>'
        yield (
            f'<text class="soft" x="{LEFT - 8:.0f}" y="{at + 4:.1f}" '
            f'text-anchor="end">{_number(value)}</text>'
        )
    yield f'<text class="soft" x="{LEFT + 4:.0f}" y="{TOP - 4:.0f}">{y_words}</text>'


def _ticks(x: _Axis, y: float, words: str) -> Iterator[str]:
    yield f'<path class="axis" d="M{x.start:.0f} {y:.1f}h{x.length:.0f}"/>'
    for value in _round_numbers(x.low, x.high):
        yield (
            f'<text class="soft" x="{x.at(value):.1f}" y="{y + 16:.1f}" '
            f'text-anchor="middle">{_number(value)}</text>'
        )
    yield (
        f'<text class="soft" x="{x.start + x.length:.0f}" y="{y + 34:.1f}" '
        f'text-anchor="end">{words}</text>'
    )


def _deadline(deadline: float | None, x: _Axis, bottom: float = HEIGHT - BOTTOM) -> Iterator[str]:
    if deadline is None or not x.low <= deadline <= x.high:
        return
    at = x.at(deadline)
    yield f'<path class="deadline" d="M{at:.1f} 0V{bottom:.1f}"/>'
    side, anchor = (-6, "end") if at > WIDTH / 2 else (6, "start")
    yield (
        f'<text class="mark" x="{at + side:.1f}" y="11" '
        f'text-anchor="{anchor}">deadline {_number(deadline)}</text>'
    )


def _round_numbers(low: float, high: float) -> list[float]:
    """About five round values inside."""
    raw = (high - low) / 5
    if not raw > 0:
        return [low]
    unit = 10.0 ** math.floor(math.log10(raw))
    step = next(unit * m for m in (1, 2, 5, 10) if unit * m >= raw)
    first = math.ceil(low / step)
    return [k * step for k in range(first, math.floor(high / step) + 1)]


def _svg(height: float, said: str, drawn: Sequence[str]) -> str:
    return (
        f'<svg viewBox="0 0 {WIDTH:.0f} {height:.0f}" role="img" aria-label="{said}">'
        + "\n".join(drawn)
        + "</svg>"
    )


def _unit(made: Plan) -> str:
    """Bids do not say in what unit they count."""
    return "" if made.source == "bids" else " (s)"


def _text(text: str) -> str:
    return escape("".join(c if c >= " " else "\ufffd" for c in text))


def _number(value: float | None) -> str:
    return "\u2013" if value is None else f"{value:.6g}"


def _percent(share: float | None) -> str:
    if share is None:
        return "\u2013"
    return "> 99.99 %" if 0.99995 <= share < 1 else f"{share * 100:.2f} %"
