"""The half of `peercomp` on a machine: what was promised begins in its lane, guests beside it."""

from __future__ import annotations

from types import SimpleNamespace

import msgspec
import pytest
from toy_world import ToyWorld

from sureline.overlay.tree.leaf import HoleSought
from sureline.peer.admitting import Waiting
from sureline.peer.capacity import Capacity, Ledger
from sureline.strategies.peercomp.lanes import Claim, limits_of
from sureline.strategies.peercomp.machine import LanesKept, MachineSettings
from sureline.workflow.model import Needs

GIB = 1 << 30


class Bench:
    """A machine of four cores; what is chosen begins at once, and holds what it needs."""

    def __init__(self) -> None:
        self.world = ToyWorld()
        capacity = Capacity(4.0, 8 * GIB, 64 * GIB)
        self.ledger = Ledger(capacity)
        self.machine = SimpleNamespace(
            capacity=capacity, ledger=self.ledger, leaving=False, look_again=lambda: None
        )
        self.half = LanesKept(self.machine, self.world, MachineSettings())
        self.waiting: list[Waiting] = []

    def promise(self, number: int, needs: Needs, start_s: float = 0.0) -> None:
        now = self.world.now()
        start, due = now + start_s, now + start_s + 100.0
        ask = HoleSought(number, 0, (50.0,), (due,), 1, start, due, limits_of(needs))
        assert self.half.lanes.reserve(ask, now)
        assert self.half.lanes.commit(number, 0, (start,), now)

    def bind(self, task: str, needs: Needs, number: int = 0) -> None:
        """With the promise of that number, or as a guest."""
        claim = msgspec.msgpack.encode(Claim(number, 0, 50.0)) if number else b""
        bind = SimpleNamespace(
            run="r", task=task, attempt=1, needs=needs, claim=claim,
            strategy="peercomp" if number else "spread",
        )  # fmt: skip
        self.half.admitted(bind)
        self.waiting.append(Waiting(bind, 0.0))

    def begin(self) -> list[str]:
        chosen = [self.waiting[n] for n in self.half.order(self.waiting, self.world.now())]
        for one in chosen:
            self.ledger.take(one.bind.needs)  # it raises if anything is over-committed
            self.waiting.remove(one)
        return [one.bind.task for one in chosen]

    def end(self, task: str, needs: Needs, number: int = 0) -> None:
        self.ledger.give_back(needs)
        bind = SimpleNamespace(run="r", task=task, attempt=1, needs=needs, claim=b"", strategy="")
        self.half.over(bind, None, began=True)


@pytest.mark.parametrize(
    ("needs", "beside"),
    [
        (Needs(), ["g1", "g2", "g3"]),
        (Needs(2), ["g1"]),
        (Needs(1, 4 * GIB), ["g1"]),
        (Needs(1, 0, 32 * GIB), ["g1"]),
        (Needs(0.5), ["g1", "g2", "g3", "g4", "g5", "g6"]),
        (Needs(4), []),
    ],
)
def test_guests_get_the_lanes_that_nobody_was_promised(needs: Needs, beside: list[str]) -> None:
    bench = Bench()
    bench.promise(7, Needs(), start_s=20.0)
    for number in range(1, 10):
        bench.bind(f"g{number}", needs)
    assert bench.begin() == beside and bench.begin() == []


def test_what_was_promised_has_its_lane_whatever_guests_there_are() -> None:
    bench = Bench()
    bench.promise(7, Needs(2, 4 * GIB))
    for number in range(1, 5):
        bench.bind(f"g{number}", Needs())
    assert bench.begin() == ["g1", "g2"]
    bench.bind("mine", Needs(2, 4 * GIB), 7)
    assert bench.begin() == ["mine"]
    bench.end("g1", Needs())
    assert bench.begin() == ["g3"], "its lane is free again, the promised ones are not"
    bench.end("mine", Needs(2, 4 * GIB), 7)
    assert bench.begin() == ["g4"] and not bench.half.lanes.promised


def test_lanes_of_guests_are_not_promised_nor_is_anything_when_it_leaves() -> None:
    bench = Bench()
    for number in range(1, 4):
        bench.bind(f"g{number}", Needs())
    assert len(bench.begin()) == 3
    now = bench.world.now()
    ask = HoleSought(1, 0, (9.0,), (now + 99,), 1, now, now + 99, limits_of(Needs(2)))
    assert bench.half.lanes.reserve(ask, now) == ()
    assert bench.half.lanes.reserve(ask._replace(number=2, limits=limits_of(Needs())), now)
    bench.machine.leaving = True
    assert bench.half.lanes.reserve(ask._replace(number=3, limits=limits_of(Needs())), now) == ()
    assert bench.half.lanes.summary(now).holes == 0
