"""Functions as bytes, pickled no more often than needed."""

from __future__ import annotations

import operator
import types

from sureline.peer.bytecode import global_names
from sureline.peer.calls import dump_value
from sureline.run.keys import digest_of

FUNCTIONS_MAX = 1000
"""How many functions are remembered as bytes; past this, all are forgotten."""


class Functions:
    """Functions as bytes. One that travels by value is pickled again only when something it is
    made of (its code, its defaults, a global that it names) is another object than before; one
    that has a closure, or is no plain function, is pickled for every call."""

    def __init__(self) -> None:
        self._known: dict[int, _Packed] = {}

    def packed(self, fn: object) -> tuple[str, bytes]:
        """The function's digest and its bytes."""
        if not isinstance(fn, types.FunctionType) or fn.__closure__:
            data = dump_value(fn)
            return digest_of(data), data
        known = self._known.get(id(fn))
        if known is None or not known.holds():
            if len(self._known) >= FUNCTIONS_MAX:
                self._known.clear()
            known = self._known[id(fn)] = _Packed(fn)
        return known.digest, known.data


class _Packed:
    """A plain function as bytes, and what it was made of then. It keeps the function alive, so
    that its id is not given to another one."""

    __slots__ = ("_fn", "_made_of", "_names", "data", "digest")

    def __init__(self, fn: types.FunctionType) -> None:
        self._fn = fn
        self._names = tuple(global_names(fn.__code__))
        self._made_of = self._parts()
        self.data = dump_value(fn)
        self.digest = digest_of(self.data)

    def _parts(self) -> tuple[object, ...]:
        fn = self._fn
        values = map(fn.__globals__.get, self._names)
        return (fn.__code__, fn.__defaults__, fn.__kwdefaults__, *values)

    def holds(self) -> bool:
        return all(map(operator.is_, self._made_of, self._parts()))
