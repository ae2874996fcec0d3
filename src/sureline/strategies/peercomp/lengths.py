"""How much time each task is to have: what its command takes with the wanted chance, by forecast,
what bringing its inputs may take, and a margin for all that is not its command."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median
from typing import Annotated, Literal

import msgspec

from sureline.journal.history import Observed
from sureline.run.estimates import BANDWIDTH_BYTES_S, EstimatesFound
from sureline.strategies.peercomp.policy import Priority
from sureline.workflow.model import Graph

LEAST_S = 0.1
MARGIN_S = 2.0
"""On a grid, for bringing small inputs and telling results."""
BESIDE_S = 0.25
"""What is taken for that on one machine before anything was seen."""


class ReservingSettings(msgspec.Struct, frozen=True):
    """What `--with` sets."""

    quantile: Annotated[
        float,
        msgspec.Meta(
            ge=0, le=0.99,
            description="tasks are given as much time as they need with this chance; 0: with the "
            "surety that the run wants",
        ),
    ] = 0.0  # fmt: skip
    margin_s: Annotated[
        Annotated[float, msgspec.Meta(ge=0)] | None,
        msgspec.Meta(
            description="seconds more for each task, for all that is not its command; not given: 2 "
            "on a grid, on this machine what is seen",
        ),
    ] = None
    mb_per_s: Annotated[
        float,
        msgspec.Meta(
            gt=0, description="megabytes of inputs that are brought to a machine a second"
        ),
    ] = BANDWIDTH_BYTES_S / 1e6
    aim: Annotated[
        Literal["early", "deadline"],
        msgspec.Meta(description="what is tried first: an early end, or just to keep the deadline"),
    ] = "early"
    priority: Annotated[
        Priority,
        msgspec.Meta(description="on machines whose policy is `priority`: who is favoured"),
    ] = "normal"


class Lengths:
    def __init__(self, settings: ReservingSettings) -> None:
        self._settings = settings
        self._beside_s = self._off_s = BESIDE_S / 5
        self._commands_s: list[float] = []
        self.brought_s: list[float] = []
        """Of every task: how much of its time is for bringing its inputs."""

    def learn(
        self,
        graph: Graph,
        found: EstimatesFound,
        history: Mapping[str, Sequence[Observed]],
        chance: float,
        *,
        here: bool,
    ) -> None:
        """What is known of the tasks; `here` if all run on this machine."""
        self._here = here
        chance = self._settings.quantile or chance
        self._commands_s = [max(LEAST_S, one.quantile_s(chance)) for one in found.tasks]
        self.brought_s = [0.0] * len(graph) if here else self._to_bring_s(graph, history)

    def works(self) -> list[float]:
        """Of every task, all in all, in seconds on a machine of power 1."""
        margin_s = self._settings.margin_s
        if margin_s is None:
            margin_s = self._beside_s + 4 * self._off_s if self._here else MARGIN_S
        both = zip(self._commands_s, self.brought_s, strict=True)
        return [command_s + brought_s + margin_s for command_s, brought_s in both]

    def seen_beside(self, seconds: float) -> None:
        """A task took so long on this machine beside its command. Others seldom take more than the
        mean and four times how far it is off, as TCP has it of round trips."""
        self._off_s += (abs(seconds - self._beside_s) - self._off_s) / 4
        self._beside_s += (seconds - self._beside_s) / 8

    def _to_bring_s(self, graph: Graph, history: Mapping[str, Sequence[Observed]]) -> list[float]:
        """By how large the description says that inputs are, or by what tasks of its kind read
        before. All of them, wherever they are made: a sequence may be cut."""
        read = {
            kind: median([one.input_bytes for one in seen])
            for kind, seen in history.items()
            if seen
        }
        sizes, rate_bytes_s = graph.file_sizes, 1e6 * self._settings.mb_per_s
        found = []
        for task in graph.tasks:
            told = sum(sizes.get(path, 0) for path in task.inputs)
            found.append(max(told, read.get(task.kind_name, 0)) / rate_bytes_s)
        return found
