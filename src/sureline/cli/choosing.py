"""The command that shows which strategies there are."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from sureline.cli import console
from sureline.cli.options import Json

if TYPE_CHECKING:
    from sureline.run.port import Strategy

PLACES = {"here": "this machine", "grid": "a grid", "anywhere": "this machine, a grid, or sites"}


def strategies(
    name: Annotated[str | None, Parameter(help="Only this one.")] = None,
    /,
    *,
    json: Json = False,
) -> int:
    """List the strategies that say where tasks run, with their settings and papers.

    One of them is chosen by 'sureline run --strategy NAME', set by '--with NAME=VALUE'. Other
    packages add theirs through the entry-point group sureline.strategies.

    Example: sureline strategies surety
    """
    from sureline.strategies import known, strategy

    found = list(known().values()) if name is None else [strategy(name)]
    shown = [_described(one) for one in found]
    if json:
        console.print_json({"strategies": shown})
        return 0
    for one in shown:
        console.say(f"{one['name']}: {one['summary']}")
        console.say(f"  runs tasks on {PLACES[one['where']]}; from {one['package']}")
        if one["paper"]:
            console.say(f"  after {one['paper']}")
        for setting in one["settings"]:
            said = f" ({setting['help']})" if setting["help"] else ""
            console.say(f"  --with {setting['name']}={setting['default']}{said}")
            if setting["type"].startswith("Literal["):
                console.say(f"    one of {setting['type'][8:-1]}")
    return 0


def _described(one: Strategy) -> dict[str, Any]:
    import msgspec

    from sureline.strategies import described_settings

    return {
        "name": one.name,
        "summary": one.summary,
        "paper": one.paper,
        "where": one.where,
        "spends": one.spends,
        "package": one.deciding.__module__.partition(".")[0],
        "settings": [
            {"name": field, "type": kind, "default": msgspec.to_builtins(default), "help": said}
            for field, kind, default, said in described_settings(one)
        ],
    }
