"""How the word spreads that somebody is out: in the simulator, and over real sockets."""

from __future__ import annotations

import asyncio

import pytest
from grids import admit, new_grid
from net_lab import Note, until

from sureline.overlay import news as news_module
from sureline.overlay.membership.agent import Membership
from sureline.overlay.membership.messages import Offer
from sureline.overlay.news import News, NewsAsk, NewsList, NewsTold
from sureline.world.identity import certificates
from sureline.world.identity.credentials import Credentials
from sureline.world.identity.revocations import RevocationList, Revoked
from sureline.world.live import LiveWorld
from sureline.world.net.codec import Codec
from sureline.world.net.limits import Limits
from sureline.world.net.transport import NetTransport
from sureline.world.simulated import LAN, Link, Network, Simulation

KEY, AUTHORITY = certificates.new_authority("lab")


def listed(version: int, *names: str) -> RevocationList:
    entries = [Revoked(name, (name.encode().hex(),), 1e10) for name in names]
    return RevocationList.sign(version, entries, KEY)


def verified(signed: bytes) -> RevocationList | None:
    try:
        return RevocationList.verified(signed, AUTHORITY)
    except Exception:
        return None


class Grid:
    """Simulated nodes that have news; with `members`, also a membership that carries versions."""

    def __init__(self, count: int, *, members: bool = False, seed: int = 1, link: Link = LAN):
        self.sim = Simulation(seed=seed, network=Network(link))
        self.nodes = [f"n{number}" for number in range(count)]
        self.news: dict[str, News] = {}
        self.heard: dict[str, list[int]] = {node: [] for node in self.nodes}
        self.members = members
        for node in self.nodes:
            self.sim.boot(node, lambda node=node: self.start(node))

    def start(self, node: str) -> None:
        membership = None
        if self.members:
            offer = Offer(cores=1, memory_bytes=1)
            me = f"{node}/membership"
            membership = Membership(me, self.sim.place(me), offer)
            membership.join([] if node == "n0" else ["n0"], lambda found: None)
            self.sim.join(membership)

        def on_new(found: RevocationList) -> None:
            self.heard[node].append(found.version)
            if membership is not None:
                membership.news = found.version

        neighbours = () if self.members else self.nodes
        world = self.sim.place(f"{node}/news")
        agent = News(f"{node}/news", world, verified, on_new, neighbours=lambda: neighbours)
        if membership is not None:
            membership.on_news = agent.heard_of
            membership.news = agent.version
        self.sim.join(agent)
        self.news[node] = agent

    def versions(self) -> list[int]:
        return [self.news[node].version for node in self.nodes]

    def run(self, until_s: float) -> None:
        self.sim.run(until=until_s)


def test_everybody_hears_within_seconds_by_the_probes_of_the_membership():
    grid = Grid(64, members=True)
    grid.run(20)
    assert grid.news["n7"].publish(listed(1, "bad"))
    grid.run(35)
    assert grid.versions() == [1] * 64
    assert all(heard == [1] for heard in grid.heard.values())


def test_telling_a_few_others_reaches_nearly_all_at_once():
    grid = Grid(300)
    grid.news["n7"].publish(listed(1, "bad"))
    grid.run(2)
    assert sum(grid.versions()) > 285
    sent = sum(traffic.sent for traffic in grid.sim.counters.by_type().values())
    assert sent <= 300 * (news_module.TOLD + 2)


def test_what_was_heard_survives_a_crash():
    grid = Grid(3)
    grid.news["n0"].publish(listed(1, "bad"))
    grid.run(5)
    assert grid.versions() == [1, 1, 1]
    grid.sim.crash("n1")
    grid.sim.restart("n1")
    grid.run(6)
    assert grid.news["n1"].version == 1
    assert grid.heard["n1"] == [1, 1]  # told anew, for connections that would open anew


def test_a_lost_answer_is_asked_for_again():
    grid = Grid(2, link=Link(loss=0.5))
    grid.news["n0"].publish(listed(1, "bad"))
    for second in range(1, 60):
        grid.sim.at(second, lambda: grid.news["n1"].heard_of(1, "n0"))
    grid.run(60)
    assert grid.versions() == [1, 1]


class Lone:
    """One agent, and a world in which the test speaks for all others."""

    def __init__(self) -> None:
        self.sim = Simulation(seed=3)
        self.sent: list[tuple[str, object]] = []
        self.world = self.sim.place("me/news")
        self.heard: list[int] = []
        self.agent = News("me/news", self.world, verified, self.hear)
        self.sim.join(self.agent)
        real = self.agent.world.send

        class Noting:
            def __getattr__(inner, name):  # noqa: N805 - the other self is in use
                return getattr(self.world, name)

            def send(inner, to, message):  # noqa: N805
                self.sent.append((to, message))
                real(to, message)

        self.agent.world = Noting()

    def hear(self, new: RevocationList) -> None:
        self.heard.append(new.version)

    def asked(self) -> list[str]:
        return [to for to, message in self.sent if isinstance(message, NewsAsk)]


