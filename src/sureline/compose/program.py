"""Programs of the user's that have a say in a run: each question is a process of its own."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from sureline.run.asking import ProgramAsked, ProgramSaid
from sureline.world.protocol import Fetched

ANSWER_BYTES_MAX = 64 << 10
_LAST_BYTES = 200


def ask_program(
    loop: asyncio.AbstractEventLoop, wanted: ProgramAsked, on_done: Callable[[Fetched], None]
) -> None:
    async def answer() -> None:
        on_done(await _answer(wanted))

    task = loop.create_task(answer())
    _under_way.add(task)
    task.add_done_callback(_under_way.discard)


_under_way: set[asyncio.Task[None]] = set()
"""The loop itself holds tasks weakly."""


async def _answer(wanted: ProgramAsked) -> ProgramSaid:
    pipe = asyncio.subprocess.PIPE
    try:
        child = await asyncio.create_subprocess_exec(
            wanted.program, stdin=pipe, stdout=pipe, stderr=pipe
        )
    except OSError as error:
        return ProgramSaid(trouble=f"it cannot be run: {error.strerror}")
    try:
        given = wanted.text.encode()
        said, complained = await asyncio.wait_for(child.communicate(given), wanted.limit_s)
    except TimeoutError:
        return ProgramSaid(trouble=f"it did not answer within {wanted.limit_s:g} s")
    finally:
        if child.returncode is None:
            child.kill()
            await child.wait()
    if child.returncode:
        last = complained[-_LAST_BYTES:].decode("utf-8", "replace").strip().rpartition("\n")[2]
        return ProgramSaid(trouble=f"exit code {child.returncode}" + (last and f" ({last})"))
    return ProgramSaid(said[:ANSWER_BYTES_MAX].decode("utf-8", "replace"))
