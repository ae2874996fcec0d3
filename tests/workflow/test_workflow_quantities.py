"""Quantities: a table of what people write, a table of what is refused, and the round trips."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sureline.workflow.model import Takes
from sureline.workflow.quantities import (
    format_cores,
    format_duration,
    format_size,
    format_takes,
    parse_cores,
    parse_count,
    parse_duration,
    parse_range,
    parse_size,
    parse_takes,
)

DURATIONS = [
    ("5 min", 300.0),
    ("1s", 1.0),
    ("90", 90.0),
    ("1h30m", 5400.0),
    ("1 h 30 min", 5400.0),
    ("250ms", 0.25),
    ("0.1s", 0.1),
    ("2 hours", 7200.0),
    ("1.5h", 5400.0),
    ("3 days", 259_200.0),
    ("1d", 86_400.0),
    ("2w", 1_209_600.0),
    ("10 sec", 10.0),
    ("1e-3s", 0.001),
    (" 7 ", 7.0),
    ("0", 0.0),
]
SIZES = [
    ("200MB", 200_000_000),
    ("4 GiB", 4 * 2**30),
    ("1.5G", 1_500_000_000),
    ("17", 17),
    ("17B", 17),
    ("1kB", 1000),
    ("1KiB", 1024),
    ("1M", 1_000_000),
    ("2MiB", 2 * 2**20),
    ("1TB", 10**12),
    ("1TiB", 2**40),
    ("0.1GB", 100_000_000),
    ("1.5", 2),
]
RANGES = [
    ("1..3", ["1", "2", "3"]),
    ("5..5", ["5"]),
    ("1..10..4", ["1", "5", "9"]),
    ("-1..1", ["-1", "0", "1"]),
    ("3..1..-1", ["3", "2", "1"]),
    ("08..11", ["08", "09", "10", "11"]),
    (" 1 .. 2 ", ["1", "2"]),
]


@pytest.mark.parametrize(("text", "seconds"), DURATIONS)
def test_durations(text: str, seconds: float) -> None:
    assert parse_duration(text) == seconds


@pytest.mark.parametrize(("text", "size_bytes"), SIZES)
def test_sizes(text: str, size_bytes: int) -> None:
    assert parse_size(text) == size_bytes


@pytest.mark.parametrize(("text", "values"), RANGES)
def test_ranges(text: str, values: list[str]) -> None:
    assert list(parse_range(text)) == values
    assert len(parse_range(text)) == len(values)


def test_takes() -> None:
    assert parse_takes("1s .. 3s .. 10s") == Takes(1, 3, 10)
    assert parse_takes("1..3..10") == Takes(1, 3, 10)
    assert parse_takes("2 min") == Takes(120, 120, 120)


@pytest.mark.parametrize(
    ("parse", "text", "says"),
    [
        (parse_duration, "5 lightyears", "'5 lightyears' is not a duration; write a number"),
        (parse_duration, "", "'' is not a duration"),
        (parse_duration, "-1s", "'-1s' is negative"),
        (parse_duration, "nan", "'nan' is not a duration"),
        (parse_duration, "inf", "'inf' is not a duration"),
        (parse_duration, "1h30", "'1h30' is not a duration"),
        (parse_duration, "1e300 s", "longer than 300 years"),
        (parse_duration, "\u0665s", "is not a duration"),
        (parse_size, "2 bananas", "'2 bananas' is not a size; write bytes"),
        (parse_size, "-2MB", "is not a size"),
        (parse_size, "9e99", "more than any machine has"),
        (parse_takes, "1s .. 3s", "'1s .. 3s' is not an estimate; write optimistic .. likely"),
        (parse_takes, "3s .. 1s .. 10s", "'3s .. 1s .. 10s' is out of order"),
        (parse_takes, "1s .. 3s .. ", "is not an estimate"),
        (parse_range, "1..x", "'1..x' is not a range; write first..last"),
        (parse_range, "5..1", "'5..1' is empty; swap the bounds"),
        (parse_range, "1..5..0", "has the step 0"),
        (parse_range, "1..10000001", "has 10,000,001 values; use at most 10,000,000"),
        (parse_cores, "0", "'0' is not a number of cores; write a positive number"),
        (parse_cores, "-2", "is not a number of cores"),
        (parse_cores, "nan", "is not a number of cores"),
        (parse_count, "1.5", "'1.5' is not a whole number of 0 or more"),
        (parse_count, "-1", "'-1' is not a whole number of 0 or more"),
    ],
)
def test_what_is_refused(parse, text, says) -> None:  # type: ignore[no-untyped-def] # any parser
    with pytest.raises(ValueError) as error:
        parse(text)
    assert says in str(error.value)
    assert "; " in str(error.value)


durations = st.one_of(
    st.integers(0, 10**9).map(float),
    st.floats(0, 1e9),
    st.integers(0, 10**6).map(lambda n: n / 1e3),
)


@given(durations)
def test_durations_are_read_as_written(seconds: float) -> None:
    assert parse_duration(format_duration(seconds)) == seconds


@given(st.integers(0, 2**63 - 1) | st.integers(0, 9999).map(lambda n: n * 2**20))
def test_sizes_are_read_as_written(size_bytes: int) -> None:
    assert parse_size(format_size(size_bytes)) == size_bytes


@given(st.lists(durations, min_size=3, max_size=3).map(sorted))
def test_estimates_are_read_as_written(values: list[float]) -> None:
    assert parse_takes(format_takes(Takes(*values))) == Takes(*values)


@given(st.floats(1e-6, 1e6))
def test_cores_are_read_as_written(cores: float) -> None:
    assert parse_cores(format_cores(cores)) == cores


def test_written_for_people() -> None:
    assert format_duration(300) == "5min"
    assert format_duration(5400) == "1h30min"
    assert format_duration(0.25) == "250ms"
    assert format_size(200_000_000) == "200MB"
    assert format_size(4 * 2**30) == "4GiB"
