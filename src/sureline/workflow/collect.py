"""Collecting mistakes: all of them, folded where they are alike, with the nearest right word."""

from __future__ import annotations

import difflib
from collections import Counter
from collections.abc import Iterable

from sureline.workflow.mistakes import Mistake, WorkflowError

PER_SORT_MAX = 20
PER_LINE_MAX = 8
_WORDS_MAX = 2_000


class Collector:
    """Mistakes of one file. `sort` names alike ones in the plural ('missing inputs').

    Of one sort, at most 20 are kept, and at most 8 of one line (a `for:` block makes a thousand
    alike); the rest are counted.
    """

    def __init__(self, file: str | None) -> None:
        self.file = file
        self._kept: list[Mistake] = []
        self._sorts: Counter[str] = Counter()
        self._lines: Counter[tuple[str, int]] = Counter()
        self._folded: Counter[str] = Counter()
        self._folded_lines: Counter[tuple[str, int]] = Counter()

    def __bool__(self) -> bool:
        return bool(self._kept)

    def room(self, sort: str, line: int | None) -> bool:
        """Whether one more would be kept; else it is counted. Ask before working on a hint."""
        place = (sort, line or 0)
        if line is not None and self._lines[place] >= PER_LINE_MAX:
            self._folded_lines[place] += 1
            return False
        if self._sorts[sort] >= PER_SORT_MAX:
            self._folded[sort] += 1
            return False
        return True

    def add(self, sort: str, what: str, hint: str = "", line: int | None = None) -> None:
        if self.room(sort, line):
            self.keep(sort, what, hint, line)

    def keep(self, sort: str, what: str, hint: str = "", line: int | None = None) -> None:
        """Add one for which `room` has just been asked."""
        self._sorts[sort] += 1
        self._lines[sort, line or 0] += 1
        self._kept.append(Mistake(what, hint, self.file, line))

    def mistakes(self) -> list[Mistake]:
        """In the order of lines; those without one first, what was folded last."""
        folds = [
            Mistake(f"and {count:,} more {sort} in this block", "", self.file, line)
            for (sort, line), count in self._folded_lines.items()
        ]
        found = sorted(self._kept + folds, key=lambda mistake: mistake.line or 0)
        return found + [
            Mistake(f"and {count:,} more {sort}", "", self.file)
            for sort, count in self._folded.items()
        ]

    def raise_if_any(self) -> None:
        if self._kept:
            raise WorkflowError(self.mistakes())


def nearest(word: str, known: Iterable[str], cutoff: float = 0.6) -> str | None:
    """The known word that is most alike, if any is; looks at no more than 2,000 of them."""
    words = [other for _, other in zip(range(_WORDS_MAX), known, strict=False)]
    same = [other for other in words if other.casefold() == word.casefold()]
    found = same or difflib.get_close_matches(word[:200], words, n=1, cutoff=cutoff)
    return found[0] if found else None


def did_you_mean(word: str, known: Iterable[str], otherwise: str = "") -> str:
    """A hint with the nearest known word, or `otherwise`."""
    found = nearest(word, known)
    return f"did you mean '{found}'?" if found is not None else otherwise
