"""Values that came from another machine, taken without letting it run anything here.

A pickle is a program: whoever writes it can have the reader call any function that it can import.
A call's result that a peer of a grid sends is read by the user's own process, so it is read by this
machine instead, which builds data and calls nothing but what is named in one table:

- plain data: numbers, text, bytes, lists, tuples, dictionaries, sets, dates, paths and their like;
- arrays of numpy, whose descriptions are made anew and compared (a forged one could make memory
  that was never an object be taken for one);
- instances of the user's own classes, as pickle makes them: `__new__`, then their attributes, or
  their `__setstate__`. A class is called itself only if it is an exception or an enumeration, or
  has a `__reduce__` of its own. Functions and classes of the user's may be held, and are
  not called.

All else is refused, naming it. What this does not stop: a result that is false, or very large.
"""

from __future__ import annotations

import array
import collections
import datetime
import decimal
import enum
import fractions
import io
import pathlib
import pickle
import sys
import types
import uuid
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, ClassVar

from sureline.peer import careful_arrays
from sureline.peer.calls import CallFailedError, RemoteTraceback
from sureline.peer.reach import found, is_own
from sureline.workflow.mistakes import SurelineError


class UnsafeValueError(SurelineError):
    """A value from another machine that is more than data."""


Named = Callable[[str], object]
"""What a key of `peer.code` stands for in this process."""

_HELD = (int, float, complex, str, bytes, bool, list, tuple, dict, set, frozenset, object)
"""Builtins that may stand in a value, such as the `list` of a defaultdict."""
_CALLED: dict[tuple[str, str], Any] = {
    **{
        (one.__module__, one.__qualname__): one
        for one in (
            complex, set, frozenset, bytearray, range, slice,
            collections.OrderedDict, collections.deque, collections.Counter,
            datetime.datetime, datetime.date, datetime.time, datetime.timedelta, datetime.timezone,
            decimal.Decimal, fractions.Fraction, uuid.UUID, types.SimpleNamespace,
            pathlib.PurePosixPath, pathlib.PureWindowsPath, pathlib.PosixPath,
        )
    },
    ("array", "_array_reconstructor"): array._array_reconstructor,  # type: ignore[attr-defined]  # not in its stub
}  # fmt: skip
"""What may be called: nothing of it has effects, whatever it is called with."""
_MADE_BY_NEW = (uuid.UUID, types.SimpleNamespace)


