"""Small statistics, told as plain numbers."""

from __future__ import annotations

from collections.abc import Sequence


def quantile(values: Sequence[float], share: float) -> float:
    """The value below which that share of the values lies; 0 of none."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else 0.0


def spread(values: Sequence[float], digits: int = 4) -> dict[str, float]:
    return {
        "median": round(quantile(values, 0.5), digits),
        "p99": round(quantile(values, 0.99), digits),
        "max": round(max(values, default=0.0), digits),
    }


def resident_bytes(pid: int | str = "self") -> int:
    with open(f"/proc/{pid}/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * 4096
