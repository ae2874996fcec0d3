"""Which chunk is asked of which source: pure, apart from all I/O; time is an argument.

Rarest first: of the chunks that a source has, the one that the fewest sources are known to have.
Among equally rare ones, every downloader that is not alone has an order of its own, so that those
who start together from one source soon hold different parts, and can finish from each other. (Not
each a place of its own from which it goes on in order: whoever runs into another's part would then
follow in its steps.) A source may die: so, while chunks are left that only one node has, those come
first, and other downloaders are asked for no more than keeps us below half of the file until all
of it is out. One that is alone goes from the first to the last.

A request that takes much longer than its source's usual time is overdue: the chunk may be asked
of another source, and the late one gets nothing new until it answers. At the end, when nothing is
left to ask for, an idle source may be asked for what a slow one still owes. Whichever answer comes
first counts.

Everything is bounded: a chunk is asked of at most COPIES_MAX sources at once, and a source that
fails too often, hangs, or gives one wrong chunk is dropped for good (one that hangs from the start
at once, if there are others). So the requests of a transfer
are at most (1 + 1/FAILURES_SHARE) times its chunks, plus a constant for each source, plus one
second copy of each chunk.
"""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

import numpy as np

from sureline.peer.files.chunks import Flags
from sureline.world.address import Node

COPIES_MAX = 2
FAILURES_ROW_MAX = 3
"""So many failures without a success between them, and the source is dropped."""
FAILURES_FREE = 8
FAILURES_SHARE = 8
"""In all, a source may fail FAILURES_FREE times, and once more for every so many successes."""
FIRST_PATIENCE_S = 5.0
"""How long a source may take before anything is known of it."""
PATIENCE_MIN_S = 2.0
PATIENCE_MAX_S = 120.0
PAUSE_S = 0.1
"""After a failure a source is left alone for this long, twice as long after the next."""
SOURCES_MAX = 64
SPREAD_SHARE = 0.4
"""Before all chunks are out, so much of those that are may be here: see above."""


class ChunkRequest(NamedTuple):
    source: Node
    chunk: int


class _Source:
    """What is known of one source."""

    def __init__(self, has: Flags) -> None:
        self.has = has
        self.complete = bool(has.all())
        self.asked: dict[int, float] = {}
        """When each chunk that it owes was asked for."""
        self.overdue: dict[int, None] = {}
        self.place = 0
        """How far it has come in the order of chunks."""
        self.given = 0
        self.failures = 0
        self.failures_row = 0
        self.failed_at = -PATIENCE_MAX_S
        self.paused_until = 0.0
        self.usual_s: float | None = None
        self.spread_s = 0.0

    def heard(self, elapsed_s: float) -> None:
        """As TCP estimates round trips."""
        if self.usual_s is None:
            self.usual_s, self.spread_s = elapsed_s, elapsed_s / 2
        else:
            self.spread_s += (abs(elapsed_s - self.usual_s) - self.spread_s) / 4
            self.usual_s += (elapsed_s - self.usual_s) / 8

    @property
    def patience_s(self) -> float:
        if self.usual_s is None:
            return FIRST_PATIENCE_S
        return min(max(2 * self.usual_s + 4 * self.spread_s, PATIENCE_MIN_S), PATIENCE_MAX_S)

    def ready(self, now: float) -> bool:
        """Whether it may be asked: it neither owes for too long nor failed a moment ago."""
        return not self.overdue and self.paused_until <= now

    @property
    def hopeless(self) -> bool:
        allowed = FAILURES_FREE + self.given // FAILURES_SHARE
        return self.failures_row >= FAILURES_ROW_MAX or self.failures > allowed


