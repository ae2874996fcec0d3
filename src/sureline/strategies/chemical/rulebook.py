"""The rules that workflows fall apart by and tasks find machines by: text, read once, and reacted
with on whatever node a molecule is.

Everything here is a reaction of `chemistry`. What goes to the ring as a query is one, too: the
condition of `mapTaskRes` says which features of a resource are compared with what; of these
comparisons a rule is made that turns a task into its limits.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cache, lru_cache
from importlib.resources import files
from typing import TYPE_CHECKING

from sureline.chemistry import (
    Bounds,
    ChemistryError,
    Molecule,
    Reactor,
    Rule,
    Symbol,
    parse_rules,
)
from sureline.chemistry.matching import conjuncts, names_in
from sureline.chemistry.molecules import (
    Expression,
    Literal,
    Name,
    Operation,
    TupleOf,
    inside,
)
from sureline.overlay.ring import ValueRange

if TYPE_CHECKING:
    from random import Random  # the type; numbers come from the world

FALLING_APART = ("level", "workflowDecomp")
"""The last two rules for a workflow, once those before them have nothing more to do."""
LATER = ("levelDecomp", "levelReady", "mapTaskRes", "prefer")
NEEDED = ("workflowDecomp", *LATER)
RANKED = ("load", "cores", "memory")
"""What resources can be ranked by."""
ORDERS = ("first", "shortest", "rank", "deadline")
TEXT_MAX = 16_384
_SMALL = 10_000
"""Reactions that one molecule may cause on a node, whoever wrote the rules."""
_FLIPPED = {">=": "<=", "<=": ">=", ">": "<", "<": ">", "==": "=="}


class RulesError(ValueError):
    """What is wrong with a file of rules, in one sentence."""


class Rulebook:
    """Raises RulesError for a text that is no such book."""

    def __init__(self, rules: str, order: str) -> None:
        known = _parsed(rules, "rules")
        missing = [name for name in NEEDED if name not in known]
        if missing:
            raise RulesError(f"the rules have no {missing[0]}; copy it from the usual ones")
        ordering = _parsed(order, "order")
        if "order" not in ordering:
            raise RulesError("the order has no rule of that name: let order = replace ...")
        self._known = known
        self._ordering = ordering["order"]
        self._asking = _asking(known["mapTaskRes"])

    def levels(self, tasks: Iterable[Molecule], random: Random) -> dict[int, Molecule]:
        """A workflow's levels by number; the last to run is 0."""
        first = [self._known[name] for name in self._known if name not in (*FALLING_APART, *LATER)]
        last = [self._known[name] for name in FALLING_APART if name in self._known]
        left = _react(last, _react(first, tasks, random, Bounds()), random, Bounds())
        return {n: m for m in left if (n := level_of(m)) is not None}

    def tasks(self, level: Molecule, random: Random) -> tuple[Molecule | None, list[Molecule]]:
        """What is left of a level that is ready, and its tasks."""
        made = self._by("levelDecomp", [level], random)
        rest = next((m for m in made if level_of(m) is not None), None)
        return rest, [m for m in made if is_tagged(m, "TASK")]

    def readied(self, done: int, level: Molecule, random: Random) -> Molecule | None:
        """The level once another is done; None if it waits for something else."""
        made = self._by("levelReady", [(Symbol("DONE"), done), level], random)
        return next((m for m in made if level_of(m) is not None and m != level), None)

    def fits(self, task: Molecule, resource: Molecule, random: Random) -> bool:
        made = self._by("mapTaskRes", [task, resource], random)
        return any(is_tagged(m, "DEPLOY") for m in made)

    def limits(self, task: Molecule, random: Random) -> dict[str, ValueRange]:
        """What the ring is asked for: by feature, which values will do."""
        found: dict[str, ValueRange] = {}
        for made in _react([self._asking], [task], random):
            match made:
                case (Symbol("LIMIT"), Symbol(feature), str(sign), int() | float() as value):
                    name = feature.lower()
                    found[name] = _narrowed(found.get(name, ValueRange()), sign, float(value))
                case _:
                    pass
        return found

    def preferred(self, task: Molecule, random: Random) -> tuple[str, bool]:
        """The feature to rank resources by, and whether its highest value is the best."""
        for made in self._by("prefer", [task], random):
            match made:
                case (Symbol("LOWEST" | "HIGHEST" as which), Symbol(feature)):
                    if feature.lower() in RANKED:
                        return feature.lower(), which == "HIGHEST"
                case _:
                    pass
        return "load", False

    def key(self, ready: Molecule, random: Random) -> float:
        """What the order makes of a ready task; lower goes first."""
        for made in _react([self._ordering], [ready], random):
            match made:
                case (Symbol("KEY"), _, int() | float() as value):
                    return float(value)
                case _:
                    pass
        return 0.0

    def _by(self, rule: str, molecules: Iterable[Molecule], random: Random) -> list[Molecule]:
        return _react([self._known[rule]], molecules, random)


