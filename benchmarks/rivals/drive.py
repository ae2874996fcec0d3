"""Runs inside a contestant's interpreter: one workload, once, verified, on one engine.

    python drive.py CONTESTANT WORKLOAD SCALE REPORT_FD GO_FD

An engine is a module `with_CONTESTANT` that has a class `Engine`: a context manager with the
methods of the protocol below; what an engine cannot do, it does not define. Lines of JSON go to
REPORT_FD: `begin` and `end` around the measured part (each is answered with a byte on GO_FD, so
that the stage can read the clocks of the process tree in between), then the result.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import time
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from work import Shape, Shared, Sizes


class Engine(Protocol):
    def calls(self, count: int) -> list[int]:
        """`same(k)` for k in range(count), all submitted before the first result is awaited."""

    def graph(self, shape: Shape) -> list[int]:
        """The values of the graph's last level."""

    def commands(self, count: int) -> int:
        """How many of so many /bin/true succeeded."""

    def once(self, value: int) -> int:
        """One call of `same`, submitted and awaited."""

    def shared(self, shared: Shared) -> list[str]:
        """What `tail` says of the file that each task reads."""


class Line:
    """The line to the stage."""

    def __init__(self, report_fd: int, go_fd: int) -> None:
        self._report_fd = report_fd
        self._go_fd = go_fd
        for fd in (report_fd, go_fd):
            os.set_inheritable(fd, False)

    def say(self, **told: Any) -> None:
        os.write(self._report_fd, json.dumps(told).encode() + b"\n")

    def mark(self, name: str) -> None:
        """Tell where we are, and wait until the stage has taken its readings."""
        self.say(mark=name)
        if not os.read(self._go_fd, 1):
            sys.exit("the stage has gone")


class WrongAnswerError(Exception):
    pass


def expect(found: object, wanted: object) -> None:
    if found != wanted:
        raise WrongAnswerError(f"wrong answer: {str(found)[:200]} instead of {str(wanted)[:200]}")


def perform(engine: Engine, workload: str, size: Sizes) -> dict[str, float]:
    """Do the work; figures measured by the contestant itself, beyond the time it took."""
    if workload == "calls":
        expect(engine.calls(size.calls), list(range(size.calls)))
    elif workload == "graph":
        expect(engine.graph(size.graph), size.graph.answer())
    elif workload == "commands":
        expect(engine.commands(size.commands), size.commands)
    elif workload == "shared":
        expect(engine.shared(size.shared), size.shared.answer())
    else:
        return {"latency_ms": latency_ms(engine, size.warm)}
    return {}


def latency_ms(engine: Engine, rounds: int) -> float:
    """The median of so many round trips, one after the other."""
    took_s = []
    for number in range(rounds):
        began = time.perf_counter()
        found = engine.once(number)
        took_s.append(time.perf_counter() - began)
        expect(found, number)
    return sorted(took_s)[len(took_s) // 2] * 1e3


def cold(contestant: str, line: Line) -> None:
    """From nothing to the first result. Imports here are what a user's script would import."""
    with importlib.import_module(f"with_{contestant}").Engine() as engine:
        found = engine.once(41)
        first_at = time.monotonic()
        line.mark("first")
        expect(found, 41)
        line.say(first_at=first_at)


def measured(contestant: str, workload: str, scale: float, line: Line) -> None:
    import work

    size = work.sizes(scale)
    module = importlib.import_module(f"with_{contestant}")
    share: float = getattr(module, "SHARES", {}).get(workload, 1.0)
    if share != 1.0:
        size = work.sizes(scale * share)
    with module.Engine() as engine:
        perform(engine, workload, work.WARM_UP)
        line.mark("begin")
        began = time.perf_counter()
        found = perform(engine, workload, size)
        elapsed_s = time.perf_counter() - began
        line.mark("end")
        extra = getattr(engine, "extra", {})
        line.say(elapsed_s=elapsed_s, tasks=size.tasks(workload), **found, **extra)


def main() -> None:
    contestant, workload, scale, report_fd, go_fd = sys.argv[1:]
    line = Line(int(report_fd), int(go_fd))
    if workload == "cold":
        cold(contestant, line)
    else:
        measured(contestant, workload, float(scale), line)


if __name__ == "__main__":
    main()
