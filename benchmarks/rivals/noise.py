"""How quiet the machine is: a fixed piece of arithmetic on as many cores as the workloads use."""

from __future__ import annotations

import os
import time

from rivals.work import WORKERS

STEPS = 3_000_000


def spin() -> dict[str, float]:
    """Wall and CPU seconds of the same loop in each of two processes at once, and the load.

    On a quiet machine both are the same from one repeat to the next, and equal to each other.
    """
    began = time.perf_counter()
    before = os.times()
    children = [_spinner() for _ in range(WORKERS)]
    for pid in children:
        os.waitpid(pid, 0)
    after = os.times()
    cpu_s = after.children_user + after.children_system
    cpu_s -= before.children_user + before.children_system
    return {
        "wall_s": time.perf_counter() - began,
        "cpu_s": cpu_s / WORKERS,
        "load_1min": os.getloadavg()[0],
    }


def _spinner() -> int:
    pid = os.fork()
    if pid == 0:
        total = 0
        for step in range(STEPS):
            total += step & 7
        os._exit(0)
    return pid