def _react(
    rules: Iterable[Rule],
    molecules: Iterable[Molecule],
    random: Random,
    bounds: Bounds | None = None,
) -> list[Molecule]:
    """What is left at inertia, or at a bound; nothing, if the rules make no sense of these."""
    bounds = bounds or Bounds(_SMALL, 100 * _SMALL, _SMALL)
    reactor = Reactor(molecules, rules=rules, random=random, bounds=bounds)
    try:
        reactor.run()
    except ChemistryError:
        return []
    return list(reactor.solution().molecules)


def _parsed(text: str, what: str) -> dict[str, Rule]:
    if len(text.encode()) > TEXT_MAX:
        raise RulesError(f"the {what} are longer than {TEXT_MAX:,} bytes")
    try:
        return parse_rules(text)
    except ChemistryError as error:
        raise RulesError(f"{what}, {error}") from None


@cache
def usual_text(name: str) -> str:
    """Of a file that comes with us: 'rules', or one of ORDERS."""
    path = "rules.chem" if name == "rules" else f"orders/{name}.chem"
    return files(__package__).joinpath(path).read_text("utf-8")


@lru_cache(64)
def book_of(rules: str, order: str) -> Rulebook:
    return Rulebook(rules or usual_text("rules"), usual_text(order) if order in ORDERS else order)


def is_tagged(molecule: Molecule | None, tag: str) -> bool:
    return isinstance(molecule, tuple) and bool(molecule) and molecule[0] == Symbol(tag)


def level_of(molecule: Molecule) -> int | None:
    match molecule:
        case (Symbol("LEVEL"), int(number), *_):
            return number
        case _:
            return None


# The query in a rule's condition.


def _asking(mapping: Rule) -> Rule:
    """A rule that turns a task into the limits that `mapTaskRes` sets for its resource."""
    if len(mapping.takes) != 2:
        raise RulesError("mapTaskRes takes a task and a resource: replace TASK:..., RES:...")
    task, resource = mapping.takes
    features = dict(_features(resource))
    limits: list[Expression] = []
    for part in conjuncts(mapping.condition):
        if not isinstance(part, Operation) or part.sign not in _FLIPPED:
            continue
        sign, (left, right) = part.sign, part.operands
        for one, other, its_sign in ((left, right, sign), (right, left, _FLIPPED[sign])):
            feature = features.get(one.name) if isinstance(one, Name) else None
            if feature is not None and not names_in(other) & features.keys():
                tags = (Literal(Symbol("LIMIT")), Literal(feature), Literal(its_sign))
                limits.append(TupleOf((*tags, other)))
    return Rule((task,), tuple(limits), None, True, "asking")


def _features(pattern: Expression) -> Iterator[tuple[str, Symbol]]:
    """The variables of a resource pattern that hold a feature: (variable, feature)."""
    match pattern:
        case TupleOf((Literal(Symbol() as feature), Name(name))) if name != "_":
            yield name, feature
        case _:
            for part in inside(pattern):
                yield from _features(part)


def _narrowed(limits: ValueRange, sign: str, value: float) -> ValueRange:
    low, high = limits.low, limits.high
    low_open, high_open = limits.low_open, limits.high_open
    if sign in (">", ">=", "==") and value >= low:
        low, low_open = value, sign == ">"
    if sign in ("<", "<=", "==") and value <= high:
        high, high_open = value, sign == "<"
    return ValueRange(low, high, low_open, high_open)
