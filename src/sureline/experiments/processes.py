"""Long experiments on all processors: items of work, each in whichever process is free.

An item is worked on by itself and seeds its own randomness, so that the results are the same on any
number of processors.
"""

from __future__ import annotations

import multiprocessing
import os
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from multiprocessing.connection import wait
from typing import TypeVar

Item = TypeVar("Item")
Found = TypeVar("Found")

PROCESSES_MAX = 16


def in_processes(
    work: Callable[[Item], Found], items: Sequence[Item], told: Callable[[int], None]
) -> list[Found]:
    """What `work` (a function of a module) finds for each item, in the order of the items. `told`
    hears how many are done, as long as there are others."""
    processes = min(len(items), processors(), PROCESSES_MAX)
    if processes < 2:
        found = []
        for number, item in enumerate(items):
            told(number)
            found.append(work(item))
        return found
    # Not forked: a compiled kernel's threads would not be there.
    pool = ProcessPoolExecutor(
        processes, multiprocessing.get_context("spawn"), initializer=_end_with_parent
    )
    try:
        futures = [pool.submit(work, item) for item in items]
        _hear(futures, told)
        return [future.result() for future in futures]
    finally:
        pool.shutdown(cancel_futures=True)


def processors() -> int:
    """How many this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _hear(futures: Sequence[Future[Found]], told: Callable[[int], None]) -> None:
    told(0)
    for number, future in enumerate(as_completed(futures)):
        future.result()  # what goes wrong is raised at once, not when all is done
        if number + 1 < len(futures):
            told(number + 1)


def _end_with_parent() -> None:
    """A worker whose parent was killed would wait for work for ever."""
    parent = multiprocessing.parent_process()
    assert parent is not None, "only workers call this"

    def watch() -> None:
        wait([parent.sentinel])
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
