"""The task queue by its messages: what it keeps, whom it lets speak, whose turn it is."""

from __future__ import annotations

import pytest
from test_latebinding import listed

from sureline.strategies.latebinding.messages import (
    AskShares,
    AskTasks,
    Enqueue,
    Enqueued,
    FileReport,
    Handout,
    NotMaster,
    Register,
    Registered,
    SetShare,
    TheShares,
)
from sureline.strategies.latebinding.queue import (
    ANEW_S,
    LOST_S,
    PART,
    RECALL_S,
    TaskQueue,
)
from sureline.strategies.latebinding.settings import GONE_S, MUTE_S, PLACED_S
from sureline.strategies.latebinding.shares import SHARES_MAX
from sureline.world.address import at, node_of
from sureline.world.agent import Agent
from sureline.world.simulated import Simulation

QUEUE = at("host", PART)


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
        self.queue = TaskQueue(QUEUE, world, lambda agent: node_of(agent) not in self.gone)
        self.sim.join(self.queue)

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
        writer = f"{user}/{run}"
        entries = tuple(listed(t, run, writer=writer, **others) for t in tasks)
        return self.say(writer, Enqueue(run, 1, number, 0, entries))

    def ask(self, pilots, me="m/latebinding", site="north", placed=(), held=1):
        asked = AskTasks(site, tuple(pilots), (), len(pilots), tuple(placed), held)
        return self.say(me, asked).last(Handout)


@pytest.fixture
def scene():
    return Scene()


def names(handout):
    return [task.task for task in handout.tasks]


def test_what_was_acknowledged_survives_a_power_cut(scene):
    writer = scene.enqueue("r", ["a", "b", "c"])
    first = writer.last(Enqueued)
    assert first.waiting == 3
    scene.say("ann/r", Enqueue("r", 1, 2, 0, gone=("b",)))
    scene.sim.crash("host")
    scene.sim.restart("host")
    assert sorted(names(scene.ask(["p1", "p2", "p3"]))) == ["a", "b", "c"]  # gone is told again
    again = scene.say("ann/r", Enqueue("r", 1, 3, 0, gone=("b",))).last(Enqueued)
    assert again.memory == first.memory and again.waiting == 2


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
    again = tuple(listed(t, "r", writer="bob/r", generation=2) for t in ("a", "b"))
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
    assert scene.say("ann/cli", SetShare(1, run="no", priority=1)).last(TheShares).refused


def test_a_run_that_comes_later_does_not_wait_for_the_stores_of_the_sites(scene):
    scene.say("m/latebinding", AskTasks("north", (), (), 3, (), 0))
    scene.enqueue("long", [f"t{n}" for n in range(9)], user="ann")
    master = scene.speaker("m/latebinding")
    assert len(names(master.last(Handout))) == 3
    scene.wait(ANEW_S)
    scene.enqueue("new", ["x"], user="bob")
    handout = master.last(Handout)
    assert handout.whole and names(handout)[0] == "x" and len(names(handout)) == 3


def test_shares_survive_and_runs_that_are_over_leave_nothing(scene):
    scene.say("ann/cli", SetShare(1, user="bob", share=3.0))
    scene.enqueue("r", ["a"])
    scene.sim.crash("host")
    scene.sim.restart("host")
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


def test_a_pilot_speaks_for_one_site_and_sites_without_anybody_are_forgotten(scene):
    """Or one pilot could fill the queue with sites of its invention."""
    for number in range(20):
        scene.say("m/latebinding", Register(f"s{number}"), wait_s=0.1)
    scene.say("n/latebinding", Register("north"))
    assert scene.say("ann/cli", AskShares(1)).last(TheShares).sites == {"s19": "m", "north": "n"}
    scene.enqueue("r", ["a"], user="ann")
    scene.gone |= {"m", "n"}
    for number in range(2, 40):
        scene.say("ann/r", Enqueue("r", 1, number, 0), wait_s=GONE_S / 30)
    assert not scene.say("ann/cli", AskShares(1)).last(TheShares).sites


def test_files_of_pilots_that_are_gone_are_forgotten(scene):
    scene.enqueue("r", ["a"], architecture="pre-dht")
    scene.say("p/latebinding", FileReport(("d1",), ()))
    assert scene.queue._files
    scene.gone.add("p")
    scene.wait(5.0)
    assert not scene.queue._files


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
    scene.sim.crash("host")
    scene.sim.restart("host")
    assert scene.say("ann/r", whole).last(Enqueued).waiting >= 3
    assert {"b", "c", "d"} <= set(names(scene.ask(["p"] * 4, held=0)))
