"""The experiment of the paper on opportunistic site selection: twelve sites, 300 jobs, 20 runs.

The paper's sites were real ones, with whatever others did there. Here the others are drawn: at
each site they hold a share of the processors that changes every twenty minutes or so, and is often
all of them (`sites_paper.LOADS`). All else is the paper's: Table 1's processors, Table 2's
durations, files of one megabyte that take about nine seconds each to move. Every selector meets
the same histories of the sites.

The strategy itself runs, around the real engine, at modelled sites (`site_world`). What goes beyond
the paper's own experiment, and what hindsight would have done, is in `opportunistic_beyond`.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from sureline.experiments.opportunistic_beyond import BeyondRow, beyond
from sureline.experiments.processes import in_processes
from sureline.experiments.site_hindsight import best_fixed_s, hindsight_s
from sureline.experiments.site_world import SiteRunFound, run_at_sites
from sureline.experiments.sites_paper import (
    FIRST_JOBS,
    IDLE_S,
    MODERN,
    PAPERS,
    PIPELINES,
    SEQUENTIAL_S,
    SITES,
    SPEED_UP,
    STEPS,
    TITLE,
    pipelines,
    twelve_sites,
)

HEFT = "heft"


class SelectorRuns(msgspec.Struct, frozen=True):
    """All runs of one selector, with or without the queue monitor. Seconds."""

    selector: str
    monitor: bool
    withdrawals: str
    """Whether what was taken back counts against its site, or is forgotten, as in the paper."""
    minimum_s: float
    median_s: float
    average_s: float
    maximum_s: float
    speed_up: float
    """One processor's time for all jobs and transfers, by the average."""
    over_fixed: float
    over_hindsight: float
    """How much longer, in the mean of all runs, than all at the best one site, and than with all
    loads known beforehand: 0.5 is half as long again."""
    withdrawn: float
    """Jobs taken back from queues, per run."""
    unfinished: int
    """Runs that did not end within a day."""
    curve: list[tuple[int, float]]
    """(jobs done, seconds), the mean of all runs."""


class OpportunisticCompared(msgspec.Struct, frozen=True):
    what: str
    paper: str
    ours: str
    verdict: str


class OpportunisticReproduced(msgspec.Struct, frozen=True):
    paper: str
    runs: int
    jobs: int
    sites: dict[str, int]
    sequential_s: float
    fixed_s: float
    hindsight_s: float
    """What the best fixed site, and hindsight, take in the mean."""
    selectors: list[SelectorRuns]
    claims: list[OpportunisticCompared]
    beyond: list[BeyondRow]


class _Case(NamedTuple):
    selector: str
    monitor: bool
    withdrawals: str

    @property
    def strategy(self) -> str:
        """HEFT is no selector: it plans by processors and durations, and sees no queue."""
        return HEFT if self.selector == HEFT else "opportunistic"

    @property
    def settings(self) -> dict[str, Any]:
        if self.selector == HEFT:
            return {}
        idle_s = IDLE_S if self.monitor else 0
        found: dict[str, Any] = {"selector": self.selector, "idle_s": idle_s, "deep": 0}
        return {**found, "withdrawals": self.withdrawals}


class _Item(NamedTuple):
    case: _Case | None
    """None for the two yardsticks."""
    seed: int


def cases() -> list[_Case]:
    """All that is compared. The paper's own forgets what was taken back; ours counts it, and its
    variant does not."""
    found = [
        _Case(name, monitor, "recover" if name == "printed" else "count")
        for name in (*PAPERS, *MODERN)
        for monitor in (True, False)
    ]
    found += [_Case("opportunistic", True, "recover"), _Case("printed", True, "count")]
    return [*found, _Case(HEFT, False, "count")]


def _run(item: _Item) -> SiteRunFound | tuple[float, float]:
    graph, sites = pipelines(), twelve_sites()
    if item.case is None:
        return best_fixed_s(graph, sites, item.seed), hindsight_s(graph, sites, item.seed)
    return run_at_sites(graph, sites, item.case.settings, item.seed, item.case.strategy)


def reproduce(runs: int, seed: int, tell: Callable[[str], None]) -> OpportunisticReproduced:
    wanted = cases()
    items = [_Item(case, seed + run) for case in (None, *wanted) for run in range(runs)]
    found = in_processes(_run, items, lambda n: tell(f"{n} of {len(items)} runs are done"))
    yardsticks = [one for one in found[:runs] if isinstance(one, tuple)]
    made = []
    for number, case in enumerate(wanted, 1):
        of_case = found[number * runs : (number + 1) * runs]
        made.append(_summed(case, [r for r in of_case if isinstance(r, SiteRunFound)], yardsticks))
    return OpportunisticReproduced(
        TITLE,
        runs,
        3 * PIPELINES,
        SITES,
        SEQUENTIAL_S,
        round(statistics.fmean(fixed for fixed, _ in yardsticks), 1),
        round(statistics.fmean(known for _, known in yardsticks), 1),
        made,
        list(_claims(made)),
        beyond(runs, seed, tell),
    )


