"""Tables of bids: what the columns mean, and that all mistakes are told at once."""

from __future__ import annotations

import pytest

from sureline.strategies.surety.planning.bids import read_bids
from sureline.workflow.mistakes import WorkflowError


def table(text: str) -> list[tuple[str, str, float, float, float, float]]:
    bids = read_bids(text.encode(), file="b.csv").bids
    return [(b.bid.service, b.label, b.bid.cost, b.bid.time, b.bid.early, b.bid.late) for b in bids]


def mistakes(text: str) -> list[tuple[int | None, str]]:
    with pytest.raises(WorkflowError) as told:
        read_bids(text.encode(), file="b.csv")
    return [(m.line, m.what) for m in told.value.mistakes]


def test_variance_is_symmetric_and_never_below_zero() -> None:
    text = "service,provider,cost,time,variance\ns,p,8,8,2\ns,q,1,1,3\n"
    assert table(text) == [("s", "p", 8, 8, 6, 10), ("s", "q", 1, 1, 0, 4)]


def test_columns_in_any_order_and_both_ways_to_say_the_spread() -> None:
    text = (
        "\ufeffLate, time ,cost,provider,early,service,variance,expires\n"
        "9,5,1,p,4,s,,7\n\n# a remark\n,5,1,q,,s,1,\n"
    )
    assert table(text) == [("s", "p", 1, 5, 4, 9), ("s", "q", 1, 5, 4, 6)]
    bids = read_bids(text.encode(), file="b.csv").bids
    assert [b.bid.expires for b in bids] == [7, None]
    assert [b.line for b in bids] == [2, 5]


def test_fees() -> None:
    text = (
        "service,provider,cost,time,variance,late_fee,cancel_fee,reserve_fee\n"
        "s,p,8,8,2,1,2,3\ns,q,8,8,2,,,\n"
    )
    first, second = (listed.bid for listed in read_bids(text.encode(), file="b").bids)
    assert (first.late_fee, first.cancel_fee, first.reserve_fee, first.price) == (1, 2, 3, 11)
    assert (second.late_fee, second.cancel_fee, second.reserve_fee, second.price) == (0, 0, 0, 8)


def test_bids_of_one_provider_for_one_service_are_told_apart() -> None:
    text = (
        "service,provider,cost,time,variance\n"
        "s,p,1,1,0\ns,p,2,1,0\ns,p#2,3,1,0\nt,p,1,1,0\ns,p,4,1,0\n"
    )
    assert [row[1] for row in table(text)] == ["p#1", "p#3", "p#2", "p", "p#4"]


def test_all_mistakes_at_once() -> None:
    text = (
        "service,provider,cost,time,variance,early,late\n"
        ",p,1,1,0,,\n"
        "s,,1,1,0,,\n"
        "s,p,x,1,0,,\n"
        "s,p,-1,1,0,,\n"
        "s,p,1,nan,0,,\n"
        "s,p,1,1,,,\n"
        "s,p,1,1,1,0,2\n"
        "s,p,1,1,,0,\n"
        "s,p,1,1,,2,3\n"
        "s,p,1,inf,0,,\n"
        "s,p\n"
        "s,p,1,1,0,,,extra\n"
    )
    lines = [line for line, _ in mistakes(text)]
    assert sorted({line for line in lines if line}) == list(range(2, 14))


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("", "there is no header"),
        ("service;provider;cost;time;variance\n", "there is no column 'service'"),
        ("service,provider,cost,time\n", "neither a column 'variance'"),
        ("service,provider,cost,time,early\n", "neither a column 'variance'"),
        ("service,provider,cost,cost,time,variance\n", "'cost' is there 2 times"),
        ('service,provider,cost,time,variance\n"s,p', "cannot be read"),
    ],
)
def test_bad_tables(text: str, what: str) -> None:
    assert any(what in told for _, told in mistakes(text))


def test_a_column_that_is_not_used_is_noted() -> None:
    text = "service,provider,cost,time,variance,expire\ns,p,1,1,0,5\n"
    (warning,) = read_bids(text.encode(), file="b.csv").warnings
    assert "expire" in warning.what and "expires" in warning.hint
