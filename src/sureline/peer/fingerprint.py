"""What a call can reach of the user's own, part by part, each with a digest.

A part is equal in every process, and different when what it stands for is. Functions and classes
that travel by value (those of the script, closures, lambdas) count by their code, with defaults,
closure, bases and the globals that they name, by value. What is imported by name counts as its
module does (`peer.reach`). The digest of all parts is the code's part of a call's key; the parts
themselves let `explain` say what changed.

What cannot be followed makes the call one that is not reused: better slow than wrong.
"""

from __future__ import annotations

import sys
import types
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from blake3 import blake3

from sureline.peer.reach import Modules, by_value, code_digest, digest_of, found, is_standard
from sureline.peer.spelling import Spelling

__all__ = ["Reach", "Walk", "fingerprint"]

_MADE_IN_PYTHON = 1 << 9
"""The flag of classes made at run time; others are the interpreter's or an extension's."""


class Reach(NamedTuple):
    """What a function, with what it is called with, reaches."""

    digest: str
    parts: dict[str, str]
    hidden: str
    """Why not all of it could be followed; '' if it could."""


def fingerprint(function: object) -> str:
    """A digest (hex) of what a function does."""
    walk = Walk()
    walk.root(function)
    return walk.reach().digest


class Walk:
    """Gathers parts. `root` adds a function, class or value; `reach` tells what was found."""

    def __init__(self, begun: Walk | None = None) -> None:
        """`begun`: go on from what that one found."""
        self._parts: dict[str, str] = {} if begun is None else dict(begun._parts)
        self._modules = Modules(self._parts)
        self._waiting: list[tuple[str, Callable[[Spelling], None]]] = []
        self._kept: list[object] = []
        """Objects must live as long as their ids are remembered."""
        self._hidden: dict[str, None] = {} if begun is None else dict(begun._hidden)
        self._watched: list[tuple[Any, str | None, object]] = []
        self._sizes: list[tuple[Any, int]] = []
        self._mutable = False
        self._quiet = False
        self._named: dict[str, set[str]] = {} if begun is None else dict(begun._named)
        """The parts that each part names."""
        self._at = ""

    def watch(self, scope: Any, name: str | None, value: object) -> None:
        """A global, or a cell (without name), had this value."""
        self._watched.append((scope, name, value))

    def watch_class(self, cls: type) -> None:
        members = vars(cls)
        self._sizes.append((members, len(members)))
        self._watched += [(members, name, value) for name, value in members.items()]

    def may_change(self) -> None:
        """Something was reached whose change could not be told by looking at what is watched."""
        if not self._quiet:
            self._mutable = True

    @contextmanager
    def made_with_its_class(self) -> Iterator[None]:
        """What is written now changes only if its class, which is watched, does."""
        self._quiet = True
        yield
        self._quiet = False

    def holds(self) -> bool:
        """Whether all that was reached is surely as it was."""
        return (
            not self._mutable
            and all(len(members) == size for members, size in self._sizes)
            and all(
                (scope.cell_contents if name is None else scope.get(name)) is value
                for scope, name, value in self._watched
            )
        )

    def digest_of(self, part: str) -> str:
        """Of one part and all that it reaches in turn."""
        found, waiting = {part}, [part]
        while waiting:
            more = self._named.get(waiting.pop(), set()) - found
            found |= more
            waiting += more
        whole = [
            (one, code_digest(one[7:]) if one.startswith("module ") else self._parts.get(one))
            for one in sorted(found)
        ]
        return digest_of(repr(whole).encode("utf-8", "backslashreplace"))

    def _name(self, part: str) -> None:
        self._named.setdefault(self._at, set()).add(part)

    def root(self, thing: Any, name: str = "") -> None:
        """Add what a call names itself; `name` it if it has none."""
        label = name or "the function"
        named = self.refer(thing) if isinstance(thing, types.FunctionType | type) else None
        if named is None:
            self._waiting.append((label, lambda stream: stream.add(thing)))
        elif not name:
            self._parts[label] = named
        self._drain()

    def reach(self) -> Reach:
        self._drain()
        self._parts["python"] = ".".join(map(str, sys.version_info[:2]))
        data = repr(sorted(self._parts.items())).encode("utf-8", "backslashreplace")
        for module in self._modules.hidden:
            self.hide(f"{module} imports modules by names that only it knows")
        return Reach(str(blake3(data).hexdigest()), dict(self._parts), "; ".join(self._hidden))

    def hide(self, why: str) -> None:
        self._hidden[why] = None

    def module(self, name: str, names: tuple[str, ...] = ()) -> None:
        if name != "__main__" and not is_standard(name.partition(".")[0]):
            self._modules.add(name, names)
            for one in (name, *(f"{name}.{inside}" for inside in names)):
                self._name(f"module {one}")
            self._name(f"package {name.partition('.')[0]}")

    def refer(self, thing: Any) -> str | None:
        """A name that stands for a function or class, whose part is added; None if it has none
        and must be written out."""
        module = getattr(thing, "__module__", None) or ""
        qualname = thing.__qualname__
        if isinstance(thing, type) and not thing.__flags__ & _MADE_IN_PYTHON:
            self.module(module)
            return f"{module}:{qualname}"
        if by_value(thing):
            if module != "__main__" or found(module, qualname) is not thing:
                return None
            sort = "class" if isinstance(thing, type) else "function"
            self._name(f"{sort} {qualname}")
            self._once(f"{sort} {qualname}", thing)
            return f"{sort} {qualname}"
        self.module(module)
        return f"{module}:{qualname}"

    def _once(self, name: str, thing: Any) -> None:
        if name in self._parts:
            return
        self._parts[name] = ""  # so that a recursion ends
        self._kept.append(thing)
        self._waiting.append((name, lambda stream: stream.spell(thing)))

    def global_value(self, name: str, value: Any) -> None:
        """Add a global of the script by its value."""
        label = f"global {name}"
        self._name(label)
        if label not in self._parts:
            self._parts[label] = ""
            self._waiting.append((label, lambda stream: stream.add(value)))

    def _drain(self) -> None:
        while self._waiting:
            name, write = self._waiting.pop()
            stream = Spelling(self)
            self._at = name
            try:
                write(stream)
            except Exception as error:  # user's __reduce__ and the like may raise anything
                self.hide(f"{name} cannot be compared ({type(error).__name__}: {error})"[:200])
            self._parts[name] = stream.digest()
