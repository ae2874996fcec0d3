"""The reproduced experiment on opportunistic site selection as one HTML page."""

from __future__ import annotations

from sureline.experiments.opportunistic_paper import (
    MODERN,
    PAPERS,
    OpportunisticReproduced,
    SelectorRuns,
    lines,
)
from sureline.web.curves import Curve, diagram, page


def opportunistic_page(made: OpportunisticReproduced) -> str:
    papers = [one for one in made.selectors if one.monitor == (one.selector == PAPERS[0])]
    parts = [
        "<h2>Fig. 7: jobs done, by minutes</h2>",
        '<div class="diagrams">',
        _done("as in the paper", [one for one in papers if one.selector in PAPERS]),
        _done("all with the queue monitor", _of(made, PAPERS)),
        _done("newer ones, with the queue monitor", _of(made, (PAPERS[0], *MODERN[1:]))),
        "</div>",
    ]
    return page(f"{made.paper}: {made.jobs} jobs, {made.runs} runs", parts, lines(made))


def _of(made: OpportunisticReproduced, names: tuple[str, ...]) -> list[SelectorRuns]:
    return [one for one in made.selectors if one.monitor and one.selector in names]


def _done(title: str, runs: list[SelectorRuns]) -> str:
    curves = [
        Curve(one.selector, [(0.0, 0.0), *((seconds, jobs) for jobs, seconds in one.curve)])
        for one in runs
    ]
    ends = [point for curve in curves for point in curve.points]
    most_x, most_y = max(x for x, _ in ends), max(y for _, y in ends)
    return diagram(
        f"jobs done, {title}", curves, most_x, most_y, lambda s: f"{s / 60:.0f}", "{:.0f}".format
    )
