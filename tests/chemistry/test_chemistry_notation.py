"""The notation: what is wrong with a text, and where."""

from __future__ import annotations

from itertools import pairwise

import pytest

from sureline.chemistry import (
    ChemistryError,
    Rule,
    parse_molecules,
    parse_program,
    parse_rules,
    show,
    show_program,
)


def doubled(what, times):
    """Names that stand for ever larger molecules, each made of the one before."""
    names = ["a", *(f"b{number}" for number in range(times)), "z"]
    return "".join(f"let {new} = {what.replace('a', old)} in " for old, new in pairwise(names))


@pytest.mark.parametrize(
    ("text", "place", "what"),
    [
        ("replace x::int by y in <1>", (1, 19), "'y' is not bound"),
        ("<1,\n  2, x>", (2, 6), "'x' is not bound"),
        ("replace x::real by x in <1>", (1, 12), "'real' is no sort"),
        ("replace x by x in <1", (1, 21), "'>' should stand where the text ends"),
        ("replace x by x <1>", (1, 16), "'in' should stand"),
        ("let A = 1 in <>", (1, 5), "'A' is no name"),
        ("let a = 1 in let a = 2 in <>", (1, 18), "'a' is defined twice"),
        ("let a = 1 in replace a::int by 2 in <>", (1, 22), "'a' has a value already"),
        ("replace <?w>, <?w> by 2 in <>", (1, 17), "bound twice"),
        ("replace <?v, ?w> by 2 in <>", (1, 15), "no name for the rest"),
        ("replace x by ?w in <>", (1, 15), "'?w' is not bound"),
        ("replace x if x > 1 in <>", (1, 11), "'by' should stand where 'if' stands"),
        ("replace x by x if x > in <>", (1, 23), "a molecule should stand where 'in' stands"),
        ("<1> <2>", (1, 5), "nothing more should stand"),
        ('<"one>', (1, 2), "a string begins here"),
        ('<"\\x">', (1, 2), "no meaning"),
        ("<1 & 2>", (1, 4), "'&' has no meaning"),
        ("<1e999>", (1, 2), "too large"),
        ("<1 / 0>", (1, 4), "1 is divided by 0"),
        ("<" * 100 + ">" * 100, (1, 62), "too many brackets"),
        ("replace " + "x, " * 70 + "y by y in <>", (1, 201), "too many parts"),
        ("", (1, 1), "'<' should stand where the text ends"),
        ("<" + "9" * 2000 + ">", (1, 2), "too long"),
        ("<" + "1+" * 3000 + "1>", (1, 203), "too many signs"),
        ("replace x by 1 if " + "x < 1 and " * 60 + "x > 1 in <>", (1, 515), "too many signs"),
        ("let a = <1> in " + doubled("<a>", 70) + "<z>", (1, 1112), "too large"),
        ("let a = 1:1 in " + doubled("a:a", 30) + "<z>", (1, 357), "too large"),
    ],
)
def test_mistakes_say_where(text, place, what):
    with pytest.raises(ChemistryError) as found:
        parse_program(text)
    assert found.value.place == place
    assert what in found.value.what
    assert found.value.hint


@pytest.mark.parametrize(
    "text",
    [
        "let max = replace x::int, y::int by x if x >= y in\n<2, 9, max>\n",
        "replace-one A:(B:x):<y, ?w>, _ by <x, ?w>, (x:y):x if not (x == 1 or y == 2) and 1 < 2"
        " in\n<>\n",
        "let f = replace N:n by (replace n, m::int by m - n - (1 - n) / 2 if m > n) in\n<f>\n",
        "let n = 5 in\nreplace x by x - -1, --x, -(3) in\n<>\n",
        'let t = X:(A:"a\\"b":1.5):<> in\n<-3, 1e+20, true>\n',
        "replace x by (x > 1), 2 * (x + 3), A:x % 2 if (x == 1) == true in\n<>\n",
    ],
)  # fmt: skip
def test_a_text_is_printed_as_it_is_written(text):
    assert show_program(parse_program(text)) == text


def test_comments_and_the_paper_s_letters_are_understood():
    program = parse_program("// the largest\nreplace x, y by x if x ≥ y // of two\nin ⟨1, 2⟩")
    assert show_program(program) == "replace x, y by x if x >= y in\n<1, 2>\n"


def test_molecules_alone_use_a_program_s_names():
    program = parse_program("let one = replace x by nothing in <>")
    assert parse_molecules('1, LEVEL:1:READY:<"t">, one', program.names) == [
        1,
        parse_molecules('LEVEL:1:READY:<"t">', {})[0],
        program.names["one"],
    ]
    assert parse_molecules(" ", {}) == []


def test_rules_alone():
    rules = parse_rules("let a = replace-one x by nothing\nlet b = replace a, y by y // end")
    assert list(rules) == ["a", "b"] and isinstance(rules["b"], Rule)
    assert show(rules["a"]) == "a"
    with pytest.raises(ChemistryError, match="line 1, column 33"):
        parse_rules("let a = replace x by nothing in <1>")


def test_what_is_as_deep_as_may_be_is_shown_and_read_back():
    """Once for each molecule: twice at each depth would never end."""
    text = "<" * 60 + ">" * 60
    assert show(parse_program(text).solution) == text
