"""The parts of the membership one by one: laws, tables and bounds."""

from __future__ import annotations

from itertools import pairwise
from random import Random
from typing import Union, get_args

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sureline.overlay.membership import MESSAGES, MembershipSettings, Offer
from sureline.overlay.membership.damping import HOLD_S_MAX, WINDOW_S, Damping
from sureline.overlay.membership.dissemination import Spreader, sends_max
from sureline.overlay.membership.knowledge import Knowledge, is_sane, size_bytes
from sureline.overlay.membership.messages import Ack, Load, MemberRecord, Probe, State
from sureline.overlay.membership.rota import Rota
from sureline.overlay.membership.settings import OFFER_BYTES_MAX, RUMOUR_BYTES_PROBE
from sureline.overlay.membership.suspicion import Health
from sureline.overlay.membership.table import MemberTable, place_of
from sureline.world.address import name_of
from sureline.world.protocol import Message

OFFER = Offer(
    4.0, 8 << 30, 100 << 30, 1, {"gpu": 2, "ssd": None}, "lab", {"price": 0.5}, ("run",), 1.5e9
)

names = st.sampled_from([f"n{number}" for number in range(12)])
states = st.sampled_from(get_args(State))
records = st.builds(
    lambda name, life, incarnation, state: MemberRecord(
        f"{name}@h:1", life, incarnation, state, OFFER
    ),
    names,
    st.integers(1, 3),
    st.integers(0, 3),
    states,
)


class Clock:
    """A world of which only the time and the dice are used."""

    def __init__(self) -> None:
        self.time = 100.0
        self.random = Random(1)

    def now(self) -> float:
        return self.time

    def elapsed(self) -> float:
        return self.time


def knowing(*known: MemberRecord) -> Knowledge:
    made = Knowledge("me@h:1", Clock(), OFFER, MembershipSettings())
    made.joined = True
    made.hear(known, fresh=True)
    return made


# -- the order of statements -----------------------------------------------------------------------


@given(st.lists(records, max_size=30), st.randoms(use_true_random=False))
def test_in_whatever_order_statements_come_the_same_is_believed(said, dice):
    first = [MemberRecord(f"n{number}@h:1", 0, 0, "alive", OFFER) for number in range(12)]
    one, other = knowing(*first), knowing(*first)
    one.hear(said, fresh=True)
    shuffled = [*said, *said]
    dice.shuffle(shuffled)
    other.hear(shuffled, fresh=True)
    assert one.table.records == other.table.records
    assert one.table.sums() == other.table.sums()
    for name, record in one.table.records.items():
        about = [said_ for said_ in said if name_of(said_.node) == name]
        assert record.order >= max((said_.order for said_ in about), default=record.order)


@pytest.mark.parametrize(
    ("known", "said", "fresh", "believed"),
    [
        ("alive 0", "suspect 0", True, "suspect 0"),
        ("suspect 0", "alive 0", True, "suspect 0"),
        ("suspect 0", "alive 1", True, "alive 1"),
        ("dead 0", "alive 0", True, "dead 0"),
        ("dead 0", "alive 1", True, "alive 1"),
        ("alive 1", "dead 0", True, "alive 1"),
        ("alive 0", "dead 0", True, "dead 0"),
        ("alive 0", "dead 0", False, "suspect 0"),
        ("alive 1", "dead 0", False, "alive 1"),
        ("suspect 0", "dead 0", False, "suspect 0"),
        ("alive 0", "left 0", False, "left 0"),
        ("left 0", "dead 0", True, "left 0"),
        ("left 0", "alive 1", True, "alive 1"),
    ],
)
def test_whom_to_believe(known, said, fresh, believed):
    def record(text: str) -> MemberRecord:
        state, incarnation = text.split()
        return MemberRecord("n1@h:1", 5, int(incarnation), state, OFFER)

    node = knowing(MemberRecord("n1@h:1", 5, 0, "alive", OFFER))
    node.hear([record(known)], fresh=True)
    node.hear([record(said).brief()], fresh=fresh)
    assert node.table.records["n1"] == record(believed)


def test_a_later_life_counts_whatever_was_said_of_the_one_before():
    node = knowing(
        MemberRecord("n1@h:1", 5, 9, "left", OFFER), MemberRecord("n1@h:1", 5, 9, "alive", OFFER)
    )
    node.hear([MemberRecord("n1@h:2", 6, 0, "alive", OFFER)], fresh=True)
    node.hear([MemberRecord("n1@h:1", 5, 50, "alive", OFFER)], fresh=True)
    assert node.table.records["n1"].node == "n1@h:2"


