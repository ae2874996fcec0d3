"""One bad peer among good ones: every run ends, and rightly, and its user hears who was bad.

The bad ones are our own peers, each changed in one thing (`support/malice.py`); what they offer is
more room than all others have together, so that everything goes to them first.
"""

from __future__ import annotations

from itertools import pairwise

import pytest
from grid_faults import Faults
from grid_scenario import GridRun
from malice import (
    KINDS,
    TASKS,
    Boaster,
    Chatterer,
    Claimer,
    Forger,
    Garbler,
    Idler,
    Lacker,
    Refuser,
    Usurper,
)
from toy_grid import ToyGrid, digest_of

from sureline.journal.events import (
    PeerLeft,
    TaskBound,
    TaskEnded,
    TaskProgressed,
    TaskRevoked,
)
from sureline.run.keys import result_key
from sureline.run.standing import FORGIVEN_S, Strikes
from sureline.run.throttle import OF_PEER_MAX
from sureline.workflow.files import FileRecord
from sureline.workflow.model import Command, Graph, Task

HONEST_S = len(TASKS) / 4
"""What the run takes with the two good peers alone: four cores, a second a task."""


def flow() -> Graph:
    """A pair of equal halves: the second reads what the first made."""
    half = len(TASKS) // 2
    return Graph(
        "flow",
        [
            Task(
                name,
                Command(f"make {name}"),
                inputs=("source",) if number < half else (f"f{number - half}",),
                outputs=(f"f{number}",),
            )
            for number, name in enumerate(TASKS)
        ],
    )


def with_a(kind, seed: int = 1, **options) -> GridRun:
    run = GridRun(ToyGrid(seed), flow(), peers=3, bad={"p0": kind}, **options)
    run.submit()
    return run


def ends_well(run: GridRun, within_s: float) -> None:
    run.drive(within_s)
    run.check()


def asides(run: GridRun) -> list[PeerLeft]:
    return [event for event in run.of(PeerLeft) if event.aside_s]


def is_named(run: GridRun, *words: str) -> None:
    """The bad one, and nobody else, is set aside; the journal and the user are told why."""
    assert {event.peer for event in asides(run)} == {"p0"}
    for word in words:
        assert word in asides(run)[0].reason, asides(run)[0]
        assert any("p0" in told and word in told for told in run.told), run.told


def made_by(run: GridRun) -> set[str]:
    return {event.peer for event in run.of(TaskEnded) if event.outcome == "succeeded"}


# -- results never asked for ----------------------------------------------------------------------


