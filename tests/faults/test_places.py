"""Where runs take place: directories that cannot be written, disks that are full, journals and
stores that were tampered with, company in the same directory, and broken standard streams."""

from __future__ import annotations

import contextlib
import os
import shutil
import sqlite3
import subprocess
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from gates import Marks, gated, write_flow
from surely import (
    COMMAND,
    HOME,
    Said,
    events,
    leftovers,
    no_traceback,
    rows,
    runs,
    sentences,
    show,
    started,
    state,
    states,
    sureline,
    tree,
    until,
    view,
)

from sureline.journal.events import COMMITS, TaskEnded, TaskRevoked
from sureline.peer.store import BlobStore

IS_ROOT = os.geteuid() == 0


@pytest.fixture
def where(tmp_path: Path) -> Path:
    place = tmp_path / "place"
    place.mkdir()
    return place


@pytest.fixture
def marks(tmp_path: Path) -> Marks:
    return Marks(tmp_path / "marks")


def chain(where: Path, first: str = "true", second: str = "true") -> None:
    """in.txt -> a -> b, and c beside them; a and b do something else `first` and `second`."""
    (where / "in.txt").write_text("hello\n")
    make_a, make_b = "(echo a; cat in.txt) > a.txt", "(cat a.txt; echo b) > b.txt"
    write_flow(
        where,
        {
            "a": {"run": f"{first}; {make_a}", "inputs": ["in.txt"], "outputs": ["a.txt"]},
            "b": {"run": f"{second}; {make_b}", "inputs": ["a.txt"], "outputs": ["b.txt"]},
            "c": {"run": "mkdir c; echo c > c/one", "outputs": ["c"]},
        },
    )


def one_sentence(said: Said, *parts: str) -> None:
    """The command refused with exit code 2, one sentence, no traceback."""
    no_traceback(said)
    assert said.code == 2, said
    found = sentences(said)
    assert len(found) == 1, said.err
    for part in parts:
        assert part in found[0], found[0]


def commits_per_task(where: Path, run: str | None = None) -> Counter[str]:
    ends = [event for event in events(where, run) if isinstance(event, TaskEnded)]
    return Counter(ended.task for ended in ends if ended.outcome in COMMITS)


# -- places that cannot be written -----------------------------------------------------------


@contextlib.contextmanager
def read_only(where: Path) -> Iterator[None]:
    """Permissions do not bind root, a read-only mount does."""
    if IS_ROOT:
        mount("--bind", str(where), str(where))
        try:
            mount("-o", "remount,ro,bind", str(where))
            yield
        finally:
            unmount(where)
    else:
        modes = {path: path.stat().st_mode for path in (where, *where.rglob("*"))}
        for path, mode in modes.items():
            path.chmod(mode & ~0o222)
        try:
            yield
        finally:
            for path, mode in modes.items():
                path.chmod(mode)


def mount(*arguments: str) -> None:
    done = subprocess.run(["mount", *arguments], capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"cannot mount here: {done.stderr.strip()}")


def unmount(where: Path) -> None:
    subprocess.run(["umount", "--lazy", str(where)], check=False)


def test_a_read_only_directory(where: Path) -> None:
    chain(where)
    with read_only(where):
        one_sentence(sureline(where, "run", "flow.yaml"), "cannot be written", "writable")
        assert sureline(where, "validate", "flow.yaml").code == 0
        assert sureline(where, "runs").code == 0
    assert not (where / HOME).exists()


def test_a_journal_in_a_read_only_directory_can_be_read(where: Path) -> None:
    chain(where)
    assert sureline(where, "run", "flow.yaml").code == 0
    with read_only(where):
        assert show(where)["state"] == "succeeded"
        assert [one["state"] for one in runs(where)] == ["succeeded"]
        (one,) = runs(where)
        one_sentence(sureline(where, "resume", one["run"]), "cannot be written")
        one_sentence(sureline(where, "run", "flow.yaml"), "cannot be written")
        said = sureline(where, "cancel")
        no_traceback(said)


def test_home_is_a_file(where: Path) -> None:
    chain(where)
    (where / HOME).write_text("mine\n")
    one_sentence(sureline(where, "run", "flow.yaml"), "is not a directory")
    assert (where / HOME).read_text() == "mine\n"
    for verb in ("resume", "show", "cancel"):
        said = sureline(where, verb)
        no_traceback(said)
        assert said.code == 2, (verb, said)


