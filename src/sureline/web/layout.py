"""Where boxes and edges lie: levels in columns from left to right, edges as curves.

The usual way for layered drawings. An edge over several levels gets a narrow lane on each level
between, so that it passes beside the boxes. The order on a level follows the middle of the
neighbours' places, sweeping to and fro a few times. Then every box moves as near to its neighbours
as the order and the gaps allow, which is a least-squares problem with an exact solution.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

from sureline.web.boxes import Drawing

BOX_HEIGHT = 30.0
LANE_HEIGHT = 8.0
GAP = 10.0
COLUMN_GAP_MIN, COLUMN_GAP_MAX = 44.0, 150.0
MARGIN = 16.0
CHARACTER_WIDTH = 6.7
LABEL_MAX = 28
SWEEPS = 6
LANES_MAX = 4_000
"""With more than so many lanes, long edges are drawn straight: nobody could follow them anyway."""


class BoxPlace(NamedTuple):
    """A box's rectangle."""

    x: float
    y: float
    width: float
    height: float


class DrawnRoute(NamedTuple):
    """An edge's points, from the right side of one box to the left side of another."""

    points: tuple[tuple[float, float], ...]


class Layout(NamedTuple):
    """By the indices of the drawing's boxes and edges."""

    places: list[BoxPlace]
    routes: list[DrawnRoute]
    width: float
    height: float


class _Node:
    """A box or a lane on one level."""

    __slots__ = ("after", "before", "height", "order", "y")

    def __init__(self, height: float) -> None:
        self.height = height
        self.before: list[_Node] = []
        self.after: list[_Node] = []
        self.order = 0.0
        self.y = 0.0


def shortened(label: str, length: int = LABEL_MAX) -> str:
    """A label of at most `length` characters: the middle goes, since both ends tell tasks apart.

    >>> shortened("a_very_long_name_of_a_task_ID0000017", 16)
    'a_very_l\u20260000017'
    """
    if len(label) <= length:
        return label
    head = length // 2
    return f"{label[:head]}\u2026{label[head + 1 - length :]}"


def lay_out(drawing: Drawing) -> Layout:
    """Places without overlap, and routes that go from left to right."""
    nodes, columns, chains = _nodes(drawing)
    _order(columns)
    _align(columns)
    top = min((node.y - node.height / 2 for column in columns for node in column), default=0.0)
    for column in columns:
        for node in column:
            node.y += MARGIN - top
    widths = _widths(drawing, len(columns))
    lefts = _lefts(drawing, widths)
    places = [
        BoxPlace(lefts[box.level], node.y - node.height / 2, widths[box.level], node.height)
        for box, node in zip(drawing.boxes, nodes, strict=True)
    ]
    routes = [
        _route(chain, drawing.boxes[edge.parent].level, places[edge.child].x, lefts, widths)
        for edge, chain in zip(drawing.edges, chains, strict=True)
    ]
    right = lefts[-1] + widths[-1] if lefts else MARGIN
    bottom = max((n.y + n.height / 2 for column in columns for n in column), default=MARGIN)
    return Layout(places, routes, right + MARGIN, bottom + MARGIN)


def _nodes(drawing: Drawing) -> tuple[list[_Node], list[list[_Node]], list[list[_Node]]]:
    """A node per box, the levels' nodes, and for every edge the nodes it passes."""
    boxes = drawing.boxes
    nodes = [_Node(BOX_HEIGHT) for _ in boxes]
    columns: list[list[_Node]] = [[] for _ in range(max((b.level for b in boxes), default=-1) + 1)]
    for box, node in zip(boxes, nodes, strict=True):
        columns[box.level].append(node)
    spans = [boxes[e.child].level - boxes[e.parent].level for e in drawing.edges]
    with_lanes = sum(span - 1 for span in spans) <= LANES_MAX
    chains: list[list[_Node]] = []
    for edge, span in zip(drawing.edges, spans, strict=True):
        chain = [nodes[edge.parent]]
        for step in range(1, span if with_lanes else 1):
            lane = _Node(LANE_HEIGHT)
            columns[boxes[edge.parent].level + step].append(lane)
            chain.append(lane)
        chain.append(nodes[edge.child])
        for a, b in pairwise(chain):
            a.after.append(b)
            b.before.append(a)
        chains.append(chain)
    for column in columns:
        for k, node in enumerate(column):
            node.order = k / len(column)
    return nodes, columns, chains


