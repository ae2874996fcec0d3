"""Compiling arithmetic over arrays to machine code: the only module that imports Numba.

The code of a compiled function is kept on disk (beside the package, or in the user's cache if that
cannot be written), so only the first use after an installation waits for the compiler; `python -m
sureline.forecast.warm` does that ahead of time. Compiled code lets other threads run.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from types import FunctionType
from typing import Any, TypeVar

F = TypeVar("F", bound=Callable[..., object])


def compiled(function: F) -> F:
    """The function as machine code. It must be pure arithmetic over numbers, arrays and tuples of
    them, and takes no randomness but what it is given: equal arguments give equal results."""
    import numba

    found: F = numba.njit(function, cache=True, nogil=True, error_model="numpy")
    return found


def inlined(function: F) -> F:
    """A part of compiled functions, put into each of them whole: a call that passes ten arrays
    costs more than what it calls."""
    import numba

    found: F = numba.njit(function, inline="always", nogil=True, error_model="numpy")
    return found


class Kernel:
    """Arithmetic that few need fast: plain Python until the first `hasten`, then machine code.

    A peer that keeps a few promises calls such functions some times a second, and would pay a
    second and a hundred megabytes for the compiler; a simulation of a million peers calls them
    millions of times. Both get the same results.
    """

    __slots__ = ("__name__", "plain", "run")

    def __init__(self, plain: Callable[..., Any]) -> None:
        self.__name__ = plain.__name__
        self.plain = plain
        self.run = plain

    def __call__(self, *values: Any) -> Any:
        return self.run(*values)


_kernels: list[Kernel] = []
_fast: dict[Kernel, Any] = {}


def kernel(function: F) -> F:
    """The function as a `Kernel`; others that it calls are kernels, too."""
    made = Kernel(function)
    _kernels.append(made)
    return made  # type: ignore[return-value]  # it is called as the function is


def hasten() -> None:
    """From now on all kernels of this process run as machine code."""
    for one in _kernels:
        one.run = _compiled(one)


def _compiled(one: Kernel) -> Any:
    """Machine code cannot call a Kernel: the function is compiled with those that it names. It is
    kept under a name that tells what they are: they may stand in other files, which change."""
    if one not in _fast:
        plain = one.plain
        names = {
            name: _compiled(value) if isinstance(value, Kernel) else value
            for name, value in plain.__globals__.items()
            if name in plain.__code__.co_names
        }
        copy = FunctionType(plain.__code__, names, plain.__name__, plain.__defaults__)
        copy.__module__ = plain.__module__
        copy.__qualname__ = f"{plain.__name__}_{_digest(one)}"
        _fast[one] = compiled(copy)
    return _fast[one]


def _digest(one: Kernel) -> str:
    """Of the code of a kernel and of all that it calls, with the numbers that they name."""
    code, found = one.plain.__code__, hashlib.sha256()
    found.update(code.co_code + repr(code.co_consts).encode())
    for name in code.co_names:
        value = one.plain.__globals__.get(name)
        if isinstance(value, Kernel):
            found.update(_digest(value).encode())
        elif isinstance(value, int | float):
            found.update(f"{name} {value!r}".encode())
    return found.hexdigest()[:16]
