"""WfFormat: reading small instances, their quirks and mistakes; and real traces where given."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from sureline.workflow import wfformat
from sureline.workflow.collect import Collector
from sureline.workflow.mistakes import UserError, WorkflowError
from sureline.workflow.model import Command, Graph, Needs, Pause, Takes, Task
from sureline.workflow.read import read_workflow
from sureline.workflow.shapes import topological_order
from sureline.workflow.wfformat_reader import read_instance, read_wfformat


def specified(name: str, **fields: Any) -> dict[str, Any]:
    return {"name": name, "id": name, "parents": [], "children": [], **fields}


def executed(name: str, seconds: float, *words: str, **fields: Any) -> dict[str, Any]:
    command = {"program": words[0], "arguments": list(words[1:])} if words else {}
    return {"id": name, "runtimeInSeconds": seconds, "command": command, **fields}


def instance(
    tasks: list[dict[str, Any]], runs: list[dict[str, Any]], files: dict[str, int] | None = None
) -> dict[str, Any]:
    sizes = [{"id": path, "sizeInBytes": size} for path, size in (files or {}).items()]
    return {
        "name": "small",
        "schemaVersion": "1.5",
        "workflow": {
            "specification": {"tasks": tasks, "files": sizes},
            "execution": {"makespanInSeconds": 9, "executedAt": "2024-01-01", "tasks": runs},
        },
    }


SMALL = instance(
    [
        specified("split_ID01", outputFiles=["a", "b"], inputFiles=["in"], children=["use_ID03"]),
        specified("use_ID02", inputFiles=["a"], outputFiles=["c"], parents=["split_ID01"]),
        specified("use_ID03", outputFiles=["d"]),
        specified("end", parents=["use_ID02"], inputFiles=["d", "e"], outputFiles=["e"]),
    ],
    [
        executed("split_ID01", 2.5, "split", "in file", "it's"),
        executed("use_ID02", 10, "use", "a", coreCount=2, memoryInBytes=1000.0),
        executed("use_ID03", 0, "use"),
        executed("end", 1, "end"),
    ],
    {"in": 100, "a": 50},
)


def read(data: dict[str, Any], pretend: bool = False, speed: float = 1, text: str = "") -> Graph:
    class Everything:
        def exists(self, path: str) -> bool:
            return True

        def names(self, directory: str, depth: int | None) -> list[str]:
            return []

    return read_wfformat(
        (text or json.dumps(data, indent=1)).encode(),
        file="t.json",
        directory=Path("nowhere"),
        pretend=pretend,
        speed=speed,
        disk=Everything(),
    ).graph


def test_pretended_tasks_pause_and_keep_the_edges() -> None:
    graph = read(SMALL, pretend=True, speed=10)
    assert graph.tasks == (
        Task("split_ID01", Pause(0.25), takes=Takes(0.25, 0.25, 0.25)),
        Task("use_ID02", Pause(1), after=("split_ID01",), takes=Takes(1, 1, 1)),
        Task("use_ID03", Pause(0), after=("split_ID01",), takes=Takes(0, 0, 0)),
        Task("end", Pause(0.1), after=("use_ID02", "use_ID03"), takes=Takes(0.1, 0.1, 0.1)),
    )
    assert graph.file_sizes == {"in": 100, "a": 50}
    assert [task.kind_name for task in graph.tasks] == ["split", "use", "use", "end"]


def test_real_tasks_run_commands_and_name_files() -> None:
    graph = read(SMALL)
    assert graph.tasks[0].action == Command("""split 'in file' 'it'"'"'s'""")
    assert graph.tasks[1].needs == Needs(cores=2, memory_bytes=1000)
    # the edge that a file explains is not repeated; the one that none explains is
    assert graph.tasks[1].after == ()
    assert graph.tasks[2].after == ("split_ID01",)
    # an input that the task itself makes is dropped
    assert graph.tasks[3].inputs == ("d",)
    assert graph.parents == [(), (0,), (0,), (2, 1)]


def test_tasks_that_share_a_name_share_a_kind() -> None:
    data = instance(
        [{**specified("align"), "id": "x1"}, {**specified("align"), "id": "y2"}],
        [executed("x1", 1), executed("y2", 1)],
    )
    graph = read(data, pretend=True)
    assert [(task.name, task.kind_name) for task in graph.tasks] == [
        ("x1", "align"),
        ("y2", "align"),
    ]


def test_several_writers_of_a_file_matter_only_when_it_is_run() -> None:
    data = instance(
        [
            specified("a", outputFiles=["/abs"]),
            specified("b", outputFiles=["/abs"]),
            specified("c", inputFiles=["/abs", "http://x/*"]),
        ],
        [executed(name, 1, "x") for name in "abc"],
    )
    assert read(data, pretend=True).parents == [(), (), (0,)]
    with pytest.raises(WorkflowError, match=r"t.json:\d+: task 'a': '/abs' is absolute"):
        read(data)


BAD = [
    ("", "t.json: the file is empty; write a WfFormat"),
    ('{"name": "x",\n "schemaVersion"', "t.json:2: not valid JSON: "),
    ('{"name": "x",\n oops}', "t.json:2: not valid JSON: "),
    ("[]", "t.json:1: Expected `object`, got `array`; see the format"),
    ('{"name": "x", "schemaVersion": "0.9"}', "t.json:1: WfFormat 0.9 is not understood; migrate"),
    ('{"name": "x",\n"schemaVersion": "1.5"}', "t.json:1: missing required field `workflow`"),
    (
        '{"name": "x", "schemaVersion": "1.5", "workflow": {"specification":\n{"tasks": [\n'
        '\t{"name": "a"}]}}}',
        "t.json:3: missing required field `id` in `workflow.specification.tasks[0]`; see",
    ),
    (
        '{"name": "x", "schemaVersion": "1.5",\n"workflow": {"specification": {"tasks": []}}}',
        "t.json: there are no tasks; describe at least one",
    ),
    (
        json.dumps(instance([specified("a", parents=["b"])], [executed("a", 1, "x")])),
        "t.json:1: task 'a' has the parent 'b', which is not a task; ",
    ),
    (
        json.dumps(instance([specified("abc", children=["abx"])], [executed("abc", 1, "x")])),
        "t.json:1: task 'abc' has the child 'abx', which is not a task; did you mean 'abc'?",
    ),
    (
        json.dumps(instance([specified("a")], [executed("a", 1)])),
        "t.json:1: task 'a' has no program to run; add `command` to its execution, or use --preten",
    ),
    (
        json.dumps(
            instance(
                [specified("a", parents=["b"]), specified("b", parents=["a"])],
                [executed("a", 1, "x"), executed("b", 1, "x")],
            )
        ),
        "t.json:1: tasks wait for each other: a -> b -> a; remove",
    ),
    (
        json.dumps(instance([specified("a"), specified("a")], [executed("a", 1, "x")])),
        "t.json:1: two tasks are named 'a'; give",
    ),
]


@pytest.mark.parametrize(("text", "said"), BAD)
def test_mistakes(text: str, said: str) -> None:
    with pytest.raises(WorkflowError) as error:
        read({}, text=text or " ")
    assert said in str(error.value)
    assert len(error.value.mistakes) == 1


def test_not_utf8() -> None:
    with pytest.raises(WorkflowError, match=r"t\.json:2: the byte 0xff is not UTF-8"):
        read_instance(b'{"name":\n"\xff"}', "t.json")


def test_negative_runtimes_are_mistakes() -> None:
    data = instance([specified("a")], [executed("a", -1)])
    with pytest.raises(WorkflowError, match=r"t.json:\d+: task 'a' takes -1.0 seconds"):
        read(data, pretend=True)


def test_version_1_4_is_read_as_1_5() -> None:
    old = {
        "name": "old",
        "schemaVersion": "1.4",
        "wms": {"name": "Pegasus", "version": "5"},
        "workflow": {
            "makespanInSeconds": 5,
            "executedAt": "then",
            "tasks": [
                {
                    "name": "a",
                    "type": "compute",
                    "runtimeInSeconds": 2,
                    "cores": 4,
                    "command": {"program": "a", "arguments": ["-x"]},
                    "parents": [],
                    "children": ["b"],
                    "files": [
                        {"link": "input", "name": "i", "sizeInBytes": 3},
                        {"link": "output", "name": "o", "sizeInBytes": 4},
                    ],
                },
                {"name": "b", "type": "compute", "runtimeInSeconds": 1, "parents": ["a"]},
            ],
        },
    }
    found = read_instance(json.dumps(old).encode(), "t.json")
    assert found.schema_version == "1.5"
    assert found.workflow.specification.tasks[0] == wfformat.SpecifiedTask(
        "a", "a", (), ("b",), ("i",), ("o",)
    )
    graph = read(old, pretend=True)
    assert graph.parents == [(), (0,)]
    assert graph.tasks[0].action == Pause(2)
    assert graph.file_sizes == {"i": 3, "o": 4}


def test_a_graph_becomes_an_instance_that_runs_the_same() -> None:
    graph = Graph(
        "w",
        [
            Task("a", Command("echo 'x y'"), outputs=("o",), needs=Needs(cores=2)),
            Task("b", Command("cat o | wc"), inputs=("o",), takes=Takes(1, 2, 3)),
        ],
    )
    made = wfformat.from_graph(graph, {"a": 1.5}, file_sizes={"o": 7})
    assert made.workflow.execution is not None
    first, second = made.workflow.execution.tasks
    assert first.command == wfformat.InstanceProgram("echo", ("x y",))
    assert (first.runtime_in_seconds, second.runtime_in_seconds) == (1.5, 2)
    assert second.command == wfformat.InstanceProgram("/bin/sh", ("-c", "cat o | wc"))
    assert made.workflow.specification.tasks[0].children == ("b",)
    assert made.workflow.specification.files == (wfformat.File("o", 7),)
    draft = wfformat.to_draft(made, pretend=False, speed=1, found=Collector(None))
    assert [task.action for task in draft.tasks] == [
        Command("echo 'x y'"),
        Command("/bin/sh -c 'cat o | wc'"),
    ]


TRACES = os.environ.get("SURELINE_TRACES")


@pytest.mark.skipif(not TRACES, reason="SURELINE_TRACES names no folder of WfFormat traces")
def test_real_traces_are_read_whole() -> None:
    files = sorted(Path(TRACES or "").glob("*.json"))
    assert files
    for file in files:
        raw = json.loads(file.read_bytes())
        found = read_instance(file.read_bytes(), file.name)
        assert json.loads(wfformat.encode(found)) == raw, file.name
        graph = read_workflow(file, directory=file.parent, pretend=True, speed=100).graph
        spec = raw["workflow"]["specification"]["tasks"]
        edges = {(parent, task["id"]) for task in spec for parent in task["parents"]}
        names = [task.name for task in graph.tasks]
        kept = {(names[p], names[i]) for i, ps in enumerate(graph.parents) for p in ps}
        assert edges <= kept, file.name
        assert len(topological_order(graph)) == len(spec)


def test_a_trace_has_no_params(tmp_path: Path) -> None:
    file = tmp_path / "t.json"
    file.write_text(json.dumps(SMALL))
    with pytest.raises(UserError, match="no params to set"):
        read_workflow(file, directory=tmp_path, overrides={"a": "b"}, pretend=True)
