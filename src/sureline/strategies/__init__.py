"""Strategies: which task runs where. One module or package for each, named after its paper.

This is the registry: nothing outside `strategies` knows one by name, and other packages add theirs
through the entry-point group `sureline.strategies` (an entry point names a `run.port.Strategy`).
What all of them keep (`books`) lives here too. Imports `run` (the port) and what is below it.
"""

from __future__ import annotations

import difflib
import logging
from collections.abc import Iterable, Mapping
from functools import cache
from importlib import import_module
from importlib.metadata import entry_points
from pathlib import Path
from typing import Annotated, Any, Literal, get_args, get_origin

import msgspec

from sureline.run.options import Options
from sureline.run.port import Strategy
from sureline.workflow.mistakes import UserError
from sureline.workflow.model import Graph
from sureline.workflow.terms import Terms

GROUP = "sureline.strategies"
OURS = (
    "embedded",
    "spread",
    "random",
    "heft",
    "surety",
    "opportunistic",
    "peercomp",
    "chemical",
    "latebinding",
)
"""Modules of this package, each with a `Strategy` of its own name."""

_log = logging.getLogger(__name__)


@cache
def known() -> Mapping[str, Strategy]:
    """All that are installed, by name; ours come first, and cannot be replaced."""
    found = {name: _ours(name) for name in OURS}
    for entry in sorted(entry_points(group=GROUP), key=lambda entry: entry.name):
        try:
            strategy = entry.load()
        except Exception as error:  # somebody else's package: its mistake must not stop us
            _log.warning("the strategy %s cannot be loaded: %r", entry.name, error)
            continue
        if not isinstance(strategy, Strategy):
            _log.warning("the entry point %s names no strategy", entry.name)
        elif strategy.name in found:
            _log.warning("there is a strategy %s already; %s is left out", strategy.name, entry)
        else:
            found[strategy.name] = strategy
    return found


def _ours(name: str) -> Strategy:
    strategy = getattr(import_module(f"{__name__}.{name}"), name)
    assert isinstance(strategy, Strategy), f"{name} is a strategy"
    return strategy


def strategy(name: str) -> Strategy:
    """Raises UserError for one that is not installed. Of ours, no others are loaded for it."""
    found = _ours(name) if name in OURS else known().get(name)
    if found is None:
        raise UserError(
            f"there is no strategy {name!r}{_near(name, known())}; see: sureline strategies"
        )
    return found


def usual(*, grid: bool, terms: Terms, sites: bool = False) -> str:
    """The one that is taken where the user names none."""
    if sites:
        return "opportunistic"
    if not grid:
        return "embedded"
    return "spread" if terms.budget is None else "surety"


def usual_on_pilots(budget: float | None) -> str:
    """The same, of a run that has pilots of its own; '' for what any grid would have."""
    return "latebinding" if budget is None and "latebinding" in known() else ""


def resolved(options: Options) -> Options:
    """The options with the strategy that they mean, and its settings checked. Raises UserError."""
    sites = bool(options.sites)
    name = options.strategy or usual(grid=bool(options.grid), terms=options.terms, sites=sites)
    found = strategy(name)
    if sites and not at_sites(found):
        raise UserError(f"{name} cannot place tasks at sites; leave out --sites, or --strategy")
    if found.where == "here" and options.grid:
        raise UserError(f"{name} runs everything on this machine; leave out --grid, or --strategy")
    if found.where == "grid" and not options.grid:
        raise UserError(f"{name} places tasks on a grid; name one with --grid")
    if options.strategy and options.budget is not None and not found.spends:
        spending = " or ".join(other.name for other in known().values() if other.spends)
        raise UserError(
            f"{name} spends no money; leave out --budget, or take --strategy {spending}"
        )
    if options.budget is None and found.spends:
        raise UserError(f"{name} spends money; say how much with --budget (0 for free peers only)")
    settings = _with_files(found, options.settings)
    settings_of(found, settings)
    return msgspec.structs.replace(options, strategy=name, settings=settings)


def at_sites(strategy: Strategy) -> bool:
    """Whether it can place tasks at sites of a catalog, where no half of its own can be."""
    return strategy.where == "anywhere" and strategy.machine is None


def passed_over(options: Options, graph: Graph) -> str:
    """A sentence if tasks wish something of machines that the strategy does not look at; '' if not.
    Raises UserError if one has to have it, and there is a choice of machines."""
    found = strategy(options.strategy)
    if found.heeds_wishes:
        return ""
    wishing = next((task for task in graph.tasks if task.requires), None)
    wishing = wishing or next((task for task in graph.tasks if task.rank), None)
    if wishing is None:
        return ""
    wish = f"requires: {wishing.requires}" if wishing.requires else f"rank: {wishing.rank}"
    said = f"{wishing.name} says `{wish}`, which the strategy {found.name} does not look at"
    if not wishing.requires or found.where == "here":
        return said
    heeding = " or ".join(other.name for other in known().values() if other.heeds_wishes)
    raise UserError(f"{said}; say it with `needs:`, or take --strategy {heeding} on a grid")


