"""Formulas: what they come to, and what is wrong with them."""

from __future__ import annotations

import pytest

from sureline.chemistry import ChemistryError
from sureline.chemistry.formulas import Formula


def value(text, call=lambda call: 7):
    return Formula(text, ("memory", "site"), ("held",)).value([8e9, "north"], call)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1 + 2 * 3", 7),
        ("(1 + 2) * 3", 9),
        ("memory >= 8GB", True),
        ("memory / 2GB - 1.5", 2.5),
        ("2h == 7200s and 3min == 180", True),
        ('site == "north" or memory < 0', True),
        ("not site == 1", True),
        ('held("a", "b") + held()', 14),
        ("-memory < 0", True),
    ],
)
def test_values(text, expected):
    assert value(text) == expected


def test_functions_hear_the_names_that_they_are_given():
    calls = []
    value('held("a b", c) > held("d")', lambda call: calls.append(call) or 1)
    assert calls == [("held", ("a b", "c")), ("held", ("d",))]


@pytest.mark.parametrize(
    ("text", "said", "column"),
    [
        ("memry > 1", "'memry' is not bound to anything", 1),
        ("memory >", "a value should stand where the text ends", 9),
        ("memory > 3 4", "nothing more should stand where '4' stands", 12),
        ("held(3)", "a text should stand where '3' stands", 6),
        ("held", "'(' should stand where the text ends", 5),
        ("1 + <2>", "a value should stand where '<' stands", 5),
        ("A + 1", "a value should stand where 'A' stands", 1),
        ("1:2", "nothing more should stand where ':' stands", 2),
        ('site == "n', "a string begins here", 9),
        ("replace x by y", "a value should stand where 'replace' stands", 1),
        ("__import__", "'__import__' is not bound to anything", 1),
        ("(" * 100, "too many brackets within brackets", 62),
    ],
)
def test_mistakes_have_their_place(text, said, column):
    with pytest.raises(ChemistryError) as caught:
        value(text)
    assert said in caught.value.what
    assert caught.value.place.column == column
