"""What a machine remembers of the writers of runs: how new, where, and when it heard of each.

A forgotten run would let an old writer in, so nothing is forgotten but by age: a run that nobody
spoke of for FORGET_S. If there are more than RUNS_MAX all the same, the one goes that was heard of
longest ago among those of the writer's peer that has most: whoever makes up runs crowds out its
own. A run of which something is here stays in any case.

On disk the runs lie in a fixed number of values, by a hash, so that no change writes them all.
`session` counts how often this machine's agent was started.

Who says that it writes a run shows papers (`world.identity.signing`), and who was not its submitter
is believed only when the writer that was believed before has been silent for as long as that one
said: nobody can have this machine turn away from a writer that is well, whatever others have
promised.
"""

from __future__ import annotations

import zlib
from collections import Counter
from collections.abc import Callable, Container

import msgspec

from sureline.world.address import peer_of
from sureline.world.identity.signing import WriterAuthority
from sureline.world.protocol import Action, AgentId, World

RUNS_MAX = 20_000
FORGET_S = 30 * 86_400.0
LISTENING_MAX = 100
"""Writers that hear of a restart."""
NOTED_S = 3600.0
"""How far behind the time on disk may be, at which a writer was heard of."""
GRACE_S = 3600.0
"""After a start, a writer has so long to be heard of, whatever the clock says."""
QUIET_S, QUIET_S_MIN, QUIET_S_MAX = 25.0, 5.0, 3600.0
"""How long a writer may be silent before another one is believed; it may say otherwise."""
SHELVES = 256


class Writer(msgspec.Struct):
    epoch: int
    address: AgentId
    over: bool = False
    heard_at: float = 0.0
    """By the machine's clock, for the next process."""
    start: bytes = b""
    """Of the run's papers: another one for another run of the same name."""
    quiet_s: float = QUIET_S


class _Kept(msgspec.Struct):
    session: int = 0
    runs: dict[str, Writer] = {}
    """Where an earlier version kept all of them."""


_decode = msgspec.msgpack.Decoder(_Kept).decode
_decode_shelf = msgspec.msgpack.Decoder(dict[str, Writer]).decode
_PLACE = "writers"


