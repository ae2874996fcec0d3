"""The example of Sample, Keyani and Wiederhold, "Scheduling Under Uncertainty", recomputed.

Every number that the paper prints of its example stands beside ours, with whether it follows from
the paper's own equations. All go through the code that `sureline plan --method pert` uses.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import msgspec
import numpy as np

from sureline.strategies.surety.planning import exact, pert
from sureline.strategies.surety.planning.bids import BidTable, Listed, read_bids
from sureline.strategies.surety.planning.choices import Choices, Timing, timing
from sureline.strategies.surety.planning.judging import Sampling, judge_for
from sureline.strategies.surety.planning.plan import plan_of
from sureline.workflow.composition import read_composition
from sureline.workflow.model import Graph
from sureline.workflow.terms import Terms

TITLE = "Scheduling Under Uncertainty: Planning for the Ubiquitous Grid"
PROGRAM = """\
// begin program
A = service1();
B = service2();
C = service3(A,B);
D = service4(C);
E = service5(C);
// end of program
"""
TABLE = """\
service,provider,cost,time,variance
service1,first,8,8,2
service1,second,9,10,1
service1,third,11,6,0
service2,first,10,5,2
service2,second,12,4,1
service3,first,5,6,0
service4,first,15,2,0
service4,second,10,4,2
service5,first,20,1,0
service5,second,10,2,2
service5,third,5,3,1
"""
DEADLINE, BUDGET, SURETY = 20.0, 65.0, 0.9
SAMPLES = 100_000


class SuretyCompared(msgspec.Struct, frozen=True):
    """A number, or a statement, of the paper beside ours. `paper` is as printed."""

    what: str
    paper: str
    ours: str
    value: float | None
    """Ours, unrounded; None for what is not a number."""
    follows: bool
    why: str


class Scheduled(msgspec.Struct, frozen=True):
    """One of all schedules."""

    assignment: dict[str, str]
    cost: float
    expected: float
    earliest: float
    latest: float
    surety: float
    critical_path: list[str]
    on_front: bool


class SuretyReproduced(msgspec.Struct, frozen=True):
    paper: str
    program: str
    terms: dict[str, float]
    numbers: list[SuretyCompared]
    schedules: list[Scheduled]
    front: list[Scheduled]


def reproduce() -> SuretyReproduced:
    graph, table = example()
    choices = Choices(graph, table.bids)
    terms = Terms(DEADLINE, BUDGET, SURETY)
    schedules = _all(choices, terms)
    return SuretyReproduced(
        TITLE,
        PROGRAM,
        {"within": DEADLINE, "budget": BUDGET, "surety": SURETY},
        [*_planning(choices, terms, schedules), *_monitoring(graph, table)],
        schedules,
        [schedule for schedule in schedules if schedule.on_front],
    )


def example() -> tuple[Graph, BidTable]:
    """The program of Figure 2 and the bids of Table 1."""
    graph = read_composition(PROGRAM.encode(), file="paper.txt").graph
    return graph, read_bids(TABLE.encode(), file="bids.csv")


def _all(choices: Choices, terms: Terms) -> list[Scheduled]:
    rows = np.concatenate(list(exact.blocks(choices)))
    front = exact.search(choices, terms, judge_for(choices, terms, "pert")).front
    on_front = {tuple(row) for row in front.schedules.tolist()}
    found = []
    for row in rows.tolist():
        schedule = tuple(row)
        when = timing(choices, schedule)
        found.append(
            Scheduled(
                choices.assignment(schedule),
                choices.cost(schedule),
                when.expected,
                when.earliest,
                when.latest,
                pert.surety_of(DEADLINE, when.expected, when.variance),
                [choices.graph.tasks[i].name for i in when.critical],
                schedule in on_front,
            )
        )
    return sorted(found, key=lambda s: (s.cost, s.expected, -s.surety))


def _planning(
    choices: Choices, terms: Terms, schedules: Sequence[Scheduled]
) -> list[SuretyCompared]:
    made = plan_of(choices, terms, "pert")
    services = dict(zip(choices.graph.index, choices.services, strict=True))
    path = ", ".join(services[task] for task in made.critical_path)
    cheapest = min(schedule.cost for schedule in schedules)
    assert made.cost is not None and made.expected is not None and made.reserve is not None
    assert made.earliest is not None and made.latest is not None and made.surety is not None
    return [
        SuretyCompared(
            "critical path of the chosen schedule",
            "service1, service3, service4",
            path,
            None,
            True,
            "the longest path by expected times",
        ),
        _same("total cost", 38, made.cost, "8 + 10 + 5 + 10 + 5"),
        _same("reserve", 27, made.reserve, "65 - 38"),
        _same("expected finishing time", 18, made.expected, "8 + 6 + 4"),
        _same("earliest finishing time", 14, made.earliest, "6 + 6 + 2"),
        _same("latest finishing time", 22, made.latest, "10 + 6 + 6"),
        _sure("surety", "98.31", made.surety, "Phi((20 - 18) / sqrt(4/9 + 4/9)) = Phi(2.121)"),
        SuretyCompared(
            "'alternative assignments would give a lower overall cost'",
            "lower than 38",
            f"least of {len(schedules)}: {cheapest:g}",
            cheapest,
            False,
            "38 is the least cost of all 36 schedules; the chosen one is the cheapest",
        ),
    ]


def _monitoring(graph: Graph, table: BidTable) -> list[SuretyCompared]:
    progress = 4 / 5
    late, late_surety = _with(graph, table, ends={"service2": (11, 2)})
    twice, twice_surety = _with(graph, table, ends={"service2": (9, 2)})
    swapped, swapped_surety = _with(graph, table, ends={"service2": (9, 2), "service4": (3, 2)})
    linear, linear_surety = _with(graph, table, ends={"service2": (8, 2)})
    three = pert.surety_of(DEADLINE, swapped.expected, swapped.variance + (4 / 6) ** 2)
    both = _both_run(graph, table)
    return [
        _same("service2 at time 4, expected progress in %", 80, 100 * progress, "4 of 5"),
        SuretyCompared(
            "service2, half done at time 4, 'projects' to end at",
            "11",
            f"{4 / 0.5:g}",
            4 / 0.5,
            False,
            "half in 4 is all in 8; 11 is the paper's assumption. With 8, nothing would be late: "
            f"expected {linear.expected:g}, surety {_percent(linear_surety)}",
        ),
        _sure(
            "surety with service2 ending at 11",
            "14.44",
            late_surety,
            f"11 + 6 + 4 = {late.expected:g}; Phi((20 - 21) / sqrt(4/9 + 4/9)), if service2 is "
            "still uncertain by 2",
        ),
        _same("expected end after repair 1", 19, twice.expected, "4 + 5 + 6 + 4"),
        _same("earliest end after repair 1", 15, twice.earliest, "4 + 3 + 6 + 2"),
        _same("latest end after repair 1", 23, twice.latest, "4 + 7 + 6 + 6"),
        _sure(
            "surety after repair 1 (a second service2 from time 4)",
            "85.56",
            twice_surety,
            "Phi((20 - 19) / sqrt(4/9 + 4/9)); counts the second one only. That the first of the "
            f"two to end counts, and that service1 may be late too: {_percent(both)} by simulation",
        ),
        _same("reserve after repair 1", 17, BUDGET - 38 - 10, "27 - 10"),
        SuretyCompared(
            "surety after repair 2 (service4 by another provider, 3 +/- 2)",
            "95.83 %",
            _percent(swapped_surety),
            swapped_surety,
            False,
            f"4 + 5 + 6 + 3 = {swapped.expected:g}: the equations give 98.31 % again. With the "
            "variance of the service4 that was replaced left in the sum they give "
            f"{_percent(three)}",
        ),
    ]


def _with(
    graph: Graph, table: BidTable, ends: dict[str, tuple[float, float]]
) -> tuple[Timing, float]:
    """The chosen schedule, but with these services ending (from time 0 for service2), or taking,
    so long, give or take so much."""
    bids = []
    for service, provider in _CHOSEN.items():
        listed = next(
            one for one in table.bids if (one.bid.service, one.label) == (service, provider)
        )
        if service in ends:
            time, by = ends[service]
            bid = msgspec.structs.replace(listed.bid, time=time, early=time - by, late=time + by)
            listed = Listed(bid, listed.label, listed.line)
        bids.append(listed)
    choices = Choices(graph, bids)
    when = timing(choices, (0,) * len(graph))
    return when, pert.surety_of(DEADLINE, when.expected, when.variance)


_CHOSEN = {
    "service1": "first",
    "service2": "first",
    "service3": "first",
    "service4": "second",
    "service5": "third",
}


def _both_run(graph: Graph, table: BidTable) -> float:
    """Repair 1 by simulation: service2 ends when the first of its two instances does."""
    text = (
        "service,provider,cost,time,variance\n"
        "late,p,0,11,2\nagain,p,0,9,2\nservice1,p,0,8,2\nrest,p,0,6,0\nlast,p,0,4,2\nside,p,0,3,1\n"
    )
    program = "A = service1(); B = late(); F = again(); D = last(); E = side();"
    parts = read_composition(program.encode(), file="parts").graph
    choices = Choices(parts, read_bids(text.encode(), file="parts").bids)
    judge = judge_for(choices, Terms(DEADLINE), "montecarlo", SAMPLES)
    assert isinstance(judge, Sampling)
    one, late, again, last, side = (judge.durations(i, 0) for i in range(5))
    begin = np.maximum(one, np.minimum(late, again)) + 6
    return float((np.maximum(begin + last, begin + side) <= DEADLINE).mean())


def _same(what: str, paper: float, ours: float, why: str) -> SuretyCompared:
    follows = math.isclose(paper, ours, rel_tol=1e-9)
    return SuretyCompared(what, f"{paper:g}", f"{ours:g}", ours, follows, why)


def _sure(what: str, paper: str, ours: float, why: str) -> SuretyCompared:
    shown = _percent(ours)
    return SuretyCompared(what, f"{paper} %", shown, ours, shown == f"{paper} %", why)


def _percent(share: float) -> str:
    return f"{share * 100:.2f} %"