class _Machine(pickle._Unpickler):
    """The interpreter's own reader of pickles, with every step that calls something replaced."""

    dispatch: ClassVar[dict[int, Any]] = dict(pickle._Unpickler.dispatch)

    stack: list[Any]
    pop_mark: Callable[[], list[Any]]

    def __init__(self, data: Any, buffers: Iterable[Any], named: Named, modules: Collection[str]):
        super().__init__(io.BytesIO(data), buffers=buffers)
        self._named = named
        self._modules = modules
        self._own: dict[int, object] = {}
        """Classes and functions of the user's that the value names."""
        self._made: dict[int, object] = {}
        """What was made here, and may be given attributes."""

    # -- names -----------------------------------------------------------------------------------

    def find_class(self, module: str, name: str) -> Any:
        thing = _CALLED.get((module, name))
        if thing is not None:
            return thing
        if module == "builtins":
            thing = next((one for one in _HELD if one.__name__ == name), None)
            thing = thing or _exception(name)
            if name == "getattr":
                thing = _member
        elif (module, name) == ("collections", "defaultdict"):
            thing = _defaultdict
        elif module.startswith("numpy"):
            thing = careful_arrays.found(module, name)
        elif (module, name) == ("sureline.peer.calls", "CallFailedError"):
            thing = CallFailedError
        if thing is None:
            raise UnsafeValueError(f"it holds a {module}.{name}")
        return thing

    def get_extension(self, code: int) -> Any:
        raise UnsafeValueError("it names things by numbers")

    def persistent_load(self, pid: Any) -> Any:
        if isinstance(pid, tuple) and len(pid) >= 2 and all(isinstance(one, str) for one in pid):
            thing = None
            if pid[0] == "code":
                thing = self._named(pid[1])
            elif pid[0] == "from" and len(pid) >= 3:
                thing = self._imported(pid[1], pid[2])
            if isinstance(thing, types.FunctionType | type):
                self._own[id(thing)] = thing
                return thing
        raise UnsafeValueError(f"it names {pid!r}"[:200])

    def _imported(self, module: str, qualname: str) -> object:
        """Of a module of the user's own that is loaded, or that the workflow reaches."""
        if module not in sys.modules and module in self._modules:
            __import__(module)
        thing = found(module, qualname) if module in sys.modules and is_own(module) else None
        mine = getattr(thing, "__module__", "") == module
        if not mine or getattr(thing, "__qualname__", "") != qualname:
            raise UnsafeValueError(f"it holds a {module}.{qualname}")
        return thing

    # -- steps that make something ---------------------------------------------------------------

    def _is_own_class(self, thing: object) -> bool:
        return isinstance(thing, type) and id(thing) in self._own

    def _push(self, thing: object) -> None:
        self._made[id(thing)] = thing
        self.stack.append(thing)

    def _reduce(self) -> None:
        args = self.stack.pop()
        function = self.stack.pop()
        if not isinstance(args, tuple):
            raise UnsafeValueError("it calls something with what are no arguments")
        if self._is_own_class(function):
            allowed = _rebuilds_itself(function)
        else:
            allowed = any(function is one for one in _callables())
            allowed = allowed or (isinstance(function, type) and issubclass(function, Exception))
        if not allowed:
            raise UnsafeValueError(f"it would call {_name(function)}")
        self._push(function(*args))

    dispatch[pickle.REDUCE[0]] = _reduce

    def _new(self) -> None:
        args = self.stack.pop()
        self._make(self.stack.pop(), args, {})

    dispatch[pickle.NEWOBJ[0]] = _new

    def _new_with_names(self) -> None:
        kwargs = self.stack.pop()
        args = self.stack.pop()
        self._make(self.stack.pop(), args, kwargs)

    dispatch[pickle.NEWOBJ_EX[0]] = _new_with_names

    def _make(self, cls: Any, args: Any, kwargs: Any) -> None:
        if not (self._is_own_class(cls) or cls in _MADE_BY_NEW):
            raise UnsafeValueError(f"it would make a {_name(cls)}")
        self._push(cls.__new__(cls, *args, **kwargs))

    def _build(self) -> None:
        state, thing = self.stack[-1], self.stack[-2]
        if id(thing) not in self._made or isinstance(thing, type | types.FunctionType | enum.Enum):
            raise UnsafeValueError(f"it would change a {_name(type(thing))}")
        if type(thing).__module__.partition(".")[0] == "numpy":
            self.stack.pop()
            if not careful_arrays.is_true(thing, state):
                raise UnsafeValueError("it holds an array that is not what it says")
            thing.__setstate__(state)
            return
        pickle._Unpickler.load_build(self)  # type: ignore[attr-defined]  # as above

    dispatch[pickle.BUILD[0]] = _build

    def _append_all(self) -> None:
        items = self.pop_mark()
        self._to(list, collections.deque).extend(items)

    dispatch[pickle.APPENDS[0]] = _append_all

    def _append_one(self) -> None:
        item = self.stack.pop()
        self._to(list, collections.deque).append(item)

    dispatch[pickle.APPEND[0]] = _append_one

    def _set_all(self) -> None:
        items = self.pop_mark()
        into = self._to(dict)
        for at in range(0, len(items), 2):
            into[items[at]] = items[at + 1]

    dispatch[pickle.SETITEMS[0]] = _set_all

    def _set_one(self) -> None:
        value = self.stack.pop()
        key = self.stack.pop()
        self._to(dict)[key] = value

    dispatch[pickle.SETITEM[0]] = _set_one

    def _add_all(self) -> None:
        items = self.pop_mark()
        self._to(set).update(items)

    dispatch[pickle.ADDITEMS[0]] = _add_all

    def _to(self, *kinds: type) -> Any:
        if not isinstance(self.stack[-1], kinds):
            raise UnsafeValueError(f"it would fill a {_name(type(self.stack[-1]))}")
        return self.stack[-1]

    def _old(self) -> None:
        raise UnsafeValueError("it was written in a way that we do not use")

    dispatch[pickle.INST[0]] = _old
    dispatch[pickle.OBJ[0]] = _old


