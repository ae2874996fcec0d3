"""A slow interpreter of chemical programs, with nothing of the engine's: every choice of molecules
is tried, one reaction at a time, on lists. It says where a solution can get to in one reaction.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import permutations

from sureline.chemistry.molecules import (
    Literal,
    Name,
    Operation,
    Rest,
    Rule,
    RuleOf,
    Solution,
    SolutionOf,
    Symbol,
    TupleOf,
    filled,
)


class NoSenseError(Exception):
    pass


def plain(molecule):
    """A form that can be compared: solutions sorted, true apart from 1, 1 as 1.0."""
    if isinstance(molecule, Solution):
        return ("solution", tuple(sorted(map(plain, molecule.molecules), key=repr)))
    if isinstance(molecule, tuple):
        return ("tuple", *[plain(m) for m in molecule])
    if isinstance(molecule, bool):
        return ("bool", molecule)
    if isinstance(molecule, int | float):
        return ("number", float(molecule))
    return (type(molecule).__name__, repr(molecule))


def state(molecules):
    return tuple(sorted(repr(plain(m)) for m in molecules))


def following(molecules, rules=()):
    """All that can come of one reaction, here or in a solution within: what there is after it, the
    rule, and what it took."""
    molecules = list(molecules)
    for i, molecule in enumerate(molecules):
        for changed, rule, taken in _within(molecule):
            yield [*molecules[:i], changed, *molecules[i + 1 :]], rule, taken
        if isinstance(molecule, Rule):
            yield from _applied(molecule, molecules, i)
    for rule in rules:
        yield from _applied(rule, molecules, None)


def _within(molecule):
    if isinstance(molecule, Solution):
        for inner, rule, taken in following(molecule.molecules):
            yield Solution(inner), rule, taken
    elif isinstance(molecule, tuple):
        for i, part in enumerate(molecule):
            for changed, rule, taken in _within(part):
                yield (*molecule[:i], changed, *molecule[i + 1 :]), rule, taken


def is_still(molecule):
    return next(_within(molecule), None) is None


def _applied(rule, molecules, at):
    others = [i for i, m in enumerate(molecules) if i != at and is_still(m)]
    for chosen in permutations(others, len(rule.takes)):
        taken = [molecules[i] for i in chosen]
        for bound in match_all(rule.takes, taken, {}):
            if rule.condition is not None and not holds(rule.condition, bound):
                continue
            gone = {*chosen, at} if rule.once else {*chosen}
            left = [m for i, m in enumerate(molecules) if i not in gone]
            try:
                made = several(rule.gives, bound)
            except (NoSenseError, OverflowError):
                continue  # the engine ends there, with a mistake
            yield left + made, rule, taken


def match_all(patterns, molecules, bound) -> Iterator[dict]:
    if not patterns:
        yield bound
        return
    for now in match(patterns[0], molecules[0], bound):
        yield from match_all(patterns[1:], molecules[1:], now)


SORTS = {
    "int": lambda m: isinstance(m, int) and not isinstance(m, bool),
    "float": lambda m: isinstance(m, float),
    "number": lambda m: isinstance(m, int | float) and not isinstance(m, bool),
    "string": lambda m: isinstance(m, str),
    "bool": lambda m: isinstance(m, bool),
    "symbol": lambda m: isinstance(m, Symbol),
    "tuple": lambda m: isinstance(m, tuple),
    "solution": lambda m: isinstance(m, Solution),
    "rule": lambda m: isinstance(m, Rule),
    "": lambda m: True,
}


def match(pattern, molecule, bound):
    if isinstance(pattern, Literal):
        if plain(pattern.value) == plain(molecule):
            yield bound
    elif isinstance(pattern, Name):
        if not SORTS[pattern.sort](molecule):
            return
        if pattern.name == "_":
            yield bound
        elif pattern.name not in bound:
            yield {**bound, pattern.name: molecule}
        elif plain(bound[pattern.name]) == plain(molecule):
            yield bound
    elif isinstance(pattern, TupleOf):
        if isinstance(molecule, tuple) and len(molecule) == len(pattern.parts):
            yield from match_all(pattern.parts, molecule, bound)
    elif isinstance(pattern, SolutionOf) and isinstance(molecule, Solution):
        yield from _match_solution(pattern, molecule.molecules, bound)


def _match_solution(pattern, inner, bound):
    parts = [part for part in pattern.parts if not isinstance(part, Rest)]
    rests = [part.name for part in pattern.parts if isinstance(part, Rest)]
    for chosen in permutations(range(len(inner)), len(parts)):
        rest = [m for i, m in enumerate(inner) if i not in chosen]
        if rest and not rests:
            continue
        for now in match_all(parts, [inner[i] for i in chosen], bound):
            yield {**now, **{f"?{name}": rest for name in rests if name != "_"}}


def holds(condition, bound):
    try:
        return evaluate(condition, bound) is True
    except NoSenseError:
        return False


def several(parts, bound):
    found = []
    for part in parts:
        if isinstance(part, Rest):
            found += bound[f"?{part.name}"]
        else:
            found.append(evaluate(part, bound))
    return found


def evaluate(of, bound):
    if isinstance(of, Literal):
        return of.value
    if isinstance(of, Name):
        return bound[of.name]
    if isinstance(of, TupleOf):
        return tuple(evaluate(part, bound) for part in of.parts)
    if isinstance(of, SolutionOf):
        return Solution(several(of.parts, bound))
    if isinstance(of, RuleOf):
        ones = {name: m for name, m in bound.items() if name[0] != "?"}
        many = {name[1:]: tuple(m) for name, m in bound.items() if name[0] == "?"}
        return filled(of.rule, ones, many)
    return operate(of, bound)


def operate(of: Operation, bound):
    sign = of.sign
    first = evaluate(of.operands[0], bound)
    if sign == "not":
        return not truth(first)
    if len(of.operands) == 1:
        return -number(first)
    if sign == "and":
        return truth(first) and truth(evaluate(of.operands[1], bound))
    if sign == "or":
        return truth(first) or truth(evaluate(of.operands[1], bound))
    other = evaluate(of.operands[1], bound)
    if sign in ("==", "!="):
        return (plain(first) == plain(other)) == (sign == "==")
    if isinstance(first, str) and isinstance(other, str) and sign in ("<", "<=", ">", ">="):
        return {"<": first < other, "<=": first <= other, ">": first > other}.get(
            sign, first >= other
        )
    a, b = number(first), number(other)
    if sign in ("/", "%") and b == 0:
        raise NoSenseError
    if sign == "/":
        return a // b if isinstance(a, int) and isinstance(b, int) and a % b == 0 else a / b
    return {
        "<": lambda: a < b,
        "<=": lambda: a <= b,
        ">": lambda: a > b,
        ">=": lambda: a >= b,
        "+": lambda: a + b,
        "-": lambda: a - b,
        "*": lambda: a * b,
        "%": lambda: a % b,
    }[sign]()


def number(molecule):
    if isinstance(molecule, bool) or not isinstance(molecule, int | float):
        raise NoSenseError
    return molecule


def truth(molecule):
    if not isinstance(molecule, bool):
        raise NoSenseError
    return molecule
