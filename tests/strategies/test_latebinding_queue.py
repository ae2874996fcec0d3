"""The task queue by its messages: what it keeps, whom it lets speak, whose turn it is."""

from __future__ import annotations

import msgspec
import pytest
from test_latebinding import listed

from sureline.strategies.latebinding.book import INDEX
from sureline.strategies.latebinding.messages import (
    Advice,
    AskShares,
    AskTasks,
    Enqueue,
    Enqueued,
    FileReport,
    Handout,
    NotMaster,
    Register,
    Registered,
    Request,
    RequestAnswer,
    SetShare,
    TheShares,
)
from sureline.strategies.latebinding.queue import (
    ANEW_S,
    KEEP_S,
    LOST_S,
    PART,
    RECALL_S,
    TaskQueue,
)
from sureline.strategies.latebinding.settings import GONE_S, MUTE_S, PAGE, PLACED_S
from sureline.strategies.latebinding.shares import ELSEWHERE_S, HALVED_S, SHARES_MAX, SWEEP_FROM
from sureline.workflow.model import Needs
from sureline.world.address import at, node_of
from sureline.world.agent import Agent
from sureline.world.simulated import Simulation

QUEUE = at("host", PART)
SITES = {"m": "north", "n": "north", "s": "south"}
"""Of the pilots."""


class Speaker(Agent):
    """Says what it is told to, and keeps what it hears."""

    def __init__(self, me, world):
        super().__init__(me, world)
        self.heard = []

    def receive(self, sender, message):
        self.heard.append(message)

    def last(self, kind):
        return next(m for m in reversed(self.heard) if isinstance(m, kind))

    def all(self, kind):
        return [m for m in self.heard if isinstance(m, kind)]


class Scene:
    def __init__(self):
        self.sim = Simulation(1)
        self.gone = set()
        self.sim.boot("host", self._boot)
        self.speakers = {}

    def _boot(self):
        world = self.sim.place(QUEUE)
        self.queue = TaskQueue(QUEUE, world, self._is_there, self._site_of)
        self.sim.join(self.queue)

    def _is_there(self, agent):
        return node_of(agent) not in self.gone

    def _site_of(self, agent):
        node = node_of(agent)
        return SITES.get(node) if agent == at(node, "latebinding") else None

    def restart(self):
        """As after a power cut."""
        self.sim.crash("host")
        self.sim.restart("host")

    def speaker(self, me):
        if me not in self.speakers:
            self.speakers[me] = Speaker(me, self.sim.place(me))
            self.sim.join(self.speakers[me])
        return self.speakers[me]

    def say(self, me, message, wait_s=1.0):
        speaker = self.speaker(me)
        speaker.world.send(QUEUE, message)
        self.wait(wait_s)
        return speaker

    def wait(self, seconds):
        self.sim.run(until=self.sim.time + seconds)

    def enqueue(self, run, tasks, user="ann", number=1, **others):
        told = entries(run, tasks, user, **others)
        return self.say(f"{user}/{run}", Enqueue(run, 1, number, 0, told))

    def sign(self, run="r", number=99, **others):
        return self.say(f"ann/{run}", Enqueue(run, 1, number, 0, **others)).last(Enqueued)

    def standing(self, run="r"):
        said = self.say("ann/cli", AskShares(1)).last(TheShares)
        return next(one for one in said.runs if one.run == run)

    def request(self, me="p/latebinding", features=(2.0, 1e9, 1e9, 0.0, 2.0, 1e9, 1e9), **others):
        asked = {"tags": {}, "held": (), "tracked": False, **others}
        return self.say(me, Request("north", features, **asked)).last(RequestAnswer).found

    def ask(self, pilots, me="m/latebinding", site="north", placed=(), held=1):
        asked = AskTasks(site, tuple(pilots), (), len(pilots), tuple(placed), held)
        return self.say(me, asked).last(Handout)


@pytest.fixture
def scene():
    return Scene()


def names(handout):
    return [task.task for task in handout.tasks]


def entries(run, tasks, user="ann", **others):
    return tuple(listed(task, run, writer=f"{user}/{run}", **others) for task in tasks)


