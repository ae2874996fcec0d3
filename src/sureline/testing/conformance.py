"""The suite: what befalls runs, in both worlds, and what must be left of them afterwards.

A subclass names its strategy. A case that makes no sense for it, such as a lost message for one
that places everything on its own machine, is skipped. Simulated cases repeat with their seed; the
real ones share one small grid of processes on the loopback for the whole session.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

import pytest

from sureline.experiments.drive import run_scenario
from sureline.experiments.outcome import ScenarioOutcome
from sureline.journal.events import AnyEvent, Opened, PeerLeft, TaskBound, TaskEnded, TaskRetried
from sureline.journal.export import exported_events
from sureline.run.port import Strategy
from sureline.strategies import at_sites
from sureline.strategies import strategy as named
from sureline.testing import laws
from sureline.testing.live import LiveGrid
from sureline.testing.live_run import PEERS, RIGHT, SLOTS, LiveRun
from sureline.testing.live_run import TASKS as LIVE_TASKS
from sureline.testing.scenarios import TASKS, scenario_of

SEEDS = (1,)
_GRID = pytest.StashKey[LiveGrid]()


class StrategyConformance:
    strategy: ClassVar[str]
    """The name that it is registered by."""
    settings: ClassVar[Mapping[str, Any]] = {}
    """What `--with` would set."""

    # -- simulated -----------------------------------------------------------------------------

    @pytest.mark.parametrize("seed", SEEDS)
    def test_quiet(self, seed: int) -> None:
        events = self.finished("quiet", seed)
        bound = Counter(event.task for event in events if isinstance(event, TaskBound))
        bound.subtract(laws.taken_back(events))
        assert bound == Counter(laws.committed(events)), "each task is bound for good once"
        assert not [event for event in events if isinstance(event, TaskRetried | PeerLeft)]

    def test_repeats(self) -> None:
        """Nothing but the seed counts: no clock, no randomness but the world's, no hash order."""
        assert self.simulated("quiet", 1).journals == self.simulated("quiet", 1).journals

    @pytest.mark.parametrize("seed", SEEDS)
    def test_loss(self, seed: int) -> None:
        self.on_grid()
        self.finished("loss", seed)

    @pytest.mark.parametrize("seed", SEEDS)
    def test_crash(self, seed: int) -> None:
        self.on_grid()
        events = self.finished("crash", seed)
        assert [event.peer for event in events if isinstance(event, PeerLeft)] == ["b1"]
        left = next(n for n, event in enumerate(events) if isinstance(event, PeerLeft))
        late = [event for event in events[left:] if isinstance(event, TaskBound)]
        assert "b1" not in {event.peer for event in late}

    @pytest.mark.parametrize("seed", SEEDS)
    def test_restart_of_machines(self, seed: int) -> None:
        self.on_grid()
        self.finished("machine restarts", seed)

    @pytest.mark.parametrize("seed", SEEDS)
    def test_restart_of_the_driver(self, seed: int) -> None:
        events = self.finished("driver restarts", seed)
        assert laws.processes(events) == 3

    @pytest.mark.parametrize("seed", SEEDS)
    def test_takeover(self, seed: int) -> None:
        """Whoever drives the run is gone for good; another machine goes on from a copy."""
        self.on_grid()
        events = self.finished("takeover", seed)
        openings = [event.host for event in events if isinstance(event, Opened)]
        assert openings == ["submitter", "standby1"]

    @pytest.mark.parametrize("seed", SEEDS)
    def test_cut_off_and_back(self, seed: int) -> None:
        self.on_grid()
        self.finished("cut off", seed)

    @pytest.mark.parametrize("seed", SEEDS)
    def test_out_of_reach(self, seed: int) -> None:
        """One machine and the driver do not hear each other; all others hear both."""
        self.on_grid()
        events = self.finished("out of reach", seed)
        taken = [e.peer for e in events if isinstance(e, TaskEnded) and e.at > events[0].at + 90.0]
        assert taken and "b1" not in taken, "what it had was done elsewhere"

    @pytest.mark.parametrize("seed", SEEDS)
    def test_cancel(self, seed: int) -> None:
        outcome = self.simulated("cancel", seed)
        events = self.lawful(outcome)
        assert laws.state(events) == "cancelled"
        begun = {(e.task, e.attempt) for e in events if isinstance(e, TaskBound)}
        ended = {(e.task, e.attempt) for e in events if isinstance(e, TaskEnded)}
        assert begun, "it was cancelled while something was under way"
        assert begun <= ended, "what was under way is over"

    def test_deadline(self) -> None:
        """There is time enough, though one machine becomes very slow."""
        outcome = self.simulated("deadline", 1)
        assert laws.state(self.lawful(outcome)) == "succeeded"
        assert outcome.runs[0].on_time

    # -- live ----------------------------------------------------------------------------------

    @pytest.fixture
    def live_grid(
        self, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
    ) -> LiveGrid | None:
        """Started when it is first needed; all suites of a session share it."""
        if named(self.strategy).where == "here":
            return None
        stash = request.config.stash
        if _GRID not in stash:
            stash[_GRID] = LiveGrid(tmp_path_factory.mktemp("grid"))
            request.config.add_cleanup(stash[_GRID].close)
            stash[_GRID].start(PEERS, f"--slots={SLOTS}", role="run,submit,drive")
        return stash[_GRID]

    def test_live(self, live_grid: LiveGrid | None, tmp_path: Path) -> None:
        """A peer and the driver are killed, the run is taken over, cancelled, and resumed."""
        run = LiveRun(tmp_path, live_grid, named(self.strategy), self.settings)
        events = run.bear_all()
        assert not laws.broken(events, self.strategy)
        assert laws.state(events) == "succeeded" and laws.processes(events) == 3
        assert len(laws.committed(events)) == LIVE_TASKS
        assert (run.second / "all.txt").read_text() == RIGHT

    def test_live_at_sites(self, tmp_path: Path) -> None:
        """Tasks wait and run at sites while their driver is killed, comes back, is cancelled, and
        is resumed."""
        if not at_sites(named(self.strategy)):
            pytest.skip(f"{self.strategy} does not place tasks at sites")
        run = LiveRun(tmp_path, None, named(self.strategy), self.settings, at_sites=True)
        events = run.bear_all()
        assert not laws.broken(events, self.strategy)
        assert laws.state(events) == "succeeded" and laws.processes(events) == 3
        assert len(laws.committed(events)) == LIVE_TASKS
        assert (run.first / "all.txt").read_text() == RIGHT

    def test_live_cut_off_and_back_with_a_deadline(
        self, live_grid: LiveGrid | None, tmp_path: Path
    ) -> None:
        self.on_grid()
        run = LiveRun(tmp_path, live_grid, named(self.strategy), self.settings, within_s=600.0)
        events = run.be_cut_off()
        assert not laws.broken(events, self.strategy)
        assert laws.state(events) == "succeeded" and laws.processes(events) == 1
        assert len(laws.committed(events)) == LIVE_TASKS
        assert (run.first / "all.txt").read_text() == RIGHT

    # -- how -----------------------------------------------------------------------------------

    def on_grid(self) -> Strategy:
        """Skip what only happens on a grid, for a strategy that is for none."""
        found = named(self.strategy)
        if found.where == "here":
            pytest.skip(f"{self.strategy} places everything on one machine")
        return found

    def simulated(self, case: str, seed: int) -> ScenarioOutcome:
        return run_scenario(scenario_of(case, named(self.strategy), self.settings), seed)

    def lawful(self, outcome: ScenarioOutcome) -> list[AnyEvent]:
        """The events of its run, in which no law is broken."""
        told = f"{outcome.scenario}, seed {outcome.seed}"
        assert not [check for check in outcome.checks if not check.held], told
        (lines,) = outcome.journals
        events = exported_events(lines)
        assert not laws.broken(events, self.strategy), told
        return events

    def finished(self, case: str, seed: int) -> list[AnyEvent]:
        """The events of a run that did all that there was to do."""
        events = self.lawful(self.simulated(case, seed))
        assert laws.state(events) == "succeeded", f"{case}, seed {seed}"
        assert len(laws.committed(events)) == TASKS
        return events
