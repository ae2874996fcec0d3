"""The contract of a world, as the docstring of `world.protocol` states it.

Every world passes these tests; a new one is added to WORLDS.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
import uvloop
from net_lab import lab_grid

from sureline.world.address import at, part_of
from sureline.world.agent import Agent, handles
from sureline.world.live import LiveWorld
from sureline.world.net.codec import Codec
from sureline.world.net.transport import NetTransport
from sureline.world.protocol import Job, JobEvent, Message, Recordable
from sureline.world.simulated import MachineParts, Simulation, SimulationError


class Note(Message, frozen=True, tag="contract.note"):
    number: int


class Other(Message, frozen=True, tag="contract.other"):
    pass


class Event(Recordable, frozen=True):
    number: int


class Listener(Agent):
    def __init__(self, me, world):
        super().__init__(me, world)
        self.heard: list[tuple[str, int]] = []
        self.on_note: Callable[[int], None] = lambda number: None

    @handles(Note)
    def note(self, sender, message):
        self.heard.append((sender, message.number))
        self.on_note(message.number)


class Recorder:
    """Keeps what it is given; durable when the test says so."""

    def __init__(self, loop):
        self.loop = loop
        self.events: list[Event] = []
        self.flushed = 0
        self.kept: dict[str, bytes] = {}

    def record(self, event):
        self.events.append(event)

    def flush(self):
        self.flushed = len(self.events)

    def sync(self, on_durable):
        self.flush()
        self.loop.call_soon(on_durable)

    def put(self, key, value):
        self.kept[key] = value

    def get(self, key):
        return self.kept.get(key)


class Runner:
    def __init__(self):
        self.jobs: list[tuple[Job, Callable[[JobEvent], None]]] = []
        self.stopped: list[tuple[object, bool]] = []

    def start(self, job, on_event, *, after=None):
        self.jobs.append((job, on_event))
        return len(self.jobs) - 1

    def stop(self, handle, *, force=False):
        self.stopped.append((handle, force))


class Fetcher:
    def fetch(self, wanted, sources, on_done):
        raise AssertionError("not used here")


class OneWorld:
    """A lab whose agents live in one world, at addresses of any form."""

    world: LiveWorld | Simulation

    def address(self, name: str) -> str:
        return name

    def world_of(self, me: str) -> LiveWorld | Simulation:
        return self.world


class Live(OneWorld):
    """A live world that a test can run for a while."""

    def __init__(self):
        self.loop = asyncio.new_event_loop()
        self.recorder = Recorder(self.loop)
        self.runner = Runner()
        self.crashes: list[BaseException] = []
        self.world = LiveWorld(
            self.loop, self.runner, Fetcher(), self.recorder, on_crash=self.crashes.append
        )

    def run_until(self, condition: Callable[[], bool]) -> None:
        async def wait() -> None:
            async with asyncio.timeout(30):
                while not condition():  # noqa: ASYNC110 - any condition of a test, not one event
                    await asyncio.sleep(0.001)

        self.loop.run_until_complete(wait())

    def guard(self, action: Callable[[], None]) -> None:
        self.world.guard(action)

    def close(self) -> None:
        self.loop.close()


class Simulated(OneWorld):
    """A simulated world, with the same parts as the live one."""

    def __init__(self):
        self.world = Simulation(seed=1)
        self.recorder = Recorder(self)
        self.runner = Runner()
        self.crashes: list[BaseException] = []
        parts = MachineParts(
            runner=lambda life: self.runner,
            fetcher=lambda life: Fetcher(),
            recorder=lambda life: self.recorder,
        )
        for node in ("a", "b"):
            self.world.machine(node, parts=parts)

    def call_soon(self, action):
        self.world.at(0.0, action)

    def run_until(self, condition: Callable[[], bool]) -> None:
        try:
            self.world.run(condition=condition, events_max=100_000)
        except SimulationError as error:
            assert isinstance(error.__cause__, Exception)
            self.crashes.append(error.__cause__)
        assert condition()

    def guard(self, action: Callable[[], None]) -> None:
        with pytest.raises(SimulationError, match=r"seed 1, at .* s on b: RuntimeError: boom 0"):
            self.world.boot("a", action)

    def close(self) -> None:
        pass


class Networked(Live):
    """A live world for each agent, on nodes of their own, with TLS between them."""

    def __init__(self):
        self.loop = uvloop.new_event_loop()
        self.recorder = Recorder(self.loop)
        self.runner = Runner()
        self.crashes: list[BaseException] = []
        self.worlds: dict[str, LiveWorld] = {}
        codec = Codec([Note, Other])
        for name in ("a", "b"):
            listening = NetTransport.listen(
                self.loop, "127.0.0.1", 0, lab_grid().credentials(name), codec
            )
            transport = self.loop.run_until_complete(listening)
            self.worlds[name] = LiveWorld(
                self.loop,
                self.runner,
                Fetcher(),
                self.recorder,
                on_crash=self.crashes.append,
                transport=transport,
                node=transport.node,
            )

    def address(self, name: str) -> str:
        world = self.worlds.get(name, self.worlds["b"])
        return at(world.node, name)

    def world_of(self, me: str) -> LiveWorld:
        return self.worlds[part_of(me)]

    def guard(self, action: Callable[[], None]) -> None:
        self.worlds["b"].guard(action)

    def close(self) -> None:
        for world in self.worlds.values():
            self.loop.run_until_complete(world.transport.close())
        self.loop.close()


WORLDS = {"live": Live, "networked": Networked, "simulated": Simulated}


@pytest.fixture(params=sorted(WORLDS))
def lab(request):
    made = WORLDS[request.param]()
    yield made
    made.close()


def pair(lab):
    made = []
    for name in ("a", "b"):
        me = lab.address(name)
        agent = Listener(me, lab.world_of(me).place(me))
        lab.world_of(me).join(agent)
        made.append(agent)
    return made


def test_messages_arrive_in_order_with_their_sender(lab):
    a, b = pair(lab)
    for number in range(1000):
        a.world.send(b.me, Note(number))
    lab.run_until(lambda: len(b.heard) == 1000)
    assert b.heard == [(a.me, number) for number in range(1000)]


def test_nothing_is_delivered_inside_a_handler(lab):
    a, b = pair(lab)
    depth = 0

    def on_note(number):
        nonlocal depth
        depth += 1
        assert depth == 1, "a handler was re-entered"
        if number < 50:
            b.world.send(b.me, Note(number + 1))
            a.world.send(b.me, Note(1000))
        depth -= 1

    b.on_note = on_note
    a.world.send(b.me, Note(0))
    assert b.heard == []
    lab.run_until(lambda: len(b.heard) == 101)
    assert lab.crashes == []


def test_a_message_to_nobody_is_dropped(lab):
    a, b = pair(lab)
    a.world.send(lab.address("nobody"), Note(1))
    a.world.send(b.me, Note(2))
    lab.run_until(lambda: b.heard == [(a.me, 2)])
    lab.world_of(b.me).leave(b.me)
    a.world.send(b.me, Note(3))
    a.world.send(a.me, Note(4))
    lab.run_until(lambda: a.heard == [(a.me, 4)])
    assert b.heard == [(a.me, 2)]


def test_a_message_without_a_handler_is_counted(lab):
    a, b = pair(lab)
    a.world.send(b.me, Other())
    a.world.send(b.me, Note(1))
    lab.run_until(lambda: len(b.heard) == 1)
    assert b.unhandled == 1


def test_timers_run_in_the_order_of_their_times_and_not_early(lab):
    a, _ = pair(lab)
    ran: list[tuple[int, float]] = []
    began = a.world.elapsed()
    for delay_ms in (40, 10, 30, 0, 20):
        a.world.after(delay_ms / 1000, lambda d=delay_ms: ran.append((d, a.world.elapsed())))
    lab.run_until(lambda: len(ran) == 5)
    assert [delay for delay, _ in ran] == [0, 10, 20, 30, 40]
    for delay_ms, ran_s in ran:
        # A loop runs what is due within the grain of its clock.
        assert ran_s - began >= delay_ms / 1000 - 0.002


def test_elapsed_time_only_moves_on_whatever_is_done_to_the_clock(lab, monkeypatch):
    a, b = pair(lab)
    seen: list[float] = []
    for step in range(5):
        a.world.after(0.005 * step, lambda: seen.append(a.world.elapsed()))
    monkeypatch.setattr("sureline.world.live.time.time", lambda: 0.0)
    lab.run_until(lambda: len(seen) == 5)
    assert seen == sorted(seen) and seen[-1] - seen[0] >= 0.018
    assert b.world.elapsed() >= 0.0


def test_a_cancelled_timer_never_runs_even_when_due_in_the_same_instant(lab):
    a, _ = pair(lab)
    ran: list[str] = []
    timers = []

    def first() -> None:
        ran.append("first")
        timers[1].cancel()
        timers[1].cancel()

    timers.append(a.world.after(0.01, first))
    timers.append(a.world.after(0.01, lambda: ran.append("second")))
    a.world.after(0.03, lambda: ran.append("third"))
    lab.run_until(lambda: "third" in ran)
    assert ran == ["first", "third"]


def test_records_keep_their_order_and_are_flushed_before_a_sync_is_announced(lab):
    a, _ = pair(lab)
    durable: list[int] = []
    for number in range(10):
        a.world.record(Event(number))
    a.world.sync(lambda: durable.append(lab.recorder.flushed))
    lab.run_until(lambda: bool(durable))
    assert durable == [10]
    assert [event.number for event in lab.recorder.events] == list(range(10))


def test_what_was_recorded_before_a_flush_is_handed_on(lab):
    a, _ = pair(lab)
    a.world.record(Event(1))
    assert lab.recorder.flushed == 0
    a.world.flush()
    assert lab.recorder.flushed == 1


def test_records_are_flushed_without_being_asked(lab):
    a, _ = pair(lab)
    a.world.record(Event(1))
    lab.run_until(lambda: lab.recorder.flushed == 1)


def test_put_is_visible_to_get_at_once(lab):
    a, _ = pair(lab)
    assert a.world.get("k") is None
    a.world.put("k", b"v")
    assert a.world.get("k") == b"v"


def test_stop_reaches_the_job_that_was_started(lab):
    a, _ = pair(lab)
    a.world.start(Job(), lambda event: None)
    handle = a.world.start(Job(), lambda event: None)
    a.world.stop(handle, force=True)
    assert lab.runner.stopped == [(1, True)]


def test_an_exception_ends_the_world_once(lab):
    _, b = pair(lab)

    later: list[int] = []

    def boom(number):
        b.world.after(0.0, lambda: later.append(1))
        raise RuntimeError(f"boom {number}")

    b.on_note = boom
    for number in range(3):
        b.world.send(b.me, Note(number))  # its own: what others say is another matter
    lab.run_until(lambda: bool(lab.crashes))
    lab.guard(lambda: later.append(2))
    assert [str(error) for error in lab.crashes] == ["boom 0"]
    assert b.heard == [(b.me, 0)]
    assert later == []


def test_an_exception_in_a_timer_ends_the_world(lab):
    _, b = pair(lab)

    def boom():
        raise RuntimeError("boom")

    b.world.after(0.0, boom)
    lab.run_until(lambda: bool(lab.crashes))
    assert [str(error) for error in lab.crashes] == ["boom"]


def test_handlers_are_inherited_and_can_be_replaced():
    class Louder(Listener):
        @handles(Other)
        def other(self, sender, message):
            self.heard.append((sender, -1))

    class Quiet(Louder):
        @handles(Note)
        def note(self, sender, message):
            self.heard.append((sender, 0))

    quiet = Quiet("q", world=None)
    quiet.receive("x", Note(5))
    quiet.receive("x", Other())
    assert quiet.heard == [("x", 0), ("x", -1)]
    plain = Listener("p", world=None)
    plain.receive("x", Other())
    assert plain.unhandled == 1
