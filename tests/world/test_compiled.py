"""Compiled arithmetic is kept by its file; what it calls of other files must not go stale."""

from __future__ import annotations

from collections.abc import Callable
from types import FunctionType

from sureline.compiled import Kernel, _digest


def outer(x: float) -> float:
    return inner(x) + NUMBER  # type: ignore[name-defined,no-any-return]  # noqa: F821  # see `calling`


def calling(inner: Callable[[float], float], number: float) -> Kernel:
    """A kernel that calls one from elsewhere, and names a number."""
    return Kernel(FunctionType(outer.__code__, {"inner": Kernel(inner), "NUMBER": number}))


def test_compiled_code_is_known_by_all_that_it_calls() -> None:
    same, again = calling(lambda x: x + 1, 2.0), calling(lambda x: x + 1, 2.0)
    assert same(1.0) == 4.0
    assert _digest(same) == _digest(again)
    assert _digest(same) != _digest(calling(lambda x: x + 3, 2.0))
    assert _digest(same) != _digest(calling(lambda x: x + 1, 5.0))
