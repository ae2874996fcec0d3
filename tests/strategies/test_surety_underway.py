"""How long what is under way will go on, and who is late."""

from __future__ import annotations

import pytest

from sureline.strategies.surety.client.underway import LEFT_SHARE, OVERDUE_TIMES, UnderWay


@pytest.fixture
def book() -> UnderWay:
    """A task of a minute at `p` since 100 s, at most 90 s by its bid; one of ten minutes at `q`."""
    found = UnderWay(range(10))
    found.begin(1, "p", 100.0, 60.0, 90.0)
    found.begin(2, "q", 100.0, 600.0, 900.0)
    return found


@pytest.mark.parametrize(
    ("age_s", "left_s"),
    [(0, 60), (40, 20), (80, LEFT_SHARE * 80), (91, OVERDUE_TIMES * 91)],
)
def test_what_is_in_time_is_believed_and_what_is_late_is_not(book, age_s, left_s):
    assert book.left_s("p", 100.0 + age_s) == [pytest.approx(left_s)]


def test_a_late_attempt_shows_how_slow_its_provider_is(book):
    assert book.overdue("p", 189.0) == 1.0
    assert not book.is_overdue(1, "p", 189.0)
    assert book.is_overdue(1, "p", 200.0)
    assert book.overdue("p", 200.0) == pytest.approx((1 + OVERDUE_TIMES) * 100 / 60)
    assert book.overdue("q", 200.0) == 1.0
    assert book.most_overdue(200.0) == book.overdue("p", 200.0)


def test_what_is_over_is_not_under_way(book):
    book.begin(3, "p", 120.0, 60.0, 90.0)
    book.end(1, "p")
    assert book.all() == [(3, "p"), (2, "q")]
    assert (book.count("p"), book.since(3, "p"), book.since(1, "p")) == (1, 120.0, None)
    assert book.of_service == {1: 0, 2: 1, 3: 1}
    book.begin(3, "q", 130.0, 60.0, 90.0)
    book.end(3, "p")
    assert book.of_service[3] == 1, "it is still under way elsewhere"
