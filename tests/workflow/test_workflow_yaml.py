"""What a sound YAML file means: loops, templates, files, defaults."""

from __future__ import annotations

from pathlib import Path

import pytest

from sureline.workflow.check import Reading
from sureline.workflow.model import Command, Needs, Takes, Task
from sureline.workflow.yaml_reader import read_yaml

WORDCOUNT = """\
name: wordcount
params: {big: big.txt}
tasks:
  split:
    run: split -n l/2 -d {{big}} part.
    inputs: ["{{big}}"]
    outputs: [part.00, part.01]
    takes: 1s .. 3s .. 10s
  count:
    for: {i: ["00", "01"]}
    run: wc -w part.{{i}} > count.{{i}}
    inputs: ["part.{{i}}"]
    outputs: ["count.{{i}}"]
    needs: {cores: 1, memory: 200MB}
    retries: 2
    timeout: 5 min
  total:
    run: cat count.* | awk '{s+=$1} END {print s}' > total.txt
    inputs: ["count.*"]
    outputs: [total.txt]
"""


class Files:
    """A disk that holds just these paths."""

    def __init__(self, *paths: str) -> None:
        self.paths = paths

    def exists(self, path: str) -> bool:
        return any(p == path or p.startswith(path + "/") for p in self.paths)

    def names(self, directory: str, depth: int | None) -> list[str]:
        start = f"{directory}/" if directory else ""
        return [
            path
            for path in self.paths
            if path.startswith(start) and (depth is None or path[len(start) :].count("/") < depth)
        ]


def read(text: str, *files: str, **overrides: str) -> Reading:
    return read_yaml(
        text, file="w.yaml", directory=Path("nowhere"), overrides=overrides, disk=Files(*files)
    )


def tasks(body: str, *files: str) -> dict[str, Task]:
    return {task.name: task for task in read(f"tasks:\n{body}", *files).graph.tasks}


def test_the_example() -> None:
    reading = read(WORDCOUNT, "big.txt")
    graph = reading.graph
    assert graph.name == "wordcount"
    assert graph.params == {"big": "big.txt"}
    assert reading.lines == {"split": 4, "count:00": 9, "count:01": 9, "total": 17}
    assert graph.tasks == (
        Task(
            "split",
            Command("split -n l/2 -d big.txt part."),
            inputs=("big.txt",),
            outputs=("part.00", "part.01"),
            takes=Takes(1, 3, 10),
        ),
        *(
            Task(
                f"count:{i}",
                Command(f"wc -w part.{i} > count.{i}"),
                inputs=(f"part.{i}",),
                outputs=(f"count.{i}",),
                needs=Needs(memory_bytes=200_000_000),
                retries=2,
                timeout_s=300,
                kind="count",
            )
            for i in ("00", "01")
        ),
        Task(
            "total",
            Command("cat count.* | awk '{s+=$1} END {print s}' > total.txt"),
            inputs=("count.00", "count.01"),
            outputs=("total.txt",),
        ),
    )
    assert graph.parents == [(), (0,), (0,), (1, 2)]
    assert graph.children == [[1, 2], [3], [3], []]
    assert graph.external == ("big.txt",)


def test_overrides_replace_params_and_those_that_use_them() -> None:
    text = "params: {a: x, b: '{{a}}.txt'}\ntasks: {t: {run: 'cat {{b}}', inputs: '{{b}}'}}"
    assert read(text, "x.txt").graph.external == ("x.txt",)
    graph = read(text, "y.txt", a="y").graph
    assert graph.external == ("y.txt",)
    assert graph.params == {"a": "y", "b": "y.txt"}


def test_overrides_are_text_not_templates() -> None:
    graph = read("params: {a: x}\ntasks: {t: {run: 'echo {{a}}'}}", a="{{a}}").graph
    assert graph.tasks[0].action == Command("echo {{a}}")


def test_scalars_stay_text() -> None:
    found = tasks("  t: {run: echo, for: {i: [00, yes, 1.0, 0x1F, null]}, env: {A: no, B: 010}}")
    assert list(found) == ["t:00", "t:yes", "t:1.0", "t:0x1F", "t:null"]
    assert found["t:00"].env == {"A": "no", "B": "010"}


def test_several_loops_give_the_product_in_order() -> None:
    found = tasks("  s: {run: 'x {{b}} {{a}}', for: {a: [p, q], b: 1..2}}")
    assert list(found) == ["s:p:1", "s:p:2", "s:q:1", "s:q:2"]
    assert found["s:q:1"].action == Command("x 1 q")
    assert found["s:q:1"].kind == "s"


def test_templates_everywhere() -> None:
    graph = read(
        "params: {n: 2, unit: s}\n"
        "tasks:\n"
        "  first: {run: x, outputs: [in.1, in.2]}\n"
        "  t:\n"
        "    for: {i: '1..{{n}}'}\n"
        "    run: 'echo {{task}} {{ i }} 100% {{{{literal}} ${{{i}}}'\n"
        "    stdin: in.{{i}}\n"
        "    outputs: ['out.{{i}}']\n"
        "    after: ['first']\n"
        "    env: {I: '{{i}}{{i}}'}\n"
        "    takes: '{{i}}{{unit}}'\n"
        "    timeout: '{{i}} min'\n"
        "    retries: '{{n}}'\n"
        "    needs: {cores: '{{i}}', gpu_kind: '{{i}}'}\n"
    ).graph
    assert graph.tasks[2] == Task(
        "t:2",
        Command("echo t:2 2 100% {{literal}} ${2}"),
        inputs=("in.2",),
        outputs=("out.2",),
        after=("first",),
        needs=Needs(cores=2, tags=(("gpu_kind", 2),)),
        takes=Takes(2, 2, 2),
        retries=2,
        timeout_s=120,
        env={"I": "22"},
        stdin="in.2",
        kind="t",
    )