def test_somebody_only_mentioned_is_asked_about_and_somebody_gone_is_not():
    node = knowing()
    node.hear(
        [MemberRecord("n1@h:1", 5, 0, "suspect"), MemberRecord("n2@h:1", 5, 0, "dead")], fresh=True
    )
    assert list(node.lacking) == ["n1"]
    assert list(node.table.records) == ["me"]
    node.hear([MemberRecord("n1@h:1", 5, 0, "alive", OFFER)], fresh=False)
    assert not node.lacking
    assert node.table.records["n1"].state == "alive"


def test_a_change_of_relays_is_told_with_a_new_incarnation_and_kept_by_what_others_say_later():
    teller, node = knowing(), Knowledge("n1@h:1", Clock(), OFFER, MembershipSettings())
    node.joined = True
    node.introduce()
    teller.hear(node.take_rumours(10_000), fresh=True)
    assert teller.members()["n1"].relays == ()
    node.reached_through(("r1@h:1", "r2@h:1"))
    teller.hear(node.take_rumours(10_000), fresh=True)
    assert teller.members()["n1"].relays == ("r1@h:1", "r2@h:1")
    teller.declare("n1", node.own.life, node.own.incarnation, "suspect")
    assert teller.members()["n1"].relays == ("r1@h:1", "r2@h:1")
    node.reached_through(("r1@h:1", "r2@h:1"))
    assert node.own.incarnation == 1, "what has not changed is not told again"


def test_relays_that_are_known_before_the_offer_is_complete_stay_known():
    node = Knowledge("n1@h:1", Clock(), OFFER, MembershipSettings())
    node.reached_through(("r1@h:1",))
    node.offer("n1@h:1", OFFER)
    node.joined = True
    node.introduce()
    teller = knowing(*node.take_rumours(10_000))
    assert teller.members()["n1"].relays == ("r1@h:1",)


def test_relays_that_somebody_made_up_for_this_node_are_contradicted():
    node = knowing()
    node.reached_through(("r1@h:1",))
    doubts: list[int] = []
    node.on_doubted = lambda: doubts.append(1)
    forged = node.own.but(incarnation=9, offer=None, relays=("evil@h:1",))
    node.hear([forged], fresh=True)
    assert (node.own.incarnation, node.own.relays) == (10, ("r1@h:1",))
    assert doubts, "it may be that others cannot dial it"
    many = node.own.but(incarnation=99, offer=None, relays=("r@h:1",) * 5)
    node.hear([many], fresh=True)
    assert node.own.incarnation == 10, "nobody has so many"


@pytest.mark.parametrize("state", ["suspect", "dead", "left"])
def test_what_is_said_of_this_node_and_is_not_so_is_contradicted(state):
    node = knowing()
    own = node.own
    node.hear([own.but(state=state, incarnation=3, offer=None)], fresh=True)
    assert node.own == own.but(incarnation=4, offer=OFFER)
    assert node.own.brief() in node.take_rumours(1000)
    node.hear([own.but(state=state, incarnation=3, offer=None)], fresh=True)
    assert node.own.incarnation == 4


def test_a_later_life_of_this_node_elsewhere_is_a_rival_and_a_dead_one_is_contradicted():
    node = knowing()
    life = node.own.life
    node.hear([MemberRecord("me@h:2", life + 10, 0, "dead", OFFER)], fresh=True)
    assert node.rival is None
    assert node.own.life == life + 11
    node.hear([MemberRecord("me@h:2", life + 20, 0, "alive", OFFER)], fresh=True)
    assert node.rival == MemberRecord("me@h:2", life + 20, 0, "alive", OFFER)
    assert node.own.life == life + 11
    node.contradict_rival()
    assert node.rival is None
    assert node.own.life == life + 21


@pytest.mark.parametrize(
    "load",
    [
        Load("n1", 5, 1 << 63, 1.0, 0),
        Load("n1", 5, -1, 1.0, 0),
        Load("n1", 5, 7, float("nan"), 0),
        Load("n1", 5, 7, float("inf"), 0),
        Load("n1", 5, 7, -1.0, 0),
        Load("n1", 5, 7, 1.0, -3),
    ],
)
def test_an_absurd_load_is_not_kept(load):
    node = knowing()
    node.hear([MemberRecord("n1@h:1", 5, 0, "alive", OFFER)], fresh=True)
    node.hear_loads((load,))
    assert not node.table.loads


def test_nobody_tells_a_node_its_own_load():
    node = knowing()
    node.hear_loads((Load("me", node.own.life, (1 << 53) - 1, 9.0, 9),))
    assert not node.table.loads
    node.report(1.0, 2)
    assert node.table.loads["me"].sequence == 1


