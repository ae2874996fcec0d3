"""Compile the kernels ahead of time: `python -m sureline.forecast.warm`.

The compiled code is kept on disk; without this, the first forecast after an installation takes
some seconds longer.
"""

from __future__ import annotations

import gc
from functools import lru_cache

from sureline.forecast.durations import durations_of
from sureline.forecast.finish import finish_times
from sureline.forecast.machines import Together
from sureline.forecast.progress import untouched
from sureline.forecast.shape import Shape
from sureline.workflow.model import Graph, Pause, Task


@lru_cache(maxsize=1)
def warm() -> None:
    """Load every kernel, compiled first if need be: once per process."""
    for tasks, cores in ((1, 1.0), (2, 1.0)):  # nobody waits; somebody does
        graph = Graph("warm", [Task(f"t{number}", Pause(1.0)) for number in range(tasks)])
        shape = Shape(graph)
        machine = Together(cores, 0, 0, {})
        finish_times(shape, untouched(graph, 0.0), durations_of(shape, {}, {}), machine, 1)
    # What was loaded stays to the end. If the collector of garbage looked at all of it again and
    # again, a run that makes objects quickly would pay more for that than for its forecasts.
    gc.freeze()


if __name__ == "__main__":
    warm()
