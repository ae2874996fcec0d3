"""The commands that put Sureline's own claims to the test: experiment calibration and repair."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import cyclopts
from cyclopts import Parameter

from sureline.cli import console
from sureline.cli.options import Json
from sureline.workflow.mistakes import UserError

if TYPE_CHECKING:
    from sureline.experiments.calibration_result import Calibration

RUNS_MAX = 10_000_000
SLOTS_MAX = 4096
PROGRESS_EVERY_S = 2.0

experiment = cyclopts.App(name="experiment", help="Put what Sureline promises to the test.")


@experiment.command
def calibration(
    *,
    traces: Annotated[
        Path | None,
        Parameter(help="A folder of WfFormat traces. Default: only made-up workflows."),
    ] = None,
    learn: Annotated[
        Path | None,
        Parameter(
            help="A folder of WfFormat traces of earlier runs to learn from; those of --traces are "
            "then runs never seen."
        ),
    ] = None,
    runs: Annotated[int, Parameter(help="Runs for each point.")] = 2000,
    slots: Annotated[
        str, Parameter(help="How many tasks run at once, separated by commas.")
    ] = "2,8,16,64",
    history: Annotated[
        int, Parameter(help="How many earlier runs are known, without --learn.")
    ] = 20,
    agents: Annotated[
        int,
        Parameter(
            help="Also have the real agents run so many runs on each of three scenarios in the "
            "simulator, with and without repair."
        ),
    ] = 0,
    seed: Annotated[int, Parameter(help="The seed of all randomness.")] = 0,
    html: Annotated[
        Path | None, Parameter(help="Write the reliability diagram as a page to this file.")
    ] = None,
    json: Json = False,
) -> int:
    """Measure whether promised numbers are true: of runs promised p, the share that was on time.

    Without --learn, earlier runs and later ones are drawn from one distribution: the durations that
    each trace recorded by kind, with shifts between runs. Made-up workflows are measured, too:
    random graphs, heavy-tailed and two-peaked durations, wrong estimates followed by learning.

    Example: sureline experiment calibration --traces traces/ --runs 10000
    """
    from sureline.experiments.calibration import Settings, calibrate

    if learn is not None and traces is None:
        raise UserError("--learn needs --traces, a folder of runs that were not learned from")
    settings = Settings(
        _within("--runs", runs, 1, RUNS_MAX),
        _slots(slots),
        _within("--history", history, 1, 1000),
        _within("--seed", seed, 0, 1 << 62),
    )
    if traces is None:
        console.note("no --traces are given, so only made-up workflows are measured")
    count = _within("--agents", agents, 0, RUNS_MAX)
    progress = _Progress().tell
    found = calibrate(traces, learn, settings, progress)
    if count:
        import msgspec

        from sureline.experiments.calibration_agents import agents_keep_promises

        kept = tuple(agents_keep_promises(count, seed, progress))
        found = msgspec.structs.replace(found, agents=kept)
    if html is not None:
        from sureline.web.calibration import calibration_page

        _write(html, calibration_page(found))
    if json:
        console.print_json(found)
    else:
        _say_calibration(found)
    return 0


@experiment.command
def repair(
    *scenarios: Annotated[
        str,
        Parameter(
            help="Scenarios with a deadline and a budget: TOML files, or names of shipped ones. "
            "Default: repair-stragglers, repair-failures, repair-overbooked, repair-stalling."
        ),
    ],
    runs: Annotated[int, Parameter(help="Runs of each scenario, each way.")] = 10,
    seed: Annotated[int, Parameter(help="The seed of the first run.")] = 1,
    html: Annotated[Path | None, Parameter(help="Write the comparison as a page.")] = None,
    json: Json = False,
) -> int:
    """Measure whether repair pays: on-time share and money, on simulated grids that go wrong.

    Every scenario is run four ways, with the same tasks and faults: with repair; without; with
    every task run twice; and with the quickest plan that the budget allows.

    Example: sureline experiment repair repair-stragglers --runs 20
    """
    from sureline.experiments.repairs import SCENARIOS, compare

    found = compare(
        scenarios or SCENARIOS,
        _within("--runs", runs, 1, RUNS_MAX),
        _within("--seed", seed, 0, 1 << 62),
        _Progress().tell,
    )
    if html is not None:
        from sureline.web.repairs import repairs_page

        _write(html, repairs_page(found))
    if json:
        console.print_json(found)
        return 0
    from sureline.experiments.repairs_words import repairs_lines

    for line in repairs_lines(found):
        console.say(line)
    return 0


class _Progress:
    """A line on stderr now and then."""

    def __init__(self) -> None:
        self._told = time.monotonic()

    def tell(self, what: str, number: int, count: int) -> None:
        now = time.monotonic()
        if now - self._told >= PROGRESS_EVERY_S:
            self._told = now
            console.note(f"measuring {what}, {number + 1} of {count}")


def _within(option: str, value: int, least: int, most: int) -> int:
    if not least <= value <= most:
        raise UserError(f"{option} {value} is out of bounds; give {least} to {most:,}")
    return value


def _slots(text: str) -> tuple[int, ...]:
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isdecimal() and 1 <= int(part) <= SLOTS_MAX for part in parts):
        raise UserError(f"--slots {text!r} is not a list of numbers; write them as in 2,8,64")
    return tuple(dict.fromkeys(int(part) for part in parts))


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise UserError(f"{path} cannot be written ({error.strerror}); name another file") from None


def _say_calibration(found: Calibration) -> None:
    from sureline.experiments.calibration_words import calibration_lines

    for line in calibration_lines(found):
        console.say(line)