@pytest.mark.parametrize(
    "signed",
    [
        b"junk",
        b"",
        RevocationList.sign(9, [Revoked("me", ("1",), 1e10)], certificates.new_key()).signed,
        listed(1, "old").signed,
    ],
    ids=["junk", "empty", "of another grid", "older"],
)
def test_a_forged_or_older_list_changes_nothing_and_is_not_asked_for_again(signed):
    lone = Lone()
    lone.agent.publish(listed(2, "bad"))
    lone.agent.heard_of(9, "liar")
    assert lone.asked() == ["liar/news"]
    lone.agent.receive("liar/news", NewsList(signed))
    assert lone.agent.version == 2 and lone.agent.revocations.names == {"bad"}
    assert lone.heard == [2]
    for _ in range(10):
        lone.agent.heard_of(9, "liar")
    assert lone.asked() == ["liar/news"]
    lone.agent.heard_of(3, "honest")
    lone.agent.receive("honest/news", NewsList(listed(3, "bad", "worse").signed))
    assert lone.agent.version == 3


def test_a_list_nobody_asked_for_is_not_even_looked_at():
    lone = Lone()
    lone.agent.receive("x/news", NewsList(listed(5, "bad").signed))
    assert lone.agent.version == 0


def test_liars_do_not_keep_the_truth_away():
    lone = Lone()
    for number in range(200):
        lone.agent.heard_of(10**9, f"liar{number}")
    for second in range(1, 120, 2):
        lone.sim.at(second, lambda: lone.agent.heard_of(1, "honest"))

    def answer() -> None:
        if lone.asked() and lone.asked()[-1] == "honest/news":
            lone.agent.receive("honest/news", NewsList(listed(1, "bad").signed))

    for half in range(1, 240):
        lone.sim.at(half / 2, answer)
    lone.sim.run(until=120)
    assert lone.agent.version == 1
    assert len(lone.agent._claims) <= news_module.CLAIMS_MAX


def test_a_long_list_is_not_sent_as_often_as_one_asks():
    lone = Lone()
    lone.agent.publish(listed(1, "bad"))
    for _ in range(1000):
        lone.agent.receive("greedy/news", NewsAsk(0))
    lone.agent.receive("other/news", NewsAsk(0))
    lone.agent.receive("other/news", NewsAsk(1))
    lists = [to for to, message in lone.sent if isinstance(message, NewsList)]
    assert lists == ["greedy/news", "other/news"]


class Peer:
    """A node over real sockets, with nothing but news."""

    async def start(self, credentials: Credentials, known: list[str]) -> Peer:
        loop = asyncio.get_running_loop()
        self.credentials = credentials
        codec = Codec([NewsTold, NewsAsk, NewsList, Note])
        self.transport = await NetTransport.listen(
            loop, "127.0.0.1", 0, credentials, codec, limits=Limits(close_s=0.2)
        )
        self.crashes: list[BaseException] = []
        self.node = self.transport.node
        nowhere = Nowhere()
        self.world = LiveWorld(
            loop,
            nowhere,
            nowhere,
            nowhere,
            on_crash=self.crashes.append,
            transport=self.transport,
            node=self.node,
        )
        known.append(self.node)
        self.news = News(
            f"{self.node}/news",
            self.world.place(f"{self.node}/news"),
            credentials.verified,
            self.on_new,
            known=credentials.revocations,
            neighbours=lambda: known,
        )
        self.world.join(self.news)
        return self

    def on_new(self, found: RevocationList) -> None:
        self.credentials.adopt(found)
        for name in sorted(found.names):
            self.transport.drop(name)

    def greet(self, other: Peer) -> None:
        self.transport.send(f"{other.node}/x", f"{self.node}/x", Note(1))

    def links(self) -> set[str]:
        return {link.identity.name for link in self.transport.peers()}


class Nowhere:
    """Stands for the parts of a live world that news does not use, but for its store."""

    def __init__(self) -> None:
        self.kept: dict[str, bytes] = {}

    def put(self, key, value) -> None:
        self.kept[key] = value

    def get(self, key):
        return self.kept.get(key)

    def sync(self, on_durable) -> None:
        on_durable()


def test_a_revoked_peer_is_cut_off_everywhere_and_stays_out_after_restarts(tmp_path):
    authority = new_grid(tmp_path / "issuer")
    homes = {name: admit(authority, tmp_path / name, name) for name in ("a", "b", "bad")}

    async def work() -> None:
        known: list[str] = []
        issuer = await Peer().start(Credentials.load(authority.home), known)
        a, b, bad = [await Peer().start(homes[name], known) for name in ("a", "b", "bad")]
        peers = [issuer, a, b, bad]
        for peer in (issuer, a, b):
            bad.greet(peer)
        await until(lambda: all("bad" in peer.links() for peer in (issuer, a, b)))

        authority.revoke("bad")  # as another process of that home would
        found = issuer.credentials.reload()
        assert issuer.news.publish(found)
        await until(lambda: all(peer.news.version == 1 for peer in (a, b)))
        await until(lambda: all("bad" not in peer.links() for peer in (issuer, a, b)))
        await a.transport.close()

        restarted = await Peer().start(Credentials.load(a.credentials.home), known)
        peers.append(restarted)
        refused = restarted.transport.stats().refused
        bad.greet(restarted)
        await until(lambda: restarted.transport.stats().refused > refused)
        assert restarted.links() == set()
        b.greet(restarted)
        await until(lambda: restarted.links() == {"b"})
        for peer in peers:
            await peer.transport.close()
            assert not peer.crashes

    asyncio.run(work())
