"""The command line under test: in this process for speed, as a real process where that matters."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from sureline.cli.main import run_command

PATIENCE_S = 120.0
"""How long a condition may take to come true before a test gives up; never how long one waits."""

SURELINE = [sys.executable, "-m", "sureline"]


class Answer(NamedTuple):
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """Stdout as one JSON document: anything else on it is an error."""
        return json.loads(self.out)


class Bench:
    """A working directory, and commands given in it."""

    def __init__(self, directory: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.directory = directory
        self._capsys = capsys
        self._started: list[subprocess.Popen[str]] = []

    def __call__(self, *argv: str) -> Answer:
        """Run a command in this process."""
        self._capsys.readouterr()
        code = run_command([str(token) for token in argv])
        return Answer(code, *self._capsys.readouterr())

    def write(self, files: Mapping[str, str | bytes]) -> None:
        for name, content in files.items():
            path = self.directory / name
            path.parent.mkdir(parents=True, exist_ok=True)
            data = textwrap.dedent(content).encode() if isinstance(content, str) else content
            path.write_bytes(data)

    def flow(self, text: str, name: str = "w.yaml", **files: str) -> None:
        """Write a workflow, and files beside it."""
        self.write({name: text, **files})

    def text(self, name: str) -> str:
        return (self.directory / name).read_text()

    def run(self, *argv: str, flow: str = "w.yaml", code: int = 0) -> Any:
        """`sureline run` with --json, which must end with `code`; what it printed."""
        answer = self("run", flow, "--json", *argv)
        assert answer.code == code, answer.err
        return answer.json

    def counts(self, *argv: str, code: int = 0) -> dict[str, int]:
        """The task counts of a run, without those that are 0."""
        counts: dict[str, int] = self.run(*argv, code=code)["tasks"]
        return {name: count for name, count in counts.items() if count}

    def states(self, run: str = "last") -> dict[str, str]:
        """The state of every task of a run."""
        shown = self("show", run, "--tasks", "--json").json
        return {one["task"]: one["state"] for one in shown["listed"]}

    def process(
        self, *argv: str, env: Mapping[str, str] | None = None, **options: Any
    ) -> subprocess.CompletedProcess[str]:
        """Run a command as a real process, to its end."""
        options = {"capture_output": True, "text": True} | options
        return subprocess.run(
            [*SURELINE, *argv],
            cwd=self.directory,
            env={**os.environ, **(env or {})},
            timeout=PATIENCE_S,
            check=False,
            **options,
        )

    def start(self, *argv: str) -> subprocess.Popen[str]:
        """Start a command as a real process that is left to go on, at most as long as the test."""
        going = subprocess.Popen(
            [*SURELINE, *argv],
            cwd=self.directory,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self._started.append(going)
        return going

    def running(self) -> list[str]:
        """The tasks of the last run that are running now."""
        answer = self("show", "--json")
        listed = answer.json["listed"] if answer.code == 0 else []
        return [one["task"] for one in listed if one["state"] == "running"]

    def close(self) -> None:
        for going in self._started:
            if going.poll() is None:
                going.terminate()
            if going.stdout is not None and not going.stdout.closed:
                going.communicate(timeout=PATIENCE_S)


def wait_until(condition: Callable[[], object], going: subprocess.Popen[str] | None = None) -> None:
    """Wait for a condition that `going` brings about. Fails if that ends, or after PATIENCE_S."""
    end = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < end, "the awaited never happened"
        if going is not None and going.poll() is not None:
            assert going.stderr is not None
            raise AssertionError(f"it ended with {going.returncode}: {going.stderr.read()}")
        time.sleep(0.02)


def listing(directory: Path) -> dict[str, tuple[int, int, bytes | None]]:
    """All that is in a directory: modes, sizes, contents."""
    found = {}
    for path in sorted(directory.rglob("*")):
        status = path.lstat()
        content = path.read_bytes() if path.is_file() and os.access(path, os.R_OK) else None
        found[str(path.relative_to(directory))] = (status.st_mode, status.st_size, content)
    return found
