"""Workflows whose tasks wait for the test: they tell that they started, and go on when let.

Tasks find the directory of their marks in the environment variable MARKS (inherited, so it does
not count for reuse).
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from surely import alive, until

MARKS = "MARKS"
HELD = 'while [ ! -e "$MARKS/go" ]; do sleep 0.02; done'
"""Shell: wait until the test opens the gate."""


def note(name: str) -> str:
    """Shell: tell that the task runs, by a line in the file `name`."""
    return f'echo x >> "$MARKS/{name}"'


def note_pid(name: str) -> str:
    """Shell: tell the shell's own process id, all of it at once."""
    return f'echo $$ > "$MARKS/{name}.tmp" && mv "$MARKS/{name}.tmp" "$MARKS/{name}"'


class Marks:
    """The test's side of the marks."""

    def __init__(self, where: Path) -> None:
        where.mkdir()
        self.where = where
        self.env = {MARKS: str(where)}

    def wait(self, name: str) -> None:
        until((self.where / name).exists, f"task to note {name}")

    def times(self, name: str) -> int:
        path = self.where / name
        return len(path.read_text().splitlines()) if path.exists() else 0

    def open_gate(self) -> None:
        (self.where / "go").touch()

    def pid(self, name: str) -> int:
        self.wait(name)
        return int((self.where / name).read_text())

    def all_dead(self, names: list[str]) -> bool:
        return not any(alive(self.pid(name)) for name in names)


def write_flow(where: Path, tasks: dict[str, Any], name: str = "flow.yaml", **more: Any) -> None:
    """A workflow file; JSON is YAML too."""
    os.makedirs(where, exist_ok=True)
    (where / name).write_text(json.dumps({"name": Path(name).stem, **more, "tasks": tasks}))


def gated(where: Path) -> None:
    """`first` waits at the gate, then makes a; `second` makes b of it."""
    write_flow(
        where,
        {
            "first": {"run": f"{note('first')}; {HELD}; echo one > a", "outputs": ["a"]},
            "second": {
                "run": f"{note('second')}; cat a a > b",
                "inputs": ["a"],
                "outputs": ["b"],
            },
        },
    )
