"""Members that nobody can dial, over real TLS: alive through their relays, also when one dies."""

from __future__ import annotations

import asyncio

from member_lab import MemberNode
from net_lab import run, until

from sureline.world.address import name_of

BEHIND = "127.0.0.2"
"""Where nobody listens."""
HIDDEN = 6
WATCHED_S = 5.0


async def member(name: str, advertise: str, contacts: list[str]) -> MemberNode:
    return await (await MemberNode().start(name, advertise, contacts)).join()


def test_members_that_nobody_can_dial_are_alive_through_their_relays():
    async def test():
        first = await member("open0", "127.0.0.1", [])
        opened = [first]
        for number in range(1, 3):
            opened.append(await member(f"open{number}", "127.0.0.1", [first.node]))
        hidden = await asyncio.gather(
            *(member(f"hidden{n}", BEHIND, [first.node]) for n in range(HIDDEN))
        )
        everybody = [*opened, *hidden]
        names = {name_of(member.node) for member in everybody}
        await until(lambda: all(one.alive() == names for one in everybody), timeout_s=60.0)
        await until(lambda: all(len(one.transport.berth.relays) == 3 for one in hidden), 60.0)
        await asyncio.sleep(WATCHED_S)  # more than a death takes
        assert all(one.deaths == [] for one in everybody), "nobody is taken for dead meanwhile"
        dead = opened.pop()
        await dead.die()
        everybody.remove(dead)
        left = names - {name_of(dead.node)}
        await until(lambda: all(one.alive() == left for one in everybody), timeout_s=60.0)
        assert {name for one in everybody for name in one.deaths} == {name_of(dead.node)}
        for one in hidden:
            assert dead.node not in one.transport.berth.relays
            one.membership.stop()
        await asyncio.gather(*(one.transport.close() for one in everybody))

    run(test())
