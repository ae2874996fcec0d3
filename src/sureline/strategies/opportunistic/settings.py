"""What a user may set."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

SelectorName = Literal[
    "opportunistic",
    "printed",
    "weighted-random",
    "round-robin",
    "last-used",
    "data-present",
    "random",
    "thompson",
    "ucb",
    "forecast",
]


class OpportunisticSettings(msgspec.Struct, frozen=True):
    selector: Annotated[
        SelectorName,
        msgspec.Meta(description="who chooses; 'printed' is the paper's to the letter"),
    ] = "opportunistic"
    idle_s: Annotated[
        float,
        msgspec.Meta(
            ge=0, le=1e7, description="so long a job may wait in a site's queue; 0: for ever"
        ),
    ] = 300.0
    withdrawals: Annotated[
        Literal["recover", "count"],
        msgspec.Meta(description="whether what was taken back still counts against the site"),
    ] = "recover"
    window: Annotated[
        int,
        msgspec.Meta(
            ge=0, le=100_000, description="so many of a site's last jobs count; 0: all of the run"
        ),
    ] = 0
    deep: Annotated[
        float,
        msgspec.Meta(
            ge=0,
            le=1e6,
            description="jobs that may wait at a site, for each processor; 0: any number",
        ),
    ] = 3.0

    @property
    def as_printed(self) -> bool:
        return self.selector == "printed"
