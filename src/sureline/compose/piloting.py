"""A pilot: a peer that was sent to a machine for a while, to find out what it is good for.

It looks whether the machine is well before it joins anybody: a command must run here, as tasks
will, and a script of its owner must agree. It tells the grid when its time is over, takes nothing
new shortly before, and is gone by then.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from sureline.peer.jobs import CommandJob, JobEnded
from sureline.workflow.mistakes import SurelineError
from sureline.world.live import Runner
from sureline.world.protocol import JobEvent

HEALTH_S = 300.0
"""A script that has not said by then whether the machine is well has said that it is not."""
DRAIN_SHARE = 0.1
DRAIN_S_MAX = 300.0
STOP_S = 15.0
"""So long before its end what still runs is stopped, so that it can say goodbye."""
TOLD_BYTES = 2000


class Pilot(NamedTuple):
    """`lifetime_s` from its start, if there is an end; `health` is a program that exits with 0 on
    a machine that is well."""

    lifetime_s: float | None = None
    health: str = ""

    @property
    def drain_after_s(self) -> float:
        """When nothing new is taken any more."""
        lifetime_s = self.lifetime_s or float("inf")
        return lifetime_s - min(DRAIN_S_MAX, DRAIN_SHARE * lifetime_s)

    @property
    def stop_after_s(self) -> float:
        """When what still runs is stopped."""
        lifetime_s = self.lifetime_s or float("inf")
        return max(self.drain_after_s, lifetime_s - STOP_S)


class NotWellError(SurelineError):
    """This machine is not fit for work."""


async def check_health(pilot: Pilot, runner: Runner, root: Path) -> None:
    """Raises NotWellError with what is wrong."""
    ended = await _ended(runner, CommandJob("health", "health", 1, "true", timeout_s=HEALTH_S))
    trouble = "" if ended.outcome == "succeeded" else f"no command runs here: {ended.reason}"
    if not trouble and pilot.health:
        trouble = await _asked(pilot.health, root)
    if trouble:
        raise NotWellError(f"this machine is not fit for work: {trouble}")


async def _ended(runner: Runner, job: CommandJob) -> JobEnded:
    done: asyncio.Future[JobEnded] = asyncio.get_running_loop().create_future()

    def heard(event: JobEvent) -> None:
        if isinstance(event, JobEnded):
            done.set_result(event)

    runner.start(job, heard)
    return await done


async def _asked(script: str, root: Path) -> str:
    """What the owner's script has against this machine; '' if nothing."""
    log = root / "health.log"
    output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        process = await asyncio.create_subprocess_exec(
            script,
            cwd=root,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    except OSError as error:
        return f"{script} cannot be run: {error.strerror}"
    finally:
        os.close(output)
    try:
        code = await asyncio.wait_for(process.wait(), HEALTH_S)
    except TimeoutError:
        return f"{script} has not answered within {HEALTH_S:g} s"
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        await process.wait()
    return f"{script} says no (exit code {code}){_last_line(log)}" if code else ""


def _last_line(log: Path) -> str:
    with open(log, "rb") as output:
        output.seek(max(0, log.stat().st_size - TOLD_BYTES))
        lines = output.read().decode(errors="replace").strip().splitlines()
    return f": {lines[-1].strip()}" if lines else ""


def at_its_end(pilot: Pilot, drain: Callable[[], None]) -> float:
    """Have it drained in time; when, by the loop's clock, what still runs must be stopped."""
    loop = asyncio.get_running_loop()
    if pilot.lifetime_s is None:
        return float("inf")
    loop.call_later(pilot.drain_after_s, drain)
    return loop.time() + pilot.stop_after_s
