"""Composition text: small declarative programs that name services and what passes between them.

    // begin program
    A = service1();
    B = service2();
    C = service3(A, B);

Every statement names a result, the service that makes it and the results it is made of. A result
must be there before it is used, so there are no cycles. A statement ends with `;` or with its line;
inside the parentheses it may run over several lines. `//` begins a comment.

The graph has a task per statement, named by the result, of the kind of the service. A composition
does not say how a service is done, so such a graph can be planned and drawn but not run here.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from typing import NamedTuple

from sureline.workflow.check import NAME_LENGTH_MAX, Reading
from sureline.workflow.collect import Collector, did_you_mean
from sureline.workflow.model import Command, Graph, Task

SUFFIXES = (".clam", ".flow")
"""What is always read as composition text; of other files the content decides."""

_LOOKS = re.compile(rb"(?:\xef\xbb\xbf)?\s*(?://|[^\W\d][\w.-]*\s*=[^=])")
_TOKEN = re.compile(
    r"//[^\n]*|\s+|(?P<name>[^\W\d](?:[\w.-]*\w)?)|(?P<other>\d[\w.]*|\"[^\"\n]*\"|.)"
)


def is_composition(file: str, data: bytes) -> bool:
    """Whether the file's suffix or its first statement says that it is composition text."""
    return os.path.splitext(file)[1].lower() in SUFFIXES or _LOOKS.match(data) is not None


def read_composition(data: bytes, *, file: str) -> Reading:
    """The graph of a composition. Raises WorkflowError with all mistakes that are in it."""
    found = Collector(file)
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        found.add("bad text", "this is not UTF-8 text", "save the file as UTF-8", line)
        found.raise_if_any()
        raise
    statements = list(_statements(text, found))
    tasks = _tasks(statements, found)
    if not statements and not found:
        found.add("empty files", "there is no statement", "write one, such as A = service1();")
    found.raise_if_any()
    name = os.path.splitext(os.path.basename(file))[0] if file != "-" else "composition"
    lines = {statement.result: statement.line for statement in statements}
    return Reading(Graph(name, tasks, source=file), lines)


class _Token(NamedTuple):
    text: str
    line: int
    is_name: bool


class _Statement(NamedTuple):
    result: str
    service: str
    uses: tuple[_Token, ...]
    line: int


class _SyntaxError(Exception):
    """`what` is wrong at `token`; `hint` says what would be right."""

    def __init__(self, what: str, hint: str, line: int) -> None:
        super().__init__(what)
        self.what, self.hint, self.line = what, hint, line


def _tokens(text: str) -> list[_Token]:
    found, line = [], 1
    for match in _TOKEN.finditer(text):
        if match.lastgroup:
            found.append(_Token(match[0], line, match.lastgroup == "name"))
        line += match[0].count("\n")
    return found


def _statements(text: str, found: Collector) -> Iterator[_Statement]:
    """The statements that can be read; of the others, what is wrong with them."""
    tokens = _tokens(text)
    at = 0
    while at < len(tokens):
        if tokens[at].text == ";":
            at += 1
            continue
        try:
            statement, at = _statement(tokens, at)
            yield statement
        except _SyntaxError as error:
            found.add("bad statements", error.what, error.hint, error.line)
            at = _after(tokens, at, error.line)


def _after(tokens: list[_Token], at: int, line: int) -> int:
    """Where the next statement may begin, after one that cannot be read."""
    while at < len(tokens) and tokens[at].line <= line:
        at += 1
        if tokens[at - 1].text == ";" and tokens[at - 1].line == line:
            break
    return at


_FORM = "write RESULT = SERVICE(RESULT, ...);"


def _statement(tokens: list[_Token], at: int) -> tuple[_Statement, int]:
    def expect(what: str, *, name: bool = False) -> _Token:
        nonlocal at
        before = tokens[at - 1] if at else tokens[0]
        if at == len(tokens):
            raise _SyntaxError(f"the text ends where {what} should be", _FORM, before.line)
        token = tokens[at]
        if token.is_name != name or (not name and token.text != what):
            raise _SyntaxError(f"'{token.text}' stands where {what} should be", _FORM, token.line)
        at += 1
        return token

    result = expect("the name of a result", name=True)
    if at < len(tokens) and tokens[at].text == "(":
        what = f"nothing takes the result of {result.text}"
        raise _SyntaxError(what, f"name it, as in R = {result.text}(...);", result.line)
    if at < len(tokens) and tokens[at].text == ",":
        what = f"'{result.text}, ...' names several results"
        raise _SyntaxError(what, "a service has one; give others the same one", result.line)
    expect("=")
    service = expect("the name of a service", name=True)
    expect("(")
    uses: list[_Token] = []
    while at < len(tokens) and tokens[at].text != ")":
        if uses:
            expect(",")
        uses.append(expect("the name of a result", name=True))
    closed = expect(")")
    if at < len(tokens) and tokens[at].text != ";" and tokens[at].line == closed.line:
        what = f"'{tokens[at].text}' follows on {result.text} = {service.text}(...)"
        raise _SyntaxError(what, "end the statement with ;", closed.line)
    return _Statement(result.text, service.text, tuple(uses), result.line), at


def _tasks(statements: list[_Statement], found: Collector) -> list[Task]:
    line_of: dict[str, int] = {}
    all_results = [statement.result for statement in statements]
    tasks = []
    for statement in statements:
        for use in statement.uses:
            if use.text not in line_of:
                _complain_of_use(use, statement, all_results, found)
        if statement.result in line_of:
            what = f"{statement.result} is made in line {line_of[statement.result]} already"
            found.add("results made twice", what, "give one another name", statement.line)
            continue
        if len(statement.result) > NAME_LENGTH_MAX:
            what = f"{statement.result[:50]}... is too long a name"
            hint = f"use at most {NAME_LENGTH_MAX} characters"
            found.add("bad names", what, hint, statement.line)
        line_of[statement.result] = statement.line
        uses = tuple(dict.fromkeys(use.text for use in statement.uses))
        told = f"{statement.service}({', '.join(uses)})"
        tasks.append(Task(statement.result, Command(told), after=uses, kind=statement.service))
    return tasks


def _complain_of_use(
    use: _Token, statement: _Statement, all_results: list[str], found: Collector
) -> None:
    if use.text == statement.result:
        what, hint = f"{use.text} is made of itself", "use other results only"
    elif use.text in all_results:
        what, hint = f"{use.text} is used before it is made", "move its statement up"
    else:
        what = f"nothing makes {use.text}, which {statement.service} takes"
        hint = did_you_mean(use.text, all_results, "name a result of a statement above")
    found.add("unknown results", what, hint, use.line)
