"""The reproduced experiments on late-binding overlays as one HTML page."""

from __future__ import annotations

from collections.abc import Callable

from sureline.experiments.latebinding import (
    ARCHITECTURES,
    FIGURES,
    LateReproduced,
    LateSeries,
    lines,
)
from sureline.experiments.latebinding_beyond import BulkPoint
from sureline.experiments.latebinding_sites import Sample
from sureline.web.curves import Bars, Curve, bar_chart, diagram, page


def latebinding_page(made: LateReproduced) -> str:
    parts = [
        "<h2>Figures 2, 3, 4, 7 and 8, by pilots and tasks</h2>",
        '<div class="diagrams">',
        *(_figure(made, figure) for figure in FIGURES),
        "</div>",
        "<h2>Figures 5 and 6: one serial run of the largest testbed, by minutes</h2>",
        '<div class="diagrams">',
        _over_time(made, "running tasks", lambda sample: sample.running),
        _over_time(made, "requests waiting at the queue", lambda sample: sample.pending),
        _over_time(made, "requests so far", lambda sample: sample.requests),
        _over_time(made, "seconds between two tasks", lambda sample: sample.delay_s),
        "</div>",
        "<h2>Beyond the paper: completions told to the queue in bulk</h2>",
        '<div class="diagrams">',
        _bulk(made, "seconds until a task begins that waits for another", _later),
        _bulk(made, "queue requests per job", _asked),
        "</div>",
    ]
    return page(f"{made.paper}: runs of each workflow: {made.runs}", parts, lines(made))


def _figure(made: LateReproduced, figure: str) -> str:
    cells = [cell for cell in made.cells if cell.figure == figure]
    sizes = list(dict.fromkeys((cell.pilots, cell.tasks) for cell in cells))
    rows = [
        Bars(
            f"{pilots:,} / {tasks:,}",
            [cell.mean for cell in cells if (cell.pilots, cell.tasks) == (pilots, tasks)],
        )
        for pilots, tasks in sizes
    ]
    return bar_chart(f"Fig. {figure}: {FIGURES[figure][0]}", rows, list(map(_named, ARCHITECTURES)))


def _over_time(made: LateReproduced, title: str, of: Callable[[Sample], float]) -> str:
    curves = [Curve(_named(one.architecture), _points(one, of)) for one in made.series]
    points = [point for curve in curves for point in curve.points]
    most_x, most_y = max(x for x, _ in points), max(y for _, y in points)
    return diagram(title, curves, most_x, most_y, lambda s: f"{s / 60:.0f}", _number)


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _points(series: LateSeries, of: Callable[[Sample], float]) -> list[tuple[float, float]]:
    return [(sample.time_s, of(sample)) for sample in series.samples]


def _later(point: BulkPoint) -> float:
    return point.dependent_delay_s


def _asked(point: BulkPoint) -> float:
    return point.requests_per_job


def _bulk(made: LateReproduced, title: str, of: Callable[[BulkPoint], float]) -> str:
    points = [(point.interval_s, of(point)) for point in made.bulk]
    most_x, most_y = points[-1][0], max(y for _, y in points)
    curve = Curve("ours, by seconds between two messages", points)
    return diagram(title, [curve], most_x, most_y, "{:g}".format, "{:.3g}".format)


def _named(architecture: str) -> str:
    return "ours" if architecture == "event" else architecture
