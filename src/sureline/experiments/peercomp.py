"""The experiments of Celaya and Arronategui, "Distributed Scheduler of Workflows with Deadlines in
a P2P Desktop Grid", run again with the agents that run live.

Some hundred peers are simulated into a steady state under full load. Their state is drawn for as
many lanes as wanted, and some minutes are simulated from that start: allocation times (Fig. 6),
messages and traffic. Table II needs tasks that are executed: up to EXECUTED_MAX peers all are, for
as long as it takes; of more, those of the steady state. Every number of the paper stands beside
ours, with a word on whether they agree.
"""

from __future__ import annotations

import resource
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from statistics import fmean, median

import numpy as np

from sureline.experiments.peercomp_churn import MACHINES, SHARES, churned
from sureline.experiments.peercomp_grid import BookingEnded, Grid
from sureline.experiments.peercomp_load import PRIORITIES, SIZES, model_of
from sureline.experiments.peercomp_result import (
    TITLE,
    Allocation,
    Level,
    PeercompCompared,
    PeercompReproduced,
    PeercompTraffic,
    Points,
    Rejected,
    SpeedUp,
)
from sureline.experiments.peercomp_warm import (
    DONORS,
    SETTLE_S,
    Warm,
    alike,
    drawn,
    settled,
    state_of,
)
from sureline.overlay.tree.points import reference_points
from sureline.workflow.sequences import sequences

LOAD = 1.0
EXECUTED_MAX = 10_000
EXECUTED_S = 1800.0
LOGGED_EACH = 30
"""Tasks that a lane executes in that time, at most."""
DAY_S = 86_400
CURVE = 50
CLOSE = 0.15
"""Two speed-ups agree if they differ by no more than this share."""
TABLE_1 = {
    "4:33": "4:40 4:50 5:00 5:30 6:00 8:00 12:00 16:00 1d:00:00 2d:00:00",
    "5:48": "5:55 6:00 6:15 6:30 7:00 8:00 12:00 16:00 1d:00:00 2d:00:00",
    "17:17": "17:25 17:30 17:45 18:00 19:00 20:00 1d:00:00 1d:08:00 1d:16:00 2d:00:00",
}
MOST = {"laplace": 1.8, "fork-join": 3.3}
"""Maximum speed-ups, as the paper has them."""
TABLE_2 = {"laplace": (2.05, 2.09, 2.18, 2.22), "fork-join": (2.12, 2.85, 2.90, 2.92)}

Tell = Callable[[str], None]


def reproduce(nodes: int, minutes: float, seed: int, tell: Tell) -> PeercompReproduced:
    began_s, began_cpu_s = time.monotonic(), time.process_time()
    tell(f"simulating {min(nodes, DONORS):,} peers into a steady state")
    small = settled(LOAD, seed, min(nodes, DONORS))
    tell("simulating others with other seeds, to compare")
    others = [state_of(settled(LOAD, seed + n, min(nodes, DONORS))) for n in (1, 2)]
    warm = drawn(state_of(small), nodes, seed)
    tell("machines leave")
    churn = [
        churned(drawn(state_of(small), min(nodes, MACHINES), seed), share, LOAD, seed + 5)
        for share in SHARES
    ]
    compared = alike(drawn(state_of(small), len(others[0].queues), seed), *others)
    tell(f"building {nodes:,} peers")
    grid = Grid(nodes, seed + 2, state=warm.queues, epoch_s=warm.time_s)
    run_cpu_s = time.process_time()
    grid.begin(LOAD, minutes * 60)
    for second in range(0, round(minutes * 60), 5):
        grid.run(min(5.0, minutes * 60 - second))
        tell(f"{second + 5} of {minutes * 60:g} simulated seconds, {grid.submitted:,} workflows")
    run_cpu_s = time.process_time() - run_cpu_s
    busy = float((grid.queues.busy[:, 0] > grid.now_s).mean())
    executed, loaded_s = small, SETTLE_S / 4
    if len(small.agents) < nodes <= EXECUTED_MAX:
        again = drawn(state_of(small), nodes, seed + 3, LOGGED_EACH * nodes)
        executed, loaded_s = executing(again, nodes, seed, tell), 0.0
    finished = grid.finished or small.finished
    cells = table_2(executed, loaded_s, finished)
    used = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return PeercompReproduced(
        TITLE,
        nodes,
        minutes,
        seed,
        LOAD,
        busy,
        table_1(),
        cells,
        curves(finished + small.finished),
        traffic(grid, minutes * 60, run_cpu_s),
        claims(cells, finished + small.finished),
        rejections(finished),
        grid.missed()
        + small.missed()
        + (executed.missed() if executed is not small else 0)
        + sum(one.missed for one in churn),
        churn,
        compared,
        time.monotonic() - began_s,
        time.process_time() - began_cpu_s,
        used * (1 if sys.platform == "darwin" else 1024),
    )


