"""A workflow of 300 small tasks with files, for the crash tests.

Several levels, fan-out, fan-in, directories, equal contents under different names, tasks whose
first attempt fails, and a part that depends on the parameter `salt`, so that a second run with
another salt reuses some results and makes others. Every execution appends the task's name to the
file that the environment variable EXECUTIONS names, so that a test can count them.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

TASKS = 300
FLAKY = 20
EXECUTIONS = "EXECUTIONS"
NOTE = 'echo "$SURELINE_TASK" >> "$EXECUTIONS"; '


def write_big_flow(where: Path) -> Path:
    """Write the workflow and its inputs into a directory."""
    (where / "in").mkdir(parents=True)
    for k in range(10):
        (where / "in" / f"{k}.txt").write_text(f"input {k % 4}\n" * (20 + k % 4))
    path = where / "flow.yaml"
    path.write_text(json.dumps(_flow(), indent=1))
    return path


def _flow() -> dict[str, Any]:
    tasks: dict[str, Any] = {}

    def task(name: str, run: str, inputs: list[str], outputs: list[str], **more: Any) -> None:
        assert name not in tasks
        tasks[name] = {"run": NOTE + run, "inputs": inputs, "outputs": outputs, **more}

    for i in range(60):  # sixty files of only four contents
        task(f"make:{i}", f"cat in/{i % 10}.txt > a/{i}", [f"in/{i % 10}.txt"], [f"a/{i}"])
    for i in range(60):
        j = (i * 7 + 1) % 60
        salt = " {{salt}}" if i % 2 else ""
        run = f"(echo twist {i}{salt}; cat a/{i} a/{j}) > b/{i}"
        task(f"twist:{i}", run, [f"a/{i}", f"a/{j}"], [f"b/{i}"])
    for i in range(30):
        run = (
            f"mkdir -p d/{i}/deep; cp b/{i} d/{i}/x; cp b/{i} d/{i}/y; wc -l < b/{i} > d/{i}/deep/z"
        )
        task(f"split:{i}", run, [f"b/{i}"], [f"d/{i}"])
    for i in range(90):
        part = ("x", "y", "deep/z")[i % 3]
        run = f"(echo part {i}; cat d/{i // 3}/{part}) > c/{i}"
        task(f"part:{i}", run, [f"d/{i // 3}"], [f"c/{i}"])
    for i in range(FLAKY):
        run = f'test "$SURELINE_ATTEMPT" -gt 1; cat c/{i} b/{i + 30} > f/{i}'
        task(f"flaky:{i}", run, [f"c/{i}", f"b/{i + 30}"], [f"f/{i}"], retries=3)
    for i in range(30):
        read = [f"c/{k}" for k in range(3 * i, 3 * i + 3)]
        task(f"join:{i}", f"cat {' '.join(read)} > e/{i}", read, [f"e/{i}"])
    for i in range(8):
        read = [f"e/{k}" for k in range(i, 30, 8)]
        task(f"gather:{i}", f"cat {' '.join(read)} > g/{i}", read, [f"g/{i}"])
    made = [f"g/{i}" for i in range(8)]
    task("sum", f"cat {' '.join(made)} | cksum > sum.txt", made, ["sum.txt"])
    made = [f"f/{i}" for i in range(FLAKY)]
    task("total", "cat f/* sum.txt > total.txt", [*made, "sum.txt"], ["total.txt"])
    assert len(tasks) == TASKS, len(tasks)
    return {"name": "big", "params": {"salt": "0"}, "tasks": tasks}