def _with_files(strategy: Strategy, given: Mapping[str, Any]) -> dict[str, Any]:
    """The settings with the texts of files in place of their names, so that they travel with the
    run. A field is for a file if its `msgspec.Meta` has the `names` that stand for none."""
    settings = dict(given)
    for field in msgspec.structs.fields(strategy.settings):
        marks = get_args(field.type)[1:] if get_origin(field.type) is Annotated else ()
        names = next((mark.extra["names"] for mark in marks if mark.extra), None)
        value = settings.get(field.encode_name)
        if names is None or not isinstance(value, str) or value in names or "\n" in value:
            continue
        try:
            text = Path(value).read_text("utf-8")
        except (OSError, ValueError) as error:
            one_of = f"; give a file, or one of {', '.join(names)}" if any(names) else ""
            why = getattr(error, "strerror", None) or "it is no text"
            told = f"{field.encode_name}={value} of {strategy.name} cannot be read: {why}{one_of}"
            raise UserError(told) from None
        settings[field.encode_name] = text.rstrip("\n") + "\n"
        try:
            settings_of(strategy, {field.encode_name: settings[field.encode_name]})
        except UserError as error:
            raise UserError(f"{value}: {error}") from None
    return settings


def settings_of(strategy: Strategy, given: Mapping[str, Any]) -> Any:
    """A strategy's settings with these values. Raises UserError for a name or a value that it does
    not know."""
    fields = {field.encode_name: field for field in msgspec.structs.fields(strategy.settings)}
    for key in given:
        if key not in fields:
            raise UserError(
                f"{strategy.name} has no setting {key!r}{_near(key, fields)}; "
                "see: sureline strategies"
            )
        try:
            msgspec.convert(given[key], fields[key].type, strict=False)
        except msgspec.ValidationError:
            wanted = _wanted(fields[key].type, str(given[key]))
            raise UserError(
                f"{key}={given[key]} of {strategy.name} does not fit: it is {wanted}; "
                f"see: sureline strategies {strategy.name}"
            ) from None
    try:
        return msgspec.convert(dict(given), strategy.settings, strict=False)
    except msgspec.ValidationError as error:
        raise UserError(
            f"a setting of {strategy.name} does not fit: {error}; "
            f"see: sureline strategies {strategy.name}"
        ) from None


def _wanted(kind: Any, given: str) -> str:
    """What a setting of this type can be, in words."""
    kind, *marks = get_args(kind) if get_origin(kind) is Annotated else (kind,)
    if get_origin(kind) is Literal:
        values = [str(value) for value in get_args(kind)]
        return f"{' or '.join(values)}{_near(given, values)}"
    said = {int: "a whole number", float: "a number", bool: "true or false"}.get(kind, "a text")
    words = {"ge": "at least", "gt": "above", "le": "at most", "lt": "below"}
    bounds = [
        f"{word} {bound:,.8g}"
        for mark in marks
        for name, word in words.items()
        if (bound := getattr(mark, name)) is not None
    ]
    return f"{said}, {' and '.join(bounds)}" if bounds else said


def described_settings(strategy: Strategy) -> list[tuple[str, str, Any, str]]:
    """(name, type, default, what it means) of each setting; the last from its `msgspec.Meta`."""
    found = []
    for field in msgspec.structs.fields(strategy.settings):
        kind, said = field.type, ""
        if get_origin(kind) is Annotated:
            kind, *marks = get_args(kind)
            said = next((mark.description for mark in marks if mark.description), "")
        default = field.default
        if field.default_factory is not msgspec.NODEFAULT:
            default = field.default_factory()
        name = kind.__name__ if isinstance(kind, type) else str(kind).replace("typing.", "")
        found.append((field.encode_name, name, default, said))
    return found


def machine_settings_of(strategy: Strategy, given: Mapping[str, Any]) -> Any:
    """What a peer's owner said, as far as this strategy has a use for it."""
    mine = {field.name for field in msgspec.structs.fields(strategy.machine_settings)}
    return msgspec.convert({k: v for k, v in given.items() if k in mine}, strategy.machine_settings)


def _near(name: str, names: Iterable[str]) -> str:
    close = difflib.get_close_matches(name, list(names), n=1)
    return f" (did you mean {close[0]}?)" if close else ""
