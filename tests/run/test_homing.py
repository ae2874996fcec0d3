"""Results come home in the order of commits, a few at a time, whatever becomes of their tasks."""

from __future__ import annotations

import pytest
from toy_grid import ToyGrid, digest_of

from sureline.run import homing as module
from sureline.run.holders import Holders
from sureline.run.homing import UNDER_WAY_MAX, Homing
from sureline.workflow.files import FileRecord


class Scene:
    def __init__(self):
        self.grid = ToyGrid()
        self.holders = Holders("home", lambda peer: peer)
        self.came, self.gone, self.idle = [], [], []
        world = self.grid.place("home/run.r")
        self.under_way = 0
        self.most = 0
        fetch = world.fetch

        def counted(wanted, sources, done):
            def over(found):
                self.under_way -= 1
                done(found)

            self.under_way += 1
            self.most = max(self.most, self.under_way)
            fetch(wanted, sources, over)

        world.fetch = counted
        self.homing = Homing(
            world,
            self.holders,
            on_home=lambda task, ready: self.came.append((task, ready.file.path)),
            on_gone=lambda task, path: self.gone.append((task, path)),
            on_idle=lambda: self.idle.append(self.grid.time),
        )

    def made(self, task, *paths):
        """A task's files, which a peer holds."""
        records = [FileRecord(path, digest_of(path), 10) for path in paths]
        for record in records:
            self.grid.machine("p").files.add(record.digest)
            self.holders.add(record.digest, "p")
        self.homing.add(task, records)


@pytest.fixture
def scene():
    return Scene()


def test_all_come_and_not_too_many_at_once(scene):
    for task in range(30):
        scene.made(task, f"a{task}", f"b{task}")
    assert scene.homing.busy
    scene.grid.run(lambda: scene.idle)
    assert scene.came == [(task, f"{letter}{task}") for task in range(30) for letter in "ab"]
    assert scene.most == UNDER_WAY_MAX
    assert not scene.homing.busy


def test_what_is_dropped_on_its_way_leaves_its_place_to_others(scene):
    for task in range(UNDER_WAY_MAX):
        scene.made(task, f"a{task}")
    assert scene.under_way == UNDER_WAY_MAX
    for task in range(UNDER_WAY_MAX):
        scene.homing.drop(task)
    assert not scene.homing.busy
    for task in range(100, 110):
        scene.made(task, f"a{task}")
    scene.grid.run(lambda: len(scene.came) == 10, 60.0)
    assert {task for task, _ in scene.came} == set(range(100, 110))
    assert scene.gone == []


def test_what_is_dropped_before_its_turn_is_not_fetched(scene):
    for task in range(3 * UNDER_WAY_MAX):
        scene.made(task, f"a{task}")
    for task in range(UNDER_WAY_MAX, 3 * UNDER_WAY_MAX - 1):
        scene.homing.drop(task)
    scene.grid.run(lambda: scene.idle)
    kept = [*range(UNDER_WAY_MAX), 3 * UNDER_WAY_MAX - 1]
    assert [task for task, _ in scene.came] == kept
    assert digest_of(f"a{UNDER_WAY_MAX}") not in scene.grid.machine("home").files


def test_what_its_holder_has_no_more_is_given_up_after_some_tries(scene):
    scene.made(1, "a", "b")
    scene.grid.machine("p").files.discard(digest_of("a"))
    scene.grid.run(lambda: not scene.homing.busy)
    assert (scene.came, scene.gone) == ([(1, "b")], [(1, "a")])


def test_what_is_away_comes_when_its_holder_is_back(scene):
    away = True
    scene.holders._node_of = lambda peer: None if away else peer
    scene.made(1, "a")
    scene.grid.after(module.GRACE_S / 2, lambda: None)
    scene.grid.run(lambda: scene.grid.time >= module.GRACE_S / 2)
    away = False
    scene.homing.look_again()
    scene.grid.run(lambda: scene.came)
    assert scene.gone == []
