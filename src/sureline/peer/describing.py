"""Describing calls: from a function and its arguments to a `Call`, and all that travels with it.

What an argument holds is taken when the call is described, so that it may be changed afterwards.
"""

from __future__ import annotations

import os
import types
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from blake3 import blake3

from sureline.peer import code
from sureline.peer.code import Code, Named
from sureline.peer.content import hash_file
from sureline.peer.fingerprint import Reach, Walk
from sureline.peer.packed import packed
from sureline.peer.reach import found as found_named
from sureline.peer.spool import Spool
from sureline.peer.store import BlobStore
from sureline.workflow.mistakes import UserError
from sureline.workflow.model import Call

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
        self._walks: dict[int, tuple[object, Walk]] = {}

    def describe(
        self,
        function: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        names_of: Callable[[str], Mapping[str, Named]],
        depends: Iterable[Dependence] = (),
    ) -> Described:
        """`names_of` tells the names of a task's result."""
        walk = Walk(self._walk(function))
        arguments, names = code.dump_arguments(args, kwargs, walk)
        inputs, files = _declare(depends, walk)
        reach = walk.reach()
        parts = {**reach.parts, **files}
        digest = _digest_of(reach, files)
        for used in arguments.uses:
            names = {**names_of(used), **names}
        names |= _names_in(walk, parts)
        self.names |= names
        self.reached[digest] = parts
        declared = bool(inputs or files)
        call = Call(
            self._function(function, digest, parts, names),
            packed(arguments.pickled, [self._spool.keep(view) for view in arguments.buffers]),
            arguments.uses,
            digest,
            "" if declared or not reach.hidden else f"{reach.hidden}; say with depends= on what",
        )
        return Described(call, names, inputs)

    def store(self, store: BlobStore) -> None:
        """Put the large data of all calls into a store, unless it is there."""
        self._spool.store(store)

    def _walk(self, function: Callable[..., Any]) -> Walk:
        """What a function reaches, found again only when that may have changed."""
        known = self._walks.get(id(function))
        if known is None or not known[1].holds():
            walk = Walk()
            walk.root(function)
            known = self._walks[id(function)] = (function, walk)
        return known[1]

    def _function(
        self,
        function: Callable[..., Any],
        digest: str,
        parts: Mapping[str, str],
        names: Mapping[str, Named],
    ) -> str:
        carried = sorted((key, of) for key, (_, of) in names.items())
        key = str(blake3(repr((digest, carried)).encode()).hexdigest())
        if key not in self.functions:
            modules = {
                part.removeprefix("module "): of
                for part, of in parts.items()
                if part.startswith("module ")
            }
            pickled, views = code.dump_code(Code(function, names, modules))
            self.functions[key] = packed(pickled, [self._spool.keep(view) for view in views])
        return key


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


def _digest_of(reach: Reach, files: Mapping[str, str]) -> str:
    if not files:
        return reach.digest
    return str(blake3(repr((reach.digest, sorted(files.items()))).encode()).hexdigest())


def _declare(depends: Iterable[Dependence], walk: Walk) -> tuple[tuple[str, ...], dict[str, str]]:
    """Paths in the working directory, and parts for files elsewhere; code goes to the walk."""
    inputs: list[str] = []
    files: dict[str, str] = {}
    for one in depends:
        if isinstance(one, types.ModuleType):
            walk.module(one.__name__)
            files[f"declared {one.__name__}"] = ""
        elif isinstance(one, str | os.PathLike):
            path = os.fspath(one)
            if os.path.isabs(path):
                files[f"file {path}"] = _file_digest(path)
            else:
                inputs.append(path)
        elif callable(one):
            walk.root(one, f"declared {getattr(one, '__qualname__', type(one).__name__)}")
            files[f"declared {getattr(one, '__qualname__', '')}"] = ""
        else:
            raise UserError(
                f"depends= takes files, modules, functions and classes, not {type(one).__name__}"
            )
    return tuple(inputs), files


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
