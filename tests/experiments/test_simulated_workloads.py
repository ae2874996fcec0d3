"""Workloads to simulate: their shapes, their work, and what their commands make."""

from __future__ import annotations

import msgspec
import pytest

from sureline.experiments.distributions import Distribution, constant
from sureline.experiments.invariants import right_outputs
from sureline.experiments.scenario import GENERATED, Workload
from sureline.experiments.work import Work, made_digest, user_digest
from sureline.experiments.workloads import workload_graph
from sureline.peer.jobs import CommandJob
from sureline.workflow.files import FileRecord
from sureline.workflow.mistakes import WorkflowError
from sureline.workflow.model import Command, Graph, Takes, Task
from sureline.workflow.shapes import levels

TRACE = {
    "name": "small",
    "schemaVersion": "1.5",
    "workflow": {
        "specification": {
            "tasks": [
                {
                    "name": "split",
                    "id": "split_1",
                    "parents": [],
                    "children": ["count_1"],
                    "inputFiles": ["/data/in.txt"],
                    "outputFiles": ["/tmp/a.txt"],
                },
                {
                    "name": "count",
                    "id": "count_1",
                    "parents": ["split_1"],
                    "children": [],
                    "inputFiles": ["/tmp/a.txt"],
                    "outputFiles": ["../b.txt"],
                },
            ],
            "files": [
                {"id": "/data/in.txt", "sizeInBytes": 1000},
                {"id": "/tmp/a.txt", "sizeInBytes": 300},
                {"id": "../b.txt", "sizeInBytes": 5},
            ],
        },
        "execution": {
            "makespanInSeconds": 12,
            "executedAt": "2024-01-01T00:00:00Z",
            "tasks": [
                {"id": "split_1", "runtimeInSeconds": 4.5, "command": {"program": "split"}},
                {"id": "count_1", "runtimeInSeconds": 2.0},
            ],
        },
    },
}


def made(kind, **fields):
    return workload_graph(Workload(kind, work_s=constant(5.0), **fields), seed=1)


@pytest.mark.parametrize("kind", GENERATED)
def test_generated_workflows_follow_the_seed_and_are_whole(kind):
    workload = Workload(kind, tasks=60, levels=5, work_s=Distribution("lognormal", (30.0, 0.5)))
    graph = workload_graph(workload, seed=3)
    assert graph.to_bytes() == workload_graph(workload, seed=3).to_bytes()
    assert workload_graph(workload, seed=4).to_bytes() != graph.to_bytes()
    assert len({task.name for task in graph.tasks}) == len(graph)
    assert all(task.takes is not None for task in graph.tasks)
    for path in [*graph.external, *graph.producer]:
        assert path in graph.file_sizes


def test_shapes():
    assert levels(made("chain", tasks=7)) == list(range(7))
    fork = made("fork-join", width=4, levels=2)
    assert sorted(levels(fork)) == [0] * 4 + [1] + [2] * 4 + [3]
    layered = made("layered", tasks=50, levels=5, parents=2)
    assert sorted(set(levels(layered))) == [0, 1, 2, 3, 4]
    assert max(len(parents) for parents in layered.parents) <= 2
    mosaic = made("montage", width=6)
    assert len(mosaic) == 6 + 9 + 2 + 6 + 4
    assert mosaic.tasks[max(range(len(mosaic)), key=levels(mosaic).__getitem__)].name == "jpeg"


def test_a_trace_keeps_its_files_sizes_and_runtimes(tmp_path):
    path = tmp_path / "t.json"
    path.write_bytes(msgspec.json.encode(TRACE))
    graph = workload_graph(
        Workload("workflow", file=path, work_factor=2.0, size_factor=10.0), seed=1
    )
    split, count = graph.tasks
    assert split.inputs == ("data/in.txt",)
    assert graph.parents == [(), (0,)]
    assert (split.takes, count.takes) == (Takes(9.0, 9.0, 9.0), Takes(4.0, 4.0, 4.0))
    assert graph.file_sizes == {"data/in.txt": 10_000, "tmp/a.txt": 3000, "b.txt": 50}


def test_a_yaml_workflow_needs_no_real_inputs_but_must_be_sound(tmp_path):
    path = tmp_path / "flow.yaml"
    path.write_text(
        "tasks:\n  a:\n    run: sort in.txt > out.txt\n    inputs: in.txt\n"
        "    outputs: out.txt\n    takes: 1s .. 2s .. 9s\n"
    )
    graph = workload_graph(Workload("workflow", file=path, retries=4), seed=1)
    assert (graph.tasks[0].takes, graph.tasks[0].retries) == (Takes(1, 2, 9), 4)
    path.write_text("tasks:\n  a:\n    runn: x\n")
    with pytest.raises(WorkflowError, match="runn"):
        workload_graph(Workload("workflow", file=path), seed=1)


def job(graph, name, attempt=1, inputs=()):
    task = graph.tasks[graph.index[name]]
    return CommandJob(f"0.{attempt}", name, attempt, task.action.run, inputs, task.outputs)


def test_work_is_drawn_once_per_task_within_its_estimate():
    tasks = [Task(f"t{n}", Command("x"), takes=Takes(1, 2, 9)) for n in range(200)]
    graph = Graph("g", tasks)
    work, again = Work(graph, seed=5), Work(graph, seed=5)
    seconds = [work.seconds(job(graph, task.name)) for task in tasks]
    assert seconds == [again.seconds(job(graph, task.name, attempt=2)) for task in tasks]
    assert all(1 <= s <= 9 for s in seconds)
    assert sum(seconds) / len(seconds) == pytest.approx(3.0, rel=0.15)  # (1 + 4 * 2 + 9) / 6


def test_failures_by_kind_and_probability():
    tasks = [Task(f"{kind}:{n}", Command("x")) for kind in ("good", "bad") for n in range(300)]
    graph = Graph("g", tasks)
    work = Work(graph, seed=1, fail=0.0, fail_kinds={"bad": 0.3})
    failing = [t.name for t in tasks if work.fails_after(job(graph, t.name)) is not None]
    assert all(name.startswith("bad") for name in failing)
    assert 60 < len(failing) < 120


def test_what_a_command_makes_can_be_computed_again():
    graph = made("chain", tasks=3)
    work = Work(graph, seed=1)
    file = work.user_file("input.dat")
    assert file.digest == user_digest("input.dat")
    for name in ("step:1", "step:2", "step:3"):
        (file,) = work.outputs(job(graph, name, inputs=(file,)))
    assert {file.path: file.digest} == {"step3.dat": right_outputs(graph)["step3.dat"]}
    assert file.size == graph.file_sizes["step3.dat"]
    other = FileRecord("step2.dat", "0" * 64, 1)
    assert work.outputs(job(graph, "step:3", inputs=(other,)))[0].digest != file.digest


def test_a_made_file_depends_on_command_inputs_and_place():
    digests = {
        made_digest("sort", [("a", "1"), ("b", "2")], "out"),
        made_digest("sort", [("a", "2"), ("b", "1")], "out"),
        made_digest("sort", [("a", "1")], "out"),
        made_digest("uniq", [("a", "1"), ("b", "2")], "out"),
        made_digest("sort", [("a", "1"), ("b", "2")], "other"),
    }
    assert len(digests) == 5
    one = made_digest("sort", [("a", "1"), ("b", "2")], "out")
    assert one == made_digest("sort", [("b", "2"), ("a", "1")], "out")
