"""Bad inputs, as a table: the exit code, what is said, and that nothing is left behind.

A row is a mistake a user can make. Every row must end with exit code 2, say on stderr what is
wrong and what to do, print no traceback, and leave the directory exactly as it was.
"""

from __future__ import annotations

import json
import os
import re
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import pytest
from cli_bench import Bench, listing

from sureline.cli.main import run_command

ONE = "tasks:\n  a:\n    run: touch x\n    outputs: [x]\n"
"""A sound task of four lines; what a row adds is in line 5."""


class Row(NamedTuple):
    label: str
    files: dict[str, str | bytes]
    argv: Sequence[str]
    says: Sequence[str]
    """Patterns, each of which must be found in stderr."""


def flow(label: str, text: str | bytes, *says: str, options: Sequence[str] = ()) -> Row:
    """A row about a workflow file, w.yaml, beside which lies in.txt."""
    return Row(label, {"w.yaml": text, "in.txt": "x\n"}, ["run", "w.yaml", *options], says)


def one(label: str, line: str, *says: str) -> Row:
    """A row about a line added to a sound task."""
    return flow(label, f"{ONE}    {line}\n", *[rf"w\.yaml:5: .*{text}" for text in says])


def need(label: str, line: str, *says: str) -> Row:
    """A row about a need that is well written and cannot be met: the task's own line is told."""
    return flow(label, f"{ONE}    needs: {line}\n", *[rf"w\.yaml:2: .*{text}" for text in says])


def trace(label: str, text: str, *says: str, options: Sequence[str] = ("--pretend",)) -> Row:
    return Row(label, {"w.json": text}, ["run", "w.json", *options], says)


def option(label: str, options: str, *says: str) -> Row:
    return flow(label, ONE, *says, options=options.split())


def command(label: str, argv: str, *says: str, files: dict[str, str | bytes] | None = None) -> Row:
    return Row(label, files or {}, argv.split(), says)


def instance(*tasks: dict[str, object], version: str = "1.5") -> str:
    """A WfFormat trace; its first task begins in line 7."""
    ran = [{"id": task["id"], "runtimeInSeconds": 0.1} for task in tasks]
    execution = {"makespanInSeconds": 1, "executedAt": "", "tasks": ran}
    workflow = {"specification": {"tasks": tasks}, "execution": execution}
    return json.dumps({"name": "x", "schemaVersion": version, "workflow": workflow}, indent=1)


def laughs() -> str:
    """Twelve lists of ten aliases each: a million million words if they were written out."""
    lists = ["a0: &a0 [ha, ha, ha, ha, ha, ha, ha, ha, ha, ha]"]
    lists += [f"a{k}: &a{k} [{', '.join([f'*a{k - 1}'] * 10)}]" for k in range(1, 12)]
    return "\n".join(lists) + "\ntasks:\n  a: {run: x, inputs: *a11}\n"


KNOTTED = """\
tasks:
  a: {run: x, inputs: [p], outputs: [q]}
  b: {run: x, inputs: [q], outputs: [r]}
  c: {run: x, inputs: [r], outputs: [p]}
"""
TWO_TASKS = "tasks:\n  a: {run: x, outputs: [x]}\n  b: {run: x, outputs: [%s]}\n"

