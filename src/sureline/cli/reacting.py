"""The command that runs chemical programs: react."""

from __future__ import annotations

import os
import queue
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from sureline.cli import console
from sureline.cli.options import Json
from sureline.workflow.mistakes import Mistake, UserError, WorkflowError

if TYPE_CHECKING:
    from sureline.chemistry import ChemistryError, Molecule, Program, Reaction, Reactor

STEPS_MAX = 100_000
LINES_WAITING_MAX = 1_000
TEXT = "program"
"""What a program is called that is no file."""


def react(
    program: Annotated[
        str,
        Parameter(
            help="A file with a chemical program, or the program itself (any text with < in it); "
            "- reads it from the standard input.",
            allow_leading_hyphen=True,
        ),
    ],
    /,
    *,
    trace: Annotated[
        bool,
        Parameter(negative="", help="Show every step: reactions that happen at once are one."),
    ] = False,
    feed: Annotated[
        bool,
        Parameter(
            negative="",
            help="Read further molecules from the standard input while the program runs, some in "
            "each line, and say what the solution is whenever it is inert.",
        ),
    ] = False,
    seed: Annotated[int, Parameter(help="Decides which molecules meet, of many that could.")] = 1,
    steps: Annotated[
        int, Parameter(help="Stop after so many steps; a program need not have an end.")
    ] = STEPS_MAX,
    json: Json = False,
) -> int:
    """Run a chemical program until nothing in its solution reacts, and print the solution.

    Example: sureline react 'replace x::int, y::int by x if x >= y in <2, 9, 5>'
    """
    from sureline.chemistry import ChemistryError, Reactor, parse_program

    if steps < 0:
        raise UserError(f"--steps {steps} is below 0; give how many steps to take at most")
    text, file = _text(program, feed)
    try:
        read = parse_program(text)
        reactor = Reactor(read.solution.molecules, rules=read.rules, random=Random(seed))
        lab = _Lab(read, reactor, steps, trace=trace, json=json)
        lab.run(_Feed() if feed else None)
    except ChemistryError as error:
        raise _as_mistake(error, file) from None
    return lab.tell()


def _text(program: str, feed: bool) -> tuple[str, str]:
    """The program, and what to call it in a complaint."""
    from sureline.workflow.read import read_bytes

    if not program.strip():
        raise UserError("PROGRAM is empty; a program has a solution in it, as in <1, 2>")
    if program == "-":
        if feed:
            raise UserError("the standard input cannot be both PROGRAM and --feed; name a file")
        data, file = sys.stdin.buffer.read(), "-"
    elif ("<" in program or "⟨" in program) and not Path(program[:200]).is_file():
        return program, TEXT
    elif not Path(program).exists():
        raise UserError(f"there is no file {program}; a program has a solution in it, as in <1, 2>")
    else:
        data, file = read_bytes(Path(program)), program
    try:
        return data.decode("utf-8-sig"), file
    except UnicodeDecodeError:
        raise UserError(f"{file} is not UTF-8 text; save it as UTF-8") from None


def _as_mistake(error: ChemistryError, file: str) -> WorkflowError:
    what = f"column {error.place.column}: {error.what}"
    return WorkflowError([Mistake(what, error.hint, file, error.place.line)])


class _Feed:
    """Lines of the standard input, as they come. A thread reads, so that a program without an end
    is fed too."""

    def __init__(self) -> None:
        self._lines: queue.Queue[str | None] = queue.Queue(LINES_WAITING_MAX)
        self._ended = False
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        """Not through `sys.stdin`: a thread that waits in it keeps Python from exiting."""
        rest = b""
        while data := os.read(sys.stdin.fileno(), 65_536):
            *lines, rest = (rest + data).split(b"\n")
            for line in lines:
                self._lines.put(line.decode(errors="replace"))
        if rest:
            self._lines.put(rest.decode(errors="replace"))
        self._lines.put(None)

    def lines(self, *, wait: bool) -> Iterator[str]:
        """Those that are there; with `wait`, at least one, unless there are no more."""
        while not self._ended:
            try:
                line = self._lines.get(block=wait)
            except queue.Empty:
                return
            if line is None:
                self._ended = True
                return
            yield line
            wait = False


class _Lab:
    """A program at work, and what is told of it."""

    def __init__(
        self, program: Program, reactor: Reactor, steps: int, *, trace: bool, json: bool
    ) -> None:
        self._program, self._reactor, self._left = program, reactor, steps
        self._trace, self._json = trace, json
        self._steps: list[dict[str, Any]] = []
        self._count = 0
        self._fed = 0
        self._told = ""
        """The solution that was printed last."""

    def run(self, feed: _Feed | None) -> None:
        if self._trace and not self._json:
            console.say(self._shown())
        while True:
            for done in self._reactor.steps():
                self._count += 1
                if self._trace:
                    self._tell_step(done)
                if feed is not None:
                    self._add(feed.lines(wait=False))
                if self._count >= self._left:
                    return
            if feed is None or self._reactor.stopped:
                return
            if not self._json:
                self._told = self._shown()
                console.say(self._told)
                console.flush()
            if not self._add(feed.lines(wait=True)):
                return

    def _add(self, lines: Iterator[str]) -> bool:
        """Whether there were any."""
        from sureline.chemistry import ChemistryError, parse_molecules

        some = False
        for line in lines:
            some = True
            self._fed += 1
            try:
                self._reactor.add(parse_molecules(line, self._program.names))
            except ChemistryError as error:
                moved = error.place._replace(line=self._fed)
                raise _as_mistake(type(error)(error.what, error.hint, moved), "--feed") from None
        return some

    def _tell_step(self, done: list[Reaction]) -> None:
        from sureline.chemistry import show

        if self._json:
            reactions = [
                {
                    "rule": reaction.rule.name or show(reaction.rule),
                    "taken": [_as_data(m) for m in reaction.taken],
                    "made": [_as_data(m) for m in reaction.made],
                }
                for reaction in done
            ]
            self._steps.append({"reactions": reactions, "solution": self._data()})
            return
        shown = "; ".join(
            f"{reaction.rule.name + ': ' if reaction.rule.name else ''}"
            f"{', '.join(map(show, reaction.taken))} -> "
            f"{', '.join(map(show, reaction.made)) or 'nothing'}"
            for reaction in done
        )
        console.say(f"{self._count}. {self._shown()}   ({shown})")

    def _shown(self) -> str:
        from sureline.chemistry import show

        return show(self._reactor.solution())

    def _data(self) -> list[Any]:
        from sureline.chemistry.printer import in_order

        return [_as_data(m) for m in in_order(self._reactor.solution().molecules)]

    def tell(self) -> int:
        """The last word, and the exit code."""
        reactor = self._reactor
        why = reactor.stopped or f"--steps {self._left} are done"
        if self._json:
            told: dict[str, Any] = {
                "solution": self._data(),
                "reactions": reactor.reactions,
                "steps": self._count,
                "inert": reactor.inert,
            }
            console.print_json({**told, "trace": self._steps} if self._trace else told)
        elif self._told != self._shown():
            console.say(self._shown())
        if not reactor.inert:
            console.note(f"sureline: stopped before the solution was inert: {why}")
        return 0 if reactor.inert else 1


def _as_data(molecule: Molecule) -> Any:
    from sureline.chemistry import show

    plain = isinstance(molecule, int | float | str) and not isinstance(molecule, bool)
    return molecule if plain else show(molecule)
