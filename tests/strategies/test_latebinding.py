"""The parts of `latebinding`: dealing out, judging, shares; and a small grid, simulated."""

from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from sureline.experiments.drive import run_scenario
from sureline.peer.capacity import Capacity, Ledger
from sureline.strategies import strategy
from sureline.strategies.latebinding.assignment import NONE, exact, first_column, greedy, sum_of
from sureline.strategies.latebinding.dealing import deal, decoded, encoded, merged, portions
from sureline.strategies.latebinding.fetching import BYTES_PER_S, LargeFiles, RoundFetches
from sureline.strategies.latebinding.judging import View, best_of, rank_of
from sureline.strategies.latebinding.messages import ListedTask, Ranked
from sureline.strategies.latebinding.sense import NUMBER_MAX
from sureline.strategies.latebinding.settings import BEST, JUDGED_BY
from sureline.strategies.latebinding.shares import Shares
from sureline.testing.scenarios import scenario_of
from sureline.workflow.model import Needs

GB = 10**9


def listed(task="t", run="r", **others):
    fields = {
        "generation": 1,
        "needs": Needs(),
        "requires": "",
        "rank": "",
        "inputs": (),
        "takes_s": 0.0,
        "urgency": 0.0,
        "home": "",
        "holders": (),
        "reads": False,
        "but": (),
        "architecture": "event",
        "exact": True,
        "writer": "w/run",
    }
    return ListedTask(run, task, **{**fields, **others})


def view(pilot="p", cores=2.0, memory=4 * GB, held=(), lifetime_s=3600.0, site="north", tags=None):
    capacity = Capacity(cores, memory, 10 * GB, 0, tags or {})
    return View(pilot, site, Ledger(capacity), capacity, lifetime_s, set(held))


# -- dealing out ---------------------------------------------------------------------------------


ranks = arrays.arrays(
    np.float64,
    st.tuples(st.integers(1, 5), st.integers(1, 5)),
    elements=st.one_of(st.just(-np.inf), st.integers(0, 9).map(float)),
)