FLOWS = [
    # -- what is not a workflow file
    flow("empty file", "", r"w\.yaml: the file is empty; describe at least one task"),
    flow("only comments", "# later\n", r"the file is empty"),
    flow("tab", "tasks:\n\ta: 1\n", r"w\.yaml:2: not valid YAML.*spaces, not with tabs"),
    flow("open bracket", "tasks: [a\n", r"w\.yaml:2: not valid YAML.*check quotes"),
    flow("open quote", "tasks:\n  a: {run: 'x}\n", r"w\.yaml:3: not valid YAML"),
    flow("a list", "- a\n- b\n", r"w\.yaml:1: the file is not a mapping; write `tasks:`"),
    flow("a text", "hello", r"w\.yaml:1: the file is not a mapping"),
    flow("binary", bytes(range(256)), r"w\.yaml:2: the byte 0x80 is not UTF-8"),
    flow("NUL", b"tasks: \0\n", r"w\.yaml:1: a character is not allowed"),
    flow("not UTF-8", "tasks:\n  a: {run: é}\n".encode("latin1"), r"w\.yaml:2: .*save.*UTF-8"),
    flow("two documents", ONE + "---\n" + ONE, r"w\.yaml:5: a second YAML document"),
    flow("aliases of aliases", laughs(), r"`inputs` of task 'a' is a list"),
    flow("alias of itself", "tasks: &a\n  b: *a\n", r"w\.yaml:2: '\*a' contains itself"),
    # -- shapes
    flow("no tasks", "name: x\n", r"w\.yaml:1: there is no `tasks`; describe"),
    flow("tasks empty", "name: x\ntasks: {}\n", r"w\.yaml:2: `tasks` is empty; describe"),
    flow("tasks a list", "tasks: [a]\n", r"w\.yaml:1: `tasks` is not a mapping; write `NAME:`"),
    flow("task a text", "tasks:\n  a: ls\n", r"w\.yaml:2: task 'a' is the text 'ls'; write its"),
    flow("no run", "tasks:\n  a: {outputs: [x]}\n", r"w\.yaml:2: task 'a' has no `run`; add"),
    flow("empty run", "tasks:\n  a: {run: ''}\n", r"w\.yaml:2: `run` of task 'a' is empty; write"),
    flow("bad name", "tasks:\n  a b: {run: x}\n", r"w\.yaml:2: 'a b' cannot be a task's name"),
    one("outputs a mapping", "inputs: {a: b}", r"`inputs` of task 'a' is a mapping; write a list"),
    one("env a list", "env: [A]", r"`env` of task 'a' is a list; write names"),
    one("needs a list", "needs: [1]", r"`needs` of task 'a' is a list; write names and amounts"),
    flow("key twice", ONE + "    run: y\n", r"w\.yaml:5: 'run' is given twice.*line 3.*keep one"),
    flow("task twice", ONE + "  a: {run: y}\n", r"w\.yaml:5: 'a' is given twice.*line 2"),
    one("unknown key", "output: [y]", r"unknown key 'output'; did you mean 'outputs'\?"),
    flow("unknown top key", "task: 1\n" + ONE, r"w\.yaml:1: unknown key 'task'; .*'tasks'\?"),
    one("unknown need", "needs: {core: 1}", r"unknown key 'core'; did you mean 'cores'\?"),
    # -- names
    one("unknown template", "env: {A: '{{bog}}'}", r"'{{bog}}' is not defined; add it to `params:"),
    flow(
        "mistyped template",
        "params: {big: in.txt}\ntasks:\n  a:\n    run: cat {{bgi}}\n",
        r"w\.yaml:4: `run` of task 'a': '{{bgi}}' is not defined; did you mean 'big'\?",
    ),
    one("open template", "env: {A: '{{x'}", r"'{{x' is not closed by }}; write"),
    flow("unknown after", ONE + "    after: [b]\n", r"w\.yaml:2: .*after 'b', which is not a task"),
    flow("after itself", ONE + "    after: [a]\n", r"w\.yaml:2: task 'a' comes after 'a'"),
    flow("unknown param", "params: {big: 1}\n" + ONE, r"no param 'bag' to set; .*'big'\?")._replace(
        argv=["run", "w.yaml", "--set", "bag=1"]
    ),
    # -- quantities
    one("takes out of order", "takes: 3s .. 1s .. 10s", r"`takes` .* is out of order; write opti"),
    one("takes two values", "takes: 1s .. 3s", r"'1s \.\. 3s' is not an estimate; write"),
    one("takes garbage", "takes: soon", r"'soon' is not a duration; write a number and a unit"),
    one("bad size", "needs: {memory: 200XB}", r"'memory': '200XB' is not a size; write"),
    one("bad cores", "needs: {cores: many}", r"'cores': 'many' is not a number of cores; write"),
    one("no cores", "needs: {cores: 0}", r"'cores': '0' is not a number of cores"),
    one("bad timeout", "timeout: 5 parsecs", r"'5 parsecs' is not a duration; write"),
    one("no timeout", "timeout: 0", r"'0' is no time at all; give more than zero"),
    one("negative retries", "retries: -1", r"`retries` of task 'a': '-1' is not a whole number"),
    # -- loops
    one("empty for list", "for: {i: []}", r"`for: i` of task 'a' is an empty list; write a list"),
    one("for no values", "for: {i: all}", r"`for: i` of task 'a' has no values; write"),
    one("backward range", "for: {i: 5..1}", r"'5\.\.1' is empty; swap the bounds"),
    one("for no mapping", "for: 1..3", r"`for` of task 'a' is the text '1\.\.3'; write names"),
    one("huge product", "for: {i: 1..100000, j: 1..100000}", r"makes 10,000,000,000 tasks; .*may"),
    one("huge range", "for: {i: 1..99999999999}", r"has 99,999,999,999 values; use at most"),
    # -- files
    flow(
        "missing input",
        "tasks:\n  a: {run: x, inputs: [zzzzz]}\n",
        r"w\.yaml:2: task 'a' reads 'zzzzz': no task makes it and it does not exist; create it",
    ),
    flow(
        "mistyped input", "tasks:\n  a: {run: x, inputs: [in.tx]}\n", r"did you mean 'in\.txt', wh"
    ),
    flow("no match", "tasks:\n  a: {run: x, inputs: ['*.d']}\n", r"reads '\*\.d': .*; create the"),
    flow("cycle", KNOTTED, r"w\.yaml:2: tasks wait for each other: (a -> [bc] -> [bc] -> a); rem"),
    flow("reads its own output", ONE + "    inputs: [x]\n", r"reads 'x', which it makes itself"),
    flow("made twice", TWO_TASKS % "x", r"w\.yaml:3: both 'a' and 'b' make 'x'; give each"),
    flow("made inside", TWO_TASKS % "x/y", r"w\.yaml:3: 'b' makes 'x/y' inside 'x', which 'a'"),
    flow("leaves by ..", TWO_TASKS % "../x", r"w\.yaml:3: .*'\.\./x' leaves the working directory"),
    flow("leaves deeper", TWO_TASKS % "d/../../x", r"w\.yaml:3: .*leaves the working directory;"),
    flow("absolute", TWO_TASKS % "/tmp/x", r"w\.yaml:3: .*'/tmp/x' is absolute.*; use a path"),
    flow("in the journal", TWO_TASKS % ".sureline/x", r"w\.yaml:3: .*lies in \.sureline/;.*use an"),
    flow("glob in outputs", TWO_TASKS % "'*.o'", r"w\.yaml:3: the output '\*\.o' .* wildcards; na"),
    flow("stdin missing", ONE + "    stdin: no.txt\n", r"reads 'no\.txt': no task makes it"),
    # -- needs that nothing here meets
    need("too many cores", "{cores: 100000}", r"'a' needs 100000 cores; this machine has \S+; low"),
    need("too much memory", "{memory: 10PB}", r"needs 10000TB of memory; this machine has .*lower"),
    need("too much disk", "{disk: 900PB}", r"of disk; this machine has .*; lower `needs: disk`"),
    need("too many GPUs", "{gpus: 64}", r"needs 64 GPUs; this machine has \d+; lower"),
    need("unknown tag", "{unobtainium: 1}", r"needs 1 of the tag 'unobtainium'; .*--tag unobta"),
    option("need over --cores", "--cores 0.5", r"w\.yaml:2: task 'a' needs 1 cores?; .*has 0\.5"),
]

