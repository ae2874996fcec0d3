"""Asking a run to stop: Ctrl-C once and twice, signals, `cancel`, timeouts. No process survives."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from gates import HELD, Marks, gated, note, note_pid, write_flow
from surely import (
    COMMAND,
    HOME,
    alive,
    events,
    leftovers,
    newest_run,
    no_traceback,
    none_survives,
    runs,
    sentences,
    slots,
    started,
    state,
    states,
    sureline,
    until,
)

from sureline.journal.events import TaskEnded

FOREVER = "sleep 600"


@pytest.fixture
def marks(tmp_path: Path) -> Marks:
    return Marks(tmp_path / "marks")


@pytest.fixture
def where(tmp_path: Path) -> Path:
    place = tmp_path / "place"
    place.mkdir()
    return place


def completes(where: Path, marks: Marks) -> None:
    """The gated workflow, stopped in one way or another, is completed by `resume`."""
    marks.open_gate()
    said = sureline(where, "resume", "--json", env=marks.env)
    assert said.code == 0, said
    assert said.json["state"] == "succeeded"
    assert (where / "b").read_text() == "one\none\n"
    assert leftovers(where) == []


# -- Ctrl-C ---------------------------------------------------------------------------------


def test_first_interrupt_lets_running_tasks_finish(where: Path, marks: Marks) -> None:
    gated(where)
    with started(where, "run", "flow.yaml", env=marks.env) as run:
        marks.wait("first")
        run.signal(signal.SIGINT)
        until(lambda: "letting 1 running task finish" in run.err, "the message")
        assert "again to stop" in run.err
        assert not run.over()
        marks.open_gate()
        said = run.end()
    assert said.code == 130
    no_traceback(said)
    assert "cancelled" in said.out
    assert states(where) == {"first": "succeeded", "second": "waiting"}
    assert state(where) == "cancelled"
    assert (where / "a").read_text() == "one\n"
    completes(where, marks)
    assert marks.times("first") == marks.times("second") == 1


STUBBORN = {
    "plain": f"{note_pid('one')}; {FOREVER}",
    "ignores SIGTERM": f"trap '' TERM INT HUP; {note_pid('one')}; while :; do sleep 1; done",
    "leaves the session": (
        f"setsid sh -c '{note_pid('two')}; {FOREVER}; :' & "
        f"setsid sh -c '(sh -c \"$0\" &)' '{note_pid('three')}; {FOREVER}; :'; "
        f"{note_pid('one')}; {FOREVER}"
    ),
    "forgets its environment": (
        f"setsid sh -c '{note_pid('two')}; exec env -i {FOREVER}' & {note_pid('one')}; {FOREVER}"
    ),
}
PIDS = {
    "plain": ["one"],
    "ignores SIGTERM": ["one"],
    "leaves the session": ["one", "two", "three"],
    "forgets its environment": ["one", "two"],
}


@pytest.mark.parametrize("kind", list(STUBBORN))
def test_second_interrupt_leaves_no_process(where: Path, marks: Marks, kind: str) -> None:
    write_flow(where, {"t": {"run": STUBBORN[kind]}})
    with started(where, "run", "flow.yaml", env=marks.env) as run:
        pids = [marks.pid(name) for name in PIDS[kind]]
        assert all(alive(pid) for pid in pids)
        run.signal(signal.SIGINT)
        until(lambda: "letting" in run.err, "the first message")
        run.signal(signal.SIGINT)
        said = run.end()
        assert said.code == 130
        assert "stopping 1 running task" in said.err
        assert not any(alive(pid) for pid in pids)
        none_survives(where, 0.0)
    assert leftovers(where) == []
    assert state(where) == "cancelled"


def test_third_interrupt_does_not_wait_for_the_stubborn(where: Path, marks: Marks) -> None:
    write_flow(where, {"t": {"run": STUBBORN["ignores SIGTERM"]}})
    with started(where, "run", "flow.yaml", env=marks.env) as run:
        pid = marks.pid("one")
        for said in ("letting", "stopping"):
            run.signal(signal.SIGINT)
            until(lambda said=said: said in run.err, said)
        run.signal(signal.SIGINT)
        assert run.end().code == 130
        assert not alive(pid)


SLEEPER = """
import os, pathlib, signal, sys, time
import sureline

