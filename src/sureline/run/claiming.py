"""Asking the grid for a run: what was committed meanwhile, and the right to write it.

Whoever would write a run that was opened before asks first. The copies that keepers have are found;
if somebody has more than is here, it is read; if a writer answers, it is left to it. Else the
run's voters are asked for the next epoch (`run.grant`), until a majority has promised it, others
have, or nobody answers any more. Two who ask at once wait a while, not the same, and ask again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

import msgspec

from sureline.journal.events import AnyEvent, Opened, RunEnded, Voters, decode
from sureline.journal.schema import POSITIONS_PER_EPOCH
from sureline.journal.store import Entry
from sureline.run.copies import Copy, CopyReader, RunCopy
from sureline.run.grant import Answer, Candidacy, Epoch, Position, Voter
from sureline.run.keeping import GrantAsk, Granted, NumberedEvent, RunKnown
from sureline.run.presence import DriverHere
from sureline.world.address import NO_NODE, Node, at, peer_of
from sureline.world.agent import Agent, handles
from sureline.world.protocol import AgentId, Timer, World

PART = "claimant"
AGAIN_S = 1.0
"""A keeper that has not answered is asked again after so long ..."""
ASKED_MAX = 4
"""... so often in all."""
TRIES_MAX = 8
"""How often somebody tries another number who was beaten."""
PAUSE_S = 2.0
"""Who was beaten waits up to so long, and longer each time."""


class Own(msgspec.Struct, frozen=True):
    """What is in the asker's own journal. `vote` is the word of that journal."""

    position: Position = 0
    epoch: int = 0
    voters: tuple[Voter, ...] = ()
    vote: Voter = ""


class LineFound(msgspec.Struct, frozen=True):
    """A run as the grid has it. Without a graph, what is in the asker's own journal is all."""

    graph: bytes = b""
    papers: bytes = b""
    entries: tuple[Entry, ...] = ()


class Claimed(msgspec.Struct, frozen=True):
    """The run is the asker's to write, from what was found on."""

    found: LineFound
    epoch: Epoch
    voters: tuple[Voter, ...]


class Driven(msgspec.Struct, frozen=True):
    """Somebody writes it, or it has ended."""

    found: LineFound
    copies: tuple[Copy, ...]
    here: DriverHere | None = None
    """What its writer said; None if the run has ended."""


class Unclaimed(msgspec.Struct, frozen=True):
    """Nobody knows whether somebody writes it."""

    reason: str


Claim = Claimed | Driven | Unclaimed


def voters_of(events: Sequence[AnyEvent]) -> tuple[Voter, ...]:
    """Whom the journal named last."""
    for event in reversed(events):
        if isinstance(event, Voters):
            return event.voters
    return ()


