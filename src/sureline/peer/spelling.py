"""The bytes that stand for a part of a user's code or data; equal in every process if that is."""

from __future__ import annotations

import enum
import functools
import pickle
import sys
import types
from typing import TYPE_CHECKING, Any

from blake3 import blake3

from sureline.peer.bytecode import global_names, imports_of, names_in
from sureline.peer.reach import (
    DIGEST_DIGITS,
    by_value,
    dispatches,
    imports_by_name,
    installed_version,
    is_standard,
    origin,
)

if TYPE_CHECKING:
    from sureline.peer.fingerprint import Walk

_MAX_OBJECTS = 1_000_000
_ATOMS = (int, float, complex, str, bytes, bool, type(None), type(Ellipsis), type(NotImplemented))
_OF_EVERY_CLASS = frozenset(
    {
        "__doc__",
        "__dict__",
        "__weakref__",
        "__module__",
        "__qualname__",
        "__firstlineno__",
        "__static_attributes__",
        "__abstractmethods__",
        "_abc_impl",
        "__annotations_cache__",
        "__annotate_func__",
        "__annotate__",
        "__classdictcell__",
        "__slotnames__",
    }
)
"""Members that say nothing about what a class does, or the same as its other members."""
_OF_DATACLASSES = frozenset(
    {
        "__dataclass_fields__",
        "__dataclass_params__",
        "__match_args__",
        "__annotations__",
        "__repr__",
    }
)
_DESCRIPTORS = (
    types.MemberDescriptorType,
    types.GetSetDescriptorType,
    types.WrapperDescriptorType,
    types.MethodDescriptorType,
    types.ClassMethodDescriptorType,
    types.BuiltinFunctionType,
    types.MethodWrapperType,
)