# a shell's background jobs ignore Ctrl-C, and this may be one
signal.signal(signal.SIGINT, signal.default_int_handler)

def nap(mark):
    path = pathlib.Path(mark)
    path.with_suffix(".tmp").write_text(str(os.getpid()))
    os.rename(path.with_suffix(".tmp"), path)
    time.sleep(600)

flow = sureline.Workflow("nap")
flow.call(nap, sys.argv[1])
try:
    flow.run()
except KeyboardInterrupt:
    print("interrupted")
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_interrupts_stop_a_sleeping_python_call(where: Path, marks: Marks, number: int) -> None:
    """Ctrl-C is the script's own KeyboardInterrupt; a request to end ends it, as any script."""
    (where / "nap.py").write_text(SLEEPER)
    script = subprocess.Popen(
        [sys.executable, "nap.py", str(marks.where / "one")],
        cwd=where,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        pid = marks.pid("one")
        script.send_signal(number)
        out, err = script.communicate(timeout=60)
    finally:
        script.kill()
        script.communicate()
    if number == signal.SIGINT:
        assert (out, script.returncode) == ("interrupted\n", 0), err
        assert state(where) == "cancelled"
    else:
        assert script.returncode == -signal.SIGTERM, err
    until(lambda: not alive(pid), "the call to end with its script")
    none_survives(where)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_to_end_stops_the_run_at_once(where: Path, marks: Marks, number: int) -> None:
    gated(where)
    with started(where, "run", "flow.yaml", env=marks.env) as run:
        marks.wait("first")
        run.signal(number)
        said = run.end()
        none_survives(where, 0.0)
    assert said.code == 130
    no_traceback(said)
    assert state(where) == "cancelled"
    completes(where, marks)


def test_nohup_is_respected(where: Path, marks: Marks) -> None:
    gated(where)
    run = subprocess.Popen(
        ["nohup", COMMAND, "run", "flow.yaml", "--json"],
        cwd=where,
        env={**os.environ, **marks.env},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        marks.wait("first")
        run.send_signal(signal.SIGHUP)
        marks.open_gate()
        out, err = run.communicate(timeout=60)
    finally:
        run.kill()
        run.communicate()
    assert run.returncode == 0, (out, err)


AT_A_TERMINAL = (
    "import fcntl, os, sys, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0); "
    "os.execv(sys.argv[1], sys.argv[1:])"
)


def test_a_terminals_ctrl_c_does_not_reach_the_tasks(where: Path, marks: Marks) -> None:
    """A terminal sends SIGINT to its whole foreground group; the tasks must not be in it."""
    gated(where)
    ours, theirs = pty.openpty()
    run = subprocess.Popen(
        [sys.executable, "-c", AT_A_TERMINAL, COMMAND, "run", "flow.yaml"],
        cwd=where,
        env={**os.environ, **marks.env},
        stdin=theirs,
        stdout=theirs,
        stderr=subprocess.PIPE,
        start_new_session=True,
        text=True,
    )
    os.close(theirs)
    try:
        marks.wait("first")
        os.write(ours, b"\x03")
        assert run.stderr is not None
        lines = []
        while not any("letting 1 running task finish" in line for line in lines):
            line = run.stderr.readline()
            assert line, lines
            lines.append(line)
        marks.open_gate()
        assert run.wait(60) == 130
    finally:
        run.kill()
        run.communicate()
        os.close(ours)
    assert states(where) == {"first": "succeeded", "second": "waiting"}
    assert (where / "a").read_text() == "one\n"
    completes(where, marks)
    assert marks.times("first") == 1


def test_losing_the_terminal_stops_the_run_cleanly(where: Path, marks: Marks) -> None:
    """Closing a terminal sends SIGHUP, and every write to it fails from then on."""
    gated(where)
    ours, theirs = pty.openpty()
    run = subprocess.Popen(
        [sys.executable, "-c", AT_A_TERMINAL, COMMAND, "run", "flow.yaml"],
        cwd=where,
        env={**os.environ, **marks.env},
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
    )
    os.close(theirs)
    try:
        marks.wait("first")
        os.close(ours)
        run.wait(60)
    finally:
        run.kill()
        run.wait()
    none_survives(where, 0.0)
    assert state(where) == "cancelled"
    completes(where, marks)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("instants", [3, pytest.param(20, marks=pytest.mark.soak)])
def test_a_signal_at_any_instant_does_no_harm(where: Path, number: int, instants: int) -> None:
    """From the first moment to the last; whatever came of it, the run can be completed."""
    tasks = {
        f"t{k}": {"run": f"sleep 0.02; echo {k} > out.{k}", "outputs": [f"out.{k}"]}
        for k in range(10)
    }
    write_flow(where, tasks)
    for k in range(instants):
        with started(where, "run", "flow.yaml", "--fresh", cold=True) as run:
            time.sleep(0.1 + 0.8 * k / (instants - 1))  # the instant is what this test varies
            run.signal(number)
            said = run.end()
        assert said.code in (0, 130, -number), said
        none_survives(where)
    if not (where / HOME / "journal.db").exists():
        return  # a machine so slow that no run came to be
    for one in runs(where):
        assert one["state"] in ("succeeded", "cancelled", "interrupted"), one
    if any(one["state"] != "succeeded" for one in runs(where)):
        done = sureline(where, "resume", "--json")
        assert done.code == 0, done
    if runs(where):
        assert (where / "out.9").read_text() == "9\n"
        assert leftovers(where) == []


def test_slots_that_are_killed_all_the_time(where: Path, marks: Marks) -> None:
    """Retries carry a run through; what is lost is told as such."""
    tasks = {
        f"t{k}": {
            "run": f"{note('ran')}; sleep 0.05; echo {k} > out.{k}",
            "outputs": [f"out.{k}"],
            "retries": 20,
        }
        for k in range(12)
    }
    write_flow(where, tasks)
    killed = 0
    with started(
        where, "run", "flow.yaml", "--retry-delay", "10ms", "--json", env=marks.env
    ) as run:
        marks.wait("ran")
        name = newest_run(where)
        while not run.over() and killed < 10:
            found = slots(where, name)
            if found and marks.times("ran") > killed:
                os.kill(found[killed % len(found)], signal.SIGKILL)
                killed += 1
            time.sleep(0.02)
        said = run.end()
    assert said.code == 0, said
    assert said.json["tasks"]["succeeded"] == 12
    assert all((where / f"out.{k}").read_text() == f"{k}\n" for k in range(12))
    ends = [event for event in events(where) if isinstance(event, TaskEnded)]
    assert {event.outcome for event in ends} <= {"succeeded", "lost", "failed"}
    assert leftovers(where) == []


# -- sureline cancel ------------------------------------------------------------------------


def test_cancel_from_another_process_stops(where: Path, marks: Marks) -> None:
    gated(where)
    with started(where, "run", "flow.yaml", env=marks.env) as run:
        marks.wait("first")
        said = sureline(where, "cancel", "last", "--json")
        assert said.code == 0, said
        assert said.json["state"] == "cancelled"
        assert run.end().code == 130
        none_survives(where, 0.0)
    assert states(where)["first"] == "cancelled"
    completes(where, marks)


def test_cancel_with_drain_lets_running_tasks_finish(where: Path, marks: Marks) -> None:
    gated(where)
    with started(where, "run", "flow.yaml", env=marks.env) as run:
        marks.wait("first")
        said = sureline(where, "cancel", "last", "--drain", "--no-wait", "--json")
        assert said.code == 0, said
        assert said.json["state"] == "cancelling"
        until(lambda: "letting 1 running task finish" in run.err, "the message")
        marks.open_gate()
        assert run.end().code == 130
    assert states(where) == {"first": "succeeded", "second": "waiting"}
    completes(where, marks)
    assert marks.times("first") == 1


def test_cancel_twice_and_after_the_end(where: Path, marks: Marks) -> None:
    gated(where)
    with started(where, "run", "flow.yaml", env=marks.env) as run:
        marks.wait("first")
        assert sureline(where, "cancel", "--no-wait").code == 0
        again = sureline(where, "cancel", "--json")
        assert again.code == 0, again
        assert again.json["state"] == "cancelled"
        assert run.end().code == 130
    after = sureline(where, "cancel", "--json")
    assert (after.code, after.json["state"]) == (0, "cancelled")
    completes(where, marks)
    done = sureline(where, "cancel", "--json")
    assert (done.code, done.json["state"]) == (0, "succeeded")


def test_drain_then_cancel_stops(where: Path, marks: Marks) -> None:
    gated(where)
    with started(where, "run", "flow.yaml", env=marks.env) as run:
        marks.wait("first")
        assert sureline(where, "cancel", "--drain", "--no-wait").code == 0
        until(lambda: "letting" in run.err, "the first message")
        said = sureline(where, "cancel", "--json")
        assert said.json["state"] == "cancelled"
        assert run.end().code == 130
        none_survives(where, 0.0)


def test_cancel_of_a_run_whose_process_was_killed(where: Path, marks: Marks) -> None:
    gated(where)
    with started(where, "run", "flow.yaml", env=marks.env) as run:
        marks.wait("first")
        run.kill()
        assert state(where) == "interrupted"
        said = sureline(where, "cancel", "--json")
        assert (said.code, said.json["state"]) == (0, "cancelled")
        none_survives(where, 0.0)
    assert state(where) == "cancelled"
    assert leftovers(where) == []
    completes(where, marks)


def test_resume_is_refused_while_the_run_goes_on(where: Path, marks: Marks) -> None:
    gated(where)
    with started(where, "run", "flow.yaml", env=marks.env) as run:
        marks.wait("first")
        said = sureline(where, "resume")
        assert said.code == 2
        (sentence,) = sentences(said)
        assert "still running in another process" in sentence
        marks.open_gate()
        assert run.end().code == 0
    assert marks.times("first") == 1


# -- timeouts -------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["ignores SIGTERM", "leaves the session"])
def test_a_timeout_ends_the_whole_tree(where: Path, marks: Marks, kind: str) -> None:
    tasks = {
        "t": {"run": STUBBORN[kind], "timeout": "1s"},
        "other": {"run": "echo fine > fine", "outputs": ["fine"]},
    }
    write_flow(where, tasks)
    with started(where, "run", "flow.yaml", env=marks.env) as run:
        pids = [marks.pid(name) for name in PIDS[kind]]
        until(lambda: "t failed" in run.err, "the timeout")
        assert not any(alive(pid) for pid in pids)
        said = run.end()
    assert said.code == 1
    assert "took longer than its timeout of 1 s" in said.err
    assert states(where) == {"t": "failed", "other": "succeeded"}


def test_what_a_task_leaves_behind_ends_with_the_run(where: Path, marks: Marks) -> None:
    run = f"setsid sh -c '{note_pid('two')}; {FOREVER}; :' & {HELD}; echo a > a"
    write_flow(where, {"t": {"run": f"{note('one')}; {run}", "outputs": ["a"]}})
    with started(where, "run", "flow.yaml", env=marks.env) as running:
        pid = marks.pid("two")
        marks.open_gate()
        assert running.end().code == 0
        assert not alive(pid)
