"""Members that nobody can dial, over real TLS: alive through their relays, also when one dies."""

from __future__ import annotations

import asyncio

from net_lab import lab_grid, run, until

from sureline.compose.node import Forgetful, NoRunner
from sureline.overlay.membership import MESSAGES, Membership, Offer
from sureline.world.address import at, name_of
from sureline.world.live import LiveWorld
from sureline.world.net.codec import Codec
from sureline.world.net.transport import NetTransport

BEHIND = "127.0.0.2"
"""Where nobody listens."""
HIDDEN = 6
WATCHED_S = 5.0
OFFER = Offer(1.0, 1 << 30)


class NoFetcher:
    def fetch(self, wanted, sources, on_done):
        raise AssertionError("nobody fetches here")


class MemberNode:
    """A transport, a world and a membership on it; a directory for the first by the last."""

    async def start(self, name: str, advertise: str, contacts: list[str]) -> MemberNode:
        loop = asyncio.get_running_loop()
        self.transport = await NetTransport.listen(
            loop, "127.0.0.1", 0, lab_grid().credentials(name), Codec(MESSAGES), advertise=advertise
        )
        self.node, self.contacts = self.transport.node, contacts
        self.world = LiveWorld(
            loop,
            NoRunner(),
            NoFetcher(),
            Forgetful(loop),
            on_crash=self.crashed,
            transport=self.transport,
            node=self.node,
        )
        me = at(self.node, "membership")
        self.membership = Membership(me, self.world.place(me), OFFER)
        self.world.join(self.membership)
        self.deaths: list[str] = []
        self.membership.watch(self.watched)
        self.transport.reach(
            self, lambda berth: self.membership.reached_through(berth.relays), dialled="auto"
        )
        if contacts:
            await until(lambda: self.transport.settled)
        self.membership.join([at(contact, "membership") for contact in contacts], lambda n: None)
        return self

    def crashed(self, error: BaseException) -> None:
        raise error

    def watched(self, member) -> None:
        if member.state == "dead":
            self.deaths.append(member.name)

    def relays_of(self, node):
        record = self.membership.knowledge.table.records.get(name_of(node))
        return record.relays if record is not None and record.node == node else ()

    def may_be_there(self, node):
        record = self.membership.knowledge.table.records.get(name_of(node))
        return record is None or record.present

    def can_be_dialled(self):
        if not self.membership.knowledge.joined:
            return self.contacts
        members = self.membership.members().values()
        return [
            m.node for m in members if not m.relays and m.state == "alive" and m.node != self.node
        ]

    def alive(self) -> set[str]:
        return {m.name for m in self.membership.members().values() if m.state == "alive"}

    async def die(self) -> None:
        """As a killed process does: nothing is said."""
        self.membership.stop()
        self.transport._server.close()
        for link in list(self.transport._links):
            link.stream._tcp.abort()
        await self.transport.close()


def test_members_that_nobody_can_dial_are_alive_through_their_relays():
    async def test():
        first = await MemberNode().start("open0", "127.0.0.1", [])
        opened = [first]
        for number in range(1, 3):
            opened.append(await MemberNode().start(f"open{number}", "127.0.0.1", [first.node]))
        hidden = await asyncio.gather(
            *(MemberNode().start(f"hidden{n}", BEHIND, [first.node]) for n in range(HIDDEN))
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
