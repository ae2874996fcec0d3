from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from peer_bench import Bench


@pytest.fixture
def make_bench(tmp_path: Path) -> Iterator[Callable[..., Bench]]:
    made: list[Bench] = []

    def make(**options: float) -> Bench:
        bench = Bench(tmp_path, **options)  # type: ignore[arg-type]  # slots are whole numbers
        made.append(bench)
        return bench

    yield make
    for bench in made:
        bench.close()


@pytest.fixture
def bench(make_bench: Callable[..., Bench]) -> Bench:
    return make_bench()
