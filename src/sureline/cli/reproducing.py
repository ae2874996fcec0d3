"""The command that recomputes what papers print: reproduce."""

from __future__ import annotations

import textwrap
import time
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import Parameter

from sureline.cli import console
from sureline.cli.drawing import write_file
from sureline.cli.options import Json
from sureline.workflow.mistakes import UserError

if TYPE_CHECKING:
    from sureline.experiments.surety_paper import SuretyCompared, SuretyReproduced


def reproduce(
    paper: Annotated[
        Literal["surety", "peercomp", "chemical", "opportunistic", "latebinding"],
        Parameter(
            help="Which paper: surety is 'Scheduling Under Uncertainty', peercomp is 'Distributed "
            "Scheduler of Workflows with Deadlines in a P2P Desktop Grid', chemical is "
            "'Decentralised Multiple Workflow Scheduling via a Chemically-coordinated Shared "
            "Space', opportunistic is 'An Opportunistic Algorithm for Scheduling Workflows on "
            "Grids', latebinding is 'Distributed scheduling and data sharing in late-binding "
            "overlays'."
        ),
    ],
    /,
    *,
    nodes: Annotated[
        int | None,
        Parameter(
            help="peercomp: simulated peers; 1000 if not given, which takes about half a minute. "
            "A million take some five minutes of one core, and 5 GB. chemical: the largest ring, "
            "100000 if not given. latebinding: pilots of the largest testbed, 100, 500 or 1500; "
            "500 if not given."
        ),
    ] = None,
    full: Annotated[
        bool | None,
        Parameter(
            help="latebinding: as the paper, testbeds of up to 1500 pilots and 10000 tasks, 3 runs "
            "of each workflow: about 25 minutes of one core. Else it takes one.",
            negative="",
        ),
    ] = None,
    workflows: Annotated[
        int | None, Parameter(help="chemical: the largest number of workflows at once; 1000.")
    ] = None,
    minutes: Annotated[
        float | None, Parameter(help="peercomp: simulated minutes under full load; 2.")
    ] = None,
    runs: Annotated[
        int | None,
        Parameter(
            help="opportunistic: runs of each selector; 20, as in the paper, which takes some "
            "minutes of one core. latebinding: runs of each workflow; 1 if not given."
        ),
    ] = None,
    seed: Annotated[
        int | None, Parameter(help="Not of surety: the seed of all randomness; 0.")
    ] = None,
    html: Annotated[
        Path | None,
        Parameter(help="Not of surety: write tables and curves as a page to this file."),
    ] = None,
    json: Json = False,
) -> int:
    """Recompute the numbers that a paper prints, and say which of them follow.

    Example: sureline reproduce surety
    """
    _refuse_others(
        paper,
        nodes=nodes,
        full=full,
        workflows=workflows,
        minutes=minutes,
        runs=runs,
        seed=seed,
        html=html,
    )
    if seed is not None and not 0 <= seed < 1 << 30:
        raise UserError(f"--seed {seed} is out of bounds; give 0 to {(1 << 30) - 1:,}")
    if html is not None and not html.absolute().parent.is_dir():
        raise UserError(f"--html {html} cannot be written: there is no directory {html.parent}")
    if paper == "peercomp":
        return _peercomp(nodes, minutes, seed, html, json)
    if paper == "chemical":
        return _chemical(nodes, workflows, seed, html, json)
    if paper == "latebinding":
        pilots, times = (1500, 3) if full else (500, 1)
        return _latebinding(nodes or pilots, runs or times, seed or 0, html, json)
    if paper == "opportunistic":
        return _opportunistic(20 if runs is None else runs, seed or 0, html, json)
    from sureline.experiments import surety_paper

    made = surety_paper.reproduce()
    if json:
        console.print_json(made)
    else:
        _say(made)
    return 0


_OPTIONS = {
    "surety": (),
    "peercomp": ("nodes", "minutes", "seed", "html"),
    "chemical": ("nodes", "workflows", "seed", "html"),
    "opportunistic": ("runs", "seed", "html"),
    "latebinding": ("nodes", "full", "runs", "seed", "html"),
}


