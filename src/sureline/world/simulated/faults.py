"""Random trouble, from a seed: crashes, kills, freezes, slow-downs, partitions, and churn.

Each kind of fault strikes as a Poisson process, at a rate over all machines together; its victim
is any machine in a state for it, and it ends after an exponential time. Churn instead gives every
machine sessions of exponential length, with exponential pauses. The draws come from a generator of
the faults' own, so that agents that draw more or less do not change what befalls them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from random import Random
from typing import TYPE_CHECKING

import msgspec

from sureline.world.address import Node

if TYPE_CHECKING:
    from sureline.world.simulated.simulation import Simulation


class Rates(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How often, over all machines together, and for how long on average."""

    crashes_per_s: float = 0.0
    kills_per_s: float = 0.0
    down_s: float = 10.0
    freezes_per_s: float = 0.0
    frozen_s: float = 5.0
    slow_downs_per_s: float = 0.0
    slow_s: float = 30.0
    slow_factor: float = 10.0
    partitions_per_s: float = 0.0
    parted_s: float = 10.0


class RandomFaults:
    """Strikes the given nodes of a simulation until `stop`. `struck` counts, by kind."""

    def __init__(self, sim: Simulation, nodes: Sequence[Node], seed: int | None = None) -> None:
        self._sim = sim
        self._nodes = list(nodes)
        self.random = Random(f"{sim.seed if seed is None else seed} faults")
        self.struck: dict[str, int] = {}
        self._stopped = False

    def stop(self) -> None:
        """No new fault from now on; those under way still end."""
        self._stopped = True

    def begin(self, rates: Rates) -> None:
        """Strike at these rates from now on."""
        sim, down = self._sim, partial(self._end_crash, rates.down_s)
        self._every("crash", rates.crashes_per_s, partial(self._crash, sim.crash, down))
        self._every("kill", rates.kills_per_s, partial(self._crash, sim.kill, down))
        self._every("freeze", rates.freezes_per_s, partial(self._freeze, rates.frozen_s))
        slow = partial(self._slow, rates.slow_factor, rates.slow_s)
        self._every("slow-down", rates.slow_downs_per_s, slow)
        self._every("partition", rates.partitions_per_s, partial(self._part, rates.parted_s))

    def churn(self, session_s: float, pause_s: float) -> None:
        """Let every machine come and go: up for `session_s`, down for `pause_s`, on average."""
        for node in self._nodes:
            self._after(session_s, partial(self._end_session, node, session_s, pause_s))

    def _after(self, mean_s: float, action: Callable[[], None]) -> None:
        self._sim.at(self._sim.time + self.random.expovariate(1.0 / mean_s), action)

    def _every(self, kind: str, per_s: float, strike: Callable[[], bool]) -> None:
        def next_one() -> None:
            if not self._stopped:
                if strike():
                    self.struck[kind] = self.struck.get(kind, 0) + 1
                self._after(1.0 / per_s, next_one)

        if per_s > 0:
            self._after(1.0 / per_s, next_one)

    def _victim(self) -> Node | None:
        """Any machine that is up and not frozen; None if there is none."""
        machines = [self._sim.machine(node) for node in self._nodes]
        able = [m.node for m in machines if m.life is not None and not m.frozen]
        return self.random.choice(able) if able else None

    def _crash(self, end: Callable[[Node], None], down: Callable[[Node], None]) -> bool:
        node = self._victim()
        if node is not None:
            end(node)
            down(node)
        return node is not None

    def _end_crash(self, down_s: float, node: Node) -> None:
        self._after(down_s, partial(self._sim.restart, node))

    def _freeze(self, frozen_s: float) -> bool:
        node = self._victim()
        if node is not None:
            self._sim.freeze(node)
            self._after(frozen_s, partial(self._sim.thaw, node))
        return node is not None

    def _slow(self, factor: float, slow_s: float) -> bool:
        node = self._victim()
        if node is not None:
            self._sim.slow(node, factor)
            self._after(slow_s, partial(self._sim.slow, node, 1.0))
        return node is not None

    def _part(self, parted_s: float) -> bool:
        """Cut a random half off; only one partition at a time."""
        if self._sim.network.parted:
            return False
        some = self.random.sample(self._nodes, len(self._nodes) // 2)
        self._sim.partition([some])
        self._after(parted_s, self._sim.heal)
        return True

    def _end_session(self, node: Node, session_s: float, pause_s: float) -> None:
        if self._stopped:
            return
        if self._sim.machine(node).life is not None:
            self._sim.crash(node)
            self.struck["churn"] = self.struck.get("churn", 0) + 1
        self._after(pause_s, partial(self._begin_session, node, session_s, pause_s))

    def _begin_session(self, node: Node, session_s: float, pause_s: float) -> None:
        self._sim.restart(node)
        self._after(session_s, partial(self._end_session, node, session_s, pause_s))
