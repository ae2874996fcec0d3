"""A machine admits what fits, queues what does not, refuses what never can; and its ledger."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from toy_world import ToyWorld

from sureline.peer import agent as peer_agent
from sureline.peer.agent import PeerAgent
from sureline.peer.capacity import Capacity, Ledger, this_machine
from sureline.peer.jobs import CommandJob
from sureline.peer.messages import Bind, Finished, Refused, Started, Withdraw
from sureline.workflow.model import Needs
from sureline.world.agent import Agent


class Client(Agent):
    def __init__(self, world):
        super().__init__("client", world)
        self.heard = []

    def receive(self, sender, message):
        self.heard.append(message)

    def of(self, kind):
        return [message for message in self.heard if isinstance(message, kind)]


@pytest.fixture
def world():
    return ToyWorld(duration=lambda job: 10.0)


def setup(world, **capacity):
    client = Client(world.place("client"))
    peer = PeerAgent("here", world.place("here"), Capacity(**capacity))
    world.join(client)
    world.join(peer)
    return client, peer


def bind(client, task, attempt=1, **needs):
    job = CommandJob(f"{task}.{attempt}", task, attempt, "true")
    client.world.send("here", Bind("run", task, attempt, job, Needs(**needs)))


def test_what_does_not_fit_waits_in_order(world):
    client, peer = setup(world, cores=2, memory_bytes=100)
    bind(client, "a", cores=2)
    bind(client, "b", memory_bytes=60)
    bind(client, "c", memory_bytes=60)
    world.run()
    starts = [(at, job.task) for at, job in world.started]
    assert starts == [(0.0, "a"), (10.0, "b"), (20.0, "c")]
    assert [m.task for m in client.of(Started)] == ["a", "b", "c"]
    assert [m.task for m in client.of(Finished)] == ["a", "b", "c"]
    assert peer.ledger.millicores == 2000


@pytest.mark.parametrize(
    "needs",
    [{"cores": 3}, {"memory_bytes": 101}, {"gpus": 1}, {"tags": (("ssd", 1),)}, {"disk_bytes": 1}],
)
def test_what_can_never_fit_is_refused(world, needs):
    client, _ = setup(world, cores=2, memory_bytes=100)
    bind(client, "a", **needs)
    world.run()
    (refused,) = client.of(Refused)
    assert "too small" in refused.reason
    assert world.started == []


def test_the_queue_is_bounded(world, monkeypatch):
    monkeypatch.setattr(peer_agent, "QUEUE_MAX", 2)
    client, _ = setup(world, cores=1, memory_bytes=0)
    for task in "abcd":
        bind(client, task)
    world.run()
    assert [m.task for m in client.of(Refused)] == ["d"]


def test_withdrawing_stops_what_runs_and_what_waits(world):
    client, peer = setup(world, cores=1, memory_bytes=0)
    for task in "abc":
        bind(client, task)
    world.after(1.0, lambda: client.world.send("here", Withdraw("run", "b", 1)))
    world.after(2.0, lambda: client.world.send("here", Withdraw("run", "a", 1, force=True)))
    world.after(2.0, lambda: client.world.send("here", Withdraw("run", "nobody", 1)))
    world.run()
    ended = [(m.task, m.ended.outcome) for m in client.of(Finished)]
    assert ended == [("b", "cancelled"), ("a", "cancelled"), ("c", "succeeded")]
    assert peer.ledger.millicores == 1000


_needs = st.builds(
    Needs,
    cores=st.sampled_from([0.1, 0.5, 1.0, 1.5]),
    memory_bytes=st.integers(0, 60),
    gpus=st.integers(0, 1),
    tags=st.sampled_from([(), (("licence", 1),), (("licence", 2),), (("ssd", 5),)]),
)


@given(st.lists(st.tuples(_needs, st.booleans()), max_size=40))
def test_the_ledger_never_goes_below_zero_and_comes_back_whole(steps):
    capacity = Capacity(cores=3, memory_bytes=100, gpus=2, tags={"licence": 3, "ssd": None})
    ledger = Ledger(capacity)
    held = []
    for needs, release in steps:
        if release and held:
            ledger.give_back(held.pop())
        elif ledger.fits(needs):
            ledger.take(needs)
            held.append(needs)
        assert sum(n.cores for n in held) <= 3 + 1e-9
        assert sum(n.memory_bytes for n in held) <= 100
        assert sum(n.gpus for n in held) <= 2
        assert sum(dict(n.tags).get("licence", 0) for n in held) <= 3
    for needs in held:
        ledger.give_back(needs)
    assert vars(ledger) == vars(Ledger(capacity))


def test_taking_what_does_not_fit_is_a_bug():
    with pytest.raises(AssertionError, match="over-committed"):
        Ledger(Capacity(cores=1, memory_bytes=0)).take(Needs(cores=2))


def test_this_machine_can_be_overridden(tmp_path):
    found = this_machine(tmp_path)
    assert found.cores >= 1
    assert found.memory_bytes > 0
    assert found.disk_bytes > 0
    told = this_machine(tmp_path, cores=64, memory_bytes=5, gpus=3, tags={"ssd": None})
    assert (told.cores, told.memory_bytes, told.gpus, told.tags) == (64, 5, 3, {"ssd": None})


def test_a_task_bound_ahead_takes_over_what_its_forerunner_held(world):
    client, peer = setup(world, cores=1, memory_bytes=0)
    for task in "abc":
        job = CommandJob(f"{task}.1", task, 1, "true")
        client.world.send("here", Bind("run", task, 1, job, Needs(), ahead=task != "a"))
    world.run()
    assert [(at, job.task) for at, job in world.started] == [(0.0, "a"), (10.0, "b"), (20.0, "c")]
    assert peer.ledger.millicores == 1000


def test_a_task_that_is_given_back_waits_like_any_other(world):
    world.follows = False
    client, peer = setup(world, cores=1, memory_bytes=0)
    for task in "ab":
        job = CommandJob(f"{task}.1", task, 1, "true")
        client.world.send("here", Bind("run", task, 1, job, Needs(), ahead=task != "a"))
    world.run()
    assert [(at, job.task) for at, job in world.started] == [(0.0, "a"), (10.0, "b")]
    assert [m.ended.outcome for m in client.of(Finished)] == ["succeeded", "succeeded"]
    assert peer.ledger.millicores == 1000


def test_a_task_bound_ahead_can_be_withdrawn(world):
    client, peer = setup(world, cores=1, memory_bytes=0)
    for task in "abc":
        job = CommandJob(f"{task}.1", task, 1, "true")
        client.world.send("here", Bind("run", task, 1, job, Needs(), ahead=task != "a"))
    world.after(1.0, lambda: client.world.send("here", Withdraw("run", "b", 1)))
    world.run()
    ended = [(m.task, m.ended.outcome) for m in client.of(Finished)]
    assert ended == [("b", "cancelled"), ("a", "succeeded"), ("c", "succeeded")]
    assert peer.ledger.millicores == 1000
