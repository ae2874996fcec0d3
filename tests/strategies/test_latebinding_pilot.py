"""A pilot and its master by their messages: what they remember of each other, and for how long."""

from __future__ import annotations

import pytest
from test_latebinding import listed
from test_latebinding_queue import Speaker

from sureline.experiments.latebinding_sites import BEGIN_S, Testbed
from sureline.peer.jobs import JobEnded, PauseJob
from sureline.peer.messages import Bind
from sureline.strategies.latebinding.half import TOOK_KEPT, PilotRoom
from sureline.strategies.latebinding.messages import (
    PromisedTasks,
    RankReply,
    Register,
    Registered,
    RoomWish,
    TaskList,
)
from sureline.strategies.latebinding.pilot import PART
from sureline.strategies.latebinding.settings import AHEAD_MAX
from sureline.strategies.latebinding.wishes import PILOTS_MAX, STALE_S, Wishes
from sureline.workflow.model import Needs
from sureline.world.address import at, name_of

PILOT = at("p2", PART)


class Scene:
    """Pilots of two sites that have come together, and nothing to do."""

    def __init__(self):
        self.bed = Testbed("event", "serial", 8, 16, 1)
        self.bed.sim.run(until=BEGIN_S - 1.0)

    def say(self, message, me="p4/tester"):
        if not hasattr(self, "speaker"):
            self.speaker = Speaker(me, self.bed.sim.place(me))
            self.bed.sim.join(self.speaker)
        self.speaker.world.send(PILOT, message)
        self.bed.sim.run(until=self.bed.sim.time + 0.2)
        return self.speaker


@pytest.fixture
def scene():
    return Scene()


def test_a_master_that_begins_anew_numbers_its_tasks_anew(scene):
    """Or its tasks would be taken for others, by what these require."""
    first = TaskList(1, "p4/tester", 7, 0, ((1, listed("old")), (2, listed("older"))), (1, 2))
    ranked = scene.say(first).last(RankReply).ranked
    assert sorted(number for number, _ in ranked.ranks) == [1, 2] and not ranked.lacks
    told = TaskList(1, "p4/tester", 8, 1, ((2, listed("new")),), (1, 2))
    ranked = scene.say(told).last(RankReply).ranked
    assert [number for number, _ in ranked.ranks] == [2] and ranked.lacks


def test_a_new_master_hears_what_was_wished_for_before(scene):
    scene.say(TaskList(1, "p4/tester", 7, 0, ((1, listed("a")),), (1,)))
    assert scene.speaker.last(RoomWish).places == 1
    count = len(scene.speaker.all(RoomWish))
    scene.say(TaskList(2, "p4/tester", 7, 1, ((2, listed("b")),), (2,)))
    assert len(scene.speaker.all(RoomWish)) == count
    scene.say(TaskList(1, "p4/tester", 8, 0, ((1, listed("c")),), (1,)))
    assert len(scene.speaker.all(RoomWish)) == count + 1


def test_a_pilot_tells_newcomers_of_its_site_who_is_master(scene):
    said = scene.say(Register("infiniband")).last(Registered)
    assert said.site == "infiniband" and name_of(said.master) in ("p0", "p2", "p4", "p6")
    before = len(scene.speaker.heard)
    assert len(scene.say(Register("elsewhere")).heard) == before


def test_nobody_is_made_master_who_is_no_pilot_of_the_site(scene):
    agent = next(a for a in scene.bed._agents if a.me == PILOT)
    before = agent._master
    for other in ("p3/latebinding", "stranger/latebinding", "queue/latebinding"):
        scene.say(Registered("infiniband", other))
    assert agent._master == before


