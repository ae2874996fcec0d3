"""Reproduced experiments on deadline reservations as one HTML page that asks nothing of any
network."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from html import escape

from sureline.experiments.peercomp_result import PeercompCompared, PeercompReproduced
from sureline.experiments.peercomp_words import lines
from sureline.web.curves import Curve, diagram, page

SPEED_UP = ("model", "W", "paper", "executed", "committed", "workflows", "accepted", "")


def peercomp_page(made: PeercompReproduced) -> str:
    """The curves of Fig. 6, the tables, messages and traffic, and all that the command says."""
    most_s = max([curve.p99_s for curve in made.allocation], default=1.0)
    parts = [
        "<h2>Fig. 6: time to place a workflow</h2>",
        '<div class="diagrams">',
        *(_placed(made, name, most_s) for name in ("fork-join", "laplace")),
        "</div><h2>Table I: reference points</h2>",
        *_table(("at", "ours", "the paper's are"), _points(made), words=True),
        "<h2>Table II: speed-up</h2>",
        *_table(SPEED_UP, _speed_ups(made)),
        "<h2>Messages and traffic</h2>",
        _levels(made),
        *_table(("", "paper", "ours", ""), _compared(made.traffic.numbers), words=True),
        "<h2>What the paper says in words</h2>",
        *_table(("", "paper", "ours", ""), _compared(made.claims), words=True),
    ]
    return page(f"{made.paper}: {made.nodes:,} peers", parts, lines(made))


def _placed(made: PeercompReproduced, name: str, most_s: float) -> str:
    curves = [Curve(f"size {c.size}", c.curve) for c in made.allocation if c.model == name]
    title = f"{name}: share placed, by seconds"
    return diagram(title, curves, most_s, 1.0, "{:.1f}".format, "{:.0%}".format)


def _levels(made: PeercompReproduced) -> str:
    levels = [level for level in made.traffic.levels if level.depth >= 0]
    curves = [
        Curve(
            "busiest peer and second", [(one.depth, one.busiest_messages_per_s) for one in levels]
        ),
        Curve("mean", [(one.depth, one.messages_per_s) for one in levels]),
    ]
    most = max([one.busiest_messages_per_s for one in levels], default=1.0)
    title = "messages a second, by depth in the tree (0 is the root)"
    return diagram(title, curves, len(levels) - 1, most, "{:.0f}".format, "{:.0f}".format)


def _points(made: PeercompReproduced) -> Iterator[Sequence[str]]:
    for row in made.table1:
        yield row.made, ", ".join(row.ours), "the same" if row.agrees else ", ".join(row.paper)


def _speed_ups(made: PeercompReproduced) -> Iterator[Sequence[str]]:
    for cell in made.table2:
        yield (
            *(cell.model, f"{cell.priority}", f"{cell.paper:.2f}"),
            *("-" if one is None else f"{one:.2f}" for one in (cell.executed, cell.committed)),
            *(f"{cell.workflows:,}", f"{cell.accepted:.0%}", f"{cell.compared} {cell.verdict}"),
        )


def _compared(numbers: Iterable[PeercompCompared]) -> Iterator[Sequence[str]]:
    for one in numbers:
        ours = f"{one.ours:,.0f}" if one.ours >= 100 else f"{one.ours:.3g}"
        yield one.what, one.paper, ours, one.verdict


def _table(
    heads: Sequence[str], rows: Iterable[Sequence[str]], *, words: bool = False
) -> Iterator[str]:
    yield '<table class="words"><tr>' if words else "<table><tr>"
    yield "".join(f"<th>{head}</th>" for head in heads) + "</tr>"
    for row in rows:
        yield "<tr>" + "".join(f"<td>{escape(value)}</td>" for value in row) + "</tr>"
    yield "</table>"
