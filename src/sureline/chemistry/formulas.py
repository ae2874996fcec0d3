"""Formulas: one expression over names that somebody else gives values to, such as
`memory >= 8GB and held("genome.fa") > 0`.

They are what stands in a rule's condition, and besides functions of texts, and units after numbers.
A formula is turned into functions once; no text of it is ever run as Python.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Mapping, Sequence

from sureline.chemistry.arithmetic import compile_expression
from sureline.chemistry.lexer import Token, Tokens
from sureline.chemistry.molecules import Expression, Literal, Molecule, Name
from sureline.chemistry.parser import MoleculeParser, NameScope

UNITS: Mapping[str, float] = {
    "kB": 10**3,
    "MB": 10**6,
    "GB": 10**9,
    "TB": 10**12,
    "s": 1,
    "min": 60,
    "h": 3600,
}
Call = tuple[str, tuple[str, ...]]
"""A function's name, and the texts that it is given."""


class Formula:
    """Raises ChemistryError for a text that makes no sense, with its place."""

    def __init__(self, text: str, names: Sequence[str], functions: Collection[str] = ()) -> None:
        parser = _FormulaParser(text, names, functions)
        self.text = text
        expression = parser.formula()
        self.calls: tuple[Call, ...] = tuple(parser.calls)
        slots = {name: slot for slot, name in enumerate([*names, *map(_called, self.calls)])}
        self._value = compile_expression(expression, slots)

    def value(self, values: Sequence[Molecule], call: Callable[[Call], Molecule]) -> Molecule:
        """What it comes to if the names have these values, in their order. Raises NoSenseError."""
        return self._value([*values, *map(call, self.calls)])


def _called(call: Call) -> str:
    """A call stands in the expression as a name that nobody can write."""
    function, texts = call
    return f"{function}({', '.join(map(repr, texts))})"


class _FormulaParser(MoleculeParser):
    def __init__(self, text: str, names: Sequence[str], functions: Collection[str]) -> None:
        super().__init__(Tokens(text), {})
        self._functions = functions
        self.calls: dict[Call, None] = {}
        self._scope = NameScope(None)
        self._scope.own = dict.fromkeys(names, "one")

    def formula(self) -> Expression:
        found = self._condition()
        if self._token.kind != "end":
            self._refuse("nothing more should stand", "write one condition, or one sum")
        return found

    def _name(self) -> Expression:
        token = self._token
        if token.text not in self._functions:
            return super()._name()
        self._next()
        self._expect("(", f'write {token.text}("NAME")')
        texts: list[str] = []
        while not self._take(")"):
            if texts:
                self._expect(",", "write commas between the names, and ) at the end")
            if self._token.kind not in ("string", "name"):
                self._refuse("a text should stand", f'write {token.text}("NAME")')
            word = self._next()
            texts.append(self._string(word) if word.kind == "string" else word.text)
        call = (token.text, tuple(texts))
        self.calls[call] = None
        return Name(_called(call), place=self._source.place(token.at))

    def _literal(self) -> Molecule:
        number, after = self._token, self._tokens[min(self._at + 1, len(self._tokens) - 1)]
        beside = number.at + len(number.text) == after.at
        if number.kind == "number" and beside and after.text in UNITS:
            self._at += 2
            return self._number(number) * UNITS[after.text]
        if number.kind not in ("number", "string", "true", "false") and not self._is("-"):
            self._refuse("a value should stand", 'write a name, a number or a "text"')
        return super()._literal()

    def _number(self, token: Token) -> int | float:
        number = super()._number(token)
        if number > sys.float_info.max:
            raise self._mistake("this number is too large", "write a smaller one", token)
        return number

    # Numbers, texts and truth only: nothing is put together here.

    def _tuple(self) -> Expression:
        return self._sum()

    def _primary(self) -> Expression:
        if self._token.kind == "name":
            return self._name()
        if self._take("("):
            return self._nested(self._in_parentheses)
        return Literal(self._literal())

    def _in_parentheses(self) -> Expression:
        found = self._condition()
        self._expect(")", "close the parenthesis")
        return found
