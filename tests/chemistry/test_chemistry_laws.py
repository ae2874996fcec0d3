"""Laws of chemical programs, tried on random ones."""

from __future__ import annotations

from collections import Counter
from random import Random

from chemistry_programs import Maker
from chemistry_reference import following, plain, state
from hypothesis import example, given, settings
from hypothesis import strategies as st

from sureline.chemistry import (
    Bounds,
    ChemistryError,
    Reactor,
    Solution,
    parse_molecules,
    parse_program,
    show,
    show_program,
)

STEPS = 4
SMALL = 12
"""Molecules beyond which the reference takes too long."""
SEEDS = st.integers(0, 1 << 40)
"""Of programs: a failing one is named by hypothesis."""
MANY = settings(max_examples=400, deadline=None)


@MANY
@given(SEEDS)
def test_a_molecule_is_read_as_it_is_written(made_from):
    molecule = Maker(made_from).molecule(3)
    (read,) = parse_molecules(show(molecule), {})
    assert plain(read) == plain(molecule)
    assert show(read) == show(molecule)


@MANY
@given(SEEDS)
def test_a_program_is_read_as_it_is_written(made_from):
    program = Maker(made_from).program()
    text = show_program(program)
    read = parse_program(text)
    assert read.names == program.names, text
    assert read.rules == program.rules, text
    assert read.solution == program.solution, text
    assert show_program(read) == text


@MANY
@given(SEEDS, st.integers(0, 3))
@example(2123, 0)  # a rest without a name, within one without a name
@example(1322, 0)  # takes 2.0 where 2 would do, and 2 where an int must be
def test_every_step_is_one_that_the_reference_can_take(made_from, seed):
    """And the engine rests only where the reference finds nothing left to do."""
    program = Maker(made_from).program()
    reactor = Reactor(program.solution.molecules, rules=program.rules, random=Random(seed))
    now, ambient = list(program.solution.molecules), list(program.rules)
    for _ in range(STEPS):
        try:
            done = next(reactor.steps(), [])
        except ChemistryError:
            return  # a product without sense: the reference has no word for it
        if sum(map(size, now)) > SMALL:
            return
        after = reactor.solution().molecules
        reached = by_reactions(now, ambient, done)
        assert state(after) in reached, f"{show_program(program)} does not lead to {after}"
        for reaction in done:
            if reaction.rule.once and reaction.rule in ambient:
                ambient.remove(reaction.rule)
        now = list(after)
        if reactor.inert:
            assert next(following(now, ambient), None) is None, show(Solution(now))
            return


def size(molecule):
    inner = getattr(molecule, "molecules", molecule if isinstance(molecule, tuple) else ())
    return 1 + sum(map(size, inner))


def by_reactions(molecules, ambient, reactions):
    """All states that the reference can reach by such reactions, one after the other. On the way
    2 and 2.0 are told apart: only one of them is an int."""
    now = {"": molecules}
    for reaction in reactions:
        now = {
            repr(sorted(map(repr, after))): after
            for before in now.values()
            for after, rule, taken in following(before, ambient)
            if rule == reaction.rule and state(taken) == state(reaction.taken)
        }
    return {state(after) for after in now.values()}


@MANY
@given(SEEDS, st.integers(0, 3))
@example(612, 0)  # solutions within solutions, thirty deep
def test_capture_is_atomic(made_from, seed):
    """What a step's reactions take was there before it, nothing was taken twice, and what was not
    taken is there afterwards."""
    maker = Maker(made_from)
    molecules, rule = maker.molecules(12), maker.rule(inner=False)
    reactor = Reactor(
        molecules, rules=[rule], random=Random(seed), bounds=Bounds(reactions=30, molecules=1000)
    )
    before = counted(molecules)
    try:
        for step in reactor.steps():
            taken = counted([m for reaction in step for m in reaction.taken])
            made = counted([m for reaction in step for m in reaction.made])
            assert not taken - before
            before = before - taken + made
            assert before == counted(reactor.solution().molecules)
    except ChemistryError:
        pass  # of the step that it came in, nobody tells the reactions


def counted(molecules):
    return Counter(repr(plain(m)) for m in molecules)


@given(st.lists(st.integers(-50, 50), min_size=1, max_size=40), st.integers())
def test_the_order_of_reactions_does_not_change_the_maximum(numbers, seed):
    program = parse_program("replace x::int, y::int by x if x >= y in <>")
    reactor = Reactor(numbers, rules=program.rules, random=Random(seed))
    reactor.run()
    assert reactor.solution() == Solution([max(numbers)])
    assert reactor.reactions == len(numbers) - 1


@given(st.integers())
@settings(max_examples=20, deadline=None)
def test_the_same_seed_gives_the_same_reactions(seed):
    def history():
        program = parse_program("replace A:x::int, A:y::int by A:(x - y), B:x in <>")
        molecules = parse_molecules(", ".join(f"A:{n}" for n in range(20)), {})
        return [*Reactor(molecules, rules=program.rules, random=Random(seed)).steps()]

    assert history() == history()
