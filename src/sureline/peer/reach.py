"""Which modules code reaches, and what stands for each: so that a changed one is noticed.

The standard library stands for itself (the interpreter's version counts). An installed package
counts by its version. A module of the user's own counts by its syntax tree, whole, and by all that
it imports in turn, also inside its functions. Nothing is imported to find that out.
"""

from __future__ import annotations

import ast
import importlib.machinery
import os
import site
import sys
import sysconfig
import types
from collections.abc import Iterator
from functools import lru_cache
from typing import Any, NamedTuple

from blake3 import blake3

DIGEST_DIGITS = 16
_MODULES_MAX = 10_000
"""How many parsed files are remembered; past this, all are forgotten."""
_BY_NAME = frozenset({"import_module", "__import__", "exec_module", "run_path", "run_module"})
"""Functions that import what only they know."""


class Import(NamedTuple):
    """A module that is imported, and names taken from it, which may be modules too."""

    module: str
    names: tuple[str, ...] = ()


class _Source(NamedTuple):
    digest: str
    imports: tuple[Import, ...]
    hidden: bool
    """Whether it imports by names that only it knows."""


def digest_of(data: bytes) -> str:
    return str(blake3(data).hexdigest())[:DIGEST_DIGITS]


class Modules:
    """Follows imports. `parts` gathers what was reached: `module NAME` with the digest of its code,
    `package NAME` with its version. `hidden` names modules whose imports cannot all be followed."""

    def __init__(self, parts: dict[str, str]) -> None:
        self._parts = parts
        self._seen: set[str] = set()
        self.hidden: list[str] = []

    def add(self, name: str, names: tuple[str, ...] = ()) -> None:
        """Follow the import of a module, of those it lies in, and of `names` that are modules."""
        waiting = [*_with_parents(name), *(f"{name}.{one}" for one in names)]
        optional = set(waiting[len(waiting) - len(names) :]) if names else set()
        while waiting:
            one = waiting.pop()
            if one in self._seen:
                continue
            self._seen.add(one)
            for found in self._follow(one, one in optional):
                waiting.extend(_with_parents(found.module))
                more = [f"{found.module}.{name}" for name in found.names]
                optional.update(set(more) - self._seen)
                waiting.extend(more)

    def _follow(self, name: str, optional: bool) -> tuple[Import, ...]:
        top = name.partition(".")[0]
        if is_standard(top) or f"package {top}" in self._parts:
            return ()
        path = origin(name)
        if path is None:
            if not optional and not _is_namespace(name):
                self._parts[f"module {name}"] = "absent"
            return ()
        version = installed_version(top, path)
        if version is not None:
            self._parts[f"package {top}"] = version
            return ()
        source = _source(path, name)
        self._parts[f"module {name}"] = source.digest
        if source.hidden:
            self.hidden.append(name)
        return source.imports


def is_standard(top: str) -> bool:
    return top in sys.stdlib_module_names or top in sys.builtin_module_names


def is_own(module: str) -> bool:
    """Whether a module is the user's: neither of the standard library nor installed."""
    top = module.partition(".")[0]
    if top in ("__main__", "builtins") or is_standard(top):
        return False
    path = origin(module)
    return path is not None and installed_version(top, path) is None


def code_digest(module: str) -> str:
    """One digest of a module of the user's own and of all that it imports."""
    parts: dict[str, str] = {}
    Modules(parts).add(module)
    return digest_of(repr(sorted(parts.items())).encode())


def _with_parents(name: str) -> Iterator[str]:
    words = name.split(".")
    for k in range(1, len(words) + 1):
        yield ".".join(words[:k])


def origin(name: str) -> str | None:
    """The file that a module comes from; None if there is none, or it cannot be found."""
    loaded = sys.modules.get(name)
    if loaded is not None:
        path = getattr(loaded, "__file__", None)
        return path if isinstance(path, str) else None
    spec = _find(name)
    return None if spec is None or not spec.has_location else spec.origin


def _is_namespace(name: str) -> bool:
    loaded = sys.modules.get(name)
    if loaded is not None:
        return True
    spec = _find(name)
    return spec is not None and spec.submodule_search_locations is not None


def _find(name: str) -> importlib.machinery.ModuleSpec | None:
    """As `importlib.util.find_spec`, which however would import the packages around it."""
    around, _, _ = name.rpartition(".")
    where: list[str] | None = None
    if around:
        loaded = sys.modules.get(around)
        if loaded is not None:
            where = list(getattr(loaded, "__path__", ()))
        else:
            spec = _find(around)
            where = [] if spec is None else list(spec.submodule_search_locations or ())
    try:
        return importlib.machinery.PathFinder.find_spec(name, where)
    except (ImportError, ValueError, OSError):
        return None


