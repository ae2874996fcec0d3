"""Files on a simulated machine: its store, and what can be fetched: files, and forecasts.

A store knows which contents it holds, not what they are. It is bounded: what was used longest ago
goes first, but nothing that is marked as needed. It may survive a crash of its machine or not. The
user's directory is a second place, which only publishing writes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from random import Random

import msgspec

from sureline.experiments.work import TaskJob, Work
from sureline.peer.files.finding import (
    FRESH_S,
    NOWHERE,
    Announcer,
    ContentPlaces,
    FetchError,
    Finder,
    Hunt,
    Landed,
    OnLanded,
    mention_pause,
)
from sureline.peer.jobs import Blob, CommandJob, FileMissing, FileReady, JobEnded, UserFile
from sureline.run.asking import ProgramAsked, ProgramSaid, SentEarlier, SentFound
from sureline.run.estimates import Estimates
from sureline.run.outlook import Outlook, OutlookFound, Seer
from sureline.run.past import KeptAnswer, KeptFiles, PastResult, PastUnknown
from sureline.workflow.files import FileRecord
from sureline.world.address import Node
from sureline.world.protocol import Action, Fetched, Wanted
from sureline.world.simulated.flows import Flow
from sureline.world.simulated.machine import Life

HASH_BYTES_S = 1e9
LOOK_S = 0.0002
FORECAST_S = 0.001
DRAW_S = 1e-7
"""What a forecast costs: in all, and for each task in each sample."""
STALLED_S = 10.0
"""A source that sends nothing for so long is given up."""


class SimulatedStore:
    """Contents by digest, least recently used first; also what `peer.grid_agent.Marks` asks for."""

    def __init__(self, node: Node, bound_bytes: float, keeps: bool) -> None:
        self.node = node
        self._bound_bytes = bound_bytes
        self._keeps = keeps
        self._sizes: dict[str, int] = {}
        self._pins: dict[str, dict[str, None]] = {}
        """Why something is needed just now -> what."""
        self._kept: dict[str, dict[str, None]] = {}
        """Run -> what it has no other copy of, perhaps."""
        self._held: Counter[str] = Counter()
        """How many of these hold a content."""
        self.used_bytes = 0
        self.full = False
        """Whether nothing more is taken in, as if others had filled it."""
        self._damaged: set[str] = set()
        """Copies that somebody has changed: found when they are used, read or looked through."""
        self.published: dict[str, str] = {}
        """The user's directory: path -> digest."""
        self.places: ContentPlaces = NOWHERE
        """The hash table, while the machine's process is on a grid."""
        self._announcer: Announcer | None = None
        self._turn: Action = lambda: None
        self._turning = False

    def __contains__(self, digest: str) -> bool:
        return digest in self._sizes

    # -- what is to be found here --------------------------------------------------------------

    def serve(self, life: Life, members: Callable[[], int]) -> None:
        """Announce what is here, and what comes, for the rest of a life."""
        self._announcer = announcer = Announcer(
            self.places,
            self,
            lambda digest: False,
            lambda: mention_pause(members(), is_behind=False),
        )

        def turn() -> None:
            self._turning = announcer.turn()
            if self._turning:
                life.after(FRESH_S, turn)

        self._turn = turn
        turn()

    def announced(self) -> list[str]:
        return list(self._sizes)

    def take_fresh(self, limit: int) -> list[str]:
        return []  # nobody else puts anything here

    def has(self, digest: str) -> bool:
        return digest in self._sizes

    # -- what is here --------------------------------------------------------------------------

    def use(self, digest: str) -> None:
        """It is the last to go from now on."""
        self._sizes[digest] = self._sizes.pop(digest)

    def add(self, file: FileRecord) -> str:
        """Take a content in; '' or a sentence on why there is no room for it."""
        if file.digest in self._sizes:
            self.use(file.digest)
            return ""
        if self.full:
            return f"there is no room for {file.path} on {self.node}"
        if self.used_bytes + file.size > self._bound_bytes:
            self._evict(self.used_bytes + file.size - self._bound_bytes)
        if self.used_bytes + file.size > self._bound_bytes:
            return f"there is no room for {file.path} on {self.node}"
        self._sizes[file.digest] = file.size
        self.used_bytes += file.size
        if self._announcer is not None:
            self._announcer.mention(file.digest)
            if not self._turning:
                self._turn()
        return ""

    def _evict(self, bytes_needed: float) -> None:
        for digest in [digest for digest in self._sizes if not self._held[digest]]:
            if bytes_needed <= 0:
                return
            bytes_needed -= self._sizes[digest]
            self.forget(digest)

    def forget(self, digest: str) -> None:
        """It is gone, and nobody is to look for it here."""
        self.used_bytes -= self._sizes.pop(digest)
        self._damaged.discard(digest)
        self.places.withdraw(digest)

    def damage(self, share: float, random: Random) -> None:
        """Change the bytes of this share of what is here."""
        self._damaged |= {digest for digest in self._sizes if random.random() < share}

    def sound(self, digest: str) -> bool:
        """Whether a whole copy is here; one that is found damaged is removed."""
        return digest in self._sizes and not self.found_damaged(digest)

    def found_damaged(self, digest: str) -> bool:
        """Somebody has looked at the copy: if it is damaged, it is removed."""
        damaged = digest in self._damaged
        if damaged:
            self.forget(digest)
        return damaged

    def process_died(self, *, power: bool) -> None:
        """Nothing is needed just now any more; with `power`, the machine went down with it."""
        self.places, self._announcer = NOWHERE, None
        for why in list(self._pins):
            self.unpin(why)
        if power and not self._keeps:
            self._sizes.clear()
            self._kept.clear()
            self._held.clear()
            self._damaged.clear()
            self.used_bytes = 0

    # -- marks ---------------------------------------------------------------------------------

    def pin(self, files: Iterable[FileRecord], why: str) -> None:
        self._hold(self._pins, files, why)

    def unpin(self, why: str) -> None:
        self._let_go(self._pins, list(self._pins.get(why, ())), why)

    def keep(self, files: Iterable[FileRecord], run: str) -> None:
        self._hold(self._kept, files, run)

    def release(self, digests: Iterable[str], run: str) -> None:
        self._let_go(self._kept, digests, run)

    def release_run(self, run: str) -> None:
        self._let_go(self._kept, list(self._kept.get(run, ())), run)

    def runs(self) -> Iterable[str]:
        return tuple(self._kept)

    def _hold(
        self, holds: dict[str, dict[str, None]], files: Iterable[FileRecord], why: str
    ) -> None:
        held = holds.setdefault(why, {})
        for digest in (record.digest for record in files):
            if digest not in held:
                held[digest] = None
                self._held[digest] += 1

    def _let_go(self, holds: dict[str, dict[str, None]], digests: Iterable[str], why: str) -> None:
        held = holds.get(why, {})
        for digest in digests:
            if digest in held:
                del held[digest]
                self._held[digest] -= 1
        if not held:
            holds.pop(why, None)

    # -- what jobs need ------------------------------------------------------------------------

    def first_missing(self, job: TaskJob) -> FileRecord | None:
        """An input that is not here, or not whole; None if all are."""
        for file in job.inputs if isinstance(job, CommandJob) else ():
            if not self.sound(file.digest):
                return file
            self.use(file.digest)
        return None

    def publish(self, files: Sequence[FileRecord]) -> JobEnded:
        verified = self.verify(files)
        if verified.outcome == "succeeded":
            for file in files:
                self.published[file.path] = file.digest
        return verified

    def check(self) -> JobEnded:
        """Whether the machine can do its work."""
        if self.full:
            return JobEnded("failed", reason=f"there is no room on {self.node}", fault="machine")
        return JobEnded("succeeded")

    def verify(self, files: Sequence[FileRecord]) -> JobEnded:
        for file in files:
            if not self.sound(file.digest):
                return JobEnded("failed", reason=f"{file.path} is not in the store")
        return JobEnded("succeeded")


