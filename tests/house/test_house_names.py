"""One word for one thing: a public class has a name that no other has."""

from __future__ import annotations

import ast
from collections import defaultdict
from pathlib import Path

import sureline

ALLOWED: dict[str, str] = {}
"""A name that several modules may define, and why that is better than two names."""


def definitions(root: Path) -> dict[str, list[str]]:
    found: dict[str, list[str]] = defaultdict(list)
    for path in sorted(root.rglob("*.py")):
        for node in ast.parse(path.read_bytes()).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                found[node.name].append(str(path.relative_to(root)))
    return found


def test_no_two_public_classes_have_one_name():
    found = definitions(Path(sureline.__file__).parent)
    assert len(found) > 500, "the package's classes were not found"
    twice = {name: places for name, places in found.items() if len(places) > 1}
    new = {name: places for name, places in twice.items() if name not in ALLOWED}
    assert not new, f"give the more special one a name of its own: {new}"
    assert not (stale := ALLOWED.keys() - twice.keys()), f"no longer needed: {stale}"


def test_a_private_class_is_imported_by_nobody():
    """Else an underscore would hide a second meaning instead of ending it."""
    root = Path(sureline.__file__).parent
    modules = {
        (".".join(("sureline", *path.relative_to(root).with_suffix("").parts))): path
        for path in sorted(root.rglob("*.py"))
    }
    private = {
        (module, node.name)
        for module, path in modules.items()
        for node in ast.parse(path.read_bytes()).body
        if isinstance(node, ast.ClassDef) and node.name.startswith("_")
    }
    borrowed = [
        f"{path.relative_to(root)}:{node.lineno} {alias.name}"
        for path in modules.values()
        for node in ast.walk(ast.parse(path.read_bytes()))
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
        if (node.module, alias.name) in private
    ]
    assert not borrowed, f"what others import is public: {borrowed}"