def _summed(
    case: _Case, found: Sequence[SiteRunFound], yardsticks: Sequence[tuple[float, float]]
) -> SelectorRuns:
    ended = [one.done_s for one in found if one.done_s]
    last_s = [one.makespan_s for one in found]
    average_s = statistics.fmean(last_s)
    numbers = [round(n * 3 * PIPELINES / STEPS) for n in range(1, STEPS + 1)]
    over = [
        statistics.fmean(
            last / marks[k] - 1 for last, marks in zip(last_s, yardsticks, strict=True)
        )
        for k in (0, 1)
    ]
    return SelectorRuns(
        *case_key(case),
        case.withdrawals,
        round(min(last_s), 1),
        round(statistics.median(last_s), 1),
        round(average_s, 1),
        round(max(last_s), 1),
        round(SEQUENTIAL_S / average_s, 2),
        round(over[0], 3),
        round(over[1], 3),
        round(statistics.fmean(one.withdrawn for one in found), 1),
        len(found) - len(ended),
        [
            (number, round(statistics.fmean(done_s[number - 1] for done_s in ended), 1))
            for number in numbers
            if ended
        ],
    )


def case_key(case: _Case) -> tuple[str, bool]:
    return case.selector, case.monitor


def as_in_paper(made: Iterable[SelectorRuns]) -> list[SelectorRuns]:
    """The five of Fig. 7 to 9: only the paper's own had a queue monitor."""
    own, *rivals = PAPERS
    return [
        one
        for one in made
        if (one.selector == own and one.monitor and one.withdrawals == "recover")
        or (one.selector in rivals and not one.monitor)
    ]


def _claims(made: Sequence[SelectorRuns]) -> Iterable[OpportunisticCompared]:
    ours, *rivals = as_in_paper(made)
    yield OpportunisticCompared(
        "speed-up of opportunistic (Fig. 9)",
        f"about {SPEED_UP:g}",
        f"{ours.speed_up:.1f}",
        _verdict(0.7 * SPEED_UP <= ours.speed_up <= 1.4 * SPEED_UP),
    )
    gains = {one.selector: ours.speed_up / one.speed_up - 1 for one in rivals}
    told = ", ".join(f"{name} {gain:+.0%}" for name, gain in gains.items())
    yield OpportunisticCompared(
        "speed-up against the others",
        "up to 120 % better (abstract)",
        told,
        _verdict(0.96 <= max(gains.values()) <= 1.5),
    )
    yield OpportunisticCompared(
        "speed-up against the others",
        "more than 150 % better (section 6); both cannot be",
        told,
        _verdict(min(gains.values()) > 1.5),
    )
    least = [one.minimum_s for one in (ours, *rivals)]
    yield OpportunisticCompared(
        "the minimum is almost the same for all (Fig. 8)",
        "yes",
        f"{min(least):.0f} to {max(least):.0f} s",
        _verdict(max(least) <= 1.25 * min(least)),
    )
    first = [_at(one, FIRST_JOBS) for one in (ours, *rivals)]
    yield OpportunisticCompared(
        "the same during the first hundred jobs (Fig. 7)",
        "yes",
        f"{min(first):.0f} to {max(first):.0f} s",
        _verdict(max(first) <= 1.25 * min(first)),
    )
    yield _contributions(made, ours)


def _contributions(made: Sequence[SelectorRuns], ours: SelectorRuns) -> OpportunisticCompared:
    by: Mapping[tuple[str, bool], SelectorRuns] = {
        (one.selector, one.monitor): one for one in reversed(made)
    }
    plain = by["round-robin", False].average_s
    ratio, monitor = by["printed", False].average_s, by["round-robin", True].average_s
    return OpportunisticCompared(
        "faster than round robin by the ratio alone, by the monitor alone, by both",
        "not told apart",
        f"{plain / ratio - 1:+.0%}, {plain / monitor - 1:+.0%}, {plain / ours.average_s - 1:+.0%}",
        "new",
    )


def _at(one: SelectorRuns, jobs: int) -> float:
    return next((seconds for number, seconds in one.curve if number >= jobs), float("nan"))


def _verdict(holds: bool) -> str:
    return "agrees" if holds else "disagrees"
