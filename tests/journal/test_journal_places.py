from __future__ import annotations

import multiprocessing
import os
import shutil
import sqlite3
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from journal_histories import new_run, succeeded, take

from sureline.journal import schema
from sureline.journal.errors import DiskFullError, JournalError, NoJournalError
from sureline.journal.events import TaskEnded
from sureline.journal.places import file_system_type, is_network
from sureline.journal.store import Journal

MOUNTS = r"""
22 1 0:21 / / rw,relatime shared:1 - ext4 /dev/sda1 rw
23 22 0:22 / /home rw,relatime shared:2 master:3 - nfs4 server:/home rw,vers=4.2
24 23 0:23 / /home/me/fast rw - xfs /dev/nvme0n1 rw
25 22 0:24 / /mnt/my\040share rw - cifs //server/share rw
26 22 0:25 / /mnt/both rw - nfs server:/x rw
27 26 0:26 / /mnt/both rw - tmpfs tmpfs rw
garbage
"""


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/srv/x", "ext4"),
        ("/", "ext4"),
        ("/home", "nfs4"),
        ("/home/me/.sureline", "nfs4"),
        ("/homestead", "ext4"),
        ("/home/me/fast/w", "xfs"),
        ("/home/me/faster", "nfs4"),
        ("/mnt/my share/w", "cifs"),
        ("/mnt/both/w", "tmpfs"),
    ],
)
def test_the_longest_mount_point_decides(tmp_path: Path, path: str, expected: str) -> None:
    mountinfo = tmp_path / "mountinfo"
    mountinfo.write_text(MOUNTS)
    assert file_system_type(Path(path), mountinfo) == expected


def test_without_mountinfo_the_place_counts_as_local(tmp_path: Path) -> None:
    assert file_system_type(tmp_path, tmp_path / "missing") is None
    assert not is_network(None)


@pytest.mark.parametrize(
    ("file_system", "expected"),
    [
        *[(name, True) for name in ("nfs", "nfs4", "cifs", "smb3", "9p", "lustre", "gpfs", "ceph")],
        *[(name, True) for name in ("beegfs", "afs", "fuse.sshfs", "fuse.gcsfuse", "fuse.unknown")],
        *[(name, False) for name in ("ext4", "xfs", "btrfs", "tmpfs", "overlay", "fuseblk", "zfs")],
        *[(name, False) for name in ("fuse.bindfs", "fuse.fuse-overlayfs", "nfsd")],
    ],
)
def test_which_file_systems_are_shared_by_machines(file_system: str, expected: bool) -> None:
    assert is_network(file_system) is expected


@pytest.fixture
def network(tmp_path: Path) -> Path:
    mountinfo = tmp_path / "mountinfo"
    mountinfo.write_text("22 1 0:21 / / rw - nfs4 server:/ rw\n")
    return mountinfo


def test_on_a_network_file_system_the_journal_works_without_a_log(
    tmp_path: Path, network: Path
) -> None:
    directory = tmp_path / ".sureline"
    fsyncs: list[int] = []
    with Journal.open(directory, mountinfo=network, fsync=fsyncs.append) as journal:
        assert journal.notice is not None and "network file system (nfs4)" in journal.notice
        assert journal.connection.execute("PRAGMA journal_mode").fetchone() == ("delete",)
        assert journal.connection.execute("PRAGMA synchronous").fetchone() == (3,)
        run = new_run(journal)
        writer = take(journal, run)
        writer.record(succeeded("a"))
        fsyncs.clear()
        done: list[str] = []
        writer.sync(lambda: done.append("durable"), lambda action: action())
        assert done == ["durable"] and fsyncs == []  # the commit itself was durable
        assert not Path(f"{journal.path}-wal").exists()
    with Journal.open(directory, mountinfo=network) as journal:
        assert journal.summary(run).succeeded == 1


def test_a_journal_that_had_a_log_moves_to_a_network(tmp_path: Path, network: Path) -> None:
    with Journal.open(tmp_path / "j") as journal:
        run = new_run(journal)
        assert journal.notice is None
    with Journal.open(tmp_path / "j", mountinfo=network) as journal:
        assert journal.connection.execute("PRAGMA journal_mode").fetchone() == ("delete",)
        assert journal.summary(run).run == run