ROOT = 'x", "schemaVersion": "1.5",\n"workflow": {"specification": {\n'
TRACES = [
    trace("JSON syntax", '{"name": "x",\n "workflow": {\n,}\n}', r"w\.json:3: not valid JSON"),
    trace("JSON cut off", '{"name": "x",\n "workflow": {\n', r"w\.json:3: .*check commas"),
    trace("JSON empty", "", r"w\.json: the file is empty; write"),
    trace("JSON a list", "[1]", r"w\.json:1: Expected `object`"),
    trace(
        "missing field",
        '{"name": "' + ROOT + '"tasks": [\n{"name": "a"}]}}}',
        r"w\.json:4: missing required field `id` in `workflow\.specification\.tasks\[0\]`; see",
    ),
    trace(
        "unknown parent",
        instance({"name": "a", "id": "a1", "parents": ["b"]}),
        r"w\.json:7: task 'a1' has the parent 'b', which is not a task; add the task",
    ),
    trace(
        "trace with a cycle",
        instance(
            {"name": "a", "id": "a", "parents": ["b"]},
            {"name": "b", "id": "b"} | {"parents": ["a"]},
        ),
        r"w\.json:7: tasks wait for each other: a -> b -> a",
    ),
    trace(
        "id twice",
        instance({"name": "a", "id": "a"}, {"name": "b", "id": "a"}),
        r"w\.json:11: two tasks are named 'a'; give one",
    ),
    trace("trace without tasks", instance(), r"w\.json: there are no tasks; describe"),
    trace("version", instance(version="9.9"), r"w\.json:3: WfFormat 9\.9 is not understood; migr"),
    trace(
        "nothing to run",
        instance({"name": "a", "id": "a"}),
        r"w\.json:7: task 'a' has no program to run; .*use --pretend",
        options=[],
    ),
    trace(
        "--set for a trace",
        instance({"name": "a", "id": "a"}),
        r"has no params to set; leave out --set",
        options=["--pretend", "--set", "a=1"],
    ),
]

