from __future__ import annotations

import pytest

from sureline.journal.select import select
from sureline.journal.store import RunSummary
from sureline.workflow.mistakes import UserError


def _run(run: str, name: str, state: str = "succeeded") -> RunSummary:
    return RunSummary(run, name, None, state, 1, 1.0, None, 1, 0, 0, 0, 0)


RUNS = [
    _run("wordcount-abc234", "wordcount"),
    _run("sweep-aaaaaa", "sweep", "failed"),
    _run("sweep-aabbbb", "sweep", "failed"),
    _run("wordcount-xyz567", "wordcount"),
    _run("sweep-last22", "Sweep 2", "running"),
]


@pytest.mark.parametrize(
    ("selector", "expected"),
    [
        ("last", 4),
        ("-1", 4),
        ("-2", 3),
        ("-5", 0),
        ("last-failed", 2),
        ("sweep-aaaaaa", 1),
        ("wordcount", 3),
        ("sweep", 2),
        ("Sweep 2", 4),
        ("wordcount-a", 0),
        ("sweep-aaa", 1),
        ("sweep-l", 4),
    ],
)
def test_what_a_selector_means(selector: str, expected: int) -> None:
    assert select(selector, RUNS) is RUNS[expected]


@pytest.mark.parametrize(
    ("selector", "message"),
    [
        ("sweep-a", "'sweep-a' begins several runs: sweep-aabbbb, sweep-aaaaaa; type more of one"),
        ("swep", "no run is called 'swep'; there is sweep"),
        ("-6", "-6 names no run: there are 5, so -1 to -5 do"),
        ("-0", "-0 names no run"),
        ("", "no run is called ''; there is sweep-last22, wordcount-xyz567"),
        ("qqqq", "no run is called 'qqqq'; there is sweep-last22, wordcount-xyz567"),
    ],
)
def test_a_selector_that_means_no_run_or_several(selector: str, message: str) -> None:
    with pytest.raises(UserError) as caught:
        select(selector, RUNS)
    assert message in str(caught.value)
    assert caught.value.code == 2


def test_a_run_called_like_a_keyword_is_found_by_its_name() -> None:
    odd = _run("last-failed", "last")
    assert select("last-failed", [odd, *RUNS]) is odd


def test_at_most_five_candidates_are_listed() -> None:
    many = [_run(f"w-{number:06d}", "x") for number in range(9)]
    with pytest.raises(UserError) as caught:
        select("w-", many)
    assert "w-000008, w-000007, w-000006, w-000005, w-000004 and 4 more" in str(caught.value)


def test_without_runs() -> None:
    with pytest.raises(UserError, match="no runs here yet"):
        select("last", [])


def test_without_a_failed_run() -> None:
    with pytest.raises(UserError, match="no run has failed"):
        select("last-failed", RUNS[:1])
