"""What is learned of waits: of like jobs first, at this time of day, the newest."""

from __future__ import annotations

import time
from pathlib import Path

from sureline.sites.waits import (
    COMING_UP_S,
    ENOUGH,
    NEAREST,
    NEWEST,
    UPS_MAX,
    ExpectedWait,
    WaitBook,
    WaitFor,
    WaitSeen,
    expected_start,
    expected_wait,
)

NOON = time.mktime((2026, 11, 18, 12, 0, 0, 0, 0, -1))
DAY_S = 86_400.0
ASKED = WaitFor(NOON, "slurm", "short", 4, 3600.0)


def seen(wait_s: float, at: float = NOON - DAY_S, **more: object) -> WaitSeen:
    known = {"site": "slurm", "partition": "short", "cores": 4, "limit_s": 3600.0} | more
    return WaitSeen(at=at, wait_s=wait_s, **known)  # type: ignore[arg-type]  # as the test says


def test_nothing_is_known_of_few_or_of_others():
    assert not expected_wait([seen(1.0)] * (ENOUGH - 1), ASKED).is_known
    for other in ({"site": "ssh"}, {"partition": "long"}):
        assert not expected_wait([seen(1.0, **other)] * 50, ASKED).is_known


def test_the_most_particular_memory_counts():
    night = [seen(1.0, NOON - DAY_S / 2 + k) for k in range(20)]
    large = [seen(900.0, cores=100) for _ in range(20)]
    noon = [seen(60.0, NOON - DAY_S + 600 * k) for k in range(ENOUGH)]
    assert set(expected_wait([*night, *large, *noon], ASKED).waits_s) == {60.0}
    assert set(expected_wait([*night, *large], ASKED).waits_s) == {1.0}
    assert set(expected_wait(large, ASKED).waits_s) == {900.0}
    assert "time of day" in expected_wait(noon, ASKED).from_


def test_midnight_is_near_to_eleven():
    late = NOON - DAY_S / 2 - 3600
    midnight = ASKED._replace(at=NOON + DAY_S / 2)
    assert "time of day" in expected_wait([seen(5.0, late)] * ENOUGH, midnight).from_


def test_the_newest_count():
    old = [seen(500.0, NOON - 30 * DAY_S + k) for k in range(NEWEST)]
    new = [seen(5.0, NOON - DAY_S + k) for k in range(NEWEST)]
    assert set(expected_wait(old + new, ASKED).waits_s) == {5.0}


def test_what_is_ahead_counts_most():
    """Those that found about as much ahead of them, stretched to what there is now."""
    empty = [seen(1.0, ahead=0) for _ in range(NEAREST)]
    full = [seen(100.0, ahead=19) for _ in range(NEAREST)]
    known = [*empty, *full]
    assert set(expected_wait(known, ASKED._replace(ahead=0)).waits_s) == {1.0}
    assert set(expected_wait(known, ASKED._replace(ahead=39)).waits_s) == {200.0}
    assert set(expected_wait(known, ASKED._replace(ahead=10_000)).waits_s) == {300.0}
    assert set(expected_wait(known, ASKED).waits_s) == {1.0, 100.0}, "if nobody knows, all"


def test_quantiles_are_right_however_few_there_are():
    """Of n equally likely waits, the next is below the k-th with a chance of k / (n + 1)."""
    known = expected_wait([seen(float(k)) for k in range(1, 10)], ASKED)
    assert [known.quantile_s(k / 10) for k in range(1, 10)] == [float(k) for k in range(1, 10)]
    assert known.quantile_s(0.99) == 9.0 and known.quantile_s(0.01) == 1.0


def test_how_pilots_come_up_is_learned():
    """Of the partition, else of the site; one that never served says nothing."""
    few = [seen(1.0, up_s=2.0) for _ in range(ENOUGH - 1)]
    assert expected_start([*few, seen(1.0)], "slurm", "short").ups_s == (COMING_UP_S,)
    others = [seen(1.0, up_s=30.0, partition="long") for _ in range(ENOUGH)]
    assert set(expected_start([*few, *others], "slurm", "long").ups_s) == {30.0}
    assert {2.0, 30.0} <= set(expected_start([*few, *others], "slurm", "short").ups_s)
    many = [seen(1.0, at=NOON - k, up_s=float(k % 10)) for k in range(NEWEST)]
    learned = expected_start(many, "slurm", "short")
    assert len(learned.ups_s) == UPS_MAX and "200 pilots" in learned.from_
    assert abs(sum(learned.ups_s) / UPS_MAX - 4.5) < 0.3
    wait = ExpectedWait((10.0, 20.0), "")
    assert wait.then_up_s(expected_start(others, "slurm", "long")) == (40.0,) * 5 + (50.0,) * 5
    assert ExpectedWait((), "").then_up_s(expected_start([], "slurm", "")) == (COMING_UP_S,)


def test_the_book_survives_a_cut_line(tmp_path: Path):
    book = WaitBook(tmp_path / "deep" / "waits.jsonl")
    assert book.seen() == []
    for k in range(3):
        book.add(seen(float(k)))
    with (tmp_path / "deep" / "waits.jsonl").open("ab") as file:
        file.write(b'{"at": 1, "si')
    assert [one.wait_s for one in book.seen()] == [0.0, 1.0, 2.0]
