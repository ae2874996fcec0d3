"""Reproduced experiments on deadline reservations as one HTML page that asks nothing of any
network."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape

from sureline.experiments.peercomp_result import PeercompReproduced
from sureline.experiments.peercomp_words import lines
from sureline.web.curves import Curve, diagram, page


def peercomp_page(made: PeercompReproduced) -> str:
    """The curves of Fig. 6, Table II, and all that the command says."""
    most_s = max([curve.p99_s for curve in made.allocation], default=1.0)
    parts = [
        "<h2>Fig. 6: time to place a workflow</h2>",
        '<div class="diagrams">',
        *(_placed(made, name, most_s) for name in ("fork-join", "laplace")),
        "</div><h2>Table II: speed-up</h2>",
        *_table(made),
    ]
    return page(f"{made.paper}: {made.nodes:,} peers", parts, lines(made))


def _placed(made: PeercompReproduced, name: str, most_s: float) -> str:
    curves = [Curve(f"size {c.size}", c.curve) for c in made.allocation if c.model == name]
    title = f"{name}: share placed, by seconds"
    return diagram(title, curves, most_s, 1.0, "{:.1f}".format, "{:.0%}".format)


def _table(made: PeercompReproduced) -> Iterator[str]:
    heads = ("model", "W", "paper", "executed", "committed", "workflows", "accepted", "")
    yield "<table><tr>" + "".join(f"<th>{head}</th>" for head in heads) + "</tr>"
    for cell in made.table2:
        values = [
            *(cell.model, f"{cell.priority}", f"{cell.paper:.2f}"),
            *("-" if one is None else f"{one:.2f}" for one in (cell.executed, cell.committed)),
            *(f"{cell.workflows:,}", f"{cell.accepted:.0%}", f"{cell.compared} {cell.verdict}"),
        ]
        yield "<tr>" + "".join(f"<td>{escape(value)}</td>" for value in values) + "</tr>"
    yield "</table>"
