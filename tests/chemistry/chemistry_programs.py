"""Random chemical programs from a seed: small enough to follow every reaction of, and such that
most of them react."""

from __future__ import annotations

from random import Random

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
)
from sureline.chemistry.parser import SORTS, Program

A, B = Symbol("A"), Symbol("B")
ODD = [0.5, 2.0, 1e20, -3, "", "a", 'two "words"\n', True, False, B, Symbol("READY")]


class Maker:
    """Draws programs, and parts of them."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)

    def often(self, share: float) -> bool:
        return self.random.random() < share

    def atom(self):
        return self.random.randint(0, 2) if self.often(0.8) else self.random.choice(ODD)

    def molecule(self, depth=2):
        if not depth or self.often(0.7):
            return self.atom()
        parts = [self.molecule(depth - 1) for _ in range(self.random.randint(1, 2))]
        if self.often(0.7):
            return (self.random.choice([A, A, B]), *parts)
        return Solution(parts)

    def molecules(self, most):
        return [self.molecule() for _ in range(self.random.randint(most // 2, most))]

    def pattern(self, names, rests, depth=2):
        if not depth or self.often(0.7):
            if self.often(0.1):
                return Literal(self.atom())
            name = self.random.choice(["v", "w", "x", "y", "z", "_"])
            names.update({name} - {"_"})
            return Name(name, self.random.choice(["int"] * 9 + [""] * 9 + [*SORTS]))
        inner = [self.pattern(names, rests, depth - 1) for _ in range(self.random.randint(0, 2))]
        if self.often(0.6) and inner:
            return TupleOf((Literal(self.random.choice([A, A, B])), *inner))
        rest = self.random.choice([None, "_", "rest"])
        if rest == "rest" and rests:
            rest = "_"
        rests.update({rest} - {None, "_"})
        return SolutionOf((*inner, *([] if rest is None else [Rest(rest)])))

    def expression(self, names, depth=2):
        if not depth or self.often(0.5):
            return (
                Name(self.random.choice(sorted(names)))
                if names and self.often(0.7)
                else (Literal(self.atom()))
            )
        one = self.expression(names, depth - 1)
        if self.often(0.2) and not isinstance(one, Literal):
            return Operation("-", (one,))
        sign = self.random.choice(["+", "-", "-", "*", "/", "%"])
        return Operation(sign, (one, self.expression(names, depth - 1)))

    def condition(self, names, depth=2):
        if not depth or self.often(0.5):
            sign = self.random.choice(["==", "!=", "<", "<=", ">", ">="])
            return Operation(sign, (self.expression(names, 1), self.expression(names, 1)))
        one = self.condition(names, depth - 1)
        if self.often(0.2):
            return Operation("not", (one,))
        sign = self.random.choice(["and", "and", "or"])
        return Operation(sign, (one, self.condition(names, depth - 1)))

    def product(self, names, rests, depth=2):
        kind = self.random.randint(0, 9)
        if rests and kind <= 1:
            return Rest(self.random.choice(sorted(rests)))
        if not depth or kind <= 5:
            return (
                self.expression(names, int(self.often(0.3)))
                if self.often(0.9)
                else self.condition(names, 0)
            )
        if kind <= 7:
            parts = (Literal(A), self.product(names, set(), 0))
            if isinstance(parts[1], Literal):
                return Literal(tuple(part.value for part in parts))
            return TupleOf(parts)
        parts = tuple(self.product(names, rests, depth - 1) for _ in range(2))
        if all(isinstance(part, Literal) for part in parts):
            return Literal(Solution(part.value for part in parts))
        return SolutionOf(parts)

    def rule(self, taken_names=frozenset(), inner=True):
        names, rests = set(), set()
        while True:
            takes = [self.pattern(names, rests) for _ in range(self.random.choice([1, 2, 2, 3]))]
            if not (names | rests) & taken_names:
                break
            names.clear()
            rests.clear()
        gives = [self.product(names, rests) for _ in range(self.random.choice([0, 1, 1, 2]))]
        if inner and self.often(0.15) and len(names) < 3:
            made = self.rule(names | rests, inner=False)
            gives.append(RuleOf(made) if names or rests else Literal(made))
        condition = self.condition(names) if self.often(0.3) else None
        return Rule(tuple(takes), tuple(gives), condition, self.often(0.5))

    def program(self) -> Program:
        named = {}
        molecules = self.molecules(6)
        for number in range(self.random.randint(0, 2)):
            made, name = self.rule(), f"rule{number}"
            rule = Rule(made.takes, made.gives, made.condition, made.once, name)
            named[name] = rule
            molecules.append(Solution([rule, *self.molecules(2)]) if self.often(0.3) else rule)
        ambient = (self.rule(),) if not named or self.often(0.3) else ()
        return Program(named, ambient, Solution(molecules))
