"""A drawing in the DOT language, for Graphviz and its friends."""

from __future__ import annotations

from sureline.web.boxes import Box, Drawing
from sureline.web.states import LOOKS, telling


def dot(drawing: Drawing) -> str:
    """One `digraph`. The marked path is drawn thick; a box has the colour of its telling state."""
    lines = [
        f"digraph {quoted(drawing.name)} {{",
        "  rankdir=LR;",
        '  node [shape=box, style="rounded,filled", fillcolor="#f6f7f9", fontname="sans-serif"];',
        '  edge [color="#8a93a3"];',
    ]
    for k, box in enumerate(drawing.boxes):
        lines.append(f"  b{k} [{_attributes(box)}];")
    for edge in drawing.edges:
        attributes = []
        if edge.critical:
            attributes += ["penwidth=2.5", 'color="#1d2430"']
        if edge.number > 1:
            attributes.append(f'label="{edge.number}"')
        marks = f" [{', '.join(attributes)}]" if attributes else ""
        lines.append(f"  b{edge.parent} -> b{edge.child}{marks};")
    return "\n".join([*lines, "}", ""])


def _attributes(box: Box) -> str:
    found = [f"label={quoted(box.label)}"]
    if box.states:
        state = telling(box.states)
        counts = ", ".join(f"{count} {LOOKS[s].words}" for s, count in box.states.items())
        found += [f'color="{LOOKS[state].light}"', f"tooltip={quoted(counts)}"]
    if box.critical:
        found.append("penwidth=2.5")
    return ", ".join(found)


def quoted(text: str) -> str:
    """A DOT string. A backslash begins an escape in labels, and a NUL ends the text.

    >>> print(quoted('say "hi" \\\\n'))
    "say \\"hi\\" \\\\n"
    """
    clean = text.replace("\0", "\ufffd").replace("\\", "\\\\").replace('"', '\\"')
    return '"' + clean.replace("\r", " ").replace("\n", "\\n") + '"'
