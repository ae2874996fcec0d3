"""Nodes that talk over real TLS on loopback."""

from __future__ import annotations

import asyncio
from collections import Counter
from random import Random

import pytest
from net_lab import TYPES, LabNode, Note, close_all, free_port, lab_grid, run, until

from sureline.world.address import node_of
from sureline.world.net.codec import Codec
from sureline.world.net.limits import Limits
from sureline.world.net.transport import RARELY, NetTransport
from sureline.world.protocol import Message

GRID = lab_grid()


async def pair(**options):
    a = await LabNode.start(GRID.credentials("a"), **options)
    b = await LabNode.start(GRID.credentials("b"), **options)
    return a, b


@pytest.mark.parametrize("stdlib_loop", [False, True], ids=["uvloop", "stdlib"])
def test_messages_both_ways_in_order_over_one_connection(stdlib_loop):
    async def test():
        a, b = await pair()
        a.say(b, Note(0))
        await until(lambda: b.heard)
        assert b.heard == [(f"{a.node}/mouth", f"{b.node}/ear", Note(0))]
        for number in range(1, 3000):
            a.say(b, Note(number))
            b.say(a, Note(number))
        await until(lambda: len(b.heard) == 3000 and len(a.heard) == 2999)
        assert b.numbers == list(range(3000))
        assert a.numbers == list(range(1, 3000))
        assert [peer.node for peer in a.transport.peers()] == [b.node]
        assert [peer.identity.name for peer in b.transport.peers()] == ["a"]
        assert a.transport.stats().sent == {"test.note": 3000}
        assert a.transport.stats().received == {"test.note": 2999}
        await close_all(a, b)
        assert a.transport.stats().bytes_out == b.transport.stats().bytes_in

    run(test(), stdlib_loop=stdlib_loop)


def test_two_nodes_that_call_each_other_at_once_keep_one_connection_and_the_order():
    async def test():
        for _ in range(5):
            a, b = await pair()
            for number in range(400):
                a.say(b, Note(number))
                b.say(a, Note(number))
                if number % 40 == 0:
                    await asyncio.sleep(0)
            await until(lambda a=a, b=b: len(a.heard) == len(b.heard) == 400)
            await until(lambda a=a, b=b: len(a.transport.peers()) == 1 == len(b.transport.peers()))
            assert a.numbers == b.numbers == list(range(400))
            assert a.gone == b.gone == []
            await close_all(a, b)

    run(test())


def test_large_messages_wait_for_a_slow_reader_and_none_is_lost():
    async def test():
        a, b = await pair(limits=Limits(queue_bytes_max=64 << 20))
        b.transport.hold()
        for number in range(60):
            a.say(b, Note(number, "x" * 500_000))
        await until(lambda: any(link.stream.writing_paused for link in a.transport._links))
        assert b.heard == []
        # What waits, waits with the sender: the connection has taken only what its buffers hold.
        assert a.transport.stats().queued_bytes > 10_000_000
        b.transport.release()
        await until(lambda: len(b.heard) == 60)
        assert b.numbers == list(range(60))
        assert a.transport.stats().overflowed == 0
        await close_all(a, b)

    run(test())


def test_what_does_not_fit_the_queue_is_dropped_and_counted():
    async def test():
        a, b = await pair(limits=Limits(queue_messages_max=100, queue_bytes_max=1 << 20))
        for number in range(150):
            a.say(b, Note(number))
        await until(lambda: len(b.heard) == 100)
        assert b.numbers == list(range(100))
        assert a.transport.stats().overflowed == 50
        b.transport.hold()
        for number in range(20):
            a.say(b, Note(number, "x" * 200_000))
        assert a.transport.stats().overflowed > 50
        assert a.transport.stats().queued_bytes <= 1 << 20
        b.transport.release()
        await close_all(a, b)

    run(test())


def test_a_message_that_fits_no_frame_is_dropped_and_said(caplog):
    async def test():
        a, b = await pair()
        a.say(b, Note(1, "x" * (2 << 20)))
        a.say(b, Note(2))
        await until(lambda: b.numbers == [2])
        assert a.transport.stats().overflowed == 1
        await close_all(a, b)

    run(test())
    assert "a frame holds 1048576" in caplog.text