def test_what_was_acknowledged_survives_a_power_cut(scene):
    """Its run tells it again, for the queue says that it has begun anew; what is gone since stays
    gone, and so does what is under way."""
    writer = scene.enqueue("r", ["a", "b", "c"])
    first = writer.last(Enqueued)
    assert first.waiting == 3
    scene.say("ann/r", Enqueue("r", 1, 2, 0, gone=("b",)))
    scene.restart()
    again = scene.say("ann/r", Enqueue("r", 1, 3, 0)).last(Enqueued)
    assert again.memory != first.memory and again.waiting == 0
    assert not names(scene.ask(["p1", "p2", "p3"]))
    whole = Enqueue("r", 1, 4, 0, entries("r", ["a", "c"]), whole=True)
    told = scene.say("ann/r", whole).last(Enqueued)
    assert told.memory == again.memory and told.waiting == 2
    assert sorted(names(scene.speaker("m/latebinding").last(Handout))) == ["a", "c"]


def test_a_queue_that_is_started_again_says_so_to_the_runs_it_knew(scene):
    first = scene.enqueue("r", ["a"]).last(Enqueued)
    scene.wait(KEEP_S)
    scene.restart()
    scene.say("m/latebinding", Register("north"))
    again = scene.speaker("ann/r").last(Enqueued)
    assert again.number == 0 and again.memory != first.memory


def test_a_run_that_was_forgotten_is_told_that_nothing_is_known_of_it(scene):
    first = scene.enqueue("r", ["a"]).last(Enqueued)
    scene.wait(GONE_S + 5.0)
    again = scene.sign()
    assert again.waiting == 0 and again.memory != first.memory


def test_priorities_and_what_was_used_survive_a_restart(scene):
    scene.enqueue("r", ["a", "b"])
    scene.ask(["p1"])
    scene.say("ann/cli", SetShare(1, run="r", priority=7))
    used_s = scene.standing().used_s
    scene.wait(KEEP_S + 5.0)
    scene.restart()
    found = scene.standing()
    assert found.priority == 7 and used_s * 0.9 < found.used_s <= used_s
    scene.enqueue("r", ["c", "d"])
    scene.enqueue("s", ["x", "y"], user="bob")
    assert names(scene.ask(["p1"], held=9)) == ["x"]


def test_an_index_that_is_damaged_is_none(scene):
    scene.enqueue("r", ["a"])
    scene.sim.place(QUEUE).put(INDEX, b"\xc1 nonsense")
    scene.restart()
    assert scene.enqueue("r", ["a"]).last(Enqueued).waiting == 1


def test_a_queue_without_memory_says_another_number(scene):
    first = scene.enqueue("r", ["a"]).last(Enqueued)
    other = Scene()
    other.sim.random.seed(7)
    assert other.enqueue("r", ["a"]).last(Enqueued).memory != first.memory


def test_a_site_is_not_given_more_than_it_can_begin_and_hears_of_the_rest_later(scene):
    scene.enqueue("r", [f"t{n}" for n in range(5)])
    assert len(names(scene.ask(["p1", "p2"]))) == 2
    master = scene.speaker("m/latebinding")
    scene.say("m/latebinding", AskTasks("north", ("p3",) * 9, (), 9, (), 2))
    assert sum(len(h.tasks) for h in master.all(Handout)) == 5
    scene.enqueue("r", ["late"], number=2)
    assert names(master.last(Handout)) == ["late"]


def test_two_sites_share_what_there_is(scene):
    for me, site in (("m/latebinding", "north"), ("s/latebinding", "south")):
        scene.say(me, AskTasks(site, ("p",) * 10, (), 20, (), 0))
    scene.enqueue("r", [f"t{n}" for n in range(6)])
    given = [scene.speaker(f"{m}/latebinding").last(Handout).tasks for m in "ms"]
    assert [len(tasks) for tasks in given] == [3, 3]


def test_the_first_pilot_of_a_site_speaks_for_it_until_it_is_gone(scene):
    for me in ("m/latebinding", "n/latebinding"):
        said = scene.say(me, Register("north")).last(Registered)
        assert said.master == "m/latebinding"
    other = scene.say("n/latebinding", AskTasks("north", ("p",), (), 1, ()))
    assert other.last(NotMaster).master == "m/latebinding"
    scene.gone.add("m")
    scene.enqueue("r", ["a"])
    assert names(scene.ask(["n"], me="n/latebinding")) == ["a"]


def test_what_a_master_keeps_to_itself_is_given_to_others(scene):
    scene.enqueue("r", ["a"])
    assert names(scene.ask(["p"])) == ["a"]
    assert not names(scene.ask(["q"], me="s/latebinding", site="south"))
    scene.gone.add("m")
    scene.wait(5.0)
    assert names(scene.speaker("s/latebinding").last(Handout)) == ["a"]


