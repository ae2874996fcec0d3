"""The chunk schedule alone, against sources that fail at random: every chunk is kept once, in the
end, if anybody gives it; and the number of requests is bounded whatever happens."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sureline.peer.files.asking import CHUNK_S
from sureline.peer.files.chunks import Flags, flags_of
from sureline.peer.files.schedule import (
    COPIES_MAX,
    FAILURES_FREE,
    FAILURES_ROW_MAX,
    FAILURES_SHARE,
    FIRST_PATIENCE_S,
    ChunkRequest,
    Schedule,
)

STEPS_MAX = 20_000


class Source:
    """Answers after a while, fails, lies or hangs, each with its probability."""

    def __init__(self, has: list[int], fails: float, lies: float, hangs: float) -> None:
        self.has = has
        self.fails, self.lies, self.hangs = fails, lies, hangs
        self.asked: list[int] = []


class Drive:
    """Plays a schedule against sources in virtual time."""

    def __init__(self, count: int, kept: list[int], sources: list[Source], seed: int) -> None:
        self.count = count
        self.sources = {f"s{k}": source for k, source in enumerate(sources)}
        self.random = Random(seed)
        self.schedule = Schedule(flags_of(kept, count), seed)
        self.under_way: list[tuple[float, ChunkRequest]] = []
        self.now = 100.0
        self.kept: list[int] = []
        self.hung: list[ChunkRequest] = []
        self.requests = 0
        for name, source in self.sources.items():
            self.schedule.offer(name, flags_of(source.has, count))

    def play(self) -> None:
        schedule = self.schedule
        for _ in range(STEPS_MAX):
            for request in schedule.requests(self.now):
                self._ask(request)
            if schedule.complete or (schedule.starved and not self.under_way):
                return
            self._step()
        raise AssertionError("it does not end")

    def _ask(self, request: ChunkRequest) -> None:
        source = self.sources[request.source]
        assert request.chunk in source.has, "nobody is asked for what he does not have"
        assert request.source not in self.schedule.dropped
        assert not self.schedule.kept[request.chunk], "nothing is asked for that is here"
        copies = sum(other.chunk == request.chunk for _, other in self.under_way)
        assert copies < COPIES_MAX + len(self.schedule.dropped)
        source.asked.append(request.chunk)
        self.requests += 1
        hangs = self.random.random() < source.hangs
        after_s = CHUNK_S if hangs else self.random.uniform(0.01, 0.5)
        self.under_way.append((self.now + after_s, request))
        if hangs:
            self.hung.append(request)

    def _step(self) -> None:
        """To the next answer, or to the next time the schedule wants to look."""
        answers = [at for at, _ in self.under_way]
        due = self.schedule.due(self.now)
        times = [time for time in (*answers, due) if time is not None and time > self.now]
        self.now = min(times, default=self.now + 1.0)
        for at, request in [one for one in self.under_way if one[0] <= self.now]:
            self.under_way.remove((at, request))
            self._answer(request)
        # what nobody waits for is cancelled, as the driver does
        self.under_way = [one for one in self.under_way if not self._useless(one[1])]

    def _useless(self, request: ChunkRequest) -> bool:
        schedule = self.schedule
        if bool(schedule.kept[request.chunk]) or request.source in schedule.dropped:
            schedule.fail(*request, self.now, busy=True)
            return True
        return False

    def _answer(self, request: ChunkRequest) -> None:
        source, schedule = self.sources[request.source], self.schedule
        luck = self.random.random()
        if request in self.hung:
            self.hung.remove(request)
            luck = -1.0
        if luck < source.fails:
            schedule.fail(*request, self.now)
        elif schedule.arrived(*request, self.now):
            if luck < source.fails + source.lies:
                schedule.reject(*request)
            else:
                schedule.keep(*request)
                self.kept.append(request.chunk)


def sources_of(count: int) -> st.SearchStrategy[list[Source]]:
    chunks = st.lists(st.integers(0, count - 1), unique=True)
    chance = st.sampled_from([0.0, 0.0, 0.1, 0.5])
    every = st.just(list(range(count)))
    return st.lists(st.builds(Source, chunks | every, chance, chance, chance), max_size=5)


@settings(max_examples=60, deadline=None)
@given(data=st.data(), count=st.integers(1, 60), seed=st.integers(0, 2**32))
def test_what_can_be_had_is_kept_once_and_requests_are_bounded(
    data: st.DataObject, count: int, seed: int
) -> None:
    kept = data.draw(st.lists(st.integers(0, count - 1), unique=True))
    sources = data.draw(sources_of(count))
    drive = Drive(count, kept, sources, seed)
    drive.play()
    assert len(drive.kept) == len(set(drive.kept)), "each is kept once"
    assert not set(drive.kept) & set(kept), "what was there is not fetched"
    for name, source in drive.sources.items():
        if name not in drive.schedule.dropped:
            missing = {c for c in range(count) if not drive.schedule.kept[c]}
            assert not missing & set(source.has), "nobody who has it was left unasked"
    failures_max = len(sources) * (FAILURES_FREE + FAILURES_ROW_MAX + 12)
    wanted = count - len(kept)
    assert drive.requests <= COPIES_MAX * wanted + wanted // FAILURES_SHARE + failures_max


@settings(max_examples=20, deadline=None)
@given(count=st.integers(1, 200), sources=st.integers(1, 4), seed=st.integers(0, 2**32))
def test_honest_sources_are_asked_for_each_chunk_exactly_once(
    count: int, sources: int, seed: int
) -> None:
    drive = Drive(count, [], [Source(list(range(count)), 0, 0, 0) for _ in range(sources)], seed)
    drive.play()
    assert drive.schedule.complete
    second = drive.requests - count
    assert second <= sources * 3, "only at the very end is something asked twice"


def test_one_that_is_alone_goes_in_order() -> None:
    schedule = Schedule(flags_of([], 10), 7)
    schedule.offer("a", flags_of(range(10), 10))
    asked = []
    while not schedule.complete:
        for request in schedule.requests(0.0):
            asked.append(request.chunk)
            schedule.arrived(*request, 0.1)
            schedule.keep(*request)
    assert asked == list(range(10))


def test_the_rarest_come_first_and_what_was_handed_out_later() -> None:
    schedule = Schedule(flags_of([], 6), 7, window=6, total=6)
    everything = flags_of(range(6), 6)
    schedule.offer("a", everything, flags_of([0], 6), others=True)
    (first,) = schedule.requests(0.0)
    assert first.chunk != 0
    schedule.arrived(*first, 0.1)
    schedule.keep(*first)
    schedule.offer("b", flags_of([1, 2, 3], 6))
    asked = [request.chunk for request in schedule.requests(0.2) if request.source == "a"]
    rare = [chunk for chunk in (4, 5) if chunk != first.chunk]
    assert sorted(asked[: len(rare)]) == rare
    assert asked[len(rare)] == 0, "handed out, but nobody is known to have it"


def spread(swarm: int, count: int) -> tuple[list[Schedule], list[int]]:
    """Several downloaders, one first source that tells at once what it handed out; they are played
    until all chunks are out. The schedules, and what the source gave."""
    names = [f"d{k}" for k in range(swarm)]
    schedules = {name: Schedule(flags_of([], count), k) for k, name in enumerate(names)}
    handed: Flags = np.zeros(count, dtype=np.bool_)
    given: list[int] = []
    for name in names:
        schedules[name].offer("first", flags_of(range(count), count), handed, others=True)
    for step in range(100 * count):
        for name in names:
            schedule = schedules[name]
            for request in schedule.requests(step * 0.1):
                if request.source == "first":
                    given.append(request.chunk)
                    handed[request.chunk] = True
                schedule.gave_away("first", handed.copy())
                schedule.arrived(*request, step * 0.1 + 0.05)
                schedule.keep(*request)
            for other in names:
                if other != name:
                    schedule.offer(other, schedules[other].kept.copy())
        if handed.all():
            return list(schedules.values()), given
    raise AssertionError("it never gets out")


@pytest.mark.parametrize("swarm", [3, 10])
def test_all_chunks_are_out_before_anybody_has_half(swarm: int) -> None:
    """So the first source may die when everybody has half."""
    schedules, given = spread(swarm, 512)
    assert all(schedule.missing > 512 / 2 for schedule in schedules)
    assert len(given) <= 1.25 * 512, "the source gives hardly anything twice before all is out"


def test_a_source_that_hangs_is_overtaken() -> None:
    schedule = Schedule(flags_of([], 4), 0)
    for name in ("hangs", "quick"):
        schedule.offer(name, flags_of(range(4), 4))
    asked = []
    now = 0.0
    while not schedule.complete and now < FIRST_PATIENCE_S:
        now += 0.1
        for request in schedule.requests(now):
            asked.append(request.source)
            if request.source == "quick":
                schedule.arrived(*request, now + 0.05)
                schedule.keep(*request)
    assert schedule.complete, "at the end, the idle one is asked for what the other owes"
    assert asked.count("hangs") == 1, "who has given nothing yet gets one request"


def test_one_that_hangs_from_the_start_is_dropped_if_there_are_others() -> None:
    schedule = Schedule(flags_of([], 4), 0)
    for name in ("hangs", "slow"):
        schedule.offer(name, flags_of(range(4), 4))
    schedule.requests(0.0)
    schedule.requests(FIRST_PATIENCE_S + 0.1)
    assert list(schedule.dropped) == ["hangs"], "the last one is kept, for want of another"


def test_without_the_first_source_the_others_are_asked_at_once() -> None:
    """Chunks that only one node has are no reason to wait when nobody has the whole file."""
    schedule = Schedule(flags_of(range(50), 100), 0)
    schedule.offer("first", flags_of(range(100), 100), flags_of([], 100), others=True)
    schedule.offer("other", flags_of(range(50, 70), 100))
    assert {request.source for request in schedule.requests(0.0)} == {"first"}
    schedule.drop("first", "died")
    assert {request.source for request in schedule.requests(0.1)} == {"other"}
