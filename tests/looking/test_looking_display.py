"""The parts of the display: the frame, the lines, the thread and its mailbox."""

from __future__ import annotations

import io
import threading
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.cells import cell_len

from sureline.cli import display_lines
from sureline.cli.display import Display, RunningTask, Sentence, Sink, Snapshot, printable
from sureline.cli.display_lines import Lines
from sureline.cli.display_live import ASCII, UNICODE, Live, bar, frame
from sureline.cli.progress import FAILURES_MAX, ProgressWatcher
from sureline.journal.events import TaskEnded, TaskRetried, TaskRevoked, TaskStarted
from sureline.workflow.model import Command, Graph, Task

PATIENCE_S = 30.0


class Known:
    """An outlook that says what it was given."""

    def __init__(self, words: str | None = None, expected_s: float | None = None) -> None:
        self._words, self._expected_s = words, expected_s

    def words(self, now: float) -> str | None:
        return self._words

    def expected_s(self, task: str) -> float | None:
        return self._expected_s


FORECAST = "done in 2 to 5 min (50 % by 10:02, 90 % by 10:05; from 3 earlier runs of 2 kinds)"


def snapshot(**fields: Any) -> Snapshot:
    return Snapshot(**{"run": "demo-1", "total": 10, "began_at": 100.0, **fields})


def picture(s: Snapshot, outlook: Known, width: int = 100, rows: int = 24) -> list[str]:
    return [line.plain.rstrip() for line in frame(s, outlook, 160.0, width, rows, UNICODE)]


def test_the_frame() -> None:
    tasks = (RunningTask("a", 148.0, 0.4), RunningTask("longer", 158.0))
    s = snapshot(done=4, reused=1, failed=1, running=2, longest=tasks)
    assert picture(s, Known(FORECAST, 15.0), width=90) == [
        "demo-1  " + "━" * 30 + "─" * 30 + " 4/10 (40 %)",
        "  2 running · 1 failed · 1 reused · 3 waiting · 1 min 00 s so far",
        "  " + FORECAST,
        "    a       12 s of about 15 s, 40 % done",
        "    longer  2.0 s of about 15 s",
    ]


def test_the_frame_on_a_small_screen() -> None:
    tasks = tuple(RunningTask(f"task-with-a-long-name-{k}", 150.0) for k in range(40))
    s = snapshot(running=99, longest=tasks, stopping="drain")
    lines = picture(s, Known(FORECAST), width=39, rows=10)
    assert lines[2:5] == [
        "  done in 2 to 5 min",
        "    50 % by 10:02, 90 % by 10:05",
        "    from 3 earlier runs of 2 kinds",
    ]
    assert lines[-1] == "    and 97 more", "running tasks fill what is left of the screen"
    assert len(lines) == 10


@settings(max_examples=60, deadline=None)
@given(
    st.builds(
        snapshot,
        run=st.text("ab-é漢", max_size=60),
        total=st.integers(0, 10**6),
        done=st.integers(0, 10**6),
        failed=st.integers(0, 10**6),
        running=st.integers(0, 2000),
        longest=st.lists(
            st.builds(RunningTask, st.text(max_size=80), st.floats(0, 300)), max_size=20
        ).map(tuple),
        stopping=st.sampled_from(["", "drain", "stop"]),
        over=st.booleans(),
    ),
    st.sampled_from([None, FORECAST]),
    st.integers(1, 150),
    st.integers(1, 60),
    st.sampled_from([UNICODE, ASCII]),
)
def test_the_frame_fits_the_screen(
    s: Snapshot, words: str | None, width: int, rows: int, signs: Any
) -> None:
    lines = frame(s, Known(words, 3.0), 160.0, width, rows, signs)
    assert 1 <= len(lines) <= rows
    for line in lines:
        assert cell_len(line.plain) <= width
        assert "\n" not in line.plain


@given(st.integers(0, 60), st.integers(1, 1000), st.data())
def test_the_bar_is_honest(cells: int, total: int, data: st.DataObject) -> None:
    done = data.draw(st.integers(0, total))
    failed = data.draw(st.integers(0, total - done))
    drawn = bar(snapshot(total=total, done=done, failed=failed), cells, ASCII).plain
    assert len(drawn) == cells
    if cells >= 3:
        assert ("x" in drawn) == (failed > 0)
        assert ("-" in drawn) == (done + failed < total) or drawn == "x" * cells
        assert ("=" in drawn) == (done > 0) or done * cells < total


@given(st.text(max_size=3000))
def test_nothing_a_task_writes_moves_the_cursor(text: str) -> None:
    shown = printable(text)
    assert all(sign.isprintable() or sign >= "\xa0" for sign in shown)
    assert len(shown) <= 600


def test_colours_of_a_task_are_left_out() -> None:
    assert printable("\x1b[1;31mred\x1b[0m \x1b]0;title\x07text\a") == "red text?"


# -- lines -----------------------------------------------------------------------------------------


