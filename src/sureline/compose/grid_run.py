"""A run on a grid, from one directory: asked for, driven if it is granted, else looked at.

Whoever goes on with a run that was opened before asks the grid first (`run.claiming`), and takes
over what was committed meanwhile. If somebody else drives it, this process follows it to its end,
and brings its results home. A driver that has lost its majority, or its run, asks again.
"""

from __future__ import annotations

import asyncio
import math
import secrets
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import NamedTuple

from sureline.assembly.claims import make_claimant, node_called
from sureline.compose.driving import GridSession, Held, TakenOverError
from sureline.compose.elsewhere import answer_of, find_copies, reader_on, visiting
from sureline.compose.node import LiveNode, NobodyAnswersError, grid_loop, guest_suffix
from sureline.compose.returning import note_run
from sureline.compose.session import Outcome, Watcher, lock_run, outcome_of
from sureline.compose.signing import PAPERS, papers_for
from sureline.journal.events import decode
from sureline.journal.store import Entry, Journal
from sureline.journal.views import RunView
from sureline.peer.files.cache import FileCache
from sureline.peer.runner import SlotRunner
from sureline.run.claiming import Claim, Claimed, Driven, LineFound, Own, Unclaimed, voters_of
from sureline.run.copies import Copy, CopyReader, RunCopy
from sureline.run.fetching import Fetching
from sureline.run.grant import OWN
from sureline.run.keeping import NumberedEvent
from sureline.workflow.mistakes import SurelineError, UserError
from sureline.world.address import PeerName, at, peer_of
from sureline.world.identity.home import GridHome

VOTE = "vote"
"""Under which key a journal keeps its word as a voter."""
FOLLOW_S = 1.0
AGAIN_S = 5.0
"""Between two tries of a driver that has lost its majority."""
MISSES_MAX = 5
"""So often in a row nobody drives a run that is followed before it is asked for."""
BRINGS_MAX = 4
"""How often results are asked for that nobody seems to have: a peer may be away for a moment."""
NOBODY_S = 90.0
"""Who looks on waits so long for somebody to take the run over."""
HELPERS = 3
UNBOUNDED = 1 << 62
_LOOK = " (sureline resume --alone goes on all the same: if another process writes the run, too, "
ALONE = _LOOK + "tasks run and commit twice, and what one of the two has recorded is lost)"


ALONE_APART = 1 << 18
"""Who goes on alone draws an epoch: that of another one who does the same should be another one."""


class BroughtHome(NamedTuple):
    """What has come home."""

    files: int
    missing: list[str]


