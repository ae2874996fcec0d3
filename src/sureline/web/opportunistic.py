"""The reproduced experiment on opportunistic site selection as one HTML page."""

from __future__ import annotations

from sureline.experiments.opportunistic_paper import (
    OpportunisticReproduced,
    SelectorRuns,
    as_in_paper,
)
from sureline.experiments.opportunistic_words import lines
from sureline.experiments.sites_paper import MODERN, PAPERS
from sureline.web.curves import Bars, Curve, bar_chart, diagram, page

STATISTICS = ("least", "median", "average", "most")


def opportunistic_page(made: OpportunisticReproduced) -> str:
    papers = as_in_paper(made.selectors)
    monitored = [one for one in made.selectors if one.monitor and _is_usual(one)]
    without = [one for one in made.selectors if not one.monitor]
    newer = ("printed", *(name for name in MODERN if name != "random"))
    parts = [
        "<h2>Fig. 7: jobs done, by minutes</h2>",
        '<div class="diagrams">',
        _done("as in the paper", papers),
        _done("all with the queue monitor", [one for one in monitored if one.selector in PAPERS]),
        _done("newer ones, with the monitor", [one for one in monitored if one.selector in newer]),
        "</div>",
        "<h2>Fig. 8: least, median, average and most minutes; Fig. 9: speed-up</h2>",
        '<div class="diagrams">',
        bar_chart("minutes, as in the paper", [_spread(one) for one in papers], STATISTICS),
        bar_chart("minutes, with the monitor", [_spread(one) for one in monitored], STATISTICS),
        bar_chart("speed-up, as in the paper", [_speed_up(one) for one in papers]),
        bar_chart("speed-up, with the monitor", [_speed_up(one) for one in monitored]),
        bar_chart("speed-up, without the monitor", [_speed_up(one) for one in without]),
        "</div>",
    ]
    return page(f"{made.paper}: {made.jobs} jobs, {made.runs} runs", parts, lines(made))


def _is_usual(one: SelectorRuns) -> bool:
    return one.withdrawals == ("recover" if one.selector == "printed" else "count")


def _spread(one: SelectorRuns) -> Bars:
    seconds = (one.minimum_s, one.median_s, one.average_s, one.maximum_s)
    return Bars(one.selector, [round(value / 60, 1) for value in seconds])


def _speed_up(one: SelectorRuns) -> Bars:
    return Bars(one.selector, [one.speed_up])


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
