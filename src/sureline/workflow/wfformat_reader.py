"""Reading a WfFormat file: decoding it, explaining what is wrong with it, checking its tasks."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import msgspec

from sureline.workflow import wfformat, wfformat_old
from sureline.workflow.check import Available, Reading, check
from sureline.workflow.collect import Collector
from sureline.workflow.globs import UserFiles
from sureline.workflow.mistakes import WorkflowError
from sureline.workflow.model import Graph
from sureline.workflow.wfformat import Instance
from sureline.workflow.yaml_tree import Items, Node, Pairs, TreeError, decode_utf8, load_tree

_VERSIONS = ("1.4", "1.5", "1.6")  # 1.6 adds only fields that are optional
_BYTE = re.compile(r" \(byte (\d+)\)$")
_PATH = re.compile(r" - at `\$(.*)`$")
_STEP = re.compile(r"\.([^.\[]+)|\[(\d+)\]")


class _Head(msgspec.Struct, rename="camel"):
    schema_version: str = wfformat.VERSION


def read_instance(data: bytes, file: str | None) -> Instance:
    """The instance that a file holds. Raises WorkflowError."""
    found = Collector(file)
    try:
        decode_utf8(data)
        version = msgspec.json.decode(data, type=_Head).schema_version
        if version not in _VERSIONS:
            what = f"WfFormat {version} is not understood"
            hint = "migrate the file to version 1.5"
            found.add("versions", what, hint, _line_at(data, ".schemaVersion"))
            found.raise_if_any()
        return wfformat_old.decode(data) if version == "1.4" else wfformat.decode(data)
    except TreeError as error:
        found.add("syntax errors", error.what, error.hint, error.line)
    except msgspec.DecodeError as error:
        _explain(error, data, found)
    raise WorkflowError(found.mistakes())


def _explain(error: msgspec.DecodeError, data: bytes, found: Collector) -> None:
    said = str(error)
    if not data.strip():
        found.add("empty files", "the file is empty", "write a WfFormat 1.5 instance")
    elif isinstance(error, msgspec.ValidationError):
        at = _PATH.search(said)
        path = at[1] if at else ""
        what = _PATH.sub("", said).replace("Object missing", "missing")
        where = f" in `{path.lstrip('.')}`" if path else ""
        hint = "see the format at wfcommons.org, version 1.5"
        found.add("bad fields", f"{what}{where}", hint, _line_at(data, path))
    else:
        at = _BYTE.search(said)
        line = data.count(b"\n", 0, int(at[1])) + 1 if at else data.count(b"\n") + 1
        hint = "check commas, quotes and brackets here and just above"
        found.add("syntax errors", f"not valid JSON: {_BYTE.sub('', said)}", hint, line)


def read_wfformat(
    data: bytes,
    *,
    file: str,
    directory: Path,
    pretend: bool = False,
    speed: float = 1.0,
    beside: Path | None = None,
    disk: UserFiles | None = None,
    capacity: Available | None = None,
) -> Reading:
    """Read and check an instance. Raises WorkflowError with all mistakes."""
    instance = read_instance(data, file)

    def checked(lines: Sequence[int | None]) -> Graph:
        found = Collector(file)
        draft = wfformat.to_draft(instance, lines, pretend=pretend, speed=speed, found=found)
        draft.file = file
        if not draft.tasks:
            found.add("missing keys", "there are no tasks", "describe at least one")
        return check(
            draft, directory=directory, beside=beside, disk=disk, capacity=capacity, found=found
        )

    try:
        graph = checked(())
    except WorkflowError:
        # only now are lines worth the slower reading that knows them
        graph = checked(_task_lines(data, len(instance.workflow.specification.tasks)))
    return Reading(graph, {})


def _task_lines(data: bytes, count: int) -> Sequence[int | None]:
    """The lines of the tasks; () if they cannot be told."""
    root = _tree(data)
    for path in (".workflow.specification.tasks", ".workflow.tasks"):
        node = _follow(root, path)
        if isinstance(node, Items) and len(node.items) == count:
            return [item.line for item in node.items]
    return ()


def _line_at(data: bytes, path: str) -> int | None:
    """The line of `.workflow.tasks[3].id` in a JSON text, or of what of it there is."""
    node = _follow(_tree(data), path)
    return node.line if node is not None else None


def _tree(data: bytes) -> Node | None:
    """JSON is YAML, all but for tabs; and the YAML tree knows lines."""
    try:
        return load_tree(decode_utf8(data).replace("\t", " "), Collector(None))
    except TreeError:
        return None


def _follow(node: Node | None, path: str) -> Node | None:
    for key, number in _STEP.findall(path):
        if isinstance(node, Pairs) and key in node.pairs:
            node = node.pairs[key]
        elif isinstance(node, Items) and number and int(number) < len(node.items):
            node = node.items[int(number)]
        else:
            break
    return node
