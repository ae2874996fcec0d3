"""Nodes that cannot be dialled: found out, reached through others, and gone over to a direct way.

A node that says it listens at 127.0.0.2, and does not, is one behind a firewall: it can dial, and
nobody can dial it.
"""

from __future__ import annotations

import asyncio
import contextlib

import pytest
from net_lab import LabNode, Note, close_all, lab_grid, run, until

from sureline.compose.ways_there import WayThere, ways_to
from sureline.world.net import reaching
from sureline.world.net import relay as relaying
from sureline.world.net.bulk_wire import BulkError
from sureline.world.net.control import DialBack, DialledBack, Moored, Pong, Summons, Through, Unmoor
from sureline.world.net.dialler import DialError
from sureline.world.net.limits import Limits
from sureline.world.net.opening import Wish
from sureline.world.net.ways import rendezvous

GRID = lab_grid()
BEHIND = "127.0.0.2"
QUICK = Limits(
    sweep_s=0.02,
    go_over_s=0.05,
    moor_s=0.1,
    moored_s=1.0,
    dial_back_s=0.5,
    ping_s=0.1,
    silent_s=0.4,
    connect_s=0.5,
    circuit_open_s=1.0,
)
BODY = bytes(range(256)) * 4096


class Town:
    """What everybody knows of everybody, as the membership would have it."""

    def __init__(self) -> None:
        self.nodes: list[LabNode] = []

    async def start(self, name, dialled="always", directory=None, carries=True, **options):
        options.setdefault("limits", QUICK)

        async def answer(identity, request):
            return identity.name.encode(), BODY[: int(request)]

        node = await LabNode.start(GRID.credentials(name), bulk=answer, **options)
        self.nodes.append(node)
        node.berths = []
        node.transport.reach(
            directory or _View(self, node),
            node.berths.append,
            dialled=dialled,
            carries=carries,
        )
        return node

    async def behind(self, name, **options):
        """One that can only dial out, when it is within reach."""
        options.setdefault("dialled", "never")
        node = await self.start(name, advertise=BEHIND, **options)
        await until(lambda: node.transport.berth.relays)
        return node


class _View:
    def __init__(self, town: Town, me: LabNode) -> None:
        self._town = town
        self._me = me

    def relays_of(self, node):
        found = [other for other in self._town.nodes if other.node == node]
        return found[0].transport.berth.relays if found else ()

    def may_be_there(self, node):
        return any(other.node == node for other in self._town.nodes)

    def can_be_dialled(self):
        return [
            other.node
            for other in self._town.nodes
            if other is not self._me and BEHIND not in other.node
        ]


class Ignorant(_View):
    """Knows who is there, and of nobody through whom."""

    def relays_of(self, node):
        return ()


def through(node: LabNode, other: LabNode) -> list[str]:
    """Who carries the links between two."""
    return [link.through for link in node.transport.peers() if link.node == other.node]


@pytest.mark.parametrize("stdlib_loop", [False, True], ids=["uvloop", "stdlib"])
def test_a_node_that_nobody_can_dial_finds_out_and_is_reached_through_others(stdlib_loop):
    async def test():
        town = Town()
        relays = [await town.start(f"r{number}") for number in range(2)]
        x = await town.behind("x", dialled="auto")
        y = await town.behind("y")
        assert x.transport.berth.can_be_dialled is False
        assert "refused" in x.transport.berth.why_not.lower()
        await until(lambda: len(x.transport.berth.relays) == len(y.transport.berth.relays) == 2)
        for number in range(500):
            y.say(x, Note(number, "x" * 1000))
            x.say(y, Note(number))
        await until(lambda: len(x.heard) == len(y.heard) == 500)
        assert x.numbers == y.numbers == list(range(500))
        assert x.heard[0][0] == f"{y.node}/mouth", "it is the end that speaks, not the relay"
        await until(lambda: len(through(y, x)) == 1)  # of two, if both called
        assert through(y, x)[0] in x.transport.berth.relays
        assert x.gone == y.gone == []
        header, body = await y.transport.ask_bulk(x.node, b"1000000")
        assert (header, bytes(body)) == (b"y", BODY[:1000000])
        carried = sum(relay.transport.stats().carried_bytes for relay in relays)
        assert carried > 1_500_000 and not any(relay.heard for relay in relays)
        await close_all(*town.nodes)

    run(test(), stdlib_loop=stdlib_loop)