def test_what_was_placed_in_vain_waits_again(scene):
    scene.enqueue("r", ["a"])
    scene.ask(["p"])
    assert not names(scene.ask(["q"], placed=[("r", "a", 1)]))
    scene.wait(PLACED_S + 4.0)
    assert names(scene.speaker("m/latebinding").last(Handout)) == ["a"]


def test_nothing_is_given_out_of_a_run_whose_writer_is_silent(scene):
    """It would bind nothing, and pilots would hold room for it again and again: its driver was
    killed, or has to ask its voters anew."""
    scene.enqueue("r", ["a"])
    scene.wait(MUTE_S + 5.0)
    assert not names(scene.ask(["p"]))
    scene.enqueue("s", ["b"], user="bob")
    master = scene.speaker("m/latebinding")
    assert names(master.last(Handout)) == ["b"]
    scene.ask(["p"], placed=[("s", "b", 1)], held=0)
    scene.say("ann/r", Enqueue("r", 1, 2, 0))
    assert names(master.last(Handout)) == ["a"]


def test_word_of_an_earlier_writers_placement_does_not_concern_the_next_ones_task(scene):
    """A round placed a task, and its writer died before it heard of that. The next writer enqueues
    it again, and what the master then says of the first one must not make the queue believe that
    it has let go of the second: when that one is not wanted any more, its master has to hear it."""
    scene.enqueue("r", ["a", "b"], generation=1)
    assert sorted(names(scene.ask(["p", "q"]))) == ["a", "b"]
    scene.wait(MUTE_S)
    again = entries("r", ["a", "b"], "bob", generation=2)
    scene.say("bob/r", Enqueue("r", 2, 1, 0, again, whole=True))
    master = scene.speaker("m/latebinding")
    assert set(master.last(Handout).gone) == {("r", "a"), ("r", "b")}
    assert sorted(names(scene.ask(["p", "q"], held=0))) == ["a", "b"]
    scene.ask(["p"], placed=[("r", "a", 1), ("r", "b", 1)], held=2)
    scene.say("bob/r", Enqueue("r", 2, 2, 0, over=True))
    assert set(master.last(Handout).gone) == {("r", "a"), ("r", "b")}


def test_a_master_is_told_that_a_task_is_there_anew(scene):
    scene.enqueue("r", ["a"], generation=1)
    assert names(scene.ask(["p"])) == ["a"]
    scene.enqueue("r", ["a"], number=2, generation=2)
    assert (("r", "a"),) in [said.gone for said in scene.speaker("m/latebinding").all(Handout)]


def test_a_master_that_has_less_than_it_was_given_is_given_all_anew(scene):
    scene.enqueue("r", ["a", "b"])
    assert sorted(names(scene.ask(["p", "q"]))) == ["a", "b"]
    assert not names(scene.ask(["p"], held=0))  # it may be under way
    scene.wait(LOST_S)
    again = scene.ask(["p"], held=1)
    assert again.whole and sorted(names(again)) == ["a", "b"]
    scene.wait(LOST_S)
    assert not names(scene.ask(["p"], held=1, placed=[("r", "a", 1)]))


def test_what_one_site_keeps_is_called_back_for_pilots_that_are_idle_elsewhere(scene):
    """Also a task whose inputs lie at the first site; not one of the paper's architecture."""
    scene.say("m/latebinding", AskTasks("north", (), (), 9, (), 0))
    scene.enqueue("r", ["a", "b"], home="north")
    north = scene.speaker("m/latebinding")
    assert sorted(names(north.last(Handout))) == ["a", "b"]
    assert not names(scene.ask(["q"], me="s/latebinding", site="south", held=0))
    scene.wait(RECALL_S + 2.0)
    (given,) = names(scene.speaker("s/latebinding").last(Handout))
    assert north.last(Handout).gone == (("r", given),)


def test_what_waits_for_its_site_as_in_the_paper_is_not_called_back(scene):
    scene.say("m/latebinding", AskTasks("north", (), (), 9, (), 0))
    scene.enqueue("r", ["a"], home="north", architecture="distributed")
    scene.ask(["q"], me="s/latebinding", site="south", held=0)
    scene.wait(RECALL_S + 2.0)
    assert not names(scene.speaker("s/latebinding").last(Handout))


