"""Copies of runs that others keep: mirrored in order, fenced, replaced, read back whole."""

from __future__ import annotations

import asyncio
import errno
import functools
import os
import struct
import threading
import types

import msgspec
import pytest
from copy_reader import CopyReader
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from signed import ROLL, Chartered, sealed
from toy_grid import ToyGrid

from sureline.compose.run_copies import JournalRecorded, KeptJournals, import_copy, in_a_thread
from sureline.journal.events import Opened, RunEnded, Submitted, TaskEnded, TaskReady, encode
from sureline.journal.schema import POSITIONS_PER_EPOCH
from sureline.journal.store import Journal
from sureline.peer.messages import Fenced
from sureline.run import keeping
from sureline.run.grant import OWN, Epoch
from sureline.run.hearing import QUIET_S
from sureline.run.keeper import Keeper
from sureline.run.keeping import (
    KeeperAsk,
    KeepEvents,
    KeepRun,
    Kept,
    RunsKnown,
    last_common,
    line_on,
)
from sureline.run.kept import KeptInMemory, Sealed, Term, page
from sureline.run.mirror import BEAT_S, Mirror
from sureline.run.office import Office
from sureline.world.address import peer_of
from sureline.world.agent import Agent
from sureline.world.identity.signing import fold

RUN = "flow-abc123"
GRAPH = bytes(range(256)) * 3000  # three pieces
FIRST = encode(Submitted(1.0, RUN, "flow", 3))
CHARTERED = Chartered(RUN, GRAPH, FIRST)


class Log:
    """A run's journal in memory, as the mirror sees it."""

    def __init__(self, epoch=1, before=()):
        self.events = list(before)
        self.line = line_on((), (position for position, _ in self.events))
        self._next = epoch * POSITIONS_PER_EPOCH + 1
        if not self.events:
            self.events.append((1, FIRST))
            self.line = (1,)

    def record(self, event):
        self.record_body(encode(event))

    def record_body(self, body):
        self.events.append((self._next, body))
        self._next += 1

    def last(self):
        return self.events[-1][0]

    def after(self, position):
        return page([entry for entry in self.events if entry[0] > position])


class Scene:
    def __init__(self, keepers=3):
        self.grid = ToyGrid()
        self.stores = {}
        self.lost = []
        for number in range(keepers):
            self.boot(f"k{number}")

    def boot(self, node):
        store = self.stores.setdefault(node, KeptInMemory())
        me = f"{node}/keeper"
        self.grid.boot(node, lambda: self.grid.join(Keeper(me, self.grid.place(me), store, ROLL)))

    def mirror(self, log, node="w", epoch=1, voters=(), ended=True):
        me = f"{node}/mirror.{RUN}"
        signer = CHARTERED.begin(peer_of(node), epoch)
        place, lost = self.grid.place(me), self.lost.append
        office = Office(
            place, RUN, Epoch(epoch, f"{node}:"), voters, OWN + node, log, lost, lambda: ended
        )
        made = Mirror(me, place, RUN, epoch, GRAPH, log, signer, office)
        self.grid.join(made)
        made.start()
        for keeper in self.stores:
            made.peer_joined(keeper)
        return made

    def until(self, condition, limit_s=200.0):
        self.grid.run(condition, self.grid.time + limit_s)

    def whole(self, log):
        """The keepers that have all of it."""
        return [
            node
            for node, store in self.stores.items()
            if store.state(RUN) is not None
            and store.state(RUN).graph_bytes == len(GRAPH)
            and store.events(RUN) == log.events
        ]

    def reader(self):
        reader = CopyReader("r/reader", self.grid.place("r/reader"))
        self.grid.join(reader)
        return reader


def fill(log, count=1200):
    log.record(Opened(2.0, 1, "w", 1))
    for number in range(count):
        log.record(TaskReady(3.0, f"t{number}"))