def test_one_that_can_be_dialled_finds_that_out_too():
    async def test():
        town = Town()
        await town.start("a")
        b = await town.start("b", dialled="auto")
        await until(lambda: b.transport.berth.can_be_dialled)
        assert b.transport.berth.relays == ()

    run(test())


def test_who_has_no_time_to_dial_back_says_so_and_nobody_waits_for_it(monkeypatch):
    async def test():
        town = Town()
        await town.start("busy")
        monkeypatch.setattr(reaching, "ERRANDS_MAX", 0)
        x = await town.start("x", dialled="auto", advertise=BEHIND)
        await until(lambda: x.transport.settled, timeout_s=4.0)
        assert x.transport.berth.can_be_dialled is None, "nobody knows"
        monkeypatch.setattr(reaching, "ERRANDS_MAX", 64)
        await until(lambda: x.transport.berth.relays)
        await close_all(*town.nodes)

    run(test())


def test_other_addresses_of_a_machine_are_tried():
    async def test():
        town = Town()
        await town.start("r")
        x = await town.behind("x", dialled="auto")
        assert await x.transport.dialled_at(["127.0.0.3", "127.0.0.1", "127.0.0.4"]) == "127.0.0.1"
        assert await x.transport.dialled_at(["127.0.0.3"]) == ""
        assert await x.transport.dialled_at(["not a host", "/etc"]) == ""
        await close_all(*town.nodes)

    run(test())


def test_where_there_is_a_direct_way_it_is_found_and_gone_over_to_in_order():
    """The one behind the firewall can dial the other, who cannot dial it: the first words go
    through a relay, the rest does not."""

    async def test():
        town = Town()
        relays = [await town.start(f"r{number}") for number in range(3)]
        x = await town.behind("x")
        await until(lambda: len(x.transport.berth.relays) == 3)
        a = await town.start("a")
        number = 0
        carriers = set()
        while through(a, x) != [""]:
            a.say(x, Note(number))
            number += 1
            carriers.update(through(a, x))
            await asyncio.sleep(0.001)
        await until(lambda: len(x.heard) == number)
        assert x.numbers == list(range(number)), "nothing is lost or overtaken on the way over"
        assert carriers & {relay.node for relay in relays}, "a relay carried the first"
        before = sum(relay.transport.stats().carried_bytes for relay in relays)
        _, body = await a.transport.ask_bulk(x.node, b"900000")
        assert bytes(body) == BODY[:900000]
        after = sum(relay.transport.stats().carried_bytes for relay in relays)
        assert after - before < 1000, "files come over a connection that x has opened"
        await close_all(*town.nodes)

    run(test())


def test_a_firewall_that_is_opened_is_noticed():
    async def test():
        town = Town()
        r = await town.start("r")
        x = await town.start("x", dialled="auto", advertise=BEHIND)
        await until(lambda: x.transport.berth.relays == (r.node,))
        port = int(x.node.rpartition(":")[2])
        opened = await asyncio.get_running_loop().create_server(x.transport._accept, BEHIND, port)
        await until(lambda: x.transport.berth.can_be_dialled and not x.transport.berth.relays)
        opened.close()
        await close_all(*town.nodes)

    run(test())


def test_when_a_relay_dies_another_is_warm():
    async def test():
        town = Town()
        relays = {node.node: node for node in [await town.start(f"r{n}") for n in range(3)]}
        x = await town.behind("x")
        y = await town.behind("y")
        await until(lambda: len(x.transport.berth.relays) == 3)
        y.say(x, Note(0))
        await until(lambda: x.heard)
        [carrier] = through(y, x)
        dead = relays[carrier]
        town.nodes.remove(dead)
        dead.transport._server.close()
        for link in list(dead.transport._links):
            link.stream._tcp.abort()
        for circuit in list(dead.transport._reaching.relay._circuits):
            circuit.cut()
        await until(lambda: through(y, x) and through(y, x) != [carrier])
        y.say(x, Note(1))
        await until(lambda: x.numbers == [0, 1])
        await until(lambda: carrier not in x.transport.berth.relays)
        assert x.node not in y.gone
        await close_all(*town.nodes)

    run(test())


