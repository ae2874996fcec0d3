"""A machine's clock is set back or forward while agents wait: nothing stalls, nothing hurries."""

from __future__ import annotations

import pytest
from signed import Chartered
from toy_grid import ToyGrid, digest_of

from sureline.overlay.kademlia.requests import Requests
from sureline.overlay.kademlia.settings import KademliaSettings
from sureline.overlay.membership import Membership, Offer
from sureline.overlay.news import News, NewsAsk
from sureline.peer.jobs import JobEnded
from sureline.peer.messages import Finished
from sureline.peer.outbox import RESEND_S, Outbox
from sureline.run.grant import OWN, Epoch
from sureline.run.holders import Holders
from sureline.run.homing import GRACE_S, Homing
from sureline.run.kept import page
from sureline.run.mirror import ANSWER_S, TICK_S, TRIES_MAX, Mirror
from sureline.run.office import Office
from sureline.workflow.files import FileRecord
from sureline.world.agent import Agent
from sureline.world.simulated import MachineSpec, Simulation

HOUR_S = 3600.0
STEPS_S = [-HOUR_S, HOUR_S]


class Ear(Agent):
    def __init__(self, grid, me):
        super().__init__(me, grid.place(me))
        grid.join(self)
        self.heard = []

    def receive(self, sender, message):
        self.heard.append((self.world.elapsed(), message))


@pytest.fixture
def grid():
    return ToyGrid()


def step(grid, seconds, node="p"):
    grid.machine(node).clock_ahead_s += seconds


def passing(grid, seconds):
    over = []
    grid.after(seconds, lambda: over.append(1))
    grid.run(lambda: over)


# -- the simulator ---------------------------------------------------------------------------------


@pytest.mark.parametrize("seconds", STEPS_S)
@pytest.mark.parametrize("drift", [0.0, 0.1])
def test_a_simulated_clock_steps_and_the_time_that_passes_does_not(seconds, drift):
    sim = Simulation(1)
    sim.machine("a", MachineSpec(clock_drift=drift))
    world = sim.place("a/x")
    fired = []
    world.after(10.0, lambda: fired.append((world.elapsed(), world.now())))
    sim.run(until=5.0)
    sim.step_clock("a", seconds)
    assert world.elapsed() == pytest.approx(5.0 * (1 + drift))
    assert world.now() == pytest.approx(seconds + 5.0 * (1 + drift))
    sim.run()
    [(elapsed_s, now)] = fired
    assert elapsed_s == pytest.approx(10.0), "it counts as timers do"
    assert now == pytest.approx(10.0 + seconds)


def test_the_time_that_passes_begins_anew_with_the_next_process():
    sim = Simulation(1)
    sim.machine("a")
    sim.step_clock("a", 100.0)
    sim.run(until=5.0)
    sim.kill("a")
    sim.restart("a")
    world = sim.place("a/x")
    assert world.elapsed() == 0.0
    assert world.now() == 105.0, "a clock stays as it was set"


# -- agents ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("seconds", STEPS_S)
def test_a_report_is_sent_again_in_time(grid, seconds):
    writer = Ear(grid, "w/run.r")
    outbox = Outbox(grid.place("p/peer"), lambda run: "w/run.r")
    outbox.add(Finished("r", "a", 1, JobEnded("succeeded")))
    grid.run(lambda: writer.heard)
    step(grid, seconds)
    grid.run(lambda: len(writer.heard) == 2, 2 * RESEND_S)
    (first_s, _), (second_s, _) = writer.heard
    assert second_s - first_s >= RESEND_S / 2


def test_a_report_that_a_later_process_finds_is_not_too_old_for_a_clock_set_back(grid):
    outbox = Outbox(grid.place("p/peer"), lambda run: None)
    outbox.add(Finished("r", "a", 1, JobEnded("succeeded")))
    passing(grid, 1.0)
    step(grid, -HOUR_S)
    later = Outbox(grid.place("p/peer"), lambda run: "w/run.r")
    writer = Ear(grid, "w/run.r")
    later.load()
    grid.run(lambda: writer.heard, 10.0)


class _Recorded:
    line = ()

    def after(self, position):
        return page([entry for entry in [(1, b"x")] if entry[0] > position])

    def last(self):
        return 1


