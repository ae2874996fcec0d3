"""Slots that store and read one content at the same moment: equal results are the rule, not the
exception, in workflows."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from sureline.peer import publish
from sureline.peer.store import BlobStore

ROUNDS = 1500
PREFIXES = 256


@pytest.mark.parametrize("way", ["materialise", "publish"])
def test_a_blob_that_is_replaced_can_be_read_all_the_time(
    tmp_path: Path, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """link() fails with ENOENT if its source is renamed over meanwhile, although the name never
    was without a file."""
    monkeypatch.setattr(publish, "LINK_FROM_BYTES", 0)
    for name in ("blobs", "out", "work", "user"):
        (tmp_path / name).mkdir()
    writer, reader = (BlobStore(tmp_path, tmp_path / "user", tmp_path / "work") for _ in range(2))
    record = writer.put(b"the same\n", "x")
    done = threading.Event()

    def store_again() -> None:
        k = 0
        while not done.is_set():
            k += 1
            made = tmp_path / "out" / f"made.{k}"
            made.write_bytes(b"the same\n")
            assert writer.take(str(made), "x", within=str(tmp_path / "out")).digest == record.digest
            made.unlink()

    other = threading.Thread(target=store_again)
    other.start()
    try:
        for k in range(ROUNDS):
            place = tmp_path / "user" / f"read.{k}"
            if way == "materialise":
                reader.materialise(record, str(place))
            else:
                reader.publish(record, str(place))
            place.unlink()
    finally:
        done.set()
        other.join()


def made(where: Path) -> str:
    path = where / "made"
    path.write_bytes(b"the same\n")
    return str(path)


def store_at(where: Path) -> BlobStore:
    for name in ("out", "work"):
        (where / name).mkdir()
    return BlobStore(where, where / "user", where / "work")


def test_another_process_makes_the_directory_just_when_it_was_missed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, link = store_at(tmp_path), os.link

    def late(source: str, target: str) -> None:
        try:
            link(source, target)
        except FileNotFoundError:
            os.makedirs(os.path.dirname(target))  # the other one has got so far
            raise

    monkeypatch.setattr(os, "link", late)
    record = store.take(made(tmp_path / "out"), "x", within=str(tmp_path / "out"))
    assert Path(store.blob_path(record.digest)).read_bytes() == b"the same\n"


def test_a_blob_that_is_there_is_evicted_before_it_is_looked_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, link = store_at(tmp_path), os.link
    blob = store.blob_path(store.put(b"the same\n", "x").digest)

    def evicted(source: str, target: str) -> None:
        try:
            link(source, target)
        except FileExistsError:
            os.unlink(target)
            raise

    monkeypatch.setattr(os, "link", evicted)
    store.take(made(tmp_path / "out"), "x", within=str(tmp_path / "out"))
    assert Path(blob).read_bytes() == b"the same\n"


def test_a_file_that_is_gone_when_it_is_to_be_stored_is_missed(tmp_path: Path) -> None:
    store = store_at(tmp_path)
    path = made(tmp_path / "out")
    os.unlink(path)
    with pytest.raises(FileNotFoundError):
        store.admit(path, "ab" * 32, executable=False)
    with pytest.raises(FileNotFoundError):
        store._place(path, "ab" * 32, False, 0)


def test_slots_that_store_the_first_content_of_a_prefix_at_the_same_moment(tmp_path: Path) -> None:
    """The real race, as often as it takes to see it without the mend."""
    store = store_at(tmp_path)
    for k in range(PREFIXES):
        barrier = threading.Barrier(4)
        failed: list[BaseException] = []

        def take(k: int, n: int, barrier: threading.Barrier, failed: list[BaseException]) -> None:
            path = tmp_path / "out" / f"made.{k}.{n}"
            path.write_bytes(b"%d" % k)
            barrier.wait(60)
            try:
                store._place(str(path), f"{k % 256:02x}{n:062x}", False, 0)
            except BaseException as error:
                failed.append(error)

        threads = [threading.Thread(target=take, args=(k, n, barrier, failed)) for n in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        assert failed == []
