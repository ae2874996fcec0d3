"""Reactions per second of the chemical engine, against a naive matcher in the same run.

    python benchmarks/chemistry.py [--sizes 100,1000,100000] [--naive-max 10000] [--json FILE]

The naive matcher is what one writes first: for every reaction it goes through all ordered choices
of molecules from the beginning until a rule takes one. It knows nothing of tags and tries again
what did not react before. Both run the same programs from the same text to inertia, and must come
to the same solution; figures are CPU seconds of this process.

`max` is the naive matcher's best case: any two molecules react, so there is nothing to find. With
ten numbers it is ahead, by some 30 microseconds of setting up; with a hundred they are level.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from itertools import permutations
from pathlib import Path
from random import Random
from statistics import median
from typing import Any

from sureline.chemistry import Molecule, Program, Reactor, Rule, Solution, parse_program
from sureline.chemistry.arithmetic import NoSenseError, compile_expression, compile_several
from sureline.chemistry.matching import compile_plans

ENOUGH_S = 0.2


def largest(size: int) -> str:
    numbers = Random(size).sample(range(10 * size), size)
    return f"replace x::int, y::int by x if x >= y in <{', '.join(map(str, numbers))}>"


def primes(size: int) -> str:
    return f"replace x::int, y::int by y if x % y == 0 in <{', '.join(map(str, range(2, size)))}>"


def pairs(size: int) -> str:
    """Tasks and resources that must fit, as when tasks are placed."""
    numbers = Random(size).sample(range(size), size)
    molecules = [f"TASK:{n}:{n % 7}" for n in range(size)] + [f"RES:{n}:9" for n in numbers]
    rule = "replace TASK:id:need, RES:id:has by RUN:id if has >= need"
    return f"{rule} in <{', '.join(molecules)}>"


PROGRAMS: dict[str, Callable[[int], str]] = {"max": largest, "primes": primes, "pairs": pairs}


def with_engine(program: Program) -> tuple[Solution, int]:
    reactor = Reactor(program.solution.molecules, rules=program.rules, random=Random(1))
    reactor.run()
    return reactor.solution(), reactor.reactions


def with_naive(program: Program) -> tuple[Solution, int]:
    (rule,) = program.rules
    plans = compile_plans(Rule(rule.takes, ()), Random(1))
    tests = [stage.test for stage in plans.by_start[0]]  # in the order of the patterns
    assert [stage.position for stage in plans.by_start[0]] == list(range(len(tests)))
    gives = compile_several(rule.gives, plans.slots)
    assert rule.condition is not None
    condition = compile_expression(rule.condition, plans.slots)
    held: list[Molecule] = [0] * len(plans.slots)

    def react(molecules: list[Molecule]) -> bool:
        for chosen in permutations(range(len(molecules)), len(tests)):
            fits = zip(tests, chosen, strict=True)
            if not all(test(molecules[i], held) for test, i in fits):
                continue
            try:
                if condition(held) is not True:
                    continue
            except NoSenseError:
                continue
            made = gives(held)
            for i in sorted(chosen, reverse=True):
                del molecules[i]
            molecules += made
            return True
        return False

    molecules, reactions = list(program.solution.molecules), 0
    while react(molecules):
        reactions += 1
    return Solution(molecules), reactions


def measured(run: Callable[[Program], tuple[Solution, int]], program: Program) -> dict[str, Any]:
    """The median of as many runs as fit into ENOUGH_S, of one at least."""
    taken: list[float] = []
    while not taken or sum(taken) < ENOUGH_S:
        began_s = time.process_time()
        solution, reactions = run(program)
        taken.append(max(1e-9, time.process_time() - began_s))
    cpu_s = median(taken)
    return {
        "solution": solution,
        "reactions": reactions,
        "cpu_s": round(cpu_s, 6),
        "reactions_per_s": round(reactions / cpu_s),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sizes", default="100,300,1000,10000,100000")
    parser.add_argument(
        "--naive-max", type=int, default=10_000, help="no larger `max` with the naive one"
    )
    parser.add_argument(
        "--naive-search-max", type=int, default=1000, help="no larger others with the naive one"
    )
    parser.add_argument(
        "--primes-max", type=int, default=3000, help="every pair must be tried once"
    )
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    rows = []
    for name, text in PROGRAMS.items():
        for size in map(int, arguments.sizes.split(",")):
            if name == "primes" and size > arguments.primes_max:
                continue
            program = parse_program(text(size))
            ours = measured(with_engine, program)
            row: dict[str, Any] = {"program": name, "size": size, "engine": ours}
            if size <= (arguments.naive_max if name == "max" else arguments.naive_search_max):
                naive = measured(with_naive, program)
                assert naive.pop("solution") == ours["solution"], f"{name} {size}: not the same"
                row["naive"] = naive
                row["times_as_fast"] = round(naive["cpu_s"] / ours["cpu_s"], 1)
            ours.pop("solution")
            rows.append(row)
            print(json.dumps(row), flush=True)
    if arguments.json is not None:
        arguments.json.write_text(json.dumps({"rows": rows}, indent=2) + "\n")


if __name__ == "__main__":
    main()
