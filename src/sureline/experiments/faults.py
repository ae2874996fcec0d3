"""Faults as a scenario orders them: at set times, or at random with a seed of their own.

A fault that finds its victim in no state for it (crashing what is down already) does not happen.
One that lasts is undone only if nothing of its sort has befallen its victim meanwhile.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from random import Random
from typing import NamedTuple, Protocol

from sureline.experiments.scenario import UNDONE_BY, Fault, Scenario
from sureline.world.address import Node

HAPPENED_MAX = 10_000
SORTS = {
    "slow": "speed",
    "full speed": "speed",
    "slow_disk": "disk speed",
    "fast disk": "disk speed",
    "full_disk": "disk room",
    "room on disk": "disk room",
    "full_cache": "cache room",
    "room in cache": "cache room",
    "corrupt": "files",
    "clock": "clock",
}
"""What faults that do not touch a machine's life are about."""
LIFE = "life"
NETWORK = ("", LIFE)


class Victims(Protocol):
    """What faults do to a simulated grid."""

    def at(self, time_s: float, action: Callable[[], None]) -> None: ...
    def state(self, node: Node) -> str:
        """'up', 'down' or 'frozen'."""

    def crash(self, node: Node) -> None: ...
    def kill(self, node: Node) -> None: ...
    def restart(self, node: Node) -> None: ...
    def freeze(self, node: Node) -> None: ...
    def thaw(self, node: Node) -> None: ...
    def slow(self, node: Node, factor: float) -> None: ...
    def slow_disk(self, node: Node, factor: float) -> None: ...
    def fill_disk(self, node: Node, full: bool) -> None: ...
    def fill_cache(self, node: Node, full: bool) -> None: ...
    def corrupt(self, node: Node, share: float, random: Random) -> None: ...
    def step_clock(self, node: Node, by_s: float) -> None: ...
    def partition(self, groups: Sequence[Sequence[Node]]) -> None: ...
    def sever(self, some: Sequence[Node], others: Sequence[Node]) -> None: ...
    def heal(self) -> None: ...


class Happened(NamedTuple):
    at_s: float
    what: str
    whom: str


ANY = ("up", "frozen", "down")
_SUITS = {
    "crash": ("up", "frozen"),
    "kill": ("up", "frozen"),
    "restart": ("down",),
    "freeze": ("up",),
    "thaw": ("frozen",),
    "slow": ("up", "frozen"),
    "full speed": ANY,
    "slow_disk": ANY,
    "fast disk": ANY,
    "full_disk": ANY,
    "room on disk": ANY,
    "full_cache": ANY,
    "room in cache": ANY,
    "corrupt": ANY,
    "clock": ANY,
}
"""In which state of the victim a fault can happen."""


class Faults:
    """Schedules all faults of a scenario; `happened` tells which came about."""

    def __init__(self, scenario: Scenario, seed: int, victims: Victims) -> None:
        self._scenario = scenario
        self.random = Random(f"{seed}/faults")
        self._victims = victims
        self._turn: Counter[tuple[str, str]] = Counter()
        """How often something of each sort has befallen each victim ('' is the network)."""
        self.happened: list[Happened] = []
        self.counts: Counter[str] = Counter()

    def schedule(self) -> None:
        for fault in self._scenario.faults:
            if fault.every_s is None and fault.per_minute is None:
                self._victims.at(fault.at_s, self._once(fault, fault.at_s))
            else:
                self._schedule_next(fault, fault.at_s, 1)

    def _once(self, fault: Fault, at_s: float) -> Callable[[], None]:
        return lambda: self._strike(fault, at_s)

    def _schedule_next(self, fault: Fault, from_s: float, number: int) -> None:
        at_s = from_s + self._gap_s(fault)
        if at_s > min(fault.until_s, self._scenario.duration_s):
            return
        if fault.times is not None and number > fault.times:
            return

        def again() -> None:
            self._strike(fault, at_s)
            self._schedule_next(fault, at_s, number + 1)

        self._victims.at(at_s, again)

    def _gap_s(self, fault: Fault) -> float:
        if fault.every_s is not None:
            return fault.every_s.draw(self.random)
        per_second = (fault.per_minute or 0.0) * len(self._whom(fault)) / 60.0
        return self.random.expovariate(per_second) if per_second else float("inf")

    def _whom(self, fault: Fault) -> list[Node]:
        return list(dict.fromkeys(n for word in fault.whom for n in self._scenario.meant(word)))

    def _strike(self, fault: Fault, at_s: float) -> None:
        if fault.what in ("partition", "cut", "heal"):
            self._on_network(fault, at_s)
            return
        states = _SUITS[fault.what]
        able = [node for node in self._whom(fault) if self._victims.state(node) in states]
        if fault.count is not None:
            able = self.random.sample(able, min(fault.count, len(able)))
        for node in able:
            self._do(fault.what, node, at_s, fault)
            self._undo_later(fault, node, at_s)

    def _do(self, what: str, node: Node, at_s: float, fault: Fault) -> None:
        self._turn[node, SORTS.get(what, LIFE)] += 1
        self._note(at_s, what, node)
        match what:
            case "crash":
                self._victims.crash(node)
            case "kill":
                self._victims.kill(node)
            case "restart":
                self._victims.restart(node)
            case "freeze":
                self._victims.freeze(node)
            case "thaw":
                self._victims.thaw(node)
            case "slow" | "full speed":
                self._victims.slow(node, fault.factor if what == "slow" else 1.0)
            case "slow_disk" | "fast disk":
                self._victims.slow_disk(node, fault.factor if what == "slow_disk" else 1.0)
            case "full_disk" | "room on disk":
                self._victims.fill_disk(node, what == "full_disk")
            case "full_cache" | "room in cache":
                self._victims.fill_cache(node, what == "full_cache")
            case "corrupt":
                self._victims.corrupt(node, fault.factor, self.random)
            case _:
                self._victims.step_clock(node, fault.by_s.draw(self.random))

    def _undo_later(self, fault: Fault, node: Node, at_s: float) -> None:
        if fault.lasts_s is None:
            return
        key = (node, SORTS.get(fault.what, LIFE))
        turn, undo_s = self._turn[key], at_s + fault.lasts_s.draw(self.random)
        undone = UNDONE_BY[fault.what]

        def undo() -> None:
            if self._turn[key] == turn and self._victims.state(node) in _SUITS[undone]:
                self._do(undone, node, undo_s, fault)

        self._victims.at(undo_s, undo)

    def _on_network(self, fault: Fault, at_s: float) -> None:
        self._turn[NETWORK] += 1
        if fault.what == "heal":
            self._heal(at_s)
            return
        groups = [
            list(dict.fromkeys(node for word in group for node in self._scenario.meant(word)))
            for group in fault.groups
        ]
        self._note(at_s, fault.what, " | ".join(", ".join(group) for group in fault.groups))
        if fault.what == "cut":
            self._victims.sever(*groups)
        else:
            self._victims.partition(groups)
        if fault.lasts_s is not None:
            turn, undo_s = self._turn[NETWORK], at_s + fault.lasts_s.draw(self.random)
            self._victims.at(
                undo_s, lambda: self._heal(undo_s) if self._turn[NETWORK] == turn else None
            )

    def _heal(self, at_s: float) -> None:
        self._note(at_s, "heal", "the network")
        self._victims.heal()

    def _note(self, at_s: float, what: str, whom: str) -> None:
        self.counts[what] += 1
        if len(self.happened) < HAPPENED_MAX:
            self.happened.append(Happened(round(at_s, 6), what, whom))