def test_a_message_of_an_unknown_kind_is_dropped_with_a_line_and_the_talk_goes_on(caplog):
    """As of a strategy that only one of the two has installed."""

    class Strange(Message, frozen=True, tag="test.strange"):
        words: tuple[str, ...] = ()

    async def test():
        a = await LabNode.start(GRID.credentials("a"), codec=Codec([*TYPES, Strange]))
        b = await LabNode.start(GRID.credentials("b"))
        a.say(b, Note(0))
        a.say(b, Strange(("x",)))
        a.say(b, Strange())
        a.say(b, Note(1))
        await until(lambda: len(b.heard) == 2)
        assert b.numbers == [0, 1]
        assert [peer.node for peer in a.transport.peers()] == [b.node], "the link was not cut"
        await close_all(a, b)

    run(test())
    said = [record.message for record in caplog.records if "not known here" in record.message]
    assert len(said) == 1 and "test.strange" in said[0]


def test_a_node_at_which_nobody_listens_is_unreachable_at_once():
    async def test():
        a = await LabNode.start(GRID.credentials("a"))
        nobody = f"b@127.0.0.1:{free_port()}"
        a.say(nobody, Note(1))
        a.say(nobody, Note(2))
        await until(lambda: a.gone, timeout_s=2.0)
        assert a.gone == [nobody]
        a.say(nobody, Note(3))
        await until(lambda: len(a.gone) == 2, timeout_s=2.0)
        assert a.transport.stats().undelivered == 3
        a.say("not on any network@nowhere", Note(4))
        await until(lambda: len(a.gone) == 3)
        await close_all(a)

    run(test())


def test_a_crash_is_noticed_by_the_closed_connection_without_sending():
    async def test():
        a, b = await pair()
        a.say(b, Note(1))
        await until(lambda: b.heard)
        b.transport._server.close()
        b.transport.leaving = True  # a dead process calls nobody
        for link in list(b.transport._links):
            link.stream._tcp.abort()  # as the system does for a dead process
        await until(lambda: a.gone == [b.node], timeout_s=3.0)
        await close_all(a, b)

    run(test())


def test_a_broken_connection_to_a_living_node_is_opened_again():
    async def test():
        a, b = await pair()
        a.say(b, Note(1))
        await until(lambda: b.heard)
        before = set(a.transport._links)
        for link in list(b.transport._links):
            link.stream._tcp.abort()
        await until(lambda: set(a.transport._links) - before)
        a.say(b, Note(2))
        await until(lambda: b.numbers == [1, 2])
        assert a.gone == b.gone == []
        await close_all(a, b)

    run(test())


def test_a_node_that_starts_again_at_its_address_is_reached_again():
    async def test():
        a, b = await pair()
        a.say(b, Note(1))
        await until(lambda: b.heard)
        port = int(b.node.rpartition(":")[2])
        await close_all(b)
        await until(lambda: a.gone == [b.node])
        again = await LabNode.start(GRID.credentials("b"), port=port)
        number = 1
        while not again.heard:
            number += 1
            a.say(again, Note(number))
            await asyncio.sleep(0.01)
        assert again.node == b.node
        assert again.heard[0][0] == f"{a.node}/mouth"
        await close_all(a, again)

    run(test())


def test_only_the_most_recently_used_connections_stay_open_and_nothing_is_lost():
    async def test():
        limits = Limits(busy_s=0.0, sweep_s=0.05, warm_links=16)
        hub = await LabNode.start(GRID.credentials("hub"), limits=limits)
        others = [
            await LabNode.start(GRID.credentials("peer"), name_suffix=str(number))
            for number in range(24)
        ]
        for number, other in enumerate(others):
            hub.say(other, Note(number))
            await until(lambda other=other: other.heard)
        await until(lambda: len(hub.transport.peers()) == 16)
        warm = {peer.node for peer in hub.transport.peers()}
        assert warm == {other.node for other in others[8:]}
        await until(lambda: not others[0].transport.peers())
        for _ in range(3):
            for number, other in enumerate(others):
                hub.say(other, Note(100 + number))
                other.say(hub, Note(number))
        await until(lambda: all(len(other.heard) == 4 for other in others))
        await until(lambda: len(hub.heard) == 3 * len(others))
        await until(lambda: len(hub.transport.peers()) <= 16)
        assert hub.gone == []
        assert all(other.gone == [] for other in others)
        await close_all(hub, *others)

    run(test())


def test_what_was_sent_before_an_orderly_end_arrives_and_the_others_are_told():
    async def test():
        a, b = await pair()
        c = await LabNode.start(GRID.credentials("c"))
        a.say(b, Note(0))
        await until(lambda: b.heard)
        for number in range(1, 2000):
            a.say(b, Note(number, "x" * 1000))
            a.say(c, Note(number))  # there is no connection yet
        await a.transport.close()
        await until(lambda: len(b.heard) == 2000 and len(c.heard) == 1999)
        assert b.numbers == list(range(2000))
        await until(lambda: b.gone == [a.node] == c.gone)
        assert a.transport.stats().undelivered == 0
        a.say(b, Note(7))
        assert a.transport.stats().undelivered == 1
        await close_all(b, c)

    run(test())


