"""What `run` and `submit` share: how a workflow is to be run, as options and as values."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from sureline.cli import console
from sureline.cli.options import (
    Grid,
    Settings,
    check_grid,
    limits,
    machine,
    overrides,
    read_flow,
    retry_delay_s,
)
from sureline.cli.pilots import PilotSettings, PilotsMost, RunOn, check_on, planned
from sureline.cli.terms import Anyway, Budget, By, RepairToo, Surety, Within, refused, terms
from sureline.workflow.mistakes import UserError

if TYPE_CHECKING:
    from sureline.catalog.entries import SiteEntry
    from sureline.compose.site_copies import CataloguedDisk
    from sureline.peer.capacity import Capacity
    from sureline.run.options import Options
    from sureline.sites.order import Engine
    from sureline.workflow.model import Graph

Cores = Annotated[float | None, Parameter(help="Cores to use at most. Default: all of them.")]
Memory = Annotated[
    str | None, Parameter(help="Memory to use at most, e.g. 8GB. Default: all of it.")
]
Gpus = Annotated[int | None, Parameter(help="GPUs to use at most. Default: all of them.")]
Tags = Annotated[
    list[str] | None,
    Parameter(
        name="--tag",
        negative="",
        consume_multiple=False,
        help="A tag this machine offers: NAME, or NAME=COUNT for a counted one. May be repeated.",
    ),
]


TAKEOVER_S_MIN = 10.0


@dataclass(frozen=True)
class _Ready:
    """A workflow that may be run, and how. `refused`: its terms cannot be met, and were told so."""

    graph: Graph
    capacity: Capacity
    options: Options
    limits: list[str]
    refused: bool


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class RunSettings:
    """All that says how a workflow is to be run."""

    set_: Settings = None
    grid: Grid = None
    sites: Annotated[
        str | None,
        Parameter(
            help="Run the tasks at sites of your catalog: names, as lab,meggie, or all. See: "
            "sureline catalog sites."
        ),
    ] = None
    strategy: Annotated[
        str | None,
        Parameter(help="Which strategy says where tasks run; see: sureline strategies."),
    ] = None
    selector: Annotated[
        str | None,
        Parameter(
            help="Who chooses the site, of the strategy 'opportunistic': one of its selectors, or "
            "a program of yours, as ./mine. See: sureline strategies opportunistic."
        ),
    ] = None
    with_: Annotated[
        list[str] | None,
        Parameter(
            name="--with",
            negative="",
            consume_multiple=False,
            help="A setting of the strategy: --with NAME=VALUE. May be repeated.",
        ),
    ] = None
    fresh: Annotated[
        bool, Parameter(negative="", help="Run every task; reuse no earlier result.")
    ] = False
    on: RunOn = None
    pilots: PilotsMost = None
    piloting: PilotSettings = PilotSettings()  # noqa: RUF009 - it is immutable
    cores: Cores = None
    memory: Memory = None
    gpus: Gpus = None
    tag: Tags = None
    stop_on_failure: Annotated[
        bool, Parameter(negative="", help="After a failure, start nothing more.")
    ] = False
    retry_delay: Annotated[str, Parameter(help="Wait before a first retry; doubles with each.")] = (
        "1s"
    )
    takeover_after: Annotated[
        str,
        Parameter(
            help="On a grid: when the process that drives the run has been silent for so long, a "
            "peer with the role drive goes on with it; 'never' for nobody."
        ),
    ] = "30s"
    within: Within = None
    by: By = None
    budget: Budget = None
    surety: Surety = None
    repair: RepairToo = True
    anyway: Anyway = False
    overwrite: Annotated[
        bool,
        Parameter(
            negative="",
            help="Replace files that no run here made; they are kept in .sureline/replaced/.",
        ),
    ] = False

    def ready(
        self,
        flow: str,
        where: Path,
        *,
        pretend: bool = False,
        speed: float = 1.0,
        as_json: bool,
    ) -> _Ready:
        """Read the workflow and check that it can be run as is wanted. Raises UserError."""
        from sureline.compose import HOME
        from sureline.strategies import passed_over, strategy

        delay_s = retry_delay_s(self.retry_delay)
        asked = terms(self.within, self.by, self.budget, self.surety)
        check_on(self.on, self.grid, self.pilots, self.piloting)
        elsewhere = self.grid or self.on
        given = limits(elsewhere, self.cores, self.memory, self.gpus, self.tag)
        capacity = machine(where, self.cores, self.memory, self.gpus, self.tag)
        entries = _sites(self.sites, "--grid" if self.grid else "--on" if self.on else "")
        names = ",".join(entry.name for entry in entries)
        options = self._options(asked.deadline_at, asked.surety, delay_s, names)
        disk = _catalogued(where) if entries else None
        reading = read_flow(
            flow,
            where,
            self.set_,
            None if elsewhere or entries else capacity,
            pretend=pretend,
            speed=speed,
            disk=disk,
        )
        for path, row in disk.used.items() if disk else ():
            console.note(f"note: {path} is not here; {row.site}:{row.path} is taken for it")
        if self.grid:
            check_grid(self.grid, reading.graph)
        graph = reading.graph
        if entries:
            from sureline.compose.site_run import for_sites

            graph = for_sites(graph, entries)
        for warning in (*reading.warnings, passed_over(options, graph)):
            if warning:
                console.note(f"note: {warning}")
        if self.on is not None:
            return self._on_pilots(self.on, reading.graph, capacity, options, where, as_json)
        is_forecast = not (self.grid or entries) and not strategy(options.strategy).judges
        is_refused = is_forecast and refused(
            graph,
            capacity,
            where / HOME,
            asked,
            fresh=self.fresh,
            anyway=self.anyway,
            as_json=as_json,
        )
        return _Ready(graph, capacity, options, given, is_refused)

    def _settings(self) -> dict[str, bool | float | str]:
        settings: dict[str, bool | float | str] = dict(overrides(self.with_, "--with"))
        if self.selector is not None:
            settings["selector"] = self.selector
        chosen = settings.get("selector", "")
        if isinstance(chosen, str) and "/" in chosen:
            settings["selector"] = _program(chosen)
        return settings

    def _on_pilots(
        self,
        on: Engine,
        graph: Graph,
        capacity: Capacity,
        options: Options,
        where: Path,
        as_json: bool,
    ) -> _Ready:
        """The same on pilots of the run's own; says what they promise."""
        import msgspec

        from sureline.run.binds import check_travels

        check_travels(graph)
        order = self.piloting.order(on, self.pilots, graph)
        plan = planned(graph, where, options.terms, order, fresh=self.fresh)
        if plan.refused and not self.anyway:
            console.note(
                f"sureline: {plan.refused}; --within {plan.within_s:.0f}s would do; --anyway "
                "starts it as it is"
            )
            if as_json:
                why = {"why": plan.refused, "nearest": {"within": plan.within_s}}
                console.print_json({"run": None, "state": "refused", "refused": why})
            return _Ready(graph, capacity, options, [], True)
        console.note(f"{plan.site}: {plan.sentence}")
        shape = msgspec.structs.replace(order.shape, lifetime_s=plan.lifetime_s)
        order = msgspec.structs.replace(order, number=plan.number, shape=shape)
        # It was judged here, with all the pilots that are to come.
        kept = msgspec.json.encode(order).decode()
        options = msgspec.structs.replace(options, pilots=kept, anyway=True)
        return _Ready(graph, capacity, options, [], False)

    def _options(
        self, deadline_at: float | None, surety: float, delay_s: float, sites: str
    ) -> Options:
        from sureline.run.options import Options
        from sureline.sites.order import private_grid
        from sureline.strategies import resolved, usual_on_pilots

        return resolved(
            Options(
                fresh=self.fresh,
                stop_on_failure=self.stop_on_failure,
                retry_delay_s=delay_s,
                grid=self.grid or (private_grid() if self.on else ""),
                sites=sites,
                strategy=self.strategy or (usual_on_pilots(self.budget) if self.on else ""),
                settings=self._settings(),
                deadline_at=deadline_at,
                budget=self.budget,
                surety=surety,
                repair=self.repair,
                anyway=self.anyway,
                overwrite=self.overwrite,
                takeover_after_s=_takeover_after_s(self.takeover_after),
            )
        )


