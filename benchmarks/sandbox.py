"""What keeping a command in its place costs: our ways against bubblewrap, per command.

    python benchmarks/sandbox.py [COMMANDS]

Prints one JSON object: for each way, the wall time and the CPU time (of this process and all it
started) that `/bin/true` takes, one at a time: the median of five rounds that take turns. `bare` is
a plain posix_spawn, `bubblewrap` the same through bwrap with an equal view; `runner_*` are commands
through a slot, without a sandbox and with each kind that this machine can give.
"""

from __future__ import annotations

import asyncio
import json
import os
import resource
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

from sureline.peer.confine import choosing
from sureline.peer.confine.rules import Rules
from sureline.peer.jobs import CommandJob, JobEnded
from sureline.peer.runner import SlotRunner
from sureline.world.protocol import JobEvent

ROUNDS = 5
BWRAP = [
    *("--unshare-user", "--unshare-ipc", "--unshare-net", "--die-with-parent"),
    *("--ro-bind", "/usr", "/usr", "--ro-bind", "/etc", "/etc"),
    *("--symlink", "usr/bin", "/bin", "--symlink", "usr/lib", "/lib"),
    *("--symlink", "usr/lib64", "/lib64", "--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp"),
]


def cpu_s() -> float:
    own, children = (
        resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    )
    return own.ru_utime + own.ru_stime + children.ru_utime + children.ru_stime


def measured(work: Callable[[int], None], count: int) -> tuple[float, float]:
    """Milliseconds per command: wall and CPU."""
    began, cpu_began = time.perf_counter(), cpu_s()
    work(count)
    elapsed_s, used_s = time.perf_counter() - began, cpu_s() - cpu_began
    return elapsed_s / count * 1000, used_s / count * 1000


def spawning(argv: list[str]) -> Callable[[int], None]:
    def work(count: int) -> None:
        for _ in range(count):
            os.waitpid(os.posix_spawn(argv[0], argv, os.environ), 0)

    return work


def running(rules: Rules) -> Callable[[int], None]:
    """A slot is started and ended in each round, so that its CPU time is counted; a first command
    waits for it outside of the wall time of none."""

    async def drive(count: int) -> None:
        loop = asyncio.get_running_loop()
        with tempfile.TemporaryDirectory() as directory:
            runner = SlotRunner(
                loop,
                root=Path(directory) / ".sureline",
                directory=Path(directory),
                run="bench",
                functions={},
                max_slots=1,
                rules=rules,
            )
            try:
                for number in range(count):
                    done = loop.create_future()

                    def heard(event: JobEvent, done: asyncio.Future[None] = done) -> None:
                        if isinstance(event, JobEnded):
                            assert event.outcome == "succeeded", event
                            done.set_result(None)

                    runner.start(CommandJob(f"t{number}", "t", 1, "/bin/true"), heard)
                    await done
            finally:
                await runner.close()

    return lambda count: asyncio.run(drive(count))


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 300
    ways = {"bare": spawning(["/bin/true"]), "runner_none": running(Rules())}
    bwrap = shutil.which("bwrap")
    if bwrap is not None:
        ways["bubblewrap"] = spawning([bwrap, *BWRAP, "/bin/true"])
    best = choosing.choose(network=False).kind
    for kind in ("landlock", "full"):
        if best in (kind, "full"):
            ways[f"runner_{kind}"] = running(Rules(kind, network=False))  # type: ignore[arg-type]  # one of the two
    samples: dict[str, list[tuple[float, float]]] = {name: [] for name in ways}
    for _ in range(ROUNDS):
        for name, work in ways.items():
            samples[name].append(measured(work, count))
    found = {
        name: {"wall_ms": median(w for w, _ in some), "cpu_ms": median(c for _, c in some)}
        for name, some in samples.items()
    }
    added = {
        name: figures["cpu_ms"] - found["bare" if name == "bubblewrap" else "runner_none"]["cpu_ms"]
        for name, figures in found.items()
        if name in ("bubblewrap", "runner_landlock", "runner_full")
    }
    result = {"commands": count, "ways": found, "added_cpu_ms": added}
    print(json.dumps(result, indent=2, default=float))


if __name__ == "__main__":
    main()
