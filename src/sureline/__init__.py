"""Sureline runs workflows that finish on time, on machines nobody controls centrally.

    from sureline import Workflow, Executor

The rooms of this package, lowest first: `workflow` (what is to be done), `world` (what an agent
may do), `journal` (what happened), `peer` (one machine), `run` (the engine of one run),
`strategies` (what runs where), `compose` (puts the parts together), and the faces: `flow` and
`executor` for Python, `cli` for the shell. ARCHITECTURE.md tells more.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sureline.executor import Executor
    from sureline.flow import Results, RunFailedError, Running, Workflow
    from sureline.peer.calls import Handle
    from sureline.peer.task_progress import progress

__version__ = "0.1.0"
__all__ = ["Executor", "Handle", "Results", "RunFailedError", "Running", "Workflow", "progress"]

_HOMES = {
    "Executor": "sureline.executor",
    "Handle": "sureline.peer.calls",
    "Results": "sureline.flow",
    "RunFailedError": "sureline.flow",
    "Running": "sureline.flow",
    "Workflow": "sureline.flow",
    "progress": "sureline.peer.task_progress",
}


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


def __getattr__(name: str) -> Any:
    """Public names are imported when first used: the command line should not pay for them."""
    if name in _HOMES:
        import importlib

        return getattr(importlib.import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'sureline' has no attribute {name!r}")
