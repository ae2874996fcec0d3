"""An engine that only notes what a strategy does, for tests of strategies by themselves."""

from __future__ import annotations

from sureline.peer.capacity import Capacity
from sureline.run.port import Bound, Deciding, Over, Target
from sureline.workflow.files import FileRecord
from sureline.workflow.model import Command, Needs, Task


class NotingEngine:
    """Tasks are made as they are told ready; every bind succeeds unless its target is not there."""

    def __init__(self, deciding: Deciding) -> None:
        self.deciding = deciding
        self.needs: dict[int, Needs] = {}
        self.urgencies: dict[int, float] = {}
        self.holds: dict[int, dict[str, int]] = {}
        self.there: dict[str, Target] = {}
        self.placed: list[tuple[int, str]] = []
        self.refuses: set[int] = set()
        self.unfits: dict[int, set[str]] = {}
        self.files: dict[int, list[FileRecord]] = {}
        self.under_way: dict[int, Bound] = {}
        deciding.begin(self, (), lambda: None)

    @property
    def graph(self) -> NotingEngine:
        return self

    @property
    def tasks(self) -> NotingEngine:
        return self

    def __getitem__(self, task: int) -> Task:
        return Task(f"t{task}", Command("x"), needs=self.needs[task])

    def urgency(self, task: int) -> float:
        return self.urgencies[task]

    def held(self, task: int) -> dict[str, int]:
        return self.holds.get(task, {})

    def reads(self, task: int) -> list[FileRecord]:
        return self.files.get(task, [])

    def unfit(self, task: int) -> set[str]:
        return self.unfits.get(task, set())

    def bind(self, task: int, target: str, claim: bytes = b"", *, ahead: bool = False) -> int:
        if task in self.refuses:
            return 0
        self.placed.append((task, target))
        bound = self.under_way[task] = Bound(task, 1, target, 0.0, claim, ahead)
        self.deciding.bound(bound)
        return 1

    # -- what a test says ----------------------------------------------------------------------

    def join(self, name: str, capacity: Capacity) -> None:
        self.there[name] = Target(name, name, capacity)
        self.deciding.target(self.there[name])

    def ready(self, task: int, needs: Needs, urgency: float) -> None:
        self.needs[task], self.urgencies[task] = needs, urgency
        self.deciding.ready(task)

    def place(self) -> list[tuple[int, str]]:
        """What it decides now."""
        self.placed = []
        self.deciding.decide()
        return self.placed

    def adopt(self, task: int, needs: Needs, target: str) -> None:
        self.needs[task] = needs
        self.deciding.bound(Bound(task, 1, target, 0.0))

    def over(self, task: int, target: str) -> None:
        self.deciding.over(Over(Bound(task, 1, target, 0.0), "succeeded"))
