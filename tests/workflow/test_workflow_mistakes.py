"""Bad workflow files: what is said about each, and where. Every line of a case must be said."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sureline.workflow.check import Draft, check
from sureline.workflow.mistakes import WorkflowError
from sureline.workflow.model import Command, Task
from sureline.workflow.yaml_reader import read_yaml

BAD: list[tuple[str, str | bytes, list[str]]] = [
    ("empty", "", ["w.yaml: the file is empty; describe at least one task"]),
    ("only a comment", "# soon\n", ["w.yaml: the file is empty"]),
    ("no tasks", "name: x\n", ["w.yaml:1: there is no `tasks`; describe"]),
    ("empty tasks", "name: x\ntasks:\n", ["w.yaml:2: `tasks` is empty; describe"]),
    ("a list", "- a\n", ["w.yaml:1: the file is not a mapping; write `tasks:`"]),
    ("tasks a list", "\ntasks: [a]\n", ["w.yaml:2: `tasks` is not a mapping; write `NAME:`"]),
    ("task a text", "tasks:\n  a: b\n", ["w.yaml:2: task 'a' is the text 'b'; write its keys"]),
    ("not UTF-8", b"name: x\ntasks: \xff\n", ["w.yaml:2: the byte 0xff is not UTF-8 text; save"]),
    ("control character", "a: \x07\n", ["w.yaml:1: a character is not allowed in YAML"]),
    ("syntax", "tasks:\n  a: [b\n", ["w.yaml:3: not valid YAML: "]),
    ("tab", "tasks:\n\ta: {}\n", ["w.yaml:2: not valid YAML: ", "indent with spaces"]),
    ("two documents", "a: 1\n---\nb: 2\n", ["w.yaml:2: a second YAML document starts here"]),
    ("own tag", "tasks: !secret x\n", ["w.yaml:1: the YAML tag '!secret' is not understood"]),
    ("no anchor", "tasks: *x\n", ["w.yaml:1: the alias '*x' has no anchor"]),
    ("endless", "tasks: &x {a: *x}\n", ["w.yaml:1: '*x' contains itself"]),
    ("too deep", "a: " + "[" * 100 + "]" * 100, ["w.yaml:1: nested deeper than 64 levels"]),
    ("key twice", "tasks:\n  a: {run: x}\n  a: {run: y}\n", ["w.yaml:3: 'a' is given twice"]),
    ("NUL", 'tasks: {a: {run: "x\\0y"}}\n', ["w.yaml:1: a NUL character is in this text"]),
    (
        "unknown keys",
        "nmae: x\ntasks:\n  a:\n    run: x\n    inptus: y\n",
        [
            "w.yaml:1: unknown key 'nmae'; did you mean 'name'?",
            "w.yaml:5: task 'a': unknown key 'inptus'; did you mean 'inputs'?",
        ],
    ),
    ("no run", "tasks:\n  a: {outputs: b}\n", ["w.yaml:2: task 'a' has no `run`; add"]),
    ("empty run", "tasks:\n  a: {run: ' '}\n", ["w.yaml:2: `run` of task 'a' is empty; write"]),
    ("run a list", "tasks:\n  a: {run: [b]}\n", ["w.yaml:2: `run` of task 'a' is a list; write"]),
    ("inputs a mapping", "tasks: {a: {run: x, inputs: {b: c}}}", ["`inputs` of task 'a' is a map"]),
    ("env a list", "tasks: {a: {run: x, env: [b]}}", ["`env` of task 'a' is a list; write names"]),
    ("env name", "tasks: {a: {run: x, env: {b=: c}}}", ["'b=' cannot be a variable's name"]),
    ("bad name", "tasks:\n  a b: {run: x}\n", ["w.yaml:2: 'a b' cannot be a task's name; use"]),
    ("empty name", "tasks:\n  '': {run: x}\n", ["w.yaml:2: '' cannot be a task's name; use"]),
    (
        "quantities",
        "tasks:\n  a:\n    run: x\n    timeout: soon\n    retries: -1\n"
        "    takes: 3s .. 1s .. 9s\n    needs: {cores: 0, memory: much, matlab: some}\n",
        [
            "w.yaml:4: `timeout` of task 'a': 'soon' is not a duration; write a number",
            "w.yaml:5: `retries` of task 'a': '-1' is not a whole number",
            "w.yaml:6: `takes` of task 'a': '3s .. 1s .. 9s' is out of order; write optimistic",
            "w.yaml:7: `needs` of task 'a': 'cores': '0' is not a number of cores; write",
            "w.yaml:7: `needs` of task 'a': 'memory': 'much' is not a size; write bytes",
            "w.yaml:7: `needs` of task 'a': 'matlab': 'some' is not a whole number of 1 or more",
        ],
    ),
    ("no time", "tasks: {a: {run: x, timeout: 0s}}", ["'0s' is no time at all; give more"]),
    (
        "needs mistyped",
        "tasks:\n  a: {run: x, needs: {memroy: 2GB}}\n",
        ["w.yaml:2: `needs` of task 'a': unknown key 'memroy'; did you mean 'memory'?"],
    ),
    ("needs a text", "tasks: {a: {run: x, needs: much}}", ["`needs` of task 'a' is the text 'mu"]),
    (
        "cycle",
        "tasks:\n  a: {run: x, inputs: c, outputs: a}\n  b: {run: x, inputs: a, outputs: b}\n"
        "  c: {run: x, outputs: c, after: b}\n",
        ["w.yaml:2: tasks wait for each other: a -> b -> c -> a; remove one"],
    ),
    (
        "two cycles",
        "tasks:\n  a: {run: x, after: b}\n  b: {run: x, after: a}\n"
        "  c: {run: x, after: d}\n  d: {run: x, after: c}\n",
        ["w.yaml:2: tasks wait for each other: ", "w.yaml:4: tasks wait for each other: "],
    ),
    (
        "missing input",
        "tasks:\n  a: {run: x, inputs: big.tx, outputs: part.1}\n"
        "  b: {run: x, inputs: prat.1}\n  c: {run: x, inputs: zzz}\n",
        [
            "w.yaml:2: task 'a' reads 'big.tx': no task makes it and it does not exist; "
            "did you mean 'big.txt', which exists?",
            "w.yaml:3: task 'b' reads 'prat.1'",
            "did you mean 'part.1', which 'a' makes?",
            "w.yaml:4: task 'c' reads 'zzz': no task makes it and it does not exist; create it",
        ],
    ),
    (
        "no match",
        "tasks:\n  a: {run: x, inputs: 'q*.z'}\n",
        ["w.yaml:2: task 'a' reads 'q*.z': no task's output and no existing file matches; "],
    ),
    (
        "made twice",
        "tasks:\n  a: {run: x, outputs: c}\n  b: {run: x, outputs: ./c}\n",
        ["w.yaml:3: both 'a' and 'b' make 'c'; give each its own file"],
    ),
    (
        "made inside another's",
        "tasks:\n  a: {run: x, outputs: c/d/e}\n  b: {run: x, outputs: c/}\n",
        ["w.yaml:2: 'a' makes 'c/d/e' inside 'c', which 'b' makes; give each"],
    ),
    (
        "made inside its own",
        "tasks:\n  a: {run: x, outputs: [c, c/d]}\n",
        ["w.yaml:2: task 'a' makes 'c' and also 'c/d' inside it; name only one"],
    ),
    (
        "paths",
        "tasks:\n  a:\n    run: x\n    inputs: [/etc/passwd, ../b, a/../../c, .sureline/d, .]\n"
        "    outputs: ['*.g', '', \"x\\ty\"]\n",
        [
            "w.yaml:2: task 'a': '/etc/passwd' is absolute and leaves the working directory; use",
            "w.yaml:2: task 'a': '../b' leaves the working directory; use",
            "w.yaml:2: task 'a': 'a/../../c' leaves the working directory; use",
            "w.yaml:2: task 'a': '.sureline/d' lies in .sureline/; that directory",
            "w.yaml:2: task 'a': '.' is the working directory itself; name",
            "w.yaml:2: the output '*.g' of task 'a' has wildcards; name the file, or a directory",
            "w.yaml:2: task 'a': a path is empty; name",
            "w.yaml:2: task 'a': the path 'x\\ty' has a control character; rename",
        ],
    ),
    (
        "reads what it makes",
        "tasks:\n  a: {run: x, inputs: b, outputs: b}\n  c: {run: x, inputs: d, outputs: d/e}\n",
        [
            "w.yaml:2: task 'a' reads 'b', which it makes itself; give the output another name",
            "w.yaml:3: task 'c' reads 'd', which it makes itself ('d/e'); give",
        ],
    ),
    (
        "wildcard into a made directory",
        "tasks:\n  a: {run: x, outputs: d/}\n  b: {run: x, inputs: 'd/*.txt'}\n",
        ["w.yaml:3: 'd/*.txt' looks into 'd', which 'a' makes as a whole; use 'd'"],
    ),
    (
        "after",
        "tasks:\n  count: {run: x, for: {i: 1..2}}\n  b: {run: x, after: [cuont, b]}\n"
        "  c: {run: x, for: {i: 1..1}, after: c}\n",
        [
            "w.yaml:3: task 'b' comes after 'cuont', which is not a task; did you mean 'count'?",
            "w.yaml:3: task 'b' comes after 'b', which it is or belongs to; name only other",
            "w.yaml:4: task 'c:1' comes after 'c', which it is or belongs to",
        ],
    ),
    (
        "unknown names",
        "params: {size: 1, x: '{{later}}', later: 2}\ntasks:\n  a: {run: 'x {{siez}}'}\n"
        "  b: {run: '{{'}\n  c: {run: \"docker -f '{{.Name}}'\"}\n",
        [
            "w.yaml:1: the param 'x': '{{later}}' is not defined; ",
            "w.yaml:3: `run` of task 'a': '{{siez}}' is not defined; did you mean 'size'?",
            "w.yaml:4: `run` of task 'b': '{{' is not closed by }}; write {{name}}",
            "w.yaml:5: `run` of task 'c': '{{.Name}}' is not defined; ",
            "write {{{{ for a literal {{",
        ],
    ),
    (
        "params",
        "params:\n  a: [1]\n  task: 2\ntasks: {a: {run: x}}\n",
        [
            "w.yaml:2: the param 'a' is a list or mapping; write one text",
            "w.yaml:3: 'task' cannot be a param's name",
        ],
    ),
    (
        "loops",
        "tasks:\n  a: {run: x, for: {i: []}}\n  b: {run: x, for: {i: 7}}\n"
        "  c: {run: x, for: [1]}\n  d: {run: x, for: {i: 1..x}}\n  e: {run: x, for: {i: [[1]]}}\n"
        "  f: {run: x, for: {i: {a: b}}}\n  g: {run: x, for: {'i j': [1]}}\n"
        "  h: {run: x, for: {task: [1]}}\n  i:j: {run: x, for: {i: [1]}}\n",
        [
            "w.yaml:2: `for: i` of task 'a' is an empty list; write a list or a range",
            "w.yaml:3: `for: i` of task 'b' has no values; write a list or a range",
            "w.yaml:4: `for` of task 'c' is a list; write names and values",
            "w.yaml:5: `for: i` of task 'd': '1..x' is not a range; write first..last",
            "w.yaml:6: `for: i` of task 'e' has no values; ",
            "w.yaml:7: `for: i` of task 'f' has no values; ",
            "w.yaml:8: 'i j' cannot be a loop's name in task 'g'",
            "w.yaml:9: 'task' cannot be a loop's name in task 'h'",
            "w.yaml:10: 'i:j' cannot be a task's name",
        ],
    ),
    (
        "too many tasks",
        "tasks:\n  a: {run: x, for: {i: 1..2000, j: 1..2000}}\n",
        ["w.yaml:2: `for` of task 'a' makes 4,000,000 tasks; a workflow may have 2,000,000"],
    ),
    (
        "equal loop values",
        "tasks:\n  a: {run: x, for: {i: [1, 1]}}\n",
        ["w.yaml:2: two tasks are named 'a:1'; give one of them another name"],
    ),
    (
        "control character in a name",
        'tasks:\n  a: {run: x, for: {i: ["b\\nc"]}}\n',
        ["w.yaml:2: 'a:b\\nc' cannot be a task's name; use 1 to 1000 characters"],
    ),
    (
        "stdin and in_place",
        "tasks:\n  a: {run: x, stdin: 'data/*'}\n  b: {run: x, inputs: big.txt, in_place: [c]}\n",
        [
            "w.yaml:2: the stdin 'data/*' of task 'a' is 2 files; name one file",
            "w.yaml:3: 'c' in `in_place` of task 'b' is not among its inputs; add it",
        ],
    ),
    (
        "defaults",
        "defaults:\n  run: x\n  retires: 2\ntasks: {a: {run: x}}\n",
        [
            "w.yaml:2: `defaults` has the unknown key 'run'; ",
            "w.yaml:3: `defaults` has the unknown key 'retires'; did you mean 'retries'?",
        ],
    ),
]


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    (tmp_path / "big.txt").touch()
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "1.csv").touch()
    (tmp_path / "data" / "2.csv").touch()
    return tmp_path


@pytest.mark.parametrize(("text", "said"), [case[1:] for case in BAD], ids=[c[0] for c in BAD])
def test_what_is_said(text: str | bytes, said: list[str], directory: Path) -> None:
    with pytest.raises(WorkflowError) as error:
        read_yaml(text, file="w.yaml", directory=directory)
    message = str(error.value)
    for part in said:
        assert part in message, message
    # one mistake each, and no others that merely follow from them
    beginnings = [part for part in said if part.startswith("w.yaml") or len(said) == 1]
    assert len(error.value.mistakes) == len(beginnings), message


def test_overrides_of_unknown_params_are_mistakes(tmp_path: Path) -> None:
    with pytest.raises(WorkflowError) as error:
        read_yaml(
            "params: {size: 1}\ntasks: {a: {run: x}}",
            file="w.yaml",
            directory=tmp_path,
            overrides={"siez": "2"},
        )
    assert "there is no param 'siez' to set; did you mean 'size'?" in str(error.value)


def test_many_alike_mistakes_are_folded(tmp_path: Path) -> None:
    blocks = "".join(f"  t{i}: {{run: x, inputs: gone{i}}}\n" for i in range(50))
    with pytest.raises(WorkflowError) as error:
        read_yaml(
            f"tasks:\n  s: {{run: x, for: {{i: 1..1000}}, inputs: 'n.{{{{i}}}}'}}\n{blocks}",
            file="w.yaml",
            directory=tmp_path,
        )
    messages = [str(mistake) for mistake in error.value.mistakes]
    assert "w.yaml:2: and 992 more missing inputs in this block" in messages
    assert messages[-1] == "w.yaml: and 38 more missing inputs"
    assert len(messages) == 20 + 2


def test_broken_outputs_bring_no_mistakes_about_their_readers(tmp_path: Path) -> None:
    with pytest.raises(WorkflowError) as error:
        read_yaml(
            "tasks:\n  a: {run: x, outputs: ['{{oops}}']}\n  b: {run: x, inputs: made}\n",
            file="w.yaml",
            directory=tmp_path,
        )
    assert [mistake.line for mistake in error.value.mistakes] == [2]


def test_aliases_that_multiply_are_refused_quickly(tmp_path: Path) -> None:
    layers = ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    for i in range(1, 20):
        layers.append(f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]")
    with pytest.raises(WorkflowError) as error:
        read_yaml(
            "\n".join([*layers, "tasks: {a: {run: x, inputs: *a19}}"]),
            file="w.yaml",
            directory=tmp_path,
        )
    assert "`inputs` of task 'a' is a list; write one text" in str(error.value)


def test_tasks_made_in_python_are_checked_too(tmp_path: Path) -> None:
    run = Command("x")
    draft = Draft(
        "w",
        [
            Task("a", run, retries=-1),
            Task("b", run, timeout_s=0),
            Task("b", run),
            Task("", run),
            Task("c", Command("")),
        ],
    )
    with pytest.raises(WorkflowError) as error:
        check(draft, directory=tmp_path)
    assert [str(mistake) for mistake in error.value.mistakes] == [
        "two tasks are named 'b'; give one of them another name",
        "'' cannot be a task's name; use 1 to 1000 characters without control characters",
        "task 'a' has -1 retries; give zero or more",
        "task 'b' has a timeout of 0 seconds; give more than zero, or leave it out",
        "`run` of task 'c' is empty; write the command line to run",
    ]


def test_more_links_than_memory_can_hold_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sureline.workflow.check.LINKS_MAX", 99)
    monkeypatch.setattr("sureline.workflow.resolve.LINKS_MAX", 99)
    many = "tasks:\n  a: {run: x, for: {i: 1..10}, outputs: 'o.{{i}}'}\n"
    for link, said in (
        ("after: a", "`after` makes more"),
        ("inputs: 'o.*'", "the tasks read more"),
    ):
        with pytest.raises(WorkflowError) as error:
            read_yaml(
                f"{many}  b: {{run: x, for: {{i: 1..10}}, {link}}}",
                file="w.yaml",
                directory=tmp_path,
            )
        assert f"w.yaml: {said} than 99 " in str(error.value)
        assert len(error.value.mistakes) == 1


BROKEN = """\
name: x
params: {p: &a 1}
defaults: {retries: 1}
tasks:
  s:
    for: {i: 1..3, j: [x, y]}
    run: |
      a {{i}} {{task}}
    outputs: ['o.{{i}}.{{j}}']
    needs: {tags: [ssd], matlab: *a}
  t: {run: "b {{p}}", inputs: 'o.*', after: [s], in_place: true, env: {A: b}}
"""
SPLINTERS = [
    "{",
    "}",
    "[",
    "]",
    ":",
    "-",
    "\n",
    "  ",
    "{{",
    "}}",
    "*",
    "&a",
    "*a",
    "'",
    '"',
    "..",
    "~",
]


@given(st.data())
@settings(max_examples=200, deadline=None)
def test_a_broken_file_is_a_mistake_never_a_crash(data: st.DataObject) -> None:
    text = BROKEN
    for _ in range(data.draw(st.integers(1, 3))):
        start = data.draw(st.integers(0, len(text)))
        end = min(len(text), start + data.draw(st.integers(0, 8)))
        text = text[:start] + data.draw(st.sampled_from([*SPLINTERS, ""])) + text[end:]
    try:
        read_yaml(text, file="w.yaml", directory=Path("nowhere"))
    except WorkflowError as error:
        assert error.mistakes
        assert all(mistake.file == "w.yaml" for mistake in error.mistakes)
