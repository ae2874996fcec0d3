"""`graph --sequences`: a workflow as the sequences that time is reserved for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sureline.cli import console

if TYPE_CHECKING:
    from sureline.workflow.model import Graph


def show_sequences(graph: Graph, json: bool) -> int:
    data = sequences_of(graph)
    if json:
        console.print_json(data)
        return 0
    count, width = len(data["sequences"]), data["width"]
    least_s, total_s = data["minimum_length"], data["total_length"]
    console.say(
        f"{data['name']}: {len(graph)} tasks in {count} sequences, {width} stages; "
        f"lengths by {data['lengths_by']}"
    )
    if not count:
        return 0
    console.say(
        f"minimum length {least_s:g} s, total length {total_s:g} s: at most "
        f"{total_s / least_s:.2f} times as fast as one machine"
    )
    limits = {limit["task"]: limit for limit in data["limits"]}
    for stage, numbers in enumerate(data["stages"]):
        console.say(f"stage {stage + 1}")
        for number in numbers:
            tasks = data["sequences"][number]
            begin_s = limits[tasks[0]]["startline_s"]
            end_s = limits[tasks[-1]]["deadline_s"]
            console.say(f"  {begin_s:g} to {end_s:g} s: {' > '.join(tasks)}")
    console.say(
        "Times are from the begin, for the tightest deadline; a later one moves all deadlines."
    )
    return 0


def sequences_of(graph: Graph) -> dict[str, Any]:
    """Lengths are the estimates if every task has one, else each task counts as a second."""
    from sureline.workflow.sequences import sequences, windows

    estimated = all(task.takes is not None for task in graph.tasks)
    lengths_s = [task.takes.likely_s if task.takes and estimated else 1.0 for task in graph.tasks]
    found = sequences(graph, lengths_s)
    limits = windows(graph, lengths_s, 0.0, found.minimum_length_s, {})
    names = [task.name for task in graph.tasks]
    return {
        "name": graph.name,
        "sequences": [[names[i] for i in tasks] for tasks in found.tasks],
        "stages": found.stages,
        "width": found.width,
        "minimum_length": found.minimum_length_s,
        "total_length": found.total_length_s,
        "lengths_by": "the estimates" if estimated else "the number of tasks",
        "limits": [
            {
                "task": names[i],
                "sequence": found.of[i],
                "startline_s": limits[i].startline_s,
                "deadline_s": limits[i].deadline_s,
            }
            for i in range(len(graph))
        ],
    }
