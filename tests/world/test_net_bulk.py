"""Bulk data over connections of its own."""

from __future__ import annotations

import asyncio

import pytest
from net_lab import LabNode, Note, close_all, free_port, lab_grid, run, until

from sureline.world.net.bulk_wire import BulkError, BulkLostError, BulkRefusedError
from sureline.world.net.interfaces import FileRegion
from sureline.world.net.limits import Limits

GRID = lab_grid()


async def pair(handler, **options):
    asking = await LabNode.start(GRID.credentials("asking"), **options)
    source = await LabNode.start(GRID.credentials("source"), bulk=handler, **options)
    return asking.transport, source


async def echo(identity, request):
    return b"to " + identity.name.encode(), request


@pytest.mark.parametrize("stdlib_loop", [False, True], ids=["uvloop", "stdlib"])
def test_many_requests_at_once_each_get_their_own_answer(stdlib_loop):
    async def test():
        ask, source = await pair(echo)
        requests = [f"request {number}".encode() * number for number in range(100)]
        answers = await asyncio.gather(*(ask.ask_bulk(source.node, r) for r in requests))
        assert [header for header, _ in answers] == [b"to asking"] * 100
        assert [bytes(body) for _, body in answers] == requests
        served = source.transport._bulk_server
        assert len(served) == Limits().bulk_connections_per_node

    run(test(), stdlib_loop=stdlib_loop)


@pytest.mark.parametrize("nowait", [True, False], ids=["cached", "by a thread"])
def test_parts_of_a_file_arrive_in_the_buffer_that_was_given(tmp_path, monkeypatch, nowait):
    if not nowait:
        monkeypatch.setattr("sureline.world.net.bulk_server._NOWAIT", 0)
    data = bytes(range(256)) * 40_000
    path = tmp_path / "file"
    path.write_bytes(data)

    async def read(identity, request):
        start, size = map(int, request.split())
        return b"", FileRegion(str(path), start, size)

    async def test():
        ask, source = await pair(read)
        buffer = bytearray(4 << 20)
        for start, size in [(0, 4 << 20), (5, 1), (1_000_001, 3_000_000), (7, 0)]:
            _, body = await ask.ask_bulk(source.node, b"%d %d" % (start, size), buffer)
            assert body == data[start : start + size]
            assert bytes(buffer[:size]) == data[start : start + size]
        with pytest.raises(BulkLostError):  # the file is shorter: the answer cannot be completed
            await ask.ask_bulk(source.node, b"%d %d" % (len(data) - 10, 1000))
        _, body = await ask.ask_bulk(source.node, b"0 10")
        assert body == data[:10]

    run(test())


def test_refusals_and_failures_reach_the_one_who_asks(caplog):
    async def handler(identity, request):
        if request == b"secret":
            raise BulkRefusedError("that is not for you")
        if request == b"bug":
            raise KeyError("a bug")
        return b"", bytes(5 << 20) if request == b"too long" else b"fine"

    async def test():
        ask, source = await pair(handler)
        with pytest.raises(BulkRefusedError, match="that is not for you"):
            await ask.ask_bulk(source.node, b"secret")
        for request in (b"bug", b"too long"):
            with pytest.raises(BulkRefusedError, match="it failed there"):
                await ask.ask_bulk(source.node, request)
        assert (await ask.ask_bulk(source.node, b"other"))[1] == b"fine"
        with pytest.raises(ValueError, match="at most 65536 bytes"):
            await ask.ask_bulk(source.node, bytes(70_000))
        with pytest.raises(BulkError, match="cannot be reached"):
            await ask.ask_bulk(f"source@127.0.0.1:{free_port()}", b"")

    run(test())
    assert "KeyError('a bug')" in caplog.text


def test_an_answer_that_does_not_fit_the_buffer_is_an_error():
    async def test():
        ask, source = await pair(echo)
        with pytest.raises(BulkError, match="does not fit the buffer"):
            await ask.ask_bulk(source.node, b"12345", bytearray(4))
        assert (await ask.ask_bulk(source.node, b"1234", bytearray(4)))[1] == b"1234"

    run(test())


def test_a_source_that_dies_or_leaves_is_noticed_by_those_who_wait():
    async def never(identity, request):
        await asyncio.Event().wait()

    async def test():
        ask, source = await pair(never)
        asking = [asyncio.ensure_future(ask.ask_bulk(source.node, b"x")) for _ in range(12)]
        await until(lambda: len(source.transport._bulk_server) == 2)
        await close_all(source)
        for result in await asyncio.gather(*asking, return_exceptions=True):
            assert isinstance(result, BulkError)

    run(test())


def test_a_warm_connection_that_was_closed_meanwhile_costs_only_a_new_one():
    async def test():
        ask, source = await pair(echo)
        await ask.ask_bulk(source.node, b"1")
        for _, stream in source.transport._bulk_server.streams():
            stream.abort("test")
        assert (await ask.ask_bulk(source.node, b"2"))[1] == b"2"

    run(test())


def test_who_gives_up_gets_his_buffer_back():
    release = asyncio.Event()

    async def slow(identity, request):
        if request == b"slow":
            await release.wait()
        return b"", b"S" * 100_000

    async def test():
        ask, source = await pair(slow, limits=Limits(bulk_connections_per_node=1))
        buffer = bytearray(100_000)
        given_up = asyncio.ensure_future(ask.ask_bulk(source.node, b"slow", buffer))
        await until(lambda: len(source.transport._bulk_server))
        given_up.cancel()
        with pytest.raises(asyncio.CancelledError):
            await given_up
        release.set()
        assert (await ask.ask_bulk(source.node, b"next"))[1] == b"S" * 100_000
        assert buffer == bytes(100_000)

    run(test())


def test_connections_are_bounded_and_idle_ones_make_room():
    async def test():
        limits = Limits(bulk_connections_max=3, bulk_idle_s=0.2, sweep_s=0.05)
        asking = await LabNode.start(GRID.credentials("asking"), limits=limits)
        ask = asking.transport
        sources = [
            await LabNode.start(GRID.credentials("s"), name_suffix=str(number), bulk=echo)
            for number in range(6)
        ]
        for _ in range(2):
            asked = [ask.ask_bulk(source.node, b"x" * 1000) for source in sources * 3]
            assert all(bytes(body) == b"x" * 1000 for _, body in await asyncio.gather(*asked))
            assert len(ask._bulk_client) <= 3
        await until(lambda: len(ask._bulk_client) == 0)

    run(test())


def test_messages_flow_beside_bulk_data():
    async def big(identity, request):
        return b"", bytes(4 << 20)

    async def test():
        a = await LabNode.start(GRID.credentials("a"))
        b = await LabNode.start(GRID.credentials("b"), bulk=big)
        asked = [asyncio.ensure_future(a.transport.ask_bulk(b.node, b"")) for _ in range(8)]
        for number in range(20):
            a.say(b, Note(number))
            await until(lambda number=number: len(b.heard) == number + 1)
        assert sum(len(body) for _, body in await asyncio.gather(*asked)) == 8 * (4 << 20)

    run(test())


def test_a_dropped_peer_gets_no_bulk_data_either():
    async def test():
        ask, source = await pair(echo)
        await ask.ask_bulk(source.node, b"1")
        source.transport.drop("asking")
        await until(lambda: len(source.transport._bulk_server) == 0)
        with pytest.raises(BulkError, match="refused"):
            await ask.ask_bulk(source.node, b"2")

    run(test())
