"""Finding and reading the copies that keepers have of a run, by one who is no part of it."""

from __future__ import annotations

from signed import ROLL, Chartered, sealed
from toy_grid import ToyGrid

from sureline.journal.events import Opened, Submitted, TaskReady, encode
from sureline.journal.schema import POSITIONS_PER_EPOCH
from sureline.overlay.kademlia import Kademlia
from sureline.run.copies import (
    TOPIC,
    CopyReader,
    RunCopy,
    answer_with,
    merge_copies,
)
from sureline.run.keeper import Keeper
from sureline.run.kept import KeptInMemory, Term
from sureline.run.presence import Presence
from sureline.run.presence import part as driver_part

RUN = "flow-abc123"
GRAPH = bytes(range(256)) * 3000  # three pieces
FIRST = encode(Submitted(1.0, RUN, "flow", 3))
CHARTERED = Chartered(RUN, GRAPH, FIRST)


def events_of(epoch, count):
    """Of the first epoch, with the submission."""
    first = epoch * POSITIONS_PER_EPOCH + 1
    ready = [encode(TaskReady(3.0, f"t{epoch}-{number}")) for number in range(count - 1)]
    events = list(enumerate([encode(Opened(2.0, epoch, "w", 1)), *ready], first))
    return [(1, FIRST), *events[:-1]] if epoch == 1 else events


class Scene:
    def __init__(self):
        self.grid = ToyGrid()
        self.stores = {}
        self.nodes = {}
        self.read, self.again = [], 0

    def keeper(self, node, epoch, events, writer="w"):
        store = self.stores[node] = KeptInMemory()
        self.signer = CHARTERED.begin(writer, epoch)
        store.open(RUN, Term(epoch, writer, self.signer.papers), 0, lambda refused: None)
        store.keep_graph(RUN, GRAPH, lambda refused: None)
        for start in range(0, len(events), 400):
            self.add(node, events[start : start + 400])
        me = f"{node}/keeper"
        self.grid.join(Keeper(me, self.grid.place(me), store, ROLL))
        kademlia = self._kademlia(node)
        kademlia.on_broadcast(TOPIC, answer_with(node, store.known), merge_copies)

    def add(self, node, events):
        store = self.stores[node]
        told = sealed(self.signer, events, store.events(RUN))
        store.add(RUN, events, told, lambda refused: None)

    def _kademlia(self, node):
        me = f"{node}/kademlia"
        made = self.nodes[node] = Kademlia(me, self.grid.place(me))
        self.grid.join(made)
        made.join([f"{other}/kademlia" for other in self.nodes if other != node], lambda n: None)
        return made

    def reader(self):
        kademlia = self._kademlia("r")
        reader = CopyReader("r/reader", self.grid.place("r/reader"), kademlia, ROLL)
        self.grid.join(reader)
        self.grid.run(lambda: self.grid.time > 30.0)
        return reader

    def found(self, reader):
        found = []
        reader.find("flow", found.append)
        self.grid.run(lambda: found)
        return found[0]

    def copy(self, copies):
        def begin_again():
            self.again += 1
            self.read.clear()

        return RunCopy(copies, ROLL, lambda graph, events: self.read.extend(events), begin_again)

    def ask(self, action):
        answers = []
        action(answers.append)
        self.grid.run(lambda: answers)
        return answers[0]


def test_the_best_copy_is_read_whole_and_its_driver_asked_for():
    scene = Scene()
    events = events_of(1, 1500)
    scene.keeper("k1", 1, events[:700])
    scene.keeper("k2", 1, events)
    reader = scene.reader()
    copies = scene.found(reader)
    assert [copy.node for copy in copies] == ["k2", "k1"]
    copy = scene.copy(copies)
    assert scene.ask(lambda then: reader.read(copy, then)) is True
    assert (scene.read, copy.graph, copy.writer) == (events, GRAPH, "w")
    assert scene.ask(lambda then: reader.look_for_driver(copy, then)) is None
    me = f"w/{driver_part(RUN)}"
    scene.grid.join(Presence(me, scene.grid.place(me), RUN, 1, 77))
    assert scene.ask(lambda then: reader.look_for_driver(copy, then)).pid == 77


def test_of_two_keepers_of_different_lines_only_one_is_read():
    """The first dies while it is read; the other has a line that builds on less."""
    scene = Scene()
    trunk = events_of(1, 10)
    scene.keeper("k1", 7, [*trunk, *events_of(7, 1500)])
    scene.keeper("k2", 3, [*trunk[:6], *events_of(3, 20)])
    reader = scene.reader()
    copy = scene.copy(scene.found(reader))
    answers = []
    reader.read(copy, answers.append)
    scene.grid.run(lambda: len(scene.read) >= 500)
    scene.grid.crash("k1")
    scene.grid.run(lambda: answers)
    assert answers == [True]
    assert scene.read == [*trunk[:6], *events_of(3, 20)]
    assert scene.again == 1


def test_what_follows_is_read_on_and_nobody_is_left_in_the_end():
    scene = Scene()
    events = events_of(1, 20)
    scene.keeper("k1", 1, events[:10])
    reader = scene.reader()
    copy = scene.copy(scene.found(reader))
    assert scene.ask(lambda then: reader.read(copy, then)) is True
    scene.add("k1", events[10:])
    assert scene.ask(lambda then: reader.read(copy, then)) is True
    assert (scene.read, scene.again) == (events, 0)
    scene.grid.crash("k1")
    assert scene.ask(lambda then: reader.read(copy, then)) is False