class _Plain(pickle.Unpickler):
    """Reads what names nothing at all, quickly."""

    def find_class(self, module: str, name: str) -> Any:
        raise _NamesSomethingError

    def persistent_load(self, pid: Any) -> Any:
        raise _NamesSomethingError


class _NamesSomethingError(Exception):
    pass


def load(pickled: Any, buffers: Iterable[Any], named: Named, modules: Collection[str] = ()) -> Any:
    """The value. `named` knows the user's classes by their keys, `modules` are those of the user's
    own that may be imported for it. Raises UnsafeValueError for anything that is more than data."""
    buffers = list(buffers)
    try:
        return _Plain(io.BytesIO(pickled), buffers=buffers).load()
    except _NamesSomethingError:
        pass
    except Exception as error:
        raise UnsafeValueError(f"it makes no sense ({type(error).__name__})") from None
    try:
        return _Machine(pickled, buffers, named, modules).load()
    except SurelineError:
        raise
    except Exception as error:
        raise UnsafeValueError(f"it makes no sense ({type(error).__name__}: {error})") from error


def load_error(data: bytes, named: Named, modules: Collection[str] = ()) -> BaseException:
    """The exception of a call, as `calls.load_error`; one that may not be made is told in words."""
    trace = ""
    try:
        inner, trace = load(data, (), named, modules)
        error: Any = load(inner, (), named, modules)
        if not isinstance(error, Exception) or not isinstance(trace, str):
            raise UnsafeValueError("it is no exception")
    except SurelineError as why:
        lines = str(trace).strip().splitlines()
        message = lines[-1] if lines else f"the exception cannot be shown: {why}"
        kind, _, text = message.partition(": ")
        error = CallFailedError(kind, text, str(trace))
    raised: BaseException = error
    raised.__cause__ = RemoteTraceback(str(trace))
    return raised


def named_here(key: str, known: Mapping[str, tuple[object, str]]) -> object:
    """As `code.named_here`, of the script's own functions and classes only."""
    sort, _, name = key.partition(":")
    thing = found("__main__", name) if sort == "main" else None
    if thing is not None and getattr(thing, "__module__", "") == "__main__":
        return thing
    if key in known:
        return known[key][0]
    raise UnsafeValueError(f"it holds a {name!r} of a script, and this one has none of that name")


# -- what may be called --------------------------------------------------------------------------


def _callables() -> list[Any]:
    return [*_CALLED.values(), _member, _defaultdict, CallFailedError, *careful_arrays.CALLED]


def _rebuilds_itself(cls: Any) -> bool:
    own = cls.__reduce__ is not object.__reduce__ or cls.__reduce_ex__ is not object.__reduce_ex__
    return own or issubclass(cls, enum.Enum | BaseException)


def _member(cls: Any, name: Any) -> object:
    """What enumerations use `getattr` for."""
    if isinstance(cls, enum.EnumMeta) and name in cls.__members__:
        return cls.__members__[name]
    raise UnsafeValueError(f"it would look up {_name(cls)}.{name}")


def _defaultdict(factory: Any = None) -> Any:
    if factory is not None and factory not in _HELD:
        raise UnsafeValueError(f"its entries would be made by {_name(factory)}")
    return collections.defaultdict(factory)


def _exception(name: str) -> type | None:
    thing = getattr(__import__("builtins"), name, None)
    return thing if isinstance(thing, type) and issubclass(thing, Exception) else None


def _name(thing: Any) -> str:
    return f"{getattr(thing, '__module__', '')}.{getattr(thing, '__qualname__', type(thing))}"
