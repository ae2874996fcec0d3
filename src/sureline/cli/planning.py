"""The command that says what is possible, and what it costs: plan."""

from __future__ import annotations

import math
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Parameter

from sureline.cli import console
from sureline.cli.options import (
    Directory,
    Flow,
    Json,
    Settings,
    limits,
    machine,
    read_flow,
    working_directory,
)
from sureline.cli.pilots import PilotSettings, PilotsMost, RunOn, check_on, planned
from sureline.cli.wanted import Cores, Gpus, Memory, Tags
from sureline.workflow.mistakes import UserError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from sureline.journal.history import Observed
    from sureline.sites.order import PilotOrder
    from sureline.strategies.surety.planning.judging import Method
    from sureline.strategies.surety.planning.plan import Plan, Weights
    from sureline.workflow.model import Graph
    from sureline.workflow.terms import Terms

MANY = 10**7
"""So many schedules take seconds."""


def plan(
    flow: Flow,
    /,
    *,
    within: Annotated[
        str | None,
        Parameter(
            help="How long it may take: seconds, or 20m, 1h30m; with --bids, a number in the "
            "unit of the bids."
        ),
    ] = None,
    budget: Annotated[
        float | None, Parameter(help="What it may cost at most. Default: no limit.")
    ] = None,
    surety: Annotated[
        str | None,
        Parameter(
            help="The least chance of being done in time that is good enough, such as 0.9 or 90%. "
            "Default: 0.9, if there is a --within."
        ),
    ] = None,
    bids: Annotated[
        str | None,
        Parameter(
            help="A CSV table of bids: service, provider, cost, time, and variance, or early and "
            "late. Default: the tasks run on this machine."
        ),
    ] = None,
    grid: Annotated[
        str | None, Parameter(name="--grid", help="Plan for the peers of this grid instead.")
    ] = None,
    on: RunOn = None,
    pilots: PilotsMost = None,
    piloting: PilotSettings = PilotSettings(),  # noqa: B008 - it is immutable
    method: Annotated[
        Literal["montecarlo", "pert", "cpm"],
        Parameter(
            help="How to judge: simulated runs; the equations of PERT on the critical path; or "
            "the critical path alone, as if nothing were uncertain."
        ),
    ] = "montecarlo",
    weights: Annotated[
        str | None,
        Parameter(
            help="How much time, cost and surety matter, as TIME,COST,SURETY, such as 1,2,1. "
            "Default: the cheapest plan that meets the terms."
        ),
    ] = None,
    seed: Annotated[int, Parameter(help="The seed of simulated runs.")] = 0,
    html: Annotated[
        str | None, Parameter(name="--html", help="Draw the plan into this HTML file, too.")
    ] = None,
    set_: Settings = None,
    cores: Cores = None,
    memory: Memory = None,
    gpus: Gpus = None,
    tag: Tags = None,
    json: Json = False,
    directory: Directory = Path("."),
) -> int:
    """Say what a workflow would cost, when it would end and how surely; run nothing.

    With a table of bids, one bid is chosen for every task: the cheapest plan that meets the
    terms. All plans worth considering are listed: those than which none is cheaper, quicker and
    surer. If no plan meets the terms, the exit code is 3, and the nearest terms that would do
    are told.

    Example: sureline plan paper.txt --bids bids.csv --within 20 --budget 65 --surety 0.9
    """
    where = working_directory(directory)
    limits(grid, cores, memory, gpus, tag)
    if bids is not None and grid is not None:
        raise UserError("--bids and --grid exclude each other; leave one out")
    if seed < 0:
        raise UserError(f"--seed {seed} is negative; give 0 or more")
    check_on(on, grid or bids, pilots, piloting)
    terms = read_terms(within, budget, surety, own_unit=bids is not None)
    chosen = read_weights(weights)
    capacity = machine(where, cores, memory, gpus, tag)
    here = capacity if bids is None and grid is None and on is None else None
    reading = read_flow(flow, where, set_, here, pretend=_is_trace(flow), to_run=bids is None)
    for warning in reading.warnings:
        console.note(f"note: {warning}")
    if on is not None:
        return _on_pilots(
            reading.graph, where, terms, piloting.order(on, pilots, reading.graph), json
        )
    if bids is not None:
        made = _with_bids(reading.graph, bids, terms, method, chosen, seed)
    elif chosen is not None:
        raise UserError("--weights choose among bids; add --bids, or leave them out")
    elif grid is not None:
        made = _on_grid(reading.graph, grid, where, terms, method, seed)
    else:
        from sureline.strategies.surety.planning.unbid import Peer, plan_on

        history = _history(reading.graph, where)
        made = plan_on(reading.graph, [Peer("", capacity)], history, terms, method, seed)
    if html is not None:
        from sureline.cli.drawing import write_file
        from sureline.web.plan import page

        write_file(Path(html), page(made), "--html")
        console.note(f"wrote {html}")
    if json:
        console.print_json(as_data(made))
    else:
        from sureline.cli.plan_text import lines

        for line in lines(made):
            console.say(line)
    return 3 if made.refused is not None else 0


