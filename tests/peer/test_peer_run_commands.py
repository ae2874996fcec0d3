"""Commands, run by real slot processes."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from peer_bench import TIMEOUTS_S, Bench, alive, is_written

from sureline.peer import orphans
from sureline.peer.jobs import (
    CommandJob,
    FileMissing,
    FileReady,
    JobEnded,
    JobStarted,
    PauseJob,
    PublishJob,
    UserFile,
)
from sureline.peer.lending import LINK_FROM_BYTES
from sureline.workflow.files import FileRecord


def command(run: str, label: str = "0.1", **more: object) -> CommandJob:
    return CommandJob(label, "t", 1, run, **more)  # type: ignore[arg-type]  # fields by name


def ingest(bench: Bench, path: str, text: str) -> FileRecord:
    (bench.directory / path).parent.mkdir(parents=True, exist_ok=True)
    (bench.directory / path).write_text(text)
    fetched = bench.fetch(UserFile(path))
    assert isinstance(fetched, FileReady)
    return fetched.file


def content(bench: Bench, record: FileRecord) -> str:
    return Path(bench.store.blob_path(record.digest, record.executable)).read_text()


def work_of(bench: Bench) -> list[str]:
    """What lies in the run's working directory, apart from the slots' own empty places."""
    work = bench.root / "work/r1"
    return [
        str(p.relative_to(work))
        for p in work.rglob("*")
        if not (p.parent == work and p.name.startswith("slot-")) and p.stem != "std"
    ]


def test_events_come_in_order_and_the_end_once(bench: Bench) -> None:
    started = bench.start(command("true"))
    assert started.events == []
    ended = bench.end(started)
    assert [type(e) for e in started.events] == [JobStarted, JobEnded]
    assert ended.outcome == "succeeded"
    assert ended.exit_code == 0
    assert ended.elapsed_s > 0
    assert (ended.stdout, ended.stderr, ended.stdout_file, ended.stderr_file) == (
        "",
        "",
        None,
        None,
    )


def test_inputs_are_there_read_only_and_outputs_are_stored(bench: Bench) -> None:
    record = ingest(bench, "in/a.txt", "hello\n")
    ended = bench.run(
        command(
            "stat -c %a in/a.txt; tr a-z A-Z < in/a.txt > out/deep/b.txt",
            inputs=(record,),
            outputs=("out/deep/b.txt",),
        )
    )
    assert (ended.outcome, ended.stdout) == ("succeeded", "444\n")
    assert [r.path for r in ended.outputs] == ["out/deep/b.txt"]
    assert content(bench, ended.outputs[0]) == "HELLO\n"
    assert bench.store.intact(ended.outputs[0])
    assert work_of(bench) == []


def test_a_job_sees_only_its_inputs_also_in_a_used_slot(bench: Bench) -> None:
    bench.run(command("mkdir -p x/y; touch x/y/z .hidden; chmod 500 x"))
    assert bench.run(command("ls -A", "1.1")).stdout == ""
    bench.run(command("chmod 700 .; touch a", "2.1"))
    assert bench.run(command("ls -A", "3.1")).stdout == ""


def test_the_next_job_is_not_disturbed_by_a_process_left_behind(bench: Bench) -> None:
    """A daemon of a successful job neither writes into the next one's directory nor its log."""
    (bench.directory / "daemon").write_text(
        "touch up; while ! test -e go; do sleep 0.01; done; cd - ; touch junk; echo junk; touch $1"
    )
    up, go, done = (bench.directory / name for name in ("up", "go", "done"))
    escape = f"setsid sh -c 'cd {bench.directory}; . ./daemon' x {done} &"
    script = f"{escape} while ! test -e {up}; do sleep 0.01; done"
    assert bench.run(command(script)).outcome == "succeeded"
    ended = bench.run(
        command(f"touch {go}; while ! test -e {done}; do sleep 0.01; done; ls -A", "1.1")
    )
    assert (ended.outcome, ended.stdout) == ("succeeded", "")


def test_directories_go_in_and_out(bench: Bench) -> None:
    ingest(bench, "d/a", "1")
    ingest(bench, "d/sub/b", "2")
    directory = bench.fetch(UserFile("d"))
    assert isinstance(directory, FileReady)
    ended = bench.run(
        command("cp -r d e; cat d/a d/sub/b > e/c", inputs=(directory.file,), outputs=("e",))
    )
    assert ended.outcome == "succeeded", ended
    assert ended.outputs[0].directory
    published = bench.run(PublishJob("p", ended.outputs))
    assert published.outcome == "succeeded", published
    assert (bench.directory / "e/c").read_text() == "12"


