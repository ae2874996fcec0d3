"""Strategies are composed with the engine: nothing of them inherits from `run` or `peer` but
protocols."""

from __future__ import annotations

import importlib
import inspect
import pkgutil

import sureline.strategies


def classes():
    """Every class that is written in `strategies`."""
    for found in pkgutil.walk_packages(sureline.strategies.__path__, "sureline.strategies."):
        module = importlib.import_module(found.name)
        for _, one in inspect.getmembers(module, inspect.isclass):
            if one.__module__ == found.name:
                yield one


def test_no_class_has_a_base_in_the_engine_or_a_peer_but_protocols():
    seen = list(classes())
    assert len(seen) > 30
    heirs = [
        f"{one.__module__}.{one.__qualname__} inherits from {base.__qualname__}"
        for one in seen
        for base in one.__mro__[1:]
        if base.__module__.startswith(("sureline.run", "sureline.peer"))
        and not getattr(base, "_is_protocol", False)
    ]
    assert not heirs
