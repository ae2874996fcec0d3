"""Large data: calls that share one array, against Dask, Ray, ProcessPoolExecutor and joblib.

    python benchmarks/data.py [--size-mb 500] [--calls 10] [--items 100000] [--rounds 3]

Prints one JSON object: seconds for `calls` calls that each sum a part of one array (the best of
`rounds`), their ratio to Dask's, what a run costs whose calls are all
reused, how the journal grows over ten such runs, and `map` over short items in chunks. What is not
installed is left out, and named in `left_out`. Worker processes are up before the clock starts,
except for Sureline's workflow, whose runs each start their own.
"""

from __future__ import annotations

import argparse
import functools
import importlib.util
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack, chdir, contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from sureline import Executor, Workflow
from sureline.peer.packed import hash_buffer

WORKERS = 2
Case = Callable[[Any, int], float]


def part(array: Any, k: int, calls: int) -> float:
    return float(array[k::calls].sum())


@contextmanager
def sureline_workflow() -> Iterator[Case]:
    """Every round in a new directory: nothing is reused. The one before is removed first, within
    the time taken: the others let go of their memory, too, before they ask for more."""
    with ExitStack() as stack:

        def case(array: Any, calls: int) -> float:
            stack.close()
            where = stack.enter_context(tempfile.TemporaryDirectory(prefix="sureline-data-"))
            return run_workflow(array, calls, where)

        yield case


def run_workflow(array: Any, calls: int, where: str) -> float:
    with chdir(where):
        flow = Workflow("data")
        handles = [flow.call(part, array, k, calls) for k in range(calls)]
        results = flow.run()
        return float(sum(results[handle] for handle in handles))


@contextmanager
def pool(make: Callable[[], Any]) -> Iterator[Case]:
    with make() as executor:
        list(executor.map(abs, range(WORKERS)))

        def case(array: Any, calls: int) -> float:
            futures = [executor.submit(part, array, k, calls) for k in range(calls)]
            return float(sum(future.result() for future in futures))

        yield case


@contextmanager
def with_joblib() -> Iterator[Case]:
    import joblib

    with joblib.Parallel(n_jobs=WORKERS) as parallel:
        parallel(joblib.delayed(abs)(k) for k in range(WORKERS))

        def case(array: Any, calls: int) -> float:
            return float(sum(parallel(joblib.delayed(part)(array, k, calls) for k in range(calls))))

        yield case


@contextmanager
def with_dask() -> Iterator[Case]:
    from distributed import Client, LocalCluster

    with (
        LocalCluster(
            n_workers=WORKERS, threads_per_worker=1, dashboard_address=None, host="127.0.0.1"
        ) as cluster,
        Client(cluster) as client,
    ):
        client.submit(abs, -1).result()

        def case(array: Any, calls: int) -> float:
            (shared,) = client.scatter([array], broadcast=True, hash=False)
            futures = [client.submit(part, shared, k, calls, pure=False) for k in range(calls)]
            return float(sum(client.gather(futures)))

        yield case


@contextmanager
def with_ray() -> Iterator[Case]:
    import ray

    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    ray.init(
        num_cpus=WORKERS,
        include_dashboard=False,
        log_to_driver=False,
        logging_level="error",
        _node_ip_address="127.0.0.1",
    )
    remote = ray.remote(part)
    ray.get(remote.remote(np.ones(4), 0, 1))

    def case(array: Any, calls: int) -> float:
        shared = ray.put(array)
        return float(sum(ray.get([remote.remote(shared, k, calls) for k in range(calls)])))

    try:
        yield case
    finally:
        ray.shutdown()


TOOLS: dict[str, tuple[str, Callable[[], Any]]] = {
    "sureline workflow": ("sureline", sureline_workflow),
    "sureline executor": ("sureline", functools.partial(pool, lambda: Executor(WORKERS))),
    "dask": ("distributed", with_dask),
    "ray": ("ray", with_ray),
    "process pool": ("concurrent", functools.partial(pool, lambda: ProcessPoolExecutor(WORKERS))),
    "joblib": ("joblib", with_joblib),
}


