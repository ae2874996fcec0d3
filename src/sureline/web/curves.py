"""Pages of reproduced experiments: a frame that asks nothing of any network, and curves in SVG."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from html import escape
from typing import NamedTuple

WIDTH, HEIGHT, MARGIN = 460.0, 300.0, 44.0
COLOURS = ("#1f6feb", "#c2571a", "#2da44e", "#8250df", "#bf3989")
_STYLE = """
:root{color-scheme:light dark;--ink:#1d2430;--soft:#5c6675;--ground:#fff;--line:#d5dae2}
@media(prefers-color-scheme:dark){:root{--ink:#e6e9ee;--soft:#9aa5b5;--ground:#14181f;--line:#3a4453}}
body{font:15px/1.5 system-ui,sans-serif;color:var(--ink);background:var(--ground);max-width:70rem;
margin:2rem auto;padding:0 1rem}h1{font-size:1.4rem}h2{font-size:1.1rem;margin-top:2rem}
svg{max-width:100%;height:auto}svg text{fill:var(--soft);font-size:12px}
.axis{stroke:var(--line)}.curve{fill:none;stroke-width:1.6}.diagrams{display:flex;flex-wrap:wrap;gap:1rem;align-items:flex-start}
pre{overflow-x:auto;font-size:13px}
table{border-collapse:collapse;font-variant-numeric:tabular-nums}
th,td{padding:.2rem .7rem;text-align:right;border-bottom:1px solid var(--line)}
.words th,.words td{text-align:left}
"""

Words = Callable[[float], str]


class Curve(NamedTuple):
    label: str
    points: Sequence[tuple[float, float]]


def page(title: str, parts: Iterable[str], lines: Iterable[str]) -> str:
    """`lines` is all that the command says, and comes last."""
    return "\n".join(
        [
            "<!doctype html>",
            '<html lang="en"><head><meta charset="utf-8">',
            '<meta http-equiv="Content-Security-Policy" content="default-src \'none\'; '
            "style-src 'unsafe-inline'\">",
            f"<title>{escape(title)}</title><style>{_STYLE}</style></head><body>",
            f"<h1>{escape(title)}</h1>",
            *parts,
            "<h2>All numbers</h2><pre>",
            *(escape(line) for line in lines),
            "</pre></body></html>\n",
        ]
    )


def diagram(
    title: str, curves: Sequence[Curve], most_x: float, most_y: float, of_x: Words, of_y: Words
) -> str:
    """Curves from the origin to (`most_x`, `most_y`); `of_x` and `of_y` put numbers into words."""

    def x(value: float) -> float:
        return MARGIN + (WIDTH - MARGIN - 10) * min(1.0, value / (most_x or 1.0))

    def y(value: float) -> float:
        return HEIGHT - MARGIN - (HEIGHT - MARGIN - 24) * min(1.0, value / (most_y or 1.0))

    drawn = [
        f'<svg viewBox="0 0 {WIDTH:g} {HEIGHT:g}" width="{WIDTH:g}" role="img">'
        f"<title>{escape(title)}</title>"
        f'<text x="{MARGIN:g}" y="16">{escape(title)}</text>'
        f'<path class="axis" d="M{x(0):.1f} {y(most_y):.1f}V{y(0):.1f}H{x(most_x):.1f}" '
        'fill="none"/>'
    ]
    for step in range(3):
        value = most_y * step / 2
        drawn.append(f'<text x="6" y="{y(value) + 4:.1f}">{escape(of_y(value))}</text>')
    for step in range(5):
        value, anchor = most_x * step / 4, "end" if step == 4 else "middle"
        drawn.append(
            f'<text x="{x(value):.1f}" y="{HEIGHT - 24:g}" text-anchor="{anchor}">'
            f"{escape(of_x(value))}</text>"
        )
    for number, curve in enumerate(curves):
        colour = COLOURS[number % len(COLOURS)]
        points = " ".join(f"{x(a):.1f},{y(b):.1f}" for a, b in curve.points)
        drawn.append(f'<polyline class="curve" stroke="{colour}" points="{points}"/>')
        drawn.append(
            f'<text x="{WIDTH - 12:g}" y="{HEIGHT - MARGIN - 16 * (len(curves) - number):g}" '
            f'text-anchor="end" style="fill:{colour}">{escape(curve.label)}</text>'
        )
    return "".join([*drawn, "</svg>"])


class Bars(NamedTuple):
    label: str
    values: Sequence[float]


def bar_chart(title: str, rows: Sequence[Bars], legend: Sequence[str] = ()) -> str:
    """A group of lying bars for each row, with its numbers; `legend` names the bars of a group."""
    most = max((value for row in rows for value in row.values), default=1.0) or 1.0
    left, step, top = 118.0, 11.0, 26.0 + 14 * bool(legend)
    height = top + sum(step * len(row.values) + 8 for row in rows) + 6
    drawn = [
        f'<svg viewBox="0 0 {WIDTH:g} {height:g}" width="{WIDTH:g}" role="img">'
        f'<title>{escape(title)}</title><text x="4" y="16">{escape(title)}</text>'
    ]
    for number, word in enumerate(legend):
        colour = COLOURS[number % len(COLOURS)]
        at = left + 76 * number
        drawn.append(f'<text x="{at:g}" y="31" style="fill:{colour}">{escape(word)}</text>')
    y = top
    for row in rows:
        middle = y + step * len(row.values) / 2 + 4
        drawn.append(
            f'<text x="{left - 6:g}" y="{middle:g}" text-anchor="end">{escape(row.label)}</text>'
        )
        for number, value in enumerate(row.values):
            colour, wide = COLOURS[number % len(COLOURS)], (WIDTH - left - 60) * value / most
            drawn.append(
                f'<rect x="{left:g}" y="{y:g}" width="{wide:.1f}" height="{step - 2:g}" '
                f'fill="{colour}"/><text x="{left + wide + 4:.1f}" y="{y + step - 3:g}" '
                f'style="font-size:10px">{value:g}</text>'
            )
            y += step
        y += 8
    return "".join([*drawn, "</svg>"])
