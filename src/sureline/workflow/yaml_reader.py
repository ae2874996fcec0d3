"""Reading a YAML workflow: the whole file. Blocks of `tasks:` are read by `yaml_blocks`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from sureline.workflow.check import Available, Draft, Reading, check
from sureline.workflow.collect import Collector, did_you_mean
from sureline.workflow.globs import UserFiles
from sureline.workflow.mistakes import Mistake, WorkflowError
from sureline.workflow.model import Task
from sureline.workflow.templates import Scope, TemplateError, compile_template
from sureline.workflow.yaml_blocks import DEFAULT_KEYS, BlockReader
from sureline.workflow.yaml_tree import Node, Pairs, Text, TreeError, decode_utf8, load_tree

TOP_KEYS = ("name", "description", "params", "defaults", "tasks")

_PARAM_NAME = re.compile(r"[\w.-]+")
_START_HINT = "describe at least one task under `tasks:`"


def read_yaml(
    data: bytes | str,
    *,
    file: str,
    directory: Path,
    overrides: Mapping[str, str] | None = None,
    beside: Path | None = None,
    disk: UserFiles | None = None,
    capacity: Available | None = None,
) -> Reading:
    """Read, fill in and check a workflow. Raises WorkflowError with all mistakes.

    `overrides` replace values of `params:`. The rest is as for `check`.
    """
    found = Collector(file)
    reader = _FileReader(file, overrides or {}, found)
    draft = reader.draft(_load(data, found))
    graph = check(
        draft, directory=directory, beside=beside, disk=disk, capacity=capacity, found=found
    )
    lines = {task.name: line for task, line in zip(draft.tasks, draft.lines, strict=True) if line}
    return Reading(graph, lines, reader.warnings)


def _load(data: bytes | str, found: Collector) -> Pairs:
    """The file's tree. Raises WorkflowError if there is no mapping to go on with."""
    try:
        root = load_tree(data if isinstance(data, str) else decode_utf8(data), found)
    except TreeError as error:
        found.add("syntax errors", error.what, error.hint, error.line)
    else:
        if isinstance(root, Pairs):
            return root
        if root is None or (isinstance(root, Text) and not root.value):
            found.add("empty files", "the file is empty", _START_HINT, None)
        else:
            hint = "write `tasks:` and the tasks under it"
            found.add("wrong types", "the file is not a mapping", hint, root.line)
    raise WorkflowError(found.mistakes())


class _FileReader:
    def __init__(self, file: str, overrides: Mapping[str, str], found: Collector) -> None:
        self._file = file
        self._overrides = overrides
        self._found = found
        self.warnings: list[Mistake] = []

    def draft(self, root: Pairs) -> Draft:
        """What the file describes. What is wrong is in the collector."""
        for key, node in root.pairs.items():
            if key not in TOP_KEYS:
                hint = did_you_mean(key, TOP_KEYS, "known are " + ", ".join(TOP_KEYS))
                self._found.add("unknown keys", f"unknown key '{key}'", hint, node.line)
        params = self._params(root.pairs.get("params"))
        scope = Scope(params)
        name = self._name(root.pairs.get("name"))
        reader = BlockReader(scope, self._defaults(root.pairs.get("defaults")), self._found)
        tasks, lines = self._tasks(root, reader)
        self._warn_unused(root.pairs.get("params"), params, scope.used)
        return Draft(name, tasks, lines, self._file, params, whole=reader.whole)

    def _name(self, node: Node | None) -> str:
        if node is None:
            return Path(self._file).stem
        if not isinstance(node, Text) or not node.value.strip() or not node.value.isprintable():
            what = "`name` is not a short text"
            self._found.add("wrong types", what, "write one line of text", node.line)
            return ""
        return node.value

    def _params(self, node: Node | None) -> dict[str, str]:
        params: dict[str, str] = {}
        pairs: Mapping[str, Node] = {}
        if isinstance(node, Pairs):
            pairs = node.pairs
        elif node is not None and not (isinstance(node, Text) and not node.value):
            hint = "write names and values, such as `params: {size: 10}`"
            self._found.add("wrong types", "`params` is not a mapping", hint, node.line)
        used: set[str] = set()
        for name, value in pairs.items():
            if not _PARAM_NAME.fullmatch(name) or name == "task":
                what = f"'{name}' cannot be a param's name"
                self._found.add("bad params", what, "use letters, digits and '_'", value.line)
            elif name in self._overrides:
                params[name] = self._override(name)
            else:
                params[name] = self._param(name, value, Scope(params), used)
        self._used_in_params = used
        for name in self._overrides.keys() - pairs.keys():
            hint = did_you_mean(name, pairs, "declare it under `params:` with a default")
            line = node.line if node is not None else None
            self._found.add("unknown params", f"there is no param '{name}' to set", hint, line)
        return params

    def _override(self, name: str) -> str:
        value = self._overrides[name]
        if "\0" in value or not _is_unicode(value):
            what = f"the value given for the param '{name}' is not text"
            self._found.add("bad params", what, "give UTF-8 text")
            return ""
        return value

    def _param(self, name: str, value: Node, scope: Scope, used: set[str]) -> str:
        if not isinstance(value, Text):
            what = f"the param '{name}' is a list or mapping"
            self._found.add("wrong types", what, "write one text or number", value.line)
            return ""
        try:
            text = compile_template(value.value, scope).fill(())
        except TemplateError as error:
            what = f"the param '{name}': {error.what}"
            hint = f"{error.hint} (a param may use those above it)"
            self._found.add("unknown names", what, hint, value.line)
            return ""
        used |= scope.used
        return text

    def _defaults(self, node: Node | None) -> Mapping[str, Node]:
        if node is None:
            return {}
        if not isinstance(node, Pairs):
            hint = "write keys such as `retries: 2` under it"
            self._found.add("wrong types", "`defaults` is not a mapping", hint, node.line)
            return {}
        for key, value in node.pairs.items():
            if key not in DEFAULT_KEYS:
                hint = did_you_mean(key, DEFAULT_KEYS, "known are " + ", ".join(DEFAULT_KEYS))
                what = f"`defaults` has the unknown key '{key}'"
                self._found.add("unknown keys", what, hint, value.line)
        return {key: value for key, value in node.pairs.items() if key in DEFAULT_KEYS}

    def _tasks(self, root: Pairs, reader: BlockReader) -> tuple[list[Task], list[int | None]]:
        node = root.pairs.get("tasks")
        tasks: list[Task] = []
        lines: list[int | None] = []
        if node is None:
            self._found.add("missing keys", "there is no `tasks`", _START_HINT, root.line)
        elif (isinstance(node, Text) and not node.value) or (
            isinstance(node, Pairs) and not node.pairs
        ):
            self._found.add("missing keys", "`tasks` is empty", _START_HINT, node.line)
        elif not isinstance(node, Pairs):
            hint = "write `NAME:` for every task, and its keys under it"
            self._found.add("wrong types", "`tasks` is not a mapping", hint, node.line)
        else:
            for name, block in node.pairs.items():
                before = len(tasks)
                tasks.extend(reader.read(name, block))
                lines.extend([block.line] * (len(tasks) - before))
        return tasks, lines

    def _warn_unused(self, node: Node | None, params: Mapping[str, str], used: set[str]) -> None:
        if isinstance(node, Pairs):
            for name in params:
                if name not in used and name not in self._used_in_params:
                    what = f"the param '{name}' is used nowhere"
                    line = node.pairs[name].line
                    self.warnings.append(Mistake(what, "remove it", self._file, line))


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
