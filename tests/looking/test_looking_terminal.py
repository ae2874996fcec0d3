"""The live display on a real pseudo-terminal: it looks right, and cannot harm the run."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from pathlib import Path

import pytest
from gates import HELD, Marks, note, write_flow
from looking_terminal import Terminal, on_terminal
from surely import COMMAND, PATIENCE_S, started, states, sureline, until, write

QUICK_TASKS = 100


@pytest.fixture
def where(tmp_path: Path) -> Path:
    place = tmp_path / "place"
    place.mkdir()
    return place


@pytest.fixture
def marks(tmp_path: Path) -> Marks:
    return Marks(tmp_path / "marks")


def gated(where: Path) -> None:
    """One task fails at once, two wait at the gate, and one needs them both."""
    held = f"{HELD}; echo x >"
    write_flow(
        where,
        {
            "bad": {"run": "echo oh dear >&2; exit 3"},
            "left": {"run": f"{note('left')}; {held} l", "outputs": ["l"], "takes": "30s"},
            "right": {"run": f"{note('right')}; {held} r", "outputs": ["r"]},
            "both": {"run": "cat l r > b", "inputs": ["l", "r"], "outputs": ["b"]},
        },
    )


def quick(where: Path, count: int = QUICK_TASKS) -> None:
    tasks = {f"t{k}": {"run": f"echo {k} > o{k}", "outputs": [f"o{k}"]} for k in range(count)}
    write_flow(where, tasks)


def check_quick(where: Path, count: int = QUICK_TASKS) -> None:
    assert set(states(where).values()) == {"succeeded"}
    assert all((where / f"o{k}").read_text() == f"{k}\n" for k in range(count))


def test_a_run_on_a_terminal(where: Path, marks: Marks) -> None:
    gated(where)
    terminal = Terminal(100, 24)
    args = ("run", "flow.yaml", "--cores", "4")
    with on_terminal(where, terminal, *args, env=marks.env) as run:
        marks.wait("left")
        marks.wait("right")
        terminal.until("2 running")
        terminal.until("done in")
        screen = terminal.until("of about 30 s")
        assert "bad failed: exit code 3" in screen
        assert "| oh dear" in screen
        assert "0/4 (0 %)" in screen and "━" in screen and "1 failed" in screen
        assert screen.count("running") == 1, "one frame, painted over"
        assert screen.index("bad failed") < screen.index("2 running"), "failures scroll above"
        assert "\x1b[31m" in terminal.raw, "failures are red"
        marks.open_gate()
        assert run.end() == 1
        last = terminal.screen
    assert "3 succeeded, 1 failed" in run.out
    assert "running" not in last and "bad failed" in last, "the frame is gone, failures stay"


def test_what_ctrl_c_did_is_shown(where: Path, marks: Marks) -> None:
    gated(where)
    terminal = Terminal()
    args = ("run", "flow.yaml", "--cores", "4")
    with on_terminal(where, terminal, *args, env=marks.env) as run:
        marks.wait("left")
        marks.wait("right")
        terminal.until("bad failed: exit code 3")  # else the run would only have been cancelled
        run.process.send_signal(signal.SIGINT)
        terminal.until("letting 2 running tasks finish; press Ctrl-C again")
        run.process.send_signal(signal.SIGINT)
        terminal.until("stopping 2 running tasks")
        assert run.end() == 1


@pytest.mark.parametrize(
    ("env", "unwanted", "wanted"),
    [
        ({"NO_COLOR": "1"}, "\x1b[31m", "━"),
        ({"TERM": "dumb"}, "\x1b[", "run flow-"),
        ({"LANG": "C", "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}, "━", "---"),
    ],
    ids=["no colour", "dumb", "no unicode"],
)
def test_poor_terminals(
    where: Path, marks: Marks, env: dict[str, str], unwanted: str, wanted: str
) -> None:
    gated(where)
    terminal = Terminal()
    args = ("run", "flow.yaml", "--cores", "4")
    with on_terminal(where, terminal, *args, env={**marks.env, **env}) as run:
        terminal.until("bad failed: exit code 3")
        terminal.until(wanted)
        marks.open_gate()
        assert run.end() == 1
        assert unwanted not in terminal.raw


def test_a_narrow_terminal_that_is_resized(where: Path, marks: Marks) -> None:
    gated(where)
    terminal = Terminal(40, 12)
    args = ("run", "flow.yaml", "--cores", "4")
    with on_terminal(where, terminal, *args, env=marks.env) as run:
        marks.wait("left")
        marks.wait("right")
        screen = terminal.until("left")
        assert max(len(line) for line in screen.splitlines()) < 40
        terminal.resize(25, 3)
        marks.open_gate()
        assert run.end() == 1


def test_a_terminal_that_is_never_read_does_not_stall_the_run(where: Path) -> None:
    quick(where)
    terminal = Terminal(reading=False)
    terminal.fill()
    with on_terminal(where, terminal, "run", "flow.yaml") as run:
        assert run.end() == 0
        assert f"{QUICK_TASKS} succeeded" in run.out
    check_quick(where)


def test_a_terminal_that_goes_away_does_not_harm_the_run(where: Path, marks: Marks) -> None:
    gated(where)
    terminal = Terminal()
    args = ("run", "flow.yaml", "--cores", "4")
    with on_terminal(where, terminal, *args, env=marks.env) as run:
        marks.wait("left")
        marks.wait("right")
        terminal.until("2 running")
        terminal.hang_up()
        marks.open_gate()
        assert run.end() == 1
    assert "3 succeeded, 1 failed" in run.out
    assert (where / "b").exists()


def test_stderr_closed(where: Path) -> None:
    quick(where, 20)
    command = f'exec "{COMMAND}" run flow.yaml --progress live 2>&-'
    done = subprocess.run(
        ["sh", "-c", command], cwd=where, capture_output=True, timeout=PATIENCE_S, check=False
    )
    assert done.returncode == 0
    check_quick(where, 20)


def test_a_full_pipe_nobody_reads(where: Path) -> None:
    quick(where, 20)
    read_end, write_end = os.pipe()
    os.set_blocking(write_end, False)
    try:
        while True:
            os.write(write_end, b"x" * 4096)
    except BlockingIOError:
        os.set_blocking(write_end, True)
    process = subprocess.Popen(
        [COMMAND, "run", "flow.yaml"], cwd=where, stdout=subprocess.DEVNULL, stderr=write_end
    )
    try:
        assert process.wait(PATIENCE_S) == 0
    finally:
        os.close(read_end)
        os.close(write_end)
    check_quick(where, 20)


def test_ten_thousand_quick_tasks(where: Path) -> None:
    count = 10_000
    names = [f"t_ID{k:05d}" for k in range(count)]
    made = [{"name": n, "id": n, "parents": [], "children": []} for n in names]
    took = [{"id": n, "runtimeInSeconds": 0.001} for n in names]
    flow = {"specification": {"tasks": made}, "execution": {"tasks": took}}
    flow["execution"] |= {"makespanInSeconds": 1, "executedAt": "then"}
    write(where, "t.json", json.dumps({"name": "t", "schemaVersion": "1.5", "workflow": flow}))
    terminal = Terminal()
    began = time.monotonic()
    with on_terminal(where, terminal, "run", "t.json", "--pretend", "--cores", "64") as run:
        assert run.end() == 0
        took_s = time.monotonic() - began
        assert f"{count} succeeded" in run.out
        assert "running" in terminal.raw, "it was shown"
        frames = terminal.raw.count("\x1b[J")
    assert frames <= 7 * took_s + 3, "frames do not follow events"


def test_modes(where: Path) -> None:
    quick(where, 3)
    lines = sureline(where, "run", "flow.yaml", "--fresh", "--progress", "lines")
    assert lines.code == 0 and ": 3 tasks" in lines.err and "\x1b" not in lines.err
    live = sureline(where, "run", "flow.yaml", "--fresh", "--progress", "live")
    assert live.code == 0 and "\x1b[J" in live.err
    none = sureline(where, "run", "flow.yaml", "--progress", "none")
    assert (none.code, none.err) == (0, "")
    quiet = sureline(where, "run", "flow.yaml", "--quiet")
    assert (quiet.code, quiet.err) == (0, "")
    wrong = sureline(where, "run", "flow.yaml", "--progress", "loud")
    assert wrong.code == 2


def test_a_resumed_run_counts_what_was_done_before(where: Path, marks: Marks) -> None:
    gated(where)
    with started(where, "run", "flow.yaml", "--cores", "4", env=marks.env) as run:
        marks.wait("left")
        marks.wait("right")
        run.signal(signal.SIGINT)
        until(lambda: "letting" in run.err)
        marks.open_gate()
        run.end()
    terminal = Terminal()
    with on_terminal(where, terminal, "resume", env=marks.env) as again:
        assert again.end() == 1
        assert "2/4 (50 %)" in terminal.raw
