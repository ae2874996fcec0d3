"""A process that was late blames nobody: the time in which it was awake, and who counts by it."""

from __future__ import annotations

import asyncio
import gc
import socket
import time

import pytest
from net_lab import LabNode, Note, free_port, lab_grid, run, until

from sureline.overlay.kademlia import Kademlia, key_of
from sureline.world.address import Node, at
from sureline.world.awake import REMEMBERED_S, AwakeTime
from sureline.world.net.codec import Codec
from sureline.world.net.dialler import Dialler
from sureline.world.net.limits import Limits
from sureline.world.net.opening import Greeter, Wish
from sureline.world.simulated.simulation import Simulation


class Clock:
    def __init__(self) -> None:
        self.time_s = 100.0

    def __call__(self) -> float:
        return self.time_s


@pytest.fixture
def clock() -> Clock:
    return Clock()


def test_a_delay_counts_once_however_many_timers_waited(clock):
    awake = AwakeTime(clock)
    clock.time_s = 130.0
    for due_s in (101.0, 103.0, 129.9):
        awake.fired(due_s)
    assert awake() == pytest.approx(
        100.75
    )  # from half a second before the first, but for a quarter


def test_a_timer_that_comes_in_time_is_no_delay(clock):
    awake = AwakeTime(clock)
    clock.time_s = 130.0
    awake.fired(129.99)
    assert awake() == 130.0
    assert awake.lag_s == 0.0


def test_who_is_always_late_gives_up_in_the_end(clock):
    awake = AwakeTime(clock)
    for _ in range(1000):
        due_s = clock.time_s + 0.01
        clock.time_s += 0.2
        awake.fired(due_s)
    assert 40.0 <= awake() - 100.0 <= 60.0  # of 200 s


def test_a_delay_is_forgotten_after_a_while(clock):
    awake = AwakeTime(clock)
    clock.time_s = 104.0
    awake.fired(101.0)
    assert awake.lag_s == pytest.approx(3.0)
    clock.time_s += REMEMBERED_S / 2
    assert awake.lag_s == pytest.approx(1.5)
    clock.time_s += REMEMBERED_S
    assert awake.lag_s == 0.0


def test_who_stood_still_waits_for_the_answer_that_came_meanwhile():
    """The answer comes while the process stands still, after the time for it was over."""

    async def main() -> None:
        loop = asyncio.get_running_loop()
        awake, answer = AwakeTime(loop.time), loop.create_future()
        waiting = asyncio.ensure_future(awake.within(0.3, answer))
        await asyncio.sleep(0)
        time.sleep(0.8)  # noqa: ASYNC251 - this is the process that stands still
        await asyncio.sleep(0)
        answer.set_result("here")
        assert await waiting == "here"
        with pytest.raises(TimeoutError):
            await awake.within(0.05, loop.create_future())

    asyncio.run(main())


def test_a_question_does_not_fail_by_a_process_that_stood_still():
    """Frozen before the answer is there, for longer than any answer may take."""
    sim = Simulation(seed=1)
    nodes = [Node(f"n{number}") for number in range(2)]
    made = []
    for node in nodes:
        me = at(node, "kademlia")
        agent = Kademlia(me, sim.place(me))
        sim.join(agent)
        agent.join([at(nodes[0], "kademlia")], lambda known: None)
        made.append(agent)
    sim.run(until=5.0)
    stored: list[int] = []
    made[1].store(key_of("content"), b"value", stored.append)
    sim.freeze(nodes[1])
    sim.run(until=60.0)
    sim.thaw(nodes[1])
    sim.run(until=65.0)
    assert stored == [2]
    assert len(made[1].base.table) == 1
    assert not made[1].base.table.lost


def test_a_call_that_nobody_waits_for_any_more_fails_without_a_word():
    grid = lab_grid()
    complaints: list[dict[str, object]] = []

    async def main() -> None:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda loop, context: complaints.append(context))
        greeter = Greeter(grid.credentials("a"), Codec([]))
        dialler = Dialler(loop, greeter, Limits(), AwakeTime(loop.time))
        opening, outcome = dialler.begin(Node("b@127.0.0.1:1"), lambda o, h: None, Wish())
        opening.lost("the connection broke")
        assert outcome.done()
        del opening, outcome
        gc.collect()
        await asyncio.sleep(0)

    run(main())
    assert complaints == []


def test_silence_is_not_told_as_absence_and_a_refusal_is():
    grid = lab_grid()

    async def main() -> None:
        silent = socket.create_server(("127.0.0.1", 0))  # the system takes calls, nobody answers
        port = silent.getsockname()[1]
        limits = Limits(handshake_s=0.2)
        a = await LabNode.start(grid.credentials("a"), limits=limits)
        a.say(f"b@127.0.0.1:{port}", Note(1))
        await until(lambda: a.transport.counts.undelivered == 1)
        assert a.gone == []
        free = free_port()
        a.say(f"c@127.0.0.1:{free}", Note(1))
        await until(lambda: a.gone == [f"c@127.0.0.1:{free}"])
        silent.close()

    run(main())


def test_who_is_behind_calls_few_at_a_time():
    grid = lab_grid()

    async def main() -> None:
        loop = asyncio.get_running_loop()
        awake = AwakeTime(loop.time)
        limits = Limits(dials_max=8, dials_behind_max=2)
        dialler = Dialler(loop, Greeter(grid.credentials("a"), Codec([])), limits, awake)
        calls, most, go_on = 0, 0, asyncio.Event()

        async def call() -> None:
            nonlocal calls, most
            calls += 1
            most = max(most, calls)
            await go_on.wait()
            calls -= 1

        awake.fired(loop.time() - 5.0)
        for _ in range(20):
            dialler.soon(call)
        await asyncio.sleep(0)
        go_on.set()
        await until(lambda: calls == 0)
        assert most == 2

    run(main())
