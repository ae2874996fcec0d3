"""A pilot and its master by their messages: what they remember of each other, and for how long."""

from __future__ import annotations

import msgspec
import pytest
from test_latebinding import listed
from test_latebinding_queue import Speaker

from sureline.experiments.latebinding_sites import BEGIN_S, Testbed
from sureline.overlay.membership import Member
from sureline.peer.admitting import Look
from sureline.peer.capacity import Capacity
from sureline.peer.jobs import CommandJob, JobEnded, PauseJob
from sureline.peer.messages import Bind
from sureline.strategies.latebinding.dealing import decoded, encoded, merged
from sureline.strategies.latebinding.half import (
    AHEAD_PER_ENDED,
    NAME,
    TOOK_KEPT,
    PilotClaim,
    PilotRoom,
)
from sureline.strategies.latebinding.master import NEWS_S, Round, _last_of, _Pooled
from sureline.strategies.latebinding.messages import (
    Handout,
    NotMaster,
    PromisedTasks,
    Ranked,
    RankReply,
    Register,
    Registered,
    RoomWish,
    TaskList,
)
from sureline.strategies.latebinding.pilot import PART, SITE
from sureline.strategies.latebinding.settings import (
    AHEAD_MAX,
    AHEAD_S,
    FLOOR_PILOTS,
    FLOOR_S,
    PLACES_MAX,
)
from sureline.strategies.latebinding.wishes import PILOTS_MAX, STALE_S, Wishes
from sureline.workflow.files import FileRecord
from sureline.workflow.model import Needs
from sureline.world.address import at, name_of, node_of

PILOT = at("p2", PART)
NAN, INF = float("nan"), float("inf")


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
    for other in ("p3/latebinding", "stranger/latebinding", "queue/latebinding", "p4/other"):
        for said in (Registered("infiniband", other), NotMaster("infiniband", other)):
            scene.bed.sim.place(at("p4", PART)).send(PILOT, said)
    scene.bed.sim.run(until=scene.bed.sim.time + 0.2)
    assert agent._master == before


def test_a_guest_diverts_nobody_and_a_mate_or_the_queue_does(scene):
    agent = next(a for a in scene.bed._agents if a.me == PILOT)
    other = at("p4" if agent._master != at("p4", PART) else "p6", PART)
    for sender, follows in (("p3/latebinding", 0), ("x/y", 0), (at("p6", PART), 1), ("", 1)):
        before = agent._master
        for said in (Registered("infiniband", other), NotMaster("infiniband", other)):
            agent.receive(sender or agent._queue, said)
            assert agent._master == (other if follows else before)
            agent._follow(before)


def test_only_a_pilot_of_the_site_is_judged_for_and_only_in_its_own_name(scene):
    """Others could have a whole site wish for tasks where nobody deals any out."""
    agent = next(a for a in scene.bed._agents if a.me == PILOT)
    before = agent._master
    others = (("p4/tester", "p6/latebinding"), ("p3/tester", "p3/tester"), ("x/y", "x/y"))
    for sender, master in others:
        speaker = Speaker(sender, scene.bed.sim.place(sender))
        scene.bed.sim.join(speaker)
        told = TaskList(1, master, 7, 0, ((1, listed("a")),), (1,))
        speaker.world.send(PILOT, told)
        scene.bed.sim.run(until=scene.bed.sim.time + 0.2)
        assert not speaker.heard
        assert agent._on_list(at(node_of(sender), SITE), msgspec.msgpack.encode(told)) is None
    assert agent._master == before
    assert scene.say(TaskList(1, "p4/tester", 7, 0, ((1, listed("a")),), (1,))).all(RankReply)


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


def half_of(scene):
    return next(a for a in scene.bed._agents if a.me == PILOT)._half


def end(half, took_s, count=1):
    for number in range(count):
        bind = Bind("r", f"t{number}", 1, PauseJob("0.1", "t", 1, took_s), Needs())
        half.admitted(bind)
        half.over(bind, JobEnded("succeeded", elapsed_s=took_s), began=True)


