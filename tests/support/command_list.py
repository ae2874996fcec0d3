"""All commands of `sureline`, those of groups too: 'run', 'grid new', ..."""

from __future__ import annotations

import cyclopts

from sureline.cli.main import app


def _below(group: cyclopts.App) -> list[str]:
    found = []
    for name in group:
        if not name.startswith("-"):
            inner = _below(group[name])
            found += [f"{name} {one}" for one in inner] or [name]
    return found


COMMANDS = sorted(_below(app))
GROUPS = sorted(name for name in app if not name.startswith("-"))
"""What may follow `sureline`: commands, and groups of them."""
