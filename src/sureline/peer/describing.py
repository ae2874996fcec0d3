"""Describing calls: from a function and its arguments to a `Call`, and all that travels with it.

What an argument holds is taken when the call is described, so that it may be changed afterwards.
"""

from __future__ import annotations

import os
import types
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from blake3 import blake3

from sureline.peer import code
from sureline.peer.code import Arguments, Code, Named
from sureline.peer.content import hash_file
from sureline.peer.fingerprint import Walk
from sureline.peer.packed import LONG_BYTES, packed, packed_whole
from sureline.peer.reach import found as found_named
from sureline.peer.spool import Spool
from sureline.peer.store import BlobStore
from sureline.peer.travelling import modules_of
from sureline.workflow.mistakes import UserError
from sureline.workflow.model import Call

KNOWN_MAX = 1000
"""How many functions, with what they are called with, are remembered; past this, none."""

Dependence = str | os.PathLike[str] | types.ModuleType | Callable[..., Any] | type
"""What a call may say that it depends on: a file, a directory, a module, a function, a class."""


class Described(NamedTuple):
    call: Call
    names: dict[str, Named]
    """What those that use its result may meet."""
    inputs: tuple[str, ...]
    """Paths that it depends on, in the working directory."""


class Describer:
    """All calls of a workflow. `functions` and `reached` belong into its graph."""

    def __init__(self, near: Path) -> None:
        """`near`: a `.sureline` directory that may have some of the data already."""
        self.functions: dict[str, bytes] = {}
        self.reached: dict[str, dict[str, str]] = {}
        self.names: dict[str, Named] = {}
        self._spool = Spool(BlobStore(near))
        self._known: dict[object, _Reached] = {}

    def describe(
        self,
        function: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        names_of: Callable[[str], Mapping[str, Named]],
        depends: Sequence[Dependence] = (),
    ) -> Described:
        """`names_of` tells the names of a task's result."""
        arguments = code.dump_arguments(args, kwargs)
        reached = self._reached(function, arguments)
        inputs: tuple[str, ...] = ()
        if depends:
            inputs, reached = _declared(depends, reached)
        names = reached.names
        for used in arguments.uses:
            names = {**names_of(used), **names}
        self.names |= names
        self.reached[reached.digest] = reached.parts
        why = (
            "" if depends or not reached.hidden else f"{reached.hidden}; say with depends= on what"
        )
        call = Call(
            self._function(function, reached, names),
            self._packed(arguments.pickled, arguments.buffers),
            arguments.uses,
            reached.digest,
            why,
        )
        return Described(call, names, inputs)

    def modules(self) -> list[str]:
        """The user's own modules that any of the calls reaches."""
        return modules_of(self.reached.values())

    def store(self, store: BlobStore) -> None:
        """Put the large data of all calls into a store, unless it is there."""
        self._spool.store(store)

    def _reached(self, function: Callable[..., Any], arguments: Arguments) -> _Reached:
        """What a call reaches, found again only when that may have changed."""
        things = (function, *arguments.code.values())
        key = (tuple(map(id, things)), arguments.modules)
        known = self._known.get(key)
        if known is None or not known.walk.holds():
            if len(self._known) >= KNOWN_MAX:
                self._known.clear()
            walk = Walk()
            walk.root(function)
            for name, thing in arguments.code.items():
                walk.root(thing, name)
            for module in arguments.modules:
                walk.module(module)
            known = self._known[key] = _Reached.of(walk, things, arguments.code)
        return known

    def _function(
        self, function: Callable[..., Any], reached: _Reached, names: Mapping[str, Named]
    ) -> str:
        carried = sorted((key, of) for key, (_, of) in names.items())
        key = str(blake3(repr((reached.digest, carried)).encode()).hexdigest())
        if key not in self.functions:
            modules = {
                part.removeprefix("module "): of
                for part, of in reached.parts.items()
                if part.startswith("module ")
            }
            pickled, views = code.dump_code(Code(function, names, modules))
            self.functions[key] = self._packed(pickled, views)
        return key

    def _packed(self, pickled: bytes, views: Iterable[memoryview]) -> bytes:
        buffers = [self._spool.keep(view) for view in views]
        if len(pickled) <= LONG_BYTES:
            return packed(pickled, buffers)
        return packed_whole([self._spool.keep(memoryview(pickled)), *buffers])


class _Reached(NamedTuple):
    walk: Walk
    things: tuple[object, ...]
    """They must live as long as their ids are remembered."""
    digest: str
    parts: dict[str, str]
    hidden: str
    names: dict[str, Named]

    @classmethod
    def of(cls, walk: Walk, things: tuple[object, ...], by_key: Mapping[str, object]) -> _Reached:
        reach = walk.reach()
        names: dict[str, Named] = {
            key: (thing, key) for key, thing in by_key.items() if not key.startswith("main:")
        }
        names |= _names_in(walk, reach.parts)
        return cls(walk, things, reach.digest, reach.parts, reach.hidden, names)


def _names_in(walk: Walk, parts: Mapping[str, str]) -> dict[str, Named]:
    """The script's own classes and functions that are reached: results may hold them."""
    found: dict[str, Named] = {}
    for part in parts:
        sort, _, name = part.partition(" ")
        if sort in ("class", "function"):
            thing = found_named("__main__", name)
            if thing is not None:
                found[f"main:{name}"] = (thing, walk.digest_of(part))
    return found


def _declared(depends: Iterable[Dependence], reached: _Reached) -> tuple[tuple[str, ...], _Reached]:
    """Paths in the working directory, and what is reached with all else that was declared."""
    walk = Walk(reached.walk)
    inputs: list[str] = []
    files: dict[str, str] = {}
    for one in depends:
        if isinstance(one, types.ModuleType):
            walk.module(one.__name__)
        elif isinstance(one, str | os.PathLike):
            path = os.fspath(one)
            if os.path.isabs(path):
                files[f"file {path}"] = _file_digest(path)
            else:
                inputs.append(path)
        elif callable(one):
            walk.root(one, f"declared {getattr(one, '__qualname__', type(one).__name__)}")
        else:
            raise UserError(
                f"depends= takes files, modules, functions and classes, not {type(one).__name__}"
            )
    reach = walk.reach()
    parts = {**reach.parts, **files}
    digest = str(blake3(repr(sorted(parts.items())).encode()).hexdigest())
    return tuple(inputs), reached._replace(digest=digest, parts=parts)


def _file_digest(path: str) -> str:
    try:
        if os.path.isdir(path):
            return str(
                blake3(
                    repr(
                        sorted(
                            (os.path.relpath(full, path), hash_file(full)[0])
                            for top, _, names in os.walk(path)
                            for full in (os.path.join(top, name) for name in names)
                        )
                    ).encode()
                ).hexdigest()
            )
        return hash_file(path)[0]
    except OSError as error:
        raise UserError(f"depends= names {path}, which cannot be read: {error.strerror}") from None
