"""The command that runs scenarios in the simulator: simulate."""

from __future__ import annotations

import os
import shlex
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from sureline.cli import console
from sureline.cli.options import Json
from sureline.cli.running import Quiet
from sureline.workflow.mistakes import UserError

if TYPE_CHECKING:
    from sureline.experiments.outcome import ScenarioOutcome
    from sureline.experiments.scenario import Scenario

SEEDS_MAX = 100_000
PROGRESS_EVERY_S = 2.0
FAULTS_SHOWN = 12
TYPES_SHOWN = 6


def simulate(
    scenario: Annotated[
        str | None,
        Parameter(help="A scenario: a TOML file, or the name of one that --list shows."),
    ] = None,
    /,
    *,
    seed: Annotated[
        int | None, Parameter(help="The seed of all randomness. Default: the scenario's.")
    ] = None,
    seeds: Annotated[
        str | None, Parameter(help="Several seeds, one after the other: FIRST-LAST.")
    ] = None,
    journal: Annotated[
        Path | None, Parameter(help="Write the run's journal here, as canonical JSON lines.")
    ] = None,
    into: Annotated[
        Path | None,
        Parameter(
            help="Keep the runs in this directory's .sureline, so that status, report and explain "
            "work on them there."
        ),
    ] = None,
    list_: Annotated[
        bool, Parameter(name="--list", negative="", help="List the scenarios that come with it.")
    ] = False,
    quiet: Quiet = False,
    json: Json = False,
) -> int:
    """Run a scenario in the simulator: a grid, a workload and faults, in virtual time.

    The same seed gives the same run, to the last event. The exit code is 1 if a task failed or
    something that must hold did not; then the seed is printed, and how to run it again.

    Example: sureline simulate lab-churn --seed 7
    """
    from sureline.experiments.scenario_reader import find_scenario

    if list_:
        return _list(json)
    if scenario is None:
        raise UserError("'sureline simulate' needs a scenario; list those there are with --list")
    read = find_scenario(scenario)
    chosen = _seeds(read.seed, seed, seeds)
    if journal is not None and len(chosen) > 1:
        raise UserError("--journal holds one run; give one --seed with it")
    outcomes = []
    for number in chosen:
        outcome = _run(read, number, quiet=quiet or json or len(chosen) > 1)
        _keep(outcome, journal, into)
        if not json:
            _say(outcome, brief=len(chosen) > 1, quiet=quiet)
            _say_again(outcome, scenario)
        outcomes.append(outcome)
    if json:
        _print_json(outcomes, one=seeds is None)
    elif len(chosen) > 1:
        good = sum(outcome.good for outcome in outcomes)
        console.say(f"{good} of {console.counted(len(chosen), 'seed')} held")
    return 0 if all(outcome.good for outcome in outcomes) else 1


def _list(as_json: bool) -> int:
    from sureline.experiments.scenario_reader import shipped

    found = shipped()
    if as_json:
        console.print_json({"scenarios": [{"name": n, "what": d} for n, d in found.items()]})
        return 0
    width = max(map(len, found), default=0)
    for name, description in found.items():
        console.say(f"{name:<{width}}  {description}")
    return 0


def _seeds(usual: int, seed: int | None, seeds: str | None) -> list[int]:
    if seeds is None:
        if seed is not None and seed < 0:
            raise UserError(f"--seed {seed} is negative; give 0 or more")
        return [usual if seed is None else seed]
    if seed is not None:
        raise UserError("--seed and --seeds exclude each other; leave one out")
    first, dash, last = seeds.partition("-")
    if not (dash and first.isdecimal() and last.isdecimal() and int(first) <= int(last)):
        raise UserError(f"--seeds {seeds!r} is not a range; write FIRST-LAST, such as 1-20")
    if int(last) - int(first) >= SEEDS_MAX:
        raise UserError(f"--seeds {seeds} are more than {SEEDS_MAX:,}; give fewer")
    return list(range(int(first), int(last) + 1))


def _run(scenario: Scenario, seed: int, quiet: bool) -> ScenarioOutcome:
    from sureline.experiments.drive import run_scenario

    return run_scenario(scenario, seed, None if quiet else _Progress(scenario.duration_s).tell)


class _Progress:
    """A line on stderr every two seconds of a long simulation."""

    def __init__(self, duration_s: float) -> None:
        self._duration_s = duration_s
        self._began = self._told = time.monotonic()
        self._events = 0

    def tell(self, virtual_s: float, events: int) -> None:
        now = time.monotonic()
        if now - self._told < PROGRESS_EVERY_S:
            return
        rate = (events - self._events) / (now - self._told)
        self._told, self._events = now, events
        at, end = console.duration(virtual_s), console.duration(self._duration_s)
        console.note(f"simulated {at} of at most {end}; {events:,} events, {rate:,.0f} a second")


