"""`spread`: the least loaded peer that meets the needs, never more on it than it has."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from toy_engine import NotingEngine

from sureline.peer.capacity import Capacity, Ledger
from sureline.peer.jobs import JobEnded
from sureline.peer.messages import Finished
from sureline.run.port import Bound, Over
from sureline.strategies.ahead import AHEAD_MAX
from sureline.strategies.books import PATIENCE, Books
from sureline.strategies.nearby import FETCHED_BYTES_PER_S, LOOK_S
from sureline.strategies.spread import Spread
from sureline.workflow.files import FileRecord
from sureline.workflow.model import Needs

ONE = Needs()


def placer(salt="run", **cores):
    made = NotingEngine(Spread(salt))
    for peer, count in cores.items():
        made.join(peer, Capacity(cores=count, memory_bytes=100))
    return made


def places(made):
    return made.place()


def test_tasks_go_to_the_least_loaded_by_share_of_its_cores():
    made = placer(big=8, small=2)
    for task in range(10):
        made.ready(task, ONE, 1.0)
    order = [peer for _, peer in places(made)]
    assert Counter(order) == {"big": 8, "small": 2}
    assert Counter(order[:5]) == {"big": 4, "small": 1}, "both are half full by then"


def test_what_others_use_counts_as_load_and_what_we_use_is_not_counted_twice():
    made = placer(a=4, b=4)
    made.deciding.load("a", 2.0)
    for task in range(3):
        made.ready(task, ONE, 1.0)
    assert [peer for _, peer in places(made)][:2] == ["b", "b"]
    made.deciding.load("b", 2.0)  # those are ours
    made.deciding.load("a", 3.5)
    made.ready(9, ONE, 1.0)
    assert places(made) == [(9, "b")]


def test_submitters_do_not_all_choose_the_same_peer():
    chosen = Counter()
    for number in range(200):
        made = placer(f"run-{number}", **{f"p{i}": 4 for i in range(10)})
        made.ready(0, ONE, 1.0)
        chosen[places(made)[0][1]] += 1
    assert len(chosen) == 10
    assert max(chosen.values()) < 50


def test_the_choice_does_not_depend_on_the_order_of_joining():
    names = [f"p{i}" for i in range(9)]
    one, other = placer(**dict.fromkeys(names, 2)), placer(**dict.fromkeys(reversed(names), 2))
    for made in (one, other):
        for task in range(18):
            made.ready(task, ONE, float(task))
    assert places(one) == places(other)


def test_of_equally_loaded_peers_the_one_with_the_data_is_taken():
    made = placer(**{f"p{i}": 2 for i in range(5)})
    held = {0: {"p3": 10, "p1": 30}, 1: {"p1": 5}, 2: {"gone": 99}}
    made.holds = held
    made.ready(0, ONE, 3.0)
    made.ready(1, ONE, 2.0)
    made.ready(2, ONE, 1.0)
    (_, first), (_, second), (_, third) = places(made)
    assert first == "p1"
    assert second != "p1", "it is loaded now"
    assert third != "gone"


def test_a_peer_that_left_gets_nothing_and_gives_nothing_back():
    made = placer(a=1, b=1)
    for task in range(3):
        made.ready(task, ONE, 1.0)
    on = dict(reversed(pair) for pair in places(made))
    made.deciding.gone("a")
    made.over(on["a"], "a")
    assert places(made) == []
    made.join("c", Capacity(cores=1, memory_bytes=0))
    assert places(made) == [(2, "c")]


def test_needs_beyond_cores_are_met():
    made = placer(plain=4)
    made.join(
        "rich",
        Capacity(cores=4, memory_bytes=500, disk_bytes=50, gpus=1, tags={"ssd": None, "lic": 1}),
    )
    special = [
        Needs(gpus=1),
        Needs(memory_bytes=200),
        Needs(disk_bytes=50),
        Needs(tags=(("ssd", 1),)),
    ]
    for task, needs in enumerate(special):
        made.ready(task, needs, 1.0)
    assert sorted(places(made)) == [(task, "rich") for task in range(4)]


def test_a_wide_task_is_overtaken_but_a_peer_is_kept_for_it_in_the_end():
    made = placer(a=2, b=2, tiny=1)
    wide = Needs(cores=2)
    running = []
    for task in range(5):
        made.ready(task, ONE, 1.0)
        running += places(made)
    made.ready(1000, wide, 9.0)
    for task in range(5, 4 * PATIENCE):
        made.ready(task, ONE, 1.0)
    for _ in range(3 * PATIENCE):
        task, peer = running.pop(0)
        made.over(task, peer)
        new = places(made)
        if (1000, "a") in new or (1000, "b") in new:
            break
        running += new
    else:
        pytest.fail("the wide task starved")
    assert Counter(peer for _, peer in running)["tiny"] == 1, "others went on meanwhile"


def test_tasks_that_nobody_can_run_are_in_nobodys_way():
    made = placer(a=1)
    made.ready(1000, Needs(gpus=4), 9.0)
    for task in range(3 * PATIENCE):
        made.ready(task, ONE, 1.0)
        ((placed, peer),) = places(made)
        assert placed == task
        made.over(task, peer)
    made.join("g", Capacity(cores=1, memory_bytes=0, gpus=4))
    assert places(made) == [(1000, "g")]


def test_adopted_attempts_are_booked_also_where_they_do_not_fit():
    made = placer(a=2)
    for task in range(7, 10):
        made.adopt(task, ONE, "a")
    made.ready(0, ONE, 1.0)
    assert places(made) == []
    for _ in range(3):
        made.over(9, "a")
    assert places(made) == [(0, "a")]


_needs = st.builds(
    Needs,
    cores=st.sampled_from([0.5, 1.0, 2.0, 3.0]),
    memory_bytes=st.sampled_from([0, 30, 60]),
    gpus=st.sampled_from([0, 0, 1]),
    tags=st.sampled_from([(), (), (("lic", 1),)]),
)
_steps = st.lists(
    st.one_of(
        st.tuples(st.just("ready"), _needs),
        st.tuples(st.just("release"), st.integers(0, 30)),
        st.tuples(st.just("join"), st.integers(0, 4)),
        st.tuples(st.just("leave"), st.integers(0, 4)),
        st.tuples(st.just("load"), st.integers(0, 4)),
    ),
    max_size=60,
)


@given(_steps)
@settings(max_examples=150, deadline=None)
def test_no_peer_is_given_more_than_it_has_and_every_task_is_placed_once(steps):
    made = NotingEngine(Spread("r"))
    ledgers: dict[str, Ledger] = {}
    held: list[tuple[int, Needs, str]] = []
    needs_of: list[Needs] = []
    placed: set[int] = set()
    for what, value in steps:
        peer = f"p{value}"
        if what == "ready":
            made.ready(len(needs_of), value, 1.0)
            needs_of.append(value)
        elif what == "release" and value < len(held):
            task, needs, on = held.pop(value)
            ledgers[on].give_back(needs)
            made.over(task, on)
        elif what == "join" and peer not in ledgers:
            capacity = Capacity(cores=1 + value, memory_bytes=90, gpus=value % 2, tags={"lic": 2})
            ledgers[peer] = Ledger(capacity)
            made.join(peer, capacity)
        elif what == "leave" and peer in ledgers:
            for task, needs, on in [entry for entry in held if entry[2] == peer]:
                made.over(task, on)
                held.remove((task, needs, on))
            del ledgers[peer]
            made.deciding.gone(peer)
        elif what == "load":
            made.deciding.load(peer, 1.0)
        for task, on in places(made):
            assert task not in placed
            placed.add(task)
            ledgers[on].take(needs_of[task])  # asserts that it fits
            held.append((task, needs_of[task], on))
    for task, needs in enumerate(needs_of):
        if task not in placed:
            assert not any(ledger.fits(needs) for ledger in ledgers.values())


def test_a_thousand_peers_and_many_tasks():
    made = placer(**{f"p{i}": 4 for i in range(1000)})
    for task in range(5000):
        made.ready(task, ONE, 1.0)
    first = places(made)
    assert Counter(Counter(peer for _, peer in first).values()) == {4: 1000}
    for task, peer in first[:1000]:
        made.over(task, peer)
    assert len(places(made)) == 1000


def test_asking_who_is_best_reserves_nothing():
    books = Books("r")
    books.join("a", Capacity(cores=2, memory_bytes=0))
    books.take("a", Needs(cores=1))
    for _ in range(3 * PATIENCE):
        assert books.best(Needs(cores=2)) is None
    assert books.best(Needs(cores=1)) is not None, "nobody is kept for who was only asked about"


class Later:
    """A world that only keeps what is to be done later."""

    def __init__(self) -> None:
        self.time_s = 0.0
        self.due = []

    def now(self) -> float:
        return self.time_s

    elapsed = now

    def after(self, seconds, action):
        self.delay_s = seconds
        self.due.append(action)


def ahead(tasks=40, took_s=0.001):
    """One target of two cores, whose first two tasks have ended."""
    made = NotingEngine(Spread("run", Later()))
    made.join("a", Capacity(cores=2, memory_bytes=100))
    for task in range(tasks):
        made.ready(task, ONE, 1.0)
    assert len(places(made)) == 2, "nothing is known of how long they take"
    for task in range(2):
        ended = Finished("r", f"t{task}", 1, JobEnded("succeeded", 0, elapsed_s=took_s))
        made.deciding.over(Over(Bound(task, 1, "a", 0.0), "succeeded", ended))
    return made


def test_short_tasks_are_bound_ahead_as_long_as_there_are_plenty():
    assert len(places(ahead())) == 2 + 2 * AHEAD_MAX
    assert len(places(ahead(tasks=20))) == 20 - 2 - 2, "the last ones go to whoever has room first"
    assert len(places(ahead(took_s=0.03))) == 2 + 6, "a tenth of a second for each core"


def test_tasks_that_take_a_while_are_not():
    assert len(places(ahead(took_s=1.0))) == 2


def test_who_waits_for_long_is_taken_back_when_there_is_room():
    made = ahead()
    assert len(places(made)) == 2 + 2 * AHEAD_MAX
    made.withdrawn = []
    made.attempts = lambda: list(made.under_way.values())
    made.withdraw = lambda task, attempt: made.withdrawn.append(task)
    world = made.deciding._ground
    world.time_s = 10.0
    world.due.pop()()
    assert made.withdrawn == [], "nobody else has room"
    made.join("b", Capacity(cores=1, memory_bytes=100))
    world.due.pop()()
    assert len(made.withdrawn) == 1


def test_tasks_that_read_the_same_large_file_go_where_it_is():
    made = placer(a=1, b=1)
    for task in range(12):
        made.files[task] = [FileRecord("in", f"digest{task % 3}", 100 << 20)]
        made.ready(task, ONE, 1.0)
    read = {"a": [], "b": []}
    for _ in range(6):
        for task, peer in places(made):
            read[peer].append(task % 3)
            made.over(task, peer)
    assert sorted(read["a"] + read["b"]) == [0] * 4 + [1] * 4 + [2] * 4
    assert len(set(read["a"])) + len(set(read["b"])) == 4, "one file is needed by both at the end"


def reading(files, **cores):
    """A strategy with a clock, and tasks of which each reads these large files."""
    made = NotingEngine(Spread("run", Later()))
    made.wake = lambda: None
    for peer, count in cores.items():
        made.join(peer, Capacity(cores=count, memory_bytes=100))
    for task, names in enumerate(files):
        made.files[task] = [FileRecord(name, name, 100 << 20) for name in names]
        made.ready(task, ONE, 1.0)
    return made, made.deciding._ground


def test_an_idle_peer_waits_for_as_long_as_fetching_takes_before_it_fetches_what_another_has():
    made, world = reading(["x"] * 3, a=1, b=1)
    ((task, peer),) = places(made)
    assert places(made) == [] and len(world.due) == 1
    world.time_s = (100 << 20) / FETCHED_BYTES_PER_S - 1e-9
    world.due.pop()()
    assert places(made) == [] and world.delay_s >= LOOK_S, "time must pass between two looks"
    world.time_s = 0.0
    made.over(task, peer)
    ((task, again),) = places(made)
    assert again == peer, "who has it takes the next"
    world.time_s = (100 << 20) / FETCHED_BYTES_PER_S + 0.1
    ((_, other),) = places(made)
    assert other != peer, "it has waited long enough"


def test_nobody_waits_for_what_no_single_peer_has_nor_for_files_that_nobody_has():
    made, _ = reading(["x", "y"], a=1, b=1)
    assert len(places(made)) == 2
    made, _ = reading(["x", "y", "xy"], a=2, b=2)
    assert len(places(made)) == 3, "one must fetch for the last in any case"


def test_small_tasks_go_to_a_peer_that_waits():
    made, _ = reading(["x"] * 3, a=1, b=1)
    ((_, peer),) = places(made)
    made.ready(9, ONE, 1.0)
    ((task, other),) = places(made)
    assert task == 9 and other != peer


def test_how_fast_files_come_is_learned():
    made, world = reading(["x"] * 3, a=1)
    ((task, peer),) = places(made)
    world.time_s = 1000.0  # fetching took that long
    ended = Finished("r", f"t{task}", 1, JobEnded("succeeded", 0, elapsed_s=1.0))
    made.deciding.over(Over(Bound(task, 1, peer, 0.0), "succeeded", ended))
    assert len(places(made)) == 1
    made.join("b", Capacity(cores=1, memory_bytes=100))
    assert places(made) == []
    world.time_s += (100 << 20) / FETCHED_BYTES_PER_S + 0.1
    assert places(made) == [], "it is worth a longer wait"
