"""How a simulated scenario went: numbers, faults, and what was checked. `--json` prints it."""

from __future__ import annotations

import msgspec

from sureline.experiments.faults import Happened
from sureline.journal.views import Counts


class RunResult(msgspec.Struct, frozen=True):
    run: str
    state: str
    tasks: Counts
    makespan_s: float
    """From its submission to its end, by the true time; to the end of the simulation, if it did
    not end."""
    epochs: int
    """How many processes drove it."""
    reason: str = ""
    paid: float = 0.0
    """To providers, by the contracts that are settled."""
    on_time: bool | None = None
    """Whether it ended by its deadline; None if it had none."""


class ScenarioTraffic(msgspec.Struct, frozen=True):
    messages: int
    bytes: int
    bulk_bytes: int
    """Of files, beside the messages."""
    messages_per_task: float
    by_type: dict[str, tuple[int, int]]
    """(messages, bytes), the most frequent first."""
    busiest_node: str
    busiest_messages: int
    peak_node: str
    peak_per_second: int
    """The most that any node sent within one second."""


class Checked(msgspec.Struct, frozen=True):
    what: str
    problems: tuple[str, ...] = ()

    @property
    def held(self) -> bool:
        return not self.problems


class Protocol(msgspec.Struct, frozen=True):
    """How a protocol workload went: lookups found, broadcasts answered."""

    asked: int
    answered: int
    median_s: float
    worst_s: float
    share: float
    """Of keys found, or of live nodes reached, on average."""


class ScenarioOutcome(msgspec.Struct, frozen=True):
    scenario: str
    seed: int
    virtual_s: float
    events: int
    runs: tuple[RunResult, ...]
    protocol: Protocol | None
    traffic: ScenarioTraffic
    faults: dict[str, int]
    fault_list: tuple[Happened, ...]
    checks: tuple[Checked, ...]
    journals: tuple[tuple[str, ...], ...] = ()
    """The canonical lines of every run."""

    @property
    def good(self) -> bool:
        """Every run succeeded and everything that was checked holds."""
        succeeded = all(run.state == "succeeded" for run in self.runs)
        return succeeded and all(check.held for check in self.checks)
