"""What expressions come to. They are turned into functions of what is bound, once per rule; no
text of a program is ever run as Python.

What makes no sense (`"a" + 1`, `x / 0`, a number beyond all bounds) raises NoSenseError: a
condition then does not hold, and in a product it is the program's mistake.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping, Sequence

from sureline.chemistry.mistakes import TextPlace
from sureline.chemistry.molecules import (
    NOWHERE,
    Expression,
    Literal,
    Molecule,
    Name,
    Operation,
    Rest,
    Rule,
    RuleOf,
    Solution,
    SolutionOf,
    TupleOf,
    alike,
    filled,
)

Held = list[Molecule]
"""What variables hold, by slot; a rest is a tuple."""
Value = Callable[[Held], Molecule]
Slots = Mapping[str, int]

WHOLE_MAX = 1 << 4096
"""No whole number reaches this: a few squarings would fill the memory."""


class NoSenseError(Exception):
    def __init__(self, what: str, place: TextPlace = NOWHERE) -> None:
        super().__init__(what)
        self.what, self.place = what, place


def value_of(expression: Expression) -> Molecule:
    """What an expression without variables comes to. Raises NoSenseError."""
    return compile_expression(expression, {})([])


def compile_expression(of: Expression, slots: Slots, rests: frozenset[str] = frozenset()) -> Value:
    if isinstance(of, Literal):
        literal = of.value
        return lambda held: literal
    if isinstance(of, Name):
        return operator.itemgetter(slots[of.name])
    if isinstance(of, TupleOf):
        parts = [compile_expression(part, slots, rests) for part in of.parts]
        return lambda held: tuple([part(held) for part in parts])
    if isinstance(of, SolutionOf):
        several = compile_several(of.parts, slots, rests)
        return lambda held: Solution(several(held))
    if isinstance(of, RuleOf):
        return _compile_rule(of.rule, slots, rests)
    assert isinstance(of, Operation)
    return _compile_operation(of, [compile_expression(o, slots, rests) for o in of.operands])


def compile_several(
    parts: Sequence[Expression], slots: Slots, rests: frozenset[str] = frozenset()
) -> Callable[[Held], list[Molecule]]:
    """Of a list of expressions, in which a rest stands for many molecules."""
    if not any(isinstance(part, Rest) for part in parts):
        values = [compile_expression(part, slots, rests) for part in parts]
        return lambda held: [value(held) for value in values]

    def one(part: Expression) -> Callable[[Held], Sequence[Molecule]]:
        if isinstance(part, Rest):
            return operator.itemgetter(slots[part.name])
        value = compile_expression(part, slots, rests)
        return lambda held: (value(held),)

    each = [one(part) for part in parts]
    return lambda held: [molecule for some in each for molecule in some(held)]


def _compile_rule(rule: Rule, slots: Slots, rests: frozenset[str]) -> Value:
    def value(held: Held) -> Molecule:
        ones = {name: held[slot] for name, slot in slots.items() if name not in rests}
        many = {name: held[slots[name]] for name in rests}
        return filled(rule, ones, many)  # type: ignore[arg-type]  # a rest's slot holds a tuple

    return value


def _compile_operation(of: Operation, operands: list[Value]) -> Value:
    sign, place = of.sign, of.place
    if sign == "not":
        return lambda held: not _truth(operands[0](held), place)
    if len(operands) == 1:
        return lambda held: -_number(operands[0](held), place)
    left, right = operands
    if sign == "and":
        return lambda held: _truth(left(held), place) and _truth(right(held), place)
    if sign == "or":
        return lambda held: _truth(left(held), place) or _truth(right(held), place)
    if sign == "==":
        return lambda held: alike(left(held), right(held))
    if sign == "!=":
        return lambda held: not alike(left(held), right(held))
    if sign in _COMPARING:
        return _compile_comparison(_COMPARING[sign], left, right, place)
    return _compile_sum(_CALCULATING[sign], left, right, place)


_COMPARING: Mapping[str, Callable[..., bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


def _compile_comparison(
    compare: Callable[..., bool], left: Value, right: Value, place: TextPlace
) -> Value:
    def value(held: Held) -> Molecule:
        one, other = left(held), right(held)
        if type(one) is int and type(other) is int:
            return compare(one, other)
        if isinstance(one, str) and isinstance(other, str):
            return compare(one, other)
        return compare(_number(one, place), _number(other, place))

    return value


def _divide(one: float, other: float) -> float:
    """Of whole numbers a whole one, where it comes out even."""
    if type(one) is int and type(other) is int and one % other == 0:
        return one // other
    return one / other


_CALCULATING: Mapping[str, Callable[..., float]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": _divide,
    "%": operator.mod,
}


def _compile_sum(
    calculate: Callable[..., float], left: Value, right: Value, place: TextPlace
) -> Value:
    def value(held: Held) -> Molecule:
        one, other = _number(left(held), place), _number(right(held), place)
        try:
            found = calculate(one, other)
        except ZeroDivisionError:
            raise NoSenseError(f"{one} is divided by 0", place) from None
        except OverflowError:
            raise NoSenseError("a number is too large", place) from None
        if type(found) is int:
            if -WHOLE_MAX < found < WHOLE_MAX:
                return found
        elif math.isfinite(found):
            return found
        raise NoSenseError("a number is too large", place)

    return value


def _number(molecule: Molecule, place: TextPlace) -> float:
    kind = type(molecule)
    if kind is int or kind is float:
        return molecule  # type: ignore[return-value]  # `kind is` narrows nothing
    raise NoSenseError("only numbers can be calculated with, and put in order", place)


def _truth(molecule: Molecule, place: TextPlace) -> bool:
    if isinstance(molecule, bool):
        return molecule
    raise NoSenseError("this is neither true nor false", place)
