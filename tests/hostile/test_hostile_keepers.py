"""Keepers and writers that lie about runs, made of our own agents: what they forge is not believed.

The liars have everything but other peers' keys: their own certificates, true copies, true seals.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
from signed import ROLL, Chartered, sealed
from toy_grid import ToyGrid

from sureline.journal.events import Opened, Submitted, TaskEnded, TaskReady, decode, encode
from sureline.journal.schema import POSITIONS_PER_EPOCH
from sureline.journal.store import Entry, Journal
from sureline.overlay.kademlia import Kademlia
from sureline.peer.messages import Fenced
from sureline.run.copies import Copy, CopyReader, RunCopy, merge_copies
from sureline.run.grant import OWN, Epoch
from sureline.run.keeper import Keeper
from sureline.run.keeping import (
    KeeperAsk,
    KeeperPart,
    KeepEvents,
    KeepRun,
    Kept,
    NumberedEvent,
    RunKnown,
)
from sureline.run.kept import KeptInMemory, Sealed, Term
from sureline.run.mirror import Mirror
from sureline.run.office import Office
from sureline.workflow.mistakes import UserError
from sureline.world.address import Node, at
from sureline.world.agent import Agent
from sureline.world.identity.signing import RunSigner, fold
from sureline.world.protocol import AgentId, Message

RUN, GRAPH, EVIL = "flow-abc123", b"a graph", b"an evil graph"
FIRST = encode(Submitted(1.0, RUN, "flow", 3))
LIE = encode(TaskEnded(9.0, "t1", "succeeded", 1, reason="made up"))
WRITER, EVE, FRIEND = "w", "eve", "friend"

ROLL.enrol(EVE, frozenset({"run"}))
ROLL.enrol("mallory", frozenset({"run", "submit"}))


def events_of(count: int, epoch: int = 1) -> list[NumberedEvent]:
    bodies = [encode(TaskReady(3.0, f"t{n}")) for n in range(count)]
    first = epoch * POSITIONS_PER_EPOCH + 1
    opened = encode(Opened(2.0, epoch, WRITER, 1))
    numbered = list(enumerate([opened, *bodies], first))
    return [(1, FIRST), *numbered] if epoch == 1 else numbered


TRUE = events_of(20)


class Scene:
    """A run with one honest copy, at `k`, and the copies of liars; somebody who reads it."""

    def __init__(self) -> None:
        self.grid = ToyGrid()
        self.run = Chartered(RUN, GRAPH, FIRST, WRITER)
        self.signer = self.run.begin(WRITER)
        self.read: list[NumberedEvent] = []
        self.keeper("k", self.signer, GRAPH, TRUE)

    def keeper(
        self,
        node: str,
        signer: RunSigner,
        graph: bytes,
        events: Sequence[NumberedEvent],
        told: Sealed | None = None,
    ) -> KeptInMemory:
        """A peer that keeps this, whatever it is."""
        store = KeptInMemory()
        store.open(RUN, Term(signer.epoch, Node(WRITER), signer.papers), 0, lambda why: None)
        store.keep_graph(RUN, graph, lambda why: None)
        store.add(RUN, events, told or sealed(signer, events), lambda why: None)
        me = at(Node(node), "keeper")
        self.grid.join(Keeper(me, self.grid.place(me), store, ROLL))
        return store

    def claim(self, node: str, epoch: int, position: int, run: str = RUN) -> Copy:
        known = RunKnown(run, "flow", epoch, "running", 1.0, 3, 0, position, Node(WRITER))
        return Copy(Node(node), known)

    def reading(self, *liars: str, position: int = 1 << 60) -> RunCopy:
        """All that can be read where these claim to have most."""
        me, kademlia = AgentId("r/reader"), AgentId("r/kademlia")
        reader = CopyReader(
            me, self.grid.place(me), Kademlia(kademlia, self.grid.place(kademlia)), ROLL
        )
        self.grid.join(reader)
        claims = [self.claim(liar, 1 << 20, position) for liar in liars]
        copy = RunCopy(
            [*claims, self.claim("k", 1, TRUE[-1][0])],
            ROLL,
            lambda graph, events: self.read.extend(events),
            self.read.clear,
        )
        done: list[bool] = []
        reader.read(copy, done.append)
        self.grid.run(lambda: done)
        self.whole = done[0]
        return copy


def forged_by(signer: RunSigner, run: Chartered) -> RunSigner:
    """The true papers, and a key that is not theirs."""
    return signer._replace(key=ROLL.new_key())


Attack = Callable[[Scene], tuple[RunSigner, bytes, Sequence[NumberedEvent], Sealed | None]]


def forged_graph(s: Scene) -> Any:
    return s.signer, EVIL, TRUE, None


def own_charter(s: Scene) -> Any:
    """A member without the role makes papers like any submitter."""
    mine = Chartered.__new__(Chartered)
    mine.run, mine.papers = RUN, _papers(EVE, EVIL)
    return _begun(mine, EVE, 7), EVIL, TRUE, None


def own_mandate(s: Scene) -> Any:
    """The true charter, and somebody as its writer who was never asked."""
    return _begun(s.run, EVE, 7), GRAPH, [*TRUE, *_lies(7)], None


def appended(s: Scene) -> Any:
    """True seals, and one event more."""
    events = [*TRUE, *_lies(1, 999)]
    return s.signer, GRAPH, events, sealed(s.signer, TRUE)._replace(chain=b"")


def another_submission(s: Scene) -> Any:
    """Everything is true but how the run is to be run, and its seal."""
    first = encode(Submitted(1.0, RUN, "flow", 3, options={"grid": "evil"}))
    events = [(1, first), *TRUE[1:]]
    return forged_by(s.signer, s.run), GRAPH, events, None


def another_run(s: Scene) -> Any:
    """True papers and seals, of another run of the same submitter."""
    other = Chartered("other-abc123", EVIL, FIRST, WRITER)
    return other.begin(WRITER, 7), EVIL, TRUE, None


def another_key(s: Scene) -> Any:
    return forged_by(s.signer, s.run), GRAPH, [*TRUE, *_lies(1, 999)], None


def later_epoch(s: Scene) -> Any:
    """The writer of epoch 1 is not asked what happened in epoch 7."""
    return s.signer, GRAPH, [*TRUE, *_lies(7)], None


def no_papers(s: Scene) -> Any:
    """As a peer of an earlier version keeps it."""
    return s.signer._replace(papers=b""), GRAPH, TRUE, Sealed(b"", b"", b"")


def _lies(epoch: int, number: int = 1) -> list[NumberedEvent]:
    return [(epoch * POSITIONS_PER_EPOCH + number, LIE)]


def _papers(who: str, graph: bytes) -> Any:
    return Chartered(RUN, graph, FIRST, who).papers


def _begun(run: Chartered, who: str, epoch: int) -> RunSigner:
    """What an honest program refuses to make."""
    roles = ROLL.holder(ROLL.certified(who).certificate).roles
    ROLL.enrol(who, frozenset({"run", "submit", "drive"}))
    try:
        return run.begin(who, epoch)
    finally:
        ROLL.enrol(who, roles)


ATTACKS = {
    forged_graph: "its graph is not the one that was submitted",
    own_charter: "eve may not submit runs",
    own_mandate: "eve has not the role drive",
    appended: "its events are not those that its writer sealed",
    another_submission: "it does not begin as it was submitted",
    another_run: "its charter is that of another run",
    another_key: "its events are not those that its writer sealed",
    later_epoch: "its writer vouches for events of later ones",
    no_papers: "it is not signed",
}


@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack.__name__)
def test_a_forged_copy_is_not_read_whatever_its_keeper_claims(attack: Attack) -> None:
    scene = Scene()
    scene.keeper(EVE, *attack(scene))
    copy = scene.reading(EVE)
    assert (scene.whole, scene.read, copy.graph) == (True, TRUE, GRAPH)
    assert copy.why_not == ATTACKS[attack]
    assert copy.authority is not None and copy.authority.writer == WRITER


def test_what_nobody_true_keeps_is_not_read_at_all() -> None:
    scene = Scene()
    scene.keeper(EVE, *forged_graph(scene))
    scene.grid.crash("k")
    copy = scene.reading(EVE)
    assert (scene.whole, scene.read) == (False, [])
    assert copy.why_not == ATTACKS[forged_graph]


@pytest.mark.parametrize("held", [2, 10])
def test_who_holds_events_back_cannot_hide_them(held: int) -> None:
    """A true beginning is no lie: whoever claims to have more is read too."""
    scene = Scene()
    scene.keeper(EVE, scene.signer, GRAPH, TRUE[:held])
    scene.reading(EVE)
    assert scene.read == TRUE


def test_an_old_true_line_with_a_high_claim_does_not_mix_with_the_new_one() -> None:
    scene = Scene()
    later = scene.run.begin(FRIEND, 9)
    new_line = [*TRUE[:5], *events_of(3, 9)]
    scene.keeper("k9", later, GRAPH, new_line)
    scene.keeper(EVE, scene.signer, GRAPH, TRUE)
    me = AgentId("r/reader")
    reader = CopyReader(me, scene.grid.place(me), Kademlia(me, scene.grid.place(me)), ROLL)
    scene.grid.join(reader)
    claims = [scene.claim(EVE, 1 << 20, 1 << 60), scene.claim("k9", 9, new_line[-1][0])]
    copy = RunCopy(claims, ROLL, lambda graph, events: scene.read.extend(events), scene.read.clear)
    done: list[bool] = []
    reader.read(copy, done.append)
    scene.grid.run(lambda: done)
    assert scene.read == new_line


def test_a_keeper_that_never_ends_is_left() -> None:
    scene = Scene()

    class Endless(Agent):
        def receive(self, sender: AgentId, message: Message) -> None:
            assert isinstance(message, KeeperAsk)
            part = KeeperPart(message.serial, RUN, 7, 5, message.offset, b"", (), False)
            self.world.send(sender, part)

    scene.grid.join(Endless(AgentId(f"{EVE}/keeper"), scene.grid.place(f"{EVE}/keeper")))
    scene.reading(EVE)
    assert scene.read == TRUE


@pytest.mark.parametrize("name", ["../../../victim", "..", "/etc", "a/b", "flow\0", ""])
def test_names_that_are_paths_are_not_heard(name: str) -> None:
    scene = Scene()
    reply = msgspec.msgpack.encode([scene.claim(EVE, 7, 1, name), scene.claim("k", 1, 1)])
    heard = msgspec.msgpack.decode(merge_copies([reply]), type=list[Copy])
    assert [copy.about.run for copy in heard] == [RUN]


@pytest.mark.parametrize("name", ["../../../victim", "flow-abc124"])
def test_a_journal_takes_no_events_under_a_name_that_is_not_theirs(
    tmp_path: Path, name: str
) -> None:
    with (
        Journal.open(tmp_path / "home" / ".sureline") as journal,
        pytest.raises(UserError, match="made up"),
    ):
        journal.merge(name, GRAPH, [Entry(position, decode(body)) for position, body in TRUE])


def test_who_is_asked_for_one_run_cannot_tell_of_another() -> None:
    scene = Scene()
    me, kademlia = AgentId("r/reader"), Answering()
    reader = CopyReader(me, scene.grid.place(me), kademlia, ROLL)
    found: list[list[Copy]] = []
    kademlia.value = msgspec.msgpack.encode(
        [scene.claim(EVE, 7, 1, "evil-1"), scene.claim("k", 1, 1)]
    )
    reader.find("flow", found.append)
    assert [copy.about.run for copy in found[0]] == [RUN]


class Answering(Kademlia):
    """A hash table whose broadcasts are answered by liars."""

    value = b""

    def __init__(self) -> None:
        pass

    def on_broadcast(self, *_: object) -> None:
        pass

    def broadcast(self, topic: str, payload: bytes, heard: Callable[[Any], None]) -> None:
        heard(self)


def test_a_crowd_of_liars_does_not_crowd_out_the_true_copy() -> None:
    scene = Scene()
    lies = [scene.claim(f"eve{n}", 7, 1) for n in range(20)]
    reply = msgspec.msgpack.encode([*lies, scene.claim("k", 1, 1)])
    heard = msgspec.msgpack.decode(merge_copies([reply]), type=list[Copy])
    assert "k" in {copy.node for copy in heard}


# -- writers that lie to keepers -------------------------------------------------------------------


class Liar(Agent):
    def __init__(self, grid: ToyGrid, name: str) -> None:
        me = AgentId(f"{name}/mirror.{RUN}")
        super().__init__(me, grid.place(me))
        grid.join(self)
        self.heard: list[Any] = []

    def receive(self, sender: AgentId, message: Message) -> None:
        self.heard.append(message)

    def refused(self, grid: ToyGrid, message: Message) -> str:
        self.heard.clear()
        self.world.send(AgentId("k/keeper"), message)
        grid.run(lambda: self.heard)
        (kept,) = self.heard
        assert isinstance(kept, Kept), kept
        return kept.refused


def opening(signer: RunSigner, graph: bytes = GRAPH) -> KeepRun:
    return KeepRun(RUN, signer.epoch, 0, len(graph), 0, graph, (), signer.papers)


def test_nobody_takes_a_run_over_from_a_keeper_without_being_asked() -> None:
    scene = Scene()
    before = scene.grid.machine("k").agents["k/keeper"]._store
    mallory = Liar(scene.grid, "mallory")
    hers = Chartered(RUN, EVIL, FIRST, "mallory").begin("mallory", 7)
    later = scene.run.begin(WRITER, 7)
    for message, why in (
        (opening(later._replace(papers=b"")), "it is not signed"),
        (opening(later), "its papers are those of w"),
        (opening(later._replace(epoch=8)), "its writer has signed for another epoch"),
        (opening(hers, EVIL), "another run of this name is kept here"),
        (opening(_begun(scene.run, "mallory", 7)), "mallory has not the role drive"),
    ):
        assert mallory.refused(scene.grid, message) == f"{RUN} is not kept here: {why}"
    assert before.events(RUN) == TRUE and before.state(RUN).epoch == 1


def test_nobody_adds_to_a_copy_but_its_writer() -> None:
    scene = Scene()
    store = scene.grid.machine("k").agents["k/keeper"]._store
    mallory, lies = Liar(scene.grid, "mallory"), tuple(_lies(1, 999))
    for seal in (b"", sealed(scene.signer, TRUE).seal, ROLL.new_key().sign(b"x")):
        said = KeepEvents(RUN, 1, TRUE[-1][0], lies, seal)
        assert "not those that its writer sealed" in mallory.refused(scene.grid, said)
    assert store.events(RUN) == TRUE


def test_a_writer_stops_for_a_majority_of_its_voters_not_for_words() -> None:
    scene = Scene()
    lost: list[str] = []

    class Log:
        line = ()

        def after(self, position: int) -> list[NumberedEvent]:
            return [entry for entry in TRUE if entry[0] > position]

        def last(self) -> int:
            return TRUE[-1][0]

    me = AgentId(f"{WRITER}/mirror.{RUN}")
    place, voters = scene.grid.place(me), ("v1", "v2", "v3")
    office = Office(place, RUN, Epoch(1, "w:"), voters, OWN, Log(), lost.append, lambda: True)
    mirror = Mirror(me, place, RUN, 1, GRAPH, Log(), scene.signer, office)
    scene.grid.join(mirror)
    eve = Liar(scene.grid, EVE)
    later = scene.run.begin(FRIEND, 9)
    for words in (Fenced(RUN, 99), Fenced(RUN, 9, later.papers), Fenced(RUN, 1)):
        for teller in (eve.me, AgentId("v1/keeper"), AgentId("v1/keeper")):
            mirror.receive(teller, words)
    assert lost == []
    mirror.receive(AgentId("v3/keeper"), Fenced(RUN, 9, later.papers))
    assert len(lost) == 1


def test_a_chain_is_of_one_run_and_one_order() -> None:
    start = Scene().signer.authority.start
    assert fold(start, TRUE) == fold(fold(start, TRUE[:7]), TRUE[7:])
    assert fold(start, TRUE) != fold(start, [TRUE[1], TRUE[0], *TRUE[2:]])
    assert Scene().signer.authority.start != start
