"""What a function does, as a digest: equal in every process, and different when the code is.

It covers the code (with its constants), defaults, closure, and, through global names, the
functions, classes and simple values of the same module that the code refers to. Functions of
other modules count by name only: they are the machine's software, like programs on PATH.
What is not understood is pickled; if that is not stable, results are just not reused.
"""

from __future__ import annotations

import types
from typing import Any

from blake3 import blake3

_MAX_OBJECTS = 10_000
"""How many objects are looked into; past this, names alone count."""
_ATOMS = (int, float, complex, str, bytes, bool, type(None), type(Ellipsis))


def fingerprint(function: object) -> str:
    """A blake3 digest (hex) of what a function does."""
    digest = blake3()
    _Walk(digest).add(function)
    return str(digest.hexdigest())


class _Walk:
    def __init__(self, digest: Any) -> None:
        self._digest = digest
        self._seen: dict[int, int] = {}
        self._kept: list[object] = []
        """Objects must live as long as their ids are remembered."""

    def _write(self, *parts: object) -> None:
        for part in parts:
            data = (
                part if isinstance(part, bytes) else repr(part).encode("utf-8", "backslashreplace")
            )
            self._digest.update(len(data).to_bytes(8, "big") + data)

    def add(self, value: Any) -> None:
        if isinstance(value, _ATOMS):
            self._write(type(value).__name__, value)
            return
        if id(value) in self._seen:
            self._write("again", self._seen[id(value)])
            return
        if len(self._seen) >= _MAX_OBJECTS:
            self._write("more", type(value).__name__)
            return
        self._seen[id(value)] = len(self._seen)
        self._kept.append(value)
        self._add_compound(value)

    def _add_compound(self, value: Any) -> None:
        if isinstance(value, types.FunctionType):
            self._add_function(value)
        elif isinstance(value, types.CodeType):
            self._add_code(value)
        elif isinstance(value, types.MethodType):
            self._write("method")
            self.add(value.__func__)
            self.add(value.__self__)
        elif type(value) in (tuple, list):
            self._write(type(value).__name__, len(value))
            for item in value:
                self.add(item)
        elif type(value) in (set, frozenset):
            self._write(type(value).__name__, sorted(fingerprint(item) for item in value))
        elif type(value) is dict:
            self._write("dict", len(value))
            for key, item in value.items():
                self.add(key)
                self.add(item)
        elif isinstance(value, types.ModuleType):
            self._write("module", value.__name__)
        elif isinstance(value, (types.BuiltinFunctionType, types.MethodWrapperType)):
            self._write("builtin", getattr(value, "__module__", None), value.__qualname__)
        elif isinstance(value, type):
            self._add_class(value)
        else:
            self._add_other(value)

    def _add_function(self, function: types.FunctionType) -> None:
        self._write("function", function.__module__, function.__qualname__)
        self.add(function.__code__)
        self.add(function.__defaults__)
        self.add(function.__kwdefaults__)
        for cell in function.__closure__ or ():
            try:
                self.add(cell.cell_contents)
            except ValueError:
                self._write("empty cell")
        for name in sorted(global_names(function.__code__)):
            if name in function.__globals__:
                self._write("global", name)
                self._add_global(function.__globals__[name], function.__module__)

    def _add_global(self, value: Any, module: str) -> None:
        """What belongs to the same module counts whole, everything else by name."""
        if isinstance(value, (types.FunctionType, type)) and value.__module__ != module:
            self._write("elsewhere", value.__module__, value.__qualname__)
        elif isinstance(value, (types.FunctionType, type, *_ATOMS)) or type(value) in (
            tuple,
            list,
            set,
            frozenset,
            dict,
        ):
            self.add(value)
        else:
            self._write("object", type(value).__module__, type(value).__qualname__)

    def _add_code(self, code: types.CodeType) -> None:
        self._write("code", code.co_code, code.co_names, code.co_varnames, code.co_freevars)
        self._write(
            code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount, code.co_flags
        )
        constants = code.co_consts
        self._write(len(constants))
        for constant in constants:
            self.add(constant)

    def _add_class(self, cls: type) -> None:
        self._write("class", cls.__module__, cls.__qualname__)
        for base in cls.__bases__:
            self._write("base", base.__module__, base.__qualname__)
        for name, value in sorted(vars(cls).items()):
            plain = getattr(value, "__func__", value)
            if isinstance(plain, (types.FunctionType, *_ATOMS)) and name != "__doc__":
                self._write("member", name)
                self.add(plain)

    def _add_other(self, value: Any) -> None:
        import functools

        if isinstance(value, functools.partial):
            self._write("partial")
            for part in (value.func, value.args, value.keywords):
                self.add(part)
            return
        wrapped = getattr(value, "__wrapped__", None)
        if wrapped is not None:
            self._write("wrapper", type(value).__qualname__)
            self.add(wrapped)
            return
        import cloudpickle

        self._write("pickled", type(value).__module__, type(value).__qualname__)
        self._write(cloudpickle.dumps(value, 5))


def global_names(code: types.CodeType) -> set[str]:
    """Names that the code, or code nested in it, may look up among the globals."""
    found = set(code.co_names)
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            found |= global_names(constant)
    return found
