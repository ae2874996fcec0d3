"""Whatever happens to peers, messages and the engine: every task commits once, every output is
right, nothing is lost. A failing seed is in the test's name, and reproduces."""

from __future__ import annotations

import pytest
from grid_faults import Faults


@pytest.mark.parametrize("first", range(0, 200, 25))
def test_faults(first):
    for seed in range(first, first + 25):
        try:
            Faults(seed).drive()
        except BaseException as error:
            raise AssertionError(f"seed {seed}") from error


@pytest.mark.soak
@pytest.mark.parametrize("first", range(1000, 6000, 500))
def test_many_faults(first):
    for seed in range(first, first + 500):
        try:
            Faults(seed).drive()
        except BaseException as error:
            raise AssertionError(f"seed {seed}") from error