def test_a_changed_priority_deals_out_anew_at_once_and_only_its_user_may(scene):
    scene.enqueue("slow", ["a", "b"])
    scene.enqueue("hot", ["x", "y"])
    assert set(names(scene.ask(["p", "q"]))) & {"a", "b"}
    refused = scene.say("bob/cli", SetShare(1, run="hot", priority=9)).last(TheShares)
    assert "hot is a run of ann" in refused.refused
    said = scene.say("ann/cli", SetShare(1, run="hot", priority=9)).last(TheShares)
    assert {one.run: one.priority for one in said.runs} == {"slow": 0, "hot": 9}
    handout = scene.speaker("m/latebinding").last(Handout)
    assert handout.whole and sorted(names(handout)) == ["x", "y"]
    assert scene.sign("hot").priority == 9, "its run tells the next queue of that"
    assert scene.say("ann/cli", SetShare(1, run="no", priority=1)).last(TheShares).refused


def test_a_run_that_comes_later_does_not_wait_for_the_stores_of_the_sites(scene):
    scene.say("m/latebinding", AskTasks("north", (), (), 3, (), 0))
    scene.enqueue("long", [f"t{n}" for n in range(9)], user="ann")
    master = scene.speaker("m/latebinding")
    assert len(names(master.last(Handout))) == 3
    scene.wait(ANEW_S)
    scene.enqueue("new", ["x"], user="bob")
    handout = master.last(Handout)
    assert handout.whole and "x" in names(handout) and len(names(handout)) == 3


def test_shares_survive_and_runs_that_are_over_leave_nothing(scene):
    scene.say("ann/cli", SetShare(1, user="bob", share=3.0))
    scene.enqueue("r", ["a"])
    scene.restart()
    said = scene.say("ann/cli", AskShares(1)).last(TheShares)
    assert said.shares == {"bob": 3.0} and [one.run for one in said.runs] == ["r"]
    scene.say("ann/r", Enqueue("r", 1, 9, 0, over=True))
    assert not scene.say("ann/cli", AskShares(2)).last(TheShares).runs


def test_shares_are_numbers_and_only_so_many_are_kept(scene):
    ann = "ann/cli"
    for strange in (float("nan"), float("inf")):
        assert scene.say(ann, SetShare(1, user="bob", share=strange)).last(TheShares).refused
    for number in range(SHARES_MAX):
        scene.say(ann, SetShare(1, user=f"u{number}", share=2.0), wait_s=0.01)
    full = scene.say(ann, SetShare(1, user="bob", share=2.0)).last(TheShares)
    assert "bob" not in full.shares and str(SHARES_MAX) in full.refused
    assert scene.say(ann, SetShare(1, user="u0", share=3.0)).last(TheShares).shares["u0"] == 3.0
    assert "u0" not in scene.say(ann, SetShare(1, user="u0", share=1.0)).last(TheShares).shares
    assert scene.say(ann, SetShare(1, user="bob", share=2.0)).last(TheShares).shares["bob"] == 2.0


def test_only_pilots_of_a_site_speak_for_it_and_sites_without_anybody_are_forgotten(scene):
    """Or anybody could fill the queue with sites of his invention, or have all tasks listed."""
    for me in ("s/latebinding", "m/other", "mal/latebinding"):
        heard = scene.say(me, Register("north")).heard
        scene.say(me, AskTasks("north", ("p",), (), 1, ()))
        assert not heard
    scene.say("m/latebinding", Register("north"))
    scene.say("s/latebinding", Register("south"))
    said = scene.say("s/latebinding", AskTasks("north", ("p",), (), 1, ())).last(NotMaster)
    assert said.master == "m/latebinding"
    sites = {"north": "m", "south": "s"}
    assert scene.say("ann/cli", AskShares(1)).last(TheShares).sites == sites
    scene.enqueue("r", ["a"], user="ann")
    scene.gone |= {"m", "s"}
    for number in range(2, 40):
        scene.say("ann/r", Enqueue("r", 1, number, 0), wait_s=GONE_S / 30)
    assert not scene.say("ann/cli", AskShares(1)).last(TheShares).sites