class Claimant(Agent):
    """One question about one run, on a node that has met its grid. `where` tells the node of a
    peer; `papers` makes of a run's papers (b'' for those in the own journal) such as show that this
    process may write it in an epoch, or b''."""

    def __init__(
        self,
        me: AgentId,
        world: World,
        reader: CopyReader,
        run: str,
        writer: str,
        own: Own,
        where: Callable[[str], Node | None],
        on_done: Callable[[Claim], None],
        *,
        relief: bool = False,
        papers: Callable[[bytes, int], bytes],
    ) -> None:
        super().__init__(me, world)
        self._reader = reader
        self._run = run
        self._writer = writer
        self._own = own
        self._where = where
        self._on_done = on_done
        self._relief = relief
        self._papers = papers
        self._is_over = False
        self._tries = 0
        self._copies: list[Copy] = []
        self._copy: RunCopy | None = None
        self._read: list[Entry] = []
        self._reading = False
        self._read_before: list[Entry] = []
        self._ahead = ""
        """The voter that is read since it has more."""
        self._asking: Candidacy | None = None
        self._asked = 0
        self._next_number = 0
        self._refusals: dict[str, str] = {}
        self._timer: Timer | None = None

    def start(self) -> None:
        self._tries += 1
        self._asking = None
        self._reader.find(self._run, self._on_found)

    def stop(self) -> None:
        self._is_over = True

    # -- what there is --------------------------------------------------------------------------

    def _on_found(self, copies: list[Copy]) -> None:
        if self._is_over:
            return
        self._copies = [copy for copy in copies if copy.about.run == self._run]
        best = max((copy.about.position for copy in self._copies), default=0)
        if best <= self._position():
            self._has_read(True)
        else:
            self._read_from(self._copies)

    def _read_from(self, copies: Sequence[Copy]) -> None:
        self._reading = True
        self._read.clear()
        self._copy = RunCopy(copies, self._reader.trust, self._take, self._read.clear)
        self._reader.read(self._copy, self._has_read)

    def _take(self, graph: bytes, events: Sequence[NumberedEvent]) -> None:
        self._read += [Entry(position, decode(body)) for position, body in events]

    def _found(self) -> LineFound:
        if self._copy is None or not self._read:
            return LineFound()
        return LineFound(self._copy.graph, self._copy.papers, tuple(self._read))

    def _position(self) -> Position:
        return max(self._own.position, self._read[-1].position if self._read else 0)

    def _voters(self) -> tuple[Voter, ...]:
        if self._read and self._read[-1].position > self._own.position:
            return voters_of([entry.event for entry in self._read])
        return self._own.voters

    def _has_read(self, whole: bool) -> None:
        self._reading = False
        if self._is_over:
            return
        if not whole and self._asking is not None:
            self._asking.refuted(self._ahead)
            self._read[:] = self._read_before
            self._ask_voters()
        elif not whole:
            why = "" if self._copy is None else self._copy.why_not
            self._give_up(
                f"no copy of run {self._run} can be believed: {why}"
                if why
                else f"nobody who keeps run {self._run} answers any more"
            )
        elif self._is_ended():
            self._done(Driven(self._found(), tuple(self._copies)))
        elif self._asking is not None:
            self._asking.caught_up(self._position(), self._voters())
            self._ask_voters()
        else:
            self._look_for_driver()

    def _look_for_driver(self) -> None:
        """Ask the writer whom most of those name who keep the run; but keepers that were to be
        relieved of it have waited long enough."""
        writers = Counter(copy.about.writer for copy in self._copies)
        if self._copy is not None and self._copy.writer is not None:
            writers[self._copy.writer] += len(self._copies)
        if writers and not self._relief:
            [(writer, _)] = writers.most_common(1)
            self._reader.ask_driver(self._run, writer, self._on_driver)
        else:
            self._stand()

    def _is_ended(self) -> bool:
        """Whether nothing is left to do; a person may go on with what failed or was cancelled."""
        told = (e.event for e in reversed(self._read) if isinstance(e.event, RunEnded | Opened))
        last = next(told, None)  # a peer that has left may be told of after the end
        return isinstance(last, RunEnded) and (self._relief or last.state == "succeeded")

    def _on_driver(self, here: DriverHere | None) -> None:
        if self._is_over:
            return
        if here is not None:
            self._done(Driven(self._found(), tuple(self._copies), here))
        else:
            self._stand()

    # -- who may write it -----------------------------------------------------------------------

    def _stand(self) -> None:
        """Ask for the next epoch that can be told."""
        number = 1 + max(self._own.epoch, self._position() // POSITIONS_PER_EPOCH)
        epoch = Epoch(max(number, self._next_number), self._writer)
        voters = self._voters()
        if not voters and not self._read and self._own.position:
            voters = (self._own.vote,)  # it never left this journal
        self._refusals, self._asked = {}, 0
        self._asking = Candidacy(epoch, voters, self._position(), self._own.vote)
        self._ask_voters()

    def _ask_voters(self) -> None:
        assert self._asking is not None
        if self._settle():
            return
        if self._asked >= ASKED_MAX and self._asking.against():
            self._pause()  # a keeper that still hears a writer comes round when it is gone
            return
        if self._asked >= ASKED_MAX:
            self._give_up(self._why())
            return
        self._asked += 1
        number = self._asking.epoch.number
        papers = self._papers(b"" if self._copy is None else self._copy.papers, number)
        if not papers:
            self._give_up(f"this process may not write run {self._run}")
            return
        for voter in self._asking.voters:
            node = self._where(voter)
            if node is not None and voter not in self._asking.granting():
                ask = GrantAsk(self._run, number, self._writer, self._relief, papers, self._gone())
                self.world.send(at(node, "keeper"), ask)
        self._after(AGAIN_S, self._ask_voters)

    def _gone(self) -> int:
        """The last epoch whose writer is known to be gone: who has a journal of the run knows of
        what was written there, and who has none, of the writer that does not answer."""
        return self._own.epoch or self._position() // POSITIONS_PER_EPOCH

    @handles(Granted)
    def on_granted(self, sender: AgentId, message: Granted) -> None:
        asking, name = self._asking, peer_of(sender)
        if self._is_over or asking is None or message.run != self._run:
            return
        if message.number != asking.epoch.number or name not in asking.voters:
            return
        if message.refused:
            self._refusals[name] = message.refused
            return
        promised = Epoch(message.promised, message.promised_to)
        asking.heard(name, Answer(promised, message.position))
        self._settle()

    def _settle(self) -> bool:
        """Whether there is nothing more to ask, for now."""
        asking = self._asking
        assert asking is not None
        ahead = asking.ahead()
        if self._reading:
            return True
        if asking.is_granted:
            self._done(Claimed(self._found(), asking.epoch, asking.voters))
        elif ahead is not None and len(asking.granting()) * 2 > len(asking.voters):
            self._ahead, self._read_before = ahead, list(self._read)
            self._read_from([self._copy_at(ahead)])
        elif asking.is_refused:
            self._pause()
        else:
            return False
        self._cancel_timer()
        return True

    def _copy_at(self, voter: str) -> Copy:
        node = self._where(voter)
        assert node is not None, "it has answered"
        about = RunKnown(self._run, "", 0, "running", 0.0, 0, 0, 0, NO_NODE)
        return Copy(node, about)

    def _pause(self) -> None:
        """Others have been promised what we asked for: they may get on with it."""
        assert self._asking is not None
        self._next_number = self._asking.next_number()
        self._asking = None
        if self._tries >= TRIES_MAX:
            self._give_up(f"another process writes run {self._run}, or takes it over just now")
        else:
            pause_s = PAUSE_S * self._tries * (0.5 + self.world.random.random())
            self.world.after(pause_s, lambda: None if self._is_over else self.start())

    def _why(self) -> str:
        asking = self._asking
        assert asking is not None
        silent = [v for v in asking.voters if v not in asking.granting() and not v.startswith("~")]
        if self._refusals:
            return next(iter(self._refusals.values()))
        if not asking.voters and not self._copies:
            return f"no peer keeps run {self._run}"
        if not silent:
            return (
                f"its process died before any peer had a vote on run {self._run}: go on where it "
                f"was submitted: sureline resume {self._run}"
            )
        needed = len(asking.voters) // 2 + 1
        return (
            f"{len(asking.granting())} of the {len(asking.voters)} that say who may write run "
            f"{self._run} agree, and {needed} must: {', '.join(silent)} did not answer"
        )

    def _after(self, seconds: float, action: Callable[[], None]) -> None:
        self._cancel_timer()
        self._timer = self.world.after(seconds, lambda: None if self._is_over else action())

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _give_up(self, reason: str) -> None:
        self._done(Unclaimed(reason))

    def _done(self, claim: Claim) -> None:
        if not self._is_over:
            self._is_over = True
            self._cancel_timer()
            self._on_done(claim)
