"""What reproducing the paper on deadline reservations gives, in lines."""

from __future__ import annotations

from collections.abc import Iterator

from sureline.experiments.peercomp_result import PeercompCompared, PeercompReproduced


def lines(made: PeercompReproduced) -> Iterator[str]:
    yield f"{made.paper}: {made.nodes:,} peers, {made.minutes:g} minutes under full load"
    right = sum(
        ours == paper
        for row in made.table1
        for ours, paper in zip(row.ours, row.paper, strict=True)
    )
    total = sum(len(row.paper) for row in made.table1)
    yield f"Table I, reference points: {right} of {total} entries are the same"
    yield "Table II, speed-up by priority:"
    yield "    model       most    W  paper  executed  committed  workflows  accepted"
    for cell in made.table2:
        yield (
            f"    {cell.model:<10} {cell.maximum:>5.2f} {cell.priority:>4} {cell.paper:>6.2f} "
            f"{_number(cell.executed):>9} {_number(cell.committed):>10} {cell.workflows:>10,} "
            f"{cell.accepted:>9.0%}  {cell.compared} {cell.verdict}"
        )
    yield "Fig. 6, seconds to place a workflow:"
    yield "    model      size  width  median   90 %   99 %  workflows"
    for curve in made.allocation:
        yield (
            f"    {curve.model:<10} {curve.size:>4} {curve.width:>6.1f} {curve.median_s:>7.2f} "
            f"{curve.p90_s:>6.2f} {curve.p99_s:>6.2f} {curve.workflows:>10,}"
        )
    yield "What the paper says in words:"
    yield from _compared(made.claims)
    traffic = made.traffic
    yield (
        f"Messages: {traffic.messages:,}, {traffic.updates:,} of them updates; "
        f"{traffic.messages_per_allocation:.1f} others per workflow, "
        f"{traffic.hops_per_request:.1f} hops per request"
    )
    yield from _compared(traffic.numbers)
    yield "Load by level of the tree (messages per second, mean and busiest second; bytes):"
    for level in traffic.levels:
        name = (
            "no branch"
            if level.depth < 0
            else "root"
            if not level.depth
            else f"depth {level.depth}"
        )
        yield (
            f"    {name:<10} {level.peers:>9,} peers {level.messages_per_s:>8.2f} "
            f"{level.busiest_messages_per_s:>6.0f} {level.busiest_bytes_per_s:>8.0f}"
        )
    rejected = made.rejected
    yield (
        f"Rejected: {rejected.share:.1%} of {rejected.workflows:,} workflows"
        + "".join(f"; {count:,}: {reason}" for reason, count in rejected.reasons.items())
    )
    yield f"Split: {rejected.split:.1%} of the sequences were placed in several pieces"
    yield f"Promised and missed: {made.missed}" + (
        ": THIS IS A MISTAKE IN SURELINE" if made.missed else ""
    )
    yield "While machines leave without a word (at most 3,000 of the peers):"
    for lost in made.churn:
        yield (
            f"    {lost.leaving_per_minute:.0%} a minute ({lost.machines_left}): "
            f"{lost.accepted:.0%} of {lost.workflows} workflows accepted, placed in "
            f"{_number(lost.median_s)} s (90 %: {_number(lost.p90_s)} s); {lost.tasks_lost} tasks "
            f"and {lost.owners_lost} owners lost, {lost.missed} promises missed by those who stayed"
        )
    yield "The warm start against a grid that was simulated into its state:"
    for one in made.warm:
        yield (
            f"    {one.what}: mean {one.warm:.2f} against {one.simulated:.2f}; largest gap "
            f"{one.gap:.3f}, between two simulated ones {one.usual_gap:.3f}: "
            f"{'alike' if one.agrees else 'NOT ALIKE'}"
        )
    yield (
        f"{made.busy:.0%} of the peers at work at the end; {made.wall_s:.0f} s, "
        f"{made.cpu_s:.0f} s of them computing, {made.peak_bytes / 2**30:.2f} GiB"
    )


def _compared(numbers: list[PeercompCompared]) -> Iterator[str]:
    for one in numbers:
        ours = f"{one.ours:.3g}" if one.ours < 1000 else f"{one.ours:,.0f}"
        yield f"    {one.what}: paper {one.paper}, ours {ours}: {one.verdict}"


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"