def test_a_partial_partition_is_gone_round_through_a_third():
    """Only a and p are cut from each other; p has no relays, and all others reach it."""

    async def test():
        town = Town()
        a = await town.start("a")
        p = await town.start("p")
        await town.start("t")
        dial = a.transport._dialler._connect

        async def nobody():
            raise ConnectionRefusedError("cut")

        a.transport._dialler._connect = lambda node, opening: (
            nobody() if node == p.node else dial(node, opening)
        )
        number = 0
        while not p.heard:
            a.say(p, Note(number))
            number += 1
            await asyncio.sleep(0.01)
        assert a.gone, "the first refusal is told at once: it may be a crash"
        assert through(a, p) == [town.nodes[2].node]
        await close_all(*town.nodes)

    run(test())


def test_who_was_not_told_guesses_the_relay():
    """As of a process that is no member, whose address came from somebody else."""

    async def test():
        town = Town()
        for number in range(8):
            await town.start(f"r{number}")
        x = await town.behind("x")
        await until(lambda: len(x.transport.berth.relays) == 3)
        others = [node.node for node in town.nodes if node is not x]
        assert set(x.transport.berth.relays) == set(rendezvous(x.node, others, 3))
        a = await town.start("a", directory=Ignorant(town, x))
        for _ in range(100):
            a.say(x, Note(1))
            await asyncio.sleep(0.01)
            if x.heard:
                break
        await until(lambda: x.heard)
        await close_all(*town.nodes)

    run(test())


def test_what_cannot_be_reached_is_said_with_every_way_that_was_tried():
    async def test():
        town = Town()
        r = await town.start("r")
        x = await town.behind("x")
        a = await town.start("a")
        await x.transport.close()
        with pytest.raises(DialError) as failure:
            await a.transport.way_to(x.node)
        assert "directly: " in str(failure.value) and "through r: " in str(failure.value)
        assert "cannot be reached from here" in str(failure.value)
        a.say(x, Note(1))
        await until(lambda: a.gone == [x.node])
        assert r.transport.stats().circuits == 0
        await close_all(a, r)

    run(test())


def test_how_each_is_reached_is_said_for_all_at_once():
    async def test():
        town = Town()
        r = await town.start("r")
        x, y, gone = [await town.behind(name) for name in ("x", "y", "gone")]
        silent = await asyncio.get_running_loop().create_server(asyncio.Protocol, "127.0.0.1", 0)
        mute = f"mute@127.0.0.1:{silent.sockets[0].getsockname()[1]}"
        await gone.transport.close()
        asked = [r.node, y.node, gone.node, mute]
        found = await ways_to(x.transport, asked, look_s=3.0)
        assert found[r.node] == WayThere("direct")
        assert found[y.node] == WayThere("through", "r")
        assert (
            found[gone.node].reached == "not at all" and "through r: " in found[gone.node].why_not
        )
        assert found[mute] == WayThere("not at all", why_not="no answer within 3 s")
        silent.close()
        await close_all(r, x, y)

    run(test())


def test_one_peer_cannot_take_all_errands_of_another():
    async def test():
        town = Town()
        r, a, b = await town.start("r"), await town.start("a"), await town.start("b")
        hung: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        async def hang(node, opening):
            await hung

        r.transport._dialler._connect = hang
        for node in (a, b):
            await node.transport.way_to(r.node)
        for number in range(1000):
            a.transport.say_to(r.node, Summons(f"ticket {number}"))
        b.transport.say_to(r.node, Summons("honest"))
        errands = r.transport._reaching._errands
        await until(lambda: errands["b"] == 1)
        assert errands["a"] == 16
        hung.cancel()
        await close_all(*town.nodes)

    run(test())


# Relays that do not do what they say.


