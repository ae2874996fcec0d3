"""Whom a machine promises its time when it is short: by priority, or by what each has had."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from toy_world import ToyWorld

from sureline.overlay.tree.leaf import HoleSought, PromisedTime
from sureline.peer.capacity import Capacity
from sureline.strategies import machine_settings_of
from sureline.strategies.peercomp import peercomp
from sureline.strategies.peercomp.lanes import Lanes
from sureline.strategies.peercomp.machine import LanesKept, MachineSettings
from sureline.strategies.peercomp.policy import HALF_LIFE_S, Policy, Priority
from sureline.world.protocol import AgentId

ANN, BOB, EVE = (AgentId(f"{name}+1@10.0.0.1:1/tree") for name in ("ann", "bob", "eve"))
DUE_S = 1000.0


class Machine:
    """Of one lane, at time 0."""

    def __init__(self, policy: Policy) -> None:
        self.lanes = Lanes(Capacity(1.0, 1 << 30), policy)
        self.number = 0

    def ask(
        self, work_s: float, who: AgentId = ANN, priority: Priority = "normal", now_s: float = 0.0
    ) -> tuple[PromisedTime, ...]:
        """Promised and committed, if it is."""
        self.number += 1
        due_s = now_s + DUE_S
        wish = HoleSought(self.number, 0, (work_s,), (due_s,), 1, now_s, due_s, priority=priority)
        if not self.lanes.reserve(wish, now_s, who):
            return ()
        return self.lanes.commit(self.number, 0, (now_s,), now_s, who)

    def would(self, work_s: float, who: AgentId, now_s: float = 0.0) -> bool:
        slots = self.ask(work_s, who, now_s=now_s)
        self.lanes.release(self.number, 0, 1, now_s)
        return bool(slots)


@pytest.mark.parametrize("priority", ["low", "normal", "high"])
@pytest.mark.parametrize(
    ("policy", "promised"), [("deadline", ["low", "normal", "high"]), ("priority", ["high"])]
)
def test_time_is_kept_free_for_those_who_matter_more(policy, promised, priority) -> None:
    machine = Machine(policy)
    assert machine.ask(800.0, priority="high")
    assert bool(machine.ask(100.0, priority=priority)) == (priority in promised)


def test_a_low_priority_gets_what_is_left_beyond_what_is_kept() -> None:
    machine = Machine("priority")
    assert machine.ask(500.0, priority="high")
    assert not machine.ask(250.0, priority="low") and machine.ask(40.0, priority="low")


@pytest.mark.parametrize("policy", ["deadline", "priority", "fair"])
def test_an_idle_machine_takes_anybody(policy) -> None:
    assert Machine(policy).ask(990.0, priority="low")


def test_who_had_more_than_others_lately_comes_after_them() -> None:
    machine = Machine("fair")
    for _ in range(6):
        assert machine.ask(100.0, EVE), "as long as nobody else is there"
    assert machine.ask(50.0, ANN) and machine.ask(50.0, BOB)
    assert not machine.would(100.0, EVE)
    assert machine.would(100.0, ANN) and machine.would(100.0, BOB)
    later_s = 12 * HALF_LIFE_S
    assert machine.ask(700.0, ANN, now_s=later_s) and machine.would(100.0, EVE, later_s)


def test_nobody_is_promised_time_in_anothers_name() -> None:
    """Any peer on the way of a request could write a name into it that has had nothing yet."""
    machine = Machine("fair")
    wish = HoleSought(7, 0, (100.0,), (DUE_S,), 1, 0.0, DUE_S)
    assert machine.lanes.reserve(wish, 0.0, ANN)
    assert machine.lanes.commit(7, 0, (0.0,), 0.0, EVE) == ()
    assert machine.lanes.commit(7, 0, (0.0,), 0.0, ANN)


def test_the_owner_of_a_machine_sets_its_policy() -> None:
    given = machine_settings_of(peercomp, {"policy": "priority", "ends_at": 0.0})
    capacity = Capacity(1.0, 1 << 30)
    half = LanesKept(SimpleNamespace(capacity=capacity), ToyWorld(), given)
    assert half.lanes.policy == "priority"
    assert (
        LanesKept(SimpleNamespace(capacity=capacity), ToyWorld(), MachineSettings()).lanes.policy
        == "deadline"
    )
