"""Reports that a machine keeps until the run's writer has them.

A report is put on disk and synced before it is sent for the first time; it is sent again, at
growing intervals and always to the writer's newest address, until the writer acknowledges it. So
a result survives the crash of the machine that made it, and the absence of the one that wants it.

The world keeps values by name and cannot list them, so reports lie in numbered places that are
used again; `outbox.places` says how many there are. A report that is too long to travel is
shortened to one that says so. A report that nobody has taken for AGE_MAX_S is dropped.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable

import msgspec

from sureline.peer.jobs import JobEnded
from sureline.peer.messages import Finished
from sureline.world.protocol import AgentId, Timer, World
from sureline.world.usual import Usual

REPORTS_MAX = 20_000
REPORTS_OF_RUN_MAX = 10_000
AGE_MAX_S = 7 * 86_400.0
REPORT_BYTES_MAX = 768 << 10
RESEND_S = 5.0
RESEND_MAX_S = 300.0
GATHER_S = 0.02
"""A report that nobody waits for is kept, and sent, together with those that follow so soon."""
GROUP_MAX = 64
"""Reports sent again in one go; the next group follows PAUSE_S later."""
PAUSE_S = 0.2

Key = tuple[str, str, int]
"""(run, task, attempt)."""


class _Stored(msgspec.Struct):
    at: float
    """By the machine's clock: for the next process, which has no better measure of its age."""
    report: Finished


class _Entry(msgspec.Struct):
    place: int
    since_s: float
    """When it came, by `World.elapsed`."""
    report: Finished
    delay_s: float = 0.0
    """Before it is sent again; 0 until it was sent."""
    sent_s: float = -RESEND_MAX_S
    durable: bool = False
    again: bool = False
    """Whether it was sent more than once."""
    turn: int = 0
    """Names the one appointment that counts; earlier ones in the heap are stale."""


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(_Stored).decode


