"""SIGKILL at random instants, resume, again and again: nothing lost, nothing committed twice.

CRASH_SEED in the environment repeats a sequence of instants (as far as the machine's own timing
allows); CRASH_KILLS changes how many there are. A failure prints the seed.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import time
from collections import Counter
from pathlib import Path

import pytest
from big_flow import EXECUTIONS, TASKS, write_big_flow
from surely import (
    Started,
    committed,
    leftovers,
    none_survives,
    rows,
    runs,
    slots,
    started,
    sureline,
    tree,
    until,
)

from sureline.journal.events import COMMITS, TaskEnded, TaskRevoked
from sureline.journal.store import Journal

FAST_RETRIES = ("--retry-delay", "20ms")
SALTS = ("0", "1")
KILLS_PER_RUN_MAX = 6
"""So many, and then the run may end: much of what is checked is checked at its end."""
EARLY_S = 0.5
"""About how long the command takes to begin with the first task."""
DIES_WITHIN_S = 10.0
"""A killed run's jobs are gone within a moment; this is for a machine that is very busy."""
RERUNS_PER_KILL_MAX = 64
"""Tasks under way, or ended but not yet flushed to the journal, when the process was killed."""


@pytest.fixture
def seed() -> int:
    return int(os.environ.get("CRASH_SEED", random.SystemRandom().randrange(1_000_000)))


@pytest.mark.soak
def test_eight_kills(tmp_path: Path, seed: int) -> None:
    crash(tmp_path, seed, int(os.environ.get("CRASH_KILLS", "8")))


@pytest.mark.soak
def test_two_hundred_kills(tmp_path: Path, seed: int) -> None:
    began = time.monotonic()
    told = crash(tmp_path, seed, int(os.environ.get("CRASH_KILLS", "200")))
    print(f"\ncrash soak, seed {seed}: {told}, {time.monotonic() - began:.0f} s")


def crash(tmp_path: Path, seed: int, kills: int) -> str:
    """Deliver so many kills, over as many runs as it takes; what was done, in figures."""
    try:
        expected, duration_s = undisturbed(tmp_path / "undisturbed")
        victim = Victim(tmp_path / "disturbed", random.Random(seed), expected, duration_s)
        while victim.kills < kills:
            victim.step(spare=victim.kills_in_run >= KILLS_PER_RUN_MAX)
        while victim.run is not None:
            victim.step(spare=True)
        return victim.figures()
    except BaseException as error:
        error.add_note(f"CRASH_SEED={seed}")
        raise


def undisturbed(where: Path) -> tuple[dict[str, dict[str, bytes]], float]:
    """What each salt's outputs are if nothing is killed, and how long the first run takes."""
    write_big_flow(where)
    expected = {}
    duration_s = 0.0
    for salt in SALTS:
        began = time.monotonic()
        arguments = ("run", "flow.yaml", "--set", f"salt={salt}", "--json", *FAST_RETRIES)
        said = sureline(where, *arguments, env={EXECUTIONS: str(where.with_suffix(".log"))})
        assert said.code == 0, said
        duration_s = duration_s or time.monotonic() - began
        expected[salt] = tree(where)
    assert expected["0"] != expected["1"]
    return expected, duration_s


