"""A calibration in lines for a terminal: a table by promise, the worst points, a diagram."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from sureline.experiments.calibration_result import (
    BELOW,
    PROMISES,
    WITHIN,
    Calibration,
    Point,
)

WORST_SHOWN = 5
DIAGRAM_WIDTH = 50


def calibration_lines(found: Calibration) -> Iterator[str]:
    runs = sum(point.runs for point in found.points)
    sort = "runs never seen" if found.unseen else "history of the same distribution"
    yield f"{len(found.points)} points, {runs:,} runs, {found.earlier_runs} earlier runs ({sort})"
    yield ""
    yield "promised   on time: least    mean    most      PERT's mean"
    for promised in PROMISES:
        of_one = [point for point in found.points if point.promised == promised]
        if of_one:
            yield _by_promise(promised, of_one)
    yield ""
    yield from _diagram(found.points)
    yield ""
    yield (
        f"Brier score {found.brier:.4f}; promises that are exactly true have "
        f"{found.brier_true:.4f}, PERT's {found.brier_pert:.4f}"
    )
    yield _verdict(found)
    worst = sorted(found.points, key=lambda p: p.off if found.unseen else -abs(p.off))
    for point in worst[:WORST_SHOWN]:
        yield (
            f"  {point.trace}, {point.slots} slots: promised {point.promised:g}, "
            f"on time {point.achieved:.3f}"
        )
    for one in found.agents:
        yield (
            f"real agents, {one.scenario}: {one.runs} runs promised {one.promised:g}, on time "
            f"{one.achieved:.3f} without repair, {one.repaired:.3f} with it "
            f"({one.repairs} repairs)"
        )
    if found.before_learning:
        shares = [point.achieved for point in found.before_learning if point.promised == 0.9]
        yield (
            f"wrong estimates, before anything was learned: promised 0.9, on time "
            f"{min(shares):.3f} to {max(shares):.3f}"
        )


def _by_promise(promised: float, points: Sequence[Point]) -> str:
    shares = [point.achieved for point in points]
    pert = sum(point.pert for point in points) / len(points)
    mean = sum(shares) / len(shares)
    return (
        f"{promised:<8g}            {min(shares):.3f}   {mean:.3f}   {max(shares):.3f}"
        f"            {pert:.3f}"
    )


def _diagram(points: Sequence[Point]) -> Iterator[str]:
    """A row per promise: from the least share to the most, and where the promise is."""
    yield f"share on time  0{'1':>{DIAGRAM_WIDTH}}"
    for promised in PROMISES:
        shares = [point.achieved for point in points if point.promised == promised]
        if shares:
            low, high, at = (round(x * DIAGRAM_WIDTH) for x in (min(shares), max(shares), promised))
            row = ["-" if low <= place <= high else " " for place in range(DIAGRAM_WIDTH + 1)]
            row[at] = "|"
            yield f"promised {promised:<5g} {''.join(row)}"


def _verdict(found: Calibration) -> str:
    if found.unseen:
        kept = "kept" if found.held else "NOT kept"
        return (
            f"at most {BELOW} below the promise: {kept} (the worst is {found.worst_below:.3f} "
            "below). The worst points:"
        )
    kept = "kept" if found.held else "NOT kept"
    return f"within {WITHIN} of the promise: {kept} (the worst is {found.worst:.3f} off):"
