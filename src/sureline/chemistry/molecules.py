"""Molecules, and what rules are made of: patterns and expressions.

A molecule is a number, a string, true or false, a symbol (`READY`), a tuple (`LEVEL:1:READY`), a
solution (`<1, 2>`) or a rule. Numbers and strings are Python's own, and a tuple is a tuple. None
ever changes. Two are alike if they say the same: 1 and 1.0 do, 1 and true do not; solutions do
whatever the order.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import chain, islice
from typing import TypeAlias

from sureline.chemistry.mistakes import TextPlace

Molecule: TypeAlias = "int | float | str | Symbol | tuple[Molecule, ...] | Solution | Rule"
"""A bool is an int for the type checker only."""

NOWHERE = TextPlace(0, 0)
NAMELESS = "_"
"""A variable of this name binds nothing."""
DEPTH_MAX = 60
"""Solutions, tuples and rules within each other, and brackets in a text."""


@dataclass(frozen=True, slots=True)
class Symbol:
    name: str


class Solution:
    """A multiset. `inert` if nothing in it, or in solutions within, can react."""

    __slots__ = ("_key", "inert", "molecules")

    def __init__(self, molecules: Iterable[Molecule], *, inert: bool | None = None) -> None:
        self.molecules = tuple(molecules)
        if inert is None:
            inert = not any(isinstance(m, Rule) or not is_inert(m) for m in self.molecules)
        self.inert = inert
        self._key: Hashable = None

    @property
    def key(self) -> Hashable:
        if self._key is None:
            self._key = (Solution, frozenset(Counter(map(key, self.molecules)).items()))
        return self._key

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Solution) and self.key == other.key

    def __hash__(self) -> int:
        return hash(self.key)

    def __len__(self) -> int:
        return len(self.molecules)

    def __repr__(self) -> str:
        return f"Solution({list(self.molecules)!r})"


def is_inert(molecule: Molecule) -> bool:
    """Whether no solution in it has reactions left, as far as is known."""
    if isinstance(molecule, tuple):
        return all(map(is_inert, molecule))
    return not isinstance(molecule, Solution) or molecule.inert


def key(molecule: Molecule) -> Hashable:
    """Equal for molecules that are alike, and for no others."""
    kind = type(molecule)
    if kind is tuple:
        return tuple(map(key, molecule))  # type: ignore[arg-type]  # `kind is` narrows nothing
    if kind is bool:
        return (bool, molecule)
    if isinstance(molecule, Solution):
        return molecule.key
    return molecule


def alike(one: Molecule, other: Molecule) -> bool:
    kind = type(one)
    if kind is type(other) and kind in (int, float, str, Symbol):
        return one == other
    return key(one) == key(other)


def size_of(molecule: Molecule, most: int) -> int | None:
    """How many molecules it is, with all within; None if they are more than `most`, or more than
    DEPTH_MAX deep. One may stand in many places: a few doublings would fill the memory."""
    size, level = 1, [molecule]
    for _ in range(DEPTH_MAX):
        level = list(islice(chain.from_iterable(map(_within, level)), most))
        size += len(level)
        if not level or size > most:
            break
    return size if not level and size <= most else None


def _within(molecule: Molecule) -> Iterable[Molecule]:
    if isinstance(molecule, Solution):
        return molecule.molecules
    if isinstance(molecule, Rule):
        return _literals(molecule)
    return molecule if isinstance(molecule, tuple) else ()


# Rules.


@dataclass(frozen=True, slots=True, eq=False)
class Literal:
    """A molecule as it is: a pattern that takes only this, or an expression."""

    value: Molecule

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Literal) and alike(self.value, other.value)

    def __hash__(self) -> int:
        return hash(key(self.value))


@dataclass(frozen=True, slots=True)
class Name:
    """What a variable holds. In a pattern it takes any molecule of its sort ('' for all); the same
    name twice, two that are alike."""

    name: str
    sort: str = ""
    place: TextPlace = field(default=NOWHERE, compare=False)


@dataclass(frozen=True, slots=True)
class Rest:
    """All other molecules of a solution, one by one."""

    name: str


@dataclass(frozen=True, slots=True)
class TupleOf:
    parts: tuple[Expression, ...]


@dataclass(frozen=True, slots=True)
class SolutionOf:
    """In a pattern each part takes a molecule of its own, and there are no others unless there is a
    rest to hold them."""

    parts: tuple[Expression, ...]


@dataclass(frozen=True, slots=True)
class RuleOf:
    """A rule that is made where it stands, with what is bound there."""

    rule: Rule


@dataclass(frozen=True, slots=True)
class Operation:
    """`sign` applied to one operand (`-`, `not`) or to two."""

    sign: str
    operands: tuple[Expression, ...]
    place: TextPlace = field(default=NOWHERE, compare=False)


Expression: TypeAlias = Literal | Name | Rest | TupleOf | SolutionOf | RuleOf | Operation
Pattern: TypeAlias = Expression
"""One without operations and rules in it."""


@dataclass(frozen=True, slots=True)
class Rule:
    """`replace takes by gives if condition`; `once` for `replace-one`."""

    takes: tuple[Pattern, ...]
    gives: tuple[Expression, ...]
    condition: Expression | None = None
    once: bool = False
    name: str = ""


def inside(of: Expression) -> tuple[Expression, ...]:
    """What an expression or a pattern is made of."""
    if isinstance(of, TupleOf | SolutionOf):
        return of.parts
    return of.operands if isinstance(of, Operation) else ()


def everything_in(rule: Rule) -> Iterator[Expression]:
    left = [*rule.takes, *rule.gives, *([] if rule.condition is None else [rule.condition])]
    while left:
        yield (of := left.pop())
        left += inside(of)


def _literals(rule: Rule) -> Iterator[Molecule]:
    for of in everything_in(rule):
        if isinstance(of, Literal | RuleOf):
            yield of.value if isinstance(of, Literal) else of.rule


# What a rule within a rule knows of the outer one.

Bound: TypeAlias = "dict[str, Molecule]"


def filled(rule: Rule, bound: Bound, rests: dict[str, tuple[Molecule, ...]]) -> Rule:
    """The rule with the outer rule's variables replaced by what they hold."""

    def each(of: tuple[Expression, ...]) -> tuple[Expression, ...]:
        found: list[Expression] = []
        for part in of:
            if isinstance(part, Rest) and part.name in rests:
                found += map(Literal, rests[part.name])
            else:
                found.append(expression(part))
        return tuple(found)

    def expression(of: Expression) -> Expression:
        if isinstance(of, Name):
            return Literal(bound[of.name]) if of.name in bound else of
        if isinstance(of, TupleOf):
            return TupleOf(each(of.parts))
        if isinstance(of, SolutionOf):
            return SolutionOf(each(of.parts))
        if isinstance(of, RuleOf):
            return RuleOf(filled(of.rule, bound, rests))
        if isinstance(of, Operation):
            return Operation(of.sign, tuple(map(expression, of.operands)), of.place)
        return of

    condition = expression(rule.condition) if rule.condition is not None else None
    return Rule(each(rule.takes), each(rule.gives), condition, rule.once, rule.name)