def test_two_pilots_that_take_each_other_for_the_master_do_not_send_all_to_and_fro(scene):
    """The queue's master was told of another one, which the queue has sent to it."""
    sim = scene.bed.sim
    mates = {a.me: a for a in scene.bed._agents if a._site == "infiniband"}
    (master,) = [me for me, agent in mates.items() if agent.speaks is not None]
    other = next(me for me in mates if me not in (master, PILOT))
    sim.place(PILOT).send(master, Registered("infiniband", other))
    sim.run(until=sim.time + 0.01)
    assert mates[master].speaks is None
    sim.place(other).send(master, RoomWish("infiniband", 1, 1))
    sim.run(until=sim.time + 0.005)
    assert mates[master].speaks is not None
    sim.run(until=sim.time + 15.0)
    assert [me for me, agent in mates.items() if agent.speaks is not None] == [master]
    assert {agent._master for agent in mates.values()} == {master}


def test_wishes_are_summed_up_settled_and_forgotten():
    wishes = Wishes()
    for n in range(4):
        wishes.hear(f"p{n}", f"p{n}/latebinding", RoomWish("s", n, 1), 0.0)
    assert (wishes.places, wishes.ahead, len(wishes), wishes.pilots) == (6, 4, 4, 4)
    wishes.hear("p3", "p3/latebinding", RoomWish("s", 10**9, -5), 1.0)
    assert wishes.places == 3 + 16 and wishes.ahead == 3
    wishes.settle("p3", 0, 0)
    assert wishes.get("p3") is None and (wishes.places, wishes.ahead) == (3, 3)
    assert wishes.hear("p9", "p9/latebinding", RoomWish("s", 0, 0), 1.0) is None
    wishes.hear("p1", "p1/latebinding", RoomWish("s", 1, 0), STALE_S)
    wishes.drop_stale(STALE_S + 1.0)
    assert [name for name, _ in wishes] == ["p1"] and (wishes.places, wishes.ahead) == (1, 0)
    for n in range(PILOTS_MAX + 10):
        wishes.hear(f"x{n}", f"x{n}/latebinding", RoomWish("s", 1, 0), STALE_S)
    assert len(wishes) == wishes.pilots == PILOTS_MAX


def test_room_that_is_free_again_at_once_is_told_again(scene):
    """A short task was over before its pilot had noticed that there was less room, and the pilot
    stood idle until it renewed its wish."""
    scene.say(TaskList(1, "p4/tester", 7, 0, ((1, listed("a")),), (1,)))
    half = next(a for a in scene.bed._agents if a.me == PILOT)._half
    count = len(scene.speaker.all(RoomWish))
    scene.speaker.world.send(PILOT, PromisedTasks((("r", "a", Needs()),)))
    scene.bed.sim.run(until=scene.bed.sim.time + 0.01)
    half._forget(("r", "a"))
    scene.bed.sim.run(until=scene.bed.sim.time + 0.2)
    assert len(scene.speaker.all(RoomWish)) == count + 1
    assert scene.speaker.last(RoomWish).places == 1


def test_a_promise_that_comes_after_its_task_holds_no_room(scene):
    half = next(a for a in scene.bed._agents if a.me == PILOT)._half
    bind = Bind("r", "a", 1, PauseJob("0.1", "a", 1, 0.001), Needs())
    half.admitted(bind)
    half.over(bind, JobEnded("succeeded"), began=True)
    half.promise("r", "a", Needs())
    assert half.room().places == 1


def test_many_short_tasks_are_fetched_ahead_but_only_one_long_one(scene):
    half = next(a for a in scene.bed._agents if a.me == PILOT)._half
    assert half.room() == PilotRoom(1, 1)
    for took_s, ahead in ((0.001, AHEAD_MAX), (1.0, 4), (20.0, 1)):
        for number in range(TOOK_KEPT):
            bind = Bind("r", f"t{number}", 1, PauseJob("0.1", "t", 1, took_s), Needs())
            half.admitted(bind)
            half.over(bind, JobEnded("succeeded", elapsed_s=took_s), began=True)
        assert half.room() == PilotRoom(1, ahead)


def test_nobody_fetches_more_ahead_than_its_part_of_all(scene):
    master = next(a.speaks for a in scene.bed._agents if a.speaks is not None)
    master._waiting = 100 * master._wishes.pilots
    assert master._ahead_for_each(4) == 100
    assert master._ahead_for_each(1500) == 1
    master._waiting = 0
    assert master._ahead_for_each(4) == 1
