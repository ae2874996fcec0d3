"""How many pilots are asked for, and when that stops: time is an argument."""

from __future__ import annotations

from sureline.compose.pilots.factory import (
    PAUSE_S_MAX,
    STARTS_FAILED_MAX,
    SUBMISSIONS_FAILED_MAX,
    PilotFactory,
)


def accepted(floor: int = 0, ceiling: int = 10) -> PilotFactory:
    factory = PilotFactory(floor, ceiling)
    factory.submitted()
    return factory


def test_the_first_is_a_test():
    factory = PilotFactory(0, 10)
    assert factory.to_submit(0.0, wanted=8, there=0) == 1
    factory.submitted()
    assert factory.to_submit(0.0, wanted=8, there=1) == 7


def test_pressure_between_floor_and_ceiling():
    factory = accepted(2, 10)
    assert factory.to_submit(0.0, wanted=0, there=0) == 2
    assert factory.to_submit(0.0, wanted=100, there=4) == 6
    assert factory.to_submit(0.0, wanted=100, there=10) == 0
    assert factory.to_submit(0.0, wanted=3, there=9) == 0, "what is there is not taken away"


def test_pauses_double_and_ten_failures_in_a_row_are_too_many():
    factory, now, pauses = accepted(), 0.0, []
    for _ in range(SUBMISSIONS_FAILED_MAX):
        assert not factory.paused
        factory.refused(now, "sbatch: busy", again=True)
        began = now
        while not factory.paused and not factory.to_submit(now, wanted=1, there=0):
            now += 1.0
        pauses.append(now - began)
    assert pauses[:4] == [2, 4, 8, 16] and max(pauses) == PAUSE_S_MAX
    assert "busy" in factory.paused
    assert factory.to_submit(now + 1e6, wanted=1, there=0) == 0


def test_a_success_in_between_counts():
    factory = accepted()
    for _ in range(3):
        for _ in range(SUBMISSIONS_FAILED_MAX - 1):
            factory.refused(0.0, "busy", again=True)
        factory.submitted()
    for _ in range(3):
        for _ in range(STARTS_FAILED_MAX - 1):
            factory.start_failed(0.0, "no Python")
        factory.began()
    assert not factory.paused


def test_three_failed_starts_are_too_many():
    factory = accepted()
    for _ in range(STARTS_FAILED_MAX):
        assert not factory.paused
        factory.start_failed(0.0, "failed: no such file: python3")
    assert "python3" in factory.paused


def test_what_can_never_succeed_is_not_tried_again():
    factory = PilotFactory(0, 10)
    factory.refused(0.0, "invalid partition", again=False)
    assert "invalid partition" in factory.paused
    other = accepted()
    other.fits_nowhere("PartitionConfig")
    assert "PartitionConfig" in other.paused and not other.to_submit(1e9, wanted=5, there=0)
