"""Those who must not get far, over real sockets: refused or slowed down, one line in the log, and
everybody else is served."""

from __future__ import annotations

import asyncio
import os
import ssl
from contextlib import asynccontextmanager
from random import Random

import msgspec
import pytest
from net_lab import LabNode, Note, Order, lab_grid, run, until

from sureline.world.address import endpoint_of
from sureline.world.net.codec import VERSION, Codec, Hello
from sureline.world.net.limits import Limits
from sureline.world.protocol import Unreachable

GRID = lab_grid()
CODEC = Codec([Note, Order])
GONE = (OSError, asyncio.IncompleteReadError)
"""What a bad actor sees when it is cut off; ssl.SSLError is an OSError."""


class Raw:
    """A connection of one's own making to a node."""

    def __init__(self, reader, writer, node):
        self.reader, self.writer, self.node = reader, writer, node

    async def greet(self, name="mallory", *, to=None, grid="lab"):
        own = f"{name}@127.0.0.1:1"
        hello = Hello(VERSION, grid, own, to or endpoint_of(self.node).name)
        self.writer.write(CODEC.encode("", "", hello))
        return await self.read()

    async def read(self):
        size = int.from_bytes(await self.reader.readexactly(4), "big")
        return CODEC.decode(await self.reader.readexactly(size))[2]

    async def until_cut(self):
        """Read until the other side ends it, which must be soon."""
        async with asyncio.timeout(10):
            try:
                while await self.reader.read(1 << 16):
                    pass
            except GONE:
                pass


@asynccontextmanager
async def raw(node, context=None):
    """Connect to a node, over TLS if there is a context."""
    where = endpoint_of(node)
    reader, writer = await asyncio.open_connection(where.host, where.port, ssl=context)
    try:
        yield Raw(reader, writer, node)
    finally:
        writer.transport.abort()
        try:
            await writer.wait_closed()
        except GONE:
            pass


def mallory(**options) -> ssl.SSLContext:
    return GRID.credentials("mallory", **options).client_context()


async def served(*nodes: LabNode) -> None:
    """Honest nodes talk, both ways."""
    a, b = nodes
    before = len(a.heard), len(b.heard)
    a.say(b, Note(1))
    b.say(a, Note(2))
    await until(lambda: (len(a.heard), len(b.heard)) > before and len(b.heard) > before[1])


async def honest(limits=None, **options):
    a = await LabNode.start(GRID.credentials("a"), limits=limits, **options)
    b = await LabNode.start(GRID.credentials("b"), limits=limits)
    await served(a, b)
    return a, b


def lines(caplog, text: str) -> int:
    return sum(text in record.getMessage() for record in caplog.records)


def test_without_a_certificate_nobody_gets_in(caplog):
    async def test():
        a, b = await honest()
        for _ in range(3):
            async with raw(a.node, GRID.anonymous()) as stranger:
                stranger.writer.write(CODEC.encode("", "", Hello(VERSION, "lab", "x@h:1", "a")))
                await stranger.until_cut()
        assert a.transport.stats().refused == 3
        await served(a, b)

    run(test())
    assert lines(caplog, "it has no certificate") == 1


@pytest.mark.parametrize("bad", ["other grid", "expired"])
def test_a_certificate_of_another_grid_or_time_is_refused_both_ways(caplog, bad):
    async def test():
        a, b = await honest()
        if bad == "expired":
            credentials = GRID.credentials("m", valid_s=-60.0)
        else:
            credentials = lab_grid("other").credentials("m")
        m = await LabNode.start(credentials)
        m.say(a, Note(1))
        a.say(m, Note(2))
        await until(lambda: m.gone == [a.node] and a.gone == [m.node])
        assert m.heard == [] and len(a.heard) == 1
        careless = credentials.client_context()
        careless.verify_mode = ssl.CERT_NONE
        async with raw(a.node, careless) as other:
            await other.until_cut()
        await served(a, b)

    run(test())
    assert lines(caplog, "its certificate is refused") >= 2  # by the callee and by the caller


def test_a_revoked_peer_is_cut_off_and_refused_and_learns_why(caplog):
    async def test():
        lab = lab_grid("with revocations")
        limits = Limits(sweep_s=0.05)
        a = await LabNode.start(lab.credentials("a"), limits=limits)
        b = await LabNode.start(lab.credentials("b"), limits=limits)
        m = await LabNode.start(lab.credentials("m"))
        m.say(a, Note(1))
        a.say(b, Note(1))
        await until(lambda: len(a.transport.peers()) == 2)
        lab.revoked["m"] = "peer m has been revoked"
        await until(lambda: len(a.transport.peers()) == 1)
        m.say(a, Note(2))
        await until(lambda: a.node in m.gone)
        a.say(m, Note(3))
        await until(lambda: m.node in a.gone)
        assert a.numbers == [1] and m.heard == []
        b.say(a, Note(4))
        await until(lambda: a.numbers == [1, 4])

    run(test())
    assert lines(caplog, "was cut: peer m has been revoked") == 1
    assert lines(caplog, "at 127.0.0.1 was not let in: peer m has been revoked") == 1
    assert lines(caplog, "it refuses us: peer m has been revoked") == 1