def test_files_of_pilots_that_are_gone_are_forgotten(scene):
    files = (("in", "d1", 10),)
    scene.enqueue("r", ["a", "b"], architecture="pre-dht", inputs=files)
    held = []
    scene.say("p/latebinding", FileReport(("d1",), ()))
    for gone in (set(), {"p"}):
        scene.gone |= gone
        scene.wait(5.0)
        assert scene.request(tracked=True)
        (placed,) = scene.speaker("ann/r").last(Advice).placements
        held.append(placed.held_bytes)
    assert held == [10, 0]


def test_files_are_kept_by_node_and_only_of_those_who_are_there(scene):
    scene.gone.add("away")
    scene.say("away/latebinding", FileReport(("d0",), ()))
    for number in range(100):
        scene.say(f"mal/x{number}", FileReport((f"d{number}",), ()), 0.0)
    scene.wait(1.0)
    assert list(scene.queue._files) == ["mal"]


def test_a_writer_of_an_earlier_epoch_is_not_heard(scene):
    scene.say("ann/r", Enqueue("r", 2, 1, 0, (listed("new", "r", writer="ann/r"),)))
    before = len(scene.speaker("ann/r").heard)
    scene.say("ann/r", Enqueue("r", 1, 2, 0, (listed("old", "r", writer="ann/r"),)))
    assert len(scene.speaker("ann/r").heard) == before
    assert names(scene.ask(["p", "q"])) == ["new"]


def test_what_is_said_twice_counts_once(scene):
    """A run that hears no answer in time says it again. That all that waits is in messages from
    that one on was true when it was said first: what came after it must not be forgotten, nor what
    is gone by now be there again."""
    pages = [tuple(listed(t, "r", writer="ann/r") for t in names_) for names_ in ("ab", "cd")]
    whole = Enqueue("r", 1, 1, 0, pages[0], whole=True)
    scene.say("ann/r", whole)
    scene.say("ann/r", Enqueue("r", 1, 2, 0, pages[1], gone=("a",)))
    again = scene.say("ann/r", whole).last(Enqueued)
    assert (again.number, again.waiting) == (1, 3)
    assert sorted(names(scene.ask(["p"] * 4, held=0))) == ["b", "c", "d"]


# -- messages that come late, or are said again --------------------------------------------------


def test_what_was_told_after_all_that_waits_is_not_lost_when_it_comes_before(scene):
    scene.say("ann/r", Enqueue("r", 1, 2, 0, entries("r", ["b"])))
    whole = Enqueue("r", 1, 1, 0, entries("r", ["a"]), whole=True)
    assert scene.say("ann/r", whole).last(Enqueued).waiting == 2


def test_what_was_told_before_all_that_waits_is_not_heard_after_it(scene):
    assert scene.sign(number=5, tasks=entries("r", ["a"]), whole=True).waiting == 1
    assert scene.sign(number=4, tasks=entries("r", ["b"]), gone=("a",)).waiting == 1


def test_word_that_a_task_is_gone_does_not_concern_one_that_was_told_later(scene):
    scene.enqueue("r", ["a"])
    scene.sign(number=3, tasks=entries("r", ["a"], generation=2))
    assert scene.sign(number=2, gone=("a",)).waiting == 1
    assert scene.sign(number=1, tasks=entries("r", ["a"])).waiting == 1
    (given,) = scene.ask(["p"]).tasks
    assert given.generation == 2


def test_what_is_gone_is_not_there_again_when_its_telling_comes_late(scene):
    scene.sign(number=2, gone=("a",))
    assert scene.sign(number=1, tasks=entries("r", ["a"])).waiting == 0
    assert scene.sign(number=3, tasks=entries("r", ["a"], generation=2)).waiting == 1


# -- what is acknowledged is there ---------------------------------------------------------------


def test_very_many_small_messages_are_all_kept(scene):
    for number in range(1, 2101):
        told = entries("r", [f"t{number}"])
        scene.say("ann/r", Enqueue("r", 1, number, 0, told), wait_s=0.001)
    scene.wait(20.0)
    assert scene.sign(number=9999).waiting == 2100


def test_what_there_is_no_room_for_is_not_acknowledged_until_there_is(scene, monkeypatch):
    monkeypatch.setattr("sureline.strategies.latebinding.book.TASKS_MAX", 3)
    writer = scene.enqueue("r", ["a", "b"])
    more = Enqueue("r", 1, 2, 0, entries("r", ["c", "d"]), gone=("a",))
    scene.say("ann/r", Enqueue("r", 1, 3, 0, entries("r", ["e", "f"])))
    assert writer.last(Enqueued).number == 1
    assert scene.say("ann/r", more).last(Enqueued).waiting == 3  # one of them was gone
    scene.sign(number=4, gone=("b", "c"))
    later = scene.say("ann/r", Enqueue("r", 1, 3, 0, entries("r", ["e", "f"]))).last(Enqueued)
    assert (later.number, later.waiting) == (3, 3)


