"""What waits for the network is bounded: for one node, for all together, and in bulk."""

from __future__ import annotations

import asyncio

import pytest
from net_lab import LabNode, close_all, lab_grid, run, until

from sureline.world.net.bulk_wire import BulkError
from sureline.world.net.limits import Limits
from sureline.world.net.route import Route, UndeliveredCounts

GRID = lab_grid()
FRAME = bytearray(100)


class Owner:
    """A node that never gets through to anybody."""

    node = "me@here:1"
    leaving = False

    def __init__(self, loop, limits):
        self.loop = loop
        self.limits = limits
        self.counts = UndeliveredCounts()

    def dial(self, route):
        route.dialling = True

    def unreachable(self, node):
        raise AssertionError("nobody said so")


@pytest.mark.parametrize(
    ("limits", "nodes", "waiting"),
    [
        (Limits(queue_messages_max=7), 3, [7, 7, 7]),
        (Limits(queue_bytes_max=450), 3, [4, 4, 4]),
        (Limits(queue_bytes_total_max=1000), 3, [10, 0, 0]),
        (Limits(queue_messages_max=4, queue_bytes_total_max=1000), 3, [4, 4, 2]),
    ],
)
def test_what_waits_for_nodes_that_do_not_answer_is_bounded(limits, nodes, waiting):
    loop = asyncio.new_event_loop()
    owner = Owner(loop, limits)
    routes = [Route(owner, f"n{number}@there:1") for number in range(nodes)]
    for route in routes:
        for _ in range(50):
            route.send(FRAME)
    assert [route.waiting for route in routes] == waiting
    assert owner.counts.overflowed == 50 * nodes - sum(waiting)
    assert owner.counts.queued_bytes == 100 * sum(waiting)
    routes[0].forget_queue()
    routes[0].send(FRAME)
    assert routes[0].waiting == 1, "when there is room again, it is used"
    loop.close()


def test_bulk_requests_that_wait_for_a_connection_are_bounded():
    async def test():
        limits = Limits(bulk_connections_per_node=1, bulk_pipeline=2, bulk_waiting_max=3)
        gate = asyncio.Event()
        asked = []

        async def handler(identity, request):
            asked.append(request)
            await gate.wait()
            return b"", request

        asking = await LabNode.start(GRID.credentials("asking"), limits=limits)
        source = await LabNode.start(GRID.credentials("source"), bulk=handler)
        ask = asking.transport.ask_bulk
        first = asyncio.ensure_future(ask(source.node, b"0"))
        await until(lambda: asked)
        more = [asyncio.ensure_future(ask(source.node, b"%d" % n)) for n in range(1, 20)]
        await until(lambda: sum(one.done() for one in more) == 19 - 1 - 3)
        for refused in (one for one in more if one.done()):
            with pytest.raises(BulkError, match="too many"):
                refused.result()
        gate.set()
        answers = await asyncio.gather(first, *(one for one in more if not one.done()))
        assert [bytes(body) for _, body in answers] == [b"0", b"1", b"2", b"3", b"4"]
        await close_all(asking, source)

    run(test())
