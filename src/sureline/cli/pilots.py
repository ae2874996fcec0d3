"""Commands for pilots, peers that an engine starts: pilots start, keep, ls, stop, logs."""

from __future__ import annotations

import math
import os
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal

import cyclopts
from cyclopts import Parameter

from sureline.cli import console
from sureline.cli.gridding import Grid
from sureline.cli.options import Json
from sureline.workflow.mistakes import SurelineError, UserError

if TYPE_CHECKING:
    from pathlib import Path

    from sureline.compose.pilots.planning import PilotPlan
    from sureline.compose.pilots.starting import Pilots, PilotSeen
    from sureline.sites.book import PilotBatch
    from sureline.sites.order import Engine, PilotOrder, PilotShape, SiteChoice
    from sureline.workflow.model import Graph
    from sureline.workflow.terms import Terms

LIFETIME_S_MIN = 60.0
PILOTS_DEFAULT = 10
"""Of a run, at most."""

pilots = cyclopts.App(
    name="pilots",
    help="""Start peers through an engine: this machine, ssh, or Slurm; list and end them.

    A pilot joins a grid that was made in this home, runs its tasks, and leaves in order before its
    time is over. What was started is written down first, so 'sureline pilots stop --all' finds it
    after any crash.""",
)


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class PilotSettings:
    """How pilots are started; `run --on` and `pilots start` share it."""

    host: Annotated[
        list[str] | None,
        Parameter(
            negative="",
            consume_multiple=False,
            help="With ssh: a machine, as ssh knows it. May be repeated: the pilots are spread.",
        ),
    ] = None
    pilot_cores: Annotated[
        int | None,
        Parameter(help="Cores of one pilot. Default: 1, or what a run's largest task needs."),
    ] = None
    pilot_memory: Annotated[
        str | None,
        Parameter(help="Memory of one pilot, e.g. 8GB. Default: what the engine gives."),
    ] = None
    lifetime: Annotated[
        str | None,
        Parameter(
            help="How long a pilot may stay, such as 2h: the engine's limit; it drains before."
        ),
    ] = None
    partition: Annotated[str | None, Parameter(help="Slurm's.")] = None
    account: Annotated[str | None, Parameter(help="Slurm's.")] = None
    qos: Annotated[str | None, Parameter(help="Slurm's.")] = None
    constraint: Annotated[str | None, Parameter(help="Slurm's.")] = None
    clusters: Annotated[str | None, Parameter(help="Slurm's; the one that starts first.")] = None
    extra: Annotated[
        list[str] | None,
        Parameter(
            negative="",
            consume_multiple=False,
            allow_leading_hyphen=True,
            help="A further option of sbatch, or of ssh: --extra=OPTION. May be repeated.",
        ),
    ] = None
    pilot_option: Annotated[
        list[str] | None,
        Parameter(
            negative="",
            consume_multiple=False,
            allow_leading_hyphen=True,
            help="A further option of 'sureline peer' for every pilot: --pilot-option=OPTION. May "
            "be repeated.",
        ),
    ] = None
    spool: Annotated[
        str | None,
        Parameter(
            help="Where jobs are kept at the site, seen by its machines. Default: in "
            "$SURELINE_HOME; with ssh ~/.sureline-site."
        ),
    ] = None
    python: Annotated[
        str | None,
        Parameter(help="A Python at the site that has Sureline. Default: this one, or brought."),
    ] = None
    base_listen: Annotated[
        str | None,
        Parameter(
            help="HOST:PORT at which pilots find this home, if no peer serves from it yet. "
            "Default: as of 'sureline peer'."
        ),
    ] = None

    def choices(self, on: Engine) -> list[SiteChoice]:
        """The sites that are meant: several if several hosts are."""
        from sureline.sites.order import SiteChoice

        given = {
            "--partition": self.partition,
            "--account": self.account,
            "--qos": self.qos,
            "--constraint": self.constraint,
        }
        named = [f"{option}={value}" for option, value in given.items() if value is not None]
        if on != "slurm" and (named or self.clusters):
            wrong = (named or ["--clusters"])[0].partition("=")[0]
            raise UserError(f"{wrong} is Slurm's; leave it out, or say --on slurm")
        if bool(self.host) != (on == "ssh"):
            raise UserError("--host and --on ssh go together; give both, or neither")
        options = (*named, *(self.extra or ()))
        return [
            SiteChoice(on, host, self.clusters or "", self.spool or "", self.python or "", options)
            for host in self.host or [""]
        ]

    def shape(self, graph: Graph | None = None) -> PilotShape:
        """Of one pilot; one that is not told takes any task of the graph."""
        from sureline.sites.order import PilotShape
        from sureline.workflow.quantities import parse_size

        needs = [] if graph is None else [task.needs for task in graph.tasks]
        cores = self.pilot_cores
        if cores is None:
            cores = max((math.ceil(one.cores) for one in needs), default=1) or 1
        if cores < 1:
            raise UserError(f"--pilot-cores {cores} is not a number of cores")
        try:
            memory_bytes = parse_size(self.pilot_memory) if self.pilot_memory else 0
        except ValueError as error:
            raise UserError(f"--pilot-memory: {error}") from None
        return PilotShape(
            cores=cores,
            memory_bytes=memory_bytes,
            gpus=max((one.gpus for one in needs), default=0),
            lifetime_s=self.lifetime_s(),
            options=tuple(self.pilot_option or ()),
        )

    def order(self, on: Engine, number: int | None, graph: Graph) -> PilotOrder:
        """The pilots that a run may have at most."""
        from sureline.sites.order import PilotOrder
        from sureline.sites.port import COUNT_MAX

        shape, choices = self.shape(graph), self.choices(on)
        if number is None:
            cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1
            number = max(1, cores // shape.cores) if on == "local" else PILOTS_DEFAULT
        if not 1 <= number <= COUNT_MAX:
            raise UserError(f"--pilots {number} is not a number of pilots; give 1 to {COUNT_MAX}")
        small = [t for t in graph.tasks if t.needs.cores > shape.cores]
        if small:
            raise UserError(
                f"task {small[0].name} needs {small[0].needs.cores:g} cores, a pilot has "
                f"{shape.cores}; say --pilot-cores {math.ceil(small[0].needs.cores)}"
            )
        return PilotOrder(tuple(choices), shape, number, self.base_listen or "")

    def lifetime_s(self) -> float | None:
        from sureline.workflow.quantities import parse_duration

        if self.lifetime is None:
            return None
        try:
            seconds = parse_duration(self.lifetime)
        except ValueError as error:
            raise UserError(f"--lifetime: {error}") from None
        if seconds < LIFETIME_S_MIN:
            raise UserError(f"--lifetime {self.lifetime} is too short for a pilot; give 1min")
        return seconds


On = Annotated[Literal["local", "ssh", "slurm"], Parameter(help="The engine that starts them.")]
RunOn = Annotated[
    Literal["local", "ssh", "slurm"] | None,
    Parameter(
        name="--on",
        help="Start pilots for this run through an engine, as many and as long as it needs, and "
        "end them with it. Default: no pilots.",
    ),
]
PilotsMost = Annotated[
    int | None,
    Parameter(
        name="--pilots",
        help="With --on: how many pilots at most. Default: 10; with local, as many as there are "
        "cores.",
    ),
]


def check_on(
    on: Engine | None, grid: str | None, number: int | None, settings: PilotSettings
) -> None:
    """Whether the options for a run's own pilots go together. Raises UserError."""
    if on is not None and grid is not None:
        raise UserError("--on starts a grid of the run's own; leave out --grid, or --on")
    if on is None and (number is not None or settings != PilotSettings()):
        raise UserError("these options are for pilots; say --on local, ssh or slurm, too")


def planned(
    graph: Graph, where: Path, terms: Terms, order: PilotOrder, *, fresh: bool
) -> PilotPlan:
    """What a run on pilots would be started with, by what is known in this directory and home."""
    from sureline.compose import HOME
    from sureline.compose.pilots.base import pilots_directory
    from sureline.compose.pilots.planning import plan_pilots
    from sureline.compose.terms import before
    from sureline.sites.book import open_site
    from sureline.sites.port import SiteError
    from sureline.sites.waits import WaitBook
    from sureline.world.identity.home import home_directory

    directory = pilots_directory(home_directory())
    waits = WaitBook(directory / "waits.jsonl")
    known = before(graph, where / HOME, fresh=fresh)
    choice = order.choices[0]
    try:
        ahead = open_site(choice, directory / "spool").ahead(choice.job_options)
    except SiteError as error:
        console.note(f"note: {error}")
        ahead = None
    return plan_pilots(graph, known, terms, order, waits, time.time(), ahead)


def pilots_start(
    *,
    on: On,
    n: Annotated[int, Parameter(name=["-n", "--number"], help="How many.")] = 1,
    grid: Grid = None,
    settings: PilotSettings = PilotSettings(),  # noqa: B008 - it is immutable
    json: Json = False,
) -> int:
    """Ask an engine for pilots; they join the grid when they start.

    The grid must have been made in this home. If no peer serves from it, one that runs nothing is
    started, by which the pilots find the grid.

    Example: sureline pilots start --on slurm -n 20 --lifetime 2h --partition short
    """
    from sureline.world.identity.home import GridHome

    choices = settings.choices(on)
    if n < len(choices):
        raise UserError(f"-n {n}: that is less than one pilot for each of {len(choices)} hosts")
    found = _pilots(settings.base_listen)
    home = GridHome.open(grid)
    shape = settings.shape()
    started = []
    for k, choice in enumerate(choices):
        share = n // len(choices) + (k < n % len(choices))
        started.append(found.start(home, choice, shape, share))
    if json:
        console.print_json(
            {"grid": home.grid, "batches": [_batch_data(batch) for batch in started]}
        )
        return 0
    for batch in started:
        many = console.counted(batch.count, "pilot")
        console.say(f"asked {batch.choice.name} for {many} for grid {home.grid}, as {batch.tag}")
    console.say("see them with: sureline pilots ls; end them with: sureline pilots stop")
    return 0


def pilots_keep(
    *,
    on: On,
    least: Annotated[int, Parameter(help="Pilots that are kept whatever there is to do.")] = 1,
    most: Annotated[int, Parameter(help="Pilots at most.")] = PILOTS_DEFAULT,
    grid: Grid = None,
    settings: PilotSettings = PilotSettings(),  # noqa: B008 - it is immutable
    json: Json = False,
) -> int:
    """Keep pilots on a grid, more while those that are there are busy, until Ctrl-C ends them.

    Pilots whose time was over, or that were lost, are replaced. Failures are tried again with
    growing pauses; too many in a row end it, with the reason.

    Example: sureline pilots keep --on slurm --least 2 --most 20 --lifetime 2h
    """
    from sureline.compose.pilots.keeping import PilotKeeper
    from sureline.sites.order import PilotOrder
    from sureline.world.identity.home import GridHome

    if not 0 <= least <= most or most < 1:
        raise UserError(f"--least {least} --most {most}: give 0 <= least <= most, and 1 at most")
    home = GridHome.open(grid)
    listen = settings.base_listen or ""
    order = PilotOrder(tuple(settings.choices(on)), settings.shape(), most, listen)
    why: list[str] = []
    keeper = PilotKeeper(
        _pilots(listen),
        home,
        "",
        order,
        lambda there: _useful(home.grid, there, order.shape.cores),
        console.note,
        why.append,
        least,
    )
    keeper.start()
    try:
        keeper.join()
    except KeyboardInterrupt:
        console.note("ends its pilots")
    finally:
        keeper.close()
    if why:
        raise SurelineError(f"no pilots are kept any more: {why[0]}")
    if json:
        left = [batch.tag for batch in _pilots().batches(home.grid) if not batch.run]
        console.print_json({"grid": home.grid, "left": left})
    return 0


def _useful(grid: str, there: int, cores: int) -> int:
    """How many pilots the grid has work for: one more for each that is busy, besides what waits."""
    from sureline.compose.elsewhere import visiting

    with visiting(grid) as (node, _):
        offers = [m for m in node.membership.members().values() if m.state == "alive"]
    pilots = [m for m in offers if m.offer.extras.get("pilot")]
    busy = sum(m.load >= m.offer.cores for m in pilots)
    waiting = sum(m.waiting for m in pilots)
    return there - (len(pilots) - busy) + busy + math.ceil(waiting / cores)


def pilots_ls(*, grid: Grid = None, json: Json = False) -> int:
    """List the pilots of this home, and what their engines say of them.

    Example: sureline pilots ls
    """
    from sureline.sites.port import SiteError

    found = _pilots()
    seen: list[PilotSeen] = []
    silent = []
    for batch in found.batches(grid or ""):
        try:
            seen += found.seen(batch)
        except SiteError as error:
            silent.append({"batch": batch.tag, "trouble": str(error)})
    shown = [_pilot_data(one) for one in seen]
    if json:
        console.print_json({"pilots": shown, "silent": silent})
        return 0
    for trouble in silent:
        console.note(f"{trouble['batch']}: {trouble['trouble']}")
    if shown:
        _table(shown)
    elif not silent:
        console.say("no pilots; start some with: sureline pilots start --help")
    return 0


def pilots_stop(
    batch: Annotated[
        list[str] | None,
        Parameter(
            consume_multiple=True,
            negative="",
            help="Batches, as 'pilots start' and 'ls' name them, or the start of their names.",
        ),
    ] = None,
    /,
    *,
    grid: Grid = None,
    all_: Annotated[
        bool, Parameter(name="--all", negative="", help="Everything that this home has started.")
    ] = False,
    json: Json = False,
) -> int:
    """End pilots, also those that wait, and wait until the engine has ended them.

    Their tasks are given back and run elsewhere. What cannot be ended for sure, because its engine
    does not answer, stays in the book: try again.

    Example: sureline pilots stop --all
    """
    if not (batch or grid or all_):
        raise UserError("say which: a batch, --grid GRID, or --all")
    found = _pilots()
    chosen = found.batches(grid or "")
    for name in batch or ():
        if not any(one.tag.startswith(name) for one in chosen):
            raise UserError(f"there are no pilots called {name}; see: sureline pilots ls")
    if batch:
        chosen = [one for one in chosen if one.tag.startswith(tuple(batch))]
    left = found.stop(chosen, console.note)
    if json:
        console.print_json(
            {"stopped": [one.tag for one in chosen if one not in left], "left": _tags(left)}
        )
    elif not left:
        number = sum(one.count for one in chosen if not one.base)
        console.say(f"ended {console.counted(number, 'pilot')}")
    if left:
        raise SurelineError(f"not ended for sure: {', '.join(_tags(left))}; try again")
    return 0


def pilots_logs(
    pilot: Annotated[str, Parameter(help="A pilot, as 'pilots ls' names it, or a batch.")],
    /,
    *,
    json: Json = False,
) -> int:
    """Print what a pilot has printed, last: why it did not come up, for example.

    Example: sureline pilots logs lab-1f2e3d4c-0
    """
    found = _pilots()
    for batch in found.batches():
        for number in range(batch.count):
            if pilot in (batch.pilot(number), batch.tag):
                text = found.output(batch, number)
                if json:
                    console.print_json({"pilot": batch.pilot(number), "output": text})
                else:
                    console.say(text.rstrip("\n"))
                return 0
    raise UserError(f"there is no pilot called {pilot}; see: sureline pilots ls")


pilots.command(pilots_start, name="start")
pilots.command(pilots_keep, name="keep")
pilots.command(pilots_ls, name="ls")
pilots.command(pilots_stop, name="stop")
pilots.command(pilots_logs, name="logs")


def _pilots(listen: str | None = None) -> Pilots:
    from sureline.compose.pilots.starting import Pilots
    from sureline.world.identity.home import home_directory

    return Pilots(home_directory(), listen or "")


def _tags(batches: list[PilotBatch]) -> list[str]:
    return [batch.tag for batch in batches]


def _batch_data(batch: PilotBatch) -> dict[str, Any]:
    return {
        "batch": batch.tag,
        "site": batch.choice.name,
        "grid": batch.grid,
        "pilots": [batch.pilot(number) for number in range(batch.count)],
        "jobs": list(batch.jobs),
        "cores": batch.shape.cores,
        "lifetime_s": batch.shape.lifetime_s,
    }


def _pilot_data(one: PilotSeen) -> dict[str, Any]:
    batch, status = one.batch, one.status
    since = None
    if status is not None:
        since = status.ended_at or status.started_at or status.submitted_at
    return {
        "pilot": "(base)" if batch.base else batch.pilot(one.number),
        "batch": batch.tag,
        "grid": batch.grid,
        "run": batch.run or None,
        "site": batch.choice.name,
        "job": one.job,
        "state": "unknown" if status is None else status.word,
        "reason": "" if status is None else status.reason,
        "node": "" if status is None else status.node,
        "exit_code": None if status is None else status.exit_code,
        "starts": 0 if status is None else status.starts,
        "since": None if since is None else console.moment(since),
        "for_s": None if since is None else round(max(0.0, time.time() - since), 1),
    }


def _table(shown: list[dict[str, Any]]) -> None:
    lines = [["PILOT", "STATE", "FOR", "SITE", "JOB", "NODE", "GRID", "WHY"]] + [
        [
            one["pilot"],
            one["state"],
            "-" if one["for_s"] is None else console.duration(one["for_s"]),
            one["site"],
            one["job"] or "-",
            one["node"] or "-",
            one["grid"],
            one["reason"],
        ]
        for one in shown
    ]
    widths = [max(len(line[k]) for line in lines) for k in range(len(lines[0]))]
    for line in lines:
        cells = [cell.ljust(width) for cell, width in zip(line, widths, strict=True)]
        console.say("  ".join(cells).rstrip())