@pytest.mark.parametrize("verb", [("run", "flow.yaml"), ("resume",), ("show",), ("runs",)])
def test_a_journal_that_is_no_database(where: Path, verb: tuple[str, ...]) -> None:
    chain(where)
    (where / HOME).mkdir()
    garbage = b"this is not a database\n" * 1000
    (where / HOME / "journal.db").write_bytes(garbage)
    one_sentence(sureline(where, *verb), "is not a database", "move it away")
    assert (where / HOME / "journal.db").read_bytes() == garbage


@pytest.mark.parametrize("verb", [("run", "flow.yaml"), ("resume",), ("show",), ("runs",)])
def test_a_journal_of_a_newer_version(where: Path, verb: tuple[str, ...]) -> None:
    chain(where)
    assert sureline(where, "run", "flow.yaml").code == 0
    with contextlib.closing(sqlite3.connect(where / HOME / "journal.db")) as connection:
        connection.execute("PRAGMA user_version=999")
    one_sentence(sureline(where, *verb), "newer Sureline", "999")


def test_a_damaged_journal_is_told_and_left_alone(where: Path) -> None:
    chain(where)
    assert sureline(where, "run", "flow.yaml").code == 0
    path = where / HOME / "journal.db"
    size = path.stat().st_size
    with open(path, "r+b") as file:
        file.seek(4096)
        file.write(b"\xff" * (size - 4096))
    for verb in (("run", "flow.yaml"), ("resume",), ("show",), ("runs",)):
        said = sureline(where, *verb)
        no_traceback(said)
        assert said.code == 2, (verb, said)
        assert "damaged" in sentences(said)[0] or "not a database" in sentences(said)[0]


