"""Inputs of attempts on one machine: what several need is looked for once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from sureline.peer.files.cache import FileCache
from sureline.peer.files.marks import CacheMarks
from sureline.peer.gathering import LEFT_S, LOOKED_FOR_S, Gathered, Gathering
from sureline.peer.jobs import Blob, FileMissing, FileReady
from sureline.workflow.files import FileRecord
from sureline.world.protocol import Fetched

CODE, MODULE = (FileRecord(name, digit * 64, 1) for name, digit in (("code", "a"), ("m.py", "b")))


class Store:
    """As much of a world as is needed: has everything, unless it is told to be without."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.now_s = 0.0
        self.without: set[str] = set()
        self._landing: list[Callable[[], None]] = []

    def elapsed(self) -> float:
        return self.now_s

    def fetch(self, blob: Blob, sources: Sequence[str], heard: Callable[[Fetched], None]) -> None:
        self.asked.append(blob.file.path)
        missing = blob.file.digest in self.without
        ready = FileReady(msgspec.structs.replace(blob.file, ctime_ns=7))
        answer = FileMissing(blob.file.path, "gone") if missing else ready
        self._landing.append(lambda: heard(answer))

    def land(self) -> None:
        while self._landing:
            self._landing.pop(0)()


def key(number: int) -> tuple[str, str, int]:
    return ("run", f"t{number}", 1)


def gathering(world: Any) -> tuple[Gathering, dict[str, Gathered], list[str]]:
    done: dict[str, Gathered] = {}
    files: list[str] = []
    made = Gathering(
        world,
        lambda key, file: files.append(f"{key[1]} {file.path}"),
        lambda key, gathered: done.update({key[1]: gathered}),
    )
    return made, done, files


def test_what_an_attempt_has_is_not_looked_for_again_while_it_is_here() -> None:
    world = Store()
    made, done, files = gathering(world)
    made.add(key(1), [CODE, MODULE], {})
    world.land()
    made.add(key(2), [CODE, MODULE], {})
    assert done["t2"].here == done["t1"].here and done["t2"].brought.here_files == 2
    assert world.asked == ["code", "m.py"]
    assert files == ["t1 code", "t1 m.py", "t2 code", "t2 m.py"]
    made.drop(key(1))
    made.add(key(3), [CODE], {})
    assert "t3" in done and len(world.asked) == 2
    made.drop(key(2))
    made.drop(key(3))
    world.now_s += LEFT_S / 2
    made.add(key(4), [CODE], {})
    assert "t4" in done and len(world.asked) == 2
    made.drop(key(4))
    world.now_s += LEFT_S * 2
    made.add(key(5), [CODE], {})
    assert "t5" not in done and len(world.asked) == 3


def test_what_was_found_damaged_or_is_wanted_otherwise_is_looked_for() -> None:
    world = Store()
    made, done, _ = gathering(world)
    made.add(key(1), [CODE], {})
    world.land()
    made.add_again(key(1), [CODE], {})
    made.add(key(2), [CODE], {})
    assert world.asked == ["code", "code"] and "t2" not in done
    world.land()
    assert "t2" in done
    made.add(key(3), [msgspec.structs.replace(CODE, executable=True)], {})
    made.add(key(4), [msgspec.structs.replace(CODE, size=2)], {})
    assert "t3" not in done and "t4" not in done
    world.land()
    world.without.add(MODULE.digest)
    made.add(key(5), [CODE, MODULE], {})
    world.land()
    assert done["t5"].missing == [MODULE.digest]


def test_what_is_used_for_long_is_looked_for_now_and_then() -> None:
    world = Store()
    made, done, _ = gathering(world)
    for number in range(1, 4):
        made.add(key(number), [CODE], {})
        world.land()
        world.now_s += LOOKED_FOR_S * 0.7
    assert len(done) == 3 and world.asked == ["code", "code"]


def test_what_several_need_is_pinned_until_the_last_is_over(tmp_path: Path) -> None:
    cache = FileCache(tmp_path, 1 << 20)
    cache.store.put_pieces([b"x"], "")
    (held,) = cache.held()
    record = FileRecord("x", held.digest, 1)
    marks = CacheMarks(cache)
    for why in ("first", "second", "second"):
        marks.pin([record], why)
    marks.unpin("first")
    assert [one.why for one in cache.held()[0].claims] == ["first"]
    marks.unpin("second")
    marks.unpin("second")
    assert cache.held()[0].claims == ()
    cache.close()
