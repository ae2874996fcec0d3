"""The reactor: what programs come to, in what steps, and where they stop."""

from __future__ import annotations

from random import Random

import pytest

from sureline.chemistry import (
    Bounds,
    ChemistryError,
    Reactor,
    Solution,
    parse_molecules,
    parse_program,
    show,
)


def reactor(text, seed=1, **options):
    program = parse_program(text)
    return Reactor(program.solution.molecules, rules=program.rules, random=Random(seed), **options)


def result(text, seed=1):
    at_work = reactor(text, seed)
    at_work.run()
    assert at_work.inert and not at_work.stopped
    return show(at_work.solution())


MAX = "replace x::int, y::int by x if x >= y"


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize(
    ("program", "solution"),
    [
        (f"let max = {MAX} in <2, 4, 5, 7, 9, max>", "<9, max>"),
        (f"{MAX} in <2, 4, 5, 7, 9>", "<9>"),
        (f"{MAX} in <2, 4, 2.5, true, X, 4>", "<2.5, 4, X, true>"),
        ("replace ⟨x, ?w⟩ by x if x ≥ 2 in ⟨⟨3, 0⟩, <1>⟩", "<3, <1>>"),
        # rules are molecules: one-shot, taken, made, and made with what is bound
        ("let one = replace-one x::int by x + 1 in <1, one>", "<2>"),
        (f"let max = {MAX} in replace-one max, GO by nothing in <1, 2, max, GO, max>", None),
        (f"let max = {MAX} let go = replace-one GO by max in <1, 2, go, GO>", "<2, max>"),
        ("let cut = replace-one N:n by (replace x::int by nothing if x > n) in <N:5, 1, 9, cut>",
         "<1, (replace x::int by nothing if x > 5)>"),
        ("let cut = replace-one <n, ?w> by (replace n by ?w) in <<1, 7, 8>, 1, 2, cut>", None),
        # solutions within solutions come to rest before they are touched
        (f"let max = {MAX} in replace <max, ?w> by ?w in <<2, 3, 9, max>, <max, 4, 1>>", "<4, 9>"),
        (f"let max = {MAX} in replace A:<x, max> by x in <A:<2, 3, max>, B:<5, 6, max>>",
         "<3, B:<6, max>>"),
        # a name twice in a pattern, wildcards, exact and open solutions, literals
        ("replace T:i:a, DONE:i by a in <T:1:X, T:2:Y, DONE:2, DONE:3>", "<Y, DONE:3, T:1:X>"),
        ("replace x, x by x in <1, 1, true, A, A, \"A\">", '<1, "A", A, true>'),
        ("replace <_, _> by TWO in <<1>, <1, 2>, <1, 2, 3>>", "<TWO, <1, 2, 3>, <1>>"),
        ("replace 3, \"s\", L:(A:b) by b in <3, \"s\", \"t\", L:(A:7), L:(B:7)>",
         '<7, "t", L:(B:7)>'),
        # arithmetic
        ("replace x::int by A:(x / 2), A:(x % 4), A:(-x), A:(2 + 3 * x) in <6>",
         "<A:-6, A:2, A:20, A:3>"),
        ("replace x::int by A:(x / 4), A:(x < 7 and not x == 5) in <6>", "<A:1.5, A:true>"),
        # a condition that makes no sense does not hold
        ("replace x, y by nothing if x >= y in <1, \"a\", A, <2>>", '<1, "a", A, <2>>'),
        ("replace x::int by nothing if 1 % x == 0 in <0, 5, 1>", "<0, 5>"),
    ],
)  # fmt: skip
def test_programs(program, solution, seed):
    found = result(program, seed)
    if solution is not None:
        assert found == solution
    elif "GO" in program:
        assert found in ("<2, max>", "<1, 2, max>"), found
    else:
        assert found in (
            "<2, 7, 8, (replace 1 by 7, 8)>",
            "<1, 2, (replace 7 by 1, 8)>",
            "<1, 2, (replace 8 by 1, 7)>",
        ), found