# -- full disks ------------------------------------------------------------------------------


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 8 MB of its own."""
    if not IS_ROOT:
        pytest.skip("only root can mount a small file system to fill")
    place = tmp_path / "small"
    place.mkdir()
    mount("-t", "tmpfs", "-o", "size=8m", "none", str(place))
    try:
        yield place
    finally:
        unmount(place)


def fill(where: Path, leave_bytes: int = 0) -> Path:
    """Take all space but a little; the file to remove to get it back."""
    ballast = where / "ballast"
    with open(ballast, "ab", buffering=0) as file, contextlib.suppress(OSError):
        while True:
            file.write(b"\0" * 4096)
    if leave_bytes:
        os.truncate(ballast, max(0, ballast.stat().st_size - leave_bytes))
    return ballast


def hungry(where: Path) -> None:
    """Twelve tasks that make 300 kB each, and one that sums them up: 7 MB, store included."""
    tasks = {
        f"big:{k}": {
            "run": f"head -c 300000 /dev/zero | tr '\\0' {chr(97 + k)} > big.{k}",
            "outputs": [f"big.{k}"],
        }
        for k in range(10)
    }
    made = [f"big.{k}" for k in range(10)]
    tasks["sum"] = {"run": "cat big.* | cksum > sum", "inputs": made, "outputs": ["sum"]}
    write_flow(where, tasks)


def check_hungry(where: Path) -> None:
    for k in range(10):
        assert (where / f"big.{k}").read_bytes() == bytes([97 + k]) * 300_000
    assert leftovers(where) == []
    assert set(commits_per_task(where).values()) == {1}


@pytest.mark.parametrize("leave_bytes", [3_000_000, 600_000, 60_000])
def test_a_disk_that_fills_up_during_the_run(small_disk: Path, leave_bytes: int) -> None:
    hungry(small_disk)
    ballast = fill(small_disk, leave_bytes)
    said = sureline(small_disk, "run", "flow.yaml")
    no_traceback(said)
    assert said.code in (1, 2), said
    told = (said.out + said.err).lower()
    assert "no space left" in told or "is full" in told, said
    assert len(said.err.splitlines()) < 60, "a full disk is no reason to flood the terminal"
    again = sureline(small_disk, "resume")  # still full: again a sentence, no harm
    no_traceback(again)
    assert again.code in (1, 2), again
    ballast.unlink()
    exists = rows(small_disk, "SELECT count(*) FROM runs")[0][0]
    verb = ("resume",) if exists else ("run", "flow.yaml")
    done = sureline(small_disk, *verb)
    assert done.code == 0, done
    check_hungry(small_disk)


@pytest.mark.parametrize(
    "inodes", [7, *(pytest.param(n, marks=pytest.mark.soak) for n in (8, 10, 16)), 9, 12, 30]
)
def test_a_disk_without_room_for_more_files(tmp_path: Path, inodes: int) -> None:
    """Space is left, but no file can be made: each count stops the run at another step."""
    if not IS_ROOT:
        pytest.skip("only root can mount a small file system to fill")
    place = tmp_path / "small"
    place.mkdir()
    mount("-t", "tmpfs", "-o", f"size=8m,nr_inodes={inodes}", "none", str(place))
    try:
        hungry(place)
        said = sureline(place, "run", "flow.yaml")
        no_traceback(said)
        assert said.code in (1, 2), said
        told = (said.out + said.err).lower()
        assert "no space left" in told or "is full" in told, said
        mount("-o", "remount,nr_inodes=1000", str(place))
        exists = (place / HOME).exists() and rows(place, "SELECT count(*) FROM sqlite_master")[0][0]
        verb = ("resume",) if exists and rows(place, "SELECT 1 FROM runs") else ("run", "flow.yaml")
        done = sureline(place, *verb)
        assert done.code == 0, done
        check_hungry(place)
    finally:
        unmount(place)


def test_a_disk_that_is_full_before_the_run(small_disk: Path) -> None:
    hungry(small_disk)
    ballast = fill(small_disk)
    said = sureline(small_disk, "run", "flow.yaml")
    one_sentence(said, "is full")
    ballast.unlink()
    done = sureline(small_disk, "run", "flow.yaml")
    assert done.code == 0, done
    check_hungry(small_disk)


def test_a_full_disk_in_the_users_directory_only(where: Path, small_disk: Path) -> None:
    """The journal and the store lie elsewhere: results are kept, only publishing fails."""
    hungry(small_disk)
    (where / HOME).mkdir()
    (small_disk / HOME).symlink_to(where / HOME)
    ballast = fill(small_disk, 1_000_000)
    said = sureline(small_disk, "run", "flow.yaml")
    no_traceback(said)
    assert said.code == 1, said
    assert "could not be published" in said.out
    assert "No space left" in said.out
    assert set(states(small_disk).values()) == {"succeeded"}
    ballast.unlink()
    done = sureline(small_disk, "resume")
    assert done.code == 0, done
    for k in range(10):
        assert (small_disk / f"big.{k}").read_bytes() == bytes([97 + k]) * 300_000


# -- company ---------------------------------------------------------------------------------


def busy(where: Path, name: str, tasks: int) -> None:
    flow = {
        f"t:{k}": {"run": f"sleep 0.01; echo {name} {k} > {name}.{k}", "outputs": [f"{name}.{k}"]}
        for k in range(tasks)
    }
    made = [f"{name}.{k}" for k in range(tasks)]
    flow["all"] = {
        "run": f"cat {' '.join(made)} > {name}.all",
        "inputs": made,
        "outputs": [f"{name}.all"],
    }
    write_flow(where, flow, f"{name}.yaml")


def together(where: Path, *commands: tuple[str, ...]) -> list[Said]:
    with contextlib.ExitStack() as stack:
        going = [stack.enter_context(started(where, *arguments)) for arguments in commands]
        return [one.end() for one in going]


def all_good(where: Path, name: str, tasks: int) -> None:
    wanted = "".join(f"{name} {k}\n" for k in range(tasks))
    assert (where / f"{name}.all").read_text() == wanted


def test_different_workflows_at_once(where: Path) -> None:
    names = ("one", "two", "three")
    for name in names:
        busy(where, name, 8)
    said = together(where, *(("run", f"{name}.yaml", "--json") for name in names))
    for one in said:
        assert one.code == 0, one
        assert one.json["state"] == "succeeded"
        assert set(commits_per_task(where, one.json["run"]).values()) == {1}
        assert len(commits_per_task(where, one.json["run"])) == 9
    for name in names:
        all_good(where, name, 8)
    assert leftovers(where) == []


@pytest.mark.parametrize("fresh", [(), ("--fresh",)])
def test_the_same_workflow_at_once(where: Path, fresh: tuple[str, ...]) -> None:
    busy(where, "one", 8)
    said = together(where, *((("run", "one.yaml", "--json", *fresh),) * 3))
    assert len({one.json["run"] for one in said}) == 3
    for one in said:
        assert one.code == 0, one
        assert set(commits_per_task(where, one.json["run"]).values()) == {1}
        assert len(commits_per_task(where, one.json["run"])) == 9
    all_good(where, "one", 8)
    assert leftovers(where) == []


def test_readers_disturb_nothing(where: Path) -> None:
    busy(where, "one", 30)
    stop = threading.Event()
    seen: list[Said] = []

    def look() -> None:
        while not stop.is_set():
            seen.append(sureline(where, "show", "--json"))
            seen.append(sureline(where, "runs", "--json"))

    reader = threading.Thread(target=look)
    with started(where, "run", "one.yaml") as run:
        reader.start()
        said = run.end()
        stop.set()
        reader.join()
    assert said.code == 0, said
    all_good(where, "one", 30)
    for one in seen:
        no_traceback(one)
        assert one.code == 0 or "no journal" in one.err or "there are no runs" in one.err, one


@pytest.mark.parametrize("lock", ['{"host": "here", "pid": 1, "boot": "earlier"}', "", None])
def test_a_new_run_clears_up_after_a_dead_one_only(
    where: Path, marks: Marks, lock: str | None
) -> None:
    """What a killed run left is removed by the next run; a living run's files are not."""
    gated(where)
    busy(where, "one", 3)
    with started(where, "run", "flow.yaml", env=marks.env) as living:
        marks.wait("first")
        dead = where / HOME / "work" / "dead-run"
        (dead / "slot-1-1").mkdir(parents=True)
        (dead / "slot-1.out").write_text("junk")
        if lock is not None:
            (dead / "lock").write_text(lock)
        assert sureline(where, "run", "one.yaml").code == 0
        assert not dead.exists()
        marks.open_gate()
        assert living.end().code == 0
    assert (where / "b").read_text() == "one\none\n"