class GridRun:
    """`relief_s` is for a peer that takes over what nobody writes: when it may ask; `alone` asks
    nobody."""

    def __init__(
        self,
        journal: Journal,
        run: str,
        directory: Path,
        home: GridHome,
        watcher: Watcher | None,
        *,
        alone: bool = False,
        relief_s: float | None = None,
    ) -> None:
        self._journal = journal
        self._run = run
        self._directory = directory
        self._home = home
        self._watcher = watcher or Watcher()
        self._alone = alone
        self._relief = relief_s is not None
        self._relief_s = relief_s or 0.0
        self._is_shown = False
        self._give_up_s = math.inf

    def drive(self) -> Outcome:
        """To the run's end, whoever drives it."""
        lost = False
        while True:
            held = self._held(lost)
            if held is None:
                if self._follow():
                    return self._over()
                continue
            graph = self._journal.workflow(self._run)
            try:
                return GridSession(
                    self._journal,
                    self._run,
                    graph,
                    self._directory,
                    self._home,
                    self._watcher,
                    held,
                ).drive()
            except TakenOverError as error:
                if self._relief:
                    raise
                if self._is_over():
                    self._watcher.told(f"{error}; its end is recorded here alone")
                    return self._outcome()
                self._watcher.told(f"{error}; this process asks who drives it")
                lost = True

    # -- asking ----------------------------------------------------------------------------------

    def _held(self, lost: bool) -> Held | None:
        """The right to write the run; None if others do, or nobody has to any more."""
        own, writer = self._own(), self._writer()
        if not own.epoch and own.position:
            note_run(self._home, self._run, self._directory)
            return Held(1, writer, (), own.vote)
        if self._alone and not lost:
            number = own.epoch + 1 + secrets.randbelow(ALONE_APART)
            return Held(number, writer, (), own.vote)
        while True:
            claim = self._claim(own, writer)
            if isinstance(claim, Claimed):
                self._adopt(claim.found, own.vote)
                return Held(claim.epoch.number, writer, claim.voters, own.vote)
            if isinstance(claim, Driven):
                self._leave(claim, own)
                return None
            if not lost:
                raise SurelineError(claim.reason + ("" if self._relief else ALONE))
            time.sleep(AGAIN_S)

    def first(self) -> Held:
        """The right to write a run that was made just now, here: nobody else knows of it."""
        return Held(1, self._writer(), (), self._own().vote)

    def _writer(self) -> str:
        return f"{self._name()}:{secrets.token_hex(8)}"

    def _leave(self, claim: Driven, own: Own) -> None:
        """Leave it to its writer; but who did not submit it here has no business with it then."""
        if self._relief:
            raise SurelineError(f"run {self._run} needs nobody: it is driven, or has ended")
        if not own.position and claim.here is not None:
            name = peer_of(claim.copies[0].about.writer)
            raise UserError(
                f"run {self._run} is still driven by {name}; stop it first: "
                f"sureline cancel {self._run} --grid {self._home.grid}"
            )
        self._adopt(claim.found, own.vote)

    def _name(self) -> str:
        from sureline.world.identity.credentials import Credentials

        return Credentials.load(self._home).name

    def _own(self) -> Own:
        """What the journal here says of the run, with its word as a voter."""
        if all(one.run != self._run for one in self._journal.runs()):
            return Own(vote=OWN + secrets.token_hex(8))
        kept = self._journal.kept(self._run, VOTE)
        vote = OWN + secrets.token_hex(8) if kept is None else kept.decode()
        if kept is None:
            self._journal.keep(self._run, VOTE, vote.encode())
        entries = list(self._journal.events(self._run))
        voters = voters_of([entry.event for entry in entries])
        epoch = self._journal.summary(self._run).epoch
        return Own(entries[-1].position, epoch, voters, vote)

    def _claim(self, own: Own, writer: str) -> Claim:
        lock = lock_run(self._journal, self._run) if own.position else None
        try:
            with visiting(self._home.grid) as (node, loop):
                return loop.run(self._asked(node, own, writer))
        except NobodyAnswersError as error:
            return Unclaimed(str(error))
        finally:
            if lock is not None:
                lock.release()

    async def _asked(self, node: LiveNode, own: Own, writer: str) -> Claim:
        reader = reader_on(node)
        kept = self._journal.kept(self._run, PAPERS) if own.position else None

        refused: list[UserError] = []

        def papers(found: bytes, number: int) -> bytes:
            try:
                return papers_for(node.credentials, self._run, found or kept or b"", number)
            except UserError as error:
                refused.append(error)
                return b""

        def ask(done: Callable[[Claim], None]) -> None:
            claimant = make_claimant(
                node.grid, reader, self._run, writer, own, done, relief=self._relief, papers=papers
            )
            claimant.start()

        await asyncio.sleep(max(0.0, self._relief_s - time.monotonic()))
        claim = await answer_of(ask)
        if refused:
            raise refused[0]
        return claim

    def _adopt(self, found: LineFound, vote: str) -> None:
        """Have what was committed meanwhile; what was here beyond it never happened."""
        if found.graph:
            self._journal.adopt(self._run, found.graph, found.entries)
            self._journal.keep(self._run, PAPERS, found.papers)
            self._journal.keep(self._run, VOTE, vote.encode())

    def look_on(self, timeout_s: float) -> Outcome:
        """Follow the run to its end, and have its results here, without asking for it. Raises
        SurelineError if nobody drives it for long, or when the time is over."""
        began_s = seen_s = time.monotonic()
        self._give_up_s = began_s + timeout_s
        position = self._journal.last_position(self._run)
        while not self._follow():
            now_s, last = time.monotonic(), self._journal.last_position(self._run)
            if last != position:
                position, seen_s = last, now_s
            if now_s >= self._give_up_s:
                raise SurelineError(f"run {self._run} has not ended by now; it goes on")
            if now_s - seen_s > NOBODY_S:
                raise SurelineError(
                    f"nobody drives run {self._run}; continue with: sureline resume {self._run}"
                )
        return self._over()

    # -- looking on ------------------------------------------------------------------------------

    def _follow(self) -> bool:
        """Whether it has ended; False if nobody drives it any more."""
        lock = lock_run(self._journal, self._run)
        try:
            with suppress(NobodyAnswersError), visiting(self._home.grid) as (node, loop):
                return loop.run(self._followed(node))
            time.sleep(AGAIN_S)
            return False
        finally:
            lock.release()

    async def _followed(self, node: LiveNode) -> bool:
        reader = reader_on(node)
        self._show(node)
        if self._is_over():
            return True
        copies = await self._copies(node, reader)
        if not copies:
            await asyncio.sleep(AGAIN_S)
            return False
        read: list[Entry] = []

        def take(graph: bytes, events: Sequence[NumberedEvent]) -> None:
            read.extend(Entry(position, decode(body)) for position, body in events)

        copy = RunCopy(copies, reader.trust, take, read.clear)
        misses = 0
        while misses < MISSES_MAX and time.monotonic() < self._give_up_s:
            whole = await answer_of(partial(reader.read, copy))
            self._saw(copy, read)
            if self._is_over():
                return True
            here = await answer_of(partial(reader.look_for_driver, copy)) if whole else None
            misses = 0 if here is not None else misses + 1
            if not whole:
                return False
            await asyncio.sleep(FOLLOW_S)
        return False

    async def _copies(self, node: LiveNode, reader: CopyReader) -> list[Copy]:
        found = await find_copies(node, reader, self._run)
        return [copy for copy in found if copy.about.run == self._run]

    def _show(self, node: LiveNode) -> None:
        if not self._is_shown:
            self._is_shown = True
            graph = self._journal.workflow(self._run)
            done = len(self._journal.committed(self._run))
            self._watcher.submitted(self._run, graph, None, done)

    def _saw(self, copy: RunCopy, read: list[Entry]) -> None:
        last = self._journal.last_position(self._run)
        new = [entry for entry in read if entry.position > last]
        if new:
            self._journal.adopt(self._run, copy.graph, read)
            self._journal.keep(self._run, PAPERS, copy.papers)
            for entry in new:
                self._watcher.event(entry.event)

    def _is_over(self) -> bool:
        return self._journal.summary(self._run).ended is not None

    def _over(self) -> Outcome:
        """The run was driven elsewhere to its end: have its results here. Raises SurelineError if
        some cannot be had."""
        for tries in range(BRINGS_MAX):
            time.sleep(AGAIN_S if tries else 0.0)
            missing = bring_home(self._journal, self._run, self._directory, self._home).missing
            if not missing:
                return self._outcome()
        more = f" (and {len(missing) - 1} more)" if len(missing) > 1 else ""
        raise SurelineError(
            f"run {self._run} has ended, but its results are not all here: {missing[0]}{more}; try "
            f"again when the peers are back: sureline fetch {self._run}"
        )

    def _outcome(self) -> Outcome:
        view = RunView.of(entry.event for entry in self._journal.events(self._run))
        return outcome_of(self._run, view)