OPTIONS = [
    option("--set without =", "--set bag", r"--set 'bag' has no value; write --set NAME=VALUE"),
    option("--set alone", "--set", r"--set needs a value; see 'sureline run --help'"),
    option("--pretend of YAML", "--pretend", r"w\.yaml is not a WfFormat trace.*; leave out"),
    option("--speed alone", "--speed 2", r"--speed goes with --pretend; add --pretend"),
    option("--speed 0", "--pretend --speed 0", r"--speed 0 is not a factor; give a number above"),
    option("--speed nan", "--pretend --speed nan", r"--speed nan is not a factor"),
    option("--cores 0", "--cores 0", r"--cores 0 is not a number of cores; give one above 0"),
    option("--cores abc", "--cores abc", r"--cores 'abc' is not a number; see 'sureline run --he"),
    option("--memory", "--memory lots", r"--memory: 'lots' is not a size; write bytes, or"),
    option("--gpus", "--gpus -1", r"--gpus -1 is negative; give 0 or more"),
    option("--tag without name", "--tag =3", r"--tag '=3' is not a tag; write --tag NAME or"),
    option("--tag uncounted", "--tag a=x", r"--tag 'a=x' is not a tag; write"),
    option("--retry-delay", "--retry-delay x", r"--retry-delay: 'x' is not a duration; write"),
    option("unknown option", "--frsh", r"Unknown option: --frsh\. Did you mean --fresh\?; see"),
    option("unknown choice", "--progress fancy", r'"fancy" for --progress\. Choose from: "auto",'),
    option("too many arguments", "b c", r"too many arguments: b c; see 'sureline run --help'"),
    option("-C to nothing", "-C nowhere", r"nowhere is not a directory; name an existing one"),
    option("-C to a file", "-C in.txt", r"in\.txt is not a directory; name an existing one"),
    option("not text", "--set a=\udcff", r"'a=\\udcff' is not UTF-8 text"),
]

COMMANDS = [
    command("unknown command", "rnu", r'Unknown command "rnu"\. Did you mean "run"\?.*; see'),
    command("missing argument", "run", r"'sureline run' needs FLOW; see 'sureline run --help'"),
    command("missing workflow", "run no.yaml", r"there is no file no\.yaml; `sureline init` makes"),
    command("workflow a directory", "run .", r"\. is a directory; name the workflow file in it"),
    command("validate missing", "validate no.yaml", r"there is no file no\.yaml"),
    command("no journal to resume", "resume", r"there is no journal in .*; start a run there"),
    command("no journal to show", "show last", r"there is no journal in .*; start a run"),
    command("no journal of logs", "logs last a", r"there is no journal in .*; start a run"),
    command("no journal to cancel", "cancel", r"there is no journal in .*; start a run"),
    command("negative limit", "runs --limit -1", r"--limit -1 is negative; give 0 for all"),
    command("limit no number", "runs --limit few", r"--limit 'few' is not a whole number; see"),
    command(
        "init over files", "init", r"big\.txt is there already; move it", files={"big.txt": "mine"}
    ),
    command("priority no whole number", "queue priority r 1.5", r"a whole number from -1000 to"),
    command("priority not a number", "queue priority r nan", r"a whole number from -1000 to 1000"),
    Row("no name of a run", {}, ["queue", "priority", "", "1"], [r"'' is no name of a run"]),
    Row("no name of a user", {}, ["queue", "share", "", "1"], [r"'' is no name of a peer"]),
    command("init in a file", "init f/x", r"cannot be written.*; name another", files={"f": ""}),
]

TABLE = FLOWS + TRACES + OPTIONS + COMMANDS


