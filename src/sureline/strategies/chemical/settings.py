"""What a user may set, and that it makes sense."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from sureline.strategies.chemical.rulebook import ORDERS, book_of


class ChemicalSettings(msgspec.Struct, frozen=True):
    """`rules` and a file given as `order` are the texts themselves by the time they come here."""

    rules: Annotated[
        str,
        msgspec.Meta(
            description="a file of rules in place of the usual ones", extra={"names": ("",)}
        ),
    ] = ""
    order: Annotated[
        str,
        msgspec.Meta(
            description="which ready task goes first: first (come), shortest, rank (upward), "
            "deadline, or a file with a rule of that name",
            extra={"names": ORDERS},
        ),
    ] = "rank"
    barriers: Annotated[
        Literal["on", "off"],
        msgspec.Meta(description="whether a level waits for the whole one before, as in the paper"),
    ] = "off"

    def __post_init__(self) -> None:
        book_of(self.rules, self.order)