def test_four_keepers_have_everything_soon_after_it_was_recorded():
    scene, log = Scene(5), Log()
    mirror = scene.mirror(log)
    fill(log)
    mirror.recorded()
    scene.until(lambda: len(scene.whole(log)) == 4)
    log.record(TaskEnded(4.0, "t0", "succeeded", 1))
    mirror.recorded()
    before = scene.grid.time
    scene.until(lambda: len(scene.whole(log)) == 4)
    assert scene.grid.time - before < 2.0
    scene.until(lambda: len(mirror.kept_by()) == 4)
    assert sum(store.state(RUN) is not None for store in scene.stores.values()) == 4


@pytest.mark.parametrize("seed", range(5))
def test_messages_that_are_lost_repeated_or_late_change_nothing(seed):
    scene, log = Scene(2), Log()
    scene.grid.random.seed(seed)
    scene.grid.loss, scene.grid.repeat = 0.2, 0.2
    scene.grid.delay_s = scene.grid.random.random
    mirror = scene.mirror(log)
    fill(log, 2000)
    mirror.recorded()
    scene.until(lambda: len(scene.whole(log)) == 2, 2000.0)


def test_a_keeper_that_dies_or_falls_silent_is_replaced():
    scene, log = Scene(4), Log()
    mirror = scene.mirror(log)
    fill(log, 10)
    scene.until(lambda: len(scene.whole(log)) == 2)
    dead, silent = scene.whole(log)
    scene.grid.crash(dead)
    mirror.peer_left(dead)
    scene.grid.freeze(silent)
    log.record(TaskReady(5.0, "more"))
    mirror.recorded()
    scene.until(lambda: len(scene.whole(log)) == 2)
    assert set(scene.whole(log)).isdisjoint({dead, silent})


def test_a_keeper_that_begins_anew_goes_on_where_it_was():
    """Its disk says what it has, and not what its writer builds on."""
    scene, log = Scene(1), Log()
    mirror = scene.mirror(log)
    fill(log, 10)
    mirror.recorded()
    scene.until(lambda: scene.whole(log))
    store = scene.stores["k0"]
    store._states[RUN] = msgspec.structs.replace(store.state(RUN), cut=None)
    mirror.peer_left("k0")
    mirror.peer_joined("k0")
    log.record(TaskReady(5.0, "more"))
    mirror.recorded()
    scene.until(lambda: scene.whole(log), 30.0)
    assert scene.whole(log) == ["k0"]


def test_a_run_is_not_kept_on_its_writers_own_peer():
    scene, log = Scene(1), Log()
    mirror = scene.mirror(log, node="k0+41@h:1")
    scene.until(lambda: scene.grid.time > 20.0)
    assert scene.stores["k0"].state(RUN) is None
    assert mirror.kept_by() == []


def test_draining_waits_for_the_keepers_and_not_for_ever():
    scene, log = Scene(3), Log()
    mirror = scene.mirror(log)
    fill(log)
    log.record(RunEnded(9.0, "succeeded"))
    drained = []
    mirror.drain(60.0, lambda: drained.append(scene.grid.time))
    scene.until(lambda: drained)
    assert len(scene.whole(log)) == 3
    assert drained[0] < 10.0

    scene, log = Scene(3), Log()
    mirror = scene.mirror(log)
    for node in scene.stores:
        scene.grid.freeze(node)
    drained = []
    mirror.drain(5.0, lambda: drained.append(scene.grid.time))
    scene.until(lambda: drained)
    assert drained == [5.0]


def test_a_newer_writer_fences_the_older_and_what_it_never_had_is_dropped():
    scene, log = Scene(2), Log()
    old = scene.mirror(log, voters=("k0", "k1"))
    fill(log, 10)
    old.recorded()
    scene.until(lambda: len(scene.whole(log)) == 2)
    newer = Log(2, log.events[:6])  # it took over from a copy that ended there
    newer.record(Opened(7.0, 2, "w2", 1))
    scene.grid.freeze("w")
    scene.mirror(newer, "w2", epoch=2)
    scene.until(lambda: len(scene.whole(newer)) == 2)
    scene.grid.thaw("w")
    log.record(TaskReady(8.0, "late"))
    old.recorded()
    scene.until(lambda: scene.lost)
    assert len(scene.lost) == 1 and "taken over by another process (epoch 2" in scene.lost[0]
    assert len(scene.whole(newer)) == 2


