"""Arrays of numpy in pickles of others: made so that memory is never taken for what it is not.

numpy believes a pickle: a description (`dtype`) whose flags deny that it has objects in it makes
bytes into pointers. So each description is made anew by numpy itself, and must say the same.
"""

from __future__ import annotations

import importlib
from typing import Any

_MULTIARRAY = ("numpy._core.multiarray", "numpy.core.multiarray")


class NoArrayError(ValueError):
    """It is not what it says."""


def _numpy() -> Any:
    """Its types say less of what strangers may give than is asked here."""
    return importlib.import_module("numpy")


def found(module: str, name: str) -> Any:
    np = _numpy()

    if module == "numpy":
        return {"ndarray": np.ndarray, "dtype": _dtype}.get(name)
    if module in _MULTIARRAY:
        return {"_reconstruct": _array, "scalar": _scalar}.get(name)
    return _array_of if (module.endswith(".numeric"), name) == (True, "_frombuffer") else None


def _array(cls: Any, shape: Any, kind: Any) -> Any:
    np = _numpy()

    if cls is not np.ndarray:
        raise NoArrayError(f"an array of the kind {cls}")
    return np.ndarray((0,), np.dtype("b"))


def _array_of(data: Any, dtype: Any, shape: Any, order: Any, axes: Any = None) -> Any:
    np = _numpy()

    if not isinstance(dtype, np.dtype) or dtype.hasobject or order not in ("C", "F", "K"):
        raise NoArrayError("an array of no known kind")
    flat = np.frombuffer(data, dtype=dtype)
    if order == "K" and axes is not None:
        return flat.reshape(shape, order="C").transpose(axes)
    return flat.reshape(shape, order=order)


def _scalar(dtype: Any, data: Any = b"") -> Any:
    np = _numpy()

    if not isinstance(dtype, np.dtype) or dtype.hasobject or not isinstance(data, bytes):
        raise NoArrayError("a number of no known kind")
    return np.frombuffer(data, dtype=dtype, count=1)[0]


def _dtype(kind: Any, align: Any = False, copy: Any = False) -> Any:
    np = _numpy()

    if not isinstance(kind, str):
        raise NoArrayError("an array of no known kind")
    return np.dtype(kind, align=bool(align), copy=True)


CALLED = (_array, _array_of, _scalar, _dtype)


def is_true(thing: Any, state: Any) -> bool:
    """Whether an array or a description may be given this state."""
    np = _numpy()
    if type(thing) is np.ndarray and len(state) == 5:
        _, shape, dtype, _, data = state
        if not isinstance(dtype, np.dtype) or not isinstance(shape, tuple):
            return False
        if isinstance(data, bytes):
            return not dtype.hasobject
        return isinstance(data, list) and bool(dtype == np.dtype("O"))
    if isinstance(thing, np.dtype):
        return bool(_true_dtype(thing, state).__reduce__()[2] == state)
    return False


def _true_dtype(thing: Any, state: tuple[Any, ...]) -> Any:
    """The description that a state means, made by numpy itself."""
    np = _numpy()

    _, order, part, names, fields, size, _, flags = state[:8]
    if names is not None:
        formats = [fields[name][0] for name in names]
        made: dict[str, Any] = {
            "names": list(names),
            "formats": formats,
            "offsets": [fields[name][1] for name in names],
            "itemsize": size,
        }
        if any(len(fields[name]) > 2 for name in names):
            made["titles"] = [fields[name][2] if len(fields[name]) > 2 else None for name in names]
        return np.dtype(made, align=bool(flags & 0x80))
    if part is not None:
        return np.dtype((part[0], part[1]))
    if thing.kind in "mM" and len(state) > 8:
        unit, step, _, _ = state[8][1]
        unit = unit.decode() if isinstance(unit, bytes) else unit
        word = "" if unit == "generic" else f"[{step}{unit}]"
        return np.dtype(f"{thing.kind}8{word}").newbyteorder(order)
    return thing.newbyteorder(order)
