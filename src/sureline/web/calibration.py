"""The reliability diagram of a calibration as one HTML page that asks nothing of any network."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape

from sureline.experiments.calibration_result import (
    BELOW,
    PROMISES,
    WITHIN,
    Calibration,
    Point,
)

SIDE = 410.0
MARGIN = 52.0
LEAST = 0.4
"""Where the axes of the enlarged diagram begin: nothing below is promised."""
ROWS_MAX = 2000

_STYLE = """
:root{color-scheme:light dark;--ink:#1d2430;--soft:#5c6675;--ground:#fff;--line:#d5dae2;
--ours:#1f6feb;--pert:#c2571a;--band:#1f6feb22}
@media(prefers-color-scheme:dark){:root{--ink:#e6e9ee;--soft:#9aa5b5;--ground:#14181f;
--line:#3a4453;--ours:#6ea8fe;--pert:#f0a36b;--band:#6ea8fe2b}}
body{font:15px/1.5 system-ui,-apple-system,"Segoe UI","DejaVu Sans",sans-serif;color:var(--ink);
background:var(--ground);max-width:70rem;margin:2rem auto;padding:0 1rem}
h1{font-size:1.4rem}h2{font-size:1.1rem;margin-top:2rem}
svg{max-width:100%;height:auto}svg text{fill:var(--soft);font-size:12px}
.diagrams{display:flex;flex-wrap:wrap;gap:1rem}
.axis{stroke:var(--line);stroke-width:1}.true{stroke:var(--soft);stroke-dasharray:4 4}
.band{fill:var(--band)}.ours{fill:var(--ours);fill-opacity:.55}
.pert{fill:none;stroke:var(--pert);stroke-width:1.3;stroke-opacity:.7}
table{border-collapse:collapse;font-variant-numeric:tabular-nums}
th,td{padding:.2rem .7rem;text-align:right;border-bottom:1px solid var(--line)}
th:first-child,td:first-child{text-align:left}.off{color:var(--pert);font-weight:600}
.key span{margin-right:1.5rem}.dot{display:inline-block;width:.7em;height:.7em;border-radius:50%}
"""


def calibration_page(found: Calibration) -> str:
    """The page as text. The diagrams show every point; the table below has the numbers."""
    sort = "runs never seen" if found.unseen else "history of the same distribution"
    lines = [
        "<!doctype html>",
        '<html lang="en"><head><meta charset="utf-8">',
        '<meta http-equiv="Content-Security-Policy" content="default-src \'none\'; '
        "style-src 'unsafe-inline'\">",
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f"<title>Calibration: {sort}</title><style>{_STYLE}</style></head><body>",
        "<h1>Are promised numbers true?</h1>",
        f"<p>{_summary(found, sort)}</p>",
        '<p class="key"><span><i class="dot" style="background:var(--ours)"></i> Sureline</span>'
        '<span><i class="dot" style="border:1.3px solid var(--pert)"></i> PERT</span>'
        f"<span>shaded: {_band_words(found)}</span></p>",
        '<div class="diagrams">',
        diagram(found.points, unseen=found.unseen, least=LEAST, pert=False),
        diagram(found.points, unseen=found.unseen, least=0.0, pert=True),
        "</div>",
        *_agents(found),
        "<h2>All points</h2>",
        *_table(found.points, found.unseen),
        "</body></html>\n",
    ]
    return "\n".join(lines)


def _summary(found: Calibration, sort: str) -> str:
    runs = sum(point.runs for point in found.points)
    kept = "kept" if found.held else "not kept"
    claim = (
        f"at most {BELOW} below the promise: <b>{kept}</b> (the worst is {found.worst_below:.3f} "
        "below)"
        if found.unseen
        else f"within {WITHIN} of the promise: <b>{kept}</b> (the worst is {found.worst:.3f} off)"
    )
    return (
        f"{len(found.points)} points, {runs:,} runs, {found.earlier_runs} earlier runs ({sort}); "
        f"{claim}. Brier score {found.brier:.4f}; exactly true promises would have "
        f"{found.brier_true:.4f}, PERT's have {found.brier_pert:.4f}."
    )


def _band_words(found: Calibration) -> str:
    return f"no more than {BELOW} below" if found.unseen else f"within {WITHIN}"


def diagram(points: Sequence[Point], *, unseen: bool, least: float, pert: bool) -> str:
    """Promised against achieved, as SVG. Points that lie on each other are spread sideways."""
    size = SIDE + 2 * MARGIN
    parts = [
        f'<svg viewBox="0 0 {size:g} {size:g}" width="{size:g}" role="img" '
        f'aria-label="reliability diagram">',
        _band(unseen, least),
        *_axes(least),
        *(_dots(points, least, pert=True) if pert else ()),
        *_dots(points, least, pert=False),
        "</svg>",
    ]
    return "\n".join(parts)


def _x(share: float, least: float) -> float:
    return MARGIN + SIDE * (share - least) / (1 - least)


def _y(share: float, least: float) -> float:
    return MARGIN + SIDE * (1 - (max(share, least) - least) / (1 - least))


def _band(unseen: bool, least: float) -> str:
    above, below = (1.0, BELOW) if unseen else (WITHIN, WITHIN)
    steps = [least + (1 - least) * n / 60 for n in range(61)]
    upper = [(s, min(1.0, s + above)) for s in steps]
    lower = [(s, max(least, s - below)) for s in reversed(steps)]
    corners = " ".join(f"{_x(a, least):.1f},{_y(b, least):.1f}" for a, b in [*upper, *lower])
    ends = f'x1="{_x(least, least):.1f}" y1="{_y(least, least):.1f}"'
    ends += f' x2="{_x(1, least):.1f}" y2="{_y(1, least):.1f}"'
    return f'<polygon class="band" points="{corners}"/><line class="true" {ends}/>'


def _axes(least: float) -> Iterator[str]:
    step = 0.1 if least else 0.2
    for n in range(round((1 - least) / step) + 1):
        share = least + n * step
        x, y = _x(share, least), _y(share, least)
        bottom, right = MARGIN + SIDE, MARGIN + SIDE
        yield f'<line class="axis" x1="{x:.1f}" y1="{MARGIN}" x2="{x:.1f}" y2="{bottom}"/>'
        yield f'<line class="axis" x1="{MARGIN}" y1="{y:.1f}" x2="{right}" y2="{y:.1f}"/>'
        yield f'<text x="{x:.1f}" y="{bottom + 18:g}" text-anchor="middle">{share:g}</text>'
        yield f'<text x="{MARGIN - 8:g}" y="{y + 4:.1f}" text-anchor="end">{share:g}</text>'
    middle = MARGIN + SIDE / 2
    yield f'<text x="{middle:g}" y="{MARGIN + SIDE + 40:g}" text-anchor="middle">promised</text>'
    yield (
        f'<text transform="translate(14 {middle:g}) rotate(-90)" text-anchor="middle">'
        "share of runs on time</text>"
    )


def _dots(points: Sequence[Point], least: float, *, pert: bool) -> Iterator[str]:
    for promised in PROMISES:
        of_one = [point for point in points if point.promised == promised]
        for number, point in enumerate(of_one):
            share = point.pert if pert else point.achieved
            aside = 14 * ((number + 0.5) / len(of_one) - 0.5)
            x, y = _x(promised, least) + aside, _y(share, least)
            sort = "pert" if pert else "ours"
            yield (
                f'<circle class="{sort}" cx="{x:.1f}" cy="{y:.1f}" r="3"><title>'
                f"{escape(point.trace)}, {point.slots} slots: promised {promised:g}, on time "
                f"{share:.3f}</title></circle>"
            )


def _agents(found: Calibration) -> Iterator[str]:
    if not found.agents:
        return
    yield "<h2>The real agents in the simulator</h2><table>"
    yield "<tr><th>scenario</th><th>promised</th><th>runs</th><th>on time</th>"
    yield "<th>with repair</th><th>repairs</th></tr>"
    for one in found.agents:
        yield (
            f"<tr><td>{escape(one.scenario)}</td><td>{one.promised:g}</td><td>{one.runs}</td>"
            f"<td>{one.achieved:.3f}</td><td>{one.repaired:.3f}</td><td>{one.repairs}</td></tr>"
        )
    yield "</table>"


def _table(points: Sequence[Point], unseen: bool) -> Iterator[str]:
    """A row for each trace and number of slots, a column for each promise."""
    rows: dict[tuple[str, int], dict[float, Point]] = {}
    for point in points:
        rows.setdefault((point.trace, point.slots), {})[point.promised] = point
    heads = "".join(f"<th>{promised:g}</th><th>PERT</th>" for promised in PROMISES)
    yield f"<table><tr><th>trace</th><th>slots</th>{heads}</tr>"
    for (trace, slots), of_row in list(rows.items())[:ROWS_MAX]:
        cells = "".join(_cell(of_row[p], unseen) if p in of_row else "<td/><td/>" for p in PROMISES)
        yield f"<tr><td>{escape(trace)}</td><td>{slots}</td>{cells}</tr>"
    yield "</table>"


def _cell(point: Point, unseen: bool) -> str:
    off = point.off < -BELOW if unseen else abs(point.off) > WITHIN
    mark = ' class="off"' if off else ""
    return f"<td{mark}>{point.achieved:.3f}</td><td>{point.pert:.3f}</td>"
