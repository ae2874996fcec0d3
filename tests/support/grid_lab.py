"""The real grid of `sureline.testing`, with commands that start without much ado."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from surely import Said, sureline

from sureline.testing.live import GRID, LiveGrid, LivePeer

__all__ = ["GRID", "GridLab", "Peer"]

Peer = LivePeer


class GridLab(LiveGrid):
    def __enter__(self) -> GridLab:
        return self

    def do(self, name: str, *arguments: str, where: Path | None = None, **options: Any) -> Said:
        return sureline(where or self.where, *arguments, env=self.env(name), **options)