def _order(columns: list[list[_Node]]) -> None:
    """Sort each level by the middle of its neighbours, to and fro."""
    for sweep in range(SWEEPS):
        forward = sweep % 2 == 0
        for column in columns if forward else reversed(columns):
            for node in column:
                near = node.before if forward else node.after
                if near:
                    node.order = sum([n.order for n in near]) / len(near)
            column.sort(key=lambda node: node.order)
            for k, node in enumerate(column):
                node.order = (k + 0.5) / len(column)


def _align(columns: list[list[_Node]]) -> None:
    """Give every node its height on the page, as near to its neighbours' as can be."""
    for column in columns:
        _settle(column, [0.0] * len(column))
    for sweep in range(SWEEPS):
        forward = sweep % 2 == 0
        for column in columns if forward else reversed(columns):
            wishes = [_wish(node, node.before if forward else node.after) for node in column]
            _settle(column, wishes)


def _wish(node: _Node, near: list[_Node]) -> float:
    return sum([n.y for n in near]) / len(near) if near else node.y


def _settle(column: list[_Node], wishes: list[float]) -> None:
    """The places nearest to the wishes (least squares) that keep the order and the gaps."""
    offset, offsets = 0.0, []
    for k, node in enumerate(column):
        if k:
            above = column[k - 1]
            lanes = above.height == node.height == LANE_HEIGHT
            offset += (above.height + node.height) / 2 + (0.0 if lanes else GAP)
        offsets.append(offset)
    values = monotone([wish - o for wish, o in zip(wishes, offsets, strict=True)])
    for node, value, o in zip(column, values, offsets, strict=True):
        node.y = value + o


def monotone(wishes: Sequence[float]) -> list[float]:
    """The never falling sequence that is nearest to `wishes` in squares (pool adjacent violators).

    >>> monotone([3.0, 1.0, 2.0, 5.0])
    [2.0, 2.0, 2.0, 5.0]
    """
    pools: list[tuple[float, int]] = []  # (sum, count)
    for wish in wishes:
        total, count = wish, 1
        while pools and pools[-1][0] * count >= total * pools[-1][1]:
            earlier = pools.pop()
            total, count = total + earlier[0], count + earlier[1]
        pools.append((total, count))
    return [total / count for total, count in pools for _ in range(count)]


def _widths(drawing: Drawing, levels: int) -> list[float]:
    widths = [0.0] * levels
    for box in drawing.boxes:
        shown = (len(shortened(box.label)) + len(box.mark)) * CHARACTER_WIDTH + 34
        widths[box.level] = max(widths[box.level], shown)
    return widths


def _lefts(drawing: Drawing, widths: list[float]) -> list[float]:
    """Where columns begin: the more edges cross a gap, the wider it is."""
    leaving = [0] * len(widths)
    for edge in drawing.edges:
        leaving[drawing.boxes[edge.parent].level] += 1
    left, lefts = MARGIN, []
    for width, edges in zip(widths, leaving, strict=True):
        lefts.append(left)
        left += width + min(COLUMN_GAP_MAX, COLUMN_GAP_MIN + 0.8 * edges)
    return lefts


def _route(
    chain: list[_Node], level: int, end_x: float, lefts: list[float], widths: list[float]
) -> DrawnRoute:
    points = [(lefts[level] + widths[level], chain[0].y)]
    for step, lane in enumerate(chain[1:-1], 1):
        points.append((lefts[level + step], lane.y))
        points.append((lefts[level + step] + widths[level + step], lane.y))
    return DrawnRoute((*points, (end_x, chain[-1].y)))
