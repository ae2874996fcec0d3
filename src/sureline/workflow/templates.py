"""Templates: text with `{{name}}` in it, compiled once and filled in for every task of a loop.

What is known when a template is compiled (params) is put in at once; what remains are the loop's
values and the task's name, which come as one tuple. `{{{{` stands for a literal `{{`.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from sureline.workflow.collect import did_you_mean

# a doubled opening; a reference; a brace just before a reference, as in ${{{name}}}; an open one
_TOKEN = re.compile(r"\{\{\{\{|\{\{([^{}\n]*)\}\}|\{(?=\{\{[^{}\n]*\}\})|\{\{")
_LITERAL_HINT = "write {{{{ for a literal {{"
FILLED_CHARS_MAX = 4 << 20
"""Params may use each other, so a few lines could otherwise ask for any length."""


class TemplateError(ValueError):
    def __init__(self, what: str, hint: str) -> None:
        self.what, self.hint = what, hint
        super().__init__(f"{what}; {hint}")


class Scope:
    """The names that a template may use: fixed values, and places in the tuple that comes later."""

    def __init__(self, fixed: Mapping[str, str], places: Sequence[str] = ()) -> None:
        self.fixed = fixed
        self.places = {name: place for place, name in enumerate(places)}
        self.used: set[str] = set()

    def within(self, places: Sequence[str], used: set[str]) -> Scope:
        """The same fixed values with these places; what is used is noted in `used`."""
        scope = Scope(self.fixed, places)
        scope.used = used
        return scope

    def names(self) -> Iterable[str]:
        return [*self.places, *self.fixed]


class Template:
    """`fixed` is the whole text if no loop value stands in it, else None."""

    __slots__ = ("_form", "_pick", "fixed")

    def __init__(self, fixed: str | None, form: str = "", pick: Callable[[Any], Any] = str) -> None:
        self.fixed = fixed
        self._form = form
        self._pick = pick

    def fill(self, values: tuple[str, ...]) -> str:
        if self.fixed is not None:
            return self.fixed
        filled: str = self._form % self._pick(values)
        return filled


def compile_template(text: str, scope: Scope) -> Template:
    """Raises TemplateError for a name that nobody defines."""
    if "{{" not in text:
        return Template(text)
    parts: list[str] = []
    places: list[int] = []
    end = length = 0
    for token in _TOKEN.finditer(text):
        parts.append(text[end : token.start()].replace("%", "%%"))
        end = token.end()
        if token[0] == "{{{{":
            parts.append("{{")
        elif token[0] == "{":
            parts.append("{")
        elif token[1] is None:
            shown = text[token.start() : token.start() + 20]
            raise TemplateError(
                f"'{shown}' is not closed by }}}}", f"write {{{{name}}}}, or {_LITERAL_HINT}"
            )
        else:
            parts.append(_reference(token[1].strip(), scope, places))
            length += len(parts[-1])
            if length > FILLED_CHARS_MAX:
                raise TemplateError(
                    f"with its params put in, it is longer than {FILLED_CHARS_MAX:,} characters",
                    "put long texts into files, and name those",
                )
    parts.append(text[end:].replace("%", "%%"))
    form = "".join(parts)
    if not places:
        return Template(form.replace("%%", "%"))
    return Template(None, form, operator.itemgetter(*places))


def _reference(name: str, scope: Scope, places: list[int]) -> str:
    place = scope.places.get(name)
    if place is not None:
        places.append(place)
        return "%s"
    value = scope.fixed.get(name)
    if value is None:
        hint = did_you_mean(name, scope.names(), f"add it to `params:`, or {_LITERAL_HINT}")
        raise TemplateError(f"'{{{{{name}}}}}' is not defined", hint)
    scope.used.add(name)
    return value.replace("%", "%%")


def escape(text: str) -> str:
    """The template whose text is `text`."""
    return text.replace("{{", "{{{{")