def _keep(outcome: ScenarioOutcome, journal: Path | None, into: Path | None) -> None:
    if (journal is not None or into is not None) and not outcome.journals:
        raise UserError(f"{outcome.scenario} runs no workflow, so there is no journal to keep")
    if journal is not None:
        if len(outcome.journals) > 1:
            raise UserError("--journal holds one run, this scenario has more; use --into")
        _write(journal, "".join(f"{line}\n" for line in outcome.journals[0]))
    if into is not None:
        from sureline.compose import HOME
        from sureline.journal.export import import_jsonl
        from sureline.journal.store import Journal

        if not into.is_dir():
            raise UserError(f"{into} is not a directory; make it first")
        with Journal.open(into / HOME) as kept:
            for lines in outcome.journals:
                import_jsonl(kept, lines)


def _write(path: Path, text: str) -> None:
    """Whole or not at all."""
    if str(path) == "-":
        console.write(text)
        return
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        beside.write_text(text)
        os.replace(beside, path)
    except OSError as error:
        beside.unlink(missing_ok=True)
        reason = os.strerror(error.errno or 0)
        raise UserError(f"{path} cannot be written ({reason}); name another file") from None


def _say(outcome: ScenarioOutcome, *, brief: bool, quiet: bool) -> None:
    if quiet and outcome.good:
        return
    held = sum(check.held for check in outcome.checks)
    told = f"{outcome.scenario}, seed {outcome.seed}: "
    told += "all held" if outcome.good else "BROKEN"
    if brief:
        spans = ", ".join(console.duration(run.makespan_s) for run in outcome.runs[:5])
        console.say(f"{told} ({held} of {len(outcome.checks)} checks; {spans})")
    else:
        console.say(told)
        for line in _details(outcome):
            console.say(f"  {line}")
    for check in outcome.checks:
        for problem in check.problems:
            console.say(f"  {check.what}: {problem}")


def _details(outcome: ScenarioOutcome) -> list[str]:
    lines = [f"simulated  {console.duration(outcome.virtual_s)}, {outcome.events:,} events"]
    for run in outcome.runs:
        done = run.tasks.succeeded + run.tasks.reused
        line = f"run        {run.run} {run.state}: {done} of {run.tasks.total} tasks"
        line += f" in {console.duration(run.makespan_s)}"
        if run.on_time is not None:
            line += ", on time" if run.on_time else ", late"
        if run.paid:
            line += f", for {run.paid:g}"
        if run.epochs > 1:
            line += f", driven by {run.epochs} processes in turn"
        lines.append(line + (f" ({run.reason})" if run.reason else ""))
    if (p := outcome.protocol) is not None:
        lines.append(
            f"protocol   {p.answered} of {p.asked} answered, {p.share:.2%} found or reached;"
            f" median {p.median_s:.3f} s, worst {p.worst_s:.3f} s"
        )
    t = outcome.traffic
    line = f"messages   {t.messages:,} ({console.size(t.bytes)})"
    if t.messages_per_task:
        line += f", {t.messages_per_task:.1f} a task"
    lines.append(line + (f"; files {console.size(t.bulk_bytes)}" if t.bulk_bytes else ""))
    for name, (count, size) in list(t.by_type.items())[:TYPES_SHOWN]:
        lines.append(f"           {name} {count:,} ({console.size(size)})")
    if t.messages:
        lines.append(f"busiest    {t.busiest_node} sent {t.busiest_messages:,}")
        lines.append(f"peak       {t.peak_node} sent {t.peak_per_second:,} in one second")
    lines += _fault_lines(outcome)
    held = [check.what for check in outcome.checks if check.held]
    lines.append(f"held       {', '.join(held) or 'nothing'}")
    return lines


def _fault_lines(outcome: ScenarioOutcome) -> list[str]:
    if not outcome.faults:
        return ["faults     none"]
    counts = ", ".join(f"{count} {what}" for what, count in outcome.faults.items())
    lines = [f"faults     {counts}"]
    for fault in outcome.fault_list[:FAULTS_SHOWN]:
        lines.append(f"           {fault.at_s:g} s: {fault.what} {fault.whom}")
    left = len(outcome.fault_list) - FAULTS_SHOWN
    return [*lines, f"           and {left} more"] if left > 0 else lines


def _say_again(outcome: ScenarioOutcome, written: str) -> None:
    if not outcome.good:
        again = f"sureline simulate {shlex.quote(written)} --seed {outcome.seed}"
        console.say(f"run it again: {again}")


def _print_json(outcomes: list[ScenarioOutcome], one: bool) -> None:
    import msgspec

    found = []
    for outcome in outcomes:
        data = msgspec.to_builtins(msgspec.structs.replace(outcome, journals=()))
        del data["journals"]
        found.append({**data, "good": outcome.good})
    console.print_json(found[0] if one else {"outcomes": found})
    sys.stdout.flush()
