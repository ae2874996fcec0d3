"""From text to tokens, each with its place. `//` begins a comment."""

from __future__ import annotations

import re
from bisect import bisect_left
from functools import cached_property
from typing import NamedTuple

from sureline.chemistry.mistakes import ChemistryError, TextPlace

NUMBER_CHARS_MAX = 1000

KEYWORDS = frozenset(("let", "in", "replace", "replace-one", "by", "if", "nothing"))
KEYWORDS |= {"and", "or", "not", "true", "false"}
_SAME = {"⟨": "<", "⟩": ">", "≥": ">=", "≤": "<=", "≠": "!="}
"""As the paper prints them."""

_TOKEN = re.compile(
    r"""(?P<space>\s+|//[^\n]*)
      | (?P<number>\d+(?:\.\d+)?(?:[eE][+-]?\d+)?)
      | (?P<word>replace-one\b|[^\W\d]\w*)
      | (?P<string>"(?:[^"\\\n]|\\.)*")
      | (?P<sign>::|>=|<=|==|!=|[⟨⟩≥≤≠<>:,()+*/%=?-])
      | (?P<other>.)""",
    re.VERBOSE,
)


class Token(NamedTuple):
    kind: str
    """number, string, sign, name, symbol, a keyword itself, or end."""
    text: str
    at: int
    """Where in the text."""


class Tokens:
    """The tokens of a text; where they stand is worked out only for a mistake."""

    def __init__(self, text: str) -> None:
        self._text = text
        self.tokens: list[Token] = []
        add = self.tokens.append
        for match in _TOKEN.finditer(text):
            kind = match.lastgroup
            if kind == "space":
                continue
            if kind == "number" or kind == "string":
                add(Token(kind, match[0], match.start()))
            elif kind == "sign":
                add(Token("sign", _SAME.get(match[0], match[0]), match.start()))
            elif kind == "word":
                add(Token(_kind_of(match[0]), match[0], match.start()))
            else:
                self._refuse(match[0], match.start())
        add(Token("end", "", len(text.rstrip())))

    @cached_property
    def _line_ends(self) -> list[int]:
        return [match.start() for match in re.finditer("\n", self._text)]

    def place(self, at: int) -> TextPlace:
        line = bisect_left(self._line_ends, at)
        return TextPlace(line + 1, at - (self._line_ends[line - 1] if line else -1))

    def _refuse(self, text: str, at: int) -> None:
        if text == '"':
            what, hint = "a string begins here and does not end in its line", 'end it with "'
        else:
            what, hint = f"{text!r} has no meaning here", "remove it, or put text in double quotes"
        raise ChemistryError(what, hint, self.place(at))


def _kind_of(word: str) -> str:
    if word in KEYWORDS:
        return word
    return "symbol" if word[0].isupper() else "name"