@pytest.mark.parametrize(
    "nonsense",
    [
        MemberRecord("n1@h:1", 1 << 60, 0, "alive", OFFER),
        MemberRecord("n1@h:1", 5, 1 << 60, "alive", OFFER),
        MemberRecord("n1@h:1", -1, 0, "alive", OFFER),
        MemberRecord("n" * 1000, 5, 0, "alive", OFFER),
        MemberRecord("", 5, 0, "alive", OFFER),
        MemberRecord("n1@h:1", 5, 0, "alive", Offer(1, 1, tags={"x" * 3000: None})),
        MemberRecord("n1@h:1", 5, 0, "alive", Offer(float("nan"), 1)),
        MemberRecord("n1@h:1", 5, 0, "alive", Offer(float("inf"), 1)),
        MemberRecord("n1@h:1", 5, 0, "alive", Offer(1, -1)),
        MemberRecord("n1@h:1", 5, 0, "alive", Offer(1, (1 << 64) - 1)),
        MemberRecord("n1@h:1", 5, 0, "alive", Offer(1, 1, extras={"price": float("nan")})),
        MemberRecord("n1@h:1", 90_000_000, 0, "alive", OFFER),
    ],
)
def test_nonsense_is_not_kept(nonsense):
    assert not is_sane(nonsense, 0.0)
    node = knowing()
    node.hear([nonsense], fresh=True)
    assert list(node.table.records) == ["me"]


def test_the_table_has_a_bound():
    node = Knowledge("me@h:1", Clock(), OFFER, MembershipSettings(members_max=10))
    node.hear([MemberRecord(f"n{n}@h:1", 1, 0, "alive", OFFER) for n in range(100)], fresh=True)
    assert len(node.table.records) == 10


def test_an_offer_that_is_too_large_is_refused():
    with pytest.raises(ValueError, match="fewer tags"):
        Knowledge("me", Clock(), Offer(1, 1, tags={"x" * OFFER_BYTES_MAX: 1}), MembershipSettings())


# -- the table -------------------------------------------------------------------------------------


@given(st.lists(records, max_size=60))
def test_the_ring_holds_who_is_present(said):
    table = MemberTable()
    for time, record in enumerate(said):
        table.put(record, float(time))
    there = sorted(name for name, record in table.records.items() if record.present)
    assert sorted(name for _, name in table.ring) == there
    assert table.ring == sorted(table.ring)
    assert sorted(table.gone) == sorted(set(table.records) - set(there))
    assert list(table.gone.values()) == sorted(table.gone.values())
    for name in there:
        around = list(table.after(name))
        assert around[-1] == name
        assert sorted(around) == there


@given(st.lists(records, max_size=40), st.lists(records, max_size=40))
def test_sums_differ_exactly_where_tables_do(said, more):
    one, other = MemberTable(), MemberTable()
    for record in said:
        one.put(record, 0.0)
        other.put(record, 0.0)
    assert one.segments_that_differ(other.sums()) == []
    for record in more:
        other.put(record, 0.0)

    def there(table: MemberTable, segment: int) -> list[tuple[str, int, int]]:
        return [(r.node, r.life, r.incarnation) for r in table.segment(segment)]

    assert one.segments_that_differ(other.sums()) == [
        number for number in range(64) if there(one, number) != there(other, number)
    ]


@pytest.mark.parametrize("count", [0, 1, 127, 128, 129, 500])
def test_pages_hold_everybody_once(count):
    table = MemberTable()
    for number in range(count):
        table.put(MemberRecord(f"n{number}", 1, 0, "alive", OFFER), 0.0)
    after: int | None = 0
    read: list[MemberRecord] = []
    for _ in range(10):
        page, after = table.page(after, 128)
        assert len(page) <= 128
        read.extend(page)
        if after is None:
            break
    assert after is None
    assert [record.node for record in read] == [name for _, name in table.ring]
    assert len(read) == count


def test_sums_of_the_wrong_size_are_refused():
    with pytest.raises(ValueError, match="3 bytes"):
        MemberTable().segments_that_differ(b"abc")


def test_only_later_loads_of_the_current_life_count():
    table = MemberTable()
    table.put(MemberRecord("n1", 5, 0, "alive", OFFER), 0.0)
    assert table.put_load(Load("n1", 5, 2, 1.0, 0))
    assert not table.put_load(Load("n1", 5, 2, 9.0, 0))
    assert not table.put_load(Load("n1", 5, 1, 9.0, 0))
    assert not table.put_load(Load("n1", 4, 9, 9.0, 0))
    assert not table.put_load(Load("n2", 5, 9, 9.0, 0))
    table.put(MemberRecord("n1", 6, 0, "alive", OFFER), 0.0)
    assert table.put_load(Load("n1", 6, 1, 3.0, 0))
    table.put(MemberRecord("n1", 6, 0, "dead", OFFER), 0.0)
    assert "n1" not in table.loads