class Spelling:
    """The bytes that stand for one part."""

    def __init__(self, walk: Walk) -> None:
        self._walk = walk
        self._digest = blake3()
        self._seen: dict[int, int] = {}
        self._kept: list[object] = []

    def digest(self) -> str:
        return str(self._digest.hexdigest())[:DIGEST_DIGITS]

    def _write(self, *parts: object) -> None:
        for part in parts:
            data = (
                part if isinstance(part, bytes) else repr(part).encode("utf-8", "backslashreplace")
            )
            self._digest.update(len(data).to_bytes(8, "big") + data)

    def add(self, value: Any) -> None:
        if type(value) in _ATOMS:
            self._write(type(value).__name__, value)
            return
        if id(value) in self._seen:
            self._write("again", self._seen[id(value)])
            return
        if len(self._seen) >= _MAX_OBJECTS:
            raise ValueError("too many objects")
        self._seen[id(value)] = len(self._seen)
        self._kept.append(value)
        if isinstance(value, types.FunctionType | type):
            name = self._walk.refer(value)
            if name is None:
                self.spell(value)
            else:
                self._write("named", name)
        else:
            self._add_compound(value)

    def spell(self, thing: Any) -> None:
        """Write a function or class out."""
        if isinstance(thing, type):
            self._walk.watch_class(thing)
            self._add_class(thing)
        elif isinstance(thing, types.FunctionType):
            self._add_function(thing)
        else:
            self.add(thing)

    def _add_compound(self, value: Any) -> None:
        if not isinstance(value, tuple | frozenset | types.CodeType | types.ModuleType):
            self._walk.may_change()
        if isinstance(value, types.CodeType):
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
            self._write(type(value).__name__, sorted(self._apart(item) for item in value))
        elif type(value) in (dict, types.MappingProxyType):
            self._write("dict", len(value))
            for key, item in value.items():
                self.add(key)
                self.add(item)
        elif isinstance(value, types.ModuleType):
            self._write("module", value.__name__)
            self._walk.module(value.__name__)
        elif isinstance(value, _DESCRIPTORS):
            self._add_builtin(value)
        else:
            self._add_other(value)

    def _apart(self, value: Any) -> str:
        """An item's digest alone: the order of a set differs between processes."""
        stream = Spelling(self._walk)
        stream.add(value)
        return stream.digest()

    def _add_builtin(self, value: Any) -> None:
        module = getattr(value, "__module__", None)
        self._write("builtin", module, value.__qualname__)
        bound = getattr(value, "__self__", None)
        if module:
            self._walk.module(module)
        elif bound is not None and not isinstance(bound, types.ModuleType | type):
            self.add(bound)

    def _add_function(self, function: types.FunctionType) -> None:
        self._write("function", function.__module__, function.__qualname__)
        if dispatches(function):
            known: Any = function
            self._walk.may_change()  # it may learn of more types at any time
            self.add(known.__wrapped__)
            self.add(known.registry)
            return
        self._add_code(function.__code__)
        self.add(function.__defaults__)
        self.add(function.__kwdefaults__)
        for cell in function.__closure__ or ():
            try:
                self._walk.watch(cell, None, cell.cell_contents)
                self.add(cell.cell_contents)
            except ValueError:
                self._write("empty cell")
        if _is_foreign(function.__module__):
            self._walk.module(function.__module__)
            return  # a closure of an installed package: its version stands for its globals
        scope = function.__globals__
        package = scope.get("__package__") or ""
        for one in imports_of(function.__code__, package):
            self._write("import", one.module)
            self._walk.module(one.module, one.names)
        for name in sorted(filter(imports_by_name, names_in(function.__code__))):
            self._walk.hide(f"{function.__qualname__} imports modules by name ({name})")
        for name in sorted(global_names(function.__code__)):
            if name in scope:
                self._write("global", name)
                self._walk.watch(scope, name, scope[name])
                self._add_global(name, scope[name], function)

    def _add_global(self, name: str, value: Any, function: types.FunctionType) -> None:
        if isinstance(value, types.FunctionType | type):
            self.add(value)
        elif isinstance(value, types.ModuleType):
            self._add_module(value, function.__code__)
        elif function.__module__ == "__main__":
            self._walk.global_value(name, value)
        else:
            self.add(value)

    def _add_module(self, module: types.ModuleType, code: types.CodeType) -> None:
        """A module by its code, and those inside of it that the code names."""
        self._write("module", module.__name__)
        inside = {n for n in names_in(code) if f"{module.__name__}.{n}" in sys.modules}
        self._walk.module(module.__name__, tuple(sorted(inside)))

    def _add_code(self, code: types.CodeType) -> None:
        self._write("code", code.co_code, code.co_names, code.co_varnames, code.co_freevars)
        self._write(
            code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount, code.co_flags
        )
        self._write(len(code.co_consts), code.co_exceptiontable)
        for constant in code.co_consts:
            self._add_constant(constant)

    def _add_constant(self, constant: Any) -> None:
        """By value alone: which constants are one object differs between processes."""
        if isinstance(constant, types.CodeType):
            self._add_code(constant)
        elif isinstance(constant, tuple):
            self._write("tuple", len(constant))
            for item in constant:
                self._add_constant(item)
        elif isinstance(constant, frozenset):
            self._write("frozenset", sorted(self._apart(item) for item in constant))
        else:
            self._write(type(constant).__name__, constant)

    def _add_class(self, cls: type) -> None:
        self._write("class", cls.__module__, cls.__qualname__)
        for base in cls.__bases__:
            self.add(base)
        if type(cls) is not type:
            self.add(type(cls))
        if issubclass(cls, enum.Enum):
            for name, member in cls.__members__.items():
                self._write("value", name)
                self.add(member._value_)
        for name, value in sorted(vars(cls).items()):
            if name in _OF_EVERY_CLASS or _is_of_enum(name, cls):
                continue
            self._write("member", name)
            if "__dataclass_fields__" in vars(cls) and name in _OF_DATACLASSES:
                with self._walk.made_with_its_class():
                    self._add_member(value)
            else:
                self._add_member(value)

    def _add_member(self, value: Any) -> None:
        if isinstance(value, staticmethod | classmethod):
            self._write(type(value).__name__)
            self._add_member(value.__func__)
        elif isinstance(value, types.FunctionType):
            if id(value) in self._seen:
                self._write("again", self._seen[id(value)])
                return
            self._seen[id(value)] = len(self._seen)
            self._kept.append(value)
            if by_value(value) or "." in value.__qualname__:
                self._add_function(value)
            else:
                self.add(value)
        elif isinstance(value, property):
            self._write("property")
            for part in (value.fget, value.fset, value.fdel):
                self._add_member(part)
        elif isinstance(value, functools.cached_property):
            self._write("cached property")
            self._add_member(value.func)
        else:
            self.add(value)

    def _add_other(self, value: Any) -> None:
        if isinstance(value, functools.partial):
            self._write("partial")
            for part in (value.func, value.args, value.keywords):
                self.add(part)
            return
        if isinstance(value, pickle.PickleBuffer):
            with value.raw() as raw:
                self._digest.update(raw)
            return
        if isinstance(value, staticmethod | classmethod | property | functools.cached_property):
            self._add_member(value)
            return
        if isinstance(value, functools._lru_cache_wrapper):
            self._write("cached", sorted(value.cache_parameters().items()))
            self.add(value.__wrapped__)
            return
        self._write("object", type(value).__module__, type(value).__qualname__)
        self._add_reduced(value)

    def _add_reduced(self, value: Any) -> None:
        """What pickle would carry of it."""
        reduced = _reduced(value)
        if isinstance(reduced, str):
            self._write("by name", reduced)
            self._walk.module(getattr(value, "__module__", None) or type(value).__module__)
            return
        function, arguments, *rest = reduced
        self.add(function)
        self.add(tuple(arguments))
        for k, part in enumerate(rest[:3]):
            if part is not None:
                self._write("state", k)
                self.add(part if k == 0 else list(part))


def _is_of_enum(name: str, cls: type) -> bool:
    """Whether the machinery of enumerations keeps its books under that name."""
    if not issubclass(cls, enum.Enum):
        return False
    return name in cls.__members__ or (name[:1] == name[-1:] == "_" and name[:2] != "__")


def _reduced(value: Any) -> Any:
    import copyreg

    special = copyreg.dispatch_table.get(type(value))
    return special(value) if special is not None else value.__reduce_ex__(5)


def _is_foreign(module: str | None) -> bool:
    """Whether a module is of the standard library or installed."""
    if not module or module == "__main__":
        return False
    top = module.partition(".")[0]
    if is_standard(top):
        return True
    path = origin(module)
    return path is not None and installed_version(top, path) is not None
