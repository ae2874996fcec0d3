from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from sureline.journal.store import Journal


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[Journal]:
    with Journal.open(tmp_path / ".sureline") as opened:
        yield opened