# -- passing on ------------------------------------------------------------------------------------


@given(
    st.lists(st.tuples(st.sampled_from("abcdefgh"), st.integers(1, 40)), max_size=40),
    st.integers(1, 100),
    st.integers(1, 6),
)
def test_news_is_passed_on_so_often_and_no_message_is_too_full(added, room, often):
    spreader: Spreader[int] = Spreader(lambda size: size, items_max=5)
    latest: dict[str, int] = {}
    for name, size in added:
        spreader.add(name, size)
        latest[name] = size
    assert len(spreader) <= 5
    sent: list[int] = []
    for _ in range(200):
        taken = spreader.take(room, often)
        assert sum(taken) <= room
        sent.extend(taken)
    fitting = [size for size in latest.values() if size <= room]
    if len(latest) <= 5 and len(fitting) == len(latest):
        assert sorted(sent) == sorted(fitting * often)
        assert len(spreader) == 0


def test_what_was_passed_on_least_goes_first_and_a_later_piece_replaces_an_earlier():
    spreader: Spreader[str] = Spreader(len, items_max=10)
    spreader.add("a", "a1")
    assert spreader.take(2, 9) == ["a1"]
    spreader.add("b", "b1")
    assert spreader.take(2, 9) == ["b1"]
    spreader.add("a", "a2")
    assert spreader.take(2, 9) == ["a2"]
    assert spreader.take(4, 9) == ["b1", "a2"]


def test_what_is_not_fresh_any_more_waits_for_another_message():
    spreader: Spreader[str] = Spreader(len, items_max=10)
    spreader.add("a", "a1")
    assert [spreader.take(9, 5, fresh=2) for _ in range(3)] == [["a1"], ["a1"], []]
    spreader.add("b", "b1")
    assert spreader.take(9, 5, fresh=2) == ["b1"]
    assert spreader.take(9, 5) == ["b1", "a1"]


def test_what_others_pass_on_as_well_is_passed_on_less_often():
    spreader: Spreader[str] = Spreader(len, items_max=10)
    spreader.add("a", "a1")
    spreader.heard("a")
    spreader.heard("nobody")
    assert [spreader.take(9, 3) for _ in range(3)] == [["a1"], ["a1"], []]
    spreader.add("a", "a2")
    assert spreader.take(9, 3) == ["a2"]


def test_a_watcher_of_who_comes_and_goes_hears_of_no_loads_and_the_table_shows_them():
    node = knowing(MemberRecord("b", 5, 0, "alive", OFFER))
    there: list[str] = []
    loads: list[float] = []
    node.watch(lambda member: there.append(member.name), loads=False)
    node.watch(lambda member: loads.append(member.load), loads=True)
    assert node.members()["b"].load == 0.0
    node.hear_loads([Load("b", 5, 1, 2.0, 0)])
    assert (there, loads, node.members()["b"].load) == ([], [2.0], 2.0)
    node.hear([MemberRecord("c", 5, 0, "alive", OFFER)], fresh=True)
    assert (there, len(loads)) == (["c"], 2)


def test_the_number_of_sends_grows_with_the_logarithm():
    often = [sends_max(10**power) for power in range(1, 6)]
    assert all(later - earlier <= 15 for earlier, later in pairwise(often))


def test_a_probe_is_as_small_as_promised():
    node = knowing(
        *(
            MemberRecord(f"machine-{n}@10.0.0.{n}:7733", 1 << 26, 0, "alive", OFFER)
            for n in range(200)
        )
    )
    probe = Probe(
        rumours=node.take_rumours(RUMOUR_BYTES_PROBE),
        number=1 << 30,
        life=1 << 40,
        about_life=1 << 40,
        about_incarnation=0,
        about_state="alive",
    )
    assert len(probe.rumours) > 5
    assert sum(map(size_bytes, probe.rumours)) <= RUMOUR_BYTES_PROBE
    assert len(msgspec.msgpack.encode(probe)) <= RUMOUR_BYTES_PROBE + 150