def test_after_a_block_means_all_its_tasks_and_a_name_just_one() -> None:
    found = tasks(
        "  a: {run: x, for: {i: 1..3}}\n  b: {run: x, after: a}\n"
        "  c: {run: x, for: {i: 1..3}, after: ['a:{{i}}']}"
    )
    assert found["b"].after == ("a:1", "a:2", "a:3")
    assert found["c:2"].after == ("a:2",)


def test_defaults_apply_unless_a_task_says_otherwise() -> None:
    graph = read(
        "defaults: {retries: 3, timeout: 1h, needs: {cores: 2, memory: 1GB}, env: {A: a, B: b}}\n"
        "tasks:\n  s: {run: x}\n  t: {run: x, retries: 0, needs: {cores: 4}, env: {B: c}}\n"
    ).graph
    assert graph.tasks == (
        Task(
            "s",
            Command("x"),
            retries=3,
            timeout_s=3600,
            needs=Needs(cores=2, memory_bytes=10**9),
            env={"A": "a", "B": "b"},
        ),
        Task(
            "t",
            Command("x"),
            timeout_s=3600,
            needs=Needs(cores=4, memory_bytes=10**9),
            env={"A": "a", "B": "c"},
        ),
    )


@pytest.mark.parametrize(
    ("needs", "tags"),
    [
        ("{tags: [ssd, big]}", (("ssd", 1), ("big", 1))),
        ("{tags: ssd}", (("ssd", 1),)),
        ("{tags: {cores: 2}}", (("cores", 2),)),
        ("{matlab: 2, ssd: true}", (("matlab", 2), ("ssd", 1))),
    ],
)
def test_tags(needs: str, tags: tuple[tuple[str, int], ...]) -> None:
    assert tasks(f"  t: {{run: x, needs: {needs}}}")["t"].needs == Needs(tags=tags)


def test_paths_are_normalised_and_repeated_ones_dropped() -> None:
    found = tasks(
        "  s: {run: x, outputs: [./a//b, c/../d/, e]}\n"
        "  t: {run: x, inputs: [a/b, ./d, a//b, 'd/inner', e]}"
    )
    assert found["s"].outputs == ("a/b", "d", "e")
    assert found["t"].inputs == ("a/b", "d", "d/inner", "e")


def test_declared_outputs_come_before_existing_files() -> None:
    found = tasks(
        "  s: {run: x, outputs: [c.1, sub/c.2]}\n"
        "  t: {run: x, inputs: 'c.*', outputs: c.all}\n"
        "  u: {run: x, inputs: 'd.*', outputs: d.all}",
        *("c.0", "c.1", "d.2", "d.1", "d.all"),
    )
    assert found["t"].inputs == ("c.1",)
    assert found["u"].inputs == ("d.1", "d.2")


def test_a_directory_that_several_tasks_fill_is_what_they_make_in_it() -> None:
    graph = read(
        "tasks:\n  a: {run: x, outputs: d/a}\n  b: {run: x, outputs: d/b}\n"
        "  c: {run: x, inputs: d/}\n",
        "d/left-over",
    ).graph
    assert graph.tasks[2].inputs == ("d/a", "d/b")
    assert graph.parents[2] == (0, 1)


def test_in_place_and_stdin() -> None:
    found = tasks(
        "  a: {run: x, inputs: ['big*', small], in_place: true}\n"
        "  b: {run: x, inputs: ['big*', small], in_place: ['big*']}\n"
        "  c: {run: x, inputs: small, stdin: big1, in_place: big1}\n"
        "  d: {run: x, inputs: small, in_place: false}",
        *("big1", "big2", "small"),
    )
    assert found["a"].in_place == ("big1", "big2", "small")
    assert found["b"].in_place == ("big1", "big2")
    assert (found["c"].inputs, found["c"].stdin) == (("small", "big1"), "big1")
    assert found["c"].in_place == ("big1",)
    assert found["d"].in_place == ()


def test_anchors_can_be_shared() -> None:
    found = tasks("  s: {run: x, needs: &n {cores: 3}}\n  t: {run: x, needs: *n}")
    assert found["t"].needs == Needs(cores=3)


def test_a_param_nobody_uses_is_a_warning() -> None:
    reading = read("params:\n  a: 1\n  b: '{{a}}'\n  c: 3\ntasks: {t: {run: 'echo {{b}}'}}")
    assert [str(w) for w in reading.warnings] == [
        "w.yaml:4: the param 'c' is used nowhere; remove it"
    ]


def test_a_byte_order_mark_and_windows_line_ends_are_no_trouble() -> None:
    text = "\ufefftasks:\r\n  t:\r\n    run: |\r\n      a\r\n      b\r\n"
    graph = read_yaml(text.encode(), file="w.yaml", directory=Path("nowhere"), disk=Files()).graph
    assert graph.tasks[0].action == Command("a\nb\n")
    assert graph.name == "w"
