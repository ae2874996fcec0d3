"""Giving a run's inputs to the grid, so that it can go on without the machine that submitted it.

What tasks make is on the peers that ran them; what the user gave is on the user's machine alone
until somebody reads it. So the first writer of a run, while it goes on, finds out what all of the
user's files are, and has two peers hold each (`peer.safekeeping`). How far that is stands in the
journal (`Entrusted`), for whoever wants to switch the machine off.

Second copies wait until there is a first of everything: so what leaves this machine is what tasks
read, or what would be lost with it; and others can give the rest.

Files that are used in place have to be where they are used, and are left alone. What a later
process writes is on record by then, or lies with a user who is back.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

import msgspec

from sureline.journal.events import Entrusted, FileFetched
from sureline.peer.jobs import FileReady, UserFile
from sureline.peer.messages import Entrust, Holds
from sureline.peer.travelling import data_of
from sureline.run.fleet import Fleet
from sureline.run.holders import Holders
from sureline.run.keys import digest_of
from sureline.run.known import Known
from sureline.workflow.files import FileRecord
from sureline.workflow.model import Call, Graph
from sureline.world.address import AgentId, PeerName, name_of, node_of, peer_of
from sureline.world.protocol import Fetched, World

HOLDERS = 2
LOOK_S = 1.0
IDENTIFIED_AT_ONCE = 8
GIVEN_AT_ONCE = 64
"""Files that one peer has still to tell of."""
SECOND_BYTES = 128 << 20
"""Of second copies, so much is on its way at once: tasks have something to do there meanwhile."""
AGAIN_S = 30.0
"""After so long a peer that has not told of a file is asked again."""
TOLD_S = 5.0
"""Between two words in the journal."""
FIRST_S = 2.0
"""A run that is over by then needs none of it."""


class _File(msgspec.Struct):
    record: FileRecord
    asked_s: dict[PeerName, float] = {}
    holders: set[PeerName] = set()
    refused: set[PeerName] = set()
    late: set[PeerName] = set()
    """Those that had to be asked again: nobody waits for them."""

    def is_safe(self, peers: Sequence[PeerName]) -> bool:
        """Whether all hold it that should."""
        able = sum(name not in self.refused for name in peers)
        return bool(self.holders) and len(self.holders) >= min(HOLDERS, able)


class Entrusting:
    """`me` is the writer; its own peer holds nothing for it. `is_over` tells when there is nothing
    left to do, `successors` which other peers could take the run over, `going_to` where
    tasks read which contents. `holders` hears who holds what, and who will."""

    def __init__(
        self,
        world: World,
        me: AgentId,
        run: str,
        epoch: int,
        graph: Graph,
        known: Known,
        fleet: Fleet,
        is_over: Callable[[], bool],
        successors: Callable[[], Sequence[str]],
        going_to: Callable[
            [Iterable[str]], Mapping[str, Collection[PeerName]]
        ] = lambda digests: {},
        holders: Holders | None = None,
    ) -> None:
        self._world = world
        self._me = me
        self._run = run
        self._epoch = epoch
        self._known = known
        self._fleet = fleet
        self._unknown = _user_files(graph, known)
        self._identifying = 0
        self._files = {record.digest: _File(record) for record in _data(graph)}
        self._total = len(self._unknown) + len(self._files)
        self._only_here: set[str] = set()
        """Contents whose first copy has been asked for, and is waited for."""
        self._is_over = is_over
        self._successors = successors
        self._going_to = going_to
        self._holding = holders
        self._told: Entrusted | None = None
        self._told_s = 0.0

    def start(self) -> None:
        self._world.after(FIRST_S, self._look)

    def _is_whole(self, peers: Sequence[PeerName]) -> bool:
        """Whether the run has all that it needs of this machine elsewhere."""
        known = not self._unknown and not self._identifying
        return known and bool(peers) and all(one.is_safe(peers) for one in self._files.values())

    def _look(self) -> None:
        if self._is_over():
            return
        self._identify()
        self._give()
        self._tell()
        self._world.after(LOOK_S, self._look)

    # -- what there is -----------------------------------------------------------------------------

    def _identify(self) -> None:
        while self._unknown and self._identifying < IDENTIFIED_AT_ONCE:
            path = self._unknown.pop()
            record = self._known.record(path)
            if record is not None:
                self._add(record)
                continue
            self._identifying += 1
            self._world.fetch(UserFile(path, False), (), self._identified)

    def _identified(self, fetched: Fetched) -> None:
        self._identifying -= 1
        if isinstance(fetched, FileReady):
            record = fetched.file
            if self._known.record(record.path) is None:
                self._known.add([record])
                self._world.record(FileFetched(self._world.now(), record))
            self._add(record)
        else:
            self._total -= 1  # its task will say that it is missing
        self._identify()

    def _add(self, record: FileRecord) -> None:
        if record.digest in self._files:
            self._total -= 1
        self._files.setdefault(record.digest, _File(record))

    # -- who holds it ------------------------------------------------------------------------------

    def _holders(self) -> list[PeerName]:
        """Peers that can hold something, in no order."""
        own = peer_of(self._me)
        return [name for name in self._fleet.attached() if peer_of(name) != own]

    def _give(self) -> None:
        now_s, holders = self._world.elapsed(), self._holders()
        batches: dict[PeerName, list[FileRecord]] = {}
        room = SECOND_BYTES
        waiting, going_to = dict.fromkeys(holders, 0), self._going_to(self._files)
        for one in self._files.values():
            one.holders.intersection_update(holders)
            for name, asked_s in one.asked_s.items():
                if name in waiting and name not in one.holders and now_s - asked_s < AGAIN_S:
                    waiting[name] += 1
                    room -= one.record.size if one.holders and name not in one.late else 0
        wanted = HOLDERS if self._is_out(holders) else 1
        for digest, one in self._files.items():
            if one.is_safe(holders) or (one.holders and (wanted == 1 or room <= 0)):
                continue
            able = [
                name
                for name in holders
                if name in one.asked_s or waiting[name] < GIVEN_AT_ONCE
                if name not in one.refused
            ]
            there = going_to.get(digest) or ()  # a task reads it there: nothing needs to move
            able.sort(
                key=lambda n: (
                    n not in one.asked_s,
                    n not in there,
                    digest_of(f"{digest} {n}".encode()),
                )
            )
            for name in able[:wanted]:
                due = now_s - one.asked_s.get(name, -AGAIN_S) >= AGAIN_S
                if name not in one.holders and due and waiting[name] < GIVEN_AT_ONCE:
                    if name in one.asked_s:
                        one.late.add(name)
                    one.asked_s[name] = now_s
                    room -= one.record.size if one.holders else 0
                    if self._holding is not None and not one.holders:
                        self._holding.expect(digest, name)  # else tasks are better off there
                    waiting[name] += 1
                    batches.setdefault(name, []).append(one.record)
        for name, files in batches.items():
            enlisted = self._fleet.get(name)
            if enlisted is not None:
                self._send(enlisted.target.agent, files)

    def _is_out(self, peers: Sequence[PeerName]) -> bool:
        """Whether each file has left this machine, or takes so long that nobody waits for it."""
        self._only_here = {
            digest
            for digest, one in self._files.items()
            if not (one.holders or one.late or one.refused.issuperset(peers))
        }
        return not (self._only_here or self._unknown or self._identifying)

    def _send(self, to: AgentId, files: Sequence[FileRecord]) -> None:
        self._world.send(to, Entrust(self._run, self._epoch, tuple(files), node_of(self._me)))

    def held(self, sender: AgentId, message: Holds) -> None:
        """A peer tells that it holds a file, or why not."""
        name, one = name_of(sender), self._files.get(message.digest)
        if one is None or name not in one.asked_s:
            return
        if message.refused:
            one.refused.add(name)
        else:
            one.holders.add(name)
            if self._only_here == {message.digest}:
                self._give()
            self._only_here.discard(message.digest)
        if self._holding is not None:
            self._holding.expect_no_more(message.digest, name)
            if not message.refused:
                self._holding.add(message.digest, name)

    def _tell(self) -> None:
        """In the journal, if anything has changed, and not too often."""
        now_s, before, whole = self._world.elapsed(), self._told, self._is_whole(self._holders())
        if before is not None and not whole and now_s - self._told_s < TOLD_S:
            return
        held = [one for one in self._files.values() if one.holders]
        size = sum(one.record.size for one in held)
        total = sum(one.record.size for one in self._files.values())
        by = tuple(sorted({name for one in held for name in one.holders}))
        successors = tuple(self._successors())
        told = Entrusted(0.0, len(held), self._total, size, total, by, whole, successors)
        if told == before:
            return
        self._told, self._told_s = told, now_s
        self._world.record(msgspec.structs.replace(told, at=self._world.now()))


def _user_files(graph: Graph, known: Known) -> list[str]:
    paths = (path for task in graph.tasks for path in task.inputs)
    return [
        path
        for path in dict.fromkeys(paths)
        if graph.maker(path) is None and not known.lies_in_place(path)
    ][::-1]


def _data(graph: Graph) -> Iterable[FileRecord]:
    """What calls read beside their inputs."""
    for task in graph.tasks:
        if isinstance(task.action, Call):
            yield from data_of(graph, task.action)
