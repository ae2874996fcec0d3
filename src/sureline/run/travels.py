"""What can run on a grid at all."""

from __future__ import annotations

from sureline.workflow.mistakes import UserError
from sureline.workflow.model import Call, Graph


def check_travels(graph: Graph) -> None:
    """Refuse what cannot run on a grid, before anything starts. Raises UserError."""
    for task in graph.tasks:
        if isinstance(task.action, Call):
            raise UserError(
                f"{task.name} is a Python call, and calls work in the directory of whoever submits "
                "them; run it without --grid, or write it as a command"
            )
        if task.in_place:
            raise UserError(
                f"{task.name} uses {task.in_place[0]} in place, and files in place do not travel; "
                "take it out of 'in_place:', or run without --grid"
            )