def bring_home(journal: Journal, run: str, directory: Path, home: GridHome) -> BroughtHome:
    """Fetch the results that a run's journal tells of, and put them in place."""
    with grid_loop() as loop:
        return loop.run(_bring(journal, run, directory, home))


async def _bring(journal: Journal, run: str, directory: Path, home: GridHome) -> BroughtHome:
    loop = asyncio.get_running_loop()
    crashes: list[BaseException] = []
    root = journal.directory
    runner = SlotRunner(
        loop, root=root, directory=directory, run=run, functions={}, max_slots=HELPERS
    )
    cache = FileCache(root, UNBOUNDED)
    try:
        node = await LiveNode.open(
            home, cache, runner=runner, guest=guest_suffix(), on_crash=crashes.append
        )
        async with node:
            await node.meet()
            reader = reader_on(node)
            copies = await find_copies(node, reader, run)
            writers = dict.fromkeys(PeerName(peer_of(copy.about.writer)) for copy in copies)
            made: list[Fetching] = []

            def start(done: Callable[[list[str]], None]) -> None:
                world = node.place(at(node.id, "fetching"))
                where = partial(node_called, node.grid)
                made.append(Fetching(world, node.id, where, writers, done))
                made[0].start(journal.commits(run))

            missing = await answer_of(start)
    finally:
        await runner.close()
        cache.close()
    if crashes:
        raise crashes[0]
    return BroughtHome(made[0].files, missing)
