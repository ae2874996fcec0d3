"""What code objects name: globals, attributes, imports; read off their instructions."""

from __future__ import annotations

import dis
import types
from collections.abc import Iterator
from typing import Any

from sureline.peer.reach import Import, absolute

_GLOBAL_OPS = frozenset({"LOAD_GLOBAL", "LOAD_NAME", "STORE_GLOBAL", "DELETE_GLOBAL"})
_CONSTANT_OPS = frozenset({"LOAD_CONST", "LOAD_SMALL_INT"})


def _codes(code: types.CodeType) -> Iterator[types.CodeType]:
    """The code, and code nested in it."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _codes(constant)


def global_names(code: types.CodeType) -> set[str]:
    """Names that the code, or code nested in it, looks up among the globals."""
    return {
        one.argval
        for part in _codes(code)
        for one in dis.get_instructions(part)
        if one.opname in _GLOBAL_OPS
    }


def names_in(code: types.CodeType) -> set[str]:
    """All names in the code, or code nested in it: globals, attributes, modules."""
    return {name for part in _codes(code) for name in part.co_names}


def imports_of(code: types.CodeType, package: str) -> Iterator[Import]:
    """What the code, or code nested in it, imports."""
    for part in _codes(code):
        constants: list[Any] = [0, None]
        for one in dis.get_instructions(part):
            if one.opname in _CONSTANT_OPS:
                constants = [constants[-1], one.argval]
            elif one.opname == "IMPORT_NAME":
                level, names = constants
                level = level if isinstance(level, int) else 0
                target = absolute(one.argval, level, package)
                if target:
                    yield Import(target, tuple(names or ()))