def test_a_node_known_by_another_address_is_the_same_node():
    async def test():
        a = await LabNode.start(GRID.credentials("a"))
        b = await LabNode.start(GRID.credentials("b"), advertise="localhost")
        port = b.node.rpartition(":")[2]
        assert b.node == f"b@localhost:{port}"
        for number in range(3):
            a.say(f"b@127.0.0.1:{port}", Note(number))
        await until(lambda: len(b.heard) == 3)
        a.say(b.node, Note(3))
        b.say(a, Note(4))
        a.say(f"b@127.0.0.1:{port}", Note(5))
        await until(lambda: len(b.heard) == 5 and len(a.heard) == 1)
        assert b.numbers == [0, 1, 2, 3, 5]
        assert [peer.node for peer in a.transport.peers()] == [b.node]
        await close_all(b)
        await until(lambda: sorted(a.gone) == [f"b@127.0.0.1:{port}", b.node])
        await close_all(a)

    run(test())


def test_listening_everywhere_needs_an_address_for_the_others():
    async def test():
        loop = asyncio.get_running_loop()
        with pytest.raises(ValueError, match="needs a host to advertise"):
            await NetTransport.listen(loop, "0.0.0.0", 0, GRID.credentials("a"), Codec(TYPES))

    run(test())


def test_a_dropped_peer_is_cut_off_and_not_called_again():
    async def test():
        a, b = await pair()
        a.say(b, Note(1))
        await until(lambda: b.heard)
        a.transport.drop("b")
        await until(lambda: not a.transport.peers())
        await until(lambda: b.node in a.gone)
        b.say(a, Note(2))
        await until(lambda: a.node in b.gone)
        a.say(b, Note(3))
        await until(lambda: a.transport.stats().undelivered == 1)
        assert a.heard == []
        assert b.numbers == [1]
        await close_all(a, b)

    run(test())


def test_whoever_opened_a_connection_closes_it_unless_there_are_too_many_of_all():
    async def hub_of(others: list[LabNode], **limits) -> LabNode:
        quick = Limits(busy_s=0.0, sweep_s=0.01, warm_links=2, **limits)
        hub = await LabNode.start(GRID.credentials("hub"), limits=quick)
        for number, other in enumerate(others):
            other.say(hub, Note(number))
            await until(lambda number=number: len(hub.heard) == number + 1)
        sweeps = hub.transport._sweeps
        await until(lambda: hub.transport._sweeps > sweeps + 2 * RARELY)
        return hub

    async def test():
        others = [
            await LabNode.start(GRID.credentials("peer"), name_suffix=str(number))
            for number in range(10)
        ]
        hub = await hub_of(others[:6])
        for other in others[6:]:
            hub.say(other, Note(2))
        await until(lambda: all(other.heard for other in others[6:]))
        await until(lambda: len(hub.transport.peers()) == 8)
        assert {peer.node for peer in hub.transport.peers()} >= {o.node for o in others[:6]}
        await close_all(hub)
        hub = await hub_of(others, links_max=8)
        await until(lambda: len(hub.transport.peers()) <= 8)
        await close_all(hub, *others)

    run(test())


def test_while_connections_come_and_go_nothing_is_lost_or_overtaken():
    async def test():
        random = Random(5)
        limits = Limits(warm_links=3, links_max=6, busy_s=0.0, sweep_s=0.05)
        credentials = GRID.credentials("p")
        nodes = [
            await LabNode.start(credentials, name_suffix=str(number), limits=limits)
            for number in range(10)
        ]
        sent: Counter[tuple[str, str]] = Counter()

        async def talk(speaker: LabNode) -> None:
            for _ in range(20):
                other = random.choice([node for node in nodes if node is not speaker])
                for _ in range(random.randrange(1, 4)):
                    speaker.say(other, Note(sent[speaker.node, other.node]))
                    sent[speaker.node, other.node] += 1
                await asyncio.sleep(random.random() * 0.02)

        await asyncio.gather(*(talk(node) for node in nodes))
        await until(lambda: sum(len(node.heard) for node in nodes) == sent.total())
        heard: dict[tuple[str, str], list[int]] = {}
        for node in nodes:
            for sender, _, message in node.heard:
                heard.setdefault((node_of(sender), node.node), []).append(message.number)
            assert node.gone == []
        assert heard == {pair: list(range(count)) for pair, count in sent.items()}

    run(test())
