"""What a node keeps for others."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from sureline.overlay.kademlia.ids import key_of
from sureline.overlay.kademlia.messages import ValueRecord
from sureline.overlay.kademlia.settings import KademliaSettings
from sureline.overlay.kademlia.storage import Storage

SETTINGS = KademliaSettings(keys_max=5, values_max=3, value_bytes_max=8, value_ttl_s=100.0)
KEY = key_of("k")


def record(
    value: bytes, ttl_s: float = 50.0, key: bytes = KEY, publisher: str = "p"
) -> ValueRecord:
    return ValueRecord(key, value, publisher, ttl_s)


def values(storage: Storage, now: float) -> list[bytes]:
    return [r.value for r in storage.records(KEY, now)]


def test_values_append_and_each_expires_in_its_own_time() -> None:
    storage = Storage(SETTINGS)
    storage.keep(record(b"a", 10.0), 0.0)
    storage.keep(record(b"b", 20.0), 0.0)
    assert values(storage, 9.0) == [b"a", b"b"] and values(storage, 11.0) == [b"b"]
    storage.expire(21.0)
    assert len(storage) == 0


def test_storing_again_renews_but_never_shortens() -> None:
    storage = Storage(SETTINGS)
    storage.keep(record(b"a", 10.0), 0.0)
    storage.keep(record(b"a", 50.0), 5.0)
    storage.keep(record(b"a", 1.0), 6.0)
    assert values(storage, 54.0) == [b"a"] and values(storage, 56.0) == []


def test_no_record_lives_longer_than_the_settings_allow() -> None:
    storage = Storage(SETTINGS)
    storage.keep(record(b"a", 1e9), 0.0)
    assert values(storage, 99.0) == [b"a"] and values(storage, 101.0) == []


def test_a_full_key_gives_up_what_expires_first() -> None:
    storage = Storage(SETTINGS)
    for value, ttl_s in ((b"a", 30.0), (b"b", 10.0), (b"c", 40.0), (b"d", 20.0)):
        assert storage.keep(record(value, ttl_s), 0.0)
    assert values(storage, 0.0) == [b"a", b"c", b"d"]


def test_only_the_publisher_takes_a_value_back() -> None:
    storage = Storage(SETTINGS)
    storage.keep(record(b"a", publisher="anna"), 0.0)
    storage.keep(record(b"a", publisher="mallory"), 0.0)
    storage.forget(KEY, b"a", "mallory")
    assert values(storage, 0.0) == [b"a"]
    storage.forget(KEY, b"a", "anna")
    assert len(storage) == 0


def test_what_nobody_stored_lately_is_unattended() -> None:
    storage = Storage(SETTINGS)
    storage.keep(record(b"a"), 0.0)
    assert list(storage.unattended(5.0)) == [KEY]
    storage.attend(KEY, 6.0)
    assert list(storage.unattended(5.0)) == []


@given(
    st.lists(
        st.tuples(
            st.integers(0, 9),
            st.binary(max_size=10),
            st.one_of(st.floats(-1, 200), st.just(float("nan")), st.just(float("inf"))),
        )
    )
)
def test_whatever_is_stored_the_bounds_hold(stores: list[tuple[int, bytes, float]]) -> None:
    storage = Storage(SETTINGS)
    for now, (key, value, ttl_s) in enumerate(stores):
        key20 = key_of(str(key))
        kept = storage.keep(record(value, ttl_s, key20), now)
        assert not kept or (len(value) <= 8 and ttl_s > 0)
        assert kept <= (ttl_s < 1e-9 or value in [r.value for r in storage.records(key20, now)])
        assert len(storage) <= 5
        assert all(storage.values_under(k) <= 3 for k in storage)
        assert all(0 < r.ttl_s <= 100 for k in storage for r in storage.records(k, now))
