"""Laws: a graph written as YAML and read again is the same, and so is a WfFormat instance."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sureline.workflow import wfformat
from sureline.workflow.globs import is_glob
from sureline.workflow.mistakes import UserError
from sureline.workflow.model import Call, Command, Graph, Needs, Pause, Takes, Task
from sureline.workflow.yaml_needs import NEEDS_KEYS
from sureline.workflow.yaml_reader import read_yaml
from sureline.workflow.yaml_writer import write_yaml

NOWHERE = Path("nowhere")


class Anything:
    """A disk where every path exists, and those given can be listed."""

    def __init__(self, paths: set[str]) -> None:
        self.paths = paths

    def exists(self, path: str) -> bool:
        return True

    def names(self, directory: str, depth: int | None) -> list[str]:
        return sorted(self.paths)


# any text a file can hold: no surrogates, no NUL
texts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=12)
lines = st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1, max_size=12)
block_names = st.from_regex(r"[A-Za-z0-9_.-]{1,8}", fullmatch=True)
task_names = block_names | st.builds(lambda b, v: f"{b}:{v}", block_names, lines)
seconds = st.floats(0, 1e6)
awkward_tags = st.sampled_from([*NEEDS_KEYS, "core", "memroy"])


@st.composite
def needs(draw: st.DrawFn) -> Needs:
    tags = draw(st.dictionaries(block_names | awkward_tags, st.integers(1, 9), max_size=3))
    return Needs(
        cores=draw(st.floats(0.001, 1000)),
        memory_bytes=draw(st.integers(0, 2**50)),
        disk_bytes=draw(st.integers(0, 2**50)),
        gpus=draw(st.integers(0, 8)),
        tags=tuple(tags.items()),
    )


def _is_plain_name(path: str) -> bool:
    return "/" not in path and path not in (".", "..", ".sureline")


names = lines.filter(_is_plain_name)


@st.composite
def graphs(draw: st.DrawFn) -> Graph:
    found: list[Task] = []
    made: list[str] = []
    # three directories keep made, read and shared names apart: no clashes to avoid
    for number, name in enumerate(draw(st.lists(task_names, unique=True, min_size=1, max_size=6))):
        outputs = [
            f"made/{number}.{n}"
            for n in draw(st.lists(names, unique=True, max_size=3))
            if not is_glob(f"made/{number}.{n}")
        ]
        some = st.sampled_from(made) if made else st.nothing()
        earlier = st.sampled_from([t.name for t in found]) if found else st.nothing()
        external = names.map(lambda n: f"data/{n}")
        inputs = draw(st.lists(external | some, unique=True, max_size=4))
        three = sorted(draw(st.lists(seconds, min_size=3, max_size=3)))
        block, colon, _ = name.partition(":")
        found.append(
            Task(
                name,
                Command(draw(texts.filter(lambda t: t.strip()))),
                inputs=tuple(inputs),
                outputs=tuple(outputs),
                after=tuple(draw(st.lists(earlier, unique=True, max_size=2 if found else 0))),
                needs=draw(st.just(Needs()) | needs()),
                takes=draw(st.none() | st.just(Takes(*three))),
                retries=draw(st.integers(0, 5)),
                timeout_s=draw(st.none() | seconds.filter(bool)),
                env=draw(st.dictionaries(block_names, texts, max_size=2)),
                stdin=draw(st.none() | st.sampled_from(inputs)) if inputs else None,
                in_place=tuple(i for i in inputs if draw(st.booleans())),
                kind=draw(st.just(block if colon else "") | block_names),
            )
        )
        made += outputs
    return Graph(draw(lines.filter(_is_name)), found, params=draw(_params))


def _is_name(text: str) -> bool:
    return bool(text.strip()) and text.isprintable()


_params = st.dictionaries(block_names.filter(lambda n: n != "task"), texts, max_size=2)


@settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(graphs())
def test_a_graph_written_as_yaml_is_read_as_the_same(graph: Graph) -> None:
    text = write_yaml(graph)
    disk = Anything(set(graph.external))
    again = read_yaml(text, file="w.yaml", directory=NOWHERE, disk=disk).graph
    assert again.tasks == graph.tasks
    assert (again.name, again.params) == (graph.name, graph.params)
    assert again.parents == graph.parents


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(graphs())
def test_a_graph_survives_its_snapshot(graph: Graph) -> None:
    again = Graph.from_bytes(graph.to_bytes())
    assert again.tasks == graph.tasks
    assert again.params == graph.params


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(graphs(), st.floats(0, 1e6))
def test_a_graph_as_an_instance_is_read_as_the_same(graph: Graph, duration_s: float) -> None:
    durations_s = {task.name: duration_s for task in graph.tasks}
    instance = wfformat.from_graph(graph, durations_s, executed_at="now", makespan_s=3)
    assert wfformat.decode(wfformat.encode(instance)) == instance


numbers = st.integers(0, 2**53) | st.floats(0, 1e9)
maybe_number = st.none() | numbers
maybe_text = st.none() | lines
ids = st.lists(lines, max_size=3).map(tuple)
instances = st.builds(
    wfformat.Instance,
    name=lines,
    schema_version=st.just("1.5"),
    description=maybe_text,
    author=st.none() | st.builds(wfformat.Author, name=lines, email=lines, country=maybe_text),
    workflow=st.builds(
        wfformat.InstanceWorkflow,
        specification=st.builds(
            wfformat.Specification,
            tasks=st.lists(
                st.builds(
                    wfformat.SpecifiedTask,
                    name=lines,
                    id=lines,
                    parents=ids,
                    children=ids,
                    input_files=ids,
                    output_files=ids,
                ),
                max_size=3,
            ).map(tuple),
            files=st.none()
            | st.lists(st.builds(wfformat.File, id=lines, size_in_bytes=numbers), max_size=2).map(
                tuple
            ),
        ),
        execution=st.none()
        | st.builds(
            wfformat.Execution,
            makespan_in_seconds=numbers,
            executed_at=lines,
            tasks=st.lists(
                st.builds(
                    wfformat.ExecutedTask,
                    id=lines,
                    runtime_in_seconds=numbers,
                    command=st.none()
                    | st.builds(wfformat.InstanceProgram, maybe_text, st.none() | ids),
                    core_count=maybe_number,
                    avg_cpu=maybe_number,
                    memory_in_bytes=maybe_number,
                    machines=st.none() | ids,
                ),
                max_size=3,
            ).map(tuple),
            machines=st.none()
            | st.lists(
                st.builds(
                    wfformat.InstanceMachine,
                    node_name=lines,
                    cpu=st.none() | st.builds(wfformat.Cpu, core_count=maybe_number),
                ),
                max_size=2,
            ).map(tuple),
        ),
        repo=maybe_text,
    ),
)


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(instances)
def test_an_instance_written_is_read_as_the_same(instance: wfformat.Instance) -> None:
    assert wfformat.decode(wfformat.encode(instance)) == instance


def test_what_is_written_is_readable() -> None:
    graph = Graph(
        "demo",
        [
            Task(
                "make",
                Command("make all\nls"),
                inputs=("Makefile",),
                outputs=("out",),
                needs=Needs(cores=2, memory_bytes=200_000_000),
                takes=Takes(1, 60, 5400),
                timeout_s=300,
            ),
            Task("use:1", Command("echo '{{x}}'"), inputs=("out",), kind="use", env={"A": "yes"}),
        ],
    )
    assert write_yaml(graph) == (
        "name: demo\n"
        "tasks:\n"
        "  make:\n"
        "    run: |-\n"
        "      make all\n"
        "      ls\n"
        "    inputs: [Makefile]\n"
        "    outputs: [out]\n"
        "    takes: 1s .. 1min .. 1h30min\n"
        "    needs: {cores: 2, memory: 200MB}\n"
        "    timeout: 5min\n"
        "  'use:1':\n"
        "    run: \"echo '{{{{x}}'\"\n"
        "    inputs: [out]\n"
        "    env:\n"
        "      A: yes\n"
    )


@pytest.mark.parametrize("action", [Pause(1), Call("f", b"")])
def test_only_commands_are_written(action: Pause | Call) -> None:
    with pytest.raises(UserError, match="task 'a' is not a command"):
        write_yaml(Graph("x", [Task("a", action)]))
