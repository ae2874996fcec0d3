"""The report: one HTML file that holds everything it shows and asks nothing of any network.

The page's parts lie in `page/` and are put together here. A content policy lets run only the
script that belongs to the page and forbids every connection, so that no name or output of a task
can become more than text.
"""

from __future__ import annotations

import base64
import hashlib
from html import escape
from importlib import resources
from typing import Any

import msgspec

from sureline.web.boxes import BOXES_MAX, EDGES_MAX, Drawing, draw
from sureline.web.data import page_data
from sureline.web.happened import path_that_happened
from sureline.web.record import Record
from sureline.web.states import LOOKS, variables
from sureline.web.svg import part

SCRIPTS = (
    "basics.js",
    "story.js",
    "timeline.js",
    "sections.js",
    "surety.js",
    "table.js",
    "report.js",
)
"""In the order they are joined; `report.js` starts the page."""
FOLDED_FROM = 40
"""With more tasks than this, the graph is shown folded first."""


def report(record: Record) -> str:
    """The page of a run, as text."""
    drawings = _drawings(record)
    data: dict[str, Any] = page_data(record)
    data["looks"] = {name: [look.sign, look.words] for name, look in LOOKS.items()}
    script = _script()
    return _fill(
        _page("report.html"),
        {
            "policy": _policy(script),
            "title": escape(f"{record.view.name} \u00b7 {record.view.run} \u00b7 {record.state}"),
            "style": _style(),
            "graph": "\n".join(part(drawing) for drawing in drawings),
            "data": embedded(data),
            "script": script,
        },
    )


def _drawings(record: Record) -> list[Drawing]:
    """The graph folded, and whole too if that can be read; alone if it is small."""
    states = dict(enumerate(record.states))
    path = [step.task for step in path_that_happened(record)]

    def drawing(fold: bool) -> Drawing:
        return draw(record.graph, states=states, path=path, path_words="", fold=fold)

    edges = sum(len(parents) for parents in record.graph.parents)
    if len(record.graph) > BOXES_MAX or edges > EDGES_MAX:
        return [drawing(True)]
    if len(record.graph) > FOLDED_FROM:
        return [drawing(True), drawing(False)]
    return [drawing(False)]


def embedded(value: object) -> str:
    """JSON that can stand inside a script element: nothing in it can end the element."""
    text = msgspec.json.encode(value).decode()
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text


def _page(name: str) -> str:
    return (resources.files("sureline.web") / "page" / name).read_text(encoding="utf-8")


def _script() -> str:
    """One function around all parts: they share names among themselves and with nobody else."""
    return "(() => {\n'use strict';\n" + "\n".join(_page(name) for name in SCRIPTS) + "})();"


def _style() -> str:
    states = "".join(f".{name}{{--state:var(--state-{name})}}" for name in LOOKS)
    return f":root{{{variables()}}}{states}{_page('report.css')}"


def _policy(script: str) -> str:
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'"


def _fill(template: str, parts: dict[str, str]) -> str:
    """Put the parts in their places, once each: what a part contains is never filled in again."""
    pieces = template.split("@@")
    pieces[1::2] = [parts[name] for name in pieces[1::2]]
    return "".join(pieces)
