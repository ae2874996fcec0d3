"""Membership over real TLS on loopback: the same agents, another world."""

from __future__ import annotations

import asyncio

from net_lab import LabNode, close_all, lab_grid, run, until

from sureline.overlay.membership import MESSAGES, Membership, MembershipSettings, Offer
from sureline.world.address import name_of
from sureline.world.live import LiveWorld
from sureline.world.net.codec import Codec

GRID = lab_grid()
COUNT = 20
SETTINGS = MembershipSettings(probe_s=0.5, detect_s=3.0)


class LivePeer:
    """A transport, a live world on it, and a membership agent in that."""

    @classmethod
    async def start(cls, name, contacts=(), *, observer=False) -> LivePeer:
        self = cls()
        lab = await LabNode.start(GRID.credentials(name), codec=Codec(MESSAGES))
        self.lab = lab
        self.crashes: list[BaseException] = []
        self.world = LiveWorld(
            asyncio.get_running_loop(),
            None,
            None,
            None,
            on_crash=self.crashes.append,
            transport=lab.transport,
            node=lab.node,
        )
        me = f"{lab.node}/membership"
        offer = None if observer else Offer(2.0, 1 << 30)
        self.agent = Membership(me, self.world.place(me), offer, SETTINGS)
        self.world.join(self.agent)
        self.joined: list[int] = []
        self.agent.join(contacts, self.joined.append)
        return self

    def states(self) -> dict[str, str]:
        return {name: member.state for name, member in self.agent.members().items()}

    async def die(self) -> None:
        """As a killed process does: its sockets close, and not a word."""
        self.agent.stop()
        self.lab.transport._server.close()
        for link in list(self.lab.transport._links):
            link.stream._tcp.abort()
        await self.lab.transport.close()

    def stand_still(self) -> None:
        """As a stopped process does: the system still accepts, nobody reads or answers."""
        self.agent.stop()
        self.lab.transport.hold()


def test_live_peers_notice_who_dies_who_stops_and_who_leaves():
    async def test() -> None:
        first = await LivePeer.start("p0")
        peers = [first]
        for number in range(1, COUNT):
            peers.append(await LivePeer.start(f"p{number}", [first.lab.node]))
        eye = await LivePeer.start("eye", [peers[1].lab.node], observer=True)
        everybody = {f"p{number}": "alive" for number in range(COUNT)}
        await until(lambda: all(peer.states() == everybody for peer in [*peers, eye]))

        dead, stopped, leaver = peers[1], peers[2], peers[3]
        rest = [peer for peer in peers if peer not in (dead, stopped, leaver)]
        await dead.die()
        await until(lambda: all(peer.states()["p1"] == "dead" for peer in rest))
        stopped.stand_still()
        await until(lambda: all(peer.states()["p2"] == "dead" for peer in rest))
        left: list[bool] = []
        leaver.agent.leave(lambda: left.append(True))
        await until(lambda: left and all(peer.states()["p3"] == "left" for peer in rest))
        rest[0].agent.report(1.5, 2)
        await until(lambda: all(p.agent.members()["p0"].load == 1.5 for p in [*rest, eye]))
        wanted = everybody | {"p1": "dead", "p2": "dead", "p3": "left"}
        await until(lambda: all(peer.states() == wanted for peer in [*rest, eye]))

        again = await LivePeer.start("p1", [rest[1].lab.node])
        wanted["p1"] = "alive"
        await until(lambda: all(peer.states() == wanted for peer in [*rest, eye]))
        alive = {name: state for name, state in wanted.items() if state == "alive"}
        await until(lambda: again.states() == alive)  # of who went before it nobody tells it
        assert rest[0].agent.members()["p1"].node == again.lab.node != dead.lab.node
        assert name_of(again.lab.node) == "p1"
        for peer in [*peers, again, eye]:
            assert peer.crashes == []
            peer.agent.stop()
        stopped.lab.transport.release()
        await close_all(*(peer.lab for peer in [*peers, again, eye]))

    run(test())