def test_keepers_of_a_busy_run_vote_soon():
    """Something was always on its way to them, and so most of them never had everything."""
    scene, log = Scene(4), Log()
    fill(log, 0)
    scene.grid.delay_s = lambda: 0.2
    mirror = scene.mirror(log, ended=False)
    mirror._office.begin()

    def record():
        log.record(TaskReady(3.0, "t"))
        mirror.recorded()
        scene.grid.after(0.03, record)

    record()
    scene.until(lambda: len(mirror._office.voters) == 5, 20.0)


def test_a_keeper_that_comes_later_votes_even_if_nothing_happens_any_more():
    """It was heard every five seconds, counted as able for three of them, and never for long
    enough."""
    scene, log = Scene(2), Log()
    fill(log, 10)
    mirror = scene.mirror(log, ended=False)
    mirror._office.begin()
    scene.until(lambda: {"k0", "k1"} < set(mirror._office.voters))
    scene.boot("k2")
    mirror.peer_joined("k2")
    scene.until(lambda: "k2" in mirror._office.voters)
    assert "k2" in mirror._office.voters


def test_nobody_takes_a_run_from_a_writer_that_is_heard():
    """A peer that may drive it went on at once, without a grant, and its keepers fenced the
    writer."""
    scene, log = Scene(2), Log()
    old = scene.mirror(log, voters=("k0", "k1"))
    fill(log, 10)
    old.recorded()
    scene.until(lambda: len(scene.whole(log)) == 2)
    newer = Log(7, log.events[:6])
    newer.record(Opened(7.0, 7, "w2", 1))
    scene.mirror(newer, "w2", epoch=7)
    began = scene.grid.time
    scene.until(lambda: scene.grid.time > began + 5 * QUIET_S)
    log.record(TaskReady(8.0, "late"))
    old.recorded()
    scene.until(lambda: len(scene.whole(log)) == 2)
    assert not scene.lost and not scene.whole(newer)
    scene.grid.freeze("w")
    scene.until(lambda: len(scene.whole(newer)) == 2, limit_s=400.0)


def test_a_copy_of_a_line_that_was_given_up_is_cut_back_to_what_the_writer_builds_on():
    """Two take a run over from the same copy. The higher epoch wins, dies, and is gone on with by a
    third one: a keeper that heard of the first and of the third only must not mix their lines."""
    scene, log = Scene(1), Log()
    old = scene.mirror(log)
    fill(log, 10)
    old.recorded()
    scene.until(lambda: len(scene.whole(log)) == 1)
    lost = Log(5, log.events[:6])
    lost.record(Opened(7.0, 5, "w2", 1))
    lost.record(TaskEnded(7.5, "t0", "succeeded", 1))
    scene.grid.freeze("w")
    second = scene.mirror(lost, "w2", epoch=5)
    scene.until(lambda: len(scene.whole(lost)) == 1)
    second.stop()
    winner = Log(6, log.events[:8])
    winner.record(Opened(8.0, 6, "w3", 1))
    next_one = Log(9, winner.events)
    next_one.record(Opened(9.0, 9, "w4", 1))
    scene.mirror(next_one, "w4", epoch=9)
    scene.until(lambda: len(scene.whole(next_one)) == 1)


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(1, 9)), unique=True), st.data())
def test_what_two_lines_have_in_common(events, data):
    """Lines that branch: the last common position is the last that both have, and all before it is
    the same."""
    trunk = [epoch * POSITIONS_PER_EPOCH + number for epoch, number in sorted(events)]
    cut = data.draw(st.integers(0, len(trunk)))
    other = [(10 + n) * POSITIONS_PER_EPOCH + 1 for n in range(data.draw(st.integers(0, 3)))]
    branch = trunk[:cut] + other
    common = last_common(line_on((), trunk), line_on((), branch))
    both = [one for one in trunk if one in branch]
    assert common == (both[-1] if both else 0)
    assert [one for one in trunk if one <= common] == [one for one in branch if one <= common]


