"""Workflows in the chemical notation: a solution of task molecules.

    <
      NAME:"squares",
      TASK:1:<"seq 3 > n.txt" : <OUTPUTS:"n.txt">> : <DEST:2>,   // task 2 waits for this one
      TASK:2:<"awk '{print $1^2}' n.txt" : <INPUTS:"n.txt", NEEDS:<CORES:2>>> : <>
    >

A task is `TASK:ID:<COMMAND:DESCRIPTION>:<DEST:ID, ...>`, or `<COMMAND>` without a description. The
ID is a number or a string. The description has the keys of a task in a YAML file, in capitals:
several values of a key are a tuple (`INPUTS:"a":"b"`), keys within are a solution. DEST names the
tasks that a task's results are for, so they wait for it; those that read its files do anyhow.

Reading and writing go by way of the YAML reader's tree, so both files can say the same.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path

from sureline.chemistry import ChemistryError, Molecule, Solution, Symbol, parse_placed, show
from sureline.workflow.check import Available, Draft, Reading, check
from sureline.workflow.collect import Collector, did_you_mean
from sureline.workflow.globs import UserFiles
from sureline.workflow.model import Graph, Task
from sureline.workflow.templates import Scope, escape
from sureline.workflow.yaml_blocks import BlockReader
from sureline.workflow.yaml_tree import Items, Node, Pairs, Text, TreeError, decode_utf8, load_tree
from sureline.workflow.yaml_writer import write_yaml

SUFFIX = ".chem"
_FORM = 'write TASK:ID:<"COMMAND":<DESCRIPTION>>:<DEST:ID, ...>'
_TASK, _NAME, _DEST = Symbol("TASK"), Symbol("NAME"), Symbol("DEST")


def is_chemical(file: str) -> bool:
    return os.path.splitext(file)[1].lower() == SUFFIX


def read_chemical(
    data: bytes,
    *,
    file: str,
    directory: Path,
    beside: Path | None = None,
    disk: UserFiles | None = None,
    capacity: Available | None = None,
) -> Reading:
    """Read and check a workflow; the rest is as for `check`. Raises WorkflowError with all
    mistakes."""
    found = Collector(file)
    try:
        placed = parse_placed(decode_utf8(data))
    except ChemistryError as error:
        what = f"column {error.place.column}: {error.what}"
        found.add("syntax errors", what, error.hint, error.place.line)
    except TreeError as error:
        found.add("syntax errors", error.what, error.hint, error.line)
    found.raise_if_any()
    reader = _Reader(found)
    for place, molecule in placed:
        reader.take(molecule, place.line)
    draft = reader.draft(file)
    if not draft.tasks and not found:
        found.add("empty files", "there is no task", _FORM)
    graph = check(
        draft, directory=directory, beside=beside, disk=disk, capacity=capacity, found=found
    )
    lines = {task.name: line for task, line in zip(draft.tasks, draft.lines, strict=True) if line}
    return Reading(graph, lines)


class _Reader:
    def __init__(self, found: Collector) -> None:
        self._found = found
        self._name = ""
        self._tasks: list[Task] = []
        self._lines: list[int | None] = []
        self._waits: list[tuple[str, str, int]] = []
        """(who waits, for whom, line)"""
        self._blocks = BlockReader(Scope({}), {}, found)

    def take(self, molecule: Molecule, line: int) -> None:
        match molecule:
            case (Symbol("NAME"), str(name)) if name.strip() and name.isprintable():
                self._name = name
            case (Symbol("TASK"), int() | str() as number, Solution() as work, Solution() as to):
                self._task(str(number), work, to, line)
            case _:
                self._refuse(molecule, line)

    def _refuse(self, molecule: Molecule, line: int) -> None:
        shown = show(molecule)
        what = f"{shown if len(shown) < 60 else shown[:57] + '...'} is no task"
        self._found.add("bad molecules", what, _FORM, line)
        self._blocks.whole = False

    def _task(self, name: str, work: Solution, to: Solution, line: int) -> None:
        match work.molecules:
            case (str(command),):
                pairs: dict[str, Node] = {}
            case ((str(command), Solution() as description),):
                pairs = self._tree(description, line).pairs
            case _:
                self._refuse((_TASK, name, work, to), line)
                return
        pairs["run"] = Text(escape(command), line, False)
        for target in to.molecules:
            match target:
                case (Symbol("DEST"), int() | str() as number):
                    self._waits.append((str(number), name, line))
                case _:
                    self._refuse(target, line)
        for task in self._blocks.read(name, Pairs(pairs, line)):
            self._tasks.append(task)
            self._lines.append(line)

    def _tree(self, solution: Solution, line: int) -> Pairs:
        """`<KEY:value, KEY:value:value, KEY:<...>>` as a mapping."""
        pairs: dict[str, Node] = {}
        for molecule in solution.molecules:
            match molecule:
                case (Symbol() | str() as key, *values):
                    name = key.name.lower() if isinstance(key, Symbol) else key
                    nodes = [self._node(value, line) for value in values]
                    pairs[name] = nodes[0] if len(nodes) == 1 else Items(nodes, line)
                case _:
                    what = f"{show(molecule)[:60]} describes nothing"
                    self._found.add("bad molecules", what, "write KEY:VALUE", line)
        return Pairs(pairs, line)

    def _node(self, value: Molecule, line: int) -> Node:
        if isinstance(value, Solution):
            return self._tree(value, line)
        return Text(value if isinstance(value, str) else show(value), line, False)

    def draft(self, file: str) -> Draft:
        """With everybody waiting whom a DEST names, unless he reads the other's files."""
        index = {task.name: i for i, task in enumerate(self._tasks)}
        for name, other, line in self._waits:
            if name not in index:
                hint = did_you_mean(name, index, "describe it, or leave out the DEST")
                what = f"task {other} has DEST:{name}, and there is no such task"
                self._found.add("unknown tasks", what, hint, line)
            elif other in index:
                task, before = self._tasks[index[name]], self._tasks[index[other]]
                if other not in task.after and not _reads(task, before):
                    self._tasks[index[name]] = _with_after(task, (*task.after, other))
        name = self._name or os.path.splitext(os.path.basename(file))[0]
        return Draft(name, self._tasks, self._lines, file, whole=self._blocks.whole)