@pytest.mark.parametrize(
    "absurd",
    [
        {"takes_s": float("nan")},
        {"takes_s": -1e9},
        {"urgency": float("inf")},
        {"needs": Needs(cores=-1)},
        {"requires": "x" * 100_000},
    ],
)
def test_a_task_that_makes_no_sense_is_left_to_its_run(scene, absurd):
    scene.enqueue("r", ["a"], **absurd)
    told = scene.enqueue("r", ["b"], number=2).last(Enqueued)
    assert (told.number, told.waiting) == (2, 1)
    assert names(scene.ask(["p1", "p2"])) == ["b"]


def test_what_is_handed_out_travels(scene):
    """A message that is longer than a frame is not sent at all."""
    names_ = [f"t{n}" for n in range(60)]
    scene.enqueue("r", names_[:30], requires="x" * 30_000)
    scene.enqueue("r", names_[30:], number=2, requires="x" * 30_000)
    scene.ask([f"p{n}" for n in range(60)])
    said = scene.speaker("m/latebinding").all(Handout)
    assert sum(len(one.tasks) for one in said) == 60
    assert max(len(msgspec.msgpack.encode(one)) for one in said) < 1 << 19
    assert not any(len(one.tasks) > PAGE for one in said)


# -- whose turn it is ----------------------------------------------------------------------------


def test_what_comes_back_without_having_been_bound_is_not_charged(scene):
    scene.enqueue("r", ["a", "b"])
    assert names(scene.ask(["p1", "p2"])) == ["a", "b"]
    before_s = scene.standing().used_s
    for number in range(10):
        scene.say("bob/cli", SetShare(number, user="carl", share=2.0 + number))
    assert scene.standing().used_s <= before_s
    scene.gone.add("m")
    scene.wait(5.0)
    assert scene.standing().used_s < 1.0


def test_what_was_bound_stays_charged(scene):
    scene.enqueue("r", ["a", "b"])
    scene.ask(["p1", "p2"])
    before_s = scene.standing().used_s
    scene.sign(number=2, gone=("a", "b"))
    assert scene.standing().used_s > 0.9 * before_s > 0


def test_what_is_given_out_after_a_long_sleep_counts(scene):
    scene.enqueue("r", ["a"])
    scene.sign(number=2, over=True)
    scene.wait(10 * HALVED_S)
    scene.enqueue("r", [f"t{n}" for n in range(30)])
    scene.ask([f"p{n}" for n in range(30)])
    before_s = scene.standing().used_s
    scene.wait(5.0)
    assert scene.standing().used_s > 0.9 * before_s > 0


@pytest.mark.parametrize("other", ["ann", "bob"])
def test_turns_count_for_tasks_that_have_waited_long_for_a_site_that_is_full(scene, other):
    """They may go anywhere by then, and come before what lies near of somebody whose turn is
    later."""
    scene.say("s/latebinding", AskTasks("south", (), (), 0, (), 0))
    scene.enqueue("r", [f"t{n}" for n in range(50)], user="ann", home="south")
    scene.enqueue("s", [f"t{n}" for n in range(50)], user=other)
    if other == "ann":
        scene.say("ann/cli", SetShare(1, run="r", priority=1000))
    scene.wait(ELSEWHERE_S + 1.0)
    given = [task.run for _ in range(10) for task in scene.ask(["p"], held=10**6).tasks]
    assert given.count("r") == {"ann": 10, "bob": 5}[other]


def test_entries_of_pilots_that_never_ask_do_not_pile_up(scene):
    """What waits again is entered anew for each pilot that holds its inputs."""
    scene.enqueue("r", [f"t{n}" for n in range(20)], holders=("away", "gone"))
    for number in range(200):
        scene.ask([f"p{n}" for n in range(20)], held=10**6)
        scene.say("ann/cli", SetShare(number, user="carl", share=2.0 + number / 100), wait_s=0.1)
        scene.say("ann/r", Enqueue("r", 1, 1000 + number, 0), wait_s=0.1)
    (run,) = scene.queue._book.shares.runs.values()
    kept = sum(map(len, [*run.heaps.values(), *run.of_pilot.values()]))
    assert kept <= 4 * 20 * 3 + SWEEP_FROM


