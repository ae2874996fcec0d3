"""The cache directory: bounded, shared by processes, and it never loses what somebody needs."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from files_grid import content
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from sureline.peer.files import cache as cache_module
from sureline.peer.files.cache import PUT, CacheFullError, FileCache
from sureline.peer.files.claims import Pin
from sureline.peer.files.marks import CacheMarks
from sureline.peer.files.partial import Partial
from sureline.peer.files.scrubbing import Scrub
from sureline.workflow.files import FileRecord


def put(cache: FileCache, where: Path, size: int, seed: int = 0) -> FileRecord:
    """Put content that nothing keeps in the cache."""
    path = where / f"user{seed}"
    path.write_bytes(content(size, seed))
    record = cache.put(str(path), path.name)
    cache.release_only_copy(record, PUT)
    return record


def test_the_least_recently_used_go_first(tmp_path: Path) -> None:
    cache = FileCache(tmp_path / "cache", 1000)
    a, b, c = (put(cache, tmp_path, 300, seed) for seed in range(3))
    gone: list[str] = []
    cache.on_evicted = gone.append
    assert cache.ready(a) is not None
    d = put(cache, tmp_path, 300, 3)
    assert gone == [b.digest]
    assert [cache.ready(one) is not None for one in (a, b, c, d)] == [True, False, True, True]
    with pytest.raises(CacheFullError, match=r"2\.0 kB do not fit into the cache of 1\.0 kB"):
        cache.make_room(2000)
    cache.close()


def test_what_is_used_survives_a_restart_and_a_lost_log(tmp_path: Path) -> None:
    cache = FileCache(tmp_path / "cache", 1000)
    a, b, c = (put(cache, tmp_path, 300, seed) for seed in range(3))
    cache.ready(a)
    cache.close()
    cache = FileCache(tmp_path / "cache", 1000)
    put(cache, tmp_path, 300, 3)
    assert cache.ready(b) is None and cache.ready(a) is not None
    cache.close()
    os.unlink(tmp_path / "cache" / "uses")
    cache = FileCache(tmp_path / "cache", 1000)
    assert {one.digest for one in cache.held()} >= {a.digest, c.digest}
    put(cache, tmp_path, 300, 4)
    assert sum(one.size for one in cache.held()) <= 1000
    cache.close()


def test_a_full_cache_in_use_refuses_and_says_why(tmp_path: Path) -> None:
    cache = FileCache(tmp_path / "cache", 1000)
    a, b = put(cache, tmp_path, 400, 1), put(cache, tmp_path, 500, 2)
    pin = cache.pin(a, "input of task align")
    cache.mark_only_copy(b, "run-7")
    with pytest.raises(CacheFullError, match=r"400 B in use, 500 B that a run needs"):
        put(cache, tmp_path, 300, 3)
    held = {one.digest: [claim.why for claim in one.claims] for one in cache.held()}
    assert held == {a.digest: ["input of task align"], b.digest: ["only copy for run run-7"]}
    pin.release()
    put(cache, tmp_path, 300, 3)
    assert cache.ready(a) is None and cache.ready(b) is not None
    cache.close()


def test_only_copies_outlive_the_process_until_released(tmp_path: Path) -> None:
    cache = FileCache(tmp_path / "cache", 1000)
    a, b = put(cache, tmp_path, 400, 1), put(cache, tmp_path, 400, 2)
    cache.adopt(a, "run-7")
    cache.adopt(b, "run/odd name.x")
    cache.close()
    cache = FileCache(tmp_path / "cache", 1000)
    with pytest.raises(CacheFullError):
        put(cache, tmp_path, 400, 3)
    cache.release_only_copy(a, "run-7")
    put(cache, tmp_path, 400, 3)
    assert cache.ready(a) is None
    cache.release_run("run/odd name.x")
    put(cache, tmp_path, 900, 4)
    assert cache.ready(b) is None
    cache.close()


def test_a_peer_releases_what_runs_need_but_not_what_the_user_put(tmp_path: Path) -> None:
    cache = FileCache(tmp_path / "cache", 1000)
    (tmp_path / "mine").write_bytes(content(400))
    a = cache.put(str(tmp_path / "mine"), "mine")
    marks = CacheMarks(cache)
    marks.keep([a], "run-7")
    marks.keep([a], "run-8")
    assert marks.runs() == {"run-7", "run-8"}
    for run in ("run-7", PUT):
        marks.release_run(run)
        marks.release([a.digest], run)
    assert marks.runs() == {"run-8"}
    marks.release([a.digest], "run-8")
    with pytest.raises(CacheFullError):
        cache.make_room(900)
    assert cache.drop(a) == ""
    cache.make_room(900)
    cache.close()


def test_claims_with_absurd_names_harm_nobody(tmp_path: Path) -> None:
    """Records and runs come in messages of others, and claims are files."""
    cache = FileCache(tmp_path / "cache", 1000)
    a = put(cache, tmp_path, 600, 1)
    for digest in ("../../escaped", "a.b.c", "", "stat:1:2", "x" * 5000, "\0"):
        cache.pin(FileRecord("x", digest, 0), "why").release()
        cache.pin(FileRecord("x", digest, 0), "why")
        cache.mark_only_copy(FileRecord("x", digest, 0), "run")
    for run in ("../../escaped", ".", "r" * 5000, "a/b\0c", "ä" * 300):
        cache.mark_only_copy(a, run)
        with pytest.raises(CacheFullError):
            cache.make_room(600)
        cache.release_run(run)
    cache.make_room(600)
    assert cache.ready(a) is None
    assert sorted(os.listdir(tmp_path)) == ["cache", "user1"]
    cache.close()


def test_what_a_task_makes_is_never_refused(tmp_path: Path) -> None:
    cache = FileCache(tmp_path / "cache", 1000)
    old = put(cache, tmp_path, 900, 1)
    made = cache.store.put(content(950, 2), "result")  # as a slot process does
    cache.adopt(made, "run-1")
    assert cache.ready(made) is not None and cache.ready(old) is None
    more = cache.store.put(content(950, 3), "result")
    cache.adopt(more, "run-1")
    assert cache.ready(made) is not None and cache.ready(more) is not None
    cache.close()


def test_a_claim_on_a_directory_is_on_all_that_is_in_it(tmp_path: Path) -> None:
    top = tmp_path / "tree"
    top.mkdir()
    for k in range(3):
        (top / f"file{k}").write_bytes(content(200, k))
    cache = FileCache(tmp_path / "cache", 1500)
    record = cache.put(str(top), "tree")
    cache.release_only_copy(record, PUT)
    with cache.pin(record, "in use"):
        with pytest.raises(CacheFullError):
            put(cache, tmp_path, 900, 9)
        assert cache.ready(record) is not None
    put(cache, tmp_path, 1400, 9)
    assert cache.ready(record) is None
    cache.close()


def test_files_on_their_way_in_count_and_old_ones_make_room(tmp_path: Path) -> None:
    cache = FileCache(tmp_path / "cache", 1000)
    partial = Partial.open(cache.incoming, "ab" * 32)
    with cache.reserved(800):
        partial.begin(800, bytes(32))
    with pytest.raises(CacheFullError, match="800 B on the way in"):
        put(cache, tmp_path, 300, 1)
    partial.close()
    put(cache, tmp_path, 300, 1)
    assert not os.listdir(cache.incoming)
    cache.close()


OTHER = """
import sys
from pathlib import Path
from sureline.peer.files.cache import FileCache
from sureline.workflow.files import FileRecord
cache = FileCache(Path(sys.argv[1]), 1 << 62)
pin = cache.pin(FileRecord("x", sys.argv[2], 0), "input of another process's task")
print("pinned", flush=True)
sys.stdin.read()
"""


def test_pins_of_other_processes_hold_until_they_die(tmp_path: Path) -> None:
    cache = FileCache(tmp_path / "cache", 1000)
    a = put(cache, tmp_path, 600, 1)
    other = subprocess.Popen(
        [sys.executable, "-c", OTHER, str(tmp_path / "cache"), a.digest],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert other.stdout is not None and other.stdin is not None
    with other.stdout, other.stdin:
        assert other.stdout.readline() == b"pinned\n"
        with pytest.raises(CacheFullError):
            put(cache, tmp_path, 600, 2)
        os.kill(other.pid, signal.SIGKILL)
        other.wait()
    put(cache, tmp_path, 600, 2)
    assert cache.ready(a) is None
    cache.close()


def test_another_process_keeps_to_the_bound_of_the_one_that_serves(tmp_path: Path) -> None:
    serving, guest = FileCache(tmp_path / "cache", 1000), FileCache(tmp_path / "cache", 1 << 62)
    assert not guest.shared.served()
    serving.shared.serve(serving.size_bytes_max)
    assert guest.shared.served()
    with pytest.raises(CacheFullError, match=r"cache of 1\.0 kB"):
        put(guest, tmp_path, 1200)
    first = put(guest, tmp_path, 600, 1)
    put(guest, tmp_path, 600, 2)
    assert serving.ready(first) is None
    serving.close()
    assert not guest.shared.served()
    guest.close()


def test_half_made_files_of_the_dead_are_swept(tmp_path: Path) -> None:
    ended = subprocess.Popen(["true"])
    ended.wait()
    cache = FileCache(tmp_path / "cache", 1000)
    ours, theirs = (
        tmp_path / "cache" / "work" / f".sureline-tmp-{pid}-0" for pid in (os.getpid(), ended.pid)
    )
    for path in (ours, theirs):
        path.write_bytes(b"half")
    cache.close()
    FileCache(tmp_path / "cache", 1000).close()
    assert ours.exists() and not theirs.exists()


def test_a_copy_of_the_wrong_size_is_no_copy(tmp_path: Path) -> None:
    cache = FileCache(tmp_path / "cache", 1000)
    record = put(cache, tmp_path, 100)
    blob = Path(cache.store.blob_path(record.digest))
    blob.chmod(0o600)
    os.truncate(blob, 50)
    assert cache.ready(record) is None and not blob.exists()
    cache.close()


class CacheLife(RuleBasedStateMachine):
    """Whatever is done, in whatever order, and with the process killed in between."""

    BOUND = 2000

    @initialize(where=st.builds(lambda: Path(_fresh_directory())))
    def begin(self, where: Path) -> None:
        self.where = where
        self.cache = FileCache(where / "cache", self.BOUND)
        self.known: dict[int, FileRecord] = {}
        self.pins: list[tuple[int, Pin]] = []
        self.only: set[tuple[int, str]] = set()

    @rule(seed=st.integers(0, 12), size=st.integers(1, 900))
    def put(self, seed: int, size: int) -> None:
        if seed in self.known and self.cache.ready(self.known[seed]) is not None:
            return
        size = self.known[seed].size if seed in self.known else size
        before = self._protected_bytes()
        try:
            self.known[seed] = put(self.cache, self.where, size, seed)
        except CacheFullError:
            assert before + size > self.BOUND, "refused although there was room to be made"

    @precondition(lambda self: self.known)
    @rule(data=st.data())
    def pin(self, data: st.DataObject) -> None:
        seed = data.draw(st.sampled_from(sorted(self.known)))
        pin = self.cache.pin(self.known[seed], "in use")
        if self.cache.ready(self.known[seed]) is not None:
            self.pins.append((seed, pin))
        else:
            pin.release()

    @precondition(lambda self: self.pins)
    @rule(data=st.data())
    def unpin(self, data: st.DataObject) -> None:
        one = data.draw(st.sampled_from(self.pins))
        one[1].release()
        self.pins.remove(one)

    @precondition(lambda self: self.known)
    @rule(data=st.data(), run=st.sampled_from(["r1", "r2"]))
    def mark(self, data: st.DataObject, run: str) -> None:
        seed = data.draw(st.sampled_from(sorted(self.known)))
        if self.cache.ready(self.known[seed]) is not None:
            self.cache.mark_only_copy(self.known[seed], run)
            self.only.add((seed, run))

    @rule(run=st.sampled_from(["r1", "r2"]))
    def end_run(self, run: str) -> None:
        self.cache.release_run(run)
        self.only = {(seed, other) for seed, other in self.only if other != run}

    @rule()
    def die_and_come_back(self) -> None:
        """A dead process holds no locks; its pins are void, its marks are not."""
        claims = self.cache._claims
        os.close(claims._life)
        os.close(self.cache._lock)
        self.pins = []
        self.cache = FileCache(self.where / "cache", self.BOUND)

    def _protected_bytes(self) -> int:
        seeds = {seed for seed, _ in self.pins} | {seed for seed, _ in self.only}
        return sum(self.known[seed].size for seed in seeds)

    @invariant()
    def nothing_needed_is_lost_and_the_bound_holds(self) -> None:
        if not hasattr(self, "cache"):
            return
        held = {one.digest for one in self.cache.held()}
        for seed in {seed for seed, _ in self.pins} | {seed for seed, _ in self.only}:
            assert self.known[seed].digest in held
        assert sum(one.size for one in self.cache.held()) <= self.BOUND

    def teardown(self) -> None:
        if hasattr(self, "cache"):
            self.cache.close()


def _fresh_directory() -> str:
    import tempfile

    return tempfile.mkdtemp(dir=_fresh_directory.top)  # type: ignore[attr-defined]


def test_eviction_never_takes_what_is_pinned_or_the_only_copy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from hypothesis.stateful import run_state_machine_as_test

    monkeypatch.setattr(cache_module, "_EVICTED_PER_LOCK", 2)
    _fresh_directory.top = tmp_path  # type: ignore[attr-defined]
    run_state_machine_as_test(
        CacheLife, settings=settings(max_examples=15, stateful_step_count=20, deadline=None)
    )


def test_a_slow_scrub_finds_what_no_time_tells(tmp_path: Path) -> None:
    cache = FileCache(tmp_path / "cache", 1 << 20)
    gone: list[str] = []
    cache.on_evicted = gone.append
    good, bad = (cache.put(str(_written(tmp_path / name)), name) for name in ("good", "bad"))
    path = Path(cache.store.blob_path(bad.digest))
    path.chmod(0o644)
    path.write_text("rotten")
    found: list[str] = []
    scrub = Scrub(cache, rate=1e12, round_s=0.0)
    scrub.on_damaged = found.append

    async def until_found() -> None:
        task = asyncio.ensure_future(scrub.run())
        async with asyncio.timeout(30):
            while not found:  # noqa: ASYNC110 - found in another thread
                await asyncio.sleep(0.01)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    asyncio.run(until_found())
    assert found == [bad.digest] and gone == [bad.digest]
    assert cache.path(bad.digest) is None and cache.path(good.digest) is not None
    cache.close()


def test_a_damaged_copy_is_not_ready(tmp_path: Path) -> None:
    cache = FileCache(tmp_path / "cache", 1 << 20)
    record = cache.put(str(_written(tmp_path / "a")), "a")
    assert cache.ready(record) is not None
    path = Path(cache.store.blob_path(record.digest))
    before = path.stat()
    path.chmod(0o644)
    path.write_text("B")
    path.chmod(0o444)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert cache.ready(record) is None and not path.exists()
    cache.close()


def _written(path: Path) -> Path:
    path.write_text(path.name)
    return path