def test_reactions_of_one_step_happen_at_once():
    steps = list(reactor(f"{MAX} in <2, 4, 5, 7, 9>").steps())
    assert [len(step) for step in steps] == [2, 1, 1]
    for step in steps:
        for reaction in step:
            assert reaction.taken[0] >= reaction.taken[1] == min(reaction.taken)
            assert reaction.made == (max(reaction.taken),)


def test_what_is_added_to_an_inert_solution_wakes_it():
    at_work = reactor(f"let max = {MAX} in <2, 4, max>")
    at_work.run()
    at_work.add(parse_molecules("7, 3, A:1", {}))
    assert not at_work.inert
    at_work.run()
    assert show(at_work.solution()) == "<7, A:1, max>"
    at_work.add(["nobody takes this"])
    assert at_work.inert


def test_a_rule_that_arrives_late_takes_what_is_there():
    program = parse_program(f"let max = {MAX} in <1, 5, 3>")
    at_work = Reactor(program.solution.molecules, random=Random(1))
    at_work.run()
    at_work.add([program.names["max"]])
    at_work.run()
    assert show(at_work.solution()) == "<5, max>"


def test_the_maximum_of_a_hundred_thousand():
    """A matcher that tries pair after pair would need days."""
    at_work = reactor(f"{MAX} in <>")
    at_work.add(range(100_000))
    at_work.run()
    assert at_work.solution() == Solution([99_999]) and at_work.reactions == 99_999


def test_molecules_that_share_a_value_find_each_other():
    """Of 4,000 tasks and as many answers, each pair is found without a look at the others."""
    bounds = Bounds()
    at_work = reactor("replace TASK:id, DONE:id by nothing in <>", bounds=bounds)
    tries = bounds.tries
    at_work.add(parse_molecules(", ".join(f"TASK:{n}, DONE:{n}" for n in range(4000)), {}))
    at_work.run()
    assert not len(at_work.solution())
    assert tries - bounds.tries < 3 * 4000


@pytest.mark.parametrize(
    ("program", "bounds", "why"),
    [
        ("replace x::int by x + 1 in <1>", Bounds(reactions=50), "reactions"),
        ("replace x::int by x, x in <1>", Bounds(molecules=50), "molecules"),
        ("replace x::int, y::int, z::int by 1 if x + y + z < 0 in <1, 2, 3, 4, 5, 6, 7, 8>",
         Bounds(tries=50), "tried"),
        ("let on = replace x::int by x + 1 in <<1, on>>", Bounds(reactions=50), "reactions"),
        ("replace A:x by A:(A:x) in <A:1>", Bounds(), "too deep"),
        ("replace <x> by <<x>> in <<1>>", Bounds(), "too deep"),
        ("replace N:x by N:(replace y by x) in <N:1>", Bounds(), "too deep"),
        ("replace x by x:x in <1>", Bounds(molecules=5000), "too large"),
    ],
)  # fmt: skip
def test_a_program_without_an_end_stops_at_a_bound(program, bounds, why):
    at_work = reactor(program, bounds=bounds)
    for number, _ in enumerate(at_work.steps()):
        assert number < 1000
    assert why in at_work.stopped and not at_work.inert


def test_a_product_without_sense_is_a_mistake_and_loses_nothing():
    at_work = reactor("let half = replace x::int by H:(6 / x) in\n<1, 2, 3, 0, half>")
    with pytest.raises(ChemistryError, match=r"line 1, column 35: 6 is divided by 0.*rule half"):
        at_work.run()
    assert len(at_work.solution()) == 5


@pytest.mark.parametrize("text", ["x * x", "x * 1.0 * x", "x + W:1"])
def test_numbers_have_a_bound(text):
    with pytest.raises(ChemistryError, match=r"too large|only numbers"):
        reactor(f"replace x::int by {text} in <{'9' * 900}>").run()


@pytest.mark.parametrize("seed", range(4))
def test_what_was_tried_in_one_place_of_a_rule_is_free_for_another(seed):
    at_work = reactor("replace G, H, T:1:x, T:2:y by DONE:x:y in <>", seed)
    for molecule in ("G", "T:2:8", "T:1:7", "H"):
        at_work.add(parse_molecules(molecule, {}))
        at_work.run()
    assert show(at_work.solution()) == "<DONE:7:8>"
