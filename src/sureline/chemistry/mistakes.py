"""What is wrong with a chemical program, and where."""

from __future__ import annotations

from typing import NamedTuple


class TextPlace(NamedTuple):
    """Both count from 1."""

    line: int
    column: int


class ChemistryError(Exception):
    """`what` is wrong at `place`; `hint` says what to do about it."""

    def __init__(self, what: str, hint: str, place: TextPlace) -> None:
        super().__init__(f"line {place.line}, column {place.column}: {what}; {hint}")
        self.what, self.hint, self.place = what, hint, place