class Malice(relaying._End):
    """One end of a circuit as a bad relay would have it."""

    how = "drop"
    kept = b""

    def data_received(self, data):
        data = bytes(data)
        match self.how:
            case "drop":
                return
            case "corrupt":
                data = data[:-1] + bytes([data[-1] ^ 1])
            case "replay":
                data = data + data
            case "reorder":
                half = len(data) // 2
                data = data[half:] + data[:half]
            case "truncate":
                data = data[: len(data) // 2]
        super().data_received(data)


@pytest.mark.parametrize("how", ["drop", "corrupt", "replay", "reorder", "truncate"])
def test_a_bad_relay_is_left_for_another_and_nothing_false_arrives(monkeypatch, how):
    """It behaves until the ends talk, then no more; messages and files still arrive, whole."""

    async def test():
        town = Town()
        good, bad = await town.start("good"), await town.start("bad")
        x = await town.behind("x")
        y = await town.behind("y")
        await until(lambda: len(x.transport.berth.relays) == 2)
        spoiled = 0
        honest = relaying.Circuit.__init__

        def carry(circuit, relay, owner, peers, ends):
            honest(circuit, relay, owner, peers, ends)
            if owner is bad.transport:
                nonlocal spoiled
                spoiled += 1
                for tcp, other in (ends, ends[::-1]):
                    evil = Malice(circuit, other)
                    evil.how = how
                    tcp.set_protocol(evil)

        monkeypatch.setattr(relaying.Circuit, "__init__", carry)
        y.transport._reaching.ways.failed(good.node)  # so that the bad one is tried first
        number = 0
        while not x.heard:
            y.say(x, Note(number, "true"))
            number += 1
            await asyncio.sleep(0.02)
        _, body = await y.transport.ask_bulk(x.node, b"500000")
        assert bytes(body) == BODY[:500000]
        assert spoiled, "the bad relay had its chance"
        assert through(y, x) == [good.node]
        assert {message.text for _, _, message in x.heard} == {"true"}
        assert x.numbers == sorted(set(x.numbers)), "nothing twice, nothing overtaken"
        await close_all(*town.nodes)

    run(test())


def test_a_relay_that_falls_silent_on_an_open_link_is_left(monkeypatch):
    async def test():
        town = Town()
        relays = {node.node: node for node in [await town.start(f"r{n}") for n in range(2)]}
        x = await town.behind("x")
        y = await town.behind("y")
        await until(lambda: len(x.transport.berth.relays) == 2)
        y.say(x, Note(0))
        await until(lambda: x.heard)
        [carrier] = through(y, x)
        for circuit in relays[carrier].transport._reaching.relay._circuits:
            for tcp, other in (circuit._ends, circuit._ends[::-1]):
                tcp.set_protocol(Malice(circuit, other))
        number = 0
        while through(y, x) in ([carrier], []):
            number += 1
            y.say(x, Note(number))
            await asyncio.sleep(0.05)
        y.say(x, Note(10**6))
        await until(lambda: 10**6 in x.numbers)
        await close_all(*town.nodes)

    run(test())


def test_a_relay_cannot_pass_for_the_one_who_is_called():
    """It answers itself, instead of carrying."""

    async def test():
        town = Town()
        r = await town.start("r")
        x = await town.behind("x")
        a = await town.behind("a")

        def answer_itself(opening, hello):
            opening.welcome(hello.bulk)
            tcp, arrived = opening.stream.detach()
            r.transport.accepting("").stream.attach(tcp, arrived)

        r.transport._reaching.relay.asked = answer_itself
        with pytest.raises(DialError, match="r answers there"):
            await a.transport.way_to(x.node)
        with pytest.raises(BulkError):
            await a.transport.ask_bulk(x.node, b"10")
        assert a.heard == r.heard == []
        await close_all(*town.nodes)

    run(test())


# A relay is no open proxy.


def test_what_a_relay_carries_is_bounded():
    async def test():
        town = Town()
        r = await town.start("r", limits=QUICK._replace(circuits_max=3, circuits_per_peer_max=2))
        x = await town.behind("x")
        callers = [await town.behind(f"y{number}") for number in range(4)]
        for caller in callers[:3]:
            await caller.transport.way_to(x.node)
        assert r.transport.stats().circuits == 3
        with pytest.raises(DialError, match="carries at most 3 connections"):
            await callers[3].transport.way_to(x.node)
        with pytest.raises(BulkError, match="carries at most 3 connections"):
            await callers[0].transport.ask_bulk(x.node, b"1")
        for circuit in r.transport._reaching.relay._circuits:
            circuit.used_at -= 60.0
        await callers[3].transport.way_to(x.node)
        assert r.transport.stats().circuits == 3, "the idle one gave way"
        await close_all(*town.nodes)

    run(test())


def test_a_slow_reader_holds_the_sender_back_through_a_relay():
    async def test():
        town = Town()
        r = await town.start("r")
        limits = QUICK._replace(queue_bytes_max=64 << 20, silent_s=60.0)
        x = await town.behind("x", limits=limits)
        y = await town.behind("y", limits=limits)
        y.say(x, Note(0))
        await until(lambda: x.heard)
        x.transport.hold()
        for number in range(1, 61):
            y.say(x, Note(number, "x" * 500_000))
        await until(lambda: any(link.stream.writing_paused for link in y.transport._links))
        await asyncio.sleep(0.1)
        kept = sum(
            tcp.get_write_buffer_size()
            for circuit in r.transport._reaching.relay._circuits
            for tcp in circuit._ends
        )
        assert kept < 1 << 20
        assert y.transport.stats().queued_bytes > 5_000_000
        x.transport.release()
        await until(lambda: len(x.heard) == 61)
        assert x.numbers == list(range(61))
        await close_all(*town.nodes)

    run(test())


def test_who_carries_nothing_says_so_and_another_is_found():
    async def test():
        town = Town()
        await town.start("no", carries=False)
        yes = await town.start("yes")
        x = await town.behind("x")
        assert x.transport.berth.relays == (yes.node,)
        y = await town.behind("y")
        assert await y.transport.way_to(x.node) == yes.node
        await close_all(*town.nodes)

    run(test())


def test_a_revoked_peer_is_neither_carried_nor_carried_to():
    async def test():
        town = Town()
        r = await town.start("r")
        x, y = await town.behind("x"), await town.behind("y")
        await y.transport.way_to(x.node)
        r.transport.drop("y")
        await until(lambda: r.transport.stats().circuits == 0 and not y.transport.link_with(x.node))
        with pytest.raises(DialError):
            await y.transport.way_to(x.node)
        await close_all(*town.nodes)

    run(test())


def test_absurd_words_and_greetings_of_an_enrolled_peer_change_nothing():
    async def test():
        town = Town()
        honest, bad = await town.start("honest", dialled="auto"), await town.start("bad")
        await until(lambda: honest.transport.berth.can_be_dialled)
        junk = (
            "",
            "/",
            "x",
            "a@b",
            "a@b:99999",
            "e@127.0.0.1:1/x",
            "e@\x00:1",
            "e" * 2000 + "@h:1",
        )
        words = [
            Through(junk * 100),
            Through(("e@127.0.0.1:1",) * 1000),
            Moored(),
            Moored("no" * 1000),
            Unmoor(),
            Pong(),
            Summons("x" * 10_000),
            *(DialledBack(number, "liar") for number in (-1, 0, 1, 2, 1 << 32, (1 << 64) - 1)),
            *(DialBack(number, host) for number, host in enumerate(junk)),
        ]
        for word in words:
            bad.transport.say_to(honest.node, word)
        for reach in junk:
            for wish in (Wish(False, reach), Wish(True, reach, "ticket"), Wish(ticket="unknown")):
                with contextlib.suppress(DialError):
                    await bad.transport._dialler.once(honest.node, lambda o, h: None, wish)
        assert len(honest.transport._reaching.ways.relays_of(bad.node)) <= 4
        assert honest.transport.stats().circuits == 0
        assert honest.transport.berth.relays == ()
        bad.say(honest, Note(7))
        await until(lambda: honest.numbers == [7])
        await close_all(*town.nodes)

    run(test())
