"""Slots that store and read one content at the same moment: equal results are the rule, not the
exception, in workflows."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from sureline.peer import publish
from sureline.peer.store import BlobStore

ROUNDS = 1500


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