def _program(text: str) -> str:
    """A program of the user's by its whole path, since the run may be resumed from elsewhere."""
    path = Path(text).absolute()
    if not os.access(path, os.X_OK) or not path.is_file():
        raise UserError(f"--selector {text} is no program that can be run; make it executable")
    return str(path)


def _sites(text: str | None, grid: str) -> list[SiteEntry]:
    """The sites that the user named; none if she named none."""
    if text is None:
        return []
    if grid:
        raise UserError(f"{grid} and --sites are two places for the same tasks; leave one out")
    from sureline.compose.catalogued import catalogued, open_site

    entries = catalogued(() if text == "all" else tuple(text.split(",")))
    for entry in entries:
        open_site(entry)  # what is missing for it is told before there is a run
    rays = [entry.name for entry in entries if entry.engine == "ray"]
    if len(rays) > 1:
        raise UserError(
            f"one run can use one ray cluster; leave out all of {', '.join(rays)} but one"
        )
    return entries


def _catalogued(where: Path) -> CataloguedDisk:
    from sureline.compose.site_copies import CataloguedDisk

    return CataloguedDisk(where)


def _takeover_after_s(text: str) -> float:
    from sureline.workflow.quantities import parse_duration

    if text == "never":
        return 0.0
    try:
        seconds = parse_duration(text)
    except ValueError as error:
        raise UserError(f"--takeover-after: {error}") from None
    if seconds < TAKEOVER_S_MIN:
        raise UserError(
            f"--takeover-after {text}: drivers are heard of every few seconds; give "
            f"{TAKEOVER_S_MIN:g} s or more, or 'never'"
        )
    return seconds