class Stranger(Agent):
    def __init__(self, grid):
        super().__init__("x/y", grid.place("x/y"))
        grid.join(self)
        self.heard = []

    def receive(self, sender, message):
        self.heard.append(message)


@pytest.mark.parametrize(
    "message",
    [
        KeepRun("../evil", 1, 0, 5, 0, b"graph"),
        KeepRun(RUN, 1, 0, keeping.GRAPH_BYTES_MAX + 1, 0, b"graph"),
        KeepRun("x" * 101, 1, 0, 5, 0, b"graph"),
    ],
)
def test_what_cannot_be_kept_is_refused(message):
    scene = Scene(1)
    stranger = Stranger(scene.grid)
    stranger.world.send("k0/keeper", message)
    scene.until(lambda: stranger.heard)
    assert [m.refused != "" for m in stranger.heard] == [True]
    assert scene.stores["k0"].known() == []


def test_events_that_do_not_follow_or_are_none_are_not_kept():
    scene = Scene(1)
    stranger = Stranger(scene.grid)
    signer = CHARTERED.begin("x")
    rubbish = [(1, FIRST), (2, b"rubbish")]

    def said(epoch, after, *events):
        return KeepEvents(RUN, epoch, after, events, sealed(signer, events).seal)

    for message in (
        said(1, 0, (1, FIRST)),  # nobody opened it
        KeepRun(RUN, 1, 0, len(GRAPH), 0, b"gra", papers=signer.papers),
        said(1, 4, (5, FIRST)),  # a gap
        said(1, 0, (2, FIRST), (1, FIRST)),  # not in order
        said(1, 0, *rubbish),
        said(2, 0, (1, FIRST)),  # an epoch that has not begun
        said(1, 0),
        said(1, 0, (1, FIRST)),
        said(0, 0, (1, FIRST)),
    ):
        stranger.world.send("k0/keeper", message)
    scene.until(lambda: any(isinstance(m, Fenced) for m in stranger.heard))
    told = [(m.position, m.refused) for m in stranger.heard if isinstance(m, Kept)]
    out_of_order, no_event = (refused for _, refused in told if refused)
    assert [position for position, _ in told] == [0, 0, 0, 0, 0, 0, 1]
    assert out_of_order == f"{RUN} is not kept here: its events are in no order"
    assert no_event == f"what {RUN} is said to have recorded is no event"


def of_a_strategy(number):
    """An event of a kind that nobody here has."""
    body = {"event": "molecule caught", "at": 3.0, "task": f"t{number}", "by": {"rule": [1, 2]}}
    return msgspec.msgpack.encode(body)


def test_events_of_kinds_that_a_keeper_does_not_have_are_kept_as_they_are():
    scene, log = Scene(2), Log()
    mirror = scene.mirror(log)
    fill(log, 3)
    log.record_body(of_a_strategy(0))
    log.record(RunEnded(9.0, "succeeded"))
    log.record_body(of_a_strategy(1))
    mirror.recorded()
    scene.until(lambda: len(scene.whole(log)) == 2)
    assert scene.stores["k0"].known()[0].state == "succeeded", "it says nothing of the run's state"


def messages_per_s(scene, seconds):
    """How many a mirror sends from now on."""
    scene.grid.keep_sent = True
    scene.grid.sent.clear()
    until_s = scene.grid.time + seconds
    scene.grid.after(seconds, lambda: None)
    scene.until(lambda: scene.grid.time >= until_s, 2 * seconds)
    sent = [m for _, _, m in scene.grid.sent if isinstance(m, KeepRun | KeepEvents)]
    return len(sent) / seconds


class Full(KeptInMemory):
    """Its disk is full, for events at least."""

    def add(self, run, events, sealed, done):
        done("no room is left here")


