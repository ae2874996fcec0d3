"""Compiling arithmetic over arrays to machine code: the only module that imports Numba.

The code of a compiled function is kept on disk (beside the package, or in the user's cache if that
cannot be written), so only the first use after an installation waits for the compiler; `python -m
sureline.forecast.warm` does that ahead of time. Compiled code lets other threads run.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import numba

F = TypeVar("F", bound=Callable[..., object])


def compiled(function: F) -> F:
    """The function as machine code. It must be pure arithmetic over numbers, arrays and tuples of
    them, and takes no randomness but what it is given: equal arguments give equal results."""
    found: F = numba.njit(function, cache=True, nogil=True, error_model="numpy")
    return found


def inlined(function: F) -> F:
    """A part of compiled functions, put into each of them whole: a call that passes ten arrays
    costs more than what it calls."""
    found: F = numba.njit(function, inline="always", nogil=True, error_model="numpy")
    return found