def table_1() -> list[Points]:
    found = []
    for made, points in TABLE_1.items():
        hours, minutes = made.split(":")
        ours = [_clock(t) for t in reference_points(int(hours) * 3600 + int(minutes) * 60)]
        found.append(Points(made, points.split(), ours, ours == points.split()))
    return found


def _clock(time_s: int) -> str:
    day, rest = divmod(time_s, DAY_S)
    hour, minute = rest // 3600, rest % 3600 // 60
    return f"{day}d:{hour:02}:{minute:02}" if day else f"{hour}:{minute:02}"


# Table II.


def executing(warm: Warm, nodes: int, seed: int, tell: Tell) -> Grid:
    """Workflows arrive for a while in a loaded grid, and go on until all have ended."""
    grid = Grid(nodes, seed + 3, state=warm.queues, epoch_s=warm.time_s)
    grid.begin(LOAD, EXECUTED_S)
    for minute in range(round(EXECUTED_S / 60)):
        grid.run(60.0)
        tell(f"executing: {minute + 1} of {EXECUTED_S / 60:g} minutes")
    return grid


def table_2(small: Grid, loaded_s: float, large: Sequence[BookingEnded]) -> list[SpeedUp]:
    """Executed, of workflows that came when the grid was loaded and early enough to have ended; the
    few that have not, by when they are due: nobody is late."""
    ends_s = small.ends_s()
    early_enough_s = small.sim.epoch_s + small.sim.time * 5 / 8
    loaded_s += small.sim.epoch_s
    found = []
    for name, printed in TABLE_2.items():
        size, maximum = SIZES[name][0], _most(name)
        for priority, paper in zip(PRIORITIES, printed, strict=True):
            here = [f for f in small.finished if _is(f, name, size, priority)]
            here = [f for f in here if loaded_s < f.submitted_s < early_enough_s]
            executed = [
                f.alone_s / (ends_s.get(f.last, f.booked.end_s) - f.submitted_s)
                for f in here
                if not f.booked.reason
            ]
            there = [f for f in large if _is(f, name, size, priority)]
            committed = [
                f.alone_s / (f.booked.end_s - f.submitted_s) for f in there if not f.booked.reason
            ]
            by_end = len(executed) >= len(committed)
            most, asked = (executed, here) if by_end else (committed, there)
            found.append(
                SpeedUp(
                    name,
                    round(maximum, 2),
                    priority,
                    paper,
                    fmean(executed) if executed else None,
                    fmean(committed) if committed else None,
                    "executed" if by_end else "committed",
                    len(most),
                    len(most) / max(1, len(asked)),
                    _close(paper, fmean(most) if most else None),
                )
            )
    return found


def _most(name: str) -> float:
    """Total by minimum length, if all tasks are equally long."""
    graph = model_of(name, SIZES[name][0]).graph
    plan = sequences(graph, [1.0] * len(graph))
    return plan.total_length_s / plan.minimum_length_s


def _is(finished: BookingEnded, name: str, size: int, priority: float) -> bool:
    return (finished.model, finished.size, finished.priority) == (name, size, priority)


def _close(paper: float, ours: float | None) -> str:
    if ours is None:
        return "not measured"
    if abs(ours / paper - 1) <= CLOSE:
        return "agrees"
    return "lower" if ours < paper else "higher"


# Fig. 6.


def curves(finished: Sequence[BookingEnded]) -> list[Allocation]:
    found = []
    for name, sizes in SIZES.items():
        for size in sizes:
            placed = [
                f.booked
                for f in finished
                if (f.model, f.size) == (name, size) and not f.booked.reason
            ]
            if not placed:
                continue
            times_s = np.sort([booked.took_s for booked in placed])
            shares = np.linspace(0, 1, min(CURVE, len(times_s)))
            found.append(
                Allocation(
                    name,
                    size,
                    fmean(booked.stages for booked in placed),
                    len(placed),
                    float(np.quantile(times_s, 0.5)),
                    float(np.quantile(times_s, 0.9)),
                    float(np.quantile(times_s, 0.99)),
                    [(float(np.quantile(times_s, share)), float(share)) for share in shares],
                )
            )
    return found


# Messages.