@pytest.mark.parametrize("seconds", STEPS_S)
def test_a_keeper_that_is_silent_is_replaced_in_time(grid, seconds):
    ears = [Ear(grid, f"{node}/keeper") for node in "abcde"]
    signer = Chartered("r", b"graph", b"x", "p").begin("p")
    place = grid.place("p/mirror")
    epoch, recorded = Epoch(1, "p:"), _Recorded()
    office = Office(place, "r", epoch, (), OWN, recorded, print, lambda: True)
    mirror = Mirror("p/mirror", place, "r", 1, b"graph", recorded, signer, office)
    grid.join(mirror)
    mirror.start()
    for node in "abcde":
        mirror.peer_joined(node)
    passing(grid, 0.5)
    unasked = [ear for ear in ears if not ear.heard]
    assert len(unasked) == 1
    step(grid, seconds)
    grid.run(lambda: unasked[0].heard, 2 * TRIES_MAX * (ANSWER_S + TICK_S))
    assert unasked[0].heard[0][0] >= TRIES_MAX * ANSWER_S


@pytest.mark.parametrize("seconds", STEPS_S)
def test_a_file_whose_holders_are_away_is_given_up_in_time(grid, seconds):
    gone = []
    homing = Homing(
        grid.place("p/run.r"),
        Holders("p", lambda peer: None),
        on_home=lambda task, ready: None,
        on_gone=lambda task, path: gone.append(grid.time),
        on_idle=lambda: None,
    )
    homing.add(0, [FileRecord("f", digest_of("f"), 1)])
    passing(grid, 1.0)
    step(grid, seconds)
    homing.look_again()
    grid.run(lambda: gone, 3 * GRACE_S)
    assert gone[0] >= GRACE_S


@pytest.mark.parametrize("seconds", STEPS_S)
def test_a_question_in_the_hash_table_fails_in_time(grid, seconds):
    settings = KademliaSettings()
    requests = Requests(grid.place("p/kademlia"), settings)
    told = []

    class Asker:
        def answered(self, number, by, answer): ...

        def slow(self, number, by):
            told.append(("slow", grid.time))

        def failed(self, number, by):
            told.append(("failed", grid.time))

    requests.open("q/kademlia", Asker())
    step(grid, seconds)
    grid.run(lambda: len(told) == 2, 2 * settings.failed_s_max)
    assert [what for what, _ in told] == ["slow", "failed"]
    assert told[0][1] >= settings.slow_s_first / 2


@pytest.mark.parametrize("seconds", STEPS_S)
def test_who_did_not_answer_for_news_is_asked_again_in_time(grid, seconds):
    ear = Ear(grid, "q/news")
    news = News("p/news", grid.place("p/news"), lambda signed: None, lambda new: None)
    grid.join(news)
    news.heard_of(2, "q")
    grid.run(lambda: ear.heard)
    passing(grid, 2.5)  # it did not answer, and is doubted for a second
    step(grid, seconds)
    news.heard_of(2, "q")
    passing(grid, 0.1)
    assert len(ear.heard) == 1
    passing(grid, 1.5)
    news.heard_of(2, "q")
    grid.run(lambda: len(ear.heard) == 2, grid.time + 1.0)
    assert all(isinstance(message, NewsAsk) for _, message in ear.heard)


@pytest.mark.parametrize("seconds", STEPS_S)
def test_members_notice_a_death_and_nothing_else_while_their_clocks_step(seconds):
    sim = Simulation(3)
    agents = {}
    for number in range(6):
        node = f"n{number}"
        agents[node] = Membership(
            f"{node}/membership", sim.place(f"{node}/membership"), Offer(1.0, 1 << 30)
        )
        sim.join(agents[node])
        agents[node].join([] if number == 0 else ["n0"], lambda others: None)
    sim.run(until=20.0)
    for node in list(agents)[1:]:
        sim.step_clock(node, seconds)
    sim.run(until=40.0)
    for agent in agents.values():
        assert {member.state for member in agent.members().values()} == {"alive"}
    sim.crash("n5")
    sim.run(until=100.0)
    for node in list(agents)[:5]:
        states = {name: member.state for name, member in agents[node].members().items()}
        assert states == {**{f"n{number}": "alive" for number in range(5)}, "n5": "dead"}
