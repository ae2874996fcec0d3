"""The agent that keeps copies of other peers' runs, so that they outlive their submitters.

A copy is the run's graph and its events in order, without gaps. Like any peer, a keeper remembers
the highest epoch of each run and fences older writers. Readers with the right get it in pages.

A keeper takes nothing that is not signed by who may write the run, and keeps the seals: a copy ends
with one, and so does every page of it.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from sureline.journal.events import decode
from sureline.peer.messages import Fenced
from sureline.run import grant
from sureline.run.grant import Epoch
from sureline.run.hearing import QUIET_S, Hearing
from sureline.run.keeping import (
    GRAPH_BYTES_MAX,
    LISTED_MAX,
    GrantAsk,
    Granted,
    KeeperAsk,
    KeeperPart,
    KeepEvents,
    KeepRun,
    Kept,
    NumberedEvent,
    Position,
    RunsKnown,
    last_common,
)
from sureline.run.kept import Done, KeptRuns, KeptState, Page, Sealed, Term
from sureline.run.sealing import Checker
from sureline.world.address import node_of, peer_of
from sureline.world.agent import Agent, handles
from sureline.world.identity.signing import (
    PapersError,
    Trust,
    WriterAuthority,
    digest,
    is_run_name,
)
from sureline.world.protocol import AgentId, World

ASSEMBLIES_MAX = 8
"""Graphs that are being received at the same time ..."""
ASSEMBLIES_BYTES_MAX = 96 << 20
"""... and what they may take together, unless it is one alone."""
SHARE = 0.8
"""Of the time after which a run is taken over: so long its writer must have been silent here too.
Messages are lost, and keepers do not hear it at the same moment."""
CHANGING_MAX = 256
"""Runs whose copies are being written at the same time."""


class Keeper(Agent):
    """One change of a run at a time: what a writer says meanwhile is not heard, and it says so
    again."""

    def __init__(self, me: AgentId, world: World, store: KeptRuns, trust: Trust) -> None:
        super().__init__(me, world)
        self._store = store
        self._checker = Checker(trust)
        self._hearing = Hearing(world)
        self._assemblies: dict[str, bytearray] = {}
        self._changing: set[str] = set()

    def silent_s(self, run: str) -> float:
        """For how long nothing was heard of the run's writer, as far as this process can tell."""
        return self._hearing.silent_s(run)

    @handles(KeepRun)
    def on_keep_run(self, sender: AgentId, message: KeepRun) -> None:
        run, epoch = message.run, Epoch(message.epoch, message.writer)
        state = self._store.state(run)
        if not self._admit(sender, run, epoch, state) or not self._may_change(run):
            return
        if not is_run_name(run) or not 0 < message.size_bytes <= GRAPH_BYTES_MAX:
            self._answer(sender, run, message.epoch, f"{run} cannot be kept here")
        elif state is None or epoch != state.term.promised or state.cut is None:
            self._begin(sender, message, state)
        else:
            self._take_piece(sender, message, state)

    def _begin(self, sender: AgentId, message: KeepRun, state: KeptState | None) -> None:
        """A writer comes whose epoch is new here, or who has not said what it builds on."""
        run, papers = message.run, message.papers
        term = Term(message.epoch, node_of(sender), papers, message.writer)
        try:
            authority = self._check(sender, run, term.promised, papers, state)
        except PapersError as error:
            self._refuse(sender, run, message.epoch, error)
            return
        if state is not None and self._is_anothers(authority, term.promised, state, message.epoch):
            return  # it will say so again
        self._hearing.heard(run, term.promised)
        self._changing.add(run)
        self._store.open(
            run,
            term,
            _base(message, state),
            lambda refused: self._opened(sender, message, refused),
        )

    def _check(
        self, sender: AgentId, run: str, epoch: Epoch, papers: bytes, state: KeptState | None
    ) -> WriterAuthority:
        """Raise PapersError unless the sender may write the run in this epoch."""
        authority = self._checker.authority(run, epoch.number, papers, self.world.now())
        if authority.writer != peer_of(sender):
            raise PapersError(f"its papers are those of {authority.writer}")
        if epoch.writer.rpartition(":")[0] not in ("", authority.writer):
            raise PapersError(f"{authority.writer} asks in the name of another")
        if state is not None and state.term.charter not in (b"", authority.start):
            raise PapersError("another run of this name is kept here")
        return authority

    def _is_anothers(
        self,
        authority: WriterAuthority,
        epoch: Epoch,
        state: KeptState,
        gone: int,
        relief: bool = False,
    ) -> bool:
        """Whether the run is not to be had now: somebody else seems to write it. `gone` counts
        only if it is the word of who submitted it, or wrote it last. Who relieves a writer that
        has been silent for long is let in after that time, which the submitter may have set."""
        if epoch == state.term.promised:
            return False
        knows = authority.writer in (authority.submitter, peer_of(state.term.writer))
        quiet_s = SHARE * self._store.due_s(authority.run) if relief else QUIET_S
        return self._hearing.is_written(
            authority.run, epoch.writer, gone if knows else 0, min(QUIET_S, quiet_s)
        )

    @handles(GrantAsk)
    def on_grant_ask(self, sender: AgentId, message: GrantAsk) -> None:
        run, epoch = message.run, Epoch(message.number, message.writer)
        state = self._store.state(run)
        try:
            state, authority = self._asked_by(sender, message, epoch, state)
        except PapersError as error:
            self.world.send(sender, Granted(run, message.number, 0, "", 0, str(error)))
            return
        if grant.asked(state.holding, epoch) == state.holding:
            self._promised(sender, message, "")
        elif self._is_anothers(authority, epoch, state, message.gone, message.relief):
            self._promised(sender, message, "")  # nothing new: the asker looks who writes it
        elif self._may_change(run):
            self._changing.add(run)
            self._hearing.promised(run, epoch)

            def done(refused: str) -> None:
                self._changing.discard(run)
                self._promised(sender, message, refused)

            term = Term(epoch.number, state.term.writer, message.papers, epoch.writer)
            self._store.promise(run, term, done)

    def _asked_by(
        self, sender: AgentId, ask: GrantAsk, epoch: Epoch, state: KeptState | None
    ) -> tuple[KeptState, WriterAuthority]:
        """Raise PapersError if this question is not even thought of."""
        name = peer_of(self.me)
        if state is None or not state.graph_bytes:
            raise PapersError(f"{name} does not keep {ask.run}")
        due_s = self._store.due_s(ask.run)
        if ask.relief and (not due_s or self.silent_s(ask.run) < SHARE * due_s):
            raise PapersError(f"{name} has heard of the writer of {ask.run} of late")
        try:
            return state, self._check(sender, ask.run, epoch, ask.papers, state)
        except PapersError as error:
            raise PapersError(
                f"{name} does not let {peer_of(sender)} write {ask.run}: {error}"
            ) from None

    def _promised(self, sender: AgentId, ask: GrantAsk, refused: str) -> None:
        """Say what holds now, and is durable."""
        state = self._store.state(ask.run)
        if refused or state is None:
            why = refused or f"{ask.run} is not kept here any more"
            self.world.send(sender, Granted(ask.run, ask.number, 0, "", 0, why))
            return
        promised = state.term.promised
        said = Granted(ask.run, ask.number, promised.number, promised.writer, state.position)
        self.world.send(sender, said)

    def _refuse(self, sender: AgentId, run: str, epoch: int, why: PapersError) -> None:
        self._answer(sender, run, epoch, f"{run} is not kept here: {why}")

    def _authority(self, run: str, state: KeptState) -> WriterAuthority:
        """Of its writer, who was believed when the term began. Raises PapersError."""
        return self._checker.authority(run, state.epoch, state.term.papers)

    def _admit(self, sender: AgentId, run: str, epoch: Epoch, state: KeptState | None) -> bool:
        """Whether this writer is heard; an older one is fenced."""
        if state is not None and not grant.may_write(state.holding, epoch):
            self.world.send(sender, Fenced(run, state.epoch, state.term.papers))
            return False
        if state is not None and epoch == state.term.promised:
            writer = epoch.writer.rpartition(":")[0]
            if writer in ("", peer_of(sender)):
                self._hearing.heard(run, epoch)
        return True

    def _may_change(self, run: str) -> bool:
        return run not in self._changing and len(self._changing) < CHANGING_MAX

    def _opened(self, sender: AgentId, message: KeepRun, refused: str) -> None:
        self._changing.discard(message.run)
        state = self._store.state(message.run)
        if refused or state is None:
            self._answer(sender, message.run, message.epoch, refused)
        else:
            self._take_piece(sender, message, state)

    def _take_piece(self, sender: AgentId, message: KeepRun, state: KeptState) -> None:
        run, epoch = message.run, message.epoch
        graph = None if state.graph_bytes else self._assembled(message)
        if graph is None:
            self._answer(sender, run, epoch)
            return
        try:
            if digest(graph) != self._authority(run, state).graph:
                raise PapersError("its graph is not the one that was submitted")
        except PapersError as error:
            self._refuse(sender, run, epoch, error)
            return
        self._changing.add(run)
        self._store.keep_graph(run, graph, self._changed(sender, run, epoch))

    def _assembled(self, message: KeepRun) -> bytes | None:
        """The graph, if this was its last piece."""
        parts = self._assemblies.setdefault(message.run, bytearray())
        if message.offset == 0 or len(parts) + len(message.piece) > message.size_bytes:
            parts.clear()
        if message.offset == len(parts):
            parts += message.piece
        whole = len(parts) == message.size_bytes
        if whole:
            del self._assemblies[message.run]
        while len(self._assemblies) > ASSEMBLIES_MAX or (
            len(self._assemblies) > 1
            and sum(map(len, self._assemblies.values())) > ASSEMBLIES_BYTES_MAX
        ):
            del self._assemblies[next(iter(self._assemblies))]
        return bytes(parts) if whole else None

    @handles(KeepEvents)
    def on_keep_events(self, sender: AgentId, message: KeepEvents) -> None:
        run, epoch = message.run, message.epoch
        state = self._store.state(run)
        promised = Epoch(epoch) if state is None or epoch != state.epoch else state.term.promised
        if not self._admit(sender, run, promised, state) or not self._may_change(run):
            return
        if state is not None and (promised != state.term.promised or state.cut is None):
            return
        last = message.events[-1][0] if message.events else message.after
        if (
            state is None
            or state.cut is None
            or message.after != state.cut[0]
            or not message.events
        ):
            self._answer(sender, run, epoch)
            return
        if not grant.followed(state.holding, promised, state.base, message.after, last):
            self._answer(sender, run, epoch)
            return
        try:
            chain = self._checker.followed(
                self._authority(run, state), *state.cut, message.events, message.seal
            )
        except PapersError as error:
            self._refuse(sender, run, epoch, error)
            return
        if not _readable(message.events):
            self._answer(sender, run, epoch, f"what {run} is said to have recorded is no event")
            return
        self._changing.add(run)
        sealed = Sealed(chain, message.seal, state.term.papers)
        self._store.add(run, message.events, sealed, self._changed(sender, run, epoch))

    def _changed(self, sender: AgentId, run: str, epoch: int) -> Done:
        def done(refused: str) -> None:
            self._changing.discard(run)
            self._answer(sender, run, epoch, refused)

        return done

    def _answer(self, sender: AgentId, run: str, epoch: int, refused: str = "") -> None:
        state = self._store.state(run)
        if refused or state is None:
            self.world.send(sender, Kept(run, epoch, 0, 0, refused))
        else:
            graph_bytes = state.graph_bytes or len(self._assemblies.get(run, b""))
            position = state.position if state.cut is None else state.cut[0]
            self.world.send(sender, Kept(run, epoch, graph_bytes, position))

    # -- reading -------------------------------------------------------------------------------

    @handles(KeeperAsk)
    def on_ask(self, sender: AgentId, message: KeeperAsk) -> None:
        if not message.run:
            newest = self._store.known()[-LISTED_MAX:]
            self.world.send(sender, RunsKnown(message.serial, tuple(newest)))
            return
        state = self._store.state(message.run)
        if state is None or not state.graph_bytes:
            nothing = KeeperPart(message.serial, message.run, 0, 0, 0, b"", (), True)
            self.world.send(sender, nothing)
            return
        if 0 <= message.offset < state.graph_bytes:
            self._store.read_graph(
                message.run,
                message.offset,
                lambda piece: self._tell(sender, message, Page(), piece),
            )
        else:
            self._store.read_events(
                message.run, message.after, lambda page: self._tell(sender, message, page)
            )

    def _tell(self, sender: AgentId, ask: KeeperAsk, page: Page, piece: bytes = b"") -> None:
        state = self._store.state(ask.run)
        if state is None:
            return  # it has made room for another
        graph_left = ask.offset + len(piece) < state.graph_bytes
        told = page.events[-1][0] if page.events else ask.after
        part = KeeperPart(
            ask.serial,
            ask.run,
            state.epoch,
            state.graph_bytes,
            ask.offset,
            piece,
            tuple(page.events),
            not graph_left and not piece and told >= state.position,
            page.papers,
            page.seal,
        )
        self.world.send(sender, part)


def _base(message: KeepRun, state: KeptState | None) -> Position:
    """Up to where what is here is what the writer builds on: all of it, if it is its own, and only
    this process has begun anew."""
    own = Epoch(message.epoch, message.writer)
    if state is not None and state.term.promised == own and state.in_line == own.number:
        return state.position
    if state is None or not message.line:
        return message.base
    return last_common(state.line, message.line)


def _readable(events: Sequence[NumberedEvent]) -> bool:
    """Whether all of them are events: what is kept must be of use to readers."""
    try:
        for _, body in events:
            decode(body)
    except msgspec.DecodeError:
        return False
    return True