def test_lines_say_everything_once(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [1000.0]
    monkeypatch.setattr(display_lines.time, "monotonic", lambda: clock[0])
    monkeypatch.setattr(display_lines.time, "time", lambda: clock[0])
    out = io.StringIO()
    lines = Lines(Sink(out), Known(FORECAST), quiet=False)
    told = (
        Sentence("start", "run demo-1: 10 tasks"),
        Sentence("failure", "  a failed: exit code 3"),
    )
    lines.show(snapshot(began_at=1000.0, told=told))
    clock[0] += 1
    lines.show(snapshot(began_at=1000.0, told=told, done=1))
    clock[0] += 1
    lines.show(snapshot(began_at=1000.0, told=told, done=2, failed=1, running=3))
    assert out.getvalue().splitlines() == [
        "run demo-1: 10 tasks",
        "  a failed: exit code 3",
        "  " + FORECAST,
        "  2/10 done (20 %), 3 running, 1 failed; done in 2 to 5 min",
    ]


def test_lines_grow_fewer(monkeypatch: pytest.MonkeyPatch) -> None:
    """A run of ten hours, something happening every second, gets hundreds of lines."""
    clock = [0.0]
    monkeypatch.setattr(display_lines.time, "monotonic", lambda: clock[0])
    monkeypatch.setattr(display_lines.time, "time", lambda: clock[0])
    out = io.StringIO()
    lines = Lines(Sink(out), Known(), quiet=False)
    for second in range(36_000):
        clock[0] = float(second)
        lines.show(snapshot(total=36_000, began_at=0.0, done=second))
    assert 100 < len(out.getvalue().splitlines()) < 1000


def test_quiet_lines_tell_of_what_went_wrong_only() -> None:
    out = io.StringIO()
    lines = Lines(Sink(out), Known(FORECAST), quiet=True)
    told = (
        Sentence("start", "run x"),
        Sentence("failure", "  a failed"),
        Sentence("retry", "  again"),
    )
    lines.show(snapshot(told=told))
    assert out.getvalue() == "  a failed\n"


# -- the thread ------------------------------------------------------------------------------------


class Stuck:
    """A face that blocks, as a terminal after Ctrl-S does."""

    def __init__(self) -> None:
        self.shown: list[Snapshot] = []
        self.entered = threading.Event()
        self.go_on = threading.Event()

    def show(self, snapshot: Snapshot) -> None:
        self.shown.append(snapshot)
        self.entered.set()
        self.go_on.wait(PATIENCE_S)


def test_a_blocked_face_blocks_nobody_and_sees_only_the_newest() -> None:
    face = Stuck()
    display = Display(face)
    display.post(snapshot(done=1))
    assert face.entered.wait(PATIENCE_S)
    for done in range(2, 1000):
        display.post(snapshot(done=done))
    display.close(snapshot(done=1000))  # gives up after a second
    assert [s.done for s in face.shown] == [1]
    face.go_on.set()
    display._thread.join(PATIENCE_S)
    assert [(s.done, s.over) for s in face.shown] == [(1, False), (1000, True)]


@pytest.mark.parametrize("error", [OSError("gone"), ValueError("a mistake")])
def test_a_face_that_fails_falls_silent(
    error: Exception, capfd: pytest.CaptureFixture[str]
) -> None:
    class Broken:
        shows = 0

        def show(self, snapshot: Snapshot) -> None:
            self.shows += 1
            raise error

    face = Broken()
    display = Display(face)
    display.post(snapshot())
    display._thread.join(PATIENCE_S)
    display.post(snapshot())
    display.close(snapshot())
    assert face.shows == 1
    assert ("the display broke" in capfd.readouterr().err) == isinstance(error, ValueError)


def test_a_closed_stream_is_an_error_that_faces_expect() -> None:
    stream = io.StringIO()
    live = Live(Sink(stream), Known())
    live.show(snapshot())
    assert "demo-1" in stream.getvalue()
    stream.close()
    with pytest.raises(OSError):
        live.show(snapshot())


# -- counting --------------------------------------------------------------------------------------


class Posts:
    """A display that only keeps what it is given."""

    def __init__(self) -> None:
        self.posted: list[Snapshot] = []

    def post(self, snapshot: Snapshot) -> None:
        self.posted.append(snapshot)


def followed(monkeypatch: pytest.MonkeyPatch) -> tuple[ProgressWatcher, Posts]:
    posts = Posts()
    progress = ProgressWatcher(posts, None)  # type: ignore[arg-type] # all that Progress uses of one
    monkeypatch.setattr(ProgressWatcher, "_post_soon", ProgressWatcher._post)
    tasks = [Task(f"t{k}", Command("true")) for k in range(10)]
    progress.submitted("demo-1", Graph("demo", tasks), None, 2)
    return progress, posts


def test_counting(monkeypatch: pytest.MonkeyPatch) -> None:
    progress, posts = followed(monkeypatch)
    steps: list[tuple[Any, tuple[int, int, int, int]]] = [
        (TaskStarted(1, "a", 1, "vm"), (2, 1, 0, 0)),
        (TaskEnded(2, "a", "failed", 1, reason="exit code 3"), (2, 0, 1, 0)),
        (TaskRetried(2, "a", 1, 0.5), (2, 0, 0, 1)),
        (TaskStarted(3, "a", 2, "vm"), (2, 1, 0, 0)),
        (TaskEnded(4, "a", "succeeded", 2), (3, 0, 0, 0)),
        (TaskEnded(4, "b", "reused"), (4, 0, 0, 0)),
        (TaskRevoked(5, "b", "gone"), (3, 0, 0, 0)),
        (TaskStarted(6, "c", 1, "vm"), (3, 1, 0, 0)),
        (TaskEnded(7, "c", "cancelled", 1), (3, 0, 0, 0)),
    ]
    for event, expected in steps:
        progress.event(event)
        s = posts.posted[-1]
        assert (s.done, s.running, s.failed, s.retrying) == expected, event


def test_what_is_told_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    progress, posts = followed(monkeypatch)
    for k in range(1000):
        progress.event(TaskEnded(1, f"t{k}", "failed", 1, reason="exit code 3", stderr="x\n" * 9))
        progress.event(TaskRevoked(1, f"t{k}", "gone"))
    told = posts.posted[-1].told
    assert len(told) <= 200
    failures = [one for one in told if one.kind == "failure"]
    assert len(failures) <= FAILURES_MAX + 1
    assert posts.posted[-1].failed == 1000
