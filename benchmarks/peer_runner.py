"""The runner against its rivals: a bare posix_spawn loop for commands, a process pool for calls.

    python benchmarks/peer_runner.py [COMMANDS [CALLS]]

Prints one JSON object. `parent_us` is the CPU time of the runner's own process per job.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

from sureline.peer.calls import dump_arguments, dump_function
from sureline.peer.jobs import CallJob, CommandJob, JobEnded
from sureline.peer.runner import SlotRunner
from sureline.world.protocol import Job, JobEvent

SLOTS = 2
IN_FLIGHT = 4


def bare_per_s(count: int) -> float:
    began = time.perf_counter()
    for number in range(count + SLOTS):
        if number >= SLOTS:
            os.wait()
        if number < count:
            os.posix_spawn("/bin/true", ["/bin/true"], os.environ, setsid=True)
    return count / (time.perf_counter() - began)


def pool_per_s(count: int) -> float:
    with ProcessPoolExecutor(SLOTS) as pool:
        list(pool.map(nothing, range(10)))
        began = time.perf_counter()
        for future in [pool.submit(nothing) for _ in range(count)]:
            future.result()
        return count / (time.perf_counter() - began)


def nothing(*_: object) -> None:
    return None


async def drive(runner: SlotRunner, jobs: Sequence[Job]) -> tuple[float, float]:
    """Jobs per second, and microseconds of this process per job."""
    done = asyncio.get_running_loop().create_future()
    waiting = iter(jobs)
    left = len(jobs)

    def heard(event: JobEvent) -> None:
        nonlocal left
        if isinstance(event, JobEnded):
            assert event.outcome == "succeeded", event
            left -= 1
            if left == 0:
                done.set_result(None)
            elif (job := next(waiting, None)) is not None:
                runner.start(job, heard)

    began, cpu_began = time.perf_counter(), time.process_time()
    for job in [next(waiting) for _ in range(IN_FLIGHT)]:
        runner.start(job, heard)
    await done
    elapsed_s, cpu_s = time.perf_counter() - began, time.process_time() - cpu_began
    return len(jobs) / elapsed_s, cpu_s / len(jobs) * 1e6


async def measure(directory: Path, commands: int, calls: int) -> dict[str, float]:
    digest, function = dump_function(nothing)
    arguments, _ = dump_arguments((), {})
    runner = SlotRunner(
        asyncio.get_running_loop(),
        root=directory / ".sureline",
        directory=directory,
        run="bench",
        functions={digest: function},
        max_slots=SLOTS,
    )
    try:
        began = time.perf_counter()
        await drive(runner, [CommandJob(f"w{n}", "t", 1, "/bin/true") for n in range(IN_FLIGHT)])
        cold_s = time.perf_counter() - began
        true = [CommandJob(f"t{n}", "t", 1, "/bin/true") for n in range(commands)]
        command_per_s, command_us = await drive(runner, true)
        noop = [CallJob(f"c{n}", "t", 1, digest, arguments) for n in range(calls)]
        call_per_s, call_us = await drive(runner, noop)
    finally:
        await runner.close()
    return {
        "cold_start_s": cold_s,
        "commands_per_s": command_per_s,
        "command_parent_us": command_us,
        "calls_per_s": call_per_s,
        "call_parent_us": call_us,
    }


def main() -> None:
    commands = int(sys.argv[1]) if len(sys.argv) > 1 else 2_000
    calls = int(sys.argv[2]) if len(sys.argv) > 2 else 10_000
    with tempfile.TemporaryDirectory() as directory:
        found = asyncio.run(measure(Path(directory), commands, calls))
    found["bare_spawn_per_s"] = bare_per_s(commands)
    found["process_pool_per_s"] = pool_per_s(calls)
    found["commands_to_bare"] = found["commands_per_s"] / found["bare_spawn_per_s"]
    found["calls_to_pool"] = found["calls_per_s"] / found["process_pool_per_s"]
    print(json.dumps({name: round(value, 3) for name, value in found.items()}, indent=2))


if __name__ == "__main__":
    main()
