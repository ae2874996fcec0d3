"""The workflows of the paper's experiments are those that its maximum speed-ups imply."""

from __future__ import annotations

from math import fsum

import pytest

from sureline.experiments.peercomp_load import SIZES, TASK_S, WorkflowLoad
from sureline.workflow.shapes import longest_s


def test_the_maximum_speed_ups_are_those_of_the_paper() -> None:
    """Of every single workflow of the size of Table II, not only on average."""
    load, seen, lengths = WorkflowLoad(1), set(), set()
    for _ in range(60):
        model, works, _ = load.draw()
        lengths.add(works[0])
        if model.size == SIZES[model.name][0]:
            seen.add(model.name)
            chain = longest_s(model.graph, works, model.order, range(len(works)))
            most = {"fork-join": 3.3, "laplace": 1.8}[model.name]
            assert fsum(works) / chain == pytest.approx(most, abs=0.05)
    assert seen == set(SIZES) and max(lengths) / min(lengths) > TASK_S[1] / TASK_S[0] / 2