@pytest.mark.parametrize("row", TABLE, ids=lambda row: row.label)
def test_bad_input(row: Row, bench: Bench) -> None:
    bench.write(row.files)
    before = listing(bench.directory)

    answer = bench(*row.argv)

    assert answer.code == 2
    assert answer.out == ""
    assert "Traceback" not in answer.err
    for pattern in row.says:
        assert re.search(pattern, answer.err), answer.err
    for line in answer.err.splitlines():
        assert line.startswith("sureline: "), "one sentence a line"
        assert len(line) < 400, "a sentence, not a page"
    assert listing(bench.directory) == before

    answer = bench(*row.argv, "--json")

    assert answer.code == 2
    error = answer.json["error"]
    assert list(answer.json) == ["error"]
    assert list(error) == ["code", "mistakes"]
    assert error["code"] == 2
    assert error["mistakes"]
    for mistake in error["mistakes"]:
        assert list(mistake) == ["file", "line", "what", "hint"]
    assert listing(bench.directory) == before


def test_the_table_is_long_enough_and_without_repetition() -> None:
    labels = [row.label for row in TABLE]
    assert len(labels) == len(set(labels)) >= 100


@pytest.mark.parametrize(
    "label", ["cycle", "binary", "not text", "unknown command", "no journal to resume"]
)
def test_a_real_process_ends_the_same_way(label: str, bench: Bench) -> None:
    row = next(row for row in TABLE if row.label == label)
    bench.write(row.files)
    before = listing(bench.directory)
    ended = bench.process(*row.argv)
    assert (ended.returncode, ended.stdout) == (2, "")
    assert "Traceback" not in ended.stderr
    for pattern in row.says:
        assert re.search(pattern, ended.stderr), ended.stderr
    assert listing(bench.directory) == before


def test_all_mistakes_are_told_at_once_in_the_order_of_lines(bench: Bench) -> None:
    bench.flow("""\
        tasks:
          a:
            run: x
            timeout: soon
            outputt: [x]
          b:
            run: x
            inputs: [../up, gone]
            retries: -1
        """)
    answer = bench("run", "w.yaml", "--json")
    mistakes = answer.json["error"]["mistakes"]
    assert [(m["file"], m["line"], m["what"].split(" ")[0]) for m in mistakes] == [
        ("w.yaml", 4, "`timeout`"),
        ("w.yaml", 5, "task"),
        ("w.yaml", 6, "task"),
        ("w.yaml", 6, "task"),
        ("w.yaml", 9, "`retries`"),
    ]
    assert "'../up' leaves" in mistakes[2]["what"]
    assert "'gone'" in mistakes[3]["what"]
    assert len(answer.err.splitlines()) == 5


def test_a_thousand_alike_mistakes_are_folded(bench: Bench) -> None:
    bench.flow("tasks:\n  a: {run: x, for: {i: 1..1000}, inputs: ['no.{{i}}']}\n")
    answer = bench("validate", "w.yaml")
    assert answer.code == 2
    assert len(answer.err.splitlines()) < 20
    assert re.search(r"and 99\d more missing inputs", answer.err)


def test_an_unreadable_file() -> None:
    with tempfile.TemporaryDirectory() as name:  # not tmp_path, which other users cannot reach
        directory = Path(name)
        directory.chmod(0o755)
        (directory / "w.yaml").write_text(ONE)
        (directory / "w.yaml").chmod(0)
        code, told = _run_without_privileges(directory)
        assert os.listdir(directory) == ["w.yaml"]
    assert code == 2
    assert "w.yaml may not be read; check its permissions" in told


def _run_without_privileges(directory: Path) -> tuple[int, str]:
    """Run in a process of its own, which becomes nobody if it is root: root may read all files."""
    import sureline.workflow.read  # noqa: F401 - imported while it may be read

    with tempfile.TemporaryFile("w+") as told:
        pid = os.fork()
        if pid == 0:
            os.chdir(directory)
            sys.stderr = told
            if os.geteuid() == 0:
                os.setuid(65534)
            os._exit(run_command(["run", "w.yaml"]))
        _, status = os.waitpid(pid, 0)
        told.seek(0)
        return os.waitstatus_to_exitcode(status), told.read()