class SimulatedFetcher:
    def __init__(
        self, life: Life, work: Work, store: SimulatedStore, stores: Mapping[Node, SimulatedStore]
    ) -> None:
        self.life = life
        self.node = life.machine.node
        self.store = store
        self.stores = stores
        self._finder = Finder(self.node, store.places, life.after)
        self._work = work
        self._seers: dict[str, Seer] = {}

    def fetch(
        self, wanted: Wanted, sources: Sequence[Node], on_done: Callable[[Fetched], None]
    ) -> None:
        match wanted:
            case UserFile(path=path):
                self._user_file(self._work.user_file(path), on_done)
            case Blob(file=file) if file.digest in self.store:
                self.store.use(file.digest)
                self.life.after(LOOK_S, lambda: on_done(FileReady(file)))
            case Blob(file=file):
                self._bring(file, list(sources), on_done)
            case PastResult():
                self.life.after(LOOK_S, lambda: on_done(PastUnknown()))
            case KeptFiles(files=files, by_content=by_content):
                whole = all(self.store.sound(file.digest) for file in files)
                seconds = LOOK_S
                if by_content:
                    seconds += sum(file.size for file in files) / HASH_BYTES_S
                self.life.after(seconds, lambda: on_done(KeptAnswer(whole)))
            case ProgramAsked():
                said = ProgramSaid(trouble="there are no programs in a simulated world")
                self.life.after(LOOK_S, lambda: on_done(said))
            case SentEarlier():
                self.life.after(LOOK_S, lambda: on_done(SentFound()))
            case Estimates():
                seer = self._seers.setdefault(wanted.run, Seer(self._work.history))
                self.life.after(FORECAST_S, lambda: on_done(seer.estimates(wanted)))
            case Outlook():
                found = self._foreseen(wanted)
                self.life.after(found.cost_s, lambda: on_done(found))
            case _:
                raise AssertionError(f"nobody fetches {wanted}")

    def _bring(
        self, file: FileRecord, sources: Sequence[Node], on_done: Callable[[Fetched], None]
    ) -> None:
        def landed(how: Landed) -> None:
            if isinstance(how, BaseException):
                on_done(FileMissing(file.path, str(how)))
            else:
                on_done(FileReady(file, how))

        def move(hunt: Hunt, on_landed: OnLanded) -> None:
            _Move(self, file, hunt, on_landed).try_next()

        self._finder.bring(file.digest, sources, move, landed)

    def _foreseen(self, wanted: Outlook) -> OutlookFound:
        """The forecast itself is real; its cost is modelled, since times that were measured would
        differ from one simulation to the next."""
        seer = self._seers.setdefault(wanted.run, Seer(self._work.history))
        found = seer.answer(wanted)
        drawn = found.forecast.samples * (1 + len(found.plans)) * found.forecast.open_tasks
        return msgspec.structs.replace(found, cost_s=FORECAST_S + DRAW_S * drawn)

    def _user_file(self, file: FileRecord, on_done: Callable[[Fetched], None]) -> None:
        def hashed() -> None:
            refused = self.store.add(file)
            on_done(FileMissing(file.path, refused) if refused else FileReady(file))

        self.life.after(LOOK_S + file.size / HASH_BYTES_S, hashed)