def test_what_needs_a_role_is_dropped_from_those_who_lack_it(caplog):
    async def test():
        a, b = await honest()
        m = await LabNode.start(GRID.credentials("m", roles={"run"}))
        for number in range(50):
            m.say(a, Order(number))
        m.say(a, Note(99))
        b.say(a, Order(7))
        await until(lambda: {99, 7} <= set(a.numbers))
        assert sum(isinstance(message, Order) for _, _, message in a.heard) == 1
        assert a.transport.stats().without_role == 50

    run(test())
    assert lines(caplog, "without the role 'submit'") == 1


def test_nobody_speaks_under_another_name(caplog):
    async def test():
        a, b = await honest()
        for name in ("b", "malloryx", "mallory-", "", "mallory+1/x"):
            async with raw(a.node, mallory()) as peer:
                answer = await peer.greet(name)
                assert "calls itself" in answer.reason or "where it listens" in answer.reason
                await peer.until_cut()
        for name in ("mallory", "mallory+7"):
            async with raw(a.node, mallory()) as peer:
                assert isinstance(await peer.greet(name), Hello)
        async with raw(a.node, mallory()) as peer:
            assert "'b', who is not here" in (await peer.greet(to="b")).reason
        async with raw(a.node, mallory()) as peer:
            assert "of grid 'else'" in (await peer.greet(grid="else")).reason
        await served(a, b)

    run(test())
    assert lines(caplog, "mallory calls itself 'b'") == 1


def test_whoever_answers_in_place_of_the_one_called_gets_no_message(caplog):
    async def test():
        a, _ = await honest()
        m = await LabNode.start(GRID.credentials("mallory"))
        called = m.node.replace("mallory@", "victim@")
        a.say(called, Note(1))
        await until(lambda: a.gone == [called])
        also = m.node.replace("mallory@", "mallory+2@")  # the same peer, another process
        a.say(also, Note(2))
        await until(lambda: a.gone == [called, also])
        assert m.heard == []

    run(test())
    assert lines(caplog, "mallory answers there") == 1


@pytest.mark.parametrize(
    "data",
    [
        b"\xff\xff\xff\xff" + bytes(100),
        Random(3).randbytes(1 << 18),
        b"\0\0\0\0",
        b"\0\0\0\x01\xc1",
        CODEC.encode("", "", Hello(VERSION, "lab", "mallory@h:1", "a")),
    ],
    ids=["4 GiB", "random", "empty", "one byte", "second greeting"],
)
@pytest.mark.parametrize("greeted", [True, False])
def test_bad_frames_end_the_connection(caplog, data, greeted):
    if not greeted and len(data) < 4096:
        data = b"\0\0\x10\x01" + data  # what stands in place of a greeting

    async def test():
        a, b = await honest()
        async with raw(a.node, mallory()) as peer:
            if greeted:
                await peer.greet()
            peer.writer.write(data)
            await peer.until_cut()
        await until(lambda: len(a.transport.peers()) == 1)
        await served(a, b)

    run(test())
    assert lines(caplog, "bad frame") == 1


def test_what_the_world_says_itself_is_not_taken_from_the_network(caplog):
    async def test():
        a, b = await honest()
        async with raw(a.node, mallory()) as peer:
            await peer.greet()
            body = msgspec.msgpack.encode(("x", "ear", Unreachable("b@h:1")))
            peer.writer.write(len(body).to_bytes(4, "big") + body)
            await peer.until_cut()
        assert all(isinstance(message, Note) for _, _, message in a.heard)
        await served(a, b)

    run(test())
    assert lines(caplog, "bad frame") == 1


def test_random_bytes_instead_of_tls_are_refused(caplog):
    async def test():
        a, b = await honest()
        random = Random(4)
        for size in (1, 5, 1000, 100_000):
            async with raw(a.node) as peer:
                peer.writer.write(b"\x16\x03\x01\x02\x00" * (size > 5) + random.randbytes(size))
                if size > 5:
                    await peer.until_cut()
        await until(lambda: a.transport.stats().half_open == 0)
        await served(a, b)

    run(test())
    assert lines(caplog, "was not let in") >= 1