@lru_cache(maxsize=1)
def _site_directories() -> tuple[str, ...]:
    paths = sysconfig.get_paths()
    found = [paths["purelib"], paths["platlib"]]
    found += site.getsitepackages() if hasattr(site, "getsitepackages") else []
    if site.ENABLE_USER_SITE:
        found.append(site.getusersitepackages())
    return tuple({os.path.realpath(path) + os.sep for path in found})


def installed_version(top: str, path: str) -> str | None:
    """The version of the installed package that a file belongs to; None if it is the user's own."""
    if top == "sureline":
        from sureline import __version__

        return __version__
    if top in sys.modules and not os.path.isabs(path):
        path = os.path.abspath(path)
    if not os.path.realpath(path).startswith(_site_directories()):
        return None
    return _version(top)


def package_version(top: str) -> str:
    """The version of an installed package here, as it counts for calls; '' if there is none."""
    path = origin(top)
    if path is None:
        return _version(top) if _is_namespace(top) else ""
    return installed_version(top, path) or ""


@lru_cache(maxsize=1024)
def _version(top: str) -> str:
    from importlib import metadata

    try:
        return metadata.version(top)
    except metadata.PackageNotFoundError:
        names = metadata.packages_distributions().get(top, [])
        return " ".join(f"{name} {metadata.version(name)}" for name in sorted(set(names)))


_sources: dict[str, tuple[tuple[int, int], _Source]] = {}


def _source(path: str, name: str) -> _Source:
    """What the file says now; parsed again only if it has changed."""
    try:
        status = os.stat(path)
        stamp = (status.st_mtime_ns, status.st_size)
        known = _sources.get(path)
        if known is not None and known[0] == stamp:
            return known[1]
        with open(path, "rb") as file:
            data = file.read()
    except OSError:
        return _Source("unreadable", (), hidden=True)
    if len(_sources) >= _MODULES_MAX:
        _sources.clear()
    found = _parsed(data, path, name)
    _sources[path] = (stamp, found)
    return found


def _parsed(data: bytes, path: str, name: str) -> _Source:
    if not path.endswith((".py", ".pyw")):
        return _Source(digest_of(data), (), hidden=False)  # a compiled module: its bytes count
    try:
        tree = ast.parse(data)
    except (SyntaxError, ValueError):
        return _Source(digest_of(data), (), hidden=False)
    is_package = os.path.basename(path).startswith("__init__.")
    package = name if is_package else name.rpartition(".")[0]
    imports: list[Import] = []
    hidden = False
    for node in ast.walk(tree):
        match node:
            case ast.Import(names=names):
                imports += [Import(one.name) for one in names]
            case ast.ImportFrom(module=module, names=names, level=level):
                target = absolute(module or "", level, package)
                if target:
                    imports.append(Import(target, tuple(one.name for one in names)))
            case ast.Call(func=func, args=[ast.Constant(value=str(named)), *_]) if _called(
                func
            ) in ("import_module", "__import__"):
                imports.append(Import(named))
            case ast.Call(func=func) if _called(func) in _BY_NAME:
                hidden = True
    return _Source(
        digest_of(ast.dump(tree).encode("utf-8", "surrogatepass")), tuple(imports), hidden
    )


def _called(func: ast.expr) -> str:
    if isinstance(func, ast.Name):
        return func.id
    return func.attr if isinstance(func, ast.Attribute) else ""


def absolute(module: str, level: int, package: str) -> str:
    """The absolute name of a module that is imported from within a package."""
    if not level:
        return module
    words = package.split(".")
    around = ".".join(words[: len(words) - level + 1])
    return f"{around}.{module}" if around and module else around or module


def imports_by_name(name: str) -> bool:
    """Whether a function of this name imports what only it knows."""
    return name in _BY_NAME


def by_value(thing: Any) -> bool:
    """Whether a function or class travels by its code: it cannot be imported where it runs."""
    module = getattr(thing, "__module__", None)
    if module is None or module == "__main__":
        return True
    return found(module, getattr(thing, "__qualname__", "")) is not thing


def dispatches(thing: object) -> bool:
    """Whether `functools.singledispatch` made it: what it does stands in its registry."""
    registry = getattr(thing, "registry", None)
    return (
        isinstance(thing, types.FunctionType)
        and isinstance(registry, types.MappingProxyType)
        and hasattr(thing, "dispatch")
    )


def found(module: str, qualname: str) -> object:
    """What a module that is loaded has under a name, None if nothing."""
    at: object = sys.modules.get(module)
    for word in qualname.split("."):
        at = getattr(at, word, None)
    return at
