"""Mistakes of the user's, as data: where, what, and what to do. Readers collect; the CLI prints."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec


class Mistake(msgspec.Struct, frozen=True, omit_defaults=True):
    """One thing that is wrong. `what` names the value; `hint` says what to do about it."""

    what: str
    hint: str = ""
    file: str | None = None
    line: int | None = None

    def __str__(self) -> str:
        place = ""
        if self.file is not None:
            place = self.file if self.line is None else f"{self.file}:{self.line}"
            place += ": "
        return f"{place}{self.what}" + (f"; {self.hint}" if self.hint else "")


class SurelineError(Exception):
    """A failure that is explained in one sentence; the CLI prints it without a traceback.

    `code` is the exit code: 1 a task failed, 2 the user's mistake, 3 terms not met.
    """

    code = 1


class UserError(SurelineError):
    """The user's mistake outside a workflow file: a bad option, an unknown run, a missing file."""

    code = 2


class WorkflowError(UserError):
    """A workflow that cannot be run, with *all* that is wrong with it."""

    def __init__(self, mistakes: Sequence[Mistake]) -> None:
        self.mistakes = tuple(mistakes)
        super().__init__("\n".join(str(m) for m in self.mistakes))