@given(st.integers(1, 400), st.integers(1, 200), st.integers(0, 50))
@settings(max_examples=100, deadline=None)
def test_of_very_many_tasks_each_pilot_judges_a_part_and_some_judge_each(tasks, pilots, turn):
    room = {f"p{n}": n % 4 for n in range(pilots)}
    holders = {n: (f"p{n % pilots}", "elsewhere") for n in range(0, tasks, 3)}
    listed_ = [(n, listed(f"t{n}", holders=holders.get(n, ()))) for n in range(tasks)]
    found = portions(listed_, room, turn)
    judged = [sum(n in numbers for numbers in found.values()) for n in range(tasks)]
    among = min(tasks, max(BEST, 2 * sum(room.values())))
    assert min(judged[:among]) >= min(JUDGED_BY, pilots)
    for n, (holder, _) in holders.items():
        assert n in found[holder]
    for pilot, numbers in found.items():
        assert len(set(numbers)) == len(numbers) >= min(among, max(BEST, 2 * room[pilot]))
    most = sum(min(tasks, max(BEST, 6, JUDGED_BY * -(-tasks // pilots))) for _ in room)
    assert sum(map(len, found.values())) <= most + len(holders)


def test_what_much_depends_on_is_judged_before_the_rest():
    tasks = [(n, listed(f"t{n}", urgency=64.0 if n >= 1500 else 1.0)) for n in range(2000)]
    judged = {
        n
        for numbers in portions(tasks, {f"p{n}": 1 for n in range(250)}, 0).values()
        for n in numbers
    }
    assert judged == set(range(1500, 2000))


def test_a_pilot_judges_other_tasks_in_the_next_turn():
    """Some can run at few pilots only: these must hear of them some time."""
    tasks, room = [(n, listed(f"t{n}")) for n in range(2000)], {f"p{n}": 2 for n in range(700)}
    seen = set()
    for turn in range(300):
        seen |= set(portions(tasks, room, turn)["p5"])
    assert len(seen) == len(tasks)


def best_by_trying(matrix):
    """(pairs, sum): as many pairs as can be, and of those the highest sum."""
    if matrix.shape[0] < matrix.shape[1]:
        matrix = matrix.T
    tasks, places = matrix.shape
    found = [(0, 0.0)]
    for order in permutations(range(tasks), places):
        values = [matrix[t, p] for p, t in enumerate(order) if matrix[t, p] > NONE]
        found.append((len(values), sum(values)))
    return max(found)


@given(ranks)
@settings(max_examples=150, deadline=None)
def test_exact_is_the_best_there_is(matrix):
    pairs = exact(matrix)
    assert (len(pairs), sum_of(matrix, pairs)) == best_by_trying(matrix)


@given(ranks)
@settings(max_examples=150, deadline=None)
def test_each_way_gives_a_task_and_a_place_once_and_nothing_that_cannot_be(matrix):
    for way in (first_column, greedy, exact):
        pairs = way(matrix)
        assert len({t for t, _ in pairs}) == len({p for _, p in pairs}) == len(pairs)
        assert all(matrix[t, p] > NONE for t, p in pairs)


@given(ranks)
@settings(max_examples=150, deadline=None)
def test_greedy_is_as_printed(matrix):
    left, values = matrix.copy(), []
    while left.size and left.max() > NONE:
        task, place = np.unravel_index(left.argmax(), left.shape)
        values.append(left[task, place])
        left[task, :], left[:, place] = NONE, NONE
    taken = [float(matrix[pair]) for pair in greedy(matrix)]
    assert taken[:1] == values[:1]
    assert taken == sorted(taken, reverse=True)


def test_where_greedy_is_not_the_best():
    matrix = np.array([[10.0, 9.0], [9.0, 0.0]])
    assert sum_of(matrix, greedy(matrix)) == 10.0
    assert sum_of(matrix, exact(matrix)) == 18.0
    assert sum_of(matrix, first_column(matrix)) == 10.0


def ranked(pilot, ranks, places=1, ahead=0, cores=1.0):
    return Ranked(pilot, tuple(ranks), places, ahead, cores, 4 * GB)


def dealt(tasks, answers, first=()):
    left = {one.pilot: [one.places, one.ahead] for one in answers}
    found = deal(tasks, answers, set(first), left)
    return {one.listed.task: one.placement for one in found}


def test_what_begins_at_once_comes_before_what_is_fetched_ahead():
    answers = [ranked("busy", [(1, 100.0)], places=0, ahead=1), ranked("idle", [(1, 0.0)])]
    placed = dealt({1: listed("a")}, answers)
    assert placed["a"].pilot == "idle" and not placed["a"].ahead
    assert (placed["a"].rival, placed["a"].rival_rank) == ("busy", 100.0)
    placed = dealt({1: listed("a"), 2: listed("b")}, [ranked("p", [(1, 5.0), (2, 1.0)], 1, 1)])
    assert not placed["a"].ahead and placed["b"].ahead


def test_a_round_of_the_papers_architecture_fetches_nothing_ahead():
    tasks = {1: listed("a", architecture="distributed", exact=False)}
    assert not dealt(tasks, [ranked("p", [(1, 5.0)], places=0, ahead=1)])


def test_a_pilot_is_not_given_more_than_fits_together():
    tasks = {n: listed(f"t{n}", needs=Needs(cores=2)) for n in range(3)}
    answer = ranked("p", [(n, 1.0) for n in range(3)], places=4, cores=4.0)
    assert len(dealt(tasks, [answer])) == 2


def test_what_has_waited_for_many_rounds_goes_first():
    tasks = {1: listed("patient"), 2: listed("favourite")}
    answers = [ranked("p", [(2, 9.0), (1, 0.0)])]
    assert set(dealt(tasks, answers)) == {"favourite"}
    assert set(dealt(tasks, answers, first={1})) == {"patient"}


# -- large files ---------------------------------------------------------------------------------

LARGE = 100_000_000
WAIT_S = LARGE / BYTES_PER_S


def reads(task, *digests, **others):
    return listed(task, inputs=tuple((f"in.{one}", one, LARGE) for one in digests), **others)


def fetched(tasks, answers, large=None, idle_s=None, now=100.0):
    left = {one.pilot: [one.places, one.ahead] for one in answers}
    if idle_s is None:
        idle_s = {one.pilot: 0.0 for one in answers if one.places}
    fetching = RoundFetches(large or LargeFiles(), idle_s, now)
    found = deal(tasks, answers, set(), left, 0, fetching)
    return {(one.listed.task, one.placement.pilot) for one in found}


def test_two_pilots_do_not_fetch_the_same_file_where_there_is_something_else_to_do():
    tasks = {1: reads("a", "x"), 2: reads("b", "x"), 3: reads("c", "y"), 4: reads("d", "z")}
    answers = [ranked(p, [(n, 0.0) for n in tasks]) for p in ("p", "q", "r")]
    read = {"a": "x", "b": "x", "c": "y", "d": "z"}
    assert sorted(read[task] for task, _ in fetched(tasks, answers)) == ["x", "y", "z"]


def test_an_idle_pilot_waits_as_long_as_fetching_takes_for_the_one_that_has_the_file():
    large, tasks, idle = LargeFiles(), {1: reads("a", "x")}, [ranked("p", [(1, 0.0)])]
    large.dealt(tasks[1], "q", 100.0)
    assert not fetched(tasks, idle, large, now=100.0 + WAIT_S / 2)
    assert not fetched(tasks, idle, large, {"p": 100.0 + WAIT_S}, now=100.0 + 1.5 * WAIT_S)
    assert fetched(tasks, idle, large, now=100.0 + WAIT_S) == {("a", "p")}
    both = [*idle, ranked("q", [(1, float(LARGE))])]
    assert fetched(tasks, both, large, now=100.0 + WAIT_S) == {("a", "q")}


def test_what_no_pilot_has_all_of_or_nobody_knows_is_waited_for_by_nobody():
    large, idle = LargeFiles(), [ranked("p", [(1, 0.0)])]
    large.dealt(reads("a", "x"), "q", 100.0)
    large.dealt(reads("b", "y"), "r", 100.0)
    for task in (reads("c", "x", "y"), reads("d", "x", "z"), reads("e", "x", rank="cores")):
        assert fetched({1: task}, idle, large)
    large.dealt(reads("f", "z"), "p", 100.0)  # it had that once
    assert fetched({1: reads("g", "z")}, idle, large)


def test_ahead_is_fetched_for_one_task_and_never_what_another_has():
    tasks = {1: reads("a", "x"), 2: reads("b", "y"), 3: reads("c", "z"), 4: listed("d")}
    large = LargeFiles()
    large.dealt(tasks[1], "q", 0.0)
    busy = ranked("p", [(n, 0.0) for n in tasks], places=0, ahead=4)
    found = {task for task, _ in fetched(tasks, [busy], large)}
    assert len(found) == 2 and "d" in found and "a" not in found
    held = ranked("p", [(1, float(LARGE)), (2, float(LARGE)), (3, float(LARGE))], 0, 3)
    assert len(fetched(tasks, [held], large)) == 3


def test_many_cores_that_are_free_are_not_kept_waiting():
    tasks = {n: reads(f"t{n}", f"x{n}") for n in range(8)}
    answer = ranked("p", [(n, 0.0) for n in tasks], places=8, cores=8.0)
    assert len(fetched(tasks, [answer])) == 8


def test_only_so_many_holders_are_remembered(monkeypatch):
    monkeypatch.setattr("sureline.strategies.latebinding.fetching.FILES_MAX", 3)
    large = LargeFiles()
    for n in range(5):
        large.dealt(reads("a", f"x{n}"), "q", 0.0)
    answers = [ranked("p", [(1, 0.0)], places=0, ahead=1)]
    latest = [bool(fetched({1: reads("b", f"x{n}")}, answers, large)) for n in (4, 3, 2)]
    assert not any(latest) and fetched({1: reads("b", "x1")}, answers, large)


def test_replies_are_merged_and_kept_short():
    one, other = ranked("a", [(1, 2.0)]), ranked("b", [(2, 3.0)])
    assert decoded(merged([encoded([one]), encoded([other])])) == [one, other]
    many = [ranked(f"pilot-{n}", [(k, k / 3) for k in range(10)]) for n in range(4000)]
    found = decoded(encoded(many))
    assert len(found) == 4000 and all(0 < len(r.ranks) < 10 for r in found)
    assert decoded(b"\xc1 nonsense") == decoded(None) == []


# -- judging -------------------------------------------------------------------------------------

FILES = (("genome.fa", "d1", 900), ("reads.fq", "d2", 100))


@pytest.mark.parametrize(
    ("requires", "holds"),
    [
        ("", True),
        ("memory >= 4GB and cores > 1", True),
        ("memory > 4GB", False),
        ('site == "north" and not (lifetime < 1h)', True),
        ('held("genome.fa") > 0', True),
        ('held("reads.fq") > 0', False),
        ("held(inputs) == 900 and held() == held(inputs)", True),
        ('tag("gpu") >= 1', False),
        ('tag("python") > 0 and load == 0', True),
        ("1 / held(reads) > 0", False),  # no sense here: it does not hold
        ("nonsense >", False),
    ],
)
def test_what_must_hold(requires, holds):
    here = view(held={"d1"}, tags={"python": None})
    rank = rank_of(listed(requires=requires, inputs=FILES), here)
    assert (rank is not None) == holds
    assert rank in (None, 900.0)


def test_the_rank_is_what_its_formula_says():
    here = view(held={"d2"})
    assert rank_of(listed(rank="held() / size + cores", inputs=FILES), here) == 2.1
    assert rank_of(listed(rank="1 / held(other)", inputs=FILES), here) == 0.0


@pytest.mark.parametrize("text", ["1" + "0" * 400, " * ".join(["held()"] * 40)])
def test_a_number_too_large_to_be_a_float_ends_nobody(text):
    large, here = (("in", "d", 10**15),), view(held={"d"})
    rank = rank_of(listed(rank=text, inputs=large), here)
    assert rank in (0.0, NUMBER_MAX)
    assert rank_of(listed(rank=f"0 - ({text})", inputs=large), here) == -rank
    for requires in (text, f"({text}) > 0.5", f"({text}) / 0.5 > 1"):
        rank_of(listed(requires=requires, inputs=large), here)


def test_nothing_is_ranked_that_cannot_end_fit_or_come_back():
    assert rank_of(listed(takes_s=3601.0), view()) is None
    assert rank_of(listed(takes_s=3599.0), view()) is not None
    assert rank_of(listed(but=("p",)), view()) is None
    busy = view()
    busy.free.take(Needs(cores=2))
    assert rank_of(listed(), busy) is None
    assert rank_of(listed(), busy, ahead=True) is not None
    assert rank_of(listed(needs=Needs(cores=3)), busy, ahead=True) is None


def test_equal_ranks_are_answered_in_an_order_of_each_pilots_own():
    tasks = [(n, listed(f"t{n}")) for n in range(200)]
    answers = []
    for salt in range(20):
        here = view()
        here.salt = salt * 7919
        answers.append({n for n, _ in best_of(tasks, here, 10, ahead=False)})
    assert len(set().union(*answers)) > 100


# -- whose turn it is ----------------------------------------------------------------------------


def turns(shares, count, site="", pilot="", is_there=lambda site: True, now_s=0.0, at_once=True):
    found = []
    for _ in range(count):
        taken = shares.next(site, pilot, is_there, now_s, at_once=at_once)
        if taken is None:
            break
        shares.charge(listed(taken[1], taken[0], takes_s=10.0))
        found.append(taken)
    return found


@pytest.fixture
def shares():
    made = Shares(lambda run, task, number: True)
    for run, user in (("r1", "ann"), ("r2", "ann"), ("r3", "bob")):
        made.open(run, user, 0)
        for n in range(20):
            made.push(listed(f"t{n}", run, urgency=float(n)), n, 0.0)
    return made


def test_users_share_alike_and_so_do_the_runs_of_one(shares):
    runs = [run for run, _ in turns(shares, 20)]
    assert runs.count("r3") == 10 and runs.count("r1") == runs.count("r2") == 5


def test_shares_and_priorities_can_be_changed_at_any_time(shares):
    shares.shares["bob"] = 3.0
    runs = [run for run, _ in turns(shares, 16)]
    assert runs.count("r3") == 12
    shares.shares["bob"], shares.runs["r2"].priority = 0.001, 5
    assert {run for run, _ in turns(shares, 10)} == {"r2"}


def test_of_one_run_the_most_urgent_goes_first(shares):
    assert [task for run, task in turns(shares, 40) if run == "r3"][:3] == ["t19", "t18", "t17"]


def test_a_task_waits_for_the_site_of_its_inputs_but_not_for_ever():
    shares = Shares(lambda run, task, number: True)
    shares.open("r", "ann", 0)
    shares.push(listed("far", home="south"), 1, 0.0)
    assert not turns(shares, 1, "north", now_s=1.0)
    assert not turns(shares, 1, "north", now_s=6.0, at_once=False)
    assert turns(shares, 1, "north", now_s=6.0)
    shares.push(listed("far", home="south"), 2, 0.0)
    assert turns(shares, 1, "north", is_there=lambda site: site != "south", now_s=1.0)
    shares.push(listed("far", home="south", architecture="distributed"), 3, 0.0)
    assert not turns(shares, 1, "north", now_s=600.0)


def test_a_pilot_gets_what_it_holds_unless_much_more_depends_on_others(shares):
    shares.push(listed("held", "r3", holders=("p7",), urgency=12.0), 99, 0.0)
    assert ("r3", "held") not in turns(shares, 1, pilot="p8")
    assert ("r3", "held") in turns(shares, 3, pilot="p7")
    shares.push(listed("little", "r3", holders=("p7",), urgency=3.0), 100, 0.0)
    assert ("r3", "little") not in turns(shares, 3, pilot="p7")


def test_what_much_depends_on_goes_before_what_is_ranked_higher():
    tasks = {1: listed("long", urgency=400.0), 2: listed("short", urgency=100.0)}
    answers = [ranked("p", [(2, 9.0), (1, 0.0)])]
    assert set(dealt(tasks, answers)) == {"long"}
    tasks[1] = listed("long", urgency=110.0)
    assert set(dealt(tasks, answers)) == {"short"}
    tasks = {
        1: listed("long", urgency=400.0, architecture="distributed"),
        2: listed("short", urgency=100.0, architecture="distributed"),
    }
    assert set(dealt(tasks, answers)) == {"short"}


# -- a small grid --------------------------------------------------------------------------------


def test_a_run_follows_the_queue_when_its_host_was_away_and_is_back():
    """Seed 1017: the host of the queue crashes, another hosts it, and the first comes back."""
    scenario = scenario_of("machine restarts", strategy("latebinding"), {})
    outcome = run_scenario(scenario, 1017)
    assert outcome.good
    assert not [line for line in outcome.journals[0] if "by itself" in line]