class Victim:
    """A directory whose runs are killed. One run at a time; `run` is None between two."""

    def __init__(
        self,
        where: Path,
        rng: random.Random,
        expected: dict[str, dict[str, bytes]],
        duration_s: float,
    ) -> None:
        write_big_flow(where)
        self._where = where
        self._rng = rng
        self._expected = expected
        self._duration_s = duration_s
        self._runs_begun = 0
        self._finished: dict[str, str] = {}
        self.kills_in_run = 0
        self._must_not_run: list[tuple[int, set[str]]] = []
        self.run: str | None = None
        self.kills = 0
        self._resumes = 0
        self._unborn = 0
        self._slot_kills = 0
        self._reruns = 0

    def figures(self) -> str:
        return (
            f"{self.kills} kills and {self._slot_kills} of slots, {self._resumes} resumes, "
            f"{len(self._finished)} runs of {TASKS} tasks, {self._unborn} killed before the run "
            f"existed, {self._reruns} tasks run again"
        )

    @property
    def _salt(self) -> str:
        return SALTS[(self._runs_begun - 1) % len(SALTS)]

    @property
    def _log(self) -> Path:
        return self._where.with_name(f"executions.{self._runs_begun}")

    def step(self, *, spare: bool = False) -> None:
        """Start or resume, and kill at some instant, unless it ends before (or is spared)."""
        if self.run is None:
            self._begin()
            fresh = ("--fresh",) if self._runs_begun > len(SALTS) else ()
            arguments = ("run", "flow.yaml", "--set", f"salt={self._salt}", *fresh, *FAST_RETRIES)
        else:
            self._resumes += 1
            arguments = ("resume", self.run)
        with started(
            self._where, *arguments, "--quiet", env={EXECUTIONS: str(self._log)}, cold=True
        ) as process:
            if not spare:
                self._wait_for_an_instant(process)
            if not spare and not process.over():
                self._kill(process)
                return
            said = process.end()
            self._find_run()
        if said.code == 0:
            self._finish()
        else:
            assert said.code == 1, said  # a task whose slot was killed: failed, to be resumed
            assert "killed" in said.out + said.err, f"{said.out}{said.err}"

    def _begin(self) -> None:
        self._runs_begun += 1
        self.kills_in_run = 0
        self._must_not_run = []
        self._log.write_text("")

    # -- instants ---------------------------------------------------------------------------

    def _wait_for_an_instant(self, process: Started) -> None:
        kind = self._rng.choices(("any", "early", "late"), (6, 2, 2))[0]
        if kind == "late":
            done = TASKS - self._rng.randrange(6)
            until(lambda: process.over() or self._count() >= done, f"{done} commits")
            self._pause(process, self._rng.uniform(0, 0.15))
        else:
            longest_s = EARLY_S if kind == "early" else self._expected_s()
            self._pause(process, self._rng.uniform(0, longest_s))
        if self._rng.random() < 0.25 and self._find_run() is not None:
            self._kill_a_slot()

    def _expected_s(self) -> float:
        """How long this process is likely to take, by how many tasks are left."""
        left = (TASKS - self._count()) / TASKS
        return EARLY_S + left * max(0.0, self._duration_s - EARLY_S)

    def _pause(self, process: Started, seconds: float) -> None:
        """The instant itself is what is random here, so this waits for time to pass."""
        at = time.monotonic() + seconds
        while time.monotonic() < at and not process.over():
            time.sleep(0.001)

    def _count(self) -> int:
        run = self._find_run()
        return 0 if run is None else len(committed(self._where, run))

    def _find_run(self) -> str | None:
        """The run under way, once it is in the journal."""
        if self.run is None and (self._where / ".sureline/journal.db").exists():
            names = rows(self._where, "SELECT count(*) FROM sqlite_master")
            if names[0][0]:
                found = [name for (name,) in rows(self._where, "SELECT run FROM runs")]
                new = [name for name in found if name not in self._finished]
                assert len(new) <= 1, new
                self.run = new[0] if new else None
        return self.run

    # -- killing ----------------------------------------------------------------------------

    def _kill_a_slot(self) -> None:
        assert self.run is not None
        found = slots(self._where, self.run)
        if found:
            self._slot_kills += 1
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._rng.choice(found), signal.SIGKILL)

    def _kill(self, process: Started) -> None:
        process.kill()
        self.kills += 1
        self.kills_in_run += 1
        if self._find_run() is None:
            self._unborn += 1
            none_survives(self._where, DIES_WITHIN_S)
            return
        executed = len(self._executions())
        self._must_not_run.append((executed, committed(self._where, self.run or "")))
        if self._rng.random() < 0.25:
            self._kill_a_slot()
        none_survives(self._where, DIES_WITHIN_S)
        if self._rng.random() < 0.2:
            assert self._state() in ("interrupted", "succeeded", "failed")

    def _executions(self) -> list[str]:
        return self._log.read_text().splitlines()

    def _state(self) -> str:
        (state,) = [one["state"] for one in runs(self._where) if one["run"] == self.run]
        return str(state)

    # -- what must hold at the end ----------------------------------------------------------

    def _finish(self) -> None:
        assert self.run is not None
        assert self._state() == "succeeded"
        self._check_commits(self.run)
        self._check_executions()
        assert tree(self._where) == self._expected[self._salt]
        assert leftovers(self._where) == []
        none_survives(self._where, DIES_WITHIN_S)
        self._finished[self.run] = self._salt
        self.run = None

    def _check_commits(self, run: str) -> None:
        with Journal.open(self._where / ".sureline", create=False, read_only=True) as journal:
            events = [entry.event for entry in journal.events(run)]
            commits = Counter(ended.task for ended in journal.commits(run))
        ends = Counter(e.task for e in events if isinstance(e, TaskEnded) and e.outcome in COMMITS)
        assert len(ends) == TASKS
        assert set(ends.values()) == {1}
        assert commits == ends
        assert not [e for e in events if isinstance(e, TaskRevoked)]

    def _check_executions(self) -> None:
        executions = self._executions()
        for executed_before, had_results in self._must_not_run:
            again = had_results & set(executions[executed_before:])
            assert not again, f"ran although committed: {sorted(again)}"
        times = Counter(executions)
        flaky = sum(name.startswith("flaky:") for name in times)
        reruns = len(executions) - len(times) - flaky  # a flaky task is to run twice
        self._reruns += reruns
        assert reruns <= RERUNS_PER_KILL_MAX * self.kills_in_run + 3 * self._slot_kills
