"""Python calls as bytes: functions, arguments, results and exceptions, and back.

Plain pickle is tried first because it is fast; what it cannot carry, or would carry only by the
name `__main__`, goes by value with cloudpickle. A `Handle` inside arguments stands for another
task's result: it travels as a persistent id, the task's name.
"""

from __future__ import annotations

import copyreg
import functools
import io
import pickle
import traceback
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from sureline.peer.fingerprint import fingerprint
from sureline.peer.packed import Collected
from sureline.peer.reach import by_value, dispatches
from sureline.workflow.mistakes import SurelineError

__all__ = [
    "CallFailedError",
    "Handle",
    "by_value_pickler",
    "dump_apart",
    "dump_arguments",
    "dump_by_value",
    "dump_error",
    "dump_function",
    "dump_value",
    "fingerprint",
    "load_arguments",
    "load_error",
]

PROTOCOL = 5
MAX_ERROR_BYTES = 1 << 20


class Handle:
    """Stands for the result of the task it names, wherever it occurs in a call's arguments."""

    __slots__ = ("task",)

    def __init__(self, task: str) -> None:
        self.task = task

    def __repr__(self) -> str:
        return f"<result of {self.task}>"


class CallFailedError(SurelineError):
    """A call's exception that could not travel itself: its type, message and traceback."""

    def __init__(self, type_name: str, message: str, trace: str) -> None:
        super().__init__(f"{type_name}: {message}" if message else type_name)
        self.type_name = type_name
        self.message = message
        self.trace = trace

    def __reduce__(self) -> tuple[type[CallFailedError], tuple[str, str, str]]:
        return CallFailedError, (self.type_name, self.message, self.trace)


class RemoteTraceback(Exception):  # noqa: N818 - shown as a cause, never caught
    """Where an exception was raised in the slot process; shown as its cause."""

    def __init__(self, trace: str) -> None:
        super().__init__(trace)
        self.trace = trace

    def __str__(self) -> str:
        return f'\n"""\n{self.trace}"""'


def dump_value(value: object) -> bytes:
    """Pickle a value. Raises what pickling raises if it cannot travel at all."""
    return dump_apart(value, None)


def dump_apart(value: object, take: Callable[[pickle.PickleBuffer], bool] | None) -> bytes:
    """As `dump_value`; `take` is asked for each large buffer whether it stays in the pickle."""
    buffer = io.BytesIO()
    pickler = pickle.Pickler(buffer, PROTOCOL, buffer_callback=take)
    if isinstance(value, BaseException):
        pickler.dispatch_table = ways_but_of_exceptions()
    try:
        pickler.dump(value)
        data = buffer.getvalue()
    except Exception:
        data = b"__main__"
    if b"__main__" not in data:
        return data
    if isinstance(take, Collected):
        take.views.clear()
    buffer = io.BytesIO()
    by_value_pickler()(buffer, PROTOCOL, buffer_callback=take).dump(value)
    return buffer.getvalue()


def ways_but_of_exceptions() -> dict[type, Callable[[Any], Any]]:
    """How types are pickled here, except exceptions. Some packages (tblib, which Dask loads) have
    these rebuilt by functions of their own, which nobody calls who reads with care."""
    ways = copyreg.dispatch_table.items()
    return {kind: way for kind, way in ways if not issubclass(kind, BaseException)}


def dump_function(function: Callable[..., object]) -> tuple[str, bytes]:
    """A function's digest (its fingerprint) and its bytes."""
    return fingerprint(function), dump_by_value(function)


def dump_by_value(value: object) -> bytes:
    buffer = io.BytesIO()
    by_value_pickler()(buffer, PROTOCOL).dump(value)
    return buffer.getvalue()


def dump_arguments(
    args: tuple[object, ...], kwargs: Mapping[str, object]
) -> tuple[bytes, tuple[str, ...]]:
    """Arguments as bytes, and the tasks whose handles occur in them, in order of first use."""
    uses: dict[str, None] = {}
    both = (args, dict(kwargs))
    try:
        data = _dump(_PlainPickler, both, uses)
    except Exception:
        data = b"__main__"
    if b"__main__" in data:
        uses.clear()
        data = _dump(by_value_pickler(), both, uses)
    return data, tuple(uses)