def test_a_mirror_leaves_a_full_keeper_alone_and_goes_to_another():
    scene, log = Scene(0), Log()
    scene.stores = {"k0": Full(), "k1": Full()} | {f"k{n}": KeptInMemory() for n in range(2, 6)}
    for node in scene.stores:
        scene.boot(node)
    mirror = scene.mirror(log)
    fill(log, 10)
    mirror.recorded()
    scene.until(lambda: scene.whole(log) == ["k2", "k3", "k4", "k5"])
    assert messages_per_s(scene, 100.0) <= 4 / BEAT_S, "it only says that it is there"


@pytest.mark.parametrize("says", ["why", "nothing"])
def test_a_mirror_with_none_but_full_keepers_does_not_flood_them(says):
    scene, log = Scene(0), Log()

    class Mute(KeptInMemory):
        def add(self, run, events, sealed, done):
            done("")  # and it has taken nothing: a keeper of an earlier version

    scene.stores = {"k0": Full() if says == "why" else Mute()}
    scene.boot("k0")
    mirror = scene.mirror(log)
    fill(log, 10)
    mirror.recorded()
    scene.until(lambda: scene.grid.time > 5.0)
    assert messages_per_s(scene, 60.0) < 1.0
    scene.until(lambda: scene.grid.time > 1000.0, 2000.0)
    assert 0.0 < messages_per_s(scene, 1000.0) < 0.1, "it asks ever less often, but does ask"
    scene.stores["k0"].add = types.MethodType(KeptInMemory.add, scene.stores["k0"])
    scene.until(lambda: scene.whole(log) == ["k0"], 1000.0)


def test_a_mirror_does_not_send_rubbish_for_ever():
    scene, log = Scene(1), Log()
    mirror = scene.mirror(log)
    log.record_body(b"rubbish")
    mirror.recorded()
    scene.until(lambda: scene.grid.time > 5.0)
    assert messages_per_s(scene, 60.0) < 1.0


# -- reading ------------------------------------------------------------------------------------


def test_a_run_is_read_back_from_the_keeper_that_has_most():
    scene, log = Scene(3), Log()
    mirror = scene.mirror(log)
    fill(log)
    scene.until(lambda: len(scene.whole(log)) == 2)
    ahead, behind = scene.whole(log)
    scene.grid.freeze(behind)
    log.record(TaskEnded(4.0, "t0", "succeeded", 1))
    mirror.recorded()
    scene.until(lambda: ahead in scene.whole(log))
    scene.grid.thaw(behind)
    mirror.stop()
    got = []
    scene.reader().read(RUN, list(scene.stores), got.append)
    scene.until(lambda: got)
    (copy,) = got
    assert copy.graph == GRAPH
    assert list(copy.events) == log.events
    known = copy.known
    assert (known.name, known.total, known.done, known.state) == ("flow", 3, 1, "running")
    assert known.writer == "w"


def test_reading_goes_on_with_another_keeper_if_one_falls_silent():
    scene, log = Scene(3), Log()
    mirror = scene.mirror(log)
    fill(log, 3000)
    mirror.recorded()
    scene.until(lambda: len(scene.whole(log)) == 2)
    got = []
    reader = scene.reader()
    reader.read(RUN, list(scene.stores), got.append)
    scene.until(lambda: reader._reading is not None and reader._reading.events)
    scene.grid.freeze(reader._reading.keepers[-1][0])
    scene.until(lambda: got)
    assert list(got[0].events) == log.events


def test_a_run_that_nobody_keeps_is_not_found():
    scene = Scene(2)
    scene.grid.freeze("k1")
    got = []
    scene.reader().read(RUN, ["k0", "k1"], got.append)
    scene.until(lambda: got)
    assert got == [None]
    listed = []
    scene.reader().list_runs([], listed.append)
    scene.until(lambda: listed)
    assert listed == [[]]


