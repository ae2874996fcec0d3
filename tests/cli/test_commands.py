"""The commands as an interface: help, JSON keys, exit codes, and odd surroundings."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import sys

import pytest
from cli_bench import SURELINE, Bench, wait_until
from command_list import COMMANDS, GROUPS

from sureline import __version__
from sureline.cli.main import app

COUNTS = {"total", "succeeded", "reused", "failed", "cancelled"}
TASK = {
    "task",
    "state",
    "attempts",
    "peer",
    "started",
    "ended",
    "elapsed_s",
    "from_run",
    "outputs",
    "failures",
}

PAIR = """\
    name: pair
    tasks:
      a: {run: echo out; echo err >&2; echo x > a.txt, outputs: [a.txt]}
      b: {run: 'exit 3', after: [a]}
      c: {run: 'true', after: [b]}
    """
SOUND = """\
    name: sound
    tasks:
      a: {run: echo out; echo x > a.txt, outputs: [a.txt]}
    """


# -- help and version --------------------------------------------------------------------------


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_explains_itself(command: str, bench: Bench) -> None:
    answer = bench(*command.split(), "--help")
    assert answer.code == 0
    assert answer.err == ""
    assert f"Example: sureline {command}" in answer.out
    assert "--json" in answer.out


def test_help_lists_all_commands(bench: Bench) -> None:
    answer = bench("--help")
    assert answer.code == 0
    assert {"run", "resume", "cancel", "validate", "init", "runs", "show", "logs"} <= set(COMMANDS)
    for command in GROUPS:
        assert re.search(rf"^\W*{command} +[A-Z]", answer.out, re.MULTILINE)
    assert bench().out == answer.out, "no command at all is a question, not a mistake"


LONG = ("simulate", "experiment", "reproduce")
"""What needs no more than its own example for seconds of work; run by tests of its own."""


@pytest.mark.parametrize("command", COMMANDS)
def test_the_example_in_the_help_is_accepted(command: str, bench: Bench) -> None:
    """Its options and arguments are understood; what it names may not be there."""
    example = re.search(r"Example: sureline ([^\n│]+)", bench(*command.split(), "--help").out)
    assert example is not None
    if command.split()[0] in LONG:
        app.parse_args(shlex.split(example[1]), exit_on_error=False, print_error=False)
        return
    answer = bench(*shlex.split(example[1]))
    assert answer.code in (0, 2)
    assert "--help'" not in answer.err


def test_version(bench: Bench) -> None:
    answer = bench("--version")
    assert (answer.code, answer.out.strip()) == (0, __version__)


def test_the_command_line_imports_nothing_heavy() -> None:
    """So that help and mistakes in options come at once."""
    heavy = ["numpy", "rustworkx", "sqlite3", "asyncio", "yaml", "rich.progress", "multiprocessing"]
    heavy += ["blake3", "cloudpickle", "concurrent.futures", "sureline.compose", "sureline.peer"]
    assert imported_of(heavy, "import sureline.cli.main") == "[]"


def test_a_process_of_a_grid_imports_neither_solver_nor_compiler() -> None:
    """Every command on a grid knows every strategy's messages."""
    words = "from sureline.assembly.words import messages; messages()"
    assert imported_of(["scipy", "numba"], words) == "[]"


def imported_of(heavy: list[str], code: str) -> str:
    """Which of these a process has imported after that."""
    told = f"{code}; import sys; print([name for name in {heavy!r} if name in sys.modules])"
    found = subprocess.run([sys.executable, "-c", told], capture_output=True, text=True, check=True)
    return found.stdout.strip()


# -- JSON ----------------------------------------------------------------------------------------


@pytest.fixture
def failed(bench: Bench) -> Bench:
    """A directory where a run has failed: one task succeeded, one failed, one never ran."""
    bench.flow(PAIR)
    assert bench("run", "w.yaml").code == 1
    return bench


def test_json_of_run_and_resume(bench: Bench) -> None:
    bench.flow(PAIR)
    answer = bench("run", "w.yaml", "--json")
    assert answer.code == 1
    check_outcome(answer.json, "failed", total=3, succeeded=1, failed=1, cancelled=1)
    assert "b failed: exit code 3" in answer.err, "failures are told to people all the same"
    answer = bench("resume", "--json")
    assert answer.code == 1
    check_outcome(answer.json, "failed", total=3, succeeded=1, failed=1, cancelled=1)
    bench.flow(SOUND)
    check_outcome(bench.run(), "succeeded", total=1, succeeded=1)
    check_outcome(bench.run(), "succeeded", total=1, reused=1)


