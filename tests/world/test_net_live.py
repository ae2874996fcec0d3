"""The live world on a network: what the contract of worlds does not say of it."""

from __future__ import annotations

import asyncio

from net_lab import Note, free_port, lab_grid, run, until

from sureline.world.address import at
from sureline.world.agent import Agent, handles
from sureline.world.live import MAIL_MAX, LiveWorld
from sureline.world.net.codec import Codec
from sureline.world.net.limits import Limits
from sureline.world.net.transport import NetTransport
from sureline.world.protocol import Unreachable

GRID = lab_grid()


class Deaf(Agent):
    @handles(Note)
    def note(self, sender, message):
        pass


class Watcher(Agent):
    def __init__(self, me, world):
        super().__init__(me, world)
        self.numbers: list[int] = []
        self.missed: list[tuple[str, str]] = []
        self.mail_peak = 0

    @handles(Note)
    def note(self, sender, message):
        self.numbers.append(message.number)
        self.mail_peak = max(self.mail_peak, len(self.world._live._mail))

    @handles(Unreachable)
    def unreachable(self, sender, message):
        self.missed.append((sender, message.node))


class Touchy(Watcher):
    """Lets an exception out on every odd number; on 99 its recorder fails."""

    @handles(Note)
    def note(self, sender, message):
        if message.number == 99:
            self.world.put("key", b"value")
        if message.number % 2:
            raise ZeroDivisionError(f"number {message.number}")
        self.numbers.append(message.number)


class FullDisk:
    def put(self, key, value):
        raise OSError("no space left")


async def world_of(
    name: str, limits: Limits | None = None, recorder=None, crashes=None
) -> LiveWorld:
    loop = asyncio.get_running_loop()
    transport = await NetTransport.listen(
        loop, "127.0.0.1", 0, GRID.credentials(name), Codec([Note]), limits=limits
    )

    def crash(error):
        if crashes is None:
            raise error
        crashes.append(error)

    return LiveWorld(
        loop, None, None, recorder, on_crash=crash, transport=transport, node=transport.node
    )


def join(world: LiveWorld, kind: type[Agent], part: str) -> Agent:
    me = at(world.node, part)
    agent = kind(me, world.place(me))
    world.join(agent)
    return agent


def test_agents_that_care_hear_of_a_node_that_is_gone_and_the_others_do_not():
    async def test():
        world = await world_of("a")
        first, second = join(world, Watcher, "one"), join(world, Watcher, "two")
        deaf = join(world, Deaf, "deaf")
        gone = f"b@127.0.0.1:{free_port()}"
        deaf.world.send(at(gone, "x"), Note(1))
        assert first.missed == []
        await until(lambda: first.missed and second.missed)
        assert first.missed == [(first.me, gone)]
        assert second.missed == [(second.me, gone)]
        assert deaf.unhandled == 0
        await world.transport.close()

    run(test())


def test_agents_of_one_node_talk_in_memory():
    async def test():
        world = await world_of("a")
        one, two = join(world, Watcher, "one"), join(world, Watcher, "two")
        one.world.send(two.me, Note(1))
        assert two.numbers == []
        await until(lambda: two.numbers == [1])
        assert world.transport.stats().sent == {}
        await world.transport.close()

    run(test())


def test_while_the_agents_are_behind_nothing_is_read_from_the_network():
    async def test():
        fast = Limits(messages_burst=1e9, queue_messages_max=10**6, queue_bytes_max=64 << 20)
        a, b = await world_of("a", fast), await world_of("b", fast)
        sending, slow = join(a, Watcher, "x"), join(b, Watcher, "y")
        for number in range(60_000):
            sending.world.send(slow.me, Note(number))
        await until(lambda: len(slow.numbers) == 60_000)
        assert slow.numbers == list(range(60_000))
        # One record of TLS may still be on its way when the network is told to wait.
        assert MAIL_MAX < slow.mail_peak < MAIL_MAX + 1000
        await a.transport.close()
        await b.transport.close()

    run(test())


def test_a_message_of_another_node_that_a_handler_cannot_take_is_dropped(caplog):
    async def test():
        a, b = await world_of("a"), await world_of("b")
        sending, touchy = join(a, Watcher, "x"), join(b, Touchy, "y")
        for number in range(11):
            sending.world.send(touchy.me, Note(number))
        await until(lambda: touchy.numbers == [0, 2, 4, 6, 8, 10])
        assert b.dropped == 5
        await a.transport.close()
        await b.transport.close()

    with caplog.at_level("DEBUG", "sureline.world"):
        run(test())
    told = [record for record in caplog.records if record.name == "sureline.world"]
    warned = [record for record in told if record.levelname == "WARNING"]
    assert len(warned) == 1 and "a Note from a@" in warned[0].getMessage()
    assert "number 1" in warned[0].getMessage() and warned[0].exc_info is None
    assert sum(record.exc_info is not None for record in told) == 5


def test_what_is_said_on_the_same_node_still_ends_the_world():
    async def test():
        crashes = []
        b = await world_of("b", crashes=crashes)
        touchy = join(b, Touchy, "y")
        touchy.world.send(touchy.me, Note(1))
        await until(lambda: crashes)
        assert b.dropped == 0
        await b.transport.close()

    run(test())


def test_a_recorder_that_fails_ends_the_world_whoever_sent_the_message():
    async def test():
        crashes = []
        a, b = await world_of("a"), await world_of("b", recorder=FullDisk(), crashes=crashes)
        sending, touchy = join(a, Watcher, "x"), join(b, Touchy, "y")
        sending.world.send(touchy.me, Note(99))
        sending.world.send(touchy.me, Note(2))
        await until(lambda: crashes)
        assert [str(error) for error in crashes] == ["no space left"]
        assert touchy.numbers == [] and b.dropped == 0
        await a.transport.close()
        await b.transport.close()

    run(test())