def _with_after(task: Task, after: tuple[str, ...]) -> Task:
    fields = {name: getattr(task, name) for name in task.__struct_fields__}
    return Task(**{**fields, "after": after})


def _reads(task: Task, before: Task) -> bool:
    made = before.outputs
    return any(path == one or path.startswith(f"{one}/") for path in task.inputs for one in made)


def write_chemical(graph: Graph) -> str:
    """The workflow in this notation; reading it gives equal tasks. Raises UserError for what a
    file cannot say: Python calls, pretended tasks."""
    plain = Graph(graph.name, graph.tasks)
    root = load_tree(write_yaml(plain), Collector(None))
    assert isinstance(root, Pairs)
    blocks = root.pairs["tasks"]
    assert isinstance(blocks, Pairs)
    molecules: list[Molecule] = [(_NAME, graph.name)]
    for i, task in enumerate(graph.tasks):
        block = blocks.pairs[task.name]
        assert isinstance(block, Pairs)
        molecules.append(_molecule(graph, i, block))
    return "<\n" + ",\n".join(f"  {show(m, as_given=True)}" for m in molecules) + "\n>\n"


def _molecule(graph: Graph, i: int, block: Pairs) -> Molecule:
    task = graph.tasks[i]
    pairs = {key: node for key, node in block.pairs.items() if key != "run"}
    waits = [graph.tasks[p] for p in sorted(graph.parents[i])]
    if task.after == tuple(other.name for other in waits if not _reads(task, other)):
        pairs.pop("after", None)
    run = task.action.run  # type: ignore[union-attr]  # write_yaml writes nothing but commands
    command: Molecule = (run, Solution(_described(pairs))) if pairs else run
    to = Solution((_DEST, _number(graph.tasks[c].name)) for c in graph.children[i])
    return (_TASK, _number(task.name), Solution([command]), to)


def _number(name: str) -> Molecule:
    """1 for '1'; a name that no number is written as stays one."""
    return int(name) if name.isascii() and name.isdecimal() and str(int(name)) == name else name


def _described(pairs: Mapping[str, Node]) -> Iterator[Molecule]:
    for key, node in pairs.items():
        simple = key.isascii() and key.isidentifier() and key == key.lower() and key[0] != "_"
        name: Molecule = Symbol(key.upper()) if simple else key
        nodes = node.items if isinstance(node, Items) else [node]
        yield (name, *map(_value, nodes))


def _value(node: Node) -> Molecule:
    if isinstance(node, Pairs):
        return Solution(_described(node.pairs))
    assert isinstance(node, Text)
    return _number(node.value)
