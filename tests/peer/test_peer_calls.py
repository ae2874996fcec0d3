from __future__ import annotations

import functools
import pickle
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest

from sureline.peer.calls import (
    CallFailedError,
    Handle,
    dump_arguments,
    dump_error,
    fingerprint,
    load_arguments,
    load_error,
)


def define(source: str, name: str = "f") -> Callable[..., object]:
    scope: dict[str, object] = {"__name__": "some_module"}
    exec(textwrap.dedent(source), scope)  # noqa: S102 - how else to have two versions of a module
    function = scope[name]
    assert callable(function)
    return function


BASE = """
    LIMIT = 3
    NAMES = {"a", "b", "c"}
    def helper(x): return x + 1
    class Model:
        rate = 2
        def step(self): return helper(self.rate)
    def f(x, y=1):
        "doc"
        if x in {"p", "q", "r"}:
            return [helper(n) for n in range(LIMIT) if n not in NAMES]
        return Model()
"""


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("LIMIT = 3", "LIMIT = 4"),
        ('NAMES = {"a", "b", "c"}', 'NAMES = {"a", "b", "d"}'),
        ("return x + 1", "return x + 2"),
        ("rate = 2", "rate = 3"),
        ("helper(self.rate)", "helper(self.rate + 1)"),
        ("y=1", "y=2"),
        ('"p", "q"', '"p", "s"'),
        ("range(LIMIT)", "range(LIMIT + 1)"),
    ],
)
def test_a_change_of_what_it_does_changes_the_fingerprint(old: str, new: str) -> None:
    assert old in BASE
    assert fingerprint(define(BASE)) != fingerprint(define(BASE.replace(old, new)))


def test_what_does_not_matter_does_not_count() -> None:
    moved = "\n\n# a comment\nUNUSED = 5\n" + textwrap.dedent(BASE)
    assert fingerprint(define(BASE)) == fingerprint(define(moved))


def test_closures_and_partials_count() -> None:
    def make(n: int) -> Callable[[], int]:
        return lambda: n

    assert fingerprint(make(1)) == fingerprint(make(1))
    assert fingerprint(make(1)) != fingerprint(make(2))
    assert fingerprint(functools.partial(pow, 2)) == fingerprint(functools.partial(pow, 2))
    assert fingerprint(functools.partial(pow, 2)) != fingerprint(functools.partial(pow, 3))
    assert fingerprint(len) != fingerprint(abs)


def test_recursion_ends() -> None:
    source = "def f(n): return g(n)\ndef g(n): return f(n - 1) if n else 0"
    assert fingerprint(define(source)) == fingerprint(define(source))


def test_the_fingerprint_is_the_same_in_every_process(tmp_path: Path) -> None:
    (tmp_path / "some_module.py").write_text(textwrap.dedent(BASE))
    program = (
        "import some_module; from sureline.peer.calls import fingerprint;"
        "print(fingerprint(some_module.f))"
    )
    found = {
        subprocess.run(
            [sys.executable, "-c", program],
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": str(tmp_path)},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2", "3")
    }
    assert len(found) == 1


def test_arguments_with_handles_by_value_and_by_name() -> None:
    for extra in (1, lambda: 1):
        data, uses = dump_arguments((Handle("b"), [Handle("a"), Handle("b")], extra), {"k": 2})
        assert uses == ("b", "a")
        args, kwargs = load_arguments(data, lambda task: [task])
        assert args[:2] == (["b"], [["a"], ["b"]])
        assert args[0] is args[1][1]
        assert kwargs == {"k": 2}


class UnprintableError(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no")

    def __reduce__(self) -> tuple[object, ...]:
        raise RuntimeError("no")


def test_any_exception_can_be_sent() -> None:
    error = load_error(dump_error(UnprintableError()))
    assert isinstance(error, CallFailedError)
    assert error.type_name == "UnprintableError"
    huge = load_error(dump_error(ValueError("x" * (2 << 20))))
    assert isinstance(huge, CallFailedError)


def test_having_been_pickled_does_not_change_a_class() -> None:
    """Pickling an instance leaves notes in its class."""

    class Thing:
        pass

    before = fingerprint(Thing)
    with pytest.raises((AttributeError, pickle.PicklingError)):
        pickle.dumps(Thing(), 5)
    assert "__slotnames__" in vars(Thing)
    assert fingerprint(Thing) == before
