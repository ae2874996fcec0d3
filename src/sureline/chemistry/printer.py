"""From molecules, rules and programs to text that is read back as the same."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import TYPE_CHECKING

from sureline.chemistry.molecules import (
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
    Symbol,
    TupleOf,
)

if TYPE_CHECKING:
    from sureline.chemistry.parser import Program

_ORDER = ((bool, 3), (int, 0), (float, 0), (str, 1), (Symbol, 2), (tuple, 4), (Solution, 5))
_RULES_LAST = 6

# How tightly a sign holds its operands together; a tuple's colon is looser than arithmetic and
# tighter than a comparison.
_OR, _AND, _NOT, _COMPARISON, _TUPLE, _SUM, _PRODUCT, _MINUS, _WHOLE = range(9)
_STRENGTH = {
    "or": _OR,
    "and": _AND,
    "not": _NOT,
    **dict.fromkeys(["==", "!=", "<", "<=", ">", ">="], _COMPARISON),
    "+": _SUM,
    "-": _SUM,
    "*": _PRODUCT,
    "/": _PRODUCT,
    "%": _PRODUCT,
}


def show(molecule: Molecule, *, as_given: bool = False) -> str:
    """A molecule as it stands in a solution; a rule by its name, if it has one. Solutions in it
    are put in order, or left as they were given."""
    if isinstance(molecule, bool):
        return "true" if molecule else "false"
    if isinstance(molecule, int | float):
        return repr(molecule)
    if isinstance(molecule, str):
        return json.dumps(molecule, ensure_ascii=False)
    if isinstance(molecule, Symbol):
        return molecule.name
    if isinstance(molecule, tuple):
        shown = [(show(m, as_given=as_given), isinstance(m, tuple)) for m in molecule]
        return ":".join(f"({text})" if nested else text for text, nested in shown)
    if isinstance(molecule, Solution):
        if as_given:
            return f"<{', '.join(show(m, as_given=True) for m in molecule.molecules)}>"
        return f"<{', '.join(text for _, text, _ in _sorted(molecule.molecules))}>"
    return molecule.name or f"({show_rule(molecule)})"


def in_order(molecules: Iterable[Molecule]) -> list[Molecule]:
    """Numbers by size, then the rest by kind and text: a solution has no order of its own."""
    return [molecule for _, _, molecule in _sorted(molecules)]


def _sorted(molecules: Iterable[Molecule]) -> list[tuple[tuple[int, float], str, Molecule]]:
    """In order, with the text of each: what is deep is shown once, not once more at each depth."""
    shown = [(_place(molecule), show(molecule), molecule) for molecule in molecules]
    return sorted(shown, key=lambda one: one[:2] if one[0][0] else (one[0], ""))


def _place(molecule: Molecule) -> tuple[int, float]:
    for kind, rank in _ORDER:
        if isinstance(molecule, kind):
            return rank, molecule if rank == 0 else 0  # type: ignore[return-value]  # 0: a number
    return _RULES_LAST, 0


def show_rule(rule: Rule) -> str:
    takes = ", ".join(_expression(part, _TUPLE) for part in rule.takes)
    gives = ", ".join(_expression(part, _TUPLE) for part in rule.gives) or "nothing"
    text = f"{'replace-one' if rule.once else 'replace'} {takes} by {gives}"
    return f"{text} if {_expression(rule.condition, _OR)}" if rule.condition is not None else text


def show_program(program: Program) -> str:
    lines = []
    for name, value in program.names.items():
        named = isinstance(value, Rule) and value.name == name
        lines.append(f"let {name} = {show_rule(value) if named else show(value)} in")  # type: ignore[arg-type]  # named: a Rule
    lines += [f"{show_rule(rule)} in" for rule in program.rules]
    return "\n".join([*lines, show(program.solution)]) + "\n"


def _expression(of: Expression, least: int) -> str:
    """In parentheses if its sign holds less tightly than `least`."""
    text, strength = _with_strength(of)
    return f"({text})" if strength < least else text


def _with_strength(of: Expression) -> tuple[str, int]:
    if isinstance(of, Literal):
        return show(of.value), _TUPLE if isinstance(of.value, tuple) else _WHOLE
    if isinstance(of, Name):
        return f"{of.name}::{of.sort}" if of.sort else of.name, _WHOLE
    if isinstance(of, Rest):
        return f"?{of.name}", _WHOLE
    if isinstance(of, SolutionOf):
        return f"<{', '.join(_expression(part, _TUPLE) for part in of.parts)}>", _WHOLE
    if isinstance(of, RuleOf):
        return f"({show_rule(of.rule)})", _WHOLE
    if isinstance(of, TupleOf):
        return ":".join(_expression(part, _SUM) for part in of.parts), _TUPLE
    return _operation(of)


def _operation(of: Operation) -> tuple[str, int]:
    if len(of.operands) == 1:
        strength = _NOT if of.sign == "not" else _MINUS
        operand = _expression(of.operands[0], strength)
        if of.sign == "not":
            return f"not {operand}", strength
        # `-3` is a number and `--3` is the number taken once more: keep what is an operation one
        plain = isinstance(of.operands[0], Literal)
        return f"-({operand})" if plain else f"-{operand}", strength
    strength = _STRENGTH[of.sign]
    # signs of one strength are read from the left; comparisons are not read in a row at all
    left = strength + 1 if strength == _COMPARISON else strength
    return (
        f"{_expression(of.operands[0], left)} {of.sign} "
        f"{_expression(of.operands[1], strength + 1)}",
        strength,
    )
