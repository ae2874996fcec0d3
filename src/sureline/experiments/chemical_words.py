"""What reproducing the paper on the chemically coordinated shared space gives, in lines."""

from __future__ import annotations

from collections.abc import Iterator

from sureline.experiments.chemical_result import ChemicalReproduced

_WAYS = {"pieces": "log n pieces, as the paper assumes", "links": "from neighbour to neighbour",
         "anywhere": "from any place in the range on"}  # fmt: skip


def lines(made: ChemicalReproduced) -> Iterator[str]:
    yield f"{made.paper}: to {made.nodes:,} nodes and {made.workflows:,} workflows"
    yield "Figs. 6 to 8 (steps of a workflow, mean and last; messages, per task, per node):"
    for exclusive in (False, True):
        yield f"  {'exclusive capture' if exclusive else 'as the paper assumes'}:"
        yield "      nodes  workflows    steps     last     messages  per task   per node  busiest"
        for cell in made.cells:
            if cell.exclusive == exclusive:
                yield (
                    f"    {cell.nodes:>7,} {cell.workflows:>10,} {cell.mean_steps:>8.1f} "
                    f"{cell.all_steps:>8,} {cell.messages:>12,} {cell.per_task:>9.1f} "
                    f"{cell.messages_per_node:>10.1f} {cell.busiest:>8,}"
                )
    if made.fits:
        yield "Growth, straight lines over the number of nodes:"
    for fit in made.fits:
        yield f"    {fit.what} over {fit.over}: slope {fit.slope:.2f}, R^2 {fit.r2:.3f}"
    yield "What the paper says in words:"
    for claim in made.claims:
        yield f"    {claim.what}: {claim.verdict}"
        yield f"        {claim.ours}"
    yield "Fig. 5, five tasks on four resources, by the rules that run live:"
    for step in made.fig5:
        yield f"    {step.said:<36} {step.left}"
    yield from _beyond(made)
    yield f"{made.cpu_s:.0f} s of computing"


def _beyond(made: ChemicalReproduced) -> Iterator[str]:
    yield "What barriers between levels waste:"
    for on, off in zip(made.barriers[::2], made.barriers[1::2], strict=True):
        word = "exclusive capture" if on.exclusive else "as the paper assumes"
        yield (
            f"    {on.nodes:,} nodes, {on.workflows:,} workflows, {word}: {on.mean_steps:.0f} "
            f"steps with, {off.mean_steps:.0f} without: {1 - off.mean_steps / on.mean_steps:.0%}"
        )
    yield "Load: the busiest node by the mean, by how a range is asked:"
    for cell in made.balance:
        yield (
            f"    {_WAYS[cell.way]}: {cell.skew:.0f}; {cell.query_messages / cell.queries:.1f} "
            "messages per query"
        )
    yield "Range queries of real agents (messages for the best one; questions per lookup):"
    for ring in made.ranges:
        yield (
            f"    {ring.nodes:>4} nodes: O(log n + k) {ring.links:.1f}, O(log^2 n) "
            f"{ring.pieces:.1f}; lookup {ring.lookup_questions:.1f}, in the model "
            f"{ring.model_hops:.1f}; {ring.right} of {ring.asked} as a full scan"
        )
    yield "Machines killed for good, real agents, levels with barriers:"
    for one in made.crashes:
        yield (
            f"    {one.killed} of {one.machines}: {one.finished} of {one.workflows} workflows "
            f"finished, the last after {one.makespan_s:.0f} s; {one.problems} problems"
        )
