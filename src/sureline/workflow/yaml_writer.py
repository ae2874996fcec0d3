"""Writing a graph as a YAML workflow. Reading it again gives a graph with equal tasks.

Written by hand rather than by a dumper: keys in the order a person writes them, short lists on
one line, and quotes only where YAML would else read something different.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from sureline.workflow.globs import escape_glob
from sureline.workflow.mistakes import UserError
from sureline.workflow.model import Command, Graph, Needs, Task
from sureline.workflow.quantities import format_cores, format_duration, format_size, format_takes
from sureline.workflow.templates import escape
from sureline.workflow.yaml_needs import NEEDS_KEYS, is_close_to_known

_LINE_LENGTH = 100
# text that YAML reads as itself without quotes, also inside [] and {}
_PLAIN = re.compile(r"[A-Za-z0-9_./][A-Za-z0-9_./+*@%=~^-]*(?: [A-Za-z0-9_./+*@%=~^-]+)*")
_BLOCK_NAME = re.compile(r"[\w.-]+(?::.*)?")
_ESCAPES = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\t": "\\t", "\r": "\\r"}


def write_yaml(graph: Graph) -> str:
    """Raises UserError for what a YAML workflow cannot say: Python calls, pretended tasks."""
    lines = [f"name: {_text(graph.name)}"]
    if graph.params:
        lines.append("params:")
        lines += [f"  {_text(k)}: {_text(escape(v))}" for k, v in graph.params.items()]
    lines.append("tasks:")
    for task in graph.tasks:
        lines += _task(task)
    return "\n".join(lines) + "\n"


def _task(task: Task) -> Iterable[str]:
    if not isinstance(task.action, Command):
        raise UserError(f"task '{task.name}' is not a command; only commands are written as YAML")
    if not _BLOCK_NAME.fullmatch(task.name):
        raise UserError(f"the task's name '{task.name}' cannot be written as YAML; rename it")
    yield f"  {_text(task.name)}:"
    yield from _run(escape(task.action.run))
    if task.action.shell:
        yield f"    shell: {_text(escape(task.action.shell))}"
    for key, paths in (("inputs", task.inputs), ("outputs", task.outputs)):
        if paths:
            yield from _list(key, [escape(escape_glob(path)) for path in paths])
    if task.stdin is not None:
        yield f"    stdin: {_text(escape(escape_glob(task.stdin)))}"
    if task.in_place:
        yield from _in_place(task)
    if task.after:
        yield from _list("after", [escape(name) for name in task.after])
    if task.takes is not None:
        yield f"    takes: {format_takes(task.takes)}"
    if task.needs != Needs():
        yield f"    needs: {{{', '.join(_needs(task.needs))}}}"
    for key, formula in (("requires", task.requires), ("rank", task.rank)):
        if formula:
            yield f"    {key}: {_text(escape(formula))}"
    if task.retries:
        yield f"    retries: {task.retries}"
    if not task.repeatable:
        yield "    repeatable: false"
    if task.timeout_s is not None:
        yield f"    timeout: {format_duration(task.timeout_s)}"
    if task.env:
        yield "    env:"
        yield from (f"      {_text(k)}: {_text(escape(v))}" for k, v in task.env.items())
    block, colon, _ = task.name.partition(":")
    if task.kind != (block if colon else ""):
        yield f"    kind: {_text(escape(task.kind))}"


def _in_place(task: Task) -> Iterable[str]:
    if task.in_place == task.inputs:
        return ["    in_place: true"]
    return _list("in_place", [escape(escape_glob(path)) for path in task.in_place])


def _run(run: str) -> Iterable[str]:
    """The command; several lines as a block, if a block can hold them unchanged."""
    lines = run.split("\n")
    suits = len(lines) > 1 and lines[0].strip() and not lines[0].startswith((" ", "\t"))
    if suits and all(line.isprintable() and (not line or line.strip()) for line in lines):
        ends = len(run) - len(run.rstrip("\n"))
        if ends <= 1:
            yield "    run: |" if ends else "    run: |-"
            yield from (f"      {line}" if line else "" for line in lines[: len(lines) - ends])
            return
    yield f"    run: {_text(run)}"


def _needs(needs: Needs) -> Iterable[str]:
    if needs.cores != 1:
        yield f"cores: {format_cores(needs.cores)}"
    if needs.memory_bytes:
        yield f"memory: {format_size(needs.memory_bytes)}"
    if needs.disk_bytes:
        yield f"disk: {format_size(needs.disk_bytes)}"
    if needs.gpus:
        yield f"gpus: {needs.gpus}"
    tags = [f"{_text(tag)}: {count}" for tag, count in needs.tags]
    if any(tag in NEEDS_KEYS or is_close_to_known(tag) for tag, _ in needs.tags):
        yield f"tags: {{{', '.join(tags)}}}"
    else:
        yield from tags


def _list(key: str, texts: list[str]) -> Iterable[str]:
    written = [_text(text) for text in texts]
    flow = f"    {key}: [{', '.join(written)}]"
    if len(flow) <= _LINE_LENGTH:
        return [flow]
    return [f"    {key}:", *(f"      - {text}" for text in written)]


def _text(text: str) -> str:
    """A scalar that is read back as exactly this text."""
    if _PLAIN.fullmatch(text):
        return text
    if text.isprintable() and text.isascii() and "'" not in text:
        return f"'{text}'"
    return '"' + "".join(_escaped(letter) for letter in text) + '"'


def _escaped(letter: str) -> str:
    if letter in _ESCAPES:
        return _ESCAPES[letter]
    code = ord(letter)
    if letter.isprintable() and code != 0xFEFF:
        return letter
    if code < 0x100:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