def shared(
    size_mb: int, calls: int, rounds: int, only: list[str]
) -> tuple[dict[str, float], list[str]]:
    """Seconds of each tool, and the tools that are not here."""
    array = np.arange(size_mb * (1 << 20) // 8, dtype=float)
    right = float(array.sum())
    taken_s: dict[str, float] = {}
    left_out = []
    for name, (module, tool) in TOOLS.items():
        if name not in only or importlib.util.find_spec(module) is None:
            left_out.append(name)
            continue
        with tool() as case:
            for _ in range(rounds):
                array[0] += 1.0  # so that nobody remembers it
                right += 1.0
                began = time.perf_counter()
                found = case(array, calls)
                took_s = time.perf_counter() - began
                assert abs(found - right) <= 1e-9 * right, f"{name} is wrong: {found}, not {right}"
                taken_s[name] = min(took_s, taken_s.get(name, took_s))
    return taken_s, left_out


def again(size_mb: int, calls: int) -> dict[str, Any]:
    """What a run costs whose calls are all reused, in looks at the data (a hash of it all), and the
    journal over ten runs."""
    array = np.arange(size_mb * (1 << 20) // 8, dtype=float)
    look_s = min(_seconds(lambda: hash_buffer(memoryview(array).cast("B"))) for _ in range(3))
    with tempfile.TemporaryDirectory(prefix="sureline-data-") as where:
        taken_s, sizes = [], []
        for _ in range(10):
            taken_s.append(_seconds(lambda: run_workflow(array, calls, where)))
            sizes.append(
                sum(path.stat().st_size for path in Path(where, ".sureline").glob("journal.db*"))
            )
    return {
        "first_s": round(taken_s[0], 3),
        "reused_s": round(min(taken_s[1:]), 3),
        "look_s": round(look_s, 3),
        "journal_bytes": sizes,
    }


def _seconds(what: Callable[[], object]) -> float:
    began = time.perf_counter()
    what()
    return time.perf_counter() - began


def chunks(items: int) -> dict[str, float]:
    """Seconds of `map` over short items, a thousand at once."""
    taken_s = {}
    makes: dict[str, Callable[[], Any]] = {
        "sureline executor": lambda: Executor(WORKERS),
        "process pool": lambda: ProcessPoolExecutor(WORKERS),
    }
    for name, make in makes.items():
        with make() as executor:
            list(executor.map(abs, range(WORKERS)))
            times = []
            for _ in range(3):
                began = time.perf_counter()
                assert sum(executor.map(abs, range(items), chunksize=1000)) == sum(range(items))
                times.append(time.perf_counter() - began)
            taken_s[name] = round(min(times), 4)
    return taken_s


def main(argv: list[str]) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--size-mb", type=int, default=500)
    parser.add_argument("--calls", type=int, default=10)
    parser.add_argument("--items", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", default=",".join(TOOLS), help="the tools, separated by commas")
    asked = parser.parse_args(argv)
    only = asked.only.split(",")
    taken_s, left_out = shared(asked.size_mb, asked.calls, asked.rounds, only)
    dask_s = taken_s.get("dask")
    told = {
        "cores": os.cpu_count(),
        "size_mb": asked.size_mb,
        "calls": asked.calls,
        "shared_s": {name: round(seconds, 3) for name, seconds in taken_s.items()},
        "to_dask": None
        if dask_s is None
        else {name: round(seconds / dask_s, 2) for name, seconds in taken_s.items()},
        "left_out": left_out,
        "again": again(asked.size_mb, asked.calls),
        "map_in_chunks_s": chunks(asked.items),
    }
    print(json.dumps(told, indent=2))


if __name__ == "__main__":
    main(sys.argv[1:])