def _on_pilots(graph: Graph, where: Path, terms: Terms, order: PilotOrder, json: bool) -> int:
    """Walltime, number and surety of the pilots that a run would start."""
    import msgspec

    within_s = terms.deadline_at
    if within_s is not None:
        terms = msgspec.structs.replace(terms, deadline_at=time.time() + within_s)
    made = planned(graph, where, terms, order, fresh=False)
    if json:
        console.print_json(msgspec.to_builtins(made))
    else:
        console.say(f"{made.site}: {made.sentence}")
        console.say(f"  durations  {made.source}")
        if made.wait_p50_s is not None and made.wait_p90_s is not None:
            half, most = console.duration(made.wait_p50_s), console.duration(made.wait_p90_s)
            console.say(f"  the queue  {half} (50 %) to {most} (90 %), from {made.wait_from}")
        elif made.once_started:
            console.say(f"  the queue  not known: {made.wait_from}")
        half, most = console.duration(made.up_p50_s), console.duration(made.up_p90_s)
        console.say(f"  start-up   {half} (50 %) to {most} (90 %), from {made.up_from}")
        if made.refused:
            console.say(f"  refused    {made.refused}; --within {made.within_s:.0f}s would do")
    return 3 if made.refused else 0


def _is_trace(flow: str) -> bool:
    """A trace's tasks have durations, and its input files need not be here."""
    return flow.lower().endswith(".json")


def read_terms(
    within: str | None, budget: float | None, surety: str | None, *, own_unit: bool
) -> Terms:
    """The terms, with a deadline that counts from the start."""
    from sureline.workflow.terms import SURETY_WANTED, Terms

    if surety is not None and within is None:
        raise UserError("--surety is the chance of meeting a deadline; give one with --within")
    if budget is not None and not 0 <= budget < math.inf:
        raise UserError(f"--budget {budget:g} is not an amount of money; give 0 or more")
    deadline = None if within is None else _time(within, own_unit)
    return Terms(deadline, budget, SURETY_WANTED if surety is None else _share(surety))


def _time(text: str, own_unit: bool) -> float:
    from sureline.workflow.quantities import parse_duration

    try:
        if not own_unit:
            return parse_duration(text)
        value = float(text)
    except ValueError as error:
        if not own_unit:
            raise UserError(f"--within: {error}") from None
        value = math.nan
    if not 0 <= value < math.inf:
        raise UserError(
            f"--within {text!r} is not a number of 0 or more; with --bids, it counts in the unit "
            "of the bids"
        )
    return value


def _share(text: str) -> float:
    try:
        stripped = text.strip()
        value = float(stripped[:-1]) / 100 if stripped.endswith("%") else float(stripped)
    except ValueError:
        value = math.nan
    if not 0 <= value <= 1:
        raise UserError(f"--surety {text!r} is not a chance; write 0.9 or 90%")
    return round(value, 12)


def read_weights(text: str | None) -> Weights | None:
    from sureline.strategies.surety.planning.plan import Weights

    if text is None:
        return None
    try:
        values = [float(part) for part in text.split(",")]
    except ValueError:
        values = []
    if len(values) != 3 or not all(0 <= v < math.inf for v in values) or not any(values):
        raise UserError(
            f"--weights {text!r} are not three weights; write TIME,COST,SURETY, such as 1,2,1"
        )
    return Weights(*values)


def _with_bids(
    graph: Graph, file: str, terms: Terms, method: Method, weights: Weights | None, seed: int
) -> Plan:
    from sureline.strategies.surety.planning.bids import read_bids
    from sureline.strategies.surety.planning.choices import Choices
    from sureline.strategies.surety.planning.plan import plan_of as make
    from sureline.workflow.collect import did_you_mean
    from sureline.workflow.read import read_bytes

    if not Path(file).exists():
        raise UserError(f"there is no table {file}; name a CSV file with --bids")
    table = read_bids(read_bytes(Path(file)), file=file)
    for warning in table.warnings:
        console.note(f"note: {warning}")
    choices = Choices(graph, table.bids)
    for service in choices.unused[:10]:
        hint = did_you_mean(service, choices.missing)
        console.note(f"note: no task uses {service}" + (f"; {hint}" if hint else ""))
    if choices.schedules > MANY:
        console.note("there are too many schedules to look at all; looking for good ones")
    return make(choices, terms, method, weights, seed)


def _on_grid(graph: Graph, grid: str, where: Path, terms: Terms, method: Method, seed: int) -> Plan:
    from sureline.compose.elsewhere import visiting
    from sureline.compose.node import is_node
    from sureline.strategies.surety.planning.unbid import Peer, plan_on
    from sureline.world.address import endpoint_of

    with visiting(grid) as (node, _):
        node.remember_contacts()
        known = [m for m in node.membership.members().values() if is_node(m.node)]
    peers = [
        Peer(endpoint_of(m.node).name, m.offer, m.offer.price)
        for m in sorted(known, key=lambda m: m.node)
        if m.state == "alive" and "run" in m.offer.roles and m.offer.cores > 0
    ]
    if not peers:
        raise UserError(f"no peer of grid {grid} is there to run tasks; start one: sureline peer")
    return plan_on(graph, peers, _history(graph, where), terms, method, seed)


def _history(graph: Graph, where: Path) -> Mapping[str, Sequence[Observed]]:
    """What tasks of these kinds took in the runs of this directory."""
    from sureline.compose import HOME
    from sureline.forecast.follow import kinds_of
    from sureline.journal.errors import JournalError
    from sureline.journal.store import Journal

    try:
        with Journal.open(where / HOME, create=False, read_only=True) as journal:
            return journal.durations(kinds_of(graph))
    except JournalError:
        return {}


def as_data(made: Plan) -> dict[str, Any]:
    """The plan for programs; numbers as they are, unrounded."""
    import msgspec

    data: dict[str, Any] = msgspec.to_builtins(made)
    terms = made.terms
    data["terms"] = {
        "within": terms.deadline_at,
        "budget": terms.budget,
        "surety": terms.surety if terms.deadline_at is not None else None,
    }
    data["quantiles"] = [{"share": share, "at": at} for share, at in made.quantiles]
    return data