def test_choosing_the_log_waits_for_readers_of_the_old_mode(
    tmp_path: Path, network: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Journal.open(tmp_path, mountinfo=network).close()
    reader = sqlite3.connect(tmp_path / "journal.db", isolation_level=None)
    reader.execute("BEGIN")
    reader.execute("SELECT * FROM runs").fetchall()
    waits: list[float] = []

    def wait(seconds: float) -> None:
        waits.append(seconds)
        if len(waits) == 3:
            reader.execute("COMMIT")

    monkeypatch.setattr(schema, "BUSY_TIMEOUT_S", 0.05)
    monkeypatch.setattr(schema.time, "monotonic", lambda: 0.0)
    monkeypatch.setattr(schema.time, "sleep", wait)
    with Journal.open(tmp_path) as journal:
        assert journal.connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    assert len(waits) == 3
    reader.close()


def test_a_place_where_sqlite_refuses_the_log(tmp_path: Path) -> None:
    """This way of locking has no shared memory, as on file systems that cannot map files."""
    uri = f"file:{tmp_path}/x.db?vfs=unix-dotfile"
    connection = sqlite3.connect(uri, uri=True, isolation_level=None)
    connection.execute("CREATE TABLE t (x)")
    log, notice = schema.choose_journal_mode(connection, tmp_path, tmp_path / "missing")
    assert not log and notice is not None and "write-ahead log" in notice
    assert connection.execute("PRAGMA journal_mode").fetchone() == ("delete",)
    connection.close()


@pytest.mark.parametrize("content", [b"not a database at all, but long enough\n" * 100, b"SQLite"])
def test_a_file_that_is_no_database_is_named_and_kept(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "journal.db"
    path.write_bytes(content)
    for read_only in (False, True):
        with pytest.raises(JournalError, match=r"journal\.db is not a database; move it away"):
            Journal.open(tmp_path, read_only=read_only)
    assert path.read_bytes() == content


def test_the_database_of_another_program_is_kept(tmp_path: Path) -> None:
    connection = sqlite3.connect(tmp_path / "journal.db")
    connection.execute("CREATE TABLE diary (x)")
    connection.close()
    with pytest.raises(JournalError, match="another program"):
        Journal.open(tmp_path)


def test_an_empty_file_is_a_journal_not_yet_made(tmp_path: Path) -> None:
    (tmp_path / "journal.db").touch()
    with pytest.raises(NoJournalError):
        Journal.open(tmp_path, read_only=True)
    Journal.open(tmp_path).close()


def test_a_directory_that_is_a_file(tmp_path: Path) -> None:
    (tmp_path / ".sureline").write_text("")
    with pytest.raises(JournalError, match="is not a directory"):
        Journal.open(tmp_path / ".sureline")


def test_a_damaged_database_is_named(tmp_path: Path) -> None:
    with Journal.open(tmp_path) as journal:
        run = new_run(journal)
    with open(tmp_path / "journal.db", "r+b") as file:
        file.seek(4096)
        file.write(b"\xff" * 40960)
    with (
        pytest.raises(JournalError, match=r"journal\.db is damaged"),
        Journal.open(tmp_path) as journal,
    ):
        journal.summary(run)


def _as_nobody(directory: Path, results: multiprocessing.Queue[str]) -> None:
    os.setuid(65534)
    for read_only in (False, True):
        try:
            with Journal.open(directory, read_only=read_only) as journal:
                results.put(",".join(summary.name for summary in journal.runs()))
        except JournalError as error:
            results.put(str(error))
    try:
        Journal.open(directory / "deeper")
    except JournalError as error:
        results.put(str(error))


@pytest.fixture
def public_directory() -> Iterator[Path]:
    """A directory that other users can reach, unlike tmp_path."""
    directory = Path(tempfile.mkdtemp())
    directory.chmod(0o755)
    yield directory
    shutil.rmtree(directory)


@pytest.mark.skipif(os.getuid() != 0, reason="only root can become another user")
def test_a_directory_one_may_not_write(public_directory: Path) -> None:
    with Journal.open(public_directory) as journal:
        new_run(journal)
    processes = multiprocessing.get_context("spawn")
    results: multiprocessing.Queue[str] = processes.Queue()
    child = processes.Process(target=_as_nobody, args=(public_directory, results))
    child.start()
    writing, reading, deeper = (results.get(timeout=60) for _ in range(3))
    child.join()
    assert "journal.db cannot be written; make" in writing
    assert reading == "demo"
    assert "cannot be written" in deeper


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 1 MB."""
    point = tmp_path / "small"
    point.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(point)]
    try:
        subprocess.run(mount, check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("mounting a small file system needs root and mount")
    yield point
    subprocess.run(["umount", str(point)], check=True)


def test_a_disk_that_fills_during_a_run_and_is_freed(small_disk: Path) -> None:
    (small_disk / "ballast").write_bytes(b"x" * 400_000)
    with Journal.open(small_disk / ".sureline") as journal:
        run = new_run(journal)
        writer = take(journal, run)
        flushed = 0
        with pytest.raises(DiskFullError, match="is full; free some space, then resume"):
            for number in range(1000):
                ended = TaskEnded(1.0, f"t{number:03d}", "succeeded", stdout="x" * 3000)
                writer.record(ended)
                writer.record(TaskEnded(1.0, f"t{number:03d}", "cancelled", 2))
                writer.flush()
                flushed = number + 1
        events = list(journal.events(run))
        assert 0 < flushed < 1000
        assert len(events) == 2 + 2 * flushed  # nothing half-written
        assert journal.summary(run).succeeded == flushed
        (small_disk / "ballast").unlink()
        writer.flush()
        assert journal.summary(run).succeeded == flushed + 1
    with Journal.open(small_disk / ".sureline") as journal:
        assert len(list(journal.commits(run))) == flushed + 1


def test_a_disk_that_is_full_from_the_start(small_disk: Path) -> None:
    with open(small_disk / "ballast", "wb") as ballast, pytest.raises(OSError):
        while True:
            os.write(ballast.fileno(), b"x" * 65536)
    with pytest.raises(DiskFullError, match="is full"):
        Journal.open(small_disk / ".sureline")


def test_a_database_that_may_not_grow(journal: Journal) -> None:
    """The same promise where nothing can be mounted."""
    run = new_run(journal)
    writer = take(journal, run)
    (pages,) = journal.connection.execute("PRAGMA page_count").fetchone()
    journal.connection.execute(f"PRAGMA max_page_count={pages}")
    writer.record(TaskEnded(1.0, "a", "succeeded", stdout="x" * 100_000))
    with pytest.raises(DiskFullError):
        writer.flush()
    assert len(list(journal.events(run))) == 2
    journal.connection.execute("PRAGMA max_page_count=100000")
    writer.flush()
    assert [ended.task for ended in journal.commits(run)] == ["a"]
