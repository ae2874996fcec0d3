"""Values from other machines: data comes through, and nothing is called that must not be."""

from __future__ import annotations

import collections
import copyreg
import datetime
import decimal
import enum
import functools
import os
import pathlib
import pickle
import subprocess
import sys
import uuid
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sureline.peer import careful, code
from sureline.peer.calls import CallFailedError, dump_error
from sureline.peer.careful import UnsafeValueError
from sureline.peer.code import Code


class Colour(enum.Enum):
    RED = 1


class Flags(enum.Flag):
    A = 1
    B = 2


@dataclass
class Point:
    x: float
    more: list[int] = field(default_factory=list)


class Pair(NamedTuple):
    a: int
    b: str


class Slotted:
    __slots__ = ("x",)

    def __init__(self, x: int) -> None:
        self.x = x


class Called:
    """Calling it has an effect."""

    told: list[object] = []  # noqa: RUF012 - shared on purpose

    def __init__(self, what: object) -> None:
        self.told.append(what)


class OwnError(ValueError):
    pass


def effect(what: object) -> None:
    Called.told.append(what)


OWN = (Colour, Flags, Point, Pair, Slotted, Called, OwnError, effect)
NAMES = {f"main:{one.__qualname__}": (one, "digest") for one in OWN}
CODE = Code(len, NAMES, {})


def named(key: str) -> object:
    return careful.named_here(key, NAMES)


def through(value: object) -> Any:
    """As a peer would send it, and as it is taken here."""
    pickled, views = code.dump_result(value, CODE)
    return careful.load(pickled, [bytes(view) for view in views], named)


DATA = [
    {"a": [1, 2.5, None, True, "x", b"y", (1, 2), {3}, frozenset({4}), 1j]},
    collections.OrderedDict(a=1),
    collections.Counter("abca"),
    collections.deque([1, 2], 5),
    datetime.datetime(2026, 1, 2, 3, tzinfo=datetime.UTC),
    datetime.timedelta(seconds=3),
    decimal.Decimal("1.50"),
    pathlib.PurePosixPath("a/b"),
    uuid.UUID(int=5),
    range(3),
    bytearray(b"abc"),
    Colour.RED,
    Flags.A | Flags.B,
    Point(1.0, [2]),
    [Pair(1, "b"), Pair(2, "c")],
]


@pytest.mark.parametrize("value", DATA, ids=lambda value: type(value).__name__)
def test_data_comes_through(value: object) -> None:
    got = through(value)
    assert got == value
    assert type(got) is type(value)


def test_classes_are_the_very_same() -> None:
    assert through(Colour.RED) is Colour.RED
    assert through(Slotted(4)).x == 4
    assert through({"held": Point, "also": effect}) == {"held": Point, "also": effect}
    made = through(collections.defaultdict(list, a=[1]))
    assert made == {"a": [1]} and made["new"] == []


ARRAYS = [
    np.arange(6.0).reshape(2, 3),
    np.asfortranarray(np.arange(6).reshape(2, 3)),
    np.array([1, "x", None], dtype=object),
    np.zeros(3, dtype=[("a", "f8"), ("b", "i4", (2,))]),
    np.array(["2020-01-01", "NaT"], dtype="M8[ns]"),
    np.array(["ab", "c"]),
    np.array([1, 2], dtype=">i4"),
    np.arange(60_000.0),
    np.float32(2.5),
    np.bool_(True),
    np.datetime64("2020-01-01"),
]


@pytest.mark.parametrize("value", ARRAYS, ids=lambda value: str(value.dtype))
def test_arrays_come_through(value: Any) -> None:
    got = through([value])[0]
    assert got.dtype == value.dtype and got.shape == value.shape
    assert np.array_equal(got, value) or str(got) == str(value)


@settings(max_examples=60)
@given(
    st.recursive(
        st.none() | st.integers() | st.floats(allow_nan=False) | st.text() | st.binary(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner) | st.tuples(inner, inner),
        max_leaves=20,
    )
)
def test_whatever_is_plain_comes_through_wrapped_or_not(value: object) -> None:
    assert through(value) == value
    assert through(Point(0.0, [value])).more == [value]  # type: ignore[list-item]  # any data


class Reduced:
    """Pickles as a call of `function`."""

    def __init__(self, function: object, *args: object, state: object = None) -> None:
        self._as = (function, args) if state is None else (function, args, state)

    def __reduce__(self) -> Any:
        return self._as


def named_by(*pid: str) -> bytes:
    return pickle.dumps(pid, 0)[:-1] + pickle.BINPERSID


