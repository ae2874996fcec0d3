from __future__ import annotations

import os
import signal
import socket
import stat
from collections.abc import Callable
from pathlib import Path

import pytest
from blake3 import blake3
from hypothesis import given, settings
from hypothesis import strategies as st

from sureline.peer import ingest as ingest_module
from sureline.peer import store as store_module
from sureline.peer.lending import LINK_FROM_BYTES, LINKS_SHORT_FILES, Lent, Loan, Notes
from sureline.peer.store import BlobStore, DamagedError, StoreError
from sureline.workflow.files import FileRecord


@pytest.fixture
def sandbox(tmp_path: Path) -> Path:
    made = tmp_path / ".sureline/work/box"
    made.mkdir(parents=True)
    return made


@pytest.fixture
def store(tmp_path: Path, sandbox: Path) -> BlobStore:
    return BlobStore(tmp_path / ".sureline")


def take(store: BlobStore, sandbox: Path, path: str) -> FileRecord:
    return store.take(str(sandbox / path), path, within=str(sandbox))


def blob(store: BlobStore, record: FileRecord) -> Path:
    return Path(store.blob_path(record.digest, record.executable))


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.mark.parametrize("size", [0, 1, 100_000, (1 << 20) + 1, 9 << 20])
def test_a_taken_file_is_stored_by_its_hash(store: BlobStore, sandbox: Path, size: int) -> None:
    data = os.urandom(min(size, 4096)) * (size // 4096 + 1)
    data = data[:size]
    (sandbox / "a").write_bytes(data)
    record = take(store, sandbox, "a")
    assert record.digest == blake3(data).hexdigest()
    assert (record.path, record.size, record.executable) == ("a", size, False)
    assert blob(store, record).read_bytes() == data
    assert mode(blob(store, record)) == 0o444
    assert store.intact(record)
    assert store.intact(record, by_content=True)


def test_programs_are_kept_apart_from_files_of_equal_content(
    store: BlobStore, sandbox: Path
) -> None:
    (sandbox / "a").write_text("x")
    (sandbox / "b").write_text("x")
    (sandbox / "b").chmod(0o755)
    plain, program = take(store, sandbox, "a"), take(store, sandbox, "b")
    assert plain.digest == program.digest
    assert program.executable
    assert (mode(blob(store, plain)), mode(blob(store, program))) == (0o444, 0o555)


def test_equal_content_is_stored_once_and_old_records_hold(store: BlobStore, sandbox: Path) -> None:
    (sandbox / "a").write_text("x")
    first = take(store, sandbox, "a")
    (sandbox / "b").write_text("x")
    second = take(store, sandbox, "b")
    assert (first.digest, first.ctime_ns) == (second.digest, second.ctime_ns)
    assert blob(store, first).stat().st_ctime_ns == first.ctime_ns


def test_taking_again_heals_a_damaged_blob(store: BlobStore, sandbox: Path) -> None:
    (sandbox / "a").write_text("good")
    first = take(store, sandbox, "a")
    damaged = blob(store, first)
    damaged.chmod(0o644)
    damaged.write_text("evil")
    (sandbox / "b").write_text("good")
    second = take(store, sandbox, "b")
    assert blob(store, second).read_text() == "good"
    assert store.intact(first)


def test_a_link_to_a_file_inside_is_resolved(store: BlobStore, sandbox: Path) -> None:
    (sandbox / "real").write_text("x")
    (sandbox / "link").symlink_to("real")
    assert take(store, sandbox, "link").size == 1
    assert take(store, sandbox, "real").size == 1


@pytest.mark.parametrize("target", ["/etc/passwd", "../../../outside"])
def test_a_link_that_leaves_is_refused(
    store: BlobStore, sandbox: Path, tmp_path: Path, target: str
) -> None:
    (tmp_path / "outside").write_text("x")
    (sandbox / "link").symlink_to(target)
    with pytest.raises(StoreError, match=r"link .* leaves the task's directory"):
        take(store, sandbox, "link")


def test_an_output_behind_a_linked_directory_is_refused(
    store: BlobStore, sandbox: Path, tmp_path: Path
) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere/a").write_text("x")
    (sandbox / "d").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(StoreError, match="leaves"):
        take(store, sandbox, "d/a")


def test_a_dangling_link_is_refused(store: BlobStore, sandbox: Path) -> None:
    (sandbox / "link").symlink_to("nothing")
    with pytest.raises(StoreError, match="does not exist"):
        take(store, sandbox, "link")


def test_special_files_are_refused(
    store: BlobStore, sandbox: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    os.mkfifo(sandbox / "pipe")
    with pytest.raises(StoreError, match="named pipe"):
        take(store, sandbox, "pipe")
    (sandbox / "d").mkdir()
    monkeypatch.chdir(sandbox / "d")  # the address of a socket is a short string
    with socket.socket(socket.AF_UNIX) as server:
        server.bind("s")
        with pytest.raises(StoreError, match="d/s is a socket"):
            take(store, sandbox, "d")


def test_a_missing_file_is_not_found(store: BlobStore, sandbox: Path) -> None:
    with pytest.raises(FileNotFoundError):
        take(store, sandbox, "a")


def make_tree(top: Path) -> None:
    (top / "sub/empty").mkdir(parents=True)
    (top / "sub/a").write_text("alpha")
    (top / "run.sh").write_text("#!/bin/sh\n")
    (top / "run.sh").chmod(0o755)
    (top / "link").symlink_to("sub/a")


def look(top: Path) -> dict[str, object]:
    found: dict[str, object] = {}
    for path in sorted(top.rglob("*")):
        name = str(path.relative_to(top))
        if path.is_symlink():
            found[name] = ("link", os.readlink(path))
        elif path.is_dir():
            found[name] = "directory"
        else:
            found[name] = (path.read_bytes(), bool(path.stat().st_mode & 0o100))
    return found


def test_directories_go_in_and_come_out_equal(store: BlobStore, sandbox: Path) -> None:
    make_tree(sandbox / "d")
    before = look(sandbox / "d")
    record = take(store, sandbox, "d")
    assert record.directory
    assert record.size == len("alpha") + len("#!/bin/sh\n")
    store.materialise(record, str(sandbox / "copy"))
    assert look(sandbox / "copy") == before
    assert (sandbox / "copy/sub/a").stat().st_nlink == 1
    assert store.intact(record)
    assert store.intact(record, by_content=True)


def test_equal_directories_have_equal_digests(store: BlobStore, sandbox: Path) -> None:
    make_tree(sandbox / "d")
    make_tree(sandbox / "e")
    os.utime(sandbox / "e/sub/a", (1, 1))
    assert take(store, sandbox, "d").digest == take(store, sandbox, "e").digest
    (sandbox / "e/sub/new").write_text("")
    assert take(store, sandbox, "d").digest != take(store, sandbox, "e").digest


@pytest.mark.parametrize("target", ["/etc", "../x", "sub/../../x"])
def test_a_directory_with_a_link_that_leaves_it_is_refused(
    store: BlobStore, sandbox: Path, target: str
) -> None:
    make_tree(sandbox / "d")
    (sandbox / "d/bad").symlink_to(target)
    with pytest.raises(StoreError, match="d/bad is a symbolic link that leaves d"):
        take(store, sandbox, "d")


def test_a_damaged_blob_is_noticed_and_removed(store: BlobStore, sandbox: Path) -> None:
    (sandbox / "a").write_text("good")
    record = take(store, sandbox, "a")
    blob(store, record).chmod(0o644)
    blob(store, record).write_text("evil")
    assert not store.intact(record)
    assert not blob(store, record).exists()
    assert not store.intact(record)


def test_damage_that_keeps_size_and_time_shows(store: BlobStore, sandbox: Path) -> None:
    (sandbox / "a").write_text("good")
    record = take(store, sandbox, "a")
    poison(blob(store, record))
    assert not store.intact(record)
    assert not blob(store, record).exists()


def poison(path: Path) -> None:
    """Write to a file, and set back all that can be."""
    before = path.stat()
    path.chmod(0o644)
    path.write_bytes(path.read_bytes().swapcase())
    path.chmod(before.st_mode)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def test_a_touched_blob_is_looked_at_once(
    store: BlobStore, sandbox: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (sandbox / "a").write_text("good")
    record = take(store, sandbox, "a")
    os.utime(blob(store, record))
    assert store.intact(record)

    def hashed(path: str) -> tuple[str, int]:
        raise AssertionError(f"{path} was looked at again")

    monkeypatch.setattr(store_module, "hash_file", hashed)
    assert store.intact(record)
    if not LINKS_SHORT_FILES:
        assert BlobStore(sandbox.parent.parent).intact(record), "another process trusts the note"


@pytest.mark.parametrize("part", ["manifest", "file"])
def test_a_directory_is_intact_only_with_all_its_parts(
    store: BlobStore, sandbox: Path, part: str
) -> None:
    make_tree(sandbox / "d")
    record = take(store, sandbox, "d")
    inner = record.digest if part == "manifest" else blake3(b"alpha").hexdigest()
    path = Path(store.blob_path(inner))
    path.chmod(0o644)
    path.write_bytes(b"ALPHA" if part == "file" else b"[]")
    assert not store.intact(record)
    assert not path.exists()
    with pytest.raises(StoreError, match="gone"):
        store.materialise(record, str(sandbox / "copy"))


def test_a_short_file_comes_out_as_a_copy(store: BlobStore, sandbox: Path) -> None:
    (sandbox / "a").write_text("x")
    record = take(store, sandbox, "a")
    store.materialise(record, str(sandbox / "b"))
    assert not os.path.samefile(sandbox / "b", blob(store, record))
    assert mode(sandbox / "b") == 0o444
    assert blob(store, record).stat().st_ctime_ns == record.ctime_ns


@pytest.fixture
def long(store: BlobStore, sandbox: Path) -> FileRecord:
    (sandbox / "a").write_bytes(b"a" * LINK_FROM_BYTES)
    record = take(store, sandbox, "a")
    loan = Loan.make(
        Notes(str(sandbox)), str(blob(store, record)), "note", record.digest, None, f"{sandbox}/try"
    )
    if loan is None:
        pytest.skip("no leases on this file system")
    loan.give_back()
    return record


def test_nobody_can_write_to_a_long_file_while_it_is_lent(
    store: BlobStore, sandbox: Path, long: FileRecord
) -> None:
    before = signal.signal(signal.SIGCHLD, lambda number, frame: None)
    first, second = Lent(), Lent()
    try:
        store.materialise(long, str(sandbox / "b"), first)
        store.materialise(long, str(sandbox / "c"), second)
        assert os.path.samefile(sandbox / "b", blob(store, long))
        os.chmod(sandbox / "b", 0o644)
        with pytest.raises(BlockingIOError):
            os.open(sandbox / "b", os.O_WRONLY | os.O_NONBLOCK)
        assert first.written_to() == ["a"] and second.written_to() == ["a"]
    finally:
        first.give_back()
        second.give_back()
        signal.signal(signal.SIGCHLD, before)
    assert not (sandbox / "b").exists()
    assert store.intact(long, by_content=True)


def test_lending_does_not_make_a_long_file_suspect(
    store: BlobStore, sandbox: Path, long: FileRecord, monkeypatch: pytest.MonkeyPatch
) -> None:
    lent = Lent()
    store.materialise(long, str(sandbox / "b"), lent)
    lent.give_back()
    monkeypatch.setattr(store_module, "hash_file", lambda path: ("looked at", 0))
    assert BlobStore(sandbox.parent.parent).intact(long)
    poison(blob(store, long))
    assert not BlobStore(sandbox.parent.parent).intact(long)


def test_what_others_write_to_is_copied(store: BlobStore, sandbox: Path, long: FileRecord) -> None:
    blob(store, long).chmod(0o644)
    with open(blob(store, long), "ab"):
        lent = Lent()
        store.materialise(long, str(sandbox / "b"), lent)
    assert not lent.loans
    assert (sandbox / "b").read_bytes() == b"a" * LINK_FROM_BYTES


def test_an_output_with_another_name_is_copied_and_the_other_left_alone(
    store: BlobStore, sandbox: Path, tmp_path: Path
) -> None:
    mine = tmp_path / "mine"
    mine.write_text("x")
    mine.chmod(0o640)
    os.link(mine, sandbox / "a")
    record = store.take(str(sandbox / "a"), "a", within=str(sandbox), move=True)
    assert mode(mine) == 0o640
    assert not os.path.samefile(mine, blob(store, record))
    mine.write_text("y")
    assert store.intact(record, by_content=True)


def test_a_lost_file_is_restored_from_a_copy_that_is_right(
    store: BlobStore, sandbox: Path, tmp_path: Path
) -> None:
    (sandbox / "a").write_text("good")
    record = take(store, sandbox, "a")
    poison(blob(store, record))
    with pytest.raises(DamagedError):
        store.materialise(record, str(sandbox / "b"))
    (tmp_path / "a").write_text("evil")
    assert not store.restore(record, str(tmp_path / "a"))
    (tmp_path / "a").write_text("good")
    assert store.restore(record, str(tmp_path / "a"))
    assert store.intact(record)


def test_where_links_are_impossible_files_are_copied(
    store: BlobStore, sandbox: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(18, "Invalid cross-device link")

    monkeypatch.setattr(os, "link", refuse)
    (sandbox / "a").write_text("x")
    record = take_retrying(store, sandbox)
    store.materialise(record, str(sandbox / "b"))
    assert (sandbox / "b").read_text() == "x"
    assert not os.path.samefile(sandbox / "b", blob(store, record))
    assert store.intact(record)


def take_retrying(store: BlobStore, sandbox: Path) -> FileRecord:
    """The blob's directory must exist: a faked refusal does not look whether it does."""
    Path(store.blob_path(blake3(b"x").hexdigest())).parent.mkdir(parents=True)
    return take(store, sandbox, "a")


def test_a_users_file_is_ingested_and_stays_the_users(store: BlobStore, tmp_path: Path) -> None:
    mine = tmp_path / "mine"
    mine.write_text("x")
    record = store.ingest(str(mine), "mine")
    assert mode(mine) & 0o200
    mine.write_text("y")
    assert blob(store, record).read_text() == "x"
    assert store.intact(record)
    assert [p.name for p in (tmp_path / ".sureline/work").iterdir()] == ["box"]


def test_a_users_directory_is_ingested_with_linked_files_followed(
    store: BlobStore, sandbox: Path, tmp_path: Path
) -> None:
    make_tree(tmp_path / "d")
    (tmp_path / "far").write_text("far")
    (tmp_path / "d/far").symlink_to(tmp_path / "far")
    record = store.ingest(str(tmp_path / "d"), "d")
    store.materialise(record, str(sandbox / "copy"))
    found = look(sandbox / "copy")
    assert found["far"] == (b"far", False)
    assert found["link"] == ("link", "sub/a")


def changing(path: Path, times: int) -> Callable[..., None]:
    """A copy during which the file changes, the first `times` times."""
    left = [times]
    real = ingest_module.copy_open_file

    def copy(source: int, target: int, size: int, device: int) -> None:
        real(source, target, size, device)
        if left[0]:
            left[0] -= 1
            path.write_text(path.read_text() + "+")

    return copy


def test_a_file_that_changes_while_read_is_read_again(
    store: BlobStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine = tmp_path / "mine"
    mine.write_text("x")
    monkeypatch.setattr(ingest_module, "copy_open_file", changing(mine, 2))
    record = store.ingest(str(mine), "mine")
    assert blob(store, record).read_text() == mine.read_text() == "x++"


def test_a_file_that_keeps_changing_is_refused(
    store: BlobStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine = tmp_path / "mine"
    mine.write_text("x")
    monkeypatch.setattr(ingest_module, "copy_open_file", changing(mine, 99))
    with pytest.raises(StoreError, match="mine kept changing"):
        store.ingest(str(mine), "mine")
    assert [p.name for p in (tmp_path / ".sureline/work").iterdir()] == ["box"]


def test_in_place_files_are_known_by_size_and_time(
    store: BlobStore, sandbox: Path, tmp_path: Path
) -> None:
    (tmp_path / "huge").write_text("x")
    record = store.in_place("huge")
    assert record.digest == f"stat:1:{(tmp_path / 'huge').stat().st_mtime_ns}"
    assert store.intact(record)
    store.materialise(record, str(sandbox / "huge"))
    assert os.readlink(sandbox / "huge") == str(tmp_path / "huge")
    os.utime(tmp_path / "huge", (1, 1))
    assert not store.intact(record)
    (tmp_path / "huge").unlink()
    assert not store.intact(record)


def test_in_place_directories_are_known_by_their_entries(store: BlobStore, tmp_path: Path) -> None:
    make_tree(tmp_path / "d")
    record = store.in_place("d")
    assert record.in_place
    assert record.directory
    assert store.intact(record)
    os.utime(tmp_path / "d/sub/a", (1, 1))
    assert not store.intact(record)


names = st.text("abc", min_size=1, max_size=3)
trees = st.recursive(
    st.binary(max_size=20), lambda inner: st.dictionaries(names, inner, max_size=4), max_leaves=12
).filter(lambda t: isinstance(t, dict))


@settings(max_examples=30, deadline=None)
@given(tree=trees)
def test_any_directory_comes_out_as_it_went_in(
    tmp_path_factory: pytest.TempPathFactory, tree: dict[str, object]
) -> None:
    top = tmp_path_factory.mktemp("law")
    box = top / ".sureline/work/box"
    box.mkdir(parents=True)

    def write(where: Path, what: object) -> None:
        if isinstance(what, dict):
            where.mkdir()
            for name, inner in what.items():
                write(where / name, inner)
        else:
            assert isinstance(what, bytes)
            where.write_bytes(what)

    write(box / "d", tree)
    before = look(box / "d")
    store = BlobStore(top / ".sureline")
    record = take(store, box, "d")
    store.materialise(record, str(box / "e"))
    assert look(box / "e") == before
    store.publish(record, str(top / "d"))
    assert look(top / "d") == before
    assert take(store, box, "e").digest == record.digest
