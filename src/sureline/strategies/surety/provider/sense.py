"""Whether what a client says can be meant, and is what was agreed."""

from __future__ import annotations

import math

from sureline.peer.capacity import is_possible
from sureline.strategies.surety.invocation import Parameters
from sureline.workflow.model import Needs

SECONDS_MAX = 1e9
"""Nothing takes longer."""


def is_within(needs: Needs, agreed: Needs) -> bool:
    """Whether a task asks for no more than its contract allows."""
    tags = dict(agreed.tags)
    return (
        needs.cores <= agreed.cores
        and needs.memory_bytes <= agreed.memory_bytes
        and needs.disk_bytes <= agreed.disk_bytes
        and needs.gpus <= agreed.gpus
        and all(count <= tags.get(tag, 0) for tag, count in needs.tags)
    )


def makes_sense(parameters: Parameters) -> bool:
    """Whether there can be such tasks at all."""
    takes = parameters.takes
    return (
        is_possible(parameters.needs)
        and parameters.input_bytes >= 0
        and parameters.tasks >= 0
        and 0 <= parameters.start_in_s < math.inf
        and (
            takes is None
            or 0 <= takes.optimistic_s <= takes.likely_s <= takes.pessimistic_s <= SECONDS_MAX
        )
    )