def check_outcome(outcome: dict[str, object], state: str, **counts: int) -> None:
    assert set(outcome) == {"run", "state", "tasks", "elapsed_s", "reason", "deadline", "late_s"}
    assert outcome["state"] == state
    assert isinstance(outcome["run"], str)
    assert isinstance(outcome["elapsed_s"], float)
    assert outcome["elapsed_s"] > 0
    assert outcome["tasks"] == dict.fromkeys(COUNTS, 0) | counts


def test_json_of_runs(failed: Bench) -> None:
    assert failed("show", "--json").json["run"] == failed("runs", "--json").json["runs"][0]["run"]
    failed("run", "w.yaml")
    answer = failed("runs", "--json")
    assert answer.code == 0
    assert set(answer.json) == {"runs"}
    first, second = answer.json["runs"]
    for run in (first, second):
        assert set(run) == {"run", "name", "state", "submitted", "ended", "tasks", "source"}
        assert set(run["tasks"]) == COUNTS
        assert (run["name"], run["state"], run["source"]) == ("pair", "failed", "w.yaml")
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d[+-]\d\d:\d\d", run["submitted"])
        assert run["submitted"] <= run["ended"]
        counts = run["tasks"]
        assert counts["total"] == sum(counts[name] for name in COUNTS - {"total"}) == 3
    assert second["tasks"]["reused"] == 1
    assert failed("runs", "--limit", "1", "--json").json["runs"] == [second]
    assert failed("runs", "--limit", "0", "--json").json["runs"] == [first, second]


def test_json_of_runs_where_there_are_none(bench: Bench) -> None:
    answer = bench("runs", "--json")
    assert (answer.code, answer.json) == (0, {"runs": []})
    assert os.listdir(bench.directory) == []


def test_json_of_show(failed: Bench) -> None:
    data = failed("show", "last", "--json").json
    assert set(data) == {
        "run",
        "name",
        "state",
        "reason",
        "source",
        "submitted",
        "elapsed_s",
        "tasks",
        "by_state",
        "repairs",
        "set_aside",
        "terms",
        "listed",
    }
    assert (data["name"], data["state"], data["source"]) == ("pair", "failed", "w.yaml")
    assert set(data["tasks"]) == COUNTS
    assert data["by_state"] == {"succeeded": 1, "failed": 1, "cancelled": 1}
    assert [one["task"] for one in data["listed"]] == ["b"], "what failed, without being asked"
    assert all(set(one) == TASK for one in data["listed"])
    every = failed("show", "last", "--tasks", "--json").json["listed"]
    assert [one["task"] for one in every] == ["a", "b", "c"], "in the order of the workflow"
    assert all(set(one) == TASK for one in every)


def test_json_of_show_task(failed: Bench) -> None:
    made = failed("show", "last", "a", "--json").json
    assert set(made) == {"run", *TASK}
    assert (made["state"], made["attempts"], made["failures"]) == ("succeeded", 1, [])
    assert [set(file) for file in made["outputs"]] == [{"path", "size", "digest"}]
    assert (made["outputs"][0]["path"], made["outputs"][0]["size"]) == ("a.txt", 2)
    broken = failed("show", "last", "b", "--json").json
    assert broken["failures"] == [
        {
            "attempt": 1,
            "outcome": "failed",
            "reason": "exit code 3",
            "exit_code": 3,
            "signal": None,
            "trace": "",
        }
    ]
    never = failed("show", "last", "c", "--json").json
    assert (never["state"], never["attempts"], never["started"]) == ("cancelled", 0, None)


def test_json_of_logs(failed: Bench) -> None:
    data = failed("logs", "last", "a", "--json").json
    assert set(data) == {"run", "task", "attempt", "outcome", "stdout", "stderr"}
    assert (data["task"], data["attempt"], data["outcome"]) == ("a", 1, "succeeded")
    assert (data["stdout"], data["stderr"]) == ("out\n", "err\n")


