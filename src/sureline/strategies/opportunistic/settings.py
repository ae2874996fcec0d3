"""What a user may set."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from sureline.strategies.opportunistic.selectors import SELECTORS


class OpportunisticSettings(msgspec.Struct, frozen=True):
    selector: Annotated[
        str,
        msgspec.Meta(
            description="who chooses: " + ", ".join(SELECTORS) + "; or the path of a program"
        ),
    ] = "opportunistic"
    selector_s: Annotated[
        float,
        msgspec.Meta(gt=0, le=3600, description="so long a program may take for its choice"),
    ] = 5.0
    idle_s: Annotated[
        float,
        msgspec.Meta(
            ge=0, le=1e7, description="so long a job may wait in a site's queue; 0: for ever"
        ),
    ] = 300.0
    withdrawals: Annotated[
        Literal["recover", "count"],
        msgspec.Meta(
            description="whether what was taken back still counts against the site, or its ratio "
            "recovers, as in the paper"
        ),
    ] = "count"
    window: Annotated[
        int,
        msgspec.Meta(
            ge=0, le=100_000, description="so many of a site's last jobs count; 0: all of the run"
        ),
    ] = 0
    earlier: Annotated[
        int,
        msgspec.Meta(
            ge=0, le=1000, description="so many earlier runs of this directory count too; 0: none"
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

    def __post_init__(self) -> None:
        if self.selector not in SELECTORS and "/" not in self.selector:
            known = ", ".join(SELECTORS)
            raise ValueError(
                f"there is no selector {self.selector!r}; there are {known}, or give the path of a "
                "program, as ./mine"
            )

    @property
    def program(self) -> str:
        """The user's own selector; '' if it is one of ours."""
        return "" if self.selector in SELECTORS else self.selector

    @property
    def as_printed(self) -> bool:
        return self.selector == "printed"
