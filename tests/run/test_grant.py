"""The grant of epochs: every state that keepers and writers can get into, within bounds."""

from __future__ import annotations

from typing import ClassVar

import pytest
from grant_explorer import BrokenError, Explorer
from hypothesis import given
from hypothesis import strategies as st

from sureline.run import grant
from sureline.run.grant import OWN, Candidacy, Epoch, Holding, Quorum


def test_every_state_of_three_keepers_and_three_writers():
    assert Explorer("abc", "xyz", numbers=2).walk(100_000) > 500


class Whole(Explorer):
    """Walks all states, as they are."""

    seen: ClassVar = set()

    def canonical(self, state):
        self.seen.add(state)
        return state


def test_states_that_are_left_out_are_those_that_others_stand_for():
    """Each of all the states looks, from afar, like one that is walked; and nothing else is."""
    few, whole = Explorer("abc", "xy", numbers=2), Whole("abc", "xy", numbers=2)
    assert few.walk(10_000) * 10 < whole.walk(100_000)
    assert {few.canonical(state) for state in whole.seen} == set(few.came)


def test_one_of_two_voters_that_died_is_made_up_for_by_a_third():
    quorum = Quorum(Epoch(1, "x"), "ab")
    for voter, position in (("a", 9), ("b", 5), ("c", 9)):
        quorum.has(voter, position)
    assert quorum.committed() == 5
    quorum.change("abc", 8)
    assert quorum.committed() == 9 and not quorum.is_changing


def test_every_state_while_a_voter_comes():
    explorer = Explorer("abc", "xy", numbers=2, sets=("ab", "abc"), changed_up_to=3)
    assert explorer.walk(100_000) > 500


@pytest.mark.soak
@pytest.mark.limit_s(7200)
@pytest.mark.parametrize(
    ("people", "numbers", "sets"),
    [
        ("xy", 2, ("abc", "ab")),
        ("xy", 2, ("ab", "abc")),
        ("xyz", 3, ()),
        ("xy", 2, ("abc", "abd")),
    ],
)
def test_every_state_of_more_numbers_and_of_voters_that_come_and_go(people, numbers, sets):
    keepers = "".join(sorted({*"".join(sets), *"abc"}))
    found = Explorer(keepers, people, numbers=numbers, sets=sets).walk(10_000_000)
    print(f"{people} {numbers} {sets}: {found} states", flush=True)
    assert found > 5_000


def broken(**keywords):
    with pytest.raises(BrokenError) as found:
        Explorer("abc", "xy", numbers=2, **keywords).walk(200_000)
    return str(found.value)


def test_a_keeper_that_promises_a_number_twice_is_found_out(monkeypatch):
    def asked(holding, epoch):
        again = epoch.number >= holding.promised.number
        return Holding(epoch, holding.in_line, holding.position) if again else holding

    monkeypatch.setattr(grant, "asked", asked)
    assert "epoch 2 was granted to" in broken()


def test_a_minority_that_grants_is_found_out(monkeypatch):
    monkeypatch.setattr(grant, "majority", lambda voters: len(voters) // 2)
    assert broken()


def test_who_does_not_read_what_others_have_is_found_out(monkeypatch):
    monkeypatch.setattr(Candidacy, "ahead", lambda candidacy: None)
    assert "without" in broken()


def test_an_old_writer_that_is_still_heard_is_found_out(monkeypatch):
    def followed(holding, epoch, base, after, last):
        fits = after == holding.position and last > after
        return Holding(holding.promised, epoch.number, last) if fits else None

    monkeypatch.setattr(grant, "may_write", lambda holding, epoch: True)
    monkeypatch.setattr(grant, "begun", lambda holding, epoch: holding)
    monkeypatch.setattr(grant, "followed", followed)
    assert broken()


NAMES = st.lists(st.sampled_from("abcdefgh"), unique=True)


@given(NAMES, NAMES)
def test_voters_change_one_at_a_time_and_get_where_they_are_wanted(voters, wanted):
    steps = 0
    while set(voters) != set(wanted):
        after = grant.changed(voters, wanted)
        assert len(set(after) ^ set(voters)) == 1
        voters, steps = after, steps + 1
        assert steps <= 16
    assert set(grant.changed(voters, wanted)) == set(wanted)


@given(NAMES, NAMES)
def test_the_number_of_voters_is_odd_and_some_can_fail(voters, able):
    found = grant.wanted(voters, able, OWN)
    if len(able) >= 2:
        assert len(found) % 2 == 1 and len(found) >= 3
        assert set(found) <= {*able, OWN}
        assert set(able) & set(voters) <= set(found) or len(able) > 4


def test_the_next_number_is_what_a_majority_would_promise_whatever_one_says():
    asking = Candidacy(Epoch(2, "x"), "abc", 10)
    for voter, number in (("a", 3), ("b", 3), ("c", 1 << 30)):
        asking.heard(voter, grant.Answer(Epoch(number, "y"), 10))
    assert asking.is_refused
    assert asking.next_number() == 4


def test_who_has_promised_otherwise_is_against_and_who_is_silent_is_not():
    """A keeper that still hears a writer comes round; who asks again waits for that."""
    asking = Candidacy(Epoch(2, "x"), "abc", 10)
    asking.heard("a", grant.Answer(Epoch(2, "x"), 10))
    asking.heard("b", grant.Answer(Epoch(1, "y"), 10))
    assert asking.against() == ["b"]
    assert not asking.is_granted and not asking.is_refused
    asking.heard("b", grant.Answer(Epoch(2, "x"), 10))
    assert asking.against() == [] and asking.is_granted
