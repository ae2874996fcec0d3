"""A drawing as SVG: a file of its own, or a part of a page that brings its own colours."""

from __future__ import annotations

import math
from collections.abc import Iterator
from html import escape

from sureline.web.boxes import Box, Drawing, Edge
from sureline.web.layout import BoxPlace, DrawnRoute, Layout, lay_out, shortened
from sureline.web.states import LOOKS, ORDER, telling

NAMESPACE = "http://www.w3.org/2000/svg"
HEAD_HEIGHT = 44.0
LEGEND_HEIGHT = 36.0

# Literal colours, because many programs that show SVG know no CSS variables.
_SHAPES = """
text{font:12px system-ui,-apple-system,"Segoe UI","DejaVu Sans",sans-serif}
.title{font-size:15px;font-weight:600}
.frame{stroke-width:1}
.edge{fill:none;stroke-opacity:.75}
.critical>.frame,.edge.critical{stroke-width:2.2;stroke-opacity:1}
"""
_COLOURS = """
.ground{{fill:{ground}}}
text{{fill:{ink}}}
.soft{{fill:{soft}}}
.frame{{fill:{box};stroke:{line}}}
.edge{{stroke:{line}}}
.critical>.frame,.edge.critical{{stroke:{ink}}}
"""
_LIGHT = {
    "ground": "#ffffff",
    "box": "#f6f7f9",
    "line": "#aab2bf",
    "ink": "#1d2430",
    "soft": "#5c6675",
}
_DARK = {
    "ground": "#14181f",
    "box": "#1f252e",
    "line": "#4a5463",
    "ink": "#e6e9ee",
    "soft": "#9aa5b5",
}


def standalone(drawing: Drawing) -> str:
    """A whole SVG file with a title and a legend, in the reader's choice of light or dark."""
    layout = lay_out(drawing)
    legend = _legend(drawing)
    width = max(layout.width, 420.0, _length(drawing.name) * 9 + 200, legend[1])
    height = HEAD_HEIGHT + layout.height + LEGEND_HEIGHT
    lines = [
        f'<svg xmlns="{NAMESPACE}" width="{width:.0f}" height="{height:.0f}" '
        f'viewBox="0 0 {width:.0f} {height:.0f}" role="img" aria-label="{_said(drawing)}">',
        f"<style>{_style(_present(drawing))}</style>",
        '<rect class="ground" width="100%" height="100%"/>',
        f'<text class="title" x="16" y="29">{_text(shortened(drawing.name, 60))}</text>',
        f'<g transform="translate(0 {HEAD_HEIGHT:g})">',
        *_edges(drawing, layout),
        *_boxes(drawing, layout, interactive=False),
        "</g>",
        f'<g transform="translate(16 {HEAD_HEIGHT + layout.height + 14:.1f})">{legend[0]}</g>',
        "</svg>\n",
    ]
    return "\n".join(lines)


def part(drawing: Drawing) -> str:
    """The drawing for a page: no style and no address, boxes that can be reached and pressed.

    A box of one task has `data-task` (its index), a box of a kind `data-kind`.
    """
    layout = lay_out(drawing)
    lines = [
        f'<svg class="graph" width="{layout.width:.0f}" height="{layout.height:.0f}" '
        f'viewBox="0 0 {layout.width:.0f} {layout.height:.0f}" role="group" '
        f'aria-label="{_said(drawing)}">',
        *_edges(drawing, layout),
        *_boxes(drawing, layout, interactive=True),
        "</svg>",
    ]
    return "\n".join(lines)


def _style(states: list[str]) -> str:
    light = "".join(f".{name}{{fill:{LOOKS[name].light}}}" for name in states)
    dark = "".join(f".{name}{{fill:{LOOKS[name].dark}}}" for name in states)
    return (
        f"{_SHAPES}{_COLOURS.format(**_LIGHT)}{light}\n"
        f"@media(prefers-color-scheme:dark){{{_COLOURS.format(**_DARK)}{dark}}}"
    )


def _text(text: str) -> str:
    """Text inside an element: escaped, and without the control characters that XML refuses."""
    return escape("".join(c if c >= " " and c not in "\ufffe\uffff" else "\ufffd" for c in text))


def _length(text: str) -> int:
    return min(len(text), 60)


def _present(drawing: Drawing) -> list[str]:
    seen = {state for box in drawing.boxes for state in box.states}
    return [state for state in ORDER if state in seen]


