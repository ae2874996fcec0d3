"""Valid messages that say absurd things, from an enrolled peer, to every agent of a grid: nothing
is raised, for that could end a peer, and nothing grows without bound."""

from __future__ import annotations

import logging

import pytest
from absurd import CODEC, DRIVER, HONEST, MALLORY, VICTIM, AbsurdGrid, size_bytes
from toy_grid import ToyGrid

from sureline.journal.events import PeerLeft, TaskEnded
from sureline.overlay.kademlia import Kademlia
from sureline.overlay.kademlia.messages import Cast, Store, ValueRecord
from sureline.overlay.kademlia.settings import KademliaSettings
from sureline.overlay.membership import Membership, Offer
from sureline.overlay.membership.messages import Gossip
from sureline.overlay.membership.messages import MemberRecord as Statement
from sureline.peer.jobs import JobEnded
from sureline.peer.messages import Finished
from sureline.run.report_checks import fault_of
from sureline.workflow.files import FileRecord
from sureline.workflow.model import Command, Task
from sureline.world.address import at

AGENTS_BYTES_MAX = 16 << 20
SAID = 1500
ALL = frozenset({"run", "submit"})


def attack(where, seed: int, messages: int, roles: frozenset[str], again: bool = False) -> None:
    """What is raised fails the test; the seed, and the last message, say how to see it again."""
    grid = AbsurdGrid(where, seed)
    agents = [vars(agent) for agent in grid.agents()]
    try:
        grid.attack(messages, roles)
        grid.pass_time(300.0)
        before = size_bytes(*agents)
        assert before < AGENTS_BYTES_MAX
        if again:
            grid.attack(messages, roles)
            assert size_bytes(*agents) < 2 * before + (1 << 20)
    except Exception as error:
        raise AssertionError(f"seed {seed}, roles {sorted(roles)}, said {grid.last}") from error
    finally:
        grid.close()


@pytest.fixture(autouse=True)
def quiet():
    """Refused certificates are logged, one line each."""
    logging.disable(logging.WARNING)
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.parametrize(
    "roles", [ALL, {"run"}, {"submit"}, frozenset()], ids=["all", "run", "submit", "none"]
)
def test_absurd_messages_raise_nothing(tmp_path, roles):
    attack(tmp_path, 1, SAID, frozenset(roles))


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(40))
def test_many_absurd_messages_raise_nothing(tmp_path, seed):
    roles = (ALL, ALL, frozenset({"run"}), frozenset())[seed % 4]
    attack(tmp_path, 1000 + seed, 20_000, roles, again=True)


def test_the_attack_reaches_every_handler_of_a_peer(tmp_path):
    """Else the test above would prove little."""
    grid = AbsurdGrid(tmp_path, 5)
    heard: set[tuple[str, str]] = set()
    for agent in grid.agents():

        def receive(sender, message, agent=agent, receive=agent.receive):
            heard.add((type(agent).__name__, type(message).__name__))
            receive(sender, message)

        agent.receive = receive
    grid.attack(SAID, ALL)
    grid.close()
    expected = {
        (type(agent).__name__, kind.__name__)
        for agent in grid.agents()
        for kind in CODEC.tags
        if agent.hears(kind) and kind.__name__ not in ("CancelRun", "Fenced")
    }
    assert expected <= heard


def members(grid: ToyGrid) -> list[Membership]:
    made = []
    for node in (VICTIM, HONEST):
        me = at(node, "membership")
        agent = Membership(me, grid.place(me), Offer(1.0, 1))
        grid.join(agent)
        made.append(agent)
        agent.join([] if node == VICTIM else [VICTIM], lambda count: None)
    return made


def pass_time(grid: ToyGrid, seconds: float) -> None:
    until = grid.time + seconds
    grid.after(seconds, lambda: None)
    grid.run(lambda: grid.time >= until, until + 1)


def shown(agent: Membership) -> tuple[str, str]:
    member = agent.members()["v"]
    return member.node, member.state


def test_nobody_can_silence_a_member_by_speaking_of_a_later_life():
    grid = ToyGrid(3)
    victim, honest = members(grid)
    pass_time(grid, 3.0)
    silenced = []
    victim.on_superseded = lambda: silenced.append(True)
    for life in (victim.knowledge.own.life + 1000, 80_000_000):
        elsewhere = Statement("v@10.0.0.9:1", life, 0, "alive", Offer(1.0, 1))
        for agent in (honest, victim):
            agent.receive(at(MALLORY, "membership"), Gossip(0, (elsewhere,)))
        honest.members()  # so that what is shown, with its damping, is what is compared
        grid.run(lambda: shown(honest) == (VICTIM, "alive"), grid.time + 300.0)
        assert silenced == []
        assert victim.knowledge.own.life > life