# -- who is heard --------------------------------------------------------------------------------


def test_a_run_of_another_user_is_taken_over_only_when_its_writer_is_silent(scene):
    scene.enqueue("r", ["a", "b"])
    other = scene.say("mal/r", Enqueue("r", 1 << 40, 1, 0))
    assert not other.heard and scene.sign(number=2).waiting == 2
    scene.wait(MUTE_S)
    later = scene.say("bob/r", Enqueue("r", 2, 1, 0, entries("r", ["c"], "bob"), whole=True))
    assert later.last(Enqueued).waiting == 1
    before = len(scene.speaker("ann/r").heard)
    scene.say("ann/r", Enqueue("r", 1, 3, 0))
    assert len(scene.speaker("ann/r").heard) == before


def test_a_writer_that_is_started_again_is_heard_at_once(scene):
    scene.enqueue("r", ["a", "b"])
    again = scene.say("ann/r", Enqueue("r", 2, 1, 0, entries("r", ["b"]), whole=True))
    assert again.last(Enqueued).waiting == 1


def test_runs_that_are_silent_do_not_count_as_waiting(scene):
    scene.enqueue("r", ["a", "b"])
    assert scene.ask([], held=0).waiting == 2
    scene.wait(MUTE_S + 5.0)
    assert scene.ask([], held=0).waiting == 0


def test_what_one_site_keeps_is_called_back_though_a_silent_run_waits(scene):
    scene.enqueue("mute", ["x"], user="carl", home="nowhere")
    scene.wait(MUTE_S + 5.0)
    scene.say("m/latebinding", AskTasks("north", (), (), 9, (), 0))
    scene.enqueue("r", ["a", "b"], home="north")
    scene.sign("r", 2)
    scene.queue._book.mute("mute")
    scene.ask(["q"], me="s/latebinding", site="south", held=0)
    scene.wait(RECALL_S + 2.0)
    assert len(names(scene.speaker("s/latebinding").last(Handout))) == 1


# -- where the queue matches ---------------------------------------------------------------------


def test_nothing_is_matched_of_a_run_that_is_silent(scene):
    scene.enqueue("r", ["a"], architecture="centralized")
    scene.wait(MUTE_S + 5.0)
    assert not scene.request() and not scene.ask([]).central
    scene.sign()
    assert scene.speaker("m/latebinding").last(Handout).central and scene.request()


def test_of_equal_ranks_the_run_whose_turn_it_is_goes_first(scene):
    scene.enqueue("r", ["a"], architecture="centralized")
    scene.enqueue("s", ["b"], architecture="centralized")
    scene.say("ann/cli", SetShare(1, run="s", priority=10))
    assert scene.request()
    assert scene.speaker("ann/s").all(Advice) and not scene.speaker("ann/r").all(Advice)


def test_pilots_tell_of_their_files_as_long_as_any_task_asks_for_it(scene):
    scene.enqueue("r", ["a"], architecture="pre-dht")
    scene.enqueue("s", ["b"], architecture="centralized")
    assert scene.ask([]).tracked
    scene.sign(number=2, gone=("a",))
    said = scene.ask([])
    assert said.central and not said.tracked


@pytest.mark.parametrize("absurd", [float("nan"), float("inf"), -1.0, 1e300, "many"])
@pytest.mark.parametrize("place", range(7))
def test_a_pilot_may_say_anything_of_itself(scene, place, absurd):
    scene.enqueue("r", ["a"], architecture="centralized")
    features = [2.0, 1e9, 1e9, 0.0, 2.0, 1e9, 1e9]
    features[place] = absurd
    scene.request(features=tuple(features))
    assert scene.request("q/latebinding", features=()) is False


def test_all_runs_are_shown_or_it_is_said_how_many_are_not(scene, monkeypatch):
    for number in range(250):
        scene.enqueue(f"r{number}", ["a"])
    said = scene.say("ann/cli", AskShares(1)).last(TheShares)
    assert (len(said.runs), said.more) == (250, 0)
    monkeypatch.setattr("sureline.strategies.latebinding.queue.RUNS_MAX", 100)
    said = scene.say("ann/cli", AskShares(2)).last(TheShares)
    assert (len(said.runs), said.more) == (100, 150)
