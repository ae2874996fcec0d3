"""The routing table: laws, and what becomes of contacts."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from sureline.overlay.kademlia.ids import ID_BITS, Region, id_of, key_of
from sureline.overlay.kademlia.settings import KademliaSettings
from sureline.overlay.kademlia.table import RoutingTable

ME = "me@10.0.0.1:1/kademlia"
SETTINGS = KademliaSettings(k=4, spares_max=3, gone_max=5, lost_max=4)


def contact(number: int, port: int = 1) -> str:
    return f"n{number}@10.0.0.1:{port}/kademlia"


def table_of(count: int) -> RoutingTable:
    table = RoutingTable(ME, SETTINGS)
    for number in range(count):
        table.seen(contact(number), 0.0)
    return table


def bucket_mates(count: int) -> list[str]:
    """Contacts that share the far half with each other."""
    far = [contact(n) for n in range(200) if (id_of(contact(n)) ^ id_of(ME)).bit_length() == 160]
    return far[:count]


def test_an_identifier_is_160_bits_of_the_name_alone() -> None:
    assert id_of("a@h:1/kademlia") == id_of("a@other:2/kademlia") != id_of("b@h:1/kademlia")
    assert 150 < id_of("a").bit_length() <= ID_BITS
    assert len(key_of("file")) == 20


@given(st.integers(0, 120), st.integers(0, 2**160 - 1), st.integers(1, 30))
def test_closest_is_what_sorting_all_contacts_by_distance_gives(
    count: int, target: int, wanted: int
) -> None:
    table = table_of(count)
    by_distance = sorted(table.contacts(), key=lambda c: id_of(c) ^ target)
    assert table.closest(target, wanted) == by_distance[:wanted]


@given(st.integers(0, 60), st.integers(0, 6), st.data())
def test_within_a_region_are_exactly_its_contacts_and_spares(
    count: int, length: int, data: st.DataObject
) -> None:
    table = table_of(count)
    region = Region(data.draw(st.integers(0, 2**length - 1)), length)
    everyone = [c for b in table.buckets().values() for c in (*b.contacts, *b.spares)]
    assert sorted(table.within(region)) == sorted(c for c in everyone if id_of(c) in region)


EVENTS = st.tuples(
    st.sampled_from(["seen", "heard_of", "silent", "gone", "left", "moved"]), st.integers(0, 30)
)


@given(st.lists(EVENTS, max_size=150))
def test_whatever_happens_the_table_stays_bounded_and_without_duplicates(
    events: list[tuple[str, int]],
) -> None:
    table = RoutingTable(ME, SETTINGS)
    for now, (what, number) in enumerate(events):
        one = contact(number)
        if what == "seen":
            table.seen(one, now)
            assert table.is_contact(one)
        elif what == "moved":
            table.seen(contact(number, port=2), now)
        elif what == "heard_of":
            table.heard_of(one, now)
        elif what == "silent":
            table.silent(one)
        else:
            table.gone(one, now, for_good=what == "left")
            assert not table.is_contact(one)
        table.seen(ME, now)
        everyone = [c for b in table.buckets().values() for c in (*b.contacts, *b.spares)]
        assert len(everyone) == len(set(everyone)) and ME not in everyone
        for order, bucket in table.buckets().items():
            assert len(bucket.contacts) <= SETTINGS.k
            assert len(bucket.spares) <= SETTINGS.spares_max
            assert all((id_of(c) ^ id_of(ME)).bit_length() == order for c in bucket.contacts)
            assert len({id_of(c) for c in bucket.contacts}) == len(bucket.contacts)
        assert len(table.lost) <= SETTINGS.lost_max and len(set(table.lost)) == len(table.lost)
        assert len(table._gone) <= SETTINGS.gone_max


def test_the_least_recently_seen_makes_room_and_becomes_a_spare() -> None:
    table = RoutingTable(ME, SETTINGS)
    first, second, *others = bucket_mates(5)
    for one in (first, second, *others[:2], first):
        table.seen(one, 0.0)
    table.seen(others[2], 1.0)
    bucket = table.buckets()[160]
    assert second not in bucket.contacts and bucket.spares == [second]
    assert bucket.contacts[-2:] == [first, others[2]]


def test_one_silence_makes_a_spare_a_second_loses_it_and_a_word_brings_it_back() -> None:
    table = table_of(1)
    one = contact(0)
    table.silent(one)
    assert not table.is_contact(one) and table.candidates(0, 5) == [one]
    assert table.closest(0, 5) == [], "nobody else is told of a silent contact"
    table.silent(one)
    assert table.candidates(0, 5) == [] and table.lost == [one]
    table.seen(one, 1.0)
    assert table.is_contact(one) and table.lost == []


def test_hearsay_is_never_passed_on() -> None:
    table = table_of(0)
    table.heard_of(contact(1), 0.0)
    assert table.closest(0, 5) == [] and table.candidates(0, 5) == [contact(1)]


def test_who_refused_is_not_believed_in_for_a_while() -> None:
    table = table_of(1)
    table.gone(contact(0), 100.0)
    table.heard_of(contact(0), 100.0 + SETTINGS.gone_s / 2)
    assert table.candidates(0, 5) == []
    table.heard_of(contact(0), 101.0 + SETTINGS.gone_s)
    assert table.candidates(0, 5) == [contact(0)]
    table.gone(contact(0), 200.0)
    table.seen(contact(0), 201.0)
    assert table.is_contact(contact(0)), "its own word counts at once"


def test_the_same_name_at_another_address_replaces_the_old_one() -> None:
    table = table_of(3)
    moved = contact(1, port=2)
    table.seen(moved, 1.0)
    assert table.is_contact(moved) and not table.is_contact(contact(1))


def test_guests_other_parts_and_ourselves_are_no_contacts() -> None:
    table = table_of(0)
    for stranger in ("n1+7@10.0.0.1:1/kademlia", "n1@10.0.0.1:1/peer", "me@10.0.0.9:1/kademlia"):
        assert not table.seen(stranger, 0.0)
    assert len(table) == 0


def test_the_number_of_nodes_is_estimated_within_a_factor_of_two() -> None:
    table = RoutingTable(ME, KademliaSettings())
    for number in range(1000):
        table.seen(contact(number), 0.0)
    assert 500 < table.nodes_estimated() < 2000