def test_runs_are_listed_once_as_told_by_whoever_knows_most():
    scene, log = Scene(2), Log()
    mirror = scene.mirror(log)
    fill(log, 5)
    log.record(RunEnded(9.0, "failed"))
    mirror.recorded()
    scene.until(lambda: len(scene.whole(log)) == 2)
    got = []
    scene.reader().list_runs(list(scene.stores), got.append)
    scene.until(lambda: got)
    assert [(k.run, k.state, k.whole) for k in got[0]] == [(RUN, "failed", True)]
    stranger = Stranger(scene.grid)
    stranger.world.send("k0/keeper", KeeperAsk(7))
    scene.until(lambda: stranger.heard)
    assert isinstance(stranger.heard[0], RunsKnown)


# -- stores: one contract, two adapters ------------------------------------------------------------


@pytest.fixture(params=["memory", "disk"])
def store(request, tmp_path):
    if request.param == "memory":
        yield KeptInMemory()
    else:
        kept = KeptJournals(tmp_path / "kept")
        yield kept


def told(ask, *args):
    """What a store answers that has no loop to spare."""
    answers = []
    ask(*args, answers.append)
    (answer,) = answers
    return answer


@functools.cache
def term(epoch, writer):
    return Term(epoch, writer, CHARTERED.begin(writer, epoch).papers)


def opened(store, epoch=1, writer="w", base=0, run=RUN):
    return told(store.open, run, term(epoch, writer), base)


def added(store, events, run=RUN):
    """Whatever it is sealed with: that is the keeper's matter."""
    state = store.state(run)
    seal = Sealed(fold(state.cut[1], events), b"seal %d" % events[-1][0], state.term.papers)
    return told(store.add, run, events, seal)


def all_of(store):
    read, position = [], 0
    while some := told(store.read_events, RUN, position).events:
        read += some
        position = some[-1][0]
    return read


def numbered(count, first=2):
    return [(first + n, encode(TaskReady(1.0, f"t{n}"))) for n in range(count)]


def test_a_store_keeps_what_it_is_given(store):
    assert store.state(RUN) is None
    assert opened(store) == ""
    assert told(store.keep_graph, RUN, b"graph") == ""
    events = [(1, encode(Submitted(1.0, RUN, "flow", 3))), *numbered(1300)]
    for start in range(0, len(events), 500):
        assert added(store, events[start : start + 500]) == ""
    state = store.state(RUN)
    assert (state.epoch, state.position, state.graph_bytes) == (1, events[-1][0], 5)
    assert told(store.read_graph, RUN, 2) == b"aph"
    assert all_of(store) == events
    state = store.state(RUN)
    assert state.chain == fold(state.term.charter, events)
    some = told(store.read_events, RUN, 700)
    assert (list(some.events), some.seal) == (events[700:1000], b"seal 1000"), "up to a seal"
    assert some.papers == state.term.papers
    (known,) = store.known()
    assert (known.run, known.name, known.total, known.state) == (RUN, "flow", 3, "running")


def test_a_new_term_drops_what_is_beyond_the_last_seal_up_to_its_base(store):
    opened(store)
    added(store, numbered(4))
    added(store, numbered(6, 6))
    old = store.state(RUN).term.papers
    opened(store, 2, "w2", 8)
    state = store.state(RUN)
    assert (state.epoch, state.term.writer, state.position) == (2, "w2", 11)
    assert state.cut[0] == 5, "there the new writer goes on; until then nothing goes"
    page = told(store.read_events, RUN, 0)
    assert (page.seal, page.papers) == (b"seal 11", old), "an earlier writer sealed it"
    more = [(100, encode(TaskReady(2.0, "more")))]
    added(store, more)
    page = told(store.read_events, RUN, 0)
    assert (list(page.events), page.seal) == (numbered(4) + more, b"seal 100")
    assert page.papers == state.term.papers != old
    assert told(store.read_events, RUN, 5).papers == state.term.papers


def test_what_was_kept_without_papers_makes_room_for_what_has_some(store):
    told(store.open, RUN, Term(1, "w"), 0)
    told(store.keep_graph, RUN, b"graph")
    opened(store, 2)
    assert (store.state(RUN).position, store.state(RUN).graph_bytes) == (0, 0)