def _said(drawing: Drawing) -> str:
    tasks = sum(len(box.tasks) for box in drawing.boxes)
    columns = max((box.level for box in drawing.boxes), default=-1) + 1
    folded = f" folded into {len(drawing.boxes)} boxes" if drawing.folded else ""
    return _text(f"The graph of {drawing.name}: {tasks} tasks{folded} in {columns} columns")


def _edges(drawing: Drawing, layout: Layout) -> Iterator[str]:
    """Those of the marked path last, so that they lie on top."""
    both = list(zip(drawing.edges, layout.routes, strict=True))
    for edge, route in sorted(both, key=lambda pair: pair[0].critical):
        yield _edge(edge, route)


def _edge(edge: Edge, route: DrawnRoute) -> str:
    (x, y), *rest = route.points
    path = f"M{x:.0f} {y:.1f}"
    for k, (next_x, next_y) in enumerate(rest):
        if k % 2:
            path += f"H{next_x:.0f}"  # along a lane
        else:
            middle = (x + next_x) / 2
            path += f"C{middle:.0f} {y:.1f} {middle:.0f} {next_y:.1f} {next_x:.0f} {next_y:.1f}"
        x, y = next_x, next_y
    css = "edge critical" if edge.critical else "edge"
    thick = 1 + 0.7 * math.log10(edge.number)
    width = f' stroke-width="{thick:.1f}"' if edge.number > 1 and not edge.critical else ""
    return f'<path class="{css}"{width} d="{path}"/>'


def _boxes(drawing: Drawing, layout: Layout, interactive: bool) -> Iterator[str]:
    for box, place in zip(drawing.boxes, layout.places, strict=True):
        yield _box(box, place, interactive)


def _box(box: Box, place: BoxPlace, interactive: bool) -> str:
    hint = _hint(box)
    reached = ""
    if interactive:
        target = f'data-task="{box.tasks[0]}"' if len(box.tasks) == 1 else ""
        if not target and box.kind:
            target = f'data-kind="{_text(box.kind)}"'
        if target:
            reached = f' {target} tabindex="0" role="button" aria-label="{hint}"'
    x, y, width, height = place
    css = "box critical" if box.critical else "box"
    return (
        f'<g class="{css}"{reached} transform="translate({x:.0f} {y:.1f})"><title>{hint}</title>'
        f'<rect class="frame" width="{width:.0f}" height="{height:.0f}" rx="5"/>'
        f"{_strip(box, height)}"
        f'<text x="13" y="{height / 2 + 4:.0f}">{_text(shortened(box.label))}</text>'
        f"{_sign(box, place)}</g>"
    )


def _strip(box: Box, height: float) -> str:
    """The states inside a box, from top to bottom, each as high as its share."""
    total = sum(box.states.values())
    at, drawn = 4.0, ""
    for state, count in box.states.items():
        share = (height - 8) * count / total
        drawn += f'<rect class="{state}" x="4" y="{at:.1f}" width="4" height="{share:.1f}"/>'
        at += share
    return drawn


def _sign(box: Box, place: BoxPlace) -> str:
    if not box.states:
        return ""
    return (
        f'<text class="sign {telling(box.states)}" x="{place.width - 8:.0f}" '
        f'y="{place.height / 2 + 4:.0f}" text-anchor="end">{box.mark}</text>'
    )


def _hint(box: Box) -> str:
    states = ", ".join(
        LOOKS[state].words if len(box.tasks) == 1 else f"{count} {LOOKS[state].words}"
        for state, count in box.states.items()
    )
    return _text(box.label + (f": {states}" if states else ""))


def _legend(drawing: Drawing) -> tuple[str, float]:
    """Its marks and its width."""
    drawn, x = "", 0.0
    for state in _present(drawing):
        words = f"{LOOKS[state].sign} {LOOKS[state].words}"
        drawn += (
            f'<rect class="{state}" x="{x:.0f}" y="0" width="10" height="10" rx="2"/>'
            f'<text class="soft" x="{x + 15:.0f}" y="9.5">{words}</text>'
        )
        x += 15 + len(words) * 7 + 18
    drawn += (
        f'<path class="edge critical" d="M{x:.0f} 5h22"/>'
        f'<text class="soft" x="{x + 28:.0f}" y="9.5">{_text(drawing.path_words)}</text>'
    )
    return drawn, x + 28 + len(drawing.path_words) * 7 + 32
