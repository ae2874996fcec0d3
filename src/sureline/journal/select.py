"""Selectors: how a user names a run without typing its name whole.

In this order: a run's name; `last`; `last-failed`; `-2` (the one before the last; `-1` is the
last); a workflow's name (its newest run); the beginning of exactly one run's name.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Sequence

from sureline.journal.store import RunSummary
from sureline.workflow.mistakes import UserError

CANDIDATES_MAX = 5


def select(selector: str, runs: Sequence[RunSummary]) -> RunSummary:
    """The run that the selector means, of `runs` in order, the newest last.

    Raises UserError if it means none or several, listing up to CANDIDATES_MAX of them.
    """
    if not runs:
        raise UserError("there are no runs here yet; start one with: sureline run FILE")
    for run in runs:
        if run.run == selector:
            return run
    if selector == "last":
        return runs[-1]
    if selector == "last-failed":
        return _last_failed(runs)
    if re.fullmatch(r"-[0-9]{1,9}", selector):
        return _from_the_end(int(selector[1:]), runs)
    of_workflow = [run for run in runs if run.name == selector]
    if of_workflow:
        return of_workflow[-1]
    return _by_prefix(selector, runs)


def select_to_resume(selector: str, runs: Sequence[RunSummary]) -> RunSummary:
    """The same, for a run that is to go on: `last` is the newest that has not succeeded."""
    if selector != "last" or not runs:
        return select(selector, runs)
    for run in reversed(runs):
        if run.state != "succeeded":
            return run
    raise UserError(
        f"there is nothing to resume: all runs here have succeeded (the last is {runs[-1].run}); "
        "start one with: sureline run FILE"
    )


def _last_failed(runs: Sequence[RunSummary]) -> RunSummary:
    for run in reversed(runs):
        if run.state == "failed":
            return run
    raise UserError("no run has failed here; list the runs with: sureline runs")


def _from_the_end(number: int, runs: Sequence[RunSummary]) -> RunSummary:
    if not 1 <= number <= len(runs):
        raise UserError(f"-{number} names no run: there are {len(runs)}, so -1 to -{len(runs)} do")
    return runs[-number]


def _by_prefix(selector: str, runs: Sequence[RunSummary]) -> RunSummary:
    found = [run.run for run in runs if selector and run.run.startswith(selector)]
    if len(found) == 1:
        return next(run for run in runs if run.run == found[0])
    if found:
        raise UserError(f"'{selector}' begins several runs: {_listed(found)}; type more of one")
    names = [run.run for run in reversed(runs)] + list({run.name: None for run in reversed(runs)})
    near = difflib.get_close_matches(selector, names, CANDIDATES_MAX, cutoff=0.5)
    known = _listed(near[::-1] or [run.run for run in runs])
    raise UserError(f"no run is called '{selector}'; there is {known}")


def _listed(names: Sequence[str]) -> str:
    """The newest few of them, the newest first."""
    shown = ", ".join(names[: -CANDIDATES_MAX - 1 : -1])
    more = len(names) - CANDIDATES_MAX
    return f"{shown} and {more} more" if more > 0 else shown
