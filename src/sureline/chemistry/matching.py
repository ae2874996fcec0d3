"""Finding molecules for a rule.

A pattern becomes a test (plain patterns) or a search (patterns of solutions, which may fit in
several ways); a rule becomes a plan for each of its patterns. A plan starts with one new molecule
in its pattern's place and goes on pattern by pattern among molecules that were tried before, so
no two are ever tried together twice. Each part of the condition is asked as soon as its variables
are bound; of a pattern that shares a variable with those before it, only molecules with the same
value there are looked at.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterator, Sequence
from random import Random
from typing import NamedTuple

from sureline.chemistry.arithmetic import Held, NoSenseError, Slots, Value, compile_expression
from sureline.chemistry.molecules import (
    NAMELESS,
    Expression,
    Literal,
    Molecule,
    Name,
    Operation,
    Pattern,
    Rest,
    Rule,
    Solution,
    SolutionOf,
    Symbol,
    TupleOf,
    alike,
    inside,
    key,
)

Test = Callable[[Molecule, Held], bool]
Then = Callable[[], bool]
Search = Callable[[Molecule, Held, Then], bool]
"""Whether some way to fit the molecule lets the rest of the search succeed."""
Check = Callable[[Held], bool]
Shape = object
"""See `shape_of`."""
Path = tuple[int, ...]
"""Where in a tuple, and in tuples within."""


class Stage(NamedTuple):
    """One pattern of a plan."""

    position: int
    """Which pattern of the rule."""
    test: Test
    search: Search | None
    """Instead of the test, where the pattern may fit in several ways."""
    check: Check | None
    """What the condition asks of the variables that are bound by now."""
    join: tuple[Path, int] | None
    """Look only at molecules that have at this path what this slot holds."""


class Plans(NamedTuple):
    slots: Slots
    rests: frozenset[str]
    """The variables that hold the rest of a solution."""
    by_start: tuple[tuple[Stage, ...], ...]
    paths: tuple[tuple[Path, ...], ...]
    """By position: the paths that some plan joins on."""


# What a molecule is at a glance, to find the rules that may take it.


def shape_of(molecule: Molecule) -> Shape:
    """Sorts; for symbols the symbol, and for tuples the length and the first symbol."""
    kind = type(molecule)
    if isinstance(molecule, tuple):
        return len(molecule), molecule[0] if isinstance(molecule[0], Symbol) else None
    return molecule if kind is Symbol else kind


_SORTS: dict[str, Callable[[Shape], bool]] = {
    "": lambda shape: True,
    "int": lambda shape: shape is int,
    "float": lambda shape: shape is float,
    "number": lambda shape: shape is int or shape is float,
    "string": lambda shape: shape is str,
    "bool": lambda shape: shape is bool,
    "symbol": lambda shape: isinstance(shape, Symbol),
    "tuple": lambda shape: isinstance(shape, tuple),
    "solution": lambda shape: shape is Solution,
    "rule": lambda shape: shape is Rule,
}


def admits(pattern: Pattern, shape: Shape) -> bool:
    """Whether some molecule of this shape may fit."""
    if isinstance(pattern, Name):
        return _SORTS[pattern.sort](shape)
    if isinstance(pattern, Literal):
        numbers = (int, float)
        own = shape_of(pattern.value)
        return own == shape or (own in numbers and shape in numbers)
    if isinstance(pattern, SolutionOf):
        return shape is Solution
    assert isinstance(pattern, TupleOf)
    if not isinstance(shape, tuple) or shape[0] != len(pattern.parts):
        return False
    first = pattern.parts[0]
    tag = first.value if isinstance(first, Literal) else None
    return not isinstance(tag, Symbol) or shape[1] == tag


# Patterns.


def _is_plain(pattern: Pattern) -> bool:
    if isinstance(pattern, TupleOf):
        return all(map(_is_plain, pattern.parts))
    return not isinstance(pattern, SolutionOf)


def _compile_test(pattern: Pattern, slots: Slots, bound: set[str]) -> Test:
    if isinstance(pattern, Literal):
        value = pattern.value
        return lambda molecule, held: alike(molecule, value)
    if isinstance(pattern, TupleOf):
        return _compile_tuple(pattern, slots, bound)
    assert isinstance(pattern, Name), pattern
    fits = _SORTS[pattern.sort]
    if pattern.name == NAMELESS:
        return lambda molecule, held: fits(shape_of(molecule))
    slot = slots[pattern.name]
    if pattern.name in bound:
        return lambda molecule, held: alike(molecule, held[slot]) and fits(shape_of(molecule))
    bound.add(pattern.name)
    anything = pattern.sort == ""

    def bind(molecule: Molecule, held: Held) -> bool:
        held[slot] = molecule
        return anything or fits(shape_of(molecule))

    return bind


def _compile_tuple(pattern: TupleOf, slots: Slots, bound: set[str]) -> Test:
    tests = [_compile_test(part, slots, bound) for part in pattern.parts]
    count = len(tests)

    def test(molecule: Molecule, held: Held) -> bool:
        if type(molecule) is not tuple or len(molecule) != count:
            return False
        for part, inner in zip(tests, molecule, strict=True):  # noqa: SIM110  # faster than all()
            if not part(inner, held):
                return False
        return True

    return test


def _compile_search(pattern: Pattern, slots: Slots, bound: set[str], random: Random) -> Search:
    if _is_plain(pattern):
        test = _compile_test(pattern, slots, bound)
        return lambda molecule, held, then: test(molecule, held) and then()
    if isinstance(pattern, SolutionOf):
        return _compile_solution(pattern, slots, bound, random)
    assert isinstance(pattern, TupleOf)
    parts = [_compile_search(part, slots, bound, random) for part in pattern.parts]

    def search(molecule: Molecule, held: Held, then: Then) -> bool:
        if not isinstance(molecule, tuple) or len(molecule) != len(parts):
            return False
        inner = molecule

        def from_part(number: int) -> bool:
            if number == len(parts):
                return then()
            return parts[number](inner[number], held, lambda: from_part(number + 1))

        return from_part(0)

    return search


def _compile_solution(pattern: SolutionOf, slots: Slots, bound: set[str], random: Random) -> Search:
    rests = [part.name for part in pattern.parts if isinstance(part, Rest)]
    own = [part for part in pattern.parts if not isinstance(part, Rest)]
    parts = [_compile_search(part, slots, bound, random) for part in own]
    rest = next((slots[name] for name in rests if name != NAMELESS), None)
    exact = not rests

    def search(molecule: Molecule, held: Held, then: Then) -> bool:
        if not isinstance(molecule, Solution):
            return False
        inner = molecule.molecules
        if len(inner) < len(parts) or (exact and len(inner) > len(parts)):
            return False
        used: list[int] = []

        def from_part(number: int) -> bool:
            if number == len(parts):
                if rest is not None:
                    held[rest] = tuple([m for i, m in enumerate(inner) if i not in used])
                return then()
            for index in _from_anywhere(len(inner), random):
                if index not in used:
                    used.append(index)
                    if parts[number](inner[index], held, lambda: from_part(number + 1)):
                        return True
                    used.pop()
            return False

        return from_part(0)

    return search


def _from_anywhere(count: int, random: Random) -> Iterator[int]:
    start = int(random.random() * count)
    yield from range(start, count)
    yield from range(start)


# Rules.


def compile_plans(rule: Rule, random: Random) -> Plans:
    names = [_variables(pattern) for pattern in rule.takes]
    is_rest = {name: rest for found in names for name, rest in found.items()}
    slots = {name: slot for slot, name in enumerate(is_rest)}
    rests = frozenset(name for name in is_rest if is_rest[name])
    paths: list[dict[Path, None]] = [{} for _ in rule.takes]
    parts = [(compile_expression(c, slots), names_in(c)) for c in conjuncts(rule.condition)]
    plans = []
    for start in range(len(rule.takes)):
        stages: list[Stage] = []
        bound: set[str] = set()
        left = parts
        for position in _order(start, names):
            pattern = rule.takes[position]
            join = _join(pattern, bound, slots) if stages else None
            if join is not None:
                paths[position][join[0]] = None
            test, search = _compile_pattern(pattern, slots, bound, random)
            check = _all_hold([value for value, uses in left if uses <= bound])
            left = [(value, uses) for value, uses in left if not uses <= bound]
            stages.append(Stage(position, test, search, check, join))
        assert not left
        plans.append(tuple(stages))
    return Plans(slots, rests, tuple(plans), tuple(map(tuple, paths)))


def _compile_pattern(
    pattern: Pattern, slots: Slots, bound: set[str], random: Random
) -> tuple[Test, Search | None]:
    if not _is_plain(pattern):
        return lambda molecule, held: False, _compile_search(pattern, slots, bound, random)
    if isinstance(pattern, Name) and pattern.name not in bound:
        pattern = Name(pattern.name)  # only molecules of its sort are ever tried here
    return _compile_test(pattern, slots, bound), None


def _variables(pattern: Pattern) -> dict[str, bool]:
    """The names that it binds, in order, and whether to the rest of a solution."""
    if isinstance(pattern, Name | Rest):
        return {} if pattern.name == NAMELESS else {pattern.name: isinstance(pattern, Rest)}
    return {name: rest for part in inside(pattern) for name, rest in _variables(part).items()}


def _order(start: int, names: Sequence[Collection[str]]) -> list[int]:
    """The start, then always a pattern that shares a variable with those before, if one does."""
    order, left = [start], [i for i in range(len(names)) if i != start]
    bound = set(names[start])
    while left:
        following = next((i for i in left if bound & set(names[i])), left[0])
        left.remove(following)
        order.append(following)
        bound |= set(names[following])
    return order


def _join(pattern: Pattern, bound: set[str], slots: Slots) -> tuple[Path, int] | None:
    """The first place in the pattern where a bound variable stands."""
    for path, name in _places(pattern, ()):
        if name in bound:
            return path, slots[name]
    return None


def _places(pattern: Pattern, path: Path) -> Iterator[tuple[Path, str]]:
    if isinstance(pattern, Name):
        yield path, pattern.name
    elif isinstance(pattern, TupleOf):
        for index, part in enumerate(pattern.parts):
            yield from _places(part, (*path, index))


def at_path(molecule: Molecule, path: Path) -> Hashable:
    """The key of what stands there; None if there is no such place."""
    for index in path:
        if not isinstance(molecule, tuple) or index >= len(molecule):
            return None
        molecule = molecule[index]
    return key(molecule)


def conjuncts(condition: Expression | None) -> Iterator[Expression]:
    """Those of which all must hold."""
    if isinstance(condition, Operation) and condition.sign == "and":
        for operand in condition.operands:
            yield from conjuncts(operand)
    elif condition is not None:
        yield condition


def names_in(of: Expression) -> set[str]:
    """The variables of a condition, in which no rules stand."""
    return {of.name} if isinstance(of, Name) else {n for part in inside(of) for n in names_in(part)}


def _all_hold(conditions: Sequence[Value]) -> Check | None:
    """One that makes no sense does not hold."""

    def hold(held: Held) -> bool:
        try:
            for condition in conditions:
                if condition(held) is not True:
                    return False
        except NoSenseError:
            return False
        return True

    return hold if conditions else None
