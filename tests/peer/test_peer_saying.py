"""How tasks say how much of them is done."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from peer_bench import Bench

import sureline
from sureline.peer import task_progress as saying
from sureline.peer.jobs import CallJob, CommandJob, JobProgressed
from sureline.peer.task_progress import REPORTS_MAX, Listener, Sparing, fraction_in

SAYS = [
    ("progress: 40%", 0.4),
    ("  Progress:40 % ", 0.4),
    ("progress: 0.25", 0.25),
    ("progress: 3/10", 0.3),
    ("progress: 3 / 10", 0.3),
    ("progress: 150%", 1.0),
    ("progress: 1", 1.0),
    ("progress: 7", None),
    ("progress: 1/0", None),
    ("progress: -1%", None),
    ("progress: nan", None),
    ("made progress: 40%", None),
    ("40%", None),
    ("", None),
]


@pytest.mark.parametrize(("line", "fraction"), SAYS)
def test_what_a_line_says(line: str, fraction: float | None) -> None:
    assert fraction_in(line) == fraction


@given(st.text(max_size=60))
def test_any_line_says_a_fraction_or_nothing(line: str) -> None:
    for word in (True, False):
        found = fraction_in(line, word=word)
        assert found is None or 0 <= found <= 1


def test_only_news_are_told_and_not_without_end() -> None:
    sparing = Sparing()
    assert [sparing.worth_telling(f) for f in (0.1, 0.1, 0.105, 0.12, 0.999, 1.0, 1.0)] == [
        True, False, False, True, True, True, False
    ]  # fmt: skip
    restless = Sparing()
    told = sum(restless.worth_telling((i % 2) / 2) for i in range(2 * REPORTS_MAX))
    assert told == REPORTS_MAX


def test_the_last_whole_line_counts_and_the_file_before_the_streams(tmp_path: Path) -> None:
    fd = os.open(tmp_path / "out", os.O_RDWR | os.O_CREAT)
    listener = Listener((fd,), str(tmp_path / "says"))
    assert listener.news() is None
    os.write(fd, b"progress: 10%\nworking\nprogress: 2")
    assert listener.news() == 0.1
    os.write(fd, b"0%\n")
    assert listener.news() == 0.2
    os.write(fd, b"x" * 1_000_000 + b"\nprogress: 30%\rprogress: 40%\r")
    assert listener.news() == 0.4
    os.write(fd, b"x" * 1_000_000)
    assert listener.news() is None
    (tmp_path / "says").write_text("10%\n7/10\n\n")
    assert listener.news() == 0.7
    os.close(fd)


def command(run: str) -> CommandJob:
    return CommandJob("1.1", "t", 1, run)


def test_a_command_says_it_in_a_line_or_in_a_file(bench: Bench) -> None:
    go = bench.directory / "go"
    wait = f"while [ ! -e {go} ]; do sleep 0.02; done"
    for says in ("echo working; echo 'progress: 40%' >&2", "echo 2/5 > $SURELINE_PROGRESS"):
        job = bench.start(command(f"{says}; {wait}"))
        bench.until(lambda job=job: any(isinstance(e, JobProgressed) for e in job.events))
        assert JobProgressed(0.4) in job.events
        go.touch()
        assert bench.end(job).outcome == "succeeded"
        go.unlink()
    quiet = bench.start(command("sleep 1.2"))
    assert bench.end(quiet).outcome == "succeeded"
    assert not any(isinstance(e, JobProgressed) for e in quiet.events), "what another job said"


def test_a_call_says_it_by_calling(bench: Bench) -> None:
    from sureline.peer.calls import dump_arguments, dump_function

    def work() -> str:
        import sureline

        sureline.progress(0.25)
        return "done"

    digest, packed = dump_function(work)
    bench.functions[digest] = packed
    job = bench.start(CallJob("1.1", "t", 1, digest, dump_arguments((), {})[0]))
    assert bench.end(job).outcome == "succeeded"
    assert JobProgressed(0.25) in job.events


def test_a_program_that_imports_sureline_writes_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    saying.listen(None)
    sureline.progress(0.5)  # nobody hears it, and nothing happens
    saying.listen(None)
    monkeypatch.setenv(saying.VARIABLE, str(tmp_path / "says"))
    sureline.progress(0.75)
    sureline.progress(0.8)  # too soon to be worth writing
    assert (tmp_path / "says").read_text() == "0.75\n"
    with pytest.raises(ValueError, match="from 0 to 1"):
        sureline.progress(40)
