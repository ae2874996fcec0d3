"""The commands of a grid's task queue: queue, queue ls, queue priority, queue share."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any

import cyclopts
from cyclopts import Parameter

from sureline.cli import console
from sureline.cli.gridding import Grid as OfGrid
from sureline.cli.options import Json
from sureline.cli.peering import peer
from sureline.workflow.mistakes import SurelineError, UserError

if TYPE_CHECKING:
    from sureline.strategies.latebinding.messages import SetShare, TheShares

PRIORITY_MAX = 1000
SHARE_MIN, SHARE_MAX = 0.001, 1000.0

queue = cyclopts.App(
    name="queue",
    help="""Host the task queue of a grid here, look at it, or change whose turn it is.

    Without a command it hosts the queue, until told to leave. The queue is for runs with
    '--strategy latebinding'; if no peer hosts it, one of them does by itself.

    Example: sureline queue --grid lab""",
)


@queue.default
def queue_host(
    *,
    grid: OfGrid = None,
    listen: Annotated[str | None, Parameter(help="HOST:PORT to listen on, as of a peer.")] = None,
    advertise: Annotated[
        str | None,
        Parameter(help="The host name or address at which others reach this machine."),
    ] = None,
    quiet: Annotated[
        bool, Parameter(name=["--quiet", "-q"], negative="", help="Tell of trouble only.")
    ] = False,
    json: Json = False,
) -> int:
    """Host the task queue of a grid here, until told to leave; runs no tasks.

    The queue may be started again at any time: runs tell it what waits, and shares, priorities and
    what was used are on disk. 'sureline peer --queue' hosts it beside a peer's other work.

    Example: sureline queue --grid lab
    """
    return peer(
        grid=grid,
        slots=0,
        queue=True,
        listen=listen,
        advertise=advertise,
        quiet=quiet,
        json=json,
    )


def queue_ls(*, grid: OfGrid = None, json: Json = False) -> int:
    """List what waits in the queue: runs with their users, priorities and shares.

    Example: sureline queue ls --grid lab
    """
    _show(_asked(grid, None)[0], json)
    return 0


def queue_priority(run: str, priority: float, /, *, grid: OfGrid = None, json: Json = False) -> int:
    """Change the priority of a run of yours: of your runs, the one with the higher goes first.

    It has effect within seconds: what is not placed yet is dealt out anew. Runs begin with 0.

    Example: sureline queue priority brave-otter 10 --grid lab
    """
    from sureline.strategies.latebinding.messages import SetShare
    from sureline.world.identity.signing import is_run_name

    if not is_run_name(run):
        raise UserError(f"'{run}' is no name of a run")
    if not priority.is_integer() or abs(priority) > PRIORITY_MAX:
        raise UserError(f"a priority is a whole number from -{PRIORITY_MAX} to {PRIORITY_MAX}")
    _show(_asked(grid, SetShare(1, run=run, priority=int(priority)))[0], json)
    return 0


def queue_share(user: str, share: float, /, *, grid: OfGrid = None, json: Json = False) -> int:
    """Change the share of a user (a peer's name): who has 2 gets twice as much as who has 1.

    Users begin with 1. Seconds of cores count, those of the last hour most.

    Example: sureline queue share lab7 2 --grid lab
    """
    from sureline.strategies.latebinding.messages import SetShare
    from sureline.world.identity.names import is_name

    if not is_name(user):
        raise UserError(f"'{user}' is no name of a peer")
    if not SHARE_MIN <= share <= SHARE_MAX:
        raise UserError(f"a share is a number from {SHARE_MIN:g} to {SHARE_MAX:g}")
    said, peers = _asked(grid, SetShare(1, user=user, share=share))
    if not json:
        known = user in peers or user in {one.user for one in said.runs}
        unknown = "" if known else "; nobody of that name is in the grid, or has a run in the queue"
        console.say(f"{user} has the share {said.shares.get(user, 1.0):g}{unknown}")
    if json or said.runs:
        _show(said, json)
    return 0


queue.command(queue_ls, name="ls")
queue.command(queue_priority, name="priority")
queue.command(queue_share, name="share")


def _asked(grid: str | None, change: SetShare | None) -> tuple[TheShares, set[str]]:
    """What the queue says, and the names of the grid's peers."""
    from sureline.compose.elsewhere import answer_of, visiting
    from sureline.strategies.latebinding.asking import PART, QueueAsker
    from sureline.world.address import at, peer_of
    from sureline.world.protocol import WRITES

    with visiting(grid) as (node, loop):
        roles = node.credentials.identity.roles
        if change is not None and roles.isdisjoint(WRITES.split("|")):
            raise UserError(f"this home may not submit to grid {node.home.grid}, nor change shares")
        asker = QueueAsker(at(node.id, PART), node.place(at(node.id, PART)))
        node.join(asker)
        members = list(node.membership.members().values())

        def ask(then: Callable[[TheShares | None], None]) -> None:
            asker.ask(members, then, change)

        said = loop.run(answer_of(ask))
        name = node.home.grid
    if said is None:
        raise SurelineError(f"no queue of grid {name} answers; is a peer there?")
    if said.refused:
        raise UserError(said.refused)
    return said, {peer_of(member.node) for member in members}


def _show(said: TheShares, as_json: bool) -> None:
    runs: list[dict[str, Any]] = [
        {
            "run": one.run,
            "user": one.user,
            "share": said.shares.get(one.user, 1.0),
            "priority": one.priority,
            "waiting": one.waiting,
            "listed": one.listed,
            "placed": one.placed,
            "used_s": one.used_s,
        }
        for one in said.runs
    ]
    if as_json:
        console.print_json(
            {
                "runs": runs,
                "more": said.more,
                "shares": said.shares,
                "masters": said.sites,
                "requests": said.requests,
            }
        )
        return
    if not runs:
        console.say("nothing waits in the queue")
        return
    rows = [["RUN", "USER", "SHARE", "PRIORITY", "WAITING", "LISTED", "PLACED", "USED"]]
    rows += [
        [
            one["run"],
            one["user"],
            f"{one['share']:g}",
            str(one["priority"]),
            str(one["waiting"]),
            str(one["listed"]),
            str(one["placed"]),
            console.duration(one["used_s"]),
        ]
        for one in runs
    ]
    widths = [max(len(row[k]) for row in rows) for k in range(len(rows[0]))]
    for row in rows:
        cells = [
            cell.ljust(width) if k < 2 else cell.rjust(width)
            for k, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        console.say("  ".join(cells).rstrip())
    if said.more:
        console.say(f"and {said.more} more runs")