def test_json_of_validate(bench: Bench) -> None:
    bench.flow(PAIR)
    answer = bench("validate", "w.yaml", "--json")
    assert answer.code == 0
    assert answer.json == {
        "valid": True,
        "name": "pair",
        "tasks": 3,
        "kinds": 3,
        "edges": 2,
        "levels": 3,
        "inputs": 0,
        "outputs": 1,
    }
    assert os.listdir(bench.directory) == ["w.yaml"], "validating leaves nothing behind"


def test_json_of_cancel(failed: Bench) -> None:
    answer = failed("cancel", "last", "--json")
    assert answer.code == 0
    assert set(answer.json) == {"run", "state"}
    assert answer.json["state"] == "failed", "a run that is over stays as it is"


def test_json_of_init(bench: Bench) -> None:
    answer = bench("init", "new/place", "--json")
    assert answer.code == 0
    assert answer.json == {"directory": "new/place", "files": ["workflow.yaml", "big.txt"]}
    assert sorted(os.listdir("new/place")) == ["big.txt", "workflow.yaml"]


# -- for people ----------------------------------------------------------------------------------


def test_what_people_read(failed: Bench) -> None:
    shown = failed("show").out
    assert re.match(r"run pair-\w+: failed\n  workflow   pair \(w.yaml\)\n", shown)
    assert "  tasks      3: 1 cancelled, 1 failed, 1 succeeded\n" in shown
    assert re.search(r"  b: failed, 0\.\d s, exit code 3\n", shown)
    assert re.search(r"pair-\w+ +failed +\S+ \S+ +1 +1 +3\n", failed("runs").out)
    assert failed("logs", "last", "a").out == "out\n"
    assert failed("logs", "last", "a").err == "err\n"
    assert failed("logs", "last", "a", "--stdout")[1:] == ("out\n", "")
    assert failed("logs", "last", "a", "--stderr")[1:] == ("", "err\n")
    assert "a.txt (2 B)" in failed("show", "last", "a").out
    assert "attempt 1 failed: exit code 3" in failed("show", "last", "b").out
    assert "3 tasks of 3 kinds in 3 levels" in failed("validate", "w.yaml").out


def test_one_is_not_many(bench: Bench) -> None:
    bench.flow(SOUND)
    assert bench("validate", "w.yaml").out == (
        "w.yaml is valid: 1 task of 1 kind in 1 level, 0 dependencies, 0 input files, 1 output\n"
    )
    answer = bench("run", "w.yaml")
    assert re.match(r"run sound-\w+: 1 task\n", answer.err)  # a slow start adds a forecast
    assert "1 succeeded of 1 task in" in answer.out


def test_validate_notes_what_is_only_odd(bench: Bench) -> None:
    bench.flow("params: {old: 1}\ntasks:\n  a: {run: 'true'}\n")
    answer = bench("validate", "w.yaml")
    assert answer.code == 0
    assert answer.err == "note: w.yaml:1: the param 'old' is used nowhere; remove it\n"


def test_a_failed_run_says_how_to_go_on(bench: Bench) -> None:
    bench.flow(PAIR)
    answer = bench("run", "w.yaml")
    assert re.fullmatch(
        r"run (pair-\w+) failed: 1 succeeded, 1 failed, 1 not run of 3 tasks in .*\n"
        r"continue with: sureline resume \1\n",
        answer.out,
    )


def test_quiet_tells_of_failures_only(bench: Bench) -> None:
    bench.flow(PAIR)
    assert bench("run", "w.yaml", "-q").err == "  b failed: exit code 3\n"
    bench.flow(SOUND)
    assert bench("run", "w.yaml", "--quiet").err == ""


# -- exit codes and surroundings -----------------------------------------------------------------


def test_exit_codes_of_real_processes(bench: Bench) -> None:
    bench.flow(SOUND)
    bench.flow(PAIR, "bad.yaml")
    assert bench.process("run", "w.yaml").returncode == 0
    assert bench.process("run", "bad.yaml").returncode == 1
    assert bench.process("run", "none.yaml").returncode == 2


@pytest.mark.parametrize("by", ["signal", "command"])
def test_a_cancelled_run_exits_with_130(bench: Bench, by: str) -> None:
    bench.flow("tasks:\n  long: {run: sleep 600}\n")
    going = bench.start("run", "w.yaml", "--json")
    wait_until(bench.running, going)
    if by == "signal":
        going.send_signal(signal.SIGINT)
        assert going.stderr is not None
        assert "press Ctrl-C again" in going.stderr.readline()
        going.send_signal(signal.SIGINT)
    else:
        assert bench("cancel", "--json").json["state"] == "cancelled"
    out, err = going.communicate()
    assert going.returncode == 130
    check_outcome(json.loads(out), "cancelled", total=1, cancelled=1)
    assert "Traceback" not in err