def test_hundreds_of_half_open_connections_keep_nobody_out(caplog):
    async def test():
        limits = Limits(half_open_max=64, half_open_per_address_max=48, handshake_s=1.0)
        a, b = await honest(limits)
        where = endpoint_of(a.node)
        standing = []
        for number in range(300):
            _, writer = await asyncio.open_connection(where.host, where.port)
            if number % 3 == 0:
                writer.write(b"\x16\x03\x01\x02\x00\x01")  # the start of a handshake
            standing.append(writer)
            assert a.transport.stats().half_open <= 48
            if number % 50 == 0:
                c = await LabNode.start(GRID.credentials("c"), name_suffix=str(number))
                await served(a, c)
                await served(a, b)
        assert a.transport.stats().half_open > 0
        d = await LabNode.start(GRID.credentials("d"))
        await served(d, a)
        await until(lambda: a.transport.stats().half_open == 0)
        assert a.gone == b.gone == d.gone == []
        for writer in standing:
            writer.transport.abort()
        await asyncio.gather(*(w.wait_closed() for w in standing), return_exceptions=True)

    run(test())
    assert lines(caplog, "a connection from 127.0.0.1 was cut") == 1


def test_a_frame_that_never_ends_is_not_waited_for(caplog):
    async def test():
        a, b = await honest(Limits(frame_s=0.1, sweep_s=0.02))
        async with raw(a.node, mallory()) as peer:
            await peer.greet()
            peer.writer.write(b"\0\0\x10\0")
            async with asyncio.timeout(10):
                try:
                    while not peer.reader.at_eof():
                        peer.writer.write(b"x")
                        await peer.writer.drain()
                        await peer.reader.read(1) if peer.writer.is_closing() else None
                        await asyncio.sleep(0.01)
                except GONE:
                    pass
        await served(a, b)

    run(test())
    assert lines(caplog, "a frame took longer than 0.1 s") == 1


def resident_bytes() -> int:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def test_a_peer_that_sends_too_fast_is_slowed_down_and_the_others_are_served(caplog):
    async def test():
        limits = Limits(messages_per_s=500.0, messages_burst=200.0)
        a, b = await honest(limits)
        flood = bytes(CODEC.encode("m", "ear", Note(5, "x" * 2000))) * 50
        sent = 0

        async def attack(peer):
            nonlocal sent
            while True:
                peer.writer.write(flood)
                await peer.writer.drain()
                sent += len(flood)

        async with raw(a.node, mallory()) as peer:
            await peer.greet()
            before = resident_bytes()
            began = asyncio.get_running_loop().time()
            attacking = asyncio.ensure_future(attack(peer))
            await until(lambda: lines(caplog, "slowed down"))
            for _ in range(100):
                await served(a, b)
            passed_s = asyncio.get_running_loop().time() - began
            took = sum(sender.startswith("mallory") for sender, _, _ in a.heard)
            record_messages = (16 << 10) // 2000 + 1
            assert 0 < took <= 200 + 500 * passed_s + record_messages
            assert not attacking.done()
            # All that was sent beyond what was taken lies in buffers of the system and of TLS.
            assert sent - took * 2000 < 16 << 20
            assert resident_bytes() - before < 48 << 20
            attacking.cancel()

    run(test())
    assert lines(caplog, "slowed down") == 1


async def wait_for_ever(request, address):
    await asyncio.Event().wait()


def test_a_stranger_has_one_question_and_little_time(caplog):
    async def answer(question, address):
        if question == b"nonsense":
            raise ValueError("nonsense")
        return b"you said " + question + b" from " + address.encode()

    async def ask(node, question, announced=None):
        async with raw(node, GRID.anonymous()) as stranger:
            size = len(question) if announced is None else announced
            stranger.writer.write(size.to_bytes(4, "big") + question)
            async with asyncio.timeout(10):
                return await stranger.reader.read(-1)

    async def test():
        limits = Limits(stranger_s=0.3, stranger_bytes_max=1000)
        a, b = await honest(limits, on_stranger=answer)
        answered = await ask(a.node, b"hello")
        assert answered[4:] == b"you said hello from 127.0.0.1"
        assert answered[:4] == len(answered[4:]).to_bytes(4, "big")
        for question, announced in [(b"nonsense", 8), (b"", 2000), (b"half", 900)]:
            try:
                assert await ask(a.node, question, announced) == b""
            except GONE:
                pass
        await served(a, b)

    run(test())
    assert lines(caplog, "who wants to join") == 1


def test_few_strangers_are_served_at_once():
    async def test():
        limits = Limits(strangers_max=2, stranger_s=30.0)
        a, b = await honest(limits, on_stranger=wait_for_ever)
        async with raw(a.node, GRID.anonymous()) as one, raw(a.node, GRID.anonymous()) as two:
            one.writer.write(b"\0\0\0\1x")
            two.writer.write(b"\0\0\0\1x")
            await until(lambda: len(a.transport._strangers._present) == 2)
            async with raw(a.node, GRID.anonymous()) as three:
                await three.until_cut()
            await served(a, b)

    run(test())