def test_a_directory_whose_name_is_no_text(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    odd = bench.directory / "d\udcff"
    odd.mkdir()
    (odd / "w.yaml").write_text(ONE)
    monkeypatch.chdir(odd)
    answer = bench("run", "w.yaml")
    assert answer.code == 2
    assert "is not UTF-8 text; work in another" in answer.err
    assert os.listdir(odd) == ["w.yaml"]


@pytest.fixture(scope="module")
def two_runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("pair")
    (directory / "w.yaml").write_text("name: pair\n" + ONE)
    for _ in range(2):
        assert run_command(["run", f"{directory}/w.yaml", "-q", "-C", str(directory)]) == 0
    return directory


def test_a_directory_that_is_gone(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    gone = bench.directory / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    for argv in (["runs"], ["run", "w.yaml"], ["init"]):
        answer = bench(*argv)
        assert (answer.code, answer.out) == (2, "")
        assert re.search("another directory", answer.err)


def test_a_link_to_nothing_is_a_missing_input(bench: Bench) -> None:
    bench.flow("tasks:\n  a: {run: cat in, inputs: [in]}\n")
    os.symlink("nowhere", "in")
    answer = bench("run", "w.yaml")
    assert answer.code == 2
    assert "reads 'in'" in answer.err
    assert "did you mean 'in'" not in answer.err


class TestOfRuns:
    """Selectors and tasks: these need a journal, which the mistake must not change."""

    @pytest.fixture
    def ran(
        self,
        two_runs: Path,
        monkeypatch: pytest.MonkeyPatch,
        capsys: pytest.CaptureFixture[str],
    ) -> Bench:
        monkeypatch.chdir(two_runs)
        return Bench(two_runs, capsys)

    @pytest.mark.parametrize(
        ("argv", "says"),
        [
            ("show nope", r"no run is called 'nope'; there is pair-\w+, pair-\w+"),
            ("show parir", r"no run is called 'parir'; there is pair"),
            ("show -3", r"-3 names no run: there are 2, so -1 to -2 do"),
            ("show last-failed", r"no run has failed here; list the runs with: sureline runs"),
            ("show pair-", r"'pair-' begins several runs: pair-\w+, pair-\w+; type more of one"),
            ("show last b", r"run pair-\w+ has no task 'b'; 'sureline show --tasks' lists them"),
            ("show last a:1", r"run pair-\w+ has no task 'a:1'; is it a\?"),
            ("logs last b", r"run pair-\w+ has no task 'b'; 'sureline show --tasks' lists them"),
            ("logs last a --attempt 7", r"a has no attempt 7 that ended; there is 0"),
            ("resume nope", r"no run is called 'nope'"),
            ("cancel nope", r"no run is called 'nope'"),
            ("resume last --cores 0", r"--cores 0 is not a number of cores"),
        ],
    )
    def test_selectors(self, ran: Bench, argv: str, says: str) -> None:
        before = ran("runs", "--json").json
        answer = ran(*argv.split())
        assert (answer.code, answer.out) == (2, "")
        assert re.search(says, answer.err), answer.err
        assert "Traceback" not in answer.err
        assert ran("runs", "--json").json == before
        assert ran(*argv.split(), "--json").json["error"]["code"] == 2

    def test_logs_of_a_task_that_never_started(self, bench: Bench) -> None:
        bench.flow("""\
            tasks:
              no: {run: exit 3}
              late: {run: echo late, after: [no]}
            """)
        assert bench("run", "w.yaml").code == 1
        answer = bench("logs", "last", "late")
        assert (answer.code, answer.out) == (2, "")
        assert re.search(r"task 'late' of run w-\w+ is cancelled and has no logs", answer.err)


def test_a_journal_that_is_a_file(bench: Bench) -> None:
    bench.write({"w.yaml": ONE, ".sureline": "mine"})
    before = listing(bench.directory)
    answer = bench("run", "w.yaml")
    assert (answer.code, answer.out) == (2, "")
    assert ".sureline is not a directory; move the file of that name away" in answer.err
    assert listing(bench.directory) == before


def test_a_journal_that_is_damaged(bench: Bench, tmp_path: Path) -> None:
    bench.write({"w.yaml": ONE})
    assert bench("run", "w.yaml").code == 0
    database = next((tmp_path / ".sureline").glob("*.db"))
    database.write_bytes(b"not a database at all" * 1000)
    answer = bench("runs")
    assert (answer.code, answer.out) == (2, "")
    assert "move it away" in answer.err
    assert "Traceback" not in answer.err
