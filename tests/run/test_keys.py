"""What a result depends on is in its key, all of it; what it does not depend on is not."""

from __future__ import annotations

import msgspec
import pytest

from sureline.run.keys import result_key
from sureline.workflow.files import FileRecord
from sureline.workflow.model import Call, Command, Needs, Pause, Task

TASK = Task(
    "t", Command("tool in > out"), inputs=("in",), outputs=("out",), env={"A": "1"}, stdin="in"
)
FILES = (FileRecord("in", "d1", 5, 7), FileRecord("tool", "d2", 9, 7, executable=True))
CALL = msgspec.structs.replace(TASK, action=Call("f1", b"arguments"))
KEY = result_key(TASK, FILES)


def but(task: Task = TASK, **fields: object) -> Task:
    return msgspec.structs.replace(task, **fields)


@pytest.mark.parametrize(
    "changed",
    [
        but(action=Command("tool in >out")),
        but(stdin=None),
        but(stdin="tool"),
        but(env={"A": "2"}),
        but(env={}),
        but(outputs=("out", "more")),
        CALL,
    ],
)
def test_a_task_that_is_described_otherwise_has_another_key(changed: Task) -> None:
    assert result_key(changed, FILES) != KEY


@pytest.mark.parametrize(
    "files",
    [
        FILES[:1],
        (FileRecord("in", "d3", 5, 7), FILES[1]),
        (FileRecord("other", "d1", 5, 7), FILES[1]),
        (FILES[0], FileRecord("tool", "d2", 9, 7, executable=False)),
        (FileRecord("in", "d1", 5, 7, executable=True), FILES[1]),
    ],
)
def test_other_inputs_make_another_key(files: tuple[FileRecord, ...]) -> None:
    assert result_key(TASK, files) != KEY


@pytest.mark.parametrize(
    ("task", "files"),
    [
        (but(name="renamed"), FILES),
        (but(needs=Needs(cores=3)), FILES),
        (but(retries=5), FILES),
        (TASK, FILES[::-1]),
        (TASK, tuple(msgspec.structs.replace(file, ctime_ns=99) for file in FILES)),
    ],
)
def test_what_changes_no_result_changes_no_key(task: Task, files: tuple[FileRecord, ...]) -> None:
    assert result_key(task, files) == KEY


@pytest.mark.parametrize(
    ("call", "results"),
    [
        (but(CALL, action=Call("f2", b"arguments")), ()),
        (but(CALL, action=Call("f1", b"others")), ()),
        (CALL, (("a", "d1"),)),
    ],
)
def test_a_call_depends_on_its_function_its_arguments_and_their_results(
    call: Task, results: tuple[tuple[str, str], ...]
) -> None:
    assert result_key(call, FILES, results) != result_key(CALL, FILES)


def test_a_pause_has_no_result() -> None:
    assert result_key(but(action=Pause(1.0)), FILES) == ""