def test_in_place_inputs_are_linked_where_they_lie(bench: Bench) -> None:
    (bench.directory / "huge").write_text("x")
    fetched = bench.fetch(UserFile("huge", in_place=True))
    assert isinstance(fetched, FileReady)
    assert fetched.file.in_place
    ended = bench.run(command("readlink huge; cat huge", inputs=(fetched.file,)))
    assert ended.stdout == f"{bench.directory / 'huge'}\nx"


def test_stdin_is_a_file_or_empty(bench: Bench) -> None:
    record = ingest(bench, "a", "from a file")
    assert bench.run(command("cat", inputs=(record,), stdin="a")).stdout == "from a file"
    assert bench.run(command("cat", "1.1")).stdout == ""


def test_the_environment(make_bench: Callable[..., Bench], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FROM_CALLER", "yes")
    bench = make_bench()
    job = CommandJob(
        "7.2",
        "the task",
        2,
        "echo $FROM_CALLER-$MINE-$SURELINE_TASK-$SURELINE_ATTEMPT-$SURELINE_CORES-$SURELINE_JOB",
        env={"MINE": "m"},
        cores=1.5,
    )
    assert bench.run(job).stdout == f"yes-m-the task-2-1.5-{bench.root}:r1/7.2\n"


def test_signals_are_as_at_login(bench: Bench) -> None:
    ended = bench.run(command("grep -E 'Sig(Ign|Blk)' /proc/self/status"))
    numbered = (1 << 31) - 1  # the C library keeps two of the real-time signals for itself
    masks = [int(line.split()[1], 16) & numbered for line in ended.stdout.splitlines()]
    assert masks == [0, 0]


@pytest.mark.parametrize(
    ("run", "code", "number", "reason"),
    [
        ("sh -c 'exit 3'", 3, None, "exit code 3"),
        ("false\ntouch a", 1, None, "exit code 1"),
        ("kill -SEGV $$", None, signal.SIGSEGV, "killed by SIGSEGV"),
        ("no-such-program-here x", 127, None, "exit code 127"),
        ("./missing", 127, None, "cannot run './missing': No such file or directory"),
        ("/etc/passwd", 126, None, "cannot run '/etc/passwd': Permission denied"),
    ],
)
def test_failures_say_why(
    bench: Bench, run: str, code: int | None, number: int | None, reason: str
) -> None:
    ended = bench.run(command(run, outputs=("a",)))
    assert (ended.outcome, ended.exit_code, ended.signal) == ("failed", code, number)
    assert ended.reason == reason
    assert ended.outputs == ()
    assert bench.run(command("true", "1.1")).outcome == "succeeded"


def test_a_script_without_a_hash_bang_line_runs(bench: Bench) -> None:
    (bench.directory / "s").write_text("echo ran\n")
    (bench.directory / "s").chmod(0o755)
    fetched = bench.fetch(UserFile("s"))
    assert isinstance(fetched, FileReady)
    assert bench.run(command("./s", inputs=(fetched.file,))).stdout == "ran\n"


def test_missing_outputs_are_all_named_with_what_is_there(bench: Bench) -> None:
    ended = bench.run(
        command("touch result.txt good", outputs=("good", "results.txt", "other/thing"))
    )
    assert ended.outcome == "failed"
    assert ended.exit_code == 0
    assert ended.reason == (
        "did not make its outputs results.txt, other/thing (it made result.txt)"
    )


def test_an_output_that_cannot_be_stored_is_a_failure(bench: Bench) -> None:
    ended = bench.run(command("mkfifo a", outputs=("a",)))
    assert (ended.outcome, ended.reason) == ("failed", "a is a named pipe, not a file")


def test_short_output_is_whole_and_leaves_no_file(bench: Bench) -> None:
    ended = bench.run(command("printf 'ab\\377'; echo err >&2"))
    assert (ended.stdout, ended.stderr) == ("ab\ufffd", "err\n")
    assert (ended.stdout_file, ended.stderr_file) == (None, None)
    assert bench.run(command("echo again", "1.1")).stdout == "again\n"


def test_long_output_is_kept_in_a_file_with_its_tail_at_hand(bench: Bench) -> None:
    ended = bench.run(command("seq 100000; echo short >&2", "3.2"))
    assert ended.stdout_file == "logs/r1/3.2.out"
    kept = (bench.root / ended.stdout_file).read_text()
    assert kept.startswith("1\n2\n")
    assert len(ended.stdout) == 4096
    assert kept.endswith(ended.stdout)
    assert (ended.stderr, ended.stderr_file) == ("short\n", None)
    assert bench.run(command("echo next", "4.1")).stdout == "next\n"


@pytest.mark.parametrize("size", [4, LINK_FROM_BYTES])
def test_a_task_that_writes_to_its_input_fails_and_harms_nobody(bench: Bench, size: int) -> None:
    record = ingest(bench, "a", "g" * size)
    ended = bench.run(command("chmod u+w a; echo evil > a", inputs=(record,)))
    assert ended.outcome == "failed"
    assert ended.reason == "its input a was written to while it ran; inputs are read-only"
    assert bench.store.intact(record, by_content=True)
    assert (bench.directory / "a").read_text() == "g" * size


def test_a_file_written_to_inside_an_input_directory_is_noticed(bench: Bench) -> None:
    ingest(bench, "d/a", "good")
    fetched = bench.fetch(UserFile("d"))
    assert isinstance(fetched, FileReady)
    ended = bench.run(command("chmod u+w d/a; printf evil > d/a", inputs=(fetched.file,)))
    assert ended.outcome == "failed"
    assert ended.reason.startswith("its input d was written to")
    assert bench.store.intact(fetched.file, by_content=True)


def test_a_file_and_its_directory_may_both_be_inputs(bench: Bench) -> None:
    file = ingest(bench, "d/a", "x")
    directory = bench.fetch(UserFile("d"))
    assert isinstance(directory, FileReady)
    for number, inputs in enumerate([(file, directory.file), (directory.file, file)]):
        ended = bench.run(command("cat d/a", f"{number}.1", inputs=inputs))
        assert (ended.outcome, ended.stdout) == ("succeeded", "x")


def test_a_task_may_replace_or_touch_or_remove_its_input(bench: Bench) -> None:
    record = ingest(bench, "a", "good")
    for number, run in enumerate(("rm -f a; echo evil > a", "touch a", "rm -f a", "chmod 600 a")):
        ended = bench.run(command(run, f"{number}.1", inputs=(record,)))
        assert (ended.outcome, ended.reason) == ("succeeded", "")
        assert bench.store.intact(record, by_content=True)
    mode = os.stat(bench.store.blob_path(record.digest)).st_mode
    assert mode & 0o222 == 0


def test_a_lost_input_fails_that_job_only(bench: Bench) -> None:
    record = ingest(bench, "a", "good")
    os.unlink(bench.store.blob_path(record.digest))
    assert bench.run(command("cat a", inputs=(record,))).stdout == "good", "the user still has it"
    os.unlink(bench.store.blob_path(record.digest))
    (bench.directory / "a").write_text("evil")
    ended = bench.run(command("cat a", "0.2", inputs=(record,)))
    assert ended.outcome == "failed" and "the stored copy of a is gone" in ended.reason
    assert bench.run(command("true", "1.1")).outcome == "succeeded"


def test_a_store_that_refuses_is_a_failure_not_a_dead_slot(bench: Bench) -> None:
    bench.run(command("true"))
    (bench.root / "blobs").rmdir()
    (bench.root / "blobs").write_text("in the way")
    ended = bench.run(command("touch a", "1.1", outputs=("a",)))
    assert ended.outcome == "failed"
    assert "blobs" in ended.reason
    assert bench.run(command("true", "2.1")).outcome == "succeeded"


def test_usage_is_measured(bench: Bench) -> None:
    script = "x = bytearray(100_000_000); i = 0\nwhile i < 400_000: i += 1"
    ended = bench.run(command(f'python3 -c "{script}"'))
    assert ended.outcome == "succeeded", ended
    assert ended.cpu_s > 0
    assert 100_000_000 < ended.memory_peak_bytes < 300_000_000
    assert bench.run(command("true", "1.1")).memory_peak_bytes < 50_000_000


STUBBORN = (
    "trap '' TERM; echo $$ > {0}; (trap '' TERM; while :; do sleep 0.01; done) & wait; sleep 99"
)
ESCAPING = "setsid sh -c 'setsid sleep 99 & echo $! > {0}; sleep 99' & sleep 99"
CLEARED = "setsid env -i sh -c 'sleep 99 & echo $! > {0}; sleep 99' & sleep 99"


def wait_for_pid(bench: Bench, path: Path) -> int:
    bench.until(lambda: is_written(path))
    return int(path.read_text())


@pytest.mark.parametrize("way", ["stop", "force", "timeout"])
@pytest.mark.parametrize("script", [STUBBORN, ESCAPING, CLEARED, "echo $$ > {0}; sleep 99"])
def test_nothing_survives_being_stopped(
    make_bench: Callable[..., Bench], script: str, way: str
) -> None:
    bench = make_bench(grace_s=0.05)
    mark = bench.directory / "pid"
    for timeout_s in TIMEOUTS_S if way == "timeout" else [None]:
        started = bench.start(command(script.format(mark), timeout_s=timeout_s))
        if timeout_s is None:
            bench.until(lambda: is_written(mark))
            assert started.handle is not None
            bench.runner.stop(started.handle, force=way == "force")
        ended = bench.end(started)
        if is_written(mark):
            break
    pid = int(mark.read_text())
    assert ended.outcome == ("timeout" if way == "timeout" else "cancelled")
    assert ended.reason == (
        f"took longer than its timeout of {timeout_s} s" if timeout_s else "was stopped"
    )
    assert not alive(pid)
    assert not orphans.find(orphans.token_of(str(bench.root), "r1", "0.1"))
    assert bench.run(command("ls -A", "1.1")).stdout == ""


def test_a_stopped_job_may_clean_up_in_its_grace_period(make_bench: Callable[..., Bench]) -> None:
    bench = make_bench(grace_s=20.0)
    mark = bench.directory / "pid"
    script = f"trap 'echo bye; exit 0' TERM; echo $$ > {mark}; while :; do sleep 0.01; done"
    started = bench.start(command(script))
    wait_for_pid(bench, mark)
    assert started.handle is not None
    bench.runner.stop(started.handle)
    ended = bench.end(started)
    assert (ended.outcome, ended.stdout, ended.exit_code) == ("cancelled", "bye\n", 0)
    bench.runner.stop(started.handle, force=True)


def test_background_children_end_with_their_job(bench: Bench) -> None:
    mark = bench.directory / "pid"
    ended = bench.run(command(f"sleep 99 & echo $! > {mark}"))
    assert ended.outcome == "succeeded"
    pid = int(mark.read_text())
    bench.until(lambda: not alive(pid))


def test_jobs_wait_for_a_slot_in_order_and_may_be_stopped_there(
    make_bench: Callable[..., Bench],
) -> None:
    bench = make_bench(max_slots=1)
    order = bench.directory / "order"
    jobs = [bench.start(command(f"echo {n} >> {order}", f"{n}.1")) for n in range(4)]
    assert jobs[2].handle is not None
    bench.runner.stop(jobs[2].handle)
    outcomes = [bench.end(job).outcome for job in jobs]
    assert outcomes == ["succeeded", "succeeded", "cancelled", "succeeded"]
    assert order.read_text().split() == ["0", "1", "3"]
    assert len(jobs[2].events) == 1


def test_a_pause_needs_no_slot(make_bench: Callable[..., Bench]) -> None:
    bench = make_bench(max_slots=0)
    started = bench.start(PauseJob("0.1", "t", 1, 0.001))
    assert bench.end(started).outcome == "succeeded"
    assert [type(e) for e in started.events] == [JobStarted, JobEnded]
    long = bench.start(PauseJob("1.1", "t", 1, 1000.0))
    assert long.handle is not None
    bench.runner.stop(long.handle)
    assert bench.end(long).outcome == "cancelled"


def test_publishing_reports_all_that_failed(bench: Bench) -> None:
    ended = bench.run(command("echo 1 > a; echo 2 > b; echo 3 > c", outputs=("a", "b", "c")))
    for name in ("a", "c"):
        (bench.directory / name).mkdir()
        (bench.directory / name / "full").touch()
    published = bench.run(PublishJob("p", ended.outputs))
    assert published.outcome == "failed"
    assert "a could not be published" in published.reason
    assert "c could not be published" in published.reason
    assert (bench.directory / "b").read_text() == "2\n"


def test_a_missing_user_file_is_reported(bench: Bench) -> None:
    assert bench.fetch(UserFile("nope")) == FileMissing("nope", "nope does not exist")
    assert bench.fetch(UserFile("nope", in_place=True)) == FileMissing(
        "nope", "nope does not exist"
    )


def test_close_leaves_no_process_and_no_working_files(make_bench: Callable[..., Bench]) -> None:
    bench = make_bench()
    marks = [bench.directory / f"pid{n}" for n in range(3)]
    for number, script in enumerate((STUBBORN, ESCAPING, "echo $$ > {0}; sleep 99")):
        bench.start(command(script.format(marks[number]), f"{number}.1"))
    pids = [wait_for_pid(bench, mark) for mark in marks[:2]]
    bench.loop.run_until_complete(bench.runner.close())
    assert not orphans.find(orphans.token_of(str(bench.root), "r1", ""), prefix=True)
    assert not any(alive(pid) for pid in pids)
    assert not (bench.root / "work/r1").exists()