class _Move:
    """One content, from the first source that gives all of it."""

    def __init__(
        self, fetcher: SimulatedFetcher, file: FileRecord, hunt: Hunt, on_landed: OnLanded
    ) -> None:
        self._fetcher = fetcher
        self._file = file
        self._hunt = hunt
        self._on_landed = on_landed
        self._transfer: Flow | None = None
        """The one that counts: what an earlier one brings, given up on a machine that was frozen
        meanwhile, comes too late."""

    def try_next(self) -> None:
        self._transfer = None
        self._hunt.next(self._try)

    def _try(self, source: Node | None) -> None:
        fetcher = self._fetcher
        if source is None:
            reason = FetchError(f"{self._file.path} could not be had from any source")
            fetcher.life.after(LOOK_S, lambda: self._on_landed(reason))
            return
        store = fetcher.stores.get(source)
        has = store is not None and self._file.digest in store

        def done(arrived_bytes: int) -> None:
            if self._transfer is transfer:
                whole = has and arrived_bytes == self._file.size
                damaged = store is not None and store.found_damaged(self._file.digest)
                self._arrived(source, whole and not damaged)

        transfer = self._transfer = fetcher.life.machine.sim.network.transfer(
            source, fetcher.node, self._file.size if has else 0, done
        )
        self._see_to(transfer, 0)

    def _see_to(self, transfer: Flow, arrived_before: int) -> None:
        """Give up a source from which nothing comes any more."""

        def look() -> None:
            if self._transfer is not transfer:
                return
            arrived = transfer.arrived_bytes()
            if arrived > arrived_before:
                self._see_to(transfer, arrived)
            else:
                transfer.cancel()
                self.try_next()

        self._fetcher.life.after(STALLED_S, look)

    def _arrived(self, source: Node, whole: bool) -> None:
        if not whole:
            self.try_next()
            return
        self._transfer = None
        refused = self._fetcher.store.add(self._file)
        self._on_landed(FetchError(refused) if refused else source)