def test_what_a_node_keeps_for_others_is_bounded_in_bytes():
    grid = ToyGrid(4)
    me = at(VICTIM, "kademlia")
    settings = KademliaSettings(values_bytes_max=100_000)
    agent = Kademlia(me, grid.place(me), settings)
    for number in range(500):
        record = ValueRecord(number.to_bytes(20), bytes(1000), "m", 5000.0)
        agent.receive(at(MALLORY, "kademlia"), Store(number, (record,)))
    storage = agent.base.storage
    assert len(storage) == 100
    again = ValueRecord((7).to_bytes(20), bytes(1000), "m", 5000.0)
    assert storage.keep(again, grid.time), "what is there already may be renewed"
    storage.forget((7).to_bytes(20), bytes(1000), "m")
    assert storage.keep(ValueRecord((501).to_bytes(20), bytes(1000), "m", 5000.0), grid.time)
    storage.expire(grid.time + 6000.0)
    assert len(storage) == 0 and storage.keep(again, grid.time)


def test_broadcasts_under_way_are_bounded_in_bytes():
    grid = ToyGrid(5)
    me = at(VICTIM, "kademlia")
    agent = Kademlia(me, grid.place(me), KademliaSettings(payloads_bytes_max=1_000_000))
    known = tuple(at(f"n{i}@127.0.0.1:9", "kademlia") for i in range(8))
    for number in range(50):
        patience = float("inf") if number % 2 else 1e300
        me, region = at(MALLORY, "kademlia"), (bytes(20), 0)
        payload = bytes(bytearray(100_000))  # one of its own for each, as from the network
        cast = Cast(number, me, number, "x", payload, *region, patience, (), known)
        agent.receive(me, cast)
    assert size_bytes(agent.broadcasts) < 2_000_000
    pass_time(grid, 200.0)  # nobody ever answers; however patient the origin is, it ends
    assert size_bytes(agent.broadcasts) < 200_000


TASK = Task("t", Command("make"), outputs=("out",))


def report(**ended) -> Finished:
    outputs = ended.pop("outputs", (FileRecord("out", "0" * 64, 5),))
    return Finished("r", "t", 1, JobEnded("succeeded", outputs=outputs, **ended))


def test_a_report_that_makes_sense_is_left_alone():
    good = report(elapsed_s=1.0, stdout_file=f"blob:{'0' * 64}:70000")
    assert not fault_of(good.ended, TASK)


@pytest.mark.parametrize(
    "absurd",
    [
        report(outputs=()),
        report(outputs=(FileRecord("flow.yaml", "0" * 64, 5),)),
        report(outputs=(FileRecord("out", "0" * 64, 5), FileRecord(".git/hooks/x", "0" * 64, 5))),
        report(outputs=(FileRecord("out", "0" * 64, -1),)),
        report(outputs=(FileRecord("out", "../../x", 5),)),
        report(outputs=(FileRecord("out", "", 5),)),
        report(elapsed_s=float("nan")),
        report(cpu_s=float("inf")),
        report(elapsed_s=-1.0),
        report(memory_peak_bytes=1 << 63),
        report(exit_code=-(1 << 63)),
        report(stdout_file="../../.ssh/id_ed25519"),
        report(stdout_file="logs/r/0.1.out"),
        report(stderr_file="blob:../../x:5"),
    ],
)
def test_a_report_that_makes_no_sense_is_noticed(absurd):
    assert fault_of(absurd.ended, TASK)


def test_a_peer_cannot_name_other_files_than_the_task_makes(tmp_path):
    """They would be put into the user's directory."""
    grid = AbsurdGrid(tmp_path, 6)
    grid.pass_time(1.0)
    submitter = grid.submitter
    binding = submitter._course.attempts.all()[0]
    task = submitter._course.graph.tasks[binding.task].name
    node = VICTIM if binding.target == "v" else HONEST
    ended = JobEnded("succeeded", outputs=(FileRecord("../.ssh/authorized_keys", "0" * 64, 5),))
    key = submitter._course.known.key(binding.task)
    warrant = submitter._course._warrants.make((task, binding.attempt, binding.target))
    report = Finished(submitter.run, task, binding.attempt, ended, key, None, warrant)
    submitter.receive(at(node, "peer"), report)
    grid.close()
    told = [e for e in grid.machine(DRIVER).events if isinstance(e, TaskEnded)]
    assert not any(record.path.startswith("..") for e in told for record in e.outputs)
    assert submitter._course.tasks.failures[binding.task] == 0, "the task is not to blame"
    left = [e for e in grid.machine(DRIVER).events if isinstance(e, PeerLeft)]
    assert [(e.peer, e.strikes) for e in left] == [(binding.target, 1)]