def test_without_any_standard_stream(bench: Bench) -> None:
    """As from a daemon that has closed its standard streams: the run must not notice."""
    bench.flow(SOUND)
    command = " ".join([*map(repr_for_shell, SURELINE), "run w.yaml <&- >&- 2>&-"])
    ended = subprocess.run(["sh", "-c", command], cwd=bench.directory, check=False)
    assert ended.returncode == 0
    assert bench.text("a.txt") == "x\n"
    assert bench("show", "--json").json["state"] == "succeeded"


def repr_for_shell(word: str) -> str:
    return "'" + word.replace("'", "'\\''") + "'"


def test_streams_that_are_no_terminals(bench: Bench) -> None:
    bench.flow(SOUND)
    ended = bench.process("run", "w.yaml", "--json", stdin=subprocess.DEVNULL)
    assert ended.returncode == 0
    check_outcome(json.loads(ended.stdout), "succeeded", total=1, succeeded=1)
    assert "\x1b" not in ended.stdout + ended.stderr, "no colours into files"


@pytest.mark.parametrize("argv", [["--help"], ["show", "--tasks"], ["logs", "last", "a"]])
def test_output_into_a_pipe_that_nobody_reads(bench: Bench, argv: list[str]) -> None:
    bench.flow("tasks:\n  a: {run: seq 100000}\n")
    bench.run()
    reader, writer = os.pipe()
    os.close(reader)
    try:
        ended = bench.process(*argv, capture_output=False, stdout=writer, stderr=subprocess.PIPE)
    finally:
        os.close(writer)
    assert ended.stderr == ""
    assert ended.returncode in (1, 141)  # the library that prints help chooses 1


def test_a_run_whose_reader_goes_away_still_runs(bench: Bench) -> None:
    bench.flow(SOUND)
    reader, writer = os.pipe()
    os.close(reader)
    try:
        bench.process("run", "w.yaml", capture_output=False, stdout=writer, stderr=writer)
    finally:
        os.close(writer)
    assert bench("show", "--json").json["state"] == "succeeded"


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="this system has no /dev/full")
@pytest.mark.parametrize("argv", [["runs"], ["runs", "--json"]])
def test_output_onto_a_full_disk(bench: Bench, argv: list[str]) -> None:
    with open("/dev/full", "w") as full:
        ended = bench.process(*argv, capture_output=False, stdout=full, stderr=subprocess.PIPE)
    assert ended.returncode == 1
    assert ended.stderr == (
        "sureline: the output cannot be written (No space left on device); send it elsewhere\n"
    )


def test_an_encoding_that_cannot_show_names(bench: Bench) -> None:
    bench.flow("name: été\ntasks:\n  zoë: {run: 'true'}\n")
    assert bench.process("run", "w.yaml", env={"PYTHONIOENCODING": "ascii"}).returncode == 0
    shown = bench.process("show", "--tasks", env={"PYTHONIOENCODING": "ascii"})
    assert shown.returncode == 0
    assert "zo\\xeb: succeeded" in shown.stdout
    listed = bench.process("show", "--tasks", "--json", env={"PYTHONIOENCODING": "ascii"})
    assert json.loads(listed.stdout)["listed"][0]["task"] == "zoë", "JSON is UTF-8 everywhere"


PRINTS_MUCH = """
import signal
from sureline.cli import console

signal.signal(signal.SIGALRM, lambda number, frame: None)
signal.setitimer(signal.ITIMER_REAL, 0.001, 0.001)
console.open_streams(as_json=True)
console.print_json(["x" * 100] * 20_000)
console.flush()
signal.setitimer(signal.ITIMER_REAL, 0)
"""


def test_signals_cost_no_output_even_where_python_does_not_buffer():
    """The list of 600 peers was cut after 128 KiB, and the exit code was 0."""
    said = subprocess.run(
        [sys.executable, "-c", PRINTS_MUCH],
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
        capture_output=True,
        check=True,
    )
    assert json.loads(said.stdout) == ["x" * 100] * 20_000
