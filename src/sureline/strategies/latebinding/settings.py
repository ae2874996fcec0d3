"""What a user may set, and what the parts agree on."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

Architecture = Literal["event", "distributed", "centralized", "pre-dht"]
CENTRAL: tuple[Architecture, ...] = ("centralized", "pre-dht")
"""Those in which the queue itself matches, one pilot at a time."""


class LateSettings(msgspec.Struct, frozen=True):
    architecture: Annotated[
        Architecture,
        msgspec.Meta(
            description="who matches tasks and pilots: the pilots themselves whenever one has "
            "room, the next task fetched ahead (event), or in rounds of 20 s as in the paper "
            "(distributed); the queue, one pilot at a time (centralized), which also keeps track "
            "of all files (pre-dht)"
        ),
    ] = "event"
    assignment: Annotated[
        Literal["exact", "greedy"],
        msgspec.Meta(
            description="how a round's tasks are dealt out: for the highest sum of ranks "
            "(exact), or the highest rank first, as in the paper (greedy)"
        ),
    ] = "exact"
    priority: Annotated[
        int,
        msgspec.Meta(
            ge=-1000,
            le=1000,
            description="of your runs the one with the higher number goes first; changed at any "
            "time by 'sureline queue priority'",
        ),
    ] = 0
    bulk_s: Annotated[
        float,
        msgspec.Meta(
            ge=0.0,
            le=600.0,
            description="what becomes ready within so many seconds is told to the queue together: "
            "fewer requests, and tasks that wait for others begin later",
        ),
    ] = 0.25


class PilotHalfSettings(msgspec.Struct, frozen=True):
    """What a pilot's owner has set of its half there."""

    ends_at: float = 0.0
    """By this machine's clock; 0 if it has no end."""


# Rounds.
FLOOR_S = 1.0
"""Between two rounds of a site of FLOOR_PILOTS or more, however much happens."""
FLOOR_PILOTS = 200
"""A smaller one has them nearer to each other, by as much: so many pilots at most are told of tasks
in FLOOR_S."""
COMPANY_S = 4.0
"""A round only for tasks to be fetched ahead may wait so long for company."""
PERIOD_S = 20.0
"""Between two rounds of the paper's architecture."""
LISTED_PER_IDLE = 2
"""No more tasks are told of than so many for each place that is free."""
LISTED_MAX = 3000
BEST = 10
"""So many of its best ranks a pilot answers with."""
TOLD_DIRECTLY_MAX = 200
"""A round with no more askers than this is told to them alone. They have just spoken to the master;
a broadcast reaches everybody, with three messages for each."""
PAIRS_MAX = 3_000
"""Of tasks and pilots that are judged in a round; where there are more, each judges a part."""
JUDGED_BY = 4
"""So many pilots at least judge each task then."""
TREE_MAX = 8
"""In the paper's architecture: as many as a broadcast goes to first."""
PLACES_MAX = 16
"""Free places of one pilot that count in one round."""

AHEAD_S = 4.0
"""Short tasks are fetched ahead, as many as end within this time..."""
AHEAD_MAX = 250
"""...or so many."""
AHEAD_DEALT_MAX = 500
"""Places for them in one round (but one for each pilot): as many columns its matrix has."""

# Silence.
HOLD_S = 10.0
"""What a pilot was promised is held free for so long."""
ASK_S = 20.0
"""A master renews its question to the queue if it had nothing to ask for so long."""
WISH_S = 12.0
QUIET_WISH_S = 60.0
"""And a pilot its wish to its master, less often if it has not heard of any task for that long."""
LEASE_S = 40.0
"""What a site was given, and did not place, goes to others after so long."""
PLACED_S = 20.0
"""What was placed, but its run does not confirm, is given out again."""
SILENT_S = 15.0
"""A queue that has not answered a run for so long is not waited for: the run goes on by itself."""
BUSY_S = 900.0
"""Where the queue matches by itself it may be busy for this long."""
STUCK_S = 60.0
"""As is a task for which there was room all this time."""
MUTE_S = 30.0
"""Nothing is given out of a run whose writer was not heard of for so long: it would bind nothing,
and pilots would hold themselves free for it."""
GONE_S = 900.0
"""Tasks of a run whose writer was not heard of for so long are dropped."""
PAGE = 200
"""Tasks in one message."""
TASKS_MAX = 200_000
"""That one queue holds."""