def traffic(grid: Grid, seconds: float, cpu_s: float) -> PeercompTraffic:
    tally = grid.tally
    placed = [f.booked for f in grid.finished if not f.booked.reason]
    updates = grid.sweeps.updates if grid.sweeps is not None else 0
    messages = int(tally.total[2].sum())
    other = messages - updates
    per_s = (tally.total[2] + tally.total[3]) / seconds
    sent, received = tally.peak[0], tally.peak[1]
    events = (tally.peak[2] + tally.peak[3]).max()
    numbers = [
        # Updates cost their share of the time, and do not count as messages here.
        _below("processor time of a message, ms", "1", 1e3 * cpu_s / max(1, other), 1.0),
        _below("events per second and node, mean", "2", float(per_s.mean()), 2.0),
        _below("events per second and node, most", "40", float(events), 40.0),
        _below(
            "sent in the busiest second, 75 % of nodes below, B/s",
            "2500",
            _quantile(sent, 0.75),
            2500,
        ),
        _below("sent in the busiest second, most, B/s", "8200", float(sent.max()), 8200),
        _below(
            "received in the busiest second, 75 % of nodes below, B/s",
            "1000",
            _quantile(received, 0.75),
            1000,
        ),
        _below(
            "received in the busiest second, 99 % of nodes below, B/s",
            "8000",
            _quantile(received, 0.99),
            8000,
        ),
        _below("received in the busiest second, most, B/s", "29000", float(received.max()), 29000),
    ]
    return PeercompTraffic(
        messages,
        updates,
        other / max(1, len(grid.finished)),
        sum(b.hops for b in placed) / max(1, sum(b.requests for b in placed)),
        numbers,
        levels(grid, seconds),
    )


def levels(grid: Grid, seconds: float) -> list[Level]:
    tally = grid.tally
    messages = tally.total[2] + tally.total[3]
    peak = tally.peak[2] + tally.peak[3]
    size_bytes = tally.peak[0] + tally.peak[1]
    found = []
    for depth in range(-1, grid.shape.height):
        rows = np.flatnonzero(grid.shape.depth == depth)
        if len(rows):
            found.append(
                Level(
                    depth,
                    len(rows),
                    float(messages[rows].mean() / seconds),
                    float(peak[rows].max()),
                    float(size_bytes[rows].max()),
                )
            )
    return found


def _quantile(values: np.ndarray[tuple[int, ...], np.dtype[np.int32]], share: float) -> float:
    return float(np.quantile(values, share))


def _below(what: str, paper: str, ours: float, bound: float) -> PeercompCompared:
    return PeercompCompared(
        what, paper, ours, "agrees" if ours <= bound * (1 + CLOSE) else "higher"
    )


# Statements.


def claims(tables: Sequence[SpeedUp], finished: Sequence[BookingEnded]) -> list[PeercompCompared]:
    medians = {
        name: [
            median([f.booked.took_s for f in finished if _placed(f, name, size)] or [0.0])
            for size in sizes
        ]
        for name, sizes in SIZES.items()
    }
    fork, grid = medians["fork-join"], medians["laplace"]
    growth = {name: max(times) / max(min(times), 1e-9) for name, times in medians.items()}
    rising = {}
    for name in TABLE_2:
        values = [cell.ours or 0.0 for cell in tables if cell.model == name]
        rising[name] = values[-1] / max(values[0], 1e-9)
    return [
        PeercompCompared(
            "fork-join: allocation time varies very little with size (largest by smallest median)",
            "near 1", growth["fork-join"], "agrees" if growth["fork-join"] < 2 else "disagrees",
        ),
        PeercompCompared(
            "laplace: allocation time grows with size (largest by smallest median)",
            "above 1", growth["laplace"],
            "agrees" if growth["laplace"] > max(1.5, growth["fork-join"]) else "disagrees",
        ),
        PeercompCompared(
            "allocation takes just a few seconds (the largest median)",
            "a few", max(fork + grid), "agrees" if max(fork + grid) < 10 else "disagrees",
        ),
        *[
            PeercompCompared(
                f"{name}: speed-up grows with priority (at 1.4 by that at 1.1)",
                "above 1", ratio, "agrees" if ratio > 1 else "disagrees",
            )
            for name, ratio in rising.items()
        ],
        *[
            PeercompCompared(
                f"{name}: the maximum speed-up is the total by the minimum length, of equal tasks",
                str(most), _most(name), "agrees" if abs(_most(name) - most) < 0.05 else "disagrees",
            )
            for name, most in MOST.items()
        ],
    ]  # fmt: skip


def _placed(finished: BookingEnded, name: str, size: int) -> bool:
    return (finished.model, finished.size) == (name, size) and not finished.booked.reason


def rejections(finished: Sequence[BookingEnded]) -> Rejected:
    reasons = Counter(f.booked.reason for f in finished if f.booked.reason)
    placed = [f.booked for f in finished if not f.booked.reason]
    return Rejected(
        reasons.total() / max(1, len(finished)),
        len(finished),
        dict(reasons),
        sum(b.split for b in placed) / max(1, sum(b.sequences for b in placed)),
    )