@given(
    sizes=st.lists(st.integers(0, 3000), max_size=40),
    base=st.integers(0, 60),
    marks=st.integers(1, 7),
)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_copy_that_was_cut_is_as_one_that_never_had_more(
    tmp_path_factory, monkeypatch, sizes, base, marks
):
    monkeypatch.setattr("sureline.compose.run_copies.EVENTS_MAX", marks)
    monkeypatch.setattr("sureline.compose.run_copies.PIECE_BYTES_MAX", 5000)
    events = [
        (2 * n + 1, encode(TaskEnded(1.0, f"t{n}", "succeeded", 1, reason="x" * size)))
        for n, size in enumerate(sizes)
    ]
    events.append((2 * len(sizes) + 1, encode(RunEnded(9.0, "failed"))))
    more = [(1000, encode(TaskReady(2.0, "more")))]
    copies = []
    whole = sum(event[0] <= base for event in events)
    ends = len(events) if whole == len(events) else 3 * (whole // 3)
    for had in (events, events[:ends]):
        kept = KeptJournals(tmp_path_factory.mktemp("kept"))
        opened(kept)
        for start in range(0, len(had), 3):
            added(kept, had[start : start + 3])
        opened(kept, 2, "w2", base)
        added(kept, more)
        state = msgspec.structs.replace(kept.state(RUN), base=0)
        copies.append((state, kept.known(), all_of(kept)))
        again = KeptJournals(kept._directory)
        assert (again.known(), all_of(again)) == copies[-1][1:]
    assert copies[0] == copies[1]


def test_a_full_disk_refuses_and_nothing_is_torn(tmp_path, monkeypatch):
    kept = KeptJournals(tmp_path)
    opened(kept)
    assert added(kept, numbered(3)) == ""

    def full(path, mode, **options):
        if "r+" in mode:
            with open(path, "ab") as file:
                file.write(b"half an ev")
            raise OSError(errno.ENOSPC, "No space left on device")
        return open(path, mode, **options)

    monkeypatch.setattr("sureline.compose.run_copies.open", full, raising=False)
    why = added(kept, numbered(1, 10))
    assert why == f"{RUN} cannot be written here: No space left on device"
    assert kept.state(RUN).position == 4
    monkeypatch.undo()
    assert added(kept, numbered(1, 10)) == ""
    assert all_of(KeptJournals(tmp_path)) == numbered(3) + numbered(1, 10)


def test_a_copy_that_is_as_long_as_may_be_says_so(tmp_path, monkeypatch):
    monkeypatch.setattr("sureline.compose.run_copies.RUN_BYTES_MAX", 1 << 20)
    kept = KeptJournals(tmp_path)
    opened(kept)
    long = encode(TaskReady(1.0, "t" * 900_000))
    assert added(kept, [(1, long), (2, long)]) == ""
    assert "takes no more" in added(kept, [(3, long)])


def test_a_loop_goes_on_while_a_disk_is_slow(tmp_path, monkeypatch):
    """Nothing that the keeper asks of its store waits for the disk in the loop's thread."""
    gate, slow = threading.Event(), os.fsync

    def sync(fd):
        assert gate.wait(60)
        slow(fd)

    async def run():
        loop = asyncio.get_running_loop()
        kept = KeptJournals(tmp_path, in_a_thread(loop))
        monkeypatch.setattr(os, "fsync", sync)
        over = []
        kept.open(RUN, term(1, "w"), 0, over.append)
        await asyncio.sleep(0)
        assert over == [] and kept.state(RUN) is None, "it is not said before it is durable"
        gate.set()
        await until(lambda: over)
        gate.clear()
        kept.keep_graph(RUN, b"graph", over.append)
        kept.read_graph(RUN, 0, over.append)
        await asyncio.sleep(0)
        assert over == [""]
        assert kept.state(RUN).graph_bytes == 0
        gate.set()
        await until(lambda: len(over) == 3)
        assert over == ["", "", b"graph"], "what was asked for first was done first"

    async def until(condition):
        async with asyncio.timeout(60):
            while not condition():  # noqa: ASYNC110 - any condition of a test, not one event
                await asyncio.sleep(0.001)

    asyncio.run(run())


def test_copies_on_disk_outlive_their_process_and_a_torn_end_is_cut(tmp_path):
    kept = KeptJournals(tmp_path)
    opened(kept, 3)
    told(kept.keep_graph, RUN, b"graph")
    added(kept, numbered(9))
    added(kept, numbered(3, 11))
    before = kept.state(RUN)
    with open(tmp_path / RUN / "events", "r+b") as file:
        file.truncate(file.seek(0, 2) - 3)
    (tmp_path / "half-made").mkdir()
    again = KeptJournals(tmp_path)
    state = again.state(RUN)
    assert (state.term, state.position, state.graph_bytes) == (before.term, 10, 5)
    opened(again, 3, base=10)
    added(again, [(50, encode(TaskReady(1.0, "more")))])
    assert [position for position, _ in told(again.read_events, RUN, 8).events] == [9, 10, 50]
    assert [known.run for known in again.known()] == [RUN]


def test_copies_of_before_there_were_papers_are_still_told_as_they_are(tmp_path):
    (tmp_path / RUN).mkdir()
    (tmp_path / RUN / "term").write_bytes(b'{"epoch":3,"writer":"w"}')
    head = struct.Struct("<QI").pack
    records = [head(at, len(body)) + body for at, body in numbered(1300)]
    (tmp_path / RUN / "events").write_bytes(b"".join(records))
    kept = KeptJournals(tmp_path)
    assert all_of(kept) == numbered(1300)
    page = told(kept.read_events, RUN, 700)
    assert (len(page.events), page.seal, page.papers) == (500, b"", b"")


def test_what_ended_goes_when_there_are_too_many(tmp_path, monkeypatch):
    monkeypatch.setattr("sureline.compose.run_copies.RUNS_MAX", 2)
    kept = KeptJournals(tmp_path)
    for run in ("a", "b"):
        opened(kept, run=run)
    assert "runs that have not ended" in opened(kept, run="c")
    added(kept, [(1, encode(RunEnded(1.0, "succeeded")))], "a")
    assert opened(kept, run="c") == ""
    assert [known.run for known in kept.known()] == ["b", "c"]
    assert not (tmp_path / "a").exists()


def test_keepers_get_nothing_that_a_kill_of_the_writer_would_unsay(tmp_path):
    with Journal.open(tmp_path) as home:
        run = home.create_run("flow", b"graph", lambda run: Submitted(1.0, run, "flow", 2))
        writer = home.take(run, lambda epoch: Opened(2.0, epoch, "w", 1))
        recorded = JournalRecorded(home, run, writer.epoch)
        before = recorded.after(0)
        writer.record(TaskReady(3.0, "a"))
        assert recorded.after(0) == before
        writer.flush()
        assert [body for _, body in recorded.after(before[-1][0])] == [encode(TaskReady(3.0, "a"))]


def test_a_copy_becomes_a_journal_that_can_be_read_and_taken(tmp_path):
    graph = b"a graph"
    with Journal.open(tmp_path / "home") as home:
        run = home.create_run("flow", graph, lambda run: Submitted(1.0, run, "flow", 2))
        writer = home.take(run, lambda epoch: Opened(2.0, epoch, "w", 1))
        writer.record(TaskEnded(3.0, "a", "succeeded", 1))
        writer.flush()
        recorded = JournalRecorded(home, run, writer.epoch)
        assert recorded.line == (1,)
        events = recorded.after(0)
        assert len(events) == 3
        with Journal.open(tmp_path / "elsewhere") as other:
            import_copy(other, run, graph, events)
            import_copy(other, run, graph, events)
            assert [e.event for e in other.events(run)] == [e.event for e in home.events(run)]
            assert [ended.task for ended in other.commits(run)] == ["a"]
            assert other.take(run, lambda epoch: Opened(5.0, epoch, "x", 1)).epoch == 2
