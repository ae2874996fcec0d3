"""Nodes that are members, over the real transport: on loopback, or on the wires of `wire_lab`."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import cache
from random import Random
from typing import Any

from net_lab import LabCredentials, Note, lab_grid

from sureline.compose.node import SETTLE_POLL_S, SETTLE_S, Forgetful, NoRunner
from sureline.overlay.membership import MESSAGES, Membership, Offer
from sureline.world.address import at, name_of, node_of
from sureline.world.agent import Agent, handles
from sureline.world.live import LiveWorld
from sureline.world.net.codec import Codec
from sureline.world.net.limits import Limits
from sureline.world.net.transport import NetTransport

OFFER = Offer(1.0, 1 << 30)


class NoFetcher:
    def fetch(self, wanted, sources, on_done):
        raise AssertionError("nobody fetches here")


class Ear(Agent):
    """Hears notes, with who has said them."""

    def __init__(self, me, world) -> None:
        super().__init__(me, world)
        self.heard: list[tuple[str, Note]] = []

    @handles(Note)
    def _note(self, sender, note: Note) -> None:
        self.heard.append((name_of(node_of(sender)), note))


@cache
def credentials_of(name: str) -> LabCredentials:
    return lab_grid().credentials(name)


class MemberNode:
    """A transport, a world and a membership on it; a directory for the first by the last."""

    async def start(
        self,
        name: str,
        advertise: str,
        contacts: Sequence[str],
        *,
        loop: Any = None,
        host: str = "127.0.0.1",
        port: int = 0,
        random: Random | None = None,
        limits: Limits | None = None,
    ) -> MemberNode:
        """It is a member soon after; `loop` is the running one, unless it is given."""
        loop = loop or asyncio.get_running_loop()

        async def answer(identity, request):
            return identity.name.encode(), bytes(range(256)) * int(request)

        self.transport = await NetTransport.listen(
            loop,
            host,
            port,
            credentials_of(name),
            Codec([*MESSAGES, Note]),
            advertise=advertise,
            limits=limits,
            bulk=answer,
        )
        self.name, self.node, self.contacts = name, self.transport.node, list(contacts)
        self.world = LiveWorld(
            loop,
            NoRunner(),
            NoFetcher(),
            Forgetful(loop),
            on_crash=self.crashed,
            random=random,
            transport=self.transport,
            node=self.node,
        )
        me = at(self.node, "membership")
        self.membership = Membership(me, self.world.place(me), OFFER)
        self.world.join(self.membership)
        ear = at(self.node, "ear")
        self.ear = Ear(ear, self.world.place(ear))
        self.world.join(self.ear)
        self.deaths: list[str] = []
        self.membership.watch(self.watched)
        self.membership.knowledge.on_doubted = self.transport.doubted
        self.transport.reach(
            self, lambda berth: self.membership.reached_through(berth.relays), dialled="auto"
        )
        return self

    async def join(self) -> MemberNode:
        """Find out how it is reached, and join."""
        give_up_at = self.world.loop.time() + SETTLE_S
        while self.contacts and not self.transport.settled:
            if self.world.loop.time() > give_up_at:
                break
            await asyncio.sleep(SETTLE_POLL_S)
        contacts = [at(contact, "membership") for contact in self.contacts]
        self.membership.join(contacts, lambda n: None)
        return self

    def say(self, to: MemberNode, note: Note) -> None:
        self.ear.world.send(at(to.node, "ear"), note)

    def reached(self, other: MemberNode) -> set[str]:
        """Who carries the links with another; '' for a direct one."""
        return {link.through for link in self.transport.peers() if link.node == other.node}

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
        return record is None or (record.node == node and record.present)

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
