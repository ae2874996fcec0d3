"""Laws of what is shown for an attempt, of who is set aside, of what is recorded of progress."""

from __future__ import annotations

from collections import Counter
from random import Random

from hypothesis import assume, given
from hypothesis import strategies as st

from sureline.run.standing import DECLINES_MAX, PAUSE_MAX_S, PAUSE_S, PeerStanding
from sureline.run.throttle import OF_PEER_MAX, WINDOW_S, ProgressThrottle
from sureline.run.warrants import BYTES, Warrants, seal_of

GIVEN = st.tuples(st.text(max_size=8), st.integers(1, 1 << 31), st.text(max_size=8))
SECRET = st.binary(min_size=32, max_size=32)


@given(SECRET, SECRET, GIVEN, GIVEN)
def test_a_warrant_is_right_for_what_it_was_made_for_alone(secret, other, one, two):
    assume(one != two and secret != other)
    mine, theirs = Warrants(secret, {}), Warrants(other, {})
    warrant = mine.make(one)
    assert len(warrant) == BYTES and mine.is_right(one, warrant)
    assert not mine.is_right(two, warrant)
    assert not theirs.is_right(one, warrant)
    assert not any(mine.is_right(one, wrong) for wrong in (b"", warrant[:-1], seal_of(warrant)))


@given(SECRET, SECRET, GIVEN, GIVEN)
def test_a_later_writer_knows_it_by_its_seal(secret, later, one, two):
    assume(one != two and secret != later)
    warrant = Warrants(secret, {}).make(one)
    successor = Warrants(later, {one: seal_of(warrant)})
    assert successor.is_right(one, warrant)
    assert not successor.is_right(two, warrant)
    assert not successor.is_right(one, seal_of(warrant)), "what is in the journal shows nothing"


@given(st.lists(st.sampled_from(["lies", "declines", "delivers", "waits"]), max_size=60))
def test_pauses_grow_and_nobody_is_set_aside_who_did_nothing(deeds):
    standing, elapsed, lies = PeerStanding({}, 0.0, 0.0), 1000.0, 0
    for deed in deeds:
        heard = standing.is_heard("bad", elapsed)
        if deed == "lies":
            aside = standing.refuted("bad", "x", elapsed)
            assert (aside is not None) == heard, "one lie is told once"
            if aside is not None:
                lies += 1
                assert aside.strikes == lies
                assert aside.pause_s == min(PAUSE_MAX_S, PAUSE_S * 2 ** (lies - 1))
                assert standing.aside_s("bad", elapsed) == aside.pause_s
        elif deed == "declines":
            aside = standing.declined("bad", "x", elapsed)
            assert aside is None or (aside.strikes == 0 and aside.pause_s <= PAUSE_MAX_S)
        elif deed == "delivers":
            standing.delivered("bad")
        else:
            elapsed += standing.aside_s("bad", elapsed) + 1.0
            assert not standing.aside_s("bad", elapsed) and standing.is_heard("bad", elapsed)
        assert not standing.aside_s("good", elapsed) and standing.is_heard("good", elapsed)


def test_who_declines_now_and_then_is_not_left_alone():
    standing = PeerStanding({}, 0.0, 0.0)
    for _ in range(20):
        for _ in range(DECLINES_MAX - 1):
            assert standing.declined("p", "x", 5.0) is None
        standing.delivered("p")
    asides = [standing.declined("p", "x", 5.0) for _ in range(DECLINES_MAX)]
    assert asides[:-1] == [None] * (DECLINES_MAX - 1) and asides[-1].pause_s == PAUSE_S
    assert standing.is_heard("p", 6.0), "what it says still counts"


def test_one_alone_cannot_have_another_refuted_by_being_quick():
    standing = PeerStanding({}, 0.0, 0.0)
    assert not any(standing.outrun("slow", "liar") for _ in range(50))
    assert standing.outrun("slow", "good")


@given(st.integers(0, 1 << 32))
def test_of_progress_no_more_than_that_passes(seed):
    random, throttle = Random(seed), ProgressThrottle()
    elapsed, windows = 100.0, Counter()
    for _ in range(500):
        elapsed += random.choice([0.0, 0.0, 0.001, 0.3])
        attempt = random.randrange(40)
        if throttle.passes("p", attempt, elapsed):
            windows[int(elapsed / WINDOW_S)] += 1
    assert all(count <= 2 * OF_PEER_MAX for count in windows.values()), "of two windows at most"
    assert throttle.passes("q", 0, elapsed), "others are not held up"