def test_every_message_survives_the_wire():
    record = MemberRecord("n1@h:1", 5, 2, "suspect", OFFER)
    samples = {
        "number": 3,
        "life": 5,
        "about_life": 5,
        "about_incarnation": 1,
        "about_state": "dead",
        "about": record,
        "outcome": "silent",
        "after": 1 << 63,
        "records": (record, record.brief()),
        "next": None,
        "sums": b"1234",
        "segments": (1, 2),
        "names": ("n1",),
        "rumours": (record.brief(),),
        "loads": (Load("n1", 5, 1, 2.5, 3),),
        "news": 7,
        "myself": record,
        "record": record,
    }
    decoder = msgspec.msgpack.Decoder(Union[MESSAGES])  # noqa: UP007 - made from a tuple
    for kind in MESSAGES:
        message: Message = kind(**{name: samples[name] for name in kind.__struct_fields__})
        assert decoder.decode(msgspec.msgpack.encode(message)) == message
    assert decoder.decode(msgspec.msgpack.encode(Ack(number=1))) == Ack(number=1)


# -- whom to probe, when to wait, whom to hold back ------------------------------------------------


@settings(max_examples=30)
@given(st.integers(1, 40), st.integers(0, 1000))
def test_everybody_is_visited_within_two_rounds(count, seed):
    everybody = [f"n{number}" for number in range(count)]
    rota = Rota(Random(seed), 4, 5, lambda name: True, lambda: everybody)
    for _ in range(3):
        visits = [rota.next() for _ in range(2 * 5 * (count + 4))]
        assert set(visits) == set(everybody)


def test_nobody_absent_is_visited_and_newcomers_are_visited_in_this_round():
    there = {f"n{number}": None for number in range(20)}
    rota = Rota(Random(1), 4, 5, lambda name: name in there, lambda: list(there))
    for _ in range(10):
        rota.next()
    del there["n3"], there["n4"]
    there["new"] = None
    rota.welcome("new")
    visits = [rota.next() for _ in range(5 * 24)]
    assert "new" in visits
    assert not {"n3", "n4"} & set(visits)
    there.clear()
    assert rota.next() is None


@given(st.floats(0.1, 10), st.floats(3.1, 100))
def test_the_steps_to_notice_a_loss_add_up(probe_s, times):
    made = MembershipSettings(probe_s=probe_s, detect_s=probe_s * times)
    total_s = 2 * made.probe_s + 2 * made.ack_s + made.suspicion_s
    assert total_s <= 0.96 * made.detect_s
    assert made.suspicion_s >= made.ack_s


def test_a_time_too_short_to_answer_is_refused():
    with pytest.raises(ValueError, match=r"set detect_s to at least 3\.1"):
        MembershipSettings(detect_s=3.0)


def test_reports_of_load_share_what_the_grid_can_carry():
    made = MembershipSettings()
    assert made.report_s(10) == 1.0
    assert made.report_s(1500) == 112.5


def test_who_dies_often_is_held_back_longer_each_time_and_forgiven():
    damping = Damping(members_max=2)
    held_s = []
    now = 0.0
    for _ in range(10):
        damping.died("a", now)
        damping.returned("a", now + 1)
        probes = [second for second in range(200) if damping.is_held("a", now + 1 + second)]
        held_s.append(len(probes))
        now += 20
    assert held_s == [0, 0, 5, 10, 20, 40, 80, 120, 120, 120]
    assert HOLD_S_MAX == 120
    assert damping.is_flapping("a", now)
    now += WINDOW_S + 1
    assert not damping.is_flapping("a", now)
    damping.died("a", now)
    damping.returned("a", now)
    assert not damping.is_held("a", now)
    damping.died("b", now)
    damping.died("c", now)
    assert len(damping._sheets) == 2


def test_health_is_bounded_and_recovers():
    health = Health(0.5)
    assert not health.is_late(10.0, 10.4)
    assert health.is_late(10.0, 10.6)
    for _ in range(10):
        health.worse()
    assert health.patience == 8
    health.beat()
    assert health.patience == 8
    for _ in range(7 * health.QUIET_BEATS):
        health.beat()
    assert health.patience == 1


def test_places_on_the_ring_are_the_same_everywhere():
    assert place_of("n1") == 0xC16952960BCB12FD


@pytest.mark.parametrize(("state", "is_passed_on"), [("alive", False), ("dead", True)])
def test_who_has_come_is_not_told_on_once_it_was_heard_often_who_has_gone_is(state, is_passed_on):
    others = [MemberRecord(f"n{n}@h:1", 1, 0, "alive", OFFER) for n in range(500)]
    made = knowing(*others)
    made.rumours.take(1 << 30, 0)  # of these nothing is said any more
    news = MemberRecord("n7@h:1", 1, 1, state, OFFER)
    for _ in range(8):
        made.hear((news,), fresh=True)
    told = [record.node for record in made.take_rumours(1 << 20)]
    assert (news.node in told) == is_passed_on
