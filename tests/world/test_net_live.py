"""The live world on a network: what the contract of worlds does not say of it."""

from __future__ import annotations

import asyncio

from net_lab import Note, free_port, lab_grid, run, until

from sureline.world.address import at
from sureline.world.agent import Agent, handles
from sureline.world.live import MAIL_MAX, LiveWorld
from sureline.world.net.codec import Codec
from sureline.world.net.limits import Limits
from sureline.world.net.transport import Transport
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


async def world_of(name: str, limits: Limits | None = None) -> LiveWorld:
    loop = asyncio.get_running_loop()
    transport = await Transport.listen(
        loop, "127.0.0.1", 0, GRID.credentials(name), Codec([Note]), limits=limits
    )

    def crash(error):
        raise error

    return LiveWorld(
        loop, None, None, None, on_crash=crash, transport=transport, node=transport.node
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