class Schedule:
    """`kept` are the chunks that are there already; `seed` is this downloader's own."""

    def __init__(self, kept: Flags, seed: int, *, window: int = 3, total: int = 12) -> None:
        self.count = len(kept)
        self.kept = kept.copy()
        self.dropped: dict[Node, str] = {}
        """The sources that will not be asked again, and why."""
        self._own_order = np.random.default_rng(seed).permutation(self.count)
        self._alone = True
        self._window = window
        self._total = total
        self._sources: dict[Node, _Source] = {}
        self._handed: dict[Node, Flags] = {}
        self._askers: dict[int, dict[Node, None]] = {}
        """Of whom each chunk has been asked and not answered yet."""
        self._arrived: dict[int, None] = {}
        """Chunks that are being verified."""
        self._again: deque[int] = deque()
        self._order: list[int] = []
        self._stale = True
        self._unspread = False
        """Whether chunks are missing that only one source has, and has given to nobody."""
        self._out = 0
        """How many chunks are not of that kind."""

    # -- what is known ----------------------------------------------------------------------

    @property
    def complete(self) -> bool:
        return bool(self.kept.all())

    @property
    def missing(self) -> int:
        return self.count - int(np.count_nonzero(self.kept))

    @property
    def under_way(self) -> int:
        """Requests that are not overdue."""
        return sum(len(s.asked) - len(s.overdue) for s in self._sources.values())

    @property
    def starved(self) -> bool:
        """Whether chunks are missing that nobody has whom we could ask, now or soon."""
        if self.complete or self._askers or self._arrived:
            return False
        wanted = ~self.kept
        return not any(bool((source.has & wanted).any()) for source in self._sources.values())

    def sources(self) -> list[Node]:
        return list(self._sources)

    def due(self, now: float) -> float | None:
        """When there may be something to do although no answer came: a request becomes overdue, or
        a pause ends."""
        times = [
            asked_at + source.patience_s
            for source in self._sources.values()
            for chunk, asked_at in source.asked.items()
            if chunk not in source.overdue
        ]
        times += [source.paused_until for source in self._sources.values()]
        return min((time for time in times if time > now), default=None)

    # -- sources ----------------------------------------------------------------------------

    def offer(
        self, name: Node, has: Flags, handed: Flags | None = None, *, others: bool = False
    ) -> bool:
        """A source has these chunks now (and gave those away; and knows others who are after the
        file); whether it is welcome."""
        if name in self.dropped:
            return False
        source = self._sources.get(name)
        if source is None:
            if len(self._sources) >= SOURCES_MAX:
                return False
            self._sources[name] = _Source(has)
        else:
            source.has, source.complete = has, bool(has.all())
        if handed is not None:
            self._handed[name] = handed
        if others or not self._sources[name].complete:
            self._alone = False
        self._stale = True
        return True

    def gave_away(self, name: Node, handed: Flags) -> None:
        """A source has given these chunks to somebody."""
        if name in self._sources:
            self._handed[name] = handed
            self._alone = False
            self._stale = True

    def drop(self, name: Node, why: str) -> None:
        """Ask it no more. What it owes is asked of others; what it gave stays."""
        source = self._sources.pop(name, None)
        self.dropped.setdefault(name, why)
        self._handed.pop(name, None)
        if source is not None:
            self._stale = True
            for chunk in list(source.asked):
                self._forget(name, source, chunk)

    # -- answers ----------------------------------------------------------------------------

    def arrived(self, name: Node, chunk: int, now: float) -> bool:
        """An answer has come; whether it is wanted: then `keep` or `reject` must follow."""
        source = self._sources.get(name)
        if source is None or chunk not in source.asked:
            return False
        source.heard(now - source.asked[chunk])
        self._forget(name, source, chunk)
        if self.kept[chunk] or chunk in self._arrived:
            return False
        self._arrived[chunk] = None
        return True

    def keep(self, name: Node, chunk: int) -> None:
        """The chunk was right, and is safe."""
        self._arrived.pop(chunk, None)
        self.kept[chunk] = True
        source = self._sources.get(name)
        if source is not None:
            source.given += 1
            source.failures_row = 0

    def reject(self, name: Node, chunk: int) -> None:
        """The chunk was wrong: this source lies, or its copy is damaged."""
        self._arrived.pop(chunk, None)
        self._again.append(chunk)
        self.drop(name, "gave a wrong chunk")

    def fail(
        self, name: Node, chunk: int, now: float, *, gone: bool = False, busy: bool = False
    ) -> None:
        """No answer will come: the source is `busy`, or does not have the chunk after all
        (`gone`), or it is not known why."""
        source = self._sources.get(name)
        if source is None or chunk not in source.asked:
            return
        asked_at = source.asked[chunk]
        self._forget(name, source, chunk)
        if gone:
            source.has = source.has.copy()
            source.has[chunk] = False
        # a lost connection fails all its requests at once: that is one failure in a row
        in_row = not busy and asked_at >= source.failed_at
        self._count_failure(name, source, now, in_row, "did not answer")

    def _count_failure(
        self, name: Node, source: _Source, now: float, in_row: bool, why: str
    ) -> None:
        source.failures += 1
        source.failures_row += in_row
        source.failed_at = now
        source.paused_until = now + PAUSE_S * 2**source.failures_row
        if source.hopeless:
            self.drop(name, why)

    def _forget(self, name: Node, source: _Source, chunk: int) -> None:
        source.asked.pop(chunk, None)
        source.overdue.pop(chunk, None)
        askers = self._askers.get(chunk)
        if askers is not None:
            askers.pop(name, None)
            if not askers:
                del self._askers[chunk]
                if not self.kept[chunk]:
                    self._again.append(chunk)

    # -- asking -----------------------------------------------------------------------------

    def requests(self, now: float) -> list[ChunkRequest]:
        """What to ask now. Each is under way until `arrived` or `fail` ends it."""
        self._look_for_overdue(now)
        if self._stale:
            self._sort()
        found: list[ChunkRequest] = []
        room = self._total - self.under_way
        waiting = [name for name, source in self._sources.items() if source.ready(now)]
        while waiting and room > 0:
            # one each in turn, those that owe least first, so that no source is loaded for others
            waiting.sort(key=lambda name: len(self._sources[name].asked))
            for name in list(waiting):
                source = self._sources[name]
                chunk = None
                if room > 0 and len(source.asked) < self._window_of(source, now):
                    chunk = self._pick(name, source, now)
                if chunk is None:
                    waiting.remove(name)
                    continue
                source.asked[chunk] = now
                self._askers.setdefault(chunk, {})[name] = None
                found.append(ChunkRequest(name, chunk))
                room -= 1
        return found

    def _window_of(self, source: _Source, now: float) -> int:
        """How many chunks it may owe at once. One, until it has given one."""
        if self._unspread and not source.complete and self._first_answers(now):
            return int(self.count - self.missing < SPREAD_SHARE * self._out)
        return self._window if source.given else 1

    def _first_answers(self, now: float) -> bool:
        """Whether somebody who has the whole file can be asked, so that waiting makes sense."""
        return any(s.complete and s.ready(now) for s in self._sources.values())

    def _look_for_overdue(self, now: float) -> None:
        for name, source in list(self._sources.items()):
            late = [
                chunk
                for chunk, asked_at in source.asked.items()
                if chunk not in source.overdue and asked_at + source.patience_s <= now
            ]
            for chunk in late:
                source.overdue[chunk] = None
                self._again.append(chunk)
            if late and source.usual_s is None and len(self._sources) > 1:
                self.drop(name, "does not answer")
            elif late:
                self._count_failure(name, source, now, True, "took too long")

    def _pick(self, name: Node, source: _Source, now: float) -> int | None:
        chunk = self._pick_again(name, source)
        if chunk is None:
            chunk = self._pick_rarest(source)
        return chunk if chunk is not None else self._pick_owed(name, source, now)

    def _pick_again(self, name: Node, source: _Source) -> int | None:
        for _ in range(len(self._again)):
            chunk = self._again.popleft()
            if self.kept[chunk] or chunk in self._arrived:
                continue
            askers = self._askers.get(chunk, {})
            if len(askers) >= COPIES_MAX:
                continue
            if source.has[chunk] and name not in askers:
                return chunk
            self._again.append(chunk)
        return None

    def _pick_rarest(self, source: _Source) -> int | None:
        while source.place < len(self._order):
            chunk = self._order[source.place]
            source.place += 1
            if source.has[chunk] and self._open(chunk):
                return chunk
        return None

    def _open(self, chunk: int) -> bool:
        return not (self.kept[chunk] or chunk in self._askers or chunk in self._arrived)

    def _pick_owed(self, name: Node, source: _Source, now: float) -> int | None:
        """Something that a slower source owes for longer than this one would need."""
        best: tuple[float, int] | None = None
        usual_s = source.usual_s if source.usual_s is not None else PATIENCE_MIN_S
        for chunk, askers in self._askers.items():
            if len(askers) >= COPIES_MAX or name in askers or not source.has[chunk]:
                continue
            asked_at = min(self._sources[asker].asked[chunk] for asker in askers)
            if now - asked_at > 2 * usual_s and (best is None or asked_at < best[0]):
                best = (asked_at, chunk)
        return None if best is None else best[1]

    def _sort(self) -> None:
        """The rarest first; a chunk that a source has handed out is held by one more, whom we may
        not know yet."""
        holders = np.zeros(self.count, dtype=np.int32)
        for source in self._sources.values():
            holders += source.has
        handed = np.zeros(self.count, dtype=np.bool_)
        for flags in self._handed.values():
            handed |= flags
        wanted = np.flatnonzero(~self.kept)
        turn = wanted if self._alone else self._own_order[wanted]
        rarity = 2 * holders[wanted] + handed[wanted]
        alone = int(np.count_nonzero(rarity <= 2))
        self._unspread = alone > 0
        self._out = self.count - alone
        self._order = [int(chunk) for chunk in wanted[np.lexsort((turn, rarity))]]
        self._stale = False
        for source in self._sources.values():
            source.place = 0
