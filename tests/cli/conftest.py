from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from cli_bench import Bench


@pytest.fixture
def bench(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Iterator[Bench]:
    """An empty working directory, which is the current one."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SURELINE_HOME", str(tmp_path / "home-of-grids"))
    made = Bench(tmp_path, capsys)
    yield made
    made.close()