def _refuse_others(paper: str, **given: object) -> None:
    wrong = [f"--{name}" for name, value in given.items() if value is not None]
    wrong = [name for name in wrong if name[2:] not in _OPTIONS[paper]]
    if wrong:
        raise UserError(f"{' and '.join(wrong)} is not for {paper}; leave it out")


def _latebinding(pilots: int, runs: int, seed: int, html: Path | None, json: bool) -> int:
    from sureline.experiments.latebinding import lines
    from sureline.experiments.latebinding import reproduce as reproduced

    if not 1 <= runs <= 100:
        raise UserError(f"--runs {runs} is out of bounds; give 1 to 100")
    if pilots not in (100, 500, 1500):
        raise UserError(f"--nodes {pilots} is no testbed of the paper; give 100, 500 or 1500")
    made = reproduced(pilots, runs, seed, _Progress().tell)
    if html is not None:
        from sureline.web.latebinding import latebinding_page

        write_file(html, latebinding_page(made), "--html")
    _give_out(made, lines(made), json)
    return 0


def _opportunistic(runs: int, seed: int, html: Path | None, json: bool) -> int:
    from sureline.experiments.opportunistic_paper import reproduce as reproduced
    from sureline.experiments.opportunistic_words import lines

    if not 1 <= runs <= 1000:
        raise UserError(f"--runs {runs} is out of bounds; give 1 to 1,000")
    made = reproduced(runs, seed, _Progress().tell)
    if html is not None:
        from sureline.web.opportunistic import opportunistic_page

        write_file(html, opportunistic_page(made), "--html")
    _give_out(made, lines(made), json)
    return 0


def _peercomp(
    nodes: int | None, minutes: float | None, seed: int | None, html: Path | None, json: bool
) -> int:
    from sureline.experiments.peercomp import reproduce as reproduced
    from sureline.experiments.peercomp_words import lines

    nodes, minutes = 1000 if nodes is None else nodes, 2.0 if minutes is None else minutes
    if not 10 <= nodes <= 2_000_000:
        raise UserError(f"--nodes {nodes} is out of bounds; give 10 to 2,000,000")
    if not 0.1 <= minutes <= 120:
        raise UserError(f"--minutes {minutes:g} is out of bounds; give 0.1 to 120")
    made = reproduced(nodes, minutes, seed or 0, _Progress().tell)
    if html is not None:
        from sureline.web.peercomp import peercomp_page

        write_file(html, peercomp_page(made), "--html")
    _give_out(made, lines(made), json)
    return 1 if made.missed else 0


def _chemical(
    nodes: int | None, workflows: int | None, seed: int | None, html: Path | None, json: bool
) -> int:
    from sureline.experiments.chemical import reproduce as reproduced
    from sureline.experiments.chemical_words import lines

    nodes = 100_000 if nodes is None else nodes
    workflows = 1_000 if workflows is None else workflows
    if not 100 <= nodes <= 1_000_000:
        raise UserError(f"--nodes {nodes} is out of bounds; give 100 to 1,000,000")
    if not 10 <= workflows <= 10_000:
        raise UserError(f"--workflows {workflows} is out of bounds; give 10 to 10,000")
    made = reproduced(nodes, workflows, seed or 0, _Progress().tell)
    if html is not None:
        from sureline.web.chemical import chemical_page

        write_file(html, chemical_page(made), "--html")
    _give_out(made, lines(made), json)
    return 1 if any(one.problems for one in made.crashes) else 0


def _give_out(made: object, lines: Iterable[str], json: bool) -> None:
    if json:
        console.print_json(made)
    else:
        for line in lines:
            console.say(line)


class _Progress:
    """A line on stderr now and then."""

    def __init__(self) -> None:
        self._told = time.monotonic()

    def tell(self, what: str) -> None:
        now = time.monotonic()
        if now - self._told >= PROGRESS_EVERY_S:
            self._told = now
            console.note(what)


PROGRESS_EVERY_S = 2.0


def _say(made: SuretyReproduced) -> None:
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


def _compared(number: SuretyCompared) -> list[str]:
    verdict = "follows" if number.follows else "DOES NOT FOLLOW"
    first = f"  {number.what}: paper {number.paper}, ours {number.ours}: {verdict}"
    return [
        first,
        *textwrap.wrap(number.why, 90, initial_indent="      ", subsequent_indent="      "),
    ]
