"""The reproduced experiment on opportunistic site selection, in lines of text."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import groupby

from sureline.experiments.opportunistic_beyond import BeyondRow
from sureline.experiments.opportunistic_paper import OpportunisticReproduced, as_in_paper
from sureline.experiments.sites_paper import STEPS

QUESTIONS = {
    "load": "How much others use",
    "workflow": "Other workflows of about 300 jobs",
    "jobs": "More and fewer jobs",
    "files": "Large files, which take as long to move as a job to run",
    "history": "How much of a site's history counts",
    "sites": "A large site that fails everything, one that is up and down, loads that change fast",
}


def lines(made: OpportunisticReproduced) -> Iterable[str]:
    yield f"{made.paper}: {made.jobs} jobs at {len(made.sites)} sites, {made.runs} runs each"
    yield (
        f"all at the best one site: {made.fixed_s:.0f} s in the mean; with all loads known "
        f"beforehand: {made.hindsight_s:.0f} s"
    )
    yield "Fig. 8 and 9, seconds until all is done; what was taken back counts, or is forgotten:"
    yield (
        "    selector         monitor  taken back  least  median  average   most  speed-up  "
        "over best site  over hindsight  taken back"
    )
    for one in made.selectors:
        late = f"  {one.unfinished} not within a day" if one.unfinished else ""
        back = {"count": "counts", "recover": "forgotten"}[one.withdrawals] if one.monitor else "-"
        yield (
            f"    {one.selector:<16} {'with' if one.monitor else 'without':<7}  {back:<10} "
            f"{one.minimum_s:>6.0f} {one.median_s:>7.0f} {one.average_s:>8.0f} "
            f"{one.maximum_s:>6.0f} {one.speed_up:>9.1f} {one.over_fixed:>+15.0%} "
            f"{one.over_hindsight:>+15.0%} {one.withdrawn:>11.1f}{late}"
        )
    yield from _fig7(made)
    yield "What the paper says:"
    for claim in made.claims:
        yield f"    {claim.what}: {claim.verdict}"
        yield f"        paper: {claim.paper}"
        yield f"        ours:  {claim.ours}"
    for question, rows in groupby(made.beyond, lambda row: row.question):
        yield from _question(QUESTIONS[question], list(rows))


def _fig7(made: OpportunisticReproduced) -> Iterable[str]:
    shown = as_in_paper(made.selectors)
    yield "Fig. 7, seconds until so many are done (the paper's five, its own with the monitor):"
    yield "    jobs  " + "".join(f"{one.selector:>16}" for one in shown)
    for number in range(STEPS):
        if all(len(one.curve) > number for one in shown):
            cells = "".join(f"{one.curve[number][1]:>16.0f}" for one in shown)
            yield f"    {shown[0].curve[number][0]:>4}  {cells}"


def _question(title: str, rows: list[BeyondRow]) -> Iterable[str]:
    yield f"{title}, seconds (over hindsight), all with the monitor:"
    cases = list(dict.fromkeys(row.case for row in rows))
    by = {(row.case, row.selector): row for row in rows}
    width = max(len(case) for case in cases) + 10
    yield "    " + " " * 16 + "".join(f"{case:>{max(16, width)}}" for case in cases)
    for selector in dict.fromkeys(row.selector for row in rows):
        cells = []
        for case in cases:
            row = by[case, selector]
            told = f"{row.average_s:.0f} ({row.over_hindsight:+.0%})"
            told += f" {row.unfinished}!" if row.unfinished else ""
            cells.append(f"{told:>{max(16, width)}}")
        yield f"    {selector:<16}" + "".join(cells)
    bad = [row for row in rows if row.bad]
    if bad:
        told = ", ".join(f"{row.selector} {row.bad:.0%}" for row in bad if row.case == "black-hole")
        yield f"    of all jobs, the site that fails everything got: {told}"
