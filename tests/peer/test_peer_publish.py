from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from sureline.peer import publish as publish_module
from sureline.peer.store import BlobStore, StoreError
from sureline.workflow.files import FileRecord


@pytest.fixture
def store(tmp_path: Path) -> BlobStore:
    (tmp_path / ".sureline/work/box").mkdir(parents=True)
    return BlobStore(tmp_path / ".sureline")


def stored(
    store: BlobStore, top: Path, path: str, content: object, mode: int = 0o644
) -> FileRecord:
    box = top / ".sureline/work/box"
    made = box / path
    made.parent.mkdir(parents=True, exist_ok=True)
    if isinstance(content, dict):
        made.mkdir()
        for name, text in content.items():
            (made / name).write_text(text)
    else:
        made.write_text(str(content))
        made.chmod(mode)
    return store.take(str(made), path, within=str(box))


def leftovers(top: Path) -> list[str]:
    return [str(p) for p in top.rglob(".sureline-tmp-*")]


def test_a_published_file_is_the_users_own(store: BlobStore, tmp_path: Path) -> None:
    record = stored(store, tmp_path, "a", "x")
    store.publish(record, str(tmp_path / "a"))
    umask = os.umask(0)
    os.umask(umask)
    assert stat.S_IMODE((tmp_path / "a").stat().st_mode) == 0o666 & ~umask
    (tmp_path / "a").write_text("mine")
    assert store.intact(record, by_content=True)


def test_programs_are_published_executable(store: BlobStore, tmp_path: Path) -> None:
    store.publish(stored(store, tmp_path, "p", "x", 0o755), str(tmp_path / "p"))
    assert os.access(tmp_path / "p", os.X_OK)


def test_parents_are_made(store: BlobStore, tmp_path: Path) -> None:
    store.publish(stored(store, tmp_path, "deep/er/a", "x"), str(tmp_path / "deep/er/a"))
    assert (tmp_path / "deep/er/a").read_text() == "x"
    assert not leftovers(tmp_path)


def test_an_equal_file_is_left_alone_and_another_is_replaced(
    store: BlobStore, tmp_path: Path
) -> None:
    record = stored(store, tmp_path, "a", "x")
    (tmp_path / "a").write_text("x")
    inode = (tmp_path / "a").stat().st_ino
    store.publish(record, str(tmp_path / "a"))
    assert (tmp_path / "a").stat().st_ino == inode
    (tmp_path / "a").write_text("y")
    store.publish(record, str(tmp_path / "a"))
    assert (tmp_path / "a").read_text() == "x"


def test_big_files_are_linked_read_only(
    store: BlobStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(publish_module, "LINK_FROM_BYTES", 4)
    monkeypatch.setattr(publish_module, "_can_reflink", lambda blob, dest: False)
    record = stored(store, tmp_path, "a", "long content")
    store.publish(record, str(tmp_path / "a"))
    assert os.path.samefile(tmp_path / "a", store.blob_path(record.digest))
    store.publish(record, str(tmp_path / "a"))
    assert not leftovers(tmp_path)


def test_a_users_link_is_replaced_not_followed(
    store: BlobStore, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    outside = tmp_path_factory.mktemp("outside") / "precious"
    outside.write_text("precious")
    (tmp_path / "a").symlink_to(outside)
    store.publish(stored(store, tmp_path, "a", "x"), str(tmp_path / "a"))
    assert outside.read_text() == "precious"
    assert not (tmp_path / "a").is_symlink()


def test_a_linked_parent_that_leaves_is_refused(
    store: BlobStore, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    outside = tmp_path_factory.mktemp("outside")
    (tmp_path / "d").symlink_to(outside)
    with pytest.raises(StoreError, match="leaves the working directory"):
        store.publish(stored(store, tmp_path, "d/a", "x"), str(tmp_path / "d/a"))
    assert not list(outside.iterdir())


def test_a_full_directory_is_not_replaced_by_a_file(store: BlobStore, tmp_path: Path) -> None:
    record = stored(store, tmp_path, "a", "x")
    (tmp_path / "a").mkdir()
    (tmp_path / "a/precious").write_text("precious")
    with pytest.raises(StoreError, match="directory with files in it"):
        store.publish(record, str(tmp_path / "a"))
    (tmp_path / "a/precious").unlink()
    store.publish(record, str(tmp_path / "a"))
    assert (tmp_path / "a").read_text() == "x"


def test_a_file_is_not_replaced_by_a_directory(store: BlobStore, tmp_path: Path) -> None:
    record = stored(store, tmp_path, "d", {"a": "x"})
    (tmp_path / "d").write_text("precious")
    with pytest.raises(StoreError, match="is a file, where a directory is due"):
        store.publish(record, str(tmp_path / "d"))
    assert (tmp_path / "d").read_text() == "precious"
    assert not leftovers(tmp_path)


def test_a_file_in_the_way_of_a_parent_is_refused(store: BlobStore, tmp_path: Path) -> None:
    record = stored(store, tmp_path, "d/e/a", "x")
    (tmp_path / "d").write_text("precious")
    with pytest.raises(StoreError, match="in the way"):
        store.publish(record, str(tmp_path / "d/e/a"))


def test_a_directory_is_swapped_whole(store: BlobStore, tmp_path: Path) -> None:
    first = stored(store, tmp_path, "d", {"a": "1", "gone": "1"})
    store.publish(first, str(tmp_path / "d"))
    inode = (tmp_path / "d").stat().st_ino
    store.publish(first, str(tmp_path / "d"))
    assert (tmp_path / "d").stat().st_ino == inode
    second_top = tmp_path / ".sureline/work/box/d"
    (second_top / "gone").unlink()
    (second_top / "new").write_text("2")
    second = store.take(str(second_top), "d", within=str(second_top.parent))
    store.publish(second, str(tmp_path / "d"))
    assert {p.name: p.read_text() for p in (tmp_path / "d").iterdir()} == {"a": "1", "new": "2"}
    assert not leftovers(tmp_path)


def test_a_lost_blob_is_a_clear_failure_and_keeps_the_old_file(
    store: BlobStore, tmp_path: Path
) -> None:
    record = stored(store, tmp_path, "a", "x")
    Path(store.blob_path(record.digest)).unlink()
    (tmp_path / "a").write_text("old")
    with pytest.raises(StoreError, match="gone"):
        store.publish(record, str(tmp_path / "a"))
    assert (tmp_path / "a").read_text() == "old"
    assert not leftovers(tmp_path)


def test_a_replaced_directory_that_holds_more_is_moved_aside(
    store: BlobStore, tmp_path: Path
) -> None:
    for text, number in (("precious", 1), ("also", 2)):
        (tmp_path / "d").mkdir(exist_ok=True)
        (tmp_path / "d/notes").write_text(text)
        store.publish(stored(store, tmp_path, f"v{number}/d", {"a": text}), str(tmp_path / "d"))
        assert sorted(os.listdir(tmp_path / "d")) == ["a"]
        aside = tmp_path / f".sureline/replaced/d.{number}/notes"
        assert aside.read_text() == text
    assert not leftovers(tmp_path)


def test_a_replaced_directory_is_kept_whatever_it_holds(store: BlobStore, tmp_path: Path) -> None:
    store.publish(stored(store, tmp_path, "one/d", {"a": "1"}), str(tmp_path / "d"))
    store.publish(stored(store, tmp_path, "two/d", {"a": "2"}), str(tmp_path / "d"))
    assert (tmp_path / "d/a").read_text() == "2"
    assert (tmp_path / ".sureline/replaced/d.1/a").read_text() == "1"
