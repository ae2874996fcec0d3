"""The calls of a workflow as bytes that mean the same in every process and at any time.

Functions and classes that a slot cannot import (those of the script, lambdas) are never written
into arguments or results. There they stand by a *key*: `main:NAME`, or `value:DIGEST` for one
without a name; the function's `Code` carries them by value. So an argument is equal tomorrow if it
is equal, and a result that was made yesterday comes back as the very classes of today's script.

In a result, a key or the name of a class of the user's own modules has a digest of the code beside
it: what is computed from the result is computed again when that code changes.
"""

from __future__ import annotations

import functools
import inspect
import io
import pickle
import sys
import traceback
import types
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from sureline.peer import calls, reach
from sureline.peer.calls import PROTOCOL, Handle, by_value_pickler
from sureline.peer.fingerprint import fingerprint
from sureline.peer.packed import Collected
from sureline.peer.reach import by_value, found
from sureline.workflow.mistakes import SurelineError, UserError

_PLAIN = frozenset({int, float, complex, str, bytes, bool, type(None), list, tuple, dict, set})
Named = tuple[object, str]
"""A function or class, and the digest of its code."""


class Code:
    """A function with all that a slot cannot import: by key, what it, its arguments and the results
    it uses may name. `modules` are the user's modules that it reaches, as they were."""

    def __init__(
        self, function: Callable[..., Any], names: Mapping[str, Named], modules: Mapping[str, str]
    ) -> None:
        self.function = function
        self.names = dict(names)
        self.modules = dict(modules)
        self.key_of = {id(thing): key for key, (thing, _) in self.names.items()}

    def __reduce__(self) -> tuple[Any, ...]:
        return Code, (self.function, self.names, self.modules)

    def changed(self) -> list[str]:
        """The modules that are not as they were when the call was described."""
        now: dict[str, str] = {}
        modules = reach.Modules(now)
        for name in self.modules:
            modules.add(name)
        return [name for name, was in self.modules.items() if now.get(f"module {name}") != was]


def key_of(thing: Any) -> str:
    """What stands for a function or class that travels by value."""
    module, qualname = getattr(thing, "__module__", None), getattr(thing, "__qualname__", "")
    if module == "__main__" and found(module, qualname) is thing:
        return f"main:{qualname}"
    return f"value:{fingerprint(thing)[: reach.DIGEST_DIGITS]}"


class Arguments(NamedTuple):
    """Pickled arguments, and what they name: results of tasks, code that travels by value (by key),
    modules of things that travel by name."""

    pickled: bytes
    buffers: list[memoryview]
    uses: tuple[str, ...]
    code: dict[str, object]
    modules: tuple[str, ...]


class _Notes:
    """What a pickler of arguments meets."""

    def __init__(self) -> None:
        self.uses: dict[str, None] = {}
        self.code: dict[str, object] = {}
        self.modules: dict[str, None] = {}

    def id_of(self, obj: Any) -> object:
        kind = type(obj)
        if kind in _PLAIN:
            return None
        if kind is Handle:
            self.uses[obj.task] = None
            return obj.task
        if isinstance(obj, types.FunctionType | type | functools._lru_cache_wrapper):
            return self._code(obj)
        return None

    def _code(self, obj: Any) -> object:
        if not by_value(obj):
            self.modules[obj.__module__] = None
            return None
        key = key_of(obj)
        self.code[key] = obj
        return "code", key


class _Results:
    """What a pickler of a result meets, in a slot: code that came with the call."""

    def __init__(self, code: Code) -> None:
        self._code = code

    def id_of(self, obj: Any) -> object:
        if type(obj) in _PLAIN:
            return None
        if isinstance(obj, types.FunctionType | type | functools._lru_cache_wrapper):
            key = self._code.key_of.get(id(obj))
            if key is not None:
                return "code", key, self._code.names[key][1]
            module = obj.__module__
            if not by_value(obj) and _is_own(module):
                return "from", module, obj.__qualname__, _code_digest(module)
        return None


_is_own = functools.lru_cache(maxsize=1024)(reach.is_own)
_code_digest = functools.lru_cache(maxsize=1024)(reach.code_digest)
"""In a slot, which lives as long as a run at most."""


class _Plain(pickle.Pickler):
    notes: _Notes | _Results

    def persistent_id(self, obj: object) -> object:
        return self.notes.id_of(obj)


@functools.cache
def _by_value() -> type[pickle.Pickler]:
    class ByValue(by_value_pickler()):  # type: ignore[misc]  # made at run time
        notes: _Notes | _Results

        def persistent_id(self, obj: object) -> object:
            return self.notes.id_of(obj)

    return ByValue


def _dump(value: object, notes: _Notes | _Results) -> tuple[bytes, list[memoryview]]:
    try:
        return _dumped(_Plain, value, notes)
    except Exception:  # perhaps something that only cloudpickle can carry
        return _dumped(_by_value(), value, notes)


