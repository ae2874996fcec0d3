"""How the peers of a grid are reached from this machine: each is tried, for a short while."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Literal, NamedTuple

from sureline.world.address import Node, name_of
from sureline.world.net.dialler import DialError
from sureline.world.net.transport import NetTransport

LOOK_S = 6.0
"""A machine that answers nothing takes its time."""
GO_OVER_S = 2.0
"""So long a relayed connection may take to find a direct way."""
POLL_S = 0.02
AT_ONCE = 32


class WayThere(NamedTuple):
    """`through` is the name of who carries, `why_not` why it cannot be reached."""

    reached: Literal["direct", "through", "not at all", "not tried"]
    through: str = ""
    why_not: str = ""


async def ways_to(
    transport: NetTransport, others: Sequence[Node], look_s: float = LOOK_S
) -> dict[Node, WayThere]:
    """For each of the others; those for which there was no time are 'not tried'."""
    found = dict.fromkeys(others, WayThere("not tried"))
    places = asyncio.Semaphore(AT_ONCE)

    async def look(other: Node) -> None:
        async with places:
            found[other] = WayThere("not at all", why_not=f"no answer within {look_s:g} s")
            await _find(transport, other, found)

    tasks = [asyncio.ensure_future(look(other)) for other in others]
    if tasks:
        await asyncio.wait(tasks, timeout=look_s)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    return found


async def _find(transport: NetTransport, other: Node, found: dict[Node, WayThere]) -> None:
    """Note how it is reached; through somebody until there is a direct way, for a moment."""
    try:
        through = await transport.way_to(other)
    except DialError as error:
        found[other] = WayThere("not at all", why_not=str(error))
        return
    found[other] = WayThere("through", name_of(through)) if through else WayThere("direct")
    give_up_at = transport.loop.time() + GO_OVER_S
    while through and transport.loop.time() < give_up_at:
        await asyncio.sleep(POLL_S)
        link = transport.link_with(other)
        through = through if link is None else link.through
    if not through:
        found[other] = WayThere("direct")
