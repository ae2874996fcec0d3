"""From text to programs, rules and molecules.

    program   { let NAME = (rule | molecule) [in] }  [rule in]  <molecules>
    rule      (replace | replace-one) patterns by (expressions | nothing) [if condition]
    pattern   a tuple (`:`) of: literal, SYMBOL, name, name::sort, <patterns, ?rest>, (...)
    condition or, and, not, comparisons, and below them what stands in a solution:
    molecule  a tuple (`:`) of sums and products of: literal, SYMBOL, name, <...>, (...)

A name that is known already, by `let` or from a rule around this one, stands for its value, also in
a pattern; any other name in a pattern is a variable.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple, TypeVar

from sureline.chemistry.arithmetic import NoSenseError, value_of
from sureline.chemistry.lexer import NUMBER_CHARS_MAX, Token, Tokens
from sureline.chemistry.mistakes import ChemistryError, TextPlace
from sureline.chemistry.molecules import (
    DEPTH_MAX,
    NAMELESS,
    Expression,
    Literal,
    Molecule,
    Name,
    Operation,
    Pattern,
    Rest,
    Rule,
    RuleOf,
    Solution,
    SolutionOf,
    Symbol,
    TupleOf,
    size_of,
)

PATTERN_PARTS_MAX = 64
"""Of one rule: each costs the search for its molecules a level of recursion, or two."""
SORTS = ("int", "float", "number", "string", "bool", "symbol", "tuple", "solution", "rule")
OPERATIONS_MAX = 100
"""Of one rule or molecule: what is in a row is read as one within the other."""
SIZE_MAX = 1_000_000
"""Molecules in one molecule; names stand for others, so a short text may mean very many."""
_COMPARISONS = ("==", "!=", "<", "<=", ">", ">=")

T = TypeVar("T")


class Program(NamedTuple):
    names: Mapping[str, Molecule]
    """What `let` says, in order."""
    rules: tuple[Rule, ...]
    """Those that act on the solution without being in it."""
    solution: Solution


def parse_program(text: str) -> Program:
    """Raises ChemistryError."""
    return _guarded(text, lambda parser: parser.program(with_solution=True))


def parse_rules(text: str) -> dict[str, Rule]:
    """The named rules of a text without a solution. Raises ChemistryError."""
    names = _guarded(text, lambda parser: parser.program(with_solution=False)).names
    return {name: value for name, value in names.items() if isinstance(value, Rule)}


def parse_molecules(text: str, names: Mapping[str, Molecule]) -> list[Molecule]:
    """Molecules with commas between them. Raises ChemistryError."""
    return _guarded(text, lambda parser: parser.molecules(), names)


def parse_placed(text: str) -> list[tuple[TextPlace, Molecule]]:
    """The molecules of a solution without rules, and where each stands. Raises ChemistryError."""
    return _guarded(text, lambda parser: parser.placed())


def _guarded(
    text: str, read: Callable[[MoleculeParser], T], names: Mapping[str, Molecule] | None = None
) -> T:
    parser = MoleculeParser(Tokens(text), dict(names or {}))
    try:
        return read(parser)
    except NoSenseError as error:
        raise ChemistryError(error.what, "write another value", error.place) from None


class NameScope:
    """What the variables of a rule, and of the rules around it, are: 'one' or 'rest'."""

    def __init__(self, outer: NameScope | None) -> None:
        self.outer: dict[str, str] = {**outer.outer, **outer.own} if outer is not None else {}
        self.own: dict[str, str] = {}
        self.taking = False
        """Whether its patterns are being read: they share a notation with expressions."""
        self.parts = 0

    def kind(self, name: str) -> str | None:
        return self.own.get(name) or self.outer.get(name)


class MoleculeParser:
    def __init__(self, tokens: Tokens, names: dict[str, Molecule]) -> None:
        self._source = tokens
        self._tokens = tokens.tokens
        self._at = 0
        self._names = names
        self._scope: NameScope | None = None
        self._depth = 0
        self._operations = 0

    # Tokens.

    @property
    def _token(self) -> Token:
        return self._tokens[self._at]

    def _next(self) -> Token:
        token = self._tokens[self._at]
        if token.kind != "end":
            self._at += 1
        return token

    def _is(self, text: str) -> bool:
        token = self._tokens[self._at]
        return token.text == text and token.kind != "string"

    def _take(self, text: str) -> bool:
        if self._is(text):
            self._at += 1
            return True
        return False

    def _expect(self, text: str, hint: str) -> None:
        if not self._take(text):
            self._refuse(f"'{text}' should stand", hint)

    def _refuse(self, wanted: str, hint: str) -> None:
        token = self._token
        before = f"where '{token.text}' stands" if token.kind != "end" else "where the text ends"
        raise self._mistake(f"{wanted} {before}", hint, token)

    def _mistake(self, what: str, hint: str, token: Token) -> ChemistryError:
        return ChemistryError(what, hint, self._source.place(token.at))

    # Programs.

    def program(self, *, with_solution: bool) -> Program:
        while self._is("let"):
            self._let()
        rules: list[Rule] = []
        while self._token.kind in ("replace", "replace-one"):
            rules.append(self._rule())
            self._expect("in", "write 'in' between a rule and the solution it acts on")
        molecules: Iterable[Molecule] = ()
        if with_solution:
            self._expect("<", "a program ends with its solution, such as <1, 2, 3>")
            molecules = self._ground(self._nested(self._until_closed))
        if self._token.kind != "end":
            hint = "a program ends with its solution" if with_solution else "write only `let`"
            self._refuse("nothing more should stand", hint)
        return Program(self._names, tuple(rules), Solution(molecules))

    def _let(self) -> None:
        self._next()
        token = self._next()
        if token.kind != "name":
            hint = "names begin with a small letter, as in: let max = replace ..."
            raise self._mistake(f"'{token.text}' is no name for a rule", hint, token)
        if token.text in self._names:
            hint = "give one of them another name"
            raise self._mistake(f"'{token.text}' is defined twice", hint, token)
        self._expect("=", "write: let NAME = replace ... by ... in")
        value: Molecule
        if self._token.kind in ("replace", "replace-one"):
            value = self._rule(token.text)
        else:
            (value,) = self._ground([self._tuple()])
        self._names[token.text] = value
        if not self._take("in") and self._token.kind not in ("let", "end"):
            self._refuse("'in' should stand", "write: let NAME = replace ... by ... in <...>")

    def molecules(self) -> list[Molecule]:
        if self._token.kind == "end":
            return []
        found = self._ground(self._several(self._element))
        if self._token.kind != "end":
            self._refuse("a comma should stand", "write molecules with commas between them")
        return found

    def placed(self) -> list[tuple[TextPlace, Molecule]]:
        found: list[tuple[TextPlace, Molecule]] = []
        self._expect("<", "write molecules between < and >")
        while not self._take(">"):
            if found:
                self._expect(",", "write commas between molecules, and > at the end")
            place = self._source.place(self._token.at)
            found.append((place, self._ground([self._element()])[0]))
        if self._token.kind != "end":
            self._refuse("nothing more should stand", "write all molecules between < and >")
        return found

    def _ground(self, parts: Iterable[Expression]) -> list[Molecule]:
        found = [part.value if type(part) is Literal else value_of(part) for part in parts]
        for molecule in found:
            if type(molecule) is not int and size_of(molecule, SIZE_MAX) is None:
                hint = f"at most {SIZE_MAX:,} within it, {DEPTH_MAX} deep, are understood"
                raise self._mistake("a molecule up to here is too large", hint, self._token)
        return found

    # Rules.

    def _rule(self, name: str = "") -> Rule:
        once = self._next().kind == "replace-one"
        self._operations = 0
        outer, self._scope = self._scope, NameScope(self._scope)
        try:
            self._scope.taking = True
            takes = self._several(self._tuple)
            self._scope.taking = False
            self._expect("by", "write: replace PATTERNS by MOLECULES if CONDITION")
            gives = [] if self._take("nothing") else self._several(self._element)
            condition = self._condition() if self._take("if") else None
        finally:
            self._scope = outer
        return Rule(tuple(takes), tuple(gives), condition, once, name)

    def _several(self, one: Callable[[], T]) -> list[T]:
        found = [one()]
        while self._take(","):
            found.append(one())
        return found

    def _nested(self, read: Callable[[], T]) -> T:
        self._depth += 1
        if self._depth > DEPTH_MAX:
            hint = f"at most {DEPTH_MAX} are understood"
            raise self._mistake("too many brackets within brackets", hint, self._token)
        found = read()
        self._depth -= 1
        return found

    # Patterns: what is bound in them.

    def _pattern_name(self, scope: NameScope) -> Pattern:
        token = self._next()
        name = token.text
        if self._take("::"):
            sort = self._next()
            if sort.text not in SORTS:
                hint = "known are " + ", ".join(SORTS)
                raise self._mistake(f"'{sort.text}' is no sort of molecule", hint, sort)
            if name != NAMELESS:
                self._bind(name, "one", token, scope)
            return Name(name, sort.text)
        if name in self._names:
            return Literal(self._names[name])
        if name != NAMELESS and scope.outer.get(name) != "one":
            self._bind(name, "one", token, scope)
        return Name(name)

    def _bind(self, name: str, kind: str, token: Token, scope: NameScope) -> None:
        if name in self._names or name in scope.outer:
            hint = "give the variable another name"
            raise self._mistake(f"'{name}' has a value already", hint, token)
        if "rest" in (kind, scope.own.get(name)) and name in scope.own:
            hint = "give one of them another name"
            raise self._mistake(f"'{name}' is bound twice, to a rest and else", hint, token)
        scope.own[name] = kind

    def _rest(self, before: list[Expression], scope: NameScope) -> Rest:
        token = self._next()
        if token.kind != "name" or any(isinstance(part, Rest) for part in before):
            hint = "one such as ?rest holds all other molecules"
            raise self._mistake("this is no name for the rest of a solution", hint, token)
        if token.text != NAMELESS:
            self._bind(token.text, "rest", token, scope)
        return Rest(token.text)

    # Expressions.

    def _element(self) -> Expression:
        token = self._token
        if self._scope is None:
            self._operations = 0
        if token.kind == "number" and self._tokens[self._at + 1].text in (",", ">"):
            return Literal(self._literal())  # by far the most frequent in large solutions
        if self._take("?"):
            name = self._next()
            if self._scope is None or self._scope.kind(name.text) != "rest":
                hint = "bind it in a pattern, such as <x, ?rest>"
                raise self._mistake(f"'?{name.text}' is not bound", hint, name)
            return Rest(name.text)
        if (
            token.kind == "name"
            and self._scope is not None
            and self._scope.kind(token.text) == "rest"
        ):
            self._next()
            return Rest(token.text)
        return self._tuple()

    def _until_closed(self) -> list[Expression]:
        """The rest of `<...>`."""
        found: list[Expression] = []
        while not self._take(">"):
            if found and not self._take(","):
                hint = "write commas between molecules, and > at the end"
                self._refuse("'>' should stand", hint)
            scope = self._scope
            if scope is not None and scope.taking:
                found.append(self._rest(found, scope) if self._take("?") else self._tuple())
            else:
                found.append(self._element())
        return found

    def _condition(self) -> Expression:
        return self._chain(lambda: self._chain(self._not, ("and",)), ("or",))

    def _chain(self, operand: Callable[[], Expression], signs: tuple[str, ...]) -> Expression:
        left = operand()
        while (token := self._token).text in signs and token.kind in ("sign", token.text):
            self._at += 1
            left = self._operation(token, left, operand())
        return left

    def _operation(self, sign: Token, *operands: Expression) -> Expression:
        self._operations += 1
        if self._operations > OPERATIONS_MAX:
            hint = f"at most {OPERATIONS_MAX} in one rule or molecule are understood"
            raise self._mistake("there are too many signs", hint, sign)
        return Operation(sign.text, operands, self._source.place(sign.at))

    def _not(self) -> Expression:
        token = self._token
        if self._take("not"):
            return self._operation(token, self._nested(self._not))
        left = self._tuple()
        sign = self._token
        if sign.kind == "sign" and sign.text in _COMPARISONS:
            self._at += 1
            return self._operation(sign, left, self._tuple())
        return left

    def _tuple(self) -> Expression:
        taking = self._scope is not None and self._scope.taking
        part = self._primary if taking else self._sum
        parts = [part()]
        while self._take(":"):
            parts.append(part())
        if len(parts) == 1:
            return parts[0]
        if not taking and all(isinstance(part, Literal) for part in parts):
            return Literal(tuple(self._ground(parts)))
        return TupleOf(tuple(parts))

    def _sum(self) -> Expression:
        return self._chain(lambda: self._chain(self._unary, ("*", "/", "%")), ("+", "-"))

    def _unary(self) -> Expression:
        token = self._token
        if self._is("-") and self._tokens[self._at + 1].kind != "number":
            self._next()
            return self._operation(token, self._nested(self._unary))
        return self._primary()

    def _primary(self) -> Expression:
        scope, token = self._scope, self._token
        taking = scope is not None and scope.taking
        if scope is not None and taking:
            scope.parts += 1
            if scope.parts > PATTERN_PARTS_MAX:
                hint = f"at most {PATTERN_PARTS_MAX} are understood; use ?rest or several rules"
                raise self._mistake("the rule's patterns have too many parts", hint, token)
            if token.kind == "name":
                return self._pattern_name(scope)
        if token.kind == "name":
            return self._name()
        if self._take("<"):
            parts = self._nested(self._until_closed)
            if not taking and all(isinstance(part, Literal) for part in parts):
                return Literal(Solution(self._ground(parts)))
            return SolutionOf(tuple(parts))
        if self._take("("):
            return self._nested(self._in_parentheses)
        return Literal(self._literal())

    def _in_parentheses(self) -> Expression:
        scope = self._scope
        taking = scope is not None and scope.taking
        found: Expression
        if self._token.kind in ("replace", "replace-one"):
            if taking:
                self._scope = None  # a rule that is taken is what it is
            rule, self._scope = self._rule(), scope
            inner = scope is not None and not taking and bool(scope.own or scope.outer)
            found = RuleOf(rule) if inner else Literal(rule)
        else:
            found = self._tuple() if taking else self._condition()
        self._expect(")", "close the parenthesis")
        return found

    def _name(self) -> Expression:
        token = self._next()
        if self._scope is not None and self._scope.kind(token.text) == "one":
            return Name(token.text, place=self._source.place(token.at))
        if token.text in self._names:
            return Literal(self._names[token.text])
        known = [*self._names]
        if self._scope is not None:
            known += [*self._scope.own, *self._scope.outer]
        hint = f"known here are {', '.join(known)}" if known else "nothing is known here by name"
        if self._scope is None:
            hint += "; symbols begin with a capital letter, strings with a quote"
        raise self._mistake(f"'{token.text}' is not bound to anything", hint, token)

    def _literal(self) -> Molecule:
        minus = self._is("-") and self._tokens[self._at + 1].kind == "number"
        if minus:
            self._next()
        token = self._next()
        if token.kind == "number":
            return -self._number(token) if minus else self._number(token)
        if token.kind == "string":
            return self._string(token)
        if token.kind == "symbol":
            return Symbol(token.text)
        if token.kind in ("true", "false"):
            return token.kind == "true"
        self._at -= token.kind != "end"
        self._refuse("a molecule should stand", 'write a number, a "string", a SYMBOL or <...>')
        raise AssertionError

    def _number(self, token: Token) -> int | float:
        if len(token.text) > NUMBER_CHARS_MAX:
            raise self._mistake("this number is too long", "write a shorter one", token)
        if token.text.isdecimal():
            return int(token.text)
        value = float(token.text)
        if math.isinf(value):
            raise self._mistake(f"{token.text} is too large", "write a smaller number", token)
        return value

    def _string(self, token: Token) -> str:
        try:
            value = json.loads(token.text, strict=False)
            assert isinstance(value, str)
            value.encode()
        except (ValueError, UnicodeEncodeError):
            hint = 'write \\" \\\\ \\n \\t or \\u and four digits after a backslash'
            raise self._mistake("a character in this string has no meaning", hint, token) from None
        return value