def test_what_a_crash_left_on_its_way_into_the_store_is_cleared_up(where: Path) -> None:
    """Half made files lie beside the runs' directories; a living process's are left alone."""
    chain(where)
    dead = subprocess.Popen(["true"])
    dead.wait()
    (work := where / HOME / "work").mkdir(parents=True)
    (work / f".sureline-tmp-{dead.pid}-13").write_text("half")
    (work / f".sureline-tmp-{os.getpid()}-1").write_text("in the making")
    said = sureline(where, "run", "flow.yaml")
    assert said.code == 0, said
    left = [path.name for path in work.glob(".sureline-tmp-*")]
    assert left == [f".sureline-tmp-{os.getpid()}-1"]


def test_a_run_that_is_being_created_is_left_alone(where: Path) -> None:
    """Between making its directory and taking its lock, a run looks as if nobody drove it."""
    chain(where)
    (born := where / HOME / "work" / "born").mkdir(parents=True)
    assert sureline(where, "run", "flow.yaml").code == 0
    assert born.exists()


def test_of_two_resumes_one_is_refused(where: Path, marks: Marks) -> None:
    gated(where)
    with started(where, "run", "flow.yaml", env=marks.env) as run:
        marks.wait("first")
        run.kill()
    with contextlib.ExitStack() as stack:
        both = [stack.enter_context(started(where, "resume", env=marks.env)) for _ in range(2)]
        until(lambda: any(one.over() for one in both), "one to be refused")
        marks.open_gate()
        said = sorted((one.end() for one in both), key=lambda one: one.code)
    assert [one.code for one in said] == [0, 2], said
    assert "still running in another process" in sentences(said[1])[0]
    assert set(commits_per_task(where).values()) == {1}
    assert (where / "b").read_text() == "one\none\n"


# -- things that change between runs ---------------------------------------------------------


def blob_of(where: Path, task: str) -> Path:
    (record,) = view(where).tasks[task].outputs
    return Path(BlobStore(where / HOME, where).blob_path(record.digest))


def damage(blob: Path) -> None:
    """Other content of the same size."""
    blob.chmod(0o644)
    content = blob.read_bytes()
    blob.write_bytes(bytes(b ^ 1 for b in content))


