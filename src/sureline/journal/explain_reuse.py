"""Why an earlier result of a task could not be reused: what the task read and was, then and now.

A result is reused if the command (or function and arguments), the inputs by content, `env:`,
standard input and the names of the outputs are the same; see `run.keys`, whose rule this tells
in words.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping
from typing import TypeVar

import msgspec

from sureline.journal.events import COMMITS, Event, FileFetched, TaskEnded, TaskRevoked
from sureline.workflow.files import FileRecord, result_path
from sureline.workflow.model import Call, Command, Graph, Task

T = TypeVar("T")


class Difference(msgspec.Struct, frozen=True):
    """One thing that is not as it was. `what` is command, code, function, arguments, result, input,
    env, stdin or outputs; `name` says which part of the code, input, variable or task; `told` says
    it in words."""

    what: str
    name: str
    told: str


class Made(msgspec.Struct, frozen=True):
    """What a task's result was made of, as one run recorded it."""

    run: str
    task: Task
    inputs: dict[str, tuple[str, bool]]
    """The content and executability of what it read, by path; less if not yet known."""
    results: dict[str, str]
    """The digests of the results that a call's arguments refer to, by task."""
    reached: dict[str, str] = {}
    """What code a call reaches, part by part; empty if that was not noted."""
    unkept: str = ""
    """Why that result is not reused; '' if it is."""


class Files:
    """The files and results a run has, followed event by event."""

    def __init__(self) -> None:
        self._records: dict[str, FileRecord] = {}
        self._results: dict[str, bytes] = {}
        self._unkept: dict[str, str] = {}

    def apply(self, event: Event) -> None:
        match event:
            case FileFetched():
                self._records[event.file.path] = event.file
            case TaskEnded() if event.outcome in COMMITS:
                self._records.update((record.path, record) for record in event.outputs)
                self._unkept[event.task] = event.unkept
                if event.result is not None:
                    self._results[event.task] = event.result
            case TaskRevoked():
                self._results.pop(event.task, None)

    def made(self, run: str, graph: Graph, task: Task) -> Made:
        inputs = {}
        for path in task.inputs:
            record = self._whole(graph, path)
            if record is not None:
                inputs[record.path] = (record.digest, record.executable)
        uses = task.action.uses if isinstance(task.action, Call) else ()
        results = {name: found for name in uses if (found := self._result(name))}
        code = task.action.code if isinstance(task.action, Call) else ""
        reached = dict(graph.reached.get(code, {}))
        return Made(run, task, inputs, results, reached, self._unkept.get(task.name, ""))

    def _whole(self, graph: Graph, path: str) -> FileRecord | None:
        """The record of a path; a part of a directory that a task makes counts as all of it."""
        while path not in self._records and graph.maker(path) is not None and "/" in path:
            path = path.rsplit("/", 1)[0]
        return self._records.get(path)

    def _result(self, task: str) -> str:
        inline = self._results.get(task)
        if inline is not None:
            return hashlib.sha256(inline).hexdigest()
        record = self._records.get(result_path(task))
        return record.digest if record is not None else ""


def made_in(run: str, graph: Graph, events: Iterable[Event], task: str) -> Made | None:
    """What `task` was made of in a run that is past; None if it has no result there."""
    if task not in graph.index:
        return None
    files, has_result = Files(), False
    for event in events:
        files.apply(event)
        if isinstance(event, TaskEnded) and event.task == task:
            has_result = has_result or event.outcome in COMMITS
    if not has_result:
        return None
    return files.made(run, graph, graph.tasks[graph.index[task]])


def changes(then: Made, now: Made) -> list[Difference]:
    """All that differs and counts; nothing if an equal result should have been found."""
    return [
        *_action_changes(then, now),
        *_mapping_changes("input", then.inputs, now.inputs, _input_told),
        *_mapping_changes("env", then.task.env, now.task.env, _env_told),
        *_mapping_changes("result", then.results, now.results, _result_told),
    ]