def _dumped(
    pickler: type[pickle.Pickler], value: object, notes: _Notes | _Results
) -> tuple[bytes, list[memoryview]]:
    taken, buffer = Collected(), io.BytesIO()
    made = pickler(buffer, PROTOCOL, buffer_callback=taken)
    made.notes = notes  # type: ignore[attr-defined]  # both have it
    if pickler is _Plain and isinstance(value, BaseException):
        made.dispatch_table = calls.ways_but_of_exceptions()
    made.dump(value)
    return buffer.getvalue(), taken.views


def dump_arguments(args: tuple[object, ...], kwargs: Mapping[str, object]) -> Arguments:
    notes = _Notes()
    pickled, views = _dump((args, dict(kwargs)), notes)
    return Arguments(pickled, views, tuple(notes.uses), notes.code, tuple(notes.modules))


def dump_result(value: object, code: Code) -> tuple[bytes, list[memoryview]]:
    return _dump(value, _Results(code))


def dump_error(error: BaseException, code: Code) -> bytes:
    """As `calls.dump_error`, with classes of the script by their keys."""
    trace = "".join(traceback.format_exception(type(error), error, error.__traceback__))
    try:
        inner, views = dump_result(error, code)
        load(inner, (), lambda key: code.names[key][0])
        data = pickle.dumps((inner, trace), PROTOCOL)
        if not views and len(data) <= calls.MAX_ERROR_BYTES:
            return data
    except Exception:  # as there
        pass
    return calls.dump_error(error)


def load_error(data: bytes, named: Callable[[str], object]) -> BaseException:
    """The exception, with the traceback of where it was raised as its cause."""
    inner, trace = pickle.loads(data)
    error = load(inner, (), named)
    if not isinstance(error, BaseException):
        raise TypeError("not an exception")
    error.__cause__ = calls.RemoteTraceback(trace)
    return error


def dump_code(code: Code) -> tuple[bytes, list[memoryview]]:
    """By value; large buffers (a closure over an array) apart."""
    taken = Collected()
    buffer = io.BytesIO()
    try:
        by_value_pickler()(buffer, PROTOCOL, buffer_callback=taken).dump(code)
    except Exception as error:
        raise UserError(_why_it_stays(code, error)) from error
    return buffer.getvalue(), taken.views


def _why_it_stays(code: Code, error: Exception) -> str:
    """Which of the globals that some function names cannot travel, if it is one of them."""
    for thing in (code.function, *(thing for thing, _ in code.names.values())):
        function = inspect.unwrap(thing) if callable(thing) else thing
        if not isinstance(function, types.FunctionType):
            continue
        for name in function.__code__.co_names:
            value = function.__globals__.get(name)
            if value is not None and not _travels(value):
                return (
                    f"{function.__qualname__} cannot be sent to a worker: its global {name} "
                    f"({type(value).__name__}) cannot be pickled; make it inside the function, "
                    "or in a module of its own that the function imports"
                )
    name = getattr(code.function, "__qualname__", repr(code.function))
    return f"{name} cannot be sent to a worker: it holds what cannot be pickled ({error})"


def _travels(value: object) -> bool:
    try:
        by_value_pickler()(io.BytesIO(), PROTOCOL).dump(value)
    except Exception:
        return False
    return True


class _Loader(pickle.Unpickler):
    result_of: Callable[[str], object]
    named: Callable[[str], object]

    def __init__(self, file: Any, buffers: Iterable[Any]) -> None:
        super().__init__(file, buffers=buffers)
        self._results: dict[str, object] = {}

    def persistent_load(self, pid: Any) -> object:
        if isinstance(pid, str):
            if pid not in self._results:
                self._results[pid] = self.result_of(pid)
            return self._results[pid]
        if pid[0] == "from":
            __import__(pid[1])
            return found(pid[1], pid[2])
        return self.named(pid[1])


def load(
    pickled: Any,
    buffers: Iterable[Any],
    named: Callable[[str], object],
    result_of: Callable[[str], object] | None = None,
) -> Any:
    """A value; `named` knows what stands for code, `result_of` what for a task's result."""
    loader = _Loader(io.BytesIO(pickled), buffers)
    loader.named = named
    loader.result_of = result_of or _no_result
    return loader.load()


def _no_result(task: str) -> object:
    raise SurelineError(f"the result of {task} stands in a value that may hold none")


def named_here(key: str, known: Mapping[str, Named]) -> object:
    """What a key means in this process: the script's own, by name, before what is `known`."""
    sort, _, name = key.partition(":")
    if sort == "main":
        thing = found("__main__", name)
        if thing is not None:
            return thing
    if key in known:
        return known[key][0]
    main = getattr(sys.modules.get("__main__"), "__file__", "this script")
    raise SurelineError(
        f"the result holds a {name!r} of the script that made it, and {main} has none of that name"
    )
