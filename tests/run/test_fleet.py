"""Whom a writer asks to take part, and how many at once."""

from __future__ import annotations

from sureline.peer.capacity import Capacity
from sureline.peer.messages import Attach, Attached
from sureline.run.fleet import ASK_S, ASKED_MAX, Fleet
from sureline.run.port import Target
from sureline.run.standing import PeerStanding
from sureline.world.address import name_of
from sureline.world.agent import Agent
from sureline.world.simulated import Simulation


class Many:
    """A writer and very many targets, which answer when they are told to."""

    def __init__(self, count):
        self.sim = Simulation(1)
        self.asked = []
        self.world = self.sim.place("writer/run")
        self.fleet = Fleet(self.world, "r", 1, PeerStanding({}, 0.0, 0.0))
        for number in range(count):
            self.sim.join(Listener(f"p{number}/peer", self))
        for number in range(count):
            target = Target(f"p{number}", f"p{number}/peer", Capacity(1.0, 1 << 30))
            self.fleet.add(target)

    def wait(self, seconds=1.0):
        self.sim.run(until=self.sim.time + seconds)

    def answer(self, name):
        enlisted = self.fleet.get(name)
        self.fleet.heard(enlisted)
        page = Attached("r", 1, enlisted.serial, 1, 0, True, (), ())
        assert self.fleet.collect(enlisted, page) is not None
        enlisted.attached = True


class Listener(Agent):
    def __init__(self, me, many):
        super().__init__(me, many.sim.place(me))
        self._many = many

    def receive(self, sender, message):
        assert isinstance(message, Attach)
        self._many.asked.append(name_of(self.me))


def test_not_all_of_very_many_are_asked_at_once_but_all_in_the_end():
    many = Many(3 * ASKED_MAX)
    many.wait()
    first = [f"p{n}" for n in range(ASKED_MAX)]
    assert sorted(many.asked) == sorted(first)
    for name in first[:10]:
        many.answer(name)
    many.wait()
    assert len(many.asked) == ASKED_MAX + 10
    while len(set(many.asked)) < 3 * ASKED_MAX:  # those who never answer hold nobody up for long
        many.wait(ASK_S)
        before = len(many.asked)
        many.fleet.ask_some()
        many.wait(0.5)
        assert before < len(many.asked) <= before + ASKED_MAX


def test_who_is_wanted_is_asked_before_the_others_and_only_once():
    many = Many(2 * ASKED_MAX)
    last = f"p{2 * ASKED_MAX - 1}"
    many.fleet.ask_soon(many.fleet.get(last))
    many.fleet.ask_soon(many.fleet.get(last))
    many.wait()
    assert many.asked.count(last) == 1


def test_who_is_gone_is_not_asked():
    many = Many(2 * ASKED_MAX)
    for number in range(ASKED_MAX, 2 * ASKED_MAX):
        many.fleet.remove(f"p{number}")
    many.wait(ASK_S)
    many.fleet.ask_some()
    many.wait()
    assert set(many.asked) == {f"p{n}" for n in range(ASKED_MAX)}


def test_who_has_very_many_targets_speaks_to_each_less_often_and_says_so():
    """Below what each was told, or it would believe another writer."""
    quiet_s = []
    for count in (10, 700, 1500):
        many = Many(count)
        fleet = many.fleet
        told = fleet._quiet_s
        for name in ("p0", "p1"):
            many.answer(name)
        quiet_s.append(told)
        assert not fleet.is_due(fleet.get("p0"), unheard=False)
        many.wait(0.7 * told)
        assert fleet.is_due(fleet.get("p0"), unheard=False)
    assert quiet_s[0] < quiet_s[1] < quiet_s[2] < 100.0
