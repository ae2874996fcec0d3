"""Whether repair pays, as one HTML page: the share on time against money, for each scenario."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape

from sureline.experiments.repairs import Repairs, Row
from sureline.experiments.repairs_words import in_hindsight

WIDTH, HEIGHT = 380.0, 260.0
LEFT, TOP = 48.0, 56.0
LABEL_APART = 0.06
"""Labels of shares that are nearer than this are put above each other."""

_STYLE = """
:root{color-scheme:light dark;--ink:#1d2430;--soft:#5c6675;--ground:#fff;--line:#d5dae2;
--ours:#1f6feb;--other:#8a5a00}
@media(prefers-color-scheme:dark){:root{--ink:#e6e9ee;--soft:#9aa5b5;--ground:#14181f;
--line:#3a4453;--ours:#6ea8fe;--other:#e0b060}}
body{font:15px/1.5 system-ui,-apple-system,"Segoe UI","DejaVu Sans",sans-serif;color:var(--ink);
background:var(--ground);max-width:70rem;margin:2rem auto;padding:0 1rem}
h1{font-size:1.4rem}h2{font-size:1.05rem}svg text{fill:var(--soft);font-size:12px}
.axis{stroke:var(--line)}.ours{fill:var(--ours)}.other{fill:var(--other)}
.all{display:flex;flex-wrap:wrap;gap:1.5rem}
table{border-collapse:collapse;font-variant-numeric:tabular-nums}
th,td{padding:.2rem .7rem;text-align:right;border-bottom:1px solid var(--line)}
th:first-child,td:first-child{text-align:left}
"""


def repairs_page(found: Repairs) -> str:
    by_scenario: dict[str, list[Row]] = {}
    for row in found.rows:
        by_scenario.setdefault(row.scenario, []).append(row)
    verdict = "Repair pays." if found.pays else "Repair does not pay here."
    lines = [
        "<!doctype html>",
        '<html lang="en"><head><meta charset="utf-8">',
        '<meta http-equiv="Content-Security-Policy" content="default-src \'none\'; '
        "style-src 'unsafe-inline'\">",
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f"<title>Does repair pay?</title><style>{_STYLE}</style></head><body>",
        f"<h1>Does repair pay?</h1><p>{verdict} Further up is more often in time, further left is "
        'cheaper.</p><div class="all">',
    ]
    for scenario, rows in by_scenario.items():
        lines += [f"<section><h2>{escape(scenario)}</h2>", _plot(rows), *_table(rows), "</section>"]
    return "\n".join([*lines, "</div></body></html>\n"])


def _plot(rows: Sequence[Row]) -> str:
    most = max([row.paid for row in rows] + [1e-9]) * 1.15
    parts = [
        f'<svg viewBox="0 0 {WIDTH + LEFT + 90:g} {HEIGHT + TOP + 44:g}" '
        f'width="{WIDTH + LEFT + 90:g}" role="img" aria-label="share on time against money">'
    ]
    for share in (0.0, 0.25, 0.5, 0.75, 1.0):
        y = TOP + HEIGHT * (1 - share)
        parts.append(f'<line class="axis" x1="{LEFT}" x2="{LEFT + WIDTH}" y1="{y}" y2="{y}"/>')
        parts.append(f'<text x="{LEFT - 8}" y="{y + 4}" text-anchor="end">{share:g}</text>')
    parts.append(f'<text x="{LEFT}" y="{TOP + HEIGHT + 18}">0</text>')
    end = f'x="{LEFT + WIDTH}" y="{TOP + HEIGHT + 18}" text-anchor="end"'
    parts.append(f"<text {end}>{most:.2f} money, on average</text>")
    for number, row in enumerate(rows):
        x = LEFT + WIDTH * row.paid / most
        y = TOP + HEIGHT * (1 - row.on_time)
        look = "other" if number else "ours"
        parts.append(f'<circle class="{look}" cx="{x:.1f}" cy="{y:.1f}" r="5"/>')
        near = sum(abs(other.on_time - row.on_time) < LABEL_APART for other in rows[:number])
        above = y + 4 - 14 * near
        parts.append(f'<text x="{x + 9:.1f}" y="{above:.1f}">{escape(row.way)}</text>')
    return "\n".join([*parts, "</svg>"])


def _table(rows: Sequence[Row]) -> Iterator[str]:
    yield "<table><tr><th>way</th><th>runs</th><th>on time</th><th>money</th>"
    yield "<th>median</th><th>repairs</th></tr>"
    for row in rows:
        yield (
            f"<tr><td>{escape(row.way)}</td><td>{row.runs}</td><td>{row.on_time:.2f}</td>"
            f"<td>{row.paid:.2f}</td><td>{row.took_s:.0f} s</td><td>{row.repairs:.1f}</td></tr>"
        )
    yield "</table>"
    yield f"<p>{escape(in_hindsight(rows[0]))}</p>"