def _dump(pickler: type[pickle.Pickler], value: object, uses: dict[str, None]) -> bytes:
    buffer = io.BytesIO()
    made = pickler(buffer, PROTOCOL)
    made.uses = uses  # type: ignore[attr-defined]  # both picklers note handles there
    made.dump(value)
    return buffer.getvalue()


def _note_handle(pickler: Any, value: object) -> str | None:
    if not isinstance(value, Handle):
        return None
    pickler.uses[value.task] = None
    return value.task


class _PlainPickler(pickle.Pickler):
    def persistent_id(self, obj: object) -> str | None:
        return _note_handle(self, obj)


@functools.cache
def by_value_pickler() -> type[pickle.Pickler]:
    """Carries functions and classes of the script by value."""
    import cloudpickle

    class ByValuePickler(cloudpickle.Pickler):  # type: ignore[misc]  # it is untyped
        uses: dict[str, None]

        def persistent_id(self, obj: object) -> str | None:
            return _note_handle(self, obj) if hasattr(self, "uses") else None

        def reducer_override(self, obj: object) -> Any:
            """Things of the script's that say that their name is enough, or that hold locks."""
            if isinstance(obj, functools._lru_cache_wrapper) and by_value(obj):
                return _cached, (obj.__wrapped__, obj.cache_parameters())
            if type(obj) is functools.cached_property:
                return _cached_property, (obj.func, obj.attrname)
            if dispatches(obj) and by_value(obj):
                known: Any = obj
                state = (known.__wrapped__, dict(known.registry))
                return _dispatcher, (), state, None, None, _register
            return super().reducer_override(obj)

    return ByValuePickler


def _cached_property(function: Callable[[Any], Any], name: str | None) -> Any:
    made: Any = functools.cached_property(function)
    made.attrname = name
    return made


def _dispatcher() -> Any:
    """One that knows nothing yet: what it is to know may name it."""
    return functools.singledispatch(describe)


def _register(dispatcher: Any, known: tuple[Any, Mapping[type, Callable[..., Any]]]) -> None:
    function, registry = known
    functools.update_wrapper(dispatcher, function)
    for kind, implementation in registry.items():
        dispatcher.register(kind, implementation)


def _cached(function: Callable[..., Any], parameters: Mapping[str, Any]) -> Any:
    return functools.lru_cache(**parameters)(function)


def load_arguments(
    data: bytes, result_of: Callable[[str], object], buffers: Iterable[Any] = ()
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments, each handle replaced by `result_of(task)`, asked for once per task."""
    loader = _Unpickler(io.BytesIO(data), buffers=buffers)
    loader.result_of = result_of
    args, kwargs = loader.load()
    return args, kwargs


class _Unpickler(pickle.Unpickler):
    result_of: Callable[[str], object]

    def __init__(self, file: io.BytesIO, *, buffers: Iterable[Any]) -> None:
        super().__init__(file, buffers=buffers)
        self._results: dict[str, object] = {}

    def persistent_load(self, pid: str) -> object:
        if pid not in self._results:
            self._results[pid] = self.result_of(pid)
        return self._results[pid]


def dump_error(error: BaseException) -> bytes:
    """An exception as bytes that `load_error` surely understands."""
    trace = "".join(traceback.format_exception(type(error), error, error.__traceback__))
    try:
        data = pickle.dumps((dump_value(error), trace), PROTOCOL)
        # many exceptions pickle well and fail to load: their constructors want other arguments
        load_error(data)
        if len(data) <= MAX_ERROR_BYTES:
            return data
    except Exception:
        pass
    failed = CallFailedError(type(error).__qualname__, _text(error)[:10_000], trace[-100_000:])
    return pickle.dumps((dump_value(failed), trace[-100_000:]), PROTOCOL)


def load_error(data: bytes) -> BaseException:
    """The exception, with the remote traceback as its cause."""
    inner, trace = pickle.loads(data)
    error: BaseException = pickle.loads(inner)
    if not isinstance(error, BaseException):
        raise TypeError("not an exception")
    error.__cause__ = RemoteTraceback(trace)
    return error


def describe(error: BaseException) -> str:
    """One sentence for the report."""
    message = _text(error).strip().split("\n", 1)[0][:300]
    return f"{type(error).__name__}: {message}" if message else type(error).__name__


def _text(error: BaseException) -> str:
    try:
        return str(error)
    except Exception:
        return ""
