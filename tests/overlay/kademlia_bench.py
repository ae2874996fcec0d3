"""Makes the benchmark's networks importable: the tests run what the benchmark measures."""

from __future__ import annotations

import sys
from pathlib import Path

# At the end: benchmarks/kademlia.py must not stand in for the package of that name.
sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))

from kademlia_grid import live, simulated

__all__ = ["live", "simulated"]