def own(thing: Any) -> bytes:
    """The opcodes that name one of the user's own things."""
    return named_by("code", f"main:{thing.__qualname__}", "d")


CALLED_WITH_1 = b"(I1\nt" + pickle.REDUCE

FORGED = {
    "system": pickle.dumps(Reduced(os.system, "touch effect")),
    "popen": pickle.dumps(Reduced(subprocess.Popen, ["touch", "effect"])),
    "eval": pickle.dumps(Reduced(eval, "effect(1)")),
    "import": pickle.dumps(Reduced(__import__, "antigravity")),
    "getattr": pickle.dumps(Reduced(getattr, Reduced(__import__, "os"), "system")),
    "partial": pickle.dumps(Reduced(functools.partial, print)),
    "own function": own(effect) + CALLED_WITH_1 + b".",
    "own class": own(Called) + CALLED_WITH_1 + b".",
    "own class of old": b"(" + own(Called) + b"I1\n" + pickle.OBJ + b".",
    "change a class": own(Point) + b"}S'x'\nI1\ns" + pickle.BUILD + b".",
    "change a member": own(Colour) + CALLED_WITH_1 + b"}S'_value_'\nI5\ns" + pickle.BUILD + b".",
    "fill an object": own(Point) + b")" + pickle.NEWOBJ + b"I1\na.",
    "through the script": named_by("code", "main:os.system", "d") + CALLED_WITH_1 + b".",
    "through a module": named_by("from", "antigravity", "fly", "d") + b".",
    "a module's module": named_by("from", __name__, "os.system", "d") + b".",
    "extension": pickle.EXT1 + b"\x01.",
    "factory": pickle.dumps(Reduced(collections.defaultdict, print)),
    "exit": pickle.dumps(Reduced(SystemExit, 3)),
    "nonsense": b"\x80\x05]q.",
    "empty": b"",
}


@pytest.mark.parametrize("name", FORGED)
def test_a_forged_value_calls_nothing(
    name: str, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Called.told.clear()
    with pytest.raises(UnsafeValueError):
        careful.load(FORGED[name], (), named)
    assert not Called.told and not list(tmp_path.iterdir())
    assert "antigravity" not in sys.modules
    assert Colour.RED.value == 1 and not hasattr(Point, "x")


def _array_with(dtype_state: Any, data: bytes) -> bytes:
    """An array whose description was forged."""

    class Dtype:
        def __reduce__(self) -> Any:
            return np.dtype, ("V8", False, True), dtype_state

    class Array:
        def __reduce__(self) -> Any:
            multiarray = sys.modules[np.empty(1).__reduce__()[0].__module__]  # type: ignore[union-attr]  # a function
            state = (1, (1,), Dtype(), False, data)
            return multiarray._reconstruct, (np.ndarray, (0,), b"b"), state

    return pickle.dumps(Array())


def test_memory_is_not_taken_for_objects() -> None:
    fields = {"a": (np.dtype("O"), 0)}
    forged = (3, "|", None, ("a",), fields, 8, 8, 0)  # flags that deny the objects
    with pytest.raises(UnsafeValueError):
        careful.load(_array_with(forged, b"\x01" * 8), (), named)


def test_an_exception_comes_as_itself_or_in_words() -> None:
    def raised(error: Exception) -> BaseException:
        data = dump_error(error)
        return careful.load_error(data, named)

    assert isinstance(raised(KeyError("x")), KeyError)
    assert "KeyError" in str(raised(KeyError("x")).__cause__)
    told = raised(subprocess.CalledProcessError(3, ["x"]))
    assert isinstance(told, CallFailedError) and "CalledProcessError" in str(told)
    forged = pickle.dumps((pickle.dumps(Reduced(effect, 1)), "ValueError: y"))
    Called.told.clear()
    assert isinstance(careful.load_error(forged, named), CallFailedError)
    assert isinstance(careful.load_error(b"rubbish", named), CallFailedError)
    assert not Called.told


def _told_by_others(error: Exception) -> tuple[Any, ...]:
    return _made_again, (type(error), error.args)


def _made_again(kind: type[Exception], args: tuple[Any, ...]) -> Exception:
    return kind(*args)


@pytest.mark.parametrize(
    "dump", [dump_error, lambda error: code.dump_error(error, Code(effect, {}, {}))]
)
def test_an_exception_comes_as_itself_though_a_package_pickles_exceptions_its_own_way(
    dump: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As tblib does, which Dask loads."""
    monkeypatch.setitem(copyreg.dispatch_table, KeyError, _told_by_others)
    told = careful.load_error(dump(KeyError("x", 1j)), named)
    assert isinstance(told, KeyError) and told.args == ("x", 1j)
