"""The ring over real TLS on loopback: the same agents, another world."""

from __future__ import annotations

import asyncio

from net_lab import LabNode, close_all, lab_grid, run, until

from sureline.overlay.kademlia.ids import key_of
from sureline.overlay.ring import MESSAGES, Feature, Query, Ring, RingSettings, ValueRange
from sureline.world.live import LiveWorld
from sureline.world.net.codec import Codec

GRID = lab_grid()
COUNT = 10
FEATURES = (Feature("cpu", 0.0, 100.0),)
SETTINGS = RingSettings(tick_s=0.2, republish_s=1.0, meta_ttl_s=3.0, lease_s=300.0)


class LivePeer:
    @classmethod
    async def start(cls, name, contacts=()) -> LivePeer:
        self = cls()
        self.lab = await LabNode.start(GRID.credentials(name), codec=Codec(MESSAGES))
        self.crashes: list[BaseException] = []
        self.world = LiveWorld(
            asyncio.get_running_loop(),
            None,
            None,
            None,
            on_crash=self.crashes.append,
            transport=self.lab.transport,
            node=self.lab.node,
        )
        me = f"{self.lab.node}/ring"
        self.agent = Ring(me, self.world.place(me), FEATURES, SETTINGS)
        self.world.join(self.agent)
        self.joined: list[int] = []
        self.agent.join([f"{node}/ring" for node in contacts], self.joined.append)
        return self

    async def die(self) -> None:
        """As a killed process does: its sockets close, and not a word."""
        self.agent.stop()
        self.lab.transport._server.close()
        for link in list(self.lab.transport._links):
            link.stream._tcp.abort()
        await self.lab.transport.close()


def test_live_peers_take_a_molecule_once_and_find_the_best():
    async def test() -> None:
        first = await LivePeer.start("r0")
        peers = [first]
        for number in range(1, COUNT):
            peers.append(await LivePeer.start(f"r{number}", [first.lab.node]))
        await until(lambda: all(len(p.agent.base.table) == COUNT - 1 for p in peers))
        for number, peer in enumerate(peers):
            peer.agent.publish({"cpu": 10.0 * number})

        keys = [key_of(f"molecule {number}") for number in range(6)]
        kept: list[bool] = []
        for key in keys:
            peers[3].agent.store(key, key, kept.append)
        await until(lambda: len(kept) == len(keys))
        assert all(kept)
        await kill(next(p for p in peers if p.agent.captures.registers.records), peers)

        had: dict[bytes, list[bytes]] = {key: [] for key in keys}
        heard = 0

        def done(held, why, key):
            nonlocal heard
            heard += 1
            if held is not None:
                had[key].append(held.value)

        for key in keys:
            for peer in peers:
                peer.agent.capture(key, lambda held, why, key=key: done(held, why, key))
        await until(lambda: heard == len(keys) * len(peers))
        assert had == {key: [key] for key in keys}

        await until(lambda: all(len(p.agent.base.table) == len(peers) - 1 for p in peers))
        found: list[object] = []
        true = sorted(10.0 * int(p.agent.me[1]) for p in peers)

        def look() -> bool:
            """Ask until what the dead published has run out."""
            query = Query("cpu", {"cpu": ValueRange(high=80.0, high_open=True)}, highest=True)
            peers[0].agent.find(query, found.append)
            values = [m.features["cpu"] for m in found[-1].metas] if found else []
            return values == [value for value in reversed(true) if value < 80.0]

        await until(look)
        assert not any(peer.crashes for peer in peers)
        for peer in peers:
            peer.agent.stop()
        await close_all(*[peer.lab for peer in peers])

    async def kill(peer: LivePeer, peers: list[LivePeer]) -> None:
        peers.remove(peer)
        await peer.die()

    run(test())