class Outbox:
    """`writer_of` gives the address of a run's writer, or None while it is not known."""

    def __init__(self, world: World, writer_of: Callable[[str], AgentId | None]) -> None:
        self._world = world
        self._writer_of = writer_of
        self._entries: dict[Key, _Entry] = {}
        self._of_run: dict[str, dict[Key, None]] = {}
        self._places = 0
        self._free: list[int] = []
        self._due: list[tuple[float, int, Key]] = []
        self._turns = 0
        self._timer: Timer | None = None
        self._timer_at = 0.0
        self._not_before = 0.0
        """When the next group may go."""
        self._usual = Usual()
        """Until the writer has acknowledged one."""
        self._gathered: list[tuple[Key, _Entry]] = []
        """Those that are not on their way to the disk yet."""

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, key: Key) -> bool:
        return key in self._entries

    def report(self, key: Key) -> Finished | None:
        entry = self._entries.get(key)
        return None if entry is None else entry.report

    def load(self) -> None:
        """Read what an earlier process kept, and begin to send it."""
        self._places = int(self._world.get("outbox.places") or b"0")
        now, elapsed_s = self._world.now(), self._world.elapsed()
        for place in range(self._places):
            data = self._world.get(f"outbox.{place}")
            stored = _decode(data) if data else None
            age_s = max(0.0, now - stored.at) if stored is not None else 0.0
            if stored is None or age_s > AGE_MAX_S:
                heapq.heappush(self._free, place)
                continue
            entry = _Entry(place, elapsed_s - age_s, stored.report, durable=True)
            self._keep(_key(stored.report), entry)
            self._appoint(_key(stored.report), entry, 0.0)

    def has_room(self, run: str) -> bool:
        mine = self._of_run.get(run, ())
        return len(self._entries) < REPORTS_MAX and len(mine) < REPORTS_OF_RUN_MAX

    def runs(self) -> set[str]:
        """Those with reports here."""
        return set(self._of_run)

    def reports(self, run: str) -> list[tuple[str, int, bytes]]:
        """(task, attempt, its warrant) of those that are kept."""
        keys = self._of_run.get(run, ())
        return [(key[1], key[2], self._entries[key].report.warrant) for key in keys]

    def add(self, report: Finished, *, hurry: bool = True) -> None:
        """Keep a report, and send it once it is durable. Without `hurry`, others may come along."""
        key, report = _key(report), fitting(report)
        if key in self._entries:
            return
        entry = _Entry(self._place(), self._world.elapsed(), report)
        self._keep(key, entry)
        stored = _Stored(self._world.now(), report)
        self._world.put(f"outbox.{entry.place}", _encode(stored))

        self._gathered.append((key, entry))
        if hurry:
            self._sync()
        elif len(self._gathered) == 1:
            self._world.after(GATHER_S, self._sync)

    def _sync(self) -> None:
        gathered, self._gathered = self._gathered, []
        if not gathered:
            return

        def durable() -> None:
            for key, entry in gathered:
                entry.durable = True
                if self._entries.get(key) is entry:
                    self._send(key, entry)

        self._world.sync(durable)

    def acknowledge(self, run: str, reports: Iterable[tuple[str, int]]) -> list[Finished]:
        """Forget these; the ones that were here."""
        found = []
        for task, attempt in reports:
            entry = self._forget((run, task, attempt))
            if entry is not None:
                found.append(entry.report)
                if entry.delay_s and not entry.again:  # else nobody knows which was heard
                    self._usual.took(self._world.elapsed() - entry.sent_s)
        return found

    def drop_run(self, run: str) -> None:
        """Nobody wants its reports any more."""
        for key in list(self._of_run.get(run, ())):
            self._forget(key)

    def resend(self, run: str, *, anew: bool) -> None:
        """Its writer is here: send all that is kept of it, in groups; unless it is here `anew`, not
        what may be under way to it."""
        sent_s = self._world.elapsed() - self._usual.within_s(RESEND_S)
        for key in list(self._of_run.get(run, ())):
            entry = self._entries[key]
            if anew or entry.sent_s < sent_s:
                entry.delay_s = 0.0
                self._appoint(key, entry, 0.0)

    def resend_one(self, key: Key) -> None:
        self._appoint(key, self._entries[key], 0.0)

    # -- places --------------------------------------------------------------------------------

    def _place(self) -> int:
        if self._free:
            return heapq.heappop(self._free)
        self._places += 1
        self._world.put("outbox.places", str(self._places).encode())
        return self._places - 1

    def _keep(self, key: Key, entry: _Entry) -> None:
        self._entries[key] = entry
        self._of_run.setdefault(key[0], {})[key] = None

    def _forget(self, key: Key) -> _Entry | None:
        entry = self._entries.pop(key, None)
        if entry is None:
            return None
        mine = self._of_run[key[0]]
        del mine[key]
        if not mine:
            del self._of_run[key[0]]
        self._world.put(f"outbox.{entry.place}", b"")
        heapq.heappush(self._free, entry.place)
        return entry

    # -- sending -------------------------------------------------------------------------------

    def _send(self, key: Key, entry: _Entry) -> None:
        writer = self._writer_of(key[0])
        if writer is not None:
            self._world.send(writer, entry.report)
        jitter = 0.75 + 0.5 * self._world.random.random()
        entry.again = entry.sent_s >= 0
        entry.sent_s = self._world.elapsed()
        entry.delay_s = entry.delay_s or self._usual.within_s(RESEND_S)
        self._appoint(key, entry, entry.delay_s * jitter)
        entry.delay_s = min(RESEND_MAX_S, 2 * entry.delay_s)

    def _appoint(self, key: Key, entry: _Entry, delay_s: float) -> None:
        self._turns += 1
        entry.turn = self._turns
        heapq.heappush(self._due, (self._world.elapsed() + delay_s, self._turns, key))
        self._set_timer(self._due[0][0])

    def _set_timer(self, at: float) -> None:
        at = max(at, self._not_before)
        if self._timer is not None:
            if self._timer_at <= at:
                return
            self._timer.cancel()
        self._timer_at = at
        self._timer = self._world.after(max(0.0, at - self._world.elapsed()), self._send_due)

    def _send_due(self) -> None:
        self._timer = None
        now, sent = self._world.elapsed(), 0
        self._not_before = now + PAUSE_S
        while self._due and self._due[0][0] <= now and sent < GROUP_MAX:
            _, turn, key = heapq.heappop(self._due)
            entry = self._entries.get(key)
            if entry is None or entry.turn != turn or not entry.durable:
                continue
            if entry.since_s < now - AGE_MAX_S:
                self._forget(key)
                continue
            sent += 1
            self._send(key, entry)
        if self._due:
            self._set_timer(self._due[0][0])


def _key(report: Finished) -> Key:
    return (report.run, report.task, report.attempt)


def fitting(report: Finished) -> Finished:
    """The report, or one that says that it was too long to travel."""
    if len(_encode(report)) <= REPORT_BYTES_MAX:
        return report
    short = JobEnded(
        "failed",
        reason=f"its report is longer than {REPORT_BYTES_MAX >> 10} KiB; have it make fewer files",
        elapsed_s=report.ended.elapsed_s,
    )
    return msgspec.structs.replace(report, ended=short)