def test_many_short_tasks_are_fetched_ahead_but_only_one_long_one(scene):
    """The more have ended, the more; and never more than would end in a few seconds."""
    half = half_of(scene)
    assert half.room() == PilotRoom(1, 1)
    seen = []
    for _ in range(AHEAD_MAX // AHEAD_PER_ENDED + 1):
        end(half, 0.001)
        seen.append(half.room().ahead)
    assert seen[:2] == [AHEAD_PER_ENDED, 2 * AHEAD_PER_ENDED] and seen[-1] == AHEAD_MAX
    end(half, 1.0)
    assert half.room() == PilotRoom(1, int(AHEAD_S))
    end(half, 20.0)
    assert half.room() == PilotRoom(1, 1)
    end(half, 0.001, TOOK_KEPT)
    assert half.room() == PilotRoom(1, AHEAD_MAX)


def test_while_large_files_come_nothing_else_is_fetched_ahead(scene, monkeypatch):
    half, state = half_of(scene), "waiting"
    monkeypatch.setattr(half._machine, "look", lambda key: Look(state))
    job = CommandJob("a", "a", 1, "", inputs=(FileRecord("in", "d1", 50 << 20),))
    half.admitted(Bind("r", "a", 1, job, Needs()))
    open_ = [listed(f"t{n}", inputs=(("in", f"d{n}", 50 << 20),)) for n in (1, 2)]
    tasks = ((1, open_[0]), (2, open_[1]), (3, listed("little")))

    def offers():
        told = TaskList(1, "p4/tester", 7, 0, tasks, (1, 2, 3))
        return sorted(number for number, _ in scene.say(told).last(RankReply).ranked.ranks)

    assert half.room().places == 0 and offers() == [1, 3]
    state = "running"
    assert offers() == [1, 2, 3]
    half.promise("r", "b", Needs())  # it may be another
    half.room = lambda: PilotRoom(0, 1)
    assert offers() == [1, 3]


def test_behind_a_task_that_lasts_no_more_are_fetched_ahead(scene):
    half = half_of(scene)
    end(half, 0.001, AHEAD_MAX)
    half.admitted(Bind("r", "long", 1, PauseJob("0.1", "t", 1, 99.0), Needs()))
    assert half.room() == PilotRoom(0, AHEAD_MAX)
    scene.bed.sim.run(until=scene.bed.sim.time + AHEAD_S / 2)
    assert half.room() == PilotRoom(0, 2)


def test_of_many_tasks_ahead_more_are_wished_for_when_half_are_over(scene):
    """Each that ended was a message to the master."""
    scene.say(TaskList(1, "p4/tester", 7, 0, ((1, listed("a")),), (1,)))
    half = half_of(scene)
    end(half, 0.001, AHEAD_MAX)
    names = [f"n{number}" for number in range(AHEAD_MAX + 1)]
    scene.say(PromisedTasks(tuple(("r", name, Needs()) for name in names)))
    before = len(scene.speaker.all(RoomWish))
    for over in (names[:100], names[100:124], names[124:140], names[140:]):
        for name in over:
            half._forget(("r", name))
        scene.bed.sim.run(until=scene.bed.sim.time + 0.1)
    told = [(said.places, said.ahead) for said in scene.speaker.all(RoomWish)[before:]]
    assert told == [(0, 140), (1, AHEAD_MAX)]


def test_nobody_fetches_more_ahead_than_its_part_of_all(scene):
    master = next(a.speaks for a in scene.bed._agents if a.speaks is not None)
    master._waiting = 100 * master._wishes.pilots
    assert master._ahead_for_each(4) == 100
    assert master._ahead_for_each(1500) == 1
    master._waiting = 0
    assert master._ahead_for_each(4) == 1


def master_of(scene):
    return next(a.speaks for a in scene.bed._agents if a.speaks is not None)


def test_rounds_of_a_small_site_follow_each_other_sooner(scene):
    """As many pilots are told of tasks in a second, whatever the size."""
    master, seen = master_of(scene), []
    for count in (FLOOR_PILOTS // 4, FLOOR_PILOTS, 4 * FLOOR_PILOTS):
        for n in range(count):
            master._wishes.hear(f"x{n}", f"x{n}/latebinding", RoomWish("s", 1, 0), 0.0)
        seen.append(master._floor_s)
    assert seen[0] < FLOOR_S / 3 and seen[1:] == [FLOOR_S, FLOOR_S]


def test_a_site_that_shrinks_is_small_again(scene):
    """Pauses and stores were those of all the pilots that had ever been there."""
    agent = next(a for a in scene.bed._agents if a.speaks is not None)
    master, offer = agent.speaks, agent._host.members()[0].offer
    for n in range(FLOOR_PILOTS):
        master.on_wish(f"x{n}/latebinding", RoomWish("s", 1, 0))
    before = master._floor_s
    for n in range(FLOOR_PILOTS):
        agent._on_member(Member(f"x{n}", 1, 0, "dead", offer))
    assert master._floor_s < before / 4
    assert not any(name.startswith("x") for name, _ in master._wishes)


def asks(scene):
    return scene.bed.queue.counts["AskTasks"]


def test_a_question_that_may_wait_does_not_hold_up_one_that_may_not(scene):
    """Pilots were idle for seconds, since their master meant to ask later."""
    master = master_of(scene)
    name = next(name for name, _ in master._wishes)
    master._credit, master._idle_told, master._waiting = 50, 0, 1000
    master.on_wish(at(name, PART), RoomWish("infiniband", 1, 1))
    before = asks(scene)
    master.on_wish(at(name, PART), RoomWish("infiniband", 1, AHEAD_MAX))
    scene.bed.sim.run(until=scene.bed.sim.time + NEWS_S / 5)
    assert asks(scene) > before


def test_what_a_round_did_not_deal_out_is_still_wished_for(scene):
    """No pilot gets more than its part of all that waits; the others are not asked for again."""
    master = master_of(scene)
    pilots = [name for name, _ in master._wishes]
    master._pool = {("r", f"t{n}"): _Pooled(listed(f"t{n}"), n + 1) for n in range(8)}
    ranks = tuple((n, 0.0) for n in range(1, 9))
    ranked = [Ranked(name, ranks, 0, 100, 0.0, 0) for name in pilots]
    open_ = {pooled.number: pooled.listed for pooled in master._pool.values()}
    master._round = current = Round(1, open_, True, set(), ranked)
    master._end(current)
    assert not master._pool
    assert [wish.ahead for _, wish in master._wishes] == [98] * len(pilots)


# -- what a pilot can still do, and what is there ------------------------------------------------


def bound(half, task, takes_s=0.0, inputs=(), attempt=1, needs=None):
    files = tuple(FileRecord(digest, digest, 50 << 20) for digest in inputs)
    claim = msgspec.msgpack.encode(PilotClaim(takes_s, False))
    job = CommandJob(task, task, 1, "", inputs=files)
    bind = Bind("r", task, attempt, job, needs or Needs(), strategy=NAME, claim=claim)
    half.admitted(bind)
    return bind


def test_a_task_ahead_is_judged_by_the_lifetime_that_will_be_left(scene):
    half = half_of(scene)
    half._ends_at = half._world.now() + 3600.0
    assert half.lifetime_s == 3600.0
    long = bound(half, "long", 3000.0)
    assert half.lifetime_s == 600.0 and half.room() == PilotRoom(0, 1)
    tasks = ((1, listed("long", takes_s=700.0)), (2, listed("short", takes_s=500.0)))
    ranked = scene.say(TaskList(1, "p4/tester", 7, 0, tasks, (1, 2))).last(RankReply).ranked
    assert [number for number, _ in ranked.ranks] == [2]
    claim = msgspec.msgpack.encode(PilotClaim(700.0, False))
    late = Bind("r", "late", 1, PauseJob("0.1", "t", 1, 1.0), Needs(), strategy=NAME, claim=claim)
    assert "will be gone" in half.objection("w/run", late)
    bound(half, "next", 700.0)
    assert half.room() == PilotRoom(0, 0)
    half.over(long, JobEnded("succeeded"), began=True)
    assert not half.objection("w/run", late)


def test_how_long_a_task_waits_is_seen_from_all_that_is_here(scene, monkeypatch):
    half, capacity = half_of(scene), Capacity(4.0, 8 << 30, 1 << 40)
    monkeypatch.setattr(half._machine, "capacity", capacity)
    half._ends_at = half._world.now() + 3600.0
    running = {("r", f"t{n}", 1): 100.0 * n for n in range(1, 5)}
    looks = {key: Look("running", None, elapsed_s) for key, elapsed_s in running.items()}
    monkeypatch.setattr(half._machine, "look", lambda key: looks.get(key, Look("waiting")))
    for n in range(1, 5):
        assert half.lifetime_s == 3600.0
        bound(half, f"t{n}", 1000.0)
    assert half.lifetime_s == 3000.0  # of 900, 800, 700 and 600 seconds
    bound(half, "wide", 50.0, needs=Needs(cores=2))
    assert half.lifetime_s == 3600.0 - 750.0
    bound(half, "absurd", NAN)
    assert half.lifetime_s == 3600.0 - 750.0


class Clock:
    """In place of a world: nothing else happens meanwhile."""

    time = 0.0

    def now(self):
        return self.time

    elapsed = now


def test_a_task_that_has_waited_has_not_run_meanwhile(scene, monkeypatch):
    """It was taken for done nearly, for it had been here as long as the one before it."""
    half, clock, state = half_of(scene), Clock(), {"a": "running", "b": "waiting"}
    monkeypatch.setattr(half, "_world", clock)
    monkeypatch.setattr(half._machine, "look", lambda key: Look(state[key[1]], None, clock.time))
    half._ends_at = 7000.0
    first = bound(half, "a", 3000.0)
    bound(half, "b", 3000.0)
    assert half.lifetime_s == 1000.0
    clock.time = 3000.0
    half.over(first, JobEnded("succeeded"), began=True)
    state["b"] = "running"
    assert half.lifetime_s == 1000.0
    clock.time = 5000.0
    assert half.lifetime_s == 1000.0


def test_of_a_task_that_never_began_no_files_are_held_that_it_would_have_brought(scene):
    half, told = half_of(scene), []
    half.on_files = lambda made, gone: told.append((list(made), list(gone)))
    before = bound(half, "before", inputs=["old"])
    half.over(before, JobEnded("succeeded"), began=True)
    for task, ended in (("refused", None), ("taken back", JobEnded("cancelled"))):
        half.over(bound(half, task, inputs=["old", "new"]), ended, began=False)
        assert list(half.held) == ["old"]
        assert told[-1] == ([], ["new"])
    taken, other = (bound(half, task, inputs=["new"]) for task in ("taken", "other"))
    half.over(taken, JobEnded("cancelled"), began=False)
    half.over(other, JobEnded("succeeded"), began=True)
    assert list(half.held) == ["old", "new"]


@pytest.mark.parametrize("outcome", ["failed", "cancelled", "lost"])
def test_a_promise_of_another_attempt_holds_room(scene, outcome):
    half = half_of(scene)
    half.over(bound(half, "a"), JobEnded(outcome), began=True)
    half.promise("r", "a", Needs())
    assert half.room().places == 0
    bound(half, "a", attempt=2)
    half.promise("r", "a", Needs())
    assert not half._promised


# -- what makes no sense --------------------------------------------------------------------------

ABSURD = [NAN, INF, -INF, 1e300]


def offered(scene, *tasks):
    master = master_of(scene)
    master.on_handout(Handout(tasks))
    return master


def asked(scene, master, names=("p2", "p4"), places=1):
    """A round, under way, of pilots that answer when a test says so."""
    for name in names:
        master.on_wish(at(name, "quiet"), RoomWish("infiniband", places, 0))
        master._wishes.get(name).ripe_s = 0.0
    master._begin()
    return master._round


def answer(master, number, *ranked):
    for one in ranked:
        master.on_reply(at(one.pilot, PART), RankReply(number, one))


@pytest.mark.parametrize(
    "absurd",
    [
        *({"urgency": number} for number in ABSURD),
        *({"needs": Needs(cores=number)} for number in (NAN, INF, -1.0)),
        {"takes_s": NAN},
        {"inputs": (("in", "d", -1),)},
    ],
    ids=lambda absurd: repr(absurd)[:40],
)
def test_a_task_that_makes_no_sense_is_neither_dealt_out_nor_judged(scene, absurd):
    """It ended every pilot that was told of it, and their master."""
    master = offered(scene, listed("absurd", **absurd), listed("good"))
    assert [task for _, task in master._pool] == ["good"]
    tasks = ((1, listed("absurd", **absurd)), (2, listed("good")))
    ranked = scene.say(TaskList(1, "p4/tester", 7, 0, tasks, (1, 2))).last(RankReply).ranked
    assert [number for number, _ in ranked.ranks] == [2]


def test_a_task_that_is_too_long_to_be_told_of_is_not_dealt_out(scene):
    inputs = tuple((f"{'x' * 2100}{n}", "d", 1) for n in range(200))
    master = offered(scene, listed("long", inputs=inputs), listed("good"))
    assert [task for _, task in master._pool] == ["good"]


@pytest.mark.parametrize("rank", ABSURD)
@pytest.mark.parametrize("exact", [True, False])
def test_ranks_that_are_no_numbers_are_not_dealt_by(scene, rank, exact):
    inputs = (("f", "d", 10**8),)
    tasks = [listed(name, exact=exact, inputs=inputs) for name in ("a", "b")]
    master = offered(scene, *tasks)
    current = asked(scene, master)
    one, other = current.open
    bad = Ranked("p2", ((one, rank), (other, 1.0)), 1, 0, rank, 10**9)
    assert [found.ranks for found in decoded(encoded([bad]))] == [((other, 1.0),)]
    answer(master, current.number, bad, Ranked("p4", (), 1, 0, 1.0, 10**9))
    assert ("r", current.open[one].task) in master._pool


def test_an_answer_says_no_more_room_than_a_wish_may(scene):
    master = offered(scene, *(listed(f"t{n}") for n in range(300)))
    current = asked(scene, master)
    some = next(iter(current.open))
    ranks = tuple((some, 1.0) for _ in range(80_000))
    greedy = Ranked("p2", ranks, 10**9, 10**9, 1e300, 10**15)
    assert [len(one.ranks) for one in merged_back([greedy] * 3)] == [1]
    modest = Ranked("p4", (), -(10**9), -(10**9), 1.0, -1)
    answer(master, current.number, greedy, modest)
    master._end(current)
    assert 0 <= master._wishes.places <= 4 * PLACES_MAX and master._wishes.get("p4") is None
    assert 0 <= master._wishes.ahead <= 4 * AHEAD_MAX


def merged_back(ranked):
    return decoded(merged([encoded([one]) for one in ranked]))


def test_a_promise_of_what_no_machine_has_holds_no_room(scene):
    scene.say(TaskList(1, "p4/tester", 7, 0, ((1, listed("a")),), (1,)))
    needs = [Needs(cores=cores) for cores in (NAN, INF, -1000.0)]
    scene.say(PromisedTasks(tuple(("r", f"t{n}", one) for n, one in enumerate(needs))))
    assert half_of(scene).room().places == 1


# -- what a master tells --------------------------------------------------------------------------


def test_of_a_task_the_newest_is_known_and_told_anew(scene):
    """Its inputs may be others, if what made them was lost."""
    master = offered(scene, listed("a", generation=3))
    for generation, number in ((3, 5), (2, 5), (4, 0), (3, 0)):
        master._pool["r", "a"].number = number or master._pool["r", "a"].number
        offered(scene, listed("a", generation=generation))
        pooled = master._pool["r", "a"]
        assert (pooled.listed.generation, pooled.number) == ((4, 0) if not number else (3, 5))


def test_what_a_list_has_no_room_for_comes_with_the_next(scene, monkeypatch):
    monkeypatch.setattr("sureline.strategies.latebinding.sense.PAGE_BYTES_MAX", 1000)
    long = (("x" * 2000, "d", 1),)
    master = offered(scene, listed("a"), listed("long", inputs=long), listed("b"))
    current, last, told = asked(scene, master), 0, []
    for _ in range(4):
        said = master._list(current, current.open, last)
        last = _last_of(said)
        told.append([listed.task for _, listed in said.tasks])
        assert len(said.open) == sum(map(len, told))
    assert told == [["a"], ["long"], ["b"], []]
