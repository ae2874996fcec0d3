"""A writer's hold on its run: who votes, as keepers come and go."""

from __future__ import annotations

from toy_grid import ToyGrid

from sureline.journal.events import Voters
from sureline.journal.schema import POSITIONS_PER_EPOCH
from sureline.run.grant import Epoch
from sureline.run.office import Office


class Scene:
    def __init__(self):
        self.grid = ToyGrid()
        self.lost = []
        place = self.grid.place("w/office")
        self.office = Office(place, "r", Epoch(1, "w:"), (), "~w", self, self.lost.append)
        self.office.begin()

    def last(self):
        return POSITIONS_PER_EPOCH + len(self.grid.machine("w").events)

    def second(self, keepers):
        """All of them answer, and have everything; twice, and time goes on."""
        for _ in range(2):
            over = []
            self.grid.after(0.5, lambda over=over: over.append(1))
            self.grid.run(lambda over=over: bool(over))
            for name in keepers:
                self.office.has(name, self.last())
            self.office.able(list(keepers), 4)
        self.office.tick()

    def named(self):
        return [e.voters for e in self.grid.machine("w").events if isinstance(e, Voters)]


def test_four_keepers_and_the_writer_vote_and_another_takes_the_place_of_one_that_is_gone():
    scene = Scene()
    for _ in range(20):
        scene.second("abcd")
    assert set(scene.named()[-1]) == {"~w", *"abcd"}
    for _ in range(20):
        scene.second("abce")
    assert set(scene.named()[-1]) == {"~w", *"abce"} and not scene.lost


def test_a_keeper_that_answers_late_now_and_then_does_not_come_and_go_with_every_word():
    """Each change of the voters is an event that all of them keep."""
    scene = Scene()
    for _ in range(10):
        scene.second("abc")
    before = len(scene.named())
    for number in range(60):
        scene.second("abcd" if number % 2 else "abc")
    assert len(scene.named()) <= before + 2, scene.named()