@pytest.mark.parametrize("how", ["deleted", "damaged", "truncated"])
def test_reuse_notices_a_lost_blob(where: Path, how: str) -> None:
    chain(where)
    assert sureline(where, "run", "flow.yaml").code == 0
    lose(blob_of(where, "a"), how)
    (where / "a.txt").unlink()
    said = sureline(where, "run", "flow.yaml", "--json")
    assert said.code == 0, said
    assert states(where)["a"] == "succeeded"
    assert said.json["tasks"]["reused"] == 2
    assert (where / "a.txt").read_text() == "a\nhello\n"


@pytest.mark.parametrize("how", ["deleted", "damaged", "truncated"])
def test_resume_notices_a_lost_blob(where: Path, marks: Marks, how: str) -> None:
    chain(where, second='test -e "$MARKS/go"')
    said = sureline(where, "run", "flow.yaml", "--json", env=marks.env)
    assert said.code == 1, said
    assert states(where) == {"a": "succeeded", "b": "failed", "c": "succeeded"}
    lose(blob_of(where, "a"), how)
    marks.open_gate()
    said = sureline(where, "resume", "--json", env=marks.env)
    assert said.code == 0, said
    assert said.json["tasks"]["succeeded"] == 3
    assert [e.task for e in events(where) if isinstance(e, TaskRevoked)] == ["a"]
    assert (where / "b.txt").read_text() == "a\nhello\nb\n"
    assert sorted(task for (task,) in rows(where, "SELECT task FROM commits")) == ["a", "b", "c"]
    assert commits_per_task(where) == {"a": 2, "b": 1, "c": 1}


def lose(blob: Path, how: str) -> None:
    if how == "deleted":
        blob.unlink()
    elif how == "damaged":
        damage(blob)
    else:
        blob.chmod(0o644)
        os.truncate(blob, 1)


def test_a_changed_input_is_noticed(where: Path) -> None:
    chain(where)
    assert sureline(where, "run", "flow.yaml").code == 0
    (where / "in.txt").write_text("HELLO\n")  # the same size, perhaps within the same tick
    said = sureline(where, "run", "flow.yaml", "--json")
    assert said.json["tasks"]["reused"] == 1
    assert (where / "b.txt").read_text() == "a\nHELLO\nb\n"


def test_a_changed_input_is_noticed_even_if_its_time_is_put_back(where: Path) -> None:
    """Size, time and inode alike: nobody can tell without reading; the change time could."""
    chain(where)
    source = where / "in.txt"
    os.utime(source, ns=(0, 10**18))
    assert sureline(where, "run", "flow.yaml").code == 0
    source.write_text("HELLO\n")
    os.utime(source, ns=(0, 10**18 + 1))
    said = sureline(where, "run", "flow.yaml", "--json")
    assert said.json["tasks"]["reused"] == 1
    assert (where / "b.txt").read_text() == "a\nHELLO\nb\n"


def test_what_a_crash_left_beside_the_outputs_is_cleared_up(where: Path) -> None:
    """Half made copies go; a directory of the user's that was on its way out is kept aside; what
    a living process is making just now is left alone."""
    chain(where)
    dead = subprocess.Popen(["true"])
    dead.wait()
    (where / f".sureline-tmp-{dead.pid}-1-a.txt").write_text("half")
    (where / f".sureline-tmp-{dead.pid}-2-c").mkdir()
    (where / f".sureline-tmp-{dead.pid}-2-c" / "one").write_text("half")
    (where / f".sureline-tmp-{os.getpid()}-1-a.txt").write_text("in the making")
    (where / f".sureline-old-{dead.pid}-3-c").mkdir()
    (where / f".sureline-old-{dead.pid}-3-c" / "mine").write_text("the only copy")
    assert sureline(where, "run", "flow.yaml").code == 0
    found = [path.name for path in where.glob(".sureline-*")]
    assert found == [f".sureline-tmp-{os.getpid()}-1-a.txt"]
    (kept,) = (where / HOME).rglob("mine")
    assert kept.read_text() == "the only copy"


def test_outputs_come_back(where: Path) -> None:
    chain(where)
    assert sureline(where, "run", "flow.yaml").code == 0
    whole = tree(where)
    (where / "a.txt").write_text("edited\n")
    (where / "b.txt").unlink()
    (where / "c/one").write_text("C\n")
    (where / "c/two").write_text("more\n")
    said = sureline(where, "run", "flow.yaml", "--json")
    assert said.code == 0, said
    assert said.json["tasks"]["reused"] == 3
    assert tree(where) == whole


