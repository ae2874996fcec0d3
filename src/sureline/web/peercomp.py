"""Reproduced experiments on deadline reservations as one HTML page that asks nothing of any
network."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape

from sureline.experiments.peercomp_result import Allocation, PeercompReproduced
from sureline.experiments.peercomp_words import lines

WIDTH, HEIGHT, MARGIN = 460.0, 300.0, 44.0
_COLOURS = ("#1f6feb", "#c2571a", "#2da44e", "#8250df", "#bf3989")
_STYLE = """
:root{color-scheme:light dark;--ink:#1d2430;--soft:#5c6675;--ground:#fff;--line:#d5dae2}
@media(prefers-color-scheme:dark){:root{--ink:#e6e9ee;--soft:#9aa5b5;--ground:#14181f;--line:#3a4453}}
body{font:15px/1.5 system-ui,sans-serif;color:var(--ink);background:var(--ground);max-width:70rem;
margin:2rem auto;padding:0 1rem}h1{font-size:1.4rem}h2{font-size:1.1rem;margin-top:2rem}
svg{max-width:100%;height:auto}svg text{fill:var(--soft);font-size:12px}
.axis{stroke:var(--line)}.curve{fill:none;stroke-width:1.6}.diagrams{display:flex;flex-wrap:wrap;gap:1rem}
pre{overflow-x:auto;font-size:13px}
table{border-collapse:collapse;font-variant-numeric:tabular-nums}
th,td{padding:.2rem .7rem;text-align:right;border-bottom:1px solid var(--line)}
"""


def peercomp_page(made: PeercompReproduced) -> str:
    """The curves of Fig. 6, Table II, and all that the command says."""
    most_s = max([curve.p99_s for curve in made.allocation], default=1.0)
    diagrams = [
        _diagram(name, [c for c in made.allocation if c.model == name], most_s)
        for name in ("fork-join", "laplace")
    ]
    parts = [
        "<!doctype html>",
        '<html lang="en"><head><meta charset="utf-8">',
        '<meta http-equiv="Content-Security-Policy" content="default-src \'none\'; '
        "style-src 'unsafe-inline'\">",
        f"<title>peercomp: {made.nodes:,} peers</title><style>{_STYLE}</style></head><body>",
        f"<h1>{escape(made.paper)}: {made.nodes:,} peers</h1>",
        "<h2>Fig. 6: time to place a workflow</h2>",
        '<div class="diagrams">',
        *diagrams,
        "</div><h2>Table II: speed-up</h2>",
        *_table(made),
        "<h2>All numbers</h2><pre>",
        *(escape(line) for line in lines(made)),
        "</pre></body></html>\n",
    ]
    return "\n".join(parts)


def _diagram(name: str, curves: Sequence[Allocation], most_s: float) -> str:
    def x(seconds: float) -> float:
        return MARGIN + (WIDTH - MARGIN - 10) * min(1.0, seconds / most_s)

    def y(share: float) -> float:
        return HEIGHT - MARGIN - (HEIGHT - MARGIN - 24) * share

    drawn = [
        f'<svg viewBox="0 0 {WIDTH:g} {HEIGHT:g}" width="{WIDTH:g}" role="img">'
        f"<title>{escape(name)}: share of workflows placed by so many seconds</title>"
        f'<text x="{MARGIN:g}" y="16">{escape(name)}: share placed, by seconds</text>'
        f'<path class="axis" d="M{x(0):.1f} {y(1):.1f}V{y(0):.1f}H{x(most_s):.1f}" fill="none"/>'
    ]
    for share in (0.0, 0.5, 1.0):
        drawn.append(f'<text x="8" y="{y(share) + 4:.1f}">{share:.0%}</text>')
    for step in range(5):
        seconds = most_s * step / 4
        drawn.append(f'<text x="{x(seconds) - 8:.1f}" y="{HEIGHT - 24:g}">{seconds:.1f}</text>')
    for number, curve in enumerate(curves):
        colour = _COLOURS[number % len(_COLOURS)]
        points = " ".join(f"{x(s):.1f},{y(share):.1f}" for s, share in curve.curve)
        drawn.append(f'<polyline class="curve" stroke="{colour}" points="{points}"/>')
        left = WIDTH - 110
        drawn.append(
            f'<text x="{left:g}" y="{HEIGHT - MARGIN - 16 * (len(curves) - number):g}" '
            f'style="fill:{colour}">size {curve.size}</text>'
        )
    return "".join([*drawn, "</svg>"])


def _table(made: PeercompReproduced) -> Iterator[str]:
    heads = ("model", "W", "paper", "executed", "accepted", "")
    yield "<table><tr>" + "".join(f"<th>{head}</th>" for head in heads) + "</tr>"
    for cell in made.table2:
        executed = "-" if cell.executed is None else f"{cell.executed:.2f}"
        yield (
            f"<tr><td>{escape(cell.model)}</td><td>{cell.priority}</td><td>{cell.paper}</td>"
            f"<td>{executed}</td><td>{cell.accepted:.0%}</td><td>{escape(cell.verdict)}</td></tr>"
        )
    yield "</table>"
