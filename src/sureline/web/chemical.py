"""Reproduced experiments on the chemically coordinated shared space as one HTML page that asks
nothing of any network."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from html import escape

from sureline.experiments.chemical_result import ChemicalCell, ChemicalReproduced
from sureline.experiments.chemical_words import lines
from sureline.web.curves import COLOURS, HEIGHT, MARGIN, WIDTH, page

_LEFT, _TOP = 64.0, 30.0
_SHOWN = 360.0
"""As wide as three of them fit beside each other."""
Measure = Callable[[ChemicalCell], float]
_FIGURES: tuple[tuple[str, Measure], ...] = (
    ("Fig. 6: steps of a workflow", lambda cell: cell.mean_steps),
    ("Fig. 7: messages", lambda cell: float(cell.messages)),
    ("Fig. 8: messages per node", lambda cell: cell.messages_per_node),
)


def chemical_page(made: ChemicalReproduced) -> str:
    """The three figures under both assumptions, the claims, and all that the command says."""
    parts = []
    for exclusive in (False, True):
        cells = [cell for cell in made.cells if cell.exclusive == exclusive]
        parts.append(f"<h2>{'Exclusive capture' if exclusive else 'As the paper assumes'}</h2>")
        parts.append('<div class="diagrams">')
        parts += [_diagram(name, cells, of, logarithmic=n > 0) for n, (name, of) in _numbered()]
        parts.append("</div>")
    claims = [(claim.what, claim.ours, claim.verdict) for claim in made.claims]
    steps = [(step.said, step.left) for step in made.fig5]
    parts += _table("What the paper says", ("the paper", "ours", ""), claims)
    parts += _table("Fig. 5: five tasks on four resources", ("", "what is left"), steps)
    return page(made.paper, parts, lines(made))


def _table(title: str, heads: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    yield f'<h2>{escape(title)}</h2><table class="words">'
    for kind, cells in [("th", heads), *(("td", row) for row in rows)]:
        yield f"<tr>{''.join(f'<{kind}>{escape(cell)}</{kind}>' for cell in cells)}</tr>"
    yield "</table>"


def _numbered() -> Sequence[tuple[int, tuple[str, Measure]]]:
    return list(enumerate(_FIGURES))


def _diagram(name: str, cells: Sequence[ChemicalCell], of: Measure, *, logarithmic: bool) -> str:
    """One curve for each number of workflows, over the nodes."""
    low, high = min(c.nodes for c in cells), max(c.nodes for c in cells)
    values = [max(of(cell), 1e-3) for cell in cells]
    bottom = math.floor(math.log10(min(values))) if logarithmic else 0.0
    top = math.ceil(math.log10(max(values))) if logarithmic else max(values) * 1.05

    def x(nodes: int) -> float:
        share = (math.log10(nodes) - math.log10(low)) / max(1e-9, math.log10(high / low))
        return _LEFT + (WIDTH - _LEFT - 90) * share

    def y(value: float) -> float:
        shown = math.log10(max(value, 1e-3)) if logarithmic else value
        share = (shown - bottom) / max(1e-9, top - bottom)
        return HEIGHT - MARGIN - (HEIGHT - MARGIN - _TOP) * share

    drawn = [
        f'<svg viewBox="0 0 {WIDTH:g} {HEIGHT:g}" width="{_SHOWN:g}" role="img">'
        f"<title>{escape(name)}, over the number of nodes</title>"
        f'<text x="{_LEFT:g}" y="16">{escape(name)}, by nodes</text>'
        f'<path class="axis" d="M{_LEFT:g} {_TOP:g}V{HEIGHT - MARGIN:g}H{WIDTH - 90:g}" '
        'fill="none"/>'
    ]
    for tick in _ticks(bottom, top, logarithmic=logarithmic):
        drawn.append(f'<text x="4" y="{y(tick) + 4:.1f}">{_short(tick)}</text>')
    for nodes in sorted({cell.nodes for cell in cells}):
        drawn.append(f'<text x="{x(nodes) - 14:.1f}" y="{HEIGHT - 24:g}">{_short(nodes)}</text>')
    ends: list[tuple[float, str, str]] = []
    for number, workflows in enumerate(sorted({cell.workflows for cell in cells})):
        colour = COLOURS[number % len(COLOURS)]
        those = [cell for cell in cells if cell.workflows == workflows]
        points = " ".join(f"{x(cell.nodes):.1f},{y(of(cell)):.1f}" for cell in those)
        drawn.append(f'<polyline class="curve" stroke="{colour}" points="{points}"/>')
        ends.append((y(of(those[-1])), colour, f"{workflows:,} flows"))
    return "".join([*drawn, *_labels(ends), "</svg>"])


def _labels(ends: Sequence[tuple[float, str, str]]) -> Iterator[str]:
    """Beside the ends of their curves, from the lowest up, none over another."""
    lowest = HEIGHT
    for y, colour, text in sorted(ends, reverse=True):
        lowest = min(y + 4, lowest - 14)
        yield f'<text x="{WIDTH - 86:g}" y="{lowest:.1f}" style="fill:{colour}">{text}</text>'


def _ticks(bottom: float, top: float, *, logarithmic: bool) -> list[float]:
    if logarithmic:
        return [10.0**power for power in range(int(bottom), int(top) + 1)]
    rough = top / 4
    size = 10.0 ** math.floor(math.log10(rough))
    step = next(size * times for times in (1, 2, 5, 10) if size * times >= rough)
    return [step * number for number in range(int(top / step) + 1)]


def _short(value: float) -> str:
    for size, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= size:
            return f"{value / size:.3g}{unit}"
    return f"{value:.3g}"