def _action_changes(then: Made, now: Made) -> list[Difference]:
    a, b = then.task, now.task
    found: list[Difference] = []
    match a.action, b.action:
        case Command(run=old, shell=old_shell), Command(run=new, shell=new_shell):
            if old != new:
                found.append(Difference("command", "", _command_told(old, new)))
            if old_shell != new_shell:
                told = f"its shell is {new_shell or 'bash'} (was {old_shell or 'bash'})"
                found.append(Difference("command", "shell", told))
            if a.stdin != b.stdin:
                told = f"its standard input is {b.stdin or 'empty'} (was {a.stdin or 'empty'})"
                found.append(Difference("stdin", b.stdin or "", told))
            if sorted(a.outputs) != sorted(b.outputs):
                found.append(_outputs_change(a, b))
        case Call(arguments=old_a), Call(arguments=new_a):
            found += _code_changes(then, now)
            if old_a != new_a:
                found.append(Difference("arguments", "", "the call's arguments changed"))
        case _:
            if type(a.action) is not type(b.action):
                found.append(Difference("command", "", "it is another sort of task now"))
    return found


def _code_changes(then: Made, now: Made) -> list[Difference]:
    """What of the code is not as it was, by name."""
    a, b = then.task.action, now.task.action
    assert isinstance(a, Call)
    assert isinstance(b, Call)
    if (a.code or a.function) == (b.code or b.function):
        return []
    if not then.reached or not now.reached:
        return [Difference("function", "", "the function's code changed")]
    return _mapping_changes("code", then.reached, now.reached, _code_told)


def _code_told(part: str, old: str | None, new: str | None) -> str:
    """
    >>> _code_told("module lib", "12", "ab"), _code_told("package numpy", "2.0", "2.1")
    ('module lib changed', 'numpy is 2.1 (was 2.0)')
    """
    if old is None:
        return f"it uses {part} now and did not before"
    if new is None:
        return f"it no longer uses {part}"
    sort, _, name = part.partition(" ")
    if sort in ("package", "python"):
        return f"{name or 'Python'} is {new} (was {old})"
    if new == "absent":
        return f"{part} is gone"
    return f"{part} changed"


def _command_told(old: str, new: str) -> str:
    """The first line that differs, since scripts are long."""
    was, now = old.splitlines() or [""], new.splitlines() or [""]
    k = next((k for k, (x, y) in enumerate(zip(was, now, strict=False)) if x != y), None)
    if k is None:
        k = min(len(was), len(now))
    where = "" if len(was) == len(now) == 1 else f" in line {k + 1}"
    before, after = (lines[k] if k < len(lines) else "" for lines in (was, now))
    return f"the command changed{where}: {_quoted(after)} (was {_quoted(before)})"


def _quoted(text: str, most: int = 70) -> str:
    text = text.strip()
    return f"'{text}'" if len(text) <= most else f"'{text[:most]}...'"


def _outputs_change(a: Task, b: Task) -> Difference:
    more = sorted(set(b.outputs) - set(a.outputs))
    less = sorted(set(a.outputs) - set(b.outputs))
    parts = [f"{path} is new" for path in more] + [f"{path} is gone" for path in less]
    return Difference("outputs", "", f"its outputs changed: {', '.join(parts[:5])}")


def _mapping_changes(
    what: str,
    then: Mapping[str, T],
    now: Mapping[str, T],
    told: Callable[[str, T | None, T | None], str],
) -> list[Difference]:
    names = [*now, *(name for name in then if name not in now)]
    return [
        Difference(what, name, told(name, then.get(name), now.get(name)))
        for name in names
        if then.get(name) != now.get(name)
    ]


def _input_told(path: str, old: tuple[str, bool] | None, new: tuple[str, bool] | None) -> str:
    if old is None:
        return f"it reads {path} now and did not before"
    if new is None:
        return f"it no longer reads {path}"
    if old[0] == new[0]:
        return f"the input {path} is {'' if new[1] else 'no longer '}executable now"
    return f"the input {path} has another content"


def _env_told(name: str, old: str | None, new: str | None) -> str:
    if new is None:
        return f"env {name} is no longer set"
    was = "not set" if old is None else _quoted(old)
    return f"env {name} is {_quoted(new)} (was {was})"


def _result_told(task: str, old: str | None, new: str | None) -> str:
    return f"the result of {task} that it uses is another"
