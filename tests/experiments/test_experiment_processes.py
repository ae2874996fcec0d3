"""Experiments on several processors: results in order, as in one process; mistakes are told."""

from __future__ import annotations

import os

import pytest

from sureline.experiments import processes
from sureline.experiments.processes import in_processes
from sureline.workflow.mistakes import UserError


def _squared(number: int) -> tuple[int, int]:
    return number * number, os.getpid()


def _refused(number: int) -> int:
    raise UserError(f"{number} cannot be used; give another")


@pytest.mark.parametrize("count", [1, 2])
def test_results_come_in_order_on_any_number(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "processors", lambda: count)
    told: list[int] = []
    found = in_processes(_squared, range(7), told.append)
    assert [square for square, _ in found] == [number * number for number in range(7)]
    assert (os.getpid() in {process for _, process in found}) == (count == 1)
    assert told == sorted(told) and told[0] == 0


@pytest.mark.parametrize("count", [1, 2])
def test_a_mistake_is_the_callers(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "processors", lambda: count)
    with pytest.raises(UserError, match="give another"):
        in_processes(_refused, range(3), lambda done: None)
