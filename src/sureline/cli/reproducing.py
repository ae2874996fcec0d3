"""The command that recomputes what papers print: reproduce."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import Parameter

from sureline.cli import console
from sureline.cli.options import Json

if TYPE_CHECKING:
    from sureline.experiments.surety_paper import Compared, Reproduced


def reproduce(
    paper: Annotated[
        Literal["surety"],
        Parameter(help="Which paper: surety is 'Scheduling Under Uncertainty'."),
    ],
    /,
    *,
    json: Json = False,
) -> int:
    """Recompute the numbers that a paper prints, and say which of them follow.

    Example: sureline reproduce surety
    """
    from sureline.experiments import surety_paper

    made = surety_paper.reproduce()
    if json:
        console.print_json(made)
    else:
        _say(made)
    return 0


def _say(made: Reproduced) -> None:
    console.say(f"{made.paper}: the example, recomputed")
    for number in made.numbers:
        for line in _compared(number):
            console.say(line)
    follow = sum(number.follows for number in made.numbers)
    console.say(f"{follow} of {len(made.numbers)} follow from the paper's equations.")
    console.say("")
    console.say(f"all {len(made.schedules)} schedules; * on the front ({len(made.front)}):")
    console.say(f"    {'cost':>4} {'expected':>8} {'range':>7} {'surety':>8}  critical  providers")
    for one in made.schedules:
        span = f"{one.earliest:g}-{one.latest:g}"
        surety = "> 99.99" if 0.99995 <= one.surety < 1 else f"{one.surety * 100:.2f}"
        console.say(
            f"  {'*' if one.on_front else ' '} {one.cost:>4g} {one.expected:>8g} {span:>7} "
            f"{surety:>8}  {' '.join(one.critical_path):<8}  {' '.join(one.assignment.values())}"
        )


def _compared(number: Compared) -> list[str]:
    verdict = "follows" if number.follows else "DOES NOT FOLLOW"
    first = f"  {number.what}: paper {number.paper}, ours {number.ours}: {verdict}"
    return [
        first,
        *textwrap.wrap(number.why, 90, initial_indent="      ", subsequent_indent="      "),
    ]