def test_an_edited_output_does_not_reach_the_store(where: Path) -> None:
    chain(where)
    assert sureline(where, "run", "flow.yaml").code == 0
    with open(where / "a.txt", "a") as file:
        file.write("more\n")
    chain(where, second="false || true")  # b is to run again, a is not
    said = sureline(where, "run", "flow.yaml", "--json")
    assert said.json["tasks"]["reused"] == 2
    assert (where / "b.txt").read_text() == "a\nhello\nb\n"


def test_a_task_that_writes_into_its_input_harms_nobody(where: Path) -> None:
    (where / "in.txt").write_text("hello\n")
    overwrite = "chmod u+w in.txt; echo spoilt >> in.txt; echo done > {}"
    write_flow(
        where,
        {
            "bad": {
                "run": overwrite.format("bad"),
                "inputs": ["in.txt"],
                "outputs": ["bad"],
            },
            "good": {
                "run": "cat in.txt > good",
                "inputs": ["in.txt"],
                "outputs": ["good"],
                "after": ["slow"],
            },
            "slow": {"run": "sleep 0.3"},
        },
    )
    said = sureline(where, "run", "flow.yaml")
    no_traceback(said)
    assert said.code == 1
    assert "bad failed: its input in.txt was written to" in said.err
    assert (where / "in.txt").read_text() == "hello\n"
    if (where / "good").exists():
        assert (where / "good").read_text() == "hello\n"
    write_flow(
        where,
        {"good": {"run": "cat in.txt > good", "inputs": ["in.txt"], "outputs": ["good"]}},
        "good.yaml",
    )
    said = sureline(where, "run", "good.yaml")
    assert said.code == 0, said
    assert (where / "good").read_text() == "hello\n"


# -- broken standard streams -----------------------------------------------------------------

STREAMS = {
    "stdin closed": "<&-",
    "stdout closed": ">&-",
    "stderr closed": "2>&-",
    "all closed": "<&- >&- 2>&-",
    "stdout full": ">/dev/full",
    "stderr full": "2>/dev/full",
    "both full": ">/dev/full 2>/dev/full",
}


@pytest.mark.parametrize(
    ("redirection", "json"),
    [(text, "") for text in STREAMS.values()]
    + [(STREAMS["all closed"], "--json"), (STREAMS["stdout full"], "--json")],
)
def test_broken_streams_do_not_harm_the_run(where: Path, redirection: str, json: str) -> None:
    chain(where, first="echo said; echo told >&2")
    command = f"exec {COMMAND} run flow.yaml {json} {redirection}"
    done = subprocess.run(
        ["sh", "-c", command], cwd=where, capture_output=True, text=True, timeout=60, check=False
    )
    no_traceback(Said(done.returncode, done.stdout, done.stderr))
    assert state(where) == "succeeded"
    assert set(states(where).values()) == {"succeeded"}
    assert (where / "b.txt").read_text() == "a\nhello\nb\n"
    if "full" not in redirection or redirection.startswith("2"):
        assert done.returncode == 0
    else:
        assert done.returncode != 0, "the report was lost, and a program must be able to tell"
    assert leftovers(where) == []
    (ended,) = [e for e in events(where) if isinstance(e, TaskEnded) and e.task == "a"]
    assert (ended.stdout, ended.stderr) == ("said\n", "told\n")


def test_a_reader_that_goes_away_does_not_harm_the_run(where: Path) -> None:
    chain(where)
    command = f"{COMMAND} run flow.yaml 2>&1 | true"
    subprocess.run(["sh", "-c", command], cwd=where, timeout=60, check=False)
    assert state(where) == "succeeded"


def test_the_directory_can_move(where: Path, tmp_path: Path) -> None:
    """Nothing in the journal or the store depends on where the directory lies."""
    chain(where)
    assert sureline(where, "run", "flow.yaml").code == 0
    moved = tmp_path / "moved"
    shutil.move(where, moved)
    (moved / "b.txt").unlink()
    said = sureline(moved, "run", "flow.yaml", "--json")
    assert said.json["tasks"]["reused"] == 3
    assert (moved / "b.txt").read_text() == "a\nhello\nb\n"
