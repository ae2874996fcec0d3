"""How fast forecasts are: the compiled kernel against NumPy level by level, in the same run.

A random graph of layers, each task waiting for up to three of the layer before, with beta-PERT
durations. Without contention: `numpy` draws the durations of a whole level from the same tables,
for all samples or for a block of them at a time (whichever is faster), takes the latest parent with
`maximum.reduceat`, and goes on to the next level. Both must find the same finish, within what
chance allows. With contention the kernel is alone: list scheduling has no levels. Every figure is
the best of some rounds in which the contestants take turns, in seconds of processor time of the
one thread they use; loading and compiling are not counted and told apart.

    python benchmarks/forecast.py [--tasks 1000] [--samples 10000] [--repeat 5] [--json FILE]
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from sureline.forecast.durations import Durations, durations_of
from sureline.forecast.finish import finish_forecast, finish_times
from sureline.forecast.follow import SHARE_OF_CORE
from sureline.forecast.machines import Together
from sureline.forecast.progress import untouched
from sureline.forecast.shape import Floats, Shape
from sureline.forecast.warm import warm
from sureline.workflow.model import Command, Graph, Takes, Task

RATIO_WANTED = 10.0
TIGHT_SLOTS = 16
TIGHT_SAMPLES = 2_000
TIGHT_WANTED_S = 1.0
WIDTH = 50
BLOCKS = (0, 250)
"""Samples that NumPy takes at a time; 0 for all of them."""
SEED = 7


def layers(tasks: int) -> Graph:
    draw = random.Random(SEED)
    found: list[Task] = []
    for number in range(tasks):
        level = number // WIDTH
        above = range(max(0, (level - 1) * WIDTH), level * WIDTH)
        after = (
            {f"k{level % 8}_{i}": i for i in draw.choices(above, k=draw.randint(1, 3))}
            if level
            else {}
        )
        names = sorted(found[i].name for i in after.values())
        low = draw.uniform(1, 3)
        takes = Takes(low, low * draw.uniform(1, 2), low * draw.uniform(2, 6))
        name = f"k{level % 8}_{number}"
        found.append(Task(name, Command("true"), after=tuple(names), takes=takes))
    return Graph("layers", found)


class ByLevel:
    """The finish of a graph without contention, in NumPy."""

    def __init__(self, shape: Shape, durations: Durations) -> None:
        self._durations = durations
        self._levels: list[tuple[Any, Any, Any]] = []
        parents = shape.graph.parents
        for level in range(int(shape.level.max(initial=-1)) + 1):
            tasks = np.flatnonzero(shape.level == level)
            rows = [parents[task] for task in tasks.tolist()]
            starts = np.cumsum([0, *(len(row) for row in rows[:-1])])
            above = np.array([parent for row in rows for parent in row], dtype=np.int64)
            self._levels.append((tasks, above, starts))

    def finish_times(self, samples: int, seed: int, block: int = 0) -> Floats:
        generator = np.random.default_rng(seed)
        size = block or samples
        parts = [self._block(min(size, samples - at), generator) for at in range(0, samples, size)]
        return np.concatenate(parts)

    def _block(self, samples: int, generator: np.random.Generator) -> Floats:
        model = self._durations
        ends = np.empty((len(model.kind), samples))
        for tasks, above, starts in self._levels:
            shape = len(tasks), samples
            points = generator.integers(0, model.tables.shape[1], size=shape, dtype=np.int32)
            drawn = model.tables[model.form[tasks][:, None], points]
            drawn *= model.scale_s[tasks][:, None]
            drawn += model.offset_s[tasks][:, None]
            if len(above):
                drawn += np.maximum.reduceat(ends[above], starts, axis=0)
            ends[tasks] = drawn
        last: Floats = ends.max(axis=0)
        return last


def cpu_s(work: Callable[[], object]) -> float:
    began = time.thread_time()
    work()
    return time.thread_time() - began


def compare(tasks: int, samples: int, repeat: int) -> dict[str, Any]:
    graph = layers(tasks)
    shape = Shape(graph)
    durations = durations_of(shape, {}, {})
    room_for_all = Together(float(2 * tasks), 0, 0, {})
    progress = untouched(graph, 0.0)
    rival = ByLevel(shape, durations)
    ours = finish_times(shape, progress, durations, room_for_all, samples, SEED)
    theirs = rival.finish_times(samples, SEED, BLOCKS[-1])
    error = float(np.hypot(ours.std(), theirs.std())) / samples**0.5
    assert abs(ours.mean() - theirs.mean()) < 5 * error, "the two do not simulate the same"
    best = {"kernel": float("inf"), **{f"numpy_{block or 'all'}": float("inf") for block in BLOCKS}}
    for turn in range(repeat):
        took = cpu_s(
            lambda t=turn: finish_times(shape, progress, durations, room_for_all, samples, t)
        )
        best["kernel"] = min(best["kernel"], took)
        for block in BLOCKS:
            name = f"numpy_{block or 'all'}"
            took = cpu_s(lambda t=turn, b=block: rival.finish_times(samples, t, b))
            best[name] = min(best[name], took)
    numpy_s = min(best[name] for name in best if name != "kernel")
    return {
        "tasks": tasks,
        "samples": samples,
        "kernel_s": best["kernel"],
        "numpy_s": numpy_s,
        "numpy_by_block_s": {name: best[name] for name in best if name != "kernel"},
        "ratio": numpy_s / best["kernel"],
        "wanted": RATIO_WANTED,
    }


def contended(tasks: int, repeat: int) -> dict[str, Any]:
    graph = layers(tasks)
    shape = Shape(graph)
    durations = durations_of(shape, {}, {})
    slots, progress = Together(float(TIGHT_SLOTS), 0, 0, {}), untouched(graph, 0.0)
    took = [
        cpu_s(lambda t=turn: finish_times(shape, progress, durations, slots, TIGHT_SAMPLES, t))
        for turn in range(repeat)
    ]
    made = [finish_forecast(shape, progress, durations, slots, seed=turn) for turn in range(repeat)]
    cost = min(made, key=lambda one: one.cost_s)
    return {
        "tasks": tasks,
        "slots": TIGHT_SLOTS,
        "samples": TIGHT_SAMPLES,
        "kernel_s": min(took),
        "wanted_s": TIGHT_WANTED_S,
        "forecast_samples": cost.samples,
        "forecast_s": cost.cost_s,
        "next_forecast_after_s": cost.cost_s / SHARE_OF_CORE,
    }


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--tasks", type=int, default=1_000)
    parser.add_argument("--samples", type=int, default=10_000)
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--json", type=Path)
    asked = parser.parse_args(arguments)
    loading_s = cpu_s(warm)
    found = {
        "loading_s": loading_s,
        "without_contention": compare(asked.tasks, asked.samples, asked.repeat),
        "with_contention": contended(asked.tasks, asked.repeat),
    }
    if asked.json is not None:
        asked.json.write_text(json.dumps(found, indent=2) + "\n")
    free, tight = found["without_contention"], found["with_contention"]
    print(f"loading the kernels: {loading_s:.2f} s")
    print(
        f"{asked.samples:,} samples of {asked.tasks:,} tasks without contention: "
        f"{free['kernel_s']:.3f} s; NumPy by level {free['numpy_s']:.3f} s: "
        f"{free['ratio']:.1f} times as fast (wanted: {RATIO_WANTED:g})"
    )
    print(
        f"{TIGHT_SAMPLES:,} samples of {asked.tasks:,} tasks on {TIGHT_SLOTS} slots: "
        f"{tight['kernel_s']:.3f} s (wanted: below {TIGHT_WANTED_S:g})"
    )
    print(
        f"a forecast in a run: {tight['forecast_samples']} samples, {tight['forecast_s']:.3f} s; "
        f"the next one after {tight['next_forecast_after_s']:.1f} s"
    )
    met = free["ratio"] >= RATIO_WANTED and tight["kernel_s"] < TIGHT_WANTED_S
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