def test_results_of_what_was_not_given_to_it_are_not_taken(monkeypatch):
    source = FileRecord("source", digest_of("user", "source"), 10)
    first = flow().tasks[: len(TASKS) // 2]
    monkeypatch.setattr(Forger, "keys", {t.name: result_key(t, (source,), []) for t in first})
    ends_well(with_a(Forger), 10 * HONEST_S)


def test_what_was_given_to_it_by_an_earlier_writer_is_taken_by_the_next():
    grid = ToyGrid(2)
    grid.duration = lambda job: 20.0
    run = GridRun(grid, flow(), peers=3)
    run.submit()
    grid.run(lambda: len(grid.started) == 6)
    run.take_over("elsewhere")
    run.drive()
    run.check()
    attempts = [event.attempt for event in run.of(TaskEnded) if event.outcome == "succeeded"]
    assert set(attempts) == {1}, "what was under way went on"


def test_the_journal_does_not_tell_what_a_peer_must_show():
    run = with_a(Chatterer)
    run.grid.keep_sent = True
    ends_well(run, 10 * HONEST_S)
    shown = {m.warrant for _, _, m in run.grid.sent if getattr(m, "warrant", b"")}
    seals = {event.seal for event in run.of(TaskBound)}
    assert len(seals) == len(run.of(TaskBound)) and b"" not in seals
    assert shown and not shown & seals


# -- one that stops every run ---------------------------------------------------------------------


@pytest.mark.parametrize("kind", [Boaster, Garbler])
def test_one_that_reports_what_cannot_be_had(kind):
    run = with_a(kind)
    ends_well(run, 10 * HONEST_S)
    assert len(run.of(TaskRevoked)) <= len(TASKS) * len(asides(run)), "once whenever it is tried"
    assert made_by(run) >= {"p1", "p2"}
    is_named(run, "it said that" if kind is Boaster else "makes no sense")


def test_the_pauses_of_one_that_goes_on_lying_grow():
    run = GridRun(ToyGrid(1), flow(), peers=3, bad={"p0": Boaster})
    run.grid.duration = lambda job: 100.0
    run.submit()
    ends_well(run, 30_000.0)
    pauses = [event.aside_s for event in asides(run)]
    assert len(pauses) > 3
    assert all(later == 2 * sooner for sooner, later in pairwise(pauses))
    assert [event.strikes for event in asides(run)] == list(range(1, len(pauses) + 1))


def test_one_that_says_that_all_is_under_way_at_its_place():
    run = with_a(Claimer)
    ends_well(run, 10 * HONEST_S)


def test_one_that_takes_all_and_does_nothing():
    run = with_a(Idler)
    ends_well(run, 600.0)
    is_named(run, "did not finish")


def test_one_that_does_nothing_is_found_out_sooner_where_others_have_shown_how_long_it_takes():
    run = GridRun(ToyGrid(1), flow(), peers=3, bad={"p0": Idler})
    run.left("p0")
    run.submit()
    run.grid.after(2.0, lambda: run.joined("p0"))
    ends_well(run, 120.0)
    is_named(run, "did not finish")


@pytest.mark.parametrize("kind", [Refuser, Lacker])
def test_one_that_refuses_everything(kind):
    run = with_a(kind)
    ends_well(run, 10 * HONEST_S)
    is_named(run)
    assert {event.strikes for event in asides(run)} == {0}, "to refuse is not to lie"


def test_one_that_tells_of_progress_without_end():
    run = with_a(Chatterer)
    ends_well(run, 10 * HONEST_S)
    recorded = len(run.of(TaskProgressed))
    assert 0 < recorded <= OF_PEER_MAX * (run.ended.at + 1), f"{recorded} in {run.ended.at} s"


@pytest.mark.xfail(strict=True, reason="fencing needs a signed grant, which is not built here yet")
def test_one_that_says_that_the_run_was_taken_over():
    run = with_a(Usurper)
    ends_well(run, 10 * HONEST_S)
    assert not run.fenced


def test_who_lied_in_an_earlier_run_is_named_and_gets_nothing_at_first():
    run = GridRun(ToyGrid(1), flow(), peers=3, bad={"p0": Idler})
    now = run.grid.machine("home").clock_ahead_s
    run.remembered = {"p0": Strikes(5, now - 10.0, 160.0, "it said so")}
    run.submit()
    ends_well(run, 2 * HONEST_S)
    assert "p0" not in {event.peer for event in run.of(TaskBound)}
    assert [told for told in run.told if told.startswith("p0") and "it said so" in told]


def test_a_strike_is_forgiven_every_day():
    strikes = Strikes(3, 1000.0, 40.0, "x")
    assert [strikes.forgiven(1000.0 + days * FORGIVEN_S) for days in (0, 1, 2, 3, 9)] == [
        3,
        2,
        1,
        0,
        0,
    ]
    assert strikes.left_s(1010.0) == 30.0 and strikes.left_s(2000.0) == 0.0
    assert strikes.left_s(-1e9) == 40.0, "a clock that was set back keeps nobody out for ever"


# -- and all else that may befall a run -----------------------------------------------------------


STORMS = [kind for kind in KINDS.values() if kind not in (Chatterer, Usurper)]


def bear_all(kind, seeds):
    for seed in seeds:
        try:
            Faults(seed, kind).drive()
        except Exception as error:
            raise AssertionError(f"{kind.__name__}, seed {seed}") from error


@pytest.mark.parametrize("kind", STORMS)
def test_a_bad_peer_among_peers_that_crash_and_writers_that_are_killed(kind):
    bear_all(kind, range(6))


@pytest.mark.soak
@pytest.mark.parametrize("kind", STORMS)
def test_a_bad_peer_in_hundreds_of_storms(kind):
    bear_all(kind, range(1000, 1300))


# -- one that only this writer does not hear ------------------------------------------------------


@pytest.mark.parametrize("when_s", [0.0, 0.5, 3.0])
def test_a_peer_that_only_the_writer_cannot_reach_gets_no_work(when_s):
    grid = ToyGrid(4)
    run = GridRun(grid, flow(), peers=3)
    grid.duration = lambda job: 5.0
    grid.after(when_s, lambda: grid.severed.add(frozenset(("home", "p1"))))
    run.submit()
    run.drive(200.0)
    run.check()
    if when_s:
        assert [event.peer for event in run.of(PeerLeft)] == ["p1"]
        assert any("p1" in told and "reach" in told for told in run.told), run.told


def test_a_peer_that_is_heard_again_takes_part_again():
    grid = ToyGrid(4)
    run = GridRun(grid, flow(), peers=3)
    grid.duration = lambda job: 10.0
    cut = frozenset(("home", "p1"))
    grid.after(3.0, lambda: grid.severed.add(cut))
    grid.after(40.0, lambda: grid.severed.discard(cut))
    run.submit()
    run.drive(400.0)
    run.check()
    left = next(n for n, event in enumerate(run.events) if isinstance(event, PeerLeft))
    later = [e for e in run.events[left:] if isinstance(e, TaskEnded) and e.outcome == "succeeded"]
    assert "p1" in {event.peer for event in later}
