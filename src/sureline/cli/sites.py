"""The command that shows how each site, or machine, of a run has done: sites."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from sureline.cli import console
from sureline.cli.options import Directory, Json, RunSelector
from sureline.cli.reading import OnGrid, run_journal

if TYPE_CHECKING:
    from sureline.journal.control import SiteRecord


def sites(
    run: RunSelector = "last",
    /,
    *,
    grid: OnGrid = None,
    json: Json = False,
    directory: Directory = Path("."),
) -> int:
    """Show what was sent to each machine or site of a run, and what came of it.

    The score is what the strategy 'opportunistic' compares: (ended + 1) / (submitted + 1).

    Example: sureline sites last
    """
    from sureline.journal.control import control_of
    from sureline.journal.select import select
    from sureline.workflow.quantities import format_size

    with run_journal(directory, grid, run) as (journal, _):
        name = select(run, journal.runs()).run
        control = control_of(entry.event for entry in journal.events(name))
    shown = [_described(site, record) for site, record in sorted(control.sites.items())]
    if json:
        console.print_json({"run": name, "sites": shown})
        return 0
    if not shown:
        console.say(f"run {name}: nothing has been sent anywhere yet")
        return 0
    width = max(4, *(len(one["site"]) for one in shown))
    heads = "submitted  waiting  running  ended  failed  taken back  score  mean wait  brought"
    console.say(f"{'site':<{width}}  {heads}")
    for one in shown:
        wait = "-" if one["wait_s"] is None else console.duration(one["wait_s"])
        console.say(
            f"{one['site']:<{width}}  {one['submitted']:>9}  {one['waiting']:>7}  "
            f"{one['running']:>7}  {one['ended']:>5}  {one['failed']:>6}  "
            f"{one['withdrawn']:>10}  {one['score']:>5.2f}  {wait:>9}  "
            f"{format_size(one['staged_bytes']):>7}"
        )
    return 0


def _described(site: str, record: SiteRecord) -> dict[str, Any]:
    submitted, ended = record.counts(failures_end=False, withdrawals_count=False)
    waits_s = record.waits_s
    return {
        "site": site,
        "submitted": record.submitted,
        "waiting": record.waiting,
        "running": record.running,
        "ended": record.ended,
        "failed": record.failed,
        "withdrawn": record.withdrawn,
        "score": round((ended + 1) / (submitted + 1), 4),
        "wait_s": round(sum(waits_s) / len(waits_s), 3) if waits_s else None,
        "present_files": record.present_files,
        "staged_files": record.staged_files,
        "staged_bytes": record.staged_bytes,
    }