class Writers:
    """`runs_here` gives the runs of which something is here."""

    def __init__(self, world: World, runs_here: Callable[[], Container[str]]) -> None:
        self._world = world
        self._runs_here = runs_here
        self._session = 0
        self._runs: dict[str, Writer] = {}
        """Those that attached last at the end."""
        self._shelves: dict[int, dict[str, Writer]] = {}
        self._heard_s: dict[str, float] = {}
        """By `World.elapsed`."""

    def load(self, lease_s: float = FORGET_S) -> None:
        """Read what earlier processes knew, and count this one. None of it has been silent for so
        long that less than GRACE_S are left of the lease."""
        data = self._world.get(_PLACE)
        kept = _decode(data) if data else _Kept()
        self._session = kept.session + 1
        self._world.put(_PLACE, msgspec.msgpack.encode(_Kept(self._session)))
        runs = kept.runs
        for number in range(SHELVES):
            shelf = self._world.get(_place(number))
            if shelf:
                runs.update(_decode_shelf(shelf))
        now, elapsed_s = self._world.now(), self._world.elapsed()
        for run, writer in sorted(runs.items(), key=lambda item: item[1].heard_at):
            silent_s = now - writer.heard_at if writer.heard_at else 0.0
            self._runs[run] = writer
            self._heard_s[run] = elapsed_s - max(0.0, min(silent_s, lease_s - GRACE_S))
            self._shelves.setdefault(_shelf_of(run), {})[run] = writer
        for run in kept.runs:
            self._put(run)

    @property
    def session(self) -> int:
        return self._session

    def epoch(self, run: str) -> int:
        """The highest seen; 0 for an unknown run."""
        known = self._runs.get(run)
        return 0 if known is None else known.epoch

    def address(self, run: str) -> AgentId | None:
        known = self._runs.get(run)
        return None if known is None or known.over else known.address

    def is_over(self, run: str) -> bool:
        known = self._runs.get(run)
        return known is not None and known.over

    def listening(self) -> list[tuple[str, AgentId]]:
        """(run, its writer), those heard of last at the end."""
        found = [(run, known.address) for run, known in self._runs.items() if not known.over]
        return found[-LISTENING_MAX:]

    def is_writer(self, run: str, epoch: int, sender: AgentId) -> bool:
        """Whether it is the one that was believed last."""
        known = self._runs.get(run)
        return known is not None and known.epoch == epoch and _same(known.address, sender)

    def believes(self, authority: WriterAuthority, sender: AgentId) -> bool:
        """Whether somebody with these papers may be the run's writer now."""
        known = self._runs.get(authority.run)
        if authority.writer != peer_of(sender):
            return False
        if known is None:
            return True
        if known.start not in (b"", authority.start) or authority.epoch < known.epoch:
            return False
        if authority.epoch == known.epoch:
            return _same(known.address, sender)
        if authority.writer in (authority.submitter, peer_of(known.address)) or known.over:
            return True
        return self.silent_s(authority.run) >= known.quiet_s

    def attach(
        self,
        run: str,
        epoch: int,
        address: AgentId,
        then: Action,
        start: bytes = b"",
        quiet_s: float = QUIET_S,
    ) -> None:
        """This is its writer now; `then` runs when that would survive a crash."""
        known = self._runs.pop(run, None)
        if known is not None:
            self._runs[run] = known  # at the end
            start = start or known.start
            if known == Writer(epoch, address, False, known.heard_at, start, known.quiet_s):
                self.heard(run)
                then()
                return
        now = self._world.now()
        quiet_s = min(QUIET_S_MAX, max(QUIET_S_MIN, quiet_s))
        writer = self._runs[run] = Writer(epoch, address, False, now, start, quiet_s)
        self._shelves.setdefault(_shelf_of(run), {})[run] = writer
        self._heard_s[run] = self._world.elapsed()
        self._put(run)
        if len(self._runs) > RUNS_MAX:
            self._crowd_out()
        self._world.sync(then)

    def heard(self, run: str) -> None:
        """Its writer has spoken."""
        self._heard_s[run] = self._world.elapsed()
        known, now = self._runs[run], self._world.now()
        if abs(now - known.heard_at) > NOTED_S:
            known.heard_at = now
            self._put(run)

    def silent_s(self, run: str) -> float:
        """For how long its writer has not been heard of; for ever, if it has none."""
        if run not in self._runs:
            return float("inf")
        return self._world.elapsed() - self._heard_s[run]

    def over(self, run: str) -> None:
        """Its writer needs nothing any more; older ones stay fenced."""
        self._runs[run].over = True
        self._put(run)

    def forget_old(self) -> None:
        old = [run for run in self._runs if self.silent_s(run) > FORGET_S]
        here = self._runs_here() if old else ()
        for run in old:
            if run not in here:
                self._forget(run)

    def _crowd_out(self) -> None:
        here = self._runs_here()
        of_peer = Counter(peer_of(writer.address) for writer in self._runs.values())
        [(most, _)] = of_peer.most_common(1)
        theirs = [r for r, w in self._runs.items() if peer_of(w.address) == most and r not in here]
        if theirs:
            self._forget(min(theirs, key=self._heard_s.__getitem__))

    def _forget(self, run: str) -> None:
        del self._runs[run], self._heard_s[run], self._shelves[_shelf_of(run)][run]
        self._put(run)

    def _put(self, run: str) -> None:
        number = _shelf_of(run)
        shelf = self._shelves.get(number)
        self._world.put(_place(number), msgspec.msgpack.encode(shelf) if shelf else b"")


def _same(one: AgentId, other: AgentId) -> bool:
    """Whether both are of one peer."""
    return peer_of(one) == peer_of(other)


def _shelf_of(run: str) -> int:
    return zlib.crc32(run.encode()) % SHELVES


def _place(number: int) -> str:
    return f"{_PLACE}.{number}"
