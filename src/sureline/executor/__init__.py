"""A `concurrent.futures.Executor` over warm slot processes; its calls are not journalled.

    with sureline.Executor() as executor:
        print(list(executor.map(pow, [2, 3], [10, 10])))

Made to stand in for a ProcessPoolExecutor. Unlike there, a worker process that dies (out of memory,
a crash in C code) fails only the call it was running, and functions and arguments may be anything
cloudpickle can carry. It also serves Dask: `dask.compute(x, scheduler=executor)`.

`pool` keeps the processes and what waits for them, `grid` has a grid's machines make the calls,
`functions` has functions as bytes, `janitor` clears up after a process that was killed.
"""

from __future__ import annotations

import functools
import itertools
import weakref
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor as FuturesExecutor
from concurrent.futures import Future
from pathlib import Path
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from sureline.executor.lost import WorkerLostError
from sureline.executor.pool import Pool, Worker, ends_with_the_interpreter
from sureline.peer.capacity import this_machine

__all__ = ["Executor", "WorkerLostError"]

if TYPE_CHECKING:
    from sureline.executor.grid import GridPool

GRID_WORKERS = 256
"""How many calls those who ask, such as Dask, have under way at once on a grid."""

P = ParamSpec("P")
T = TypeVar("T")


class Executor(FuturesExecutor):
    """`max_workers` processes at most, by default one per core; they start when needed.

    Each calls `initializer(*initargs)` first; if that fails, the executor is broken, as others are.
    After `max_tasks_per_child` calls a process is replaced by a new one. `mp_context` is accepted
    for the sake of code that gives one: processes always start afresh here.

    With `grid`, the machines of that grid make the calls, each in a process of its own; `env` names
    the Python environment to use there. What comes back is data, or the call fails; with `trust`,
    it is whatever those machines send, which can run programs here.
    """

    def __init__(
        self,
        max_workers: int | None = None,
        mp_context: object = None,
        initializer: Callable[..., object] | None = None,
        initargs: tuple[Any, ...] = (),
        *,
        max_tasks_per_child: int | None = None,
        grid: str | None = None,
        env: str = "",
        trust: bool = False,
    ) -> None:
        if max_workers is not None and max_workers < 1:
            raise ValueError("max_workers must be greater than 0")
        if initializer is not None and not callable(initializer):
            raise TypeError("initializer must be a callable")
        if max_tasks_per_child is not None:
            if not isinstance(max_tasks_per_child, int):
                raise TypeError("max_tasks_per_child must be an integer")
            if max_tasks_per_child < 1:
                raise ValueError("max_tasks_per_child must be >= 1")
        self._max_workers = max_workers or self._usual_workers(grid)
        """Dask reads this name."""
        self._pool: Pool | GridPool
        if grid is None:
            self._pool = Pool(self._max_workers, Worker(initializer, initargs, max_tasks_per_child))
        else:
            self._pool = _on_grid(grid, env, trust, initializer)
        self._forget = weakref.finalize(self, self._pool.close, False)
        self._forget.atexit = False  # the pool has its own way to end with the interpreter

    def _usual_workers(self, grid: str | None) -> int:
        return GRID_WORKERS if grid else max(1, int(this_machine(Path(".")).cores))

    @property
    def _broken(self) -> str:
        """Why it takes no more calls; '' if it does. Others have this name, too."""
        return self._pool.broken

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Call `fn` in a worker process. The future is cancelled only while it waits."""
        return self._pool.submit(fn, args, kwargs)

    def map(  # type: ignore[override]  # the arguments of later Pythons, on all
        self,
        fn: Callable[..., T],
        /,
        *iterables: Iterable[Any],
        timeout: float | None = None,
        chunksize: int = 1,
        **more: Any,
    ) -> Iterator[T]:
        """As the built-in map. `chunksize` items go to a process at once, which saves time when
        there are many short ones. `more` is what this Python's own executors take (buffersize)."""
        if chunksize < 1:
            raise ValueError("chunksize must be >= 1.")
        if chunksize == 1:
            return super().map(fn, *iterables, timeout=timeout, **more)
        chunks = _chunks(zip(*iterables, strict=False), chunksize)
        results = super().map(functools.partial(_work_off, fn), chunks, timeout=timeout, **more)
        return _chained(results)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Take no more calls; those submitted are still made, unless cancelled here."""
        self._forget.detach()
        self._pool.close(cancel_futures)
        if wait:
            self._pool.join()


def _on_grid(grid: str, env: str, trust: bool, initializer: object) -> GridPool:
    if initializer is not None:
        raise ValueError(
            "initializer= does not go with grid=: every call has a process of its own there"
        )
    from sureline.executor.grid import GridPool
    from sureline.world.identity.home import GridHome

    GridHome.open(grid)  # raises, if this home is not in it
    pool = GridPool(grid, env, trust)
    ends_with_the_interpreter(pool)
    return pool


def _chunks(items: Iterable[T], size: int) -> Iterator[tuple[T, ...]]:
    items = iter(items)
    while chunk := tuple(itertools.islice(items, size)):
        yield chunk


def _work_off(fn: Callable[..., T], chunk: tuple[tuple[Any, ...], ...]) -> list[T]:
    return [fn(*args) for args in chunk]


def _chained(lists: Iterator[list[T]]) -> Iterator[T]:
    """The items of lists, none of which is kept longer than needed."""
    for items in lists:
        items.reverse()
        while items:
            yield items.pop()
