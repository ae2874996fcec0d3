"""The ring on good days: joining, finding, taking, ranges; and its parts alone."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from ring_net import PART, Net, values_from

from sureline.overlay.kademlia.ids import key_of
from sureline.overlay.ring import Captured, Feature, Query, RingSettings, ValueRange
from sureline.overlay.ring.places import SPACE, distance, place_of
from sureline.world.address import at
from sureline.world.simulated import Constant, Link

numbers = st.floats(-1e6, 1e6)


@given(numbers, numbers)
def test_positions_keep_the_order_of_values(one: float, other: float) -> None:
    feature = Feature("f", -1000.0, 1000.0)
    if feature.share(one) < feature.share(other):
        assert one < other
        assert feature.position(one, "a") < feature.position(other, "b")
    assert feature.first(one) <= feature.position(one, "x") <= feature.last(one) < SPACE


@pytest.fixture(scope="module")
def net() -> Net:
    """Forty nodes that have been left alone for a while."""
    made = Net(1)
    made.grow(40)
    assert made.until(made.is_whole)
    for node in list(made.live):
        made.publish(node, values_from(made.random))
    made.pass_time(15.0)
    return made


def test_everybody_finds_the_owner_of_a_key(net: Net) -> None:
    for number in range(50):
        key = int.from_bytes(key_of(f"key {number}"))
        found: list[list[str]] = []
        asked = net.live[net.random.choice(sorted(net.live))]
        asked.lookup(key, lambda owners, found=found: found.append([o.agent for o in owners]))
        assert net.until(lambda found=found: bool(found))
        true = sorted((distance(key, place_of(at(n, PART))), at(n, PART)) for n in net.live)
        assert found[0][:3] == [agent for _, agent in true[:3]]


def test_ranges_are_what_a_full_scan_gives(net: Net) -> None:
    for _ in range(60):
        query = net.a_query()
        found = net.find(query)
        assert found.whole
        assert [meta.publisher for meta in found.metas] == net.scan(query), query


def test_a_change_is_seen_at_once(net: Net) -> None:
    node = sorted(net.live)[5]
    net.publish(node, {"cpu": 3.25, "memory": 16.0})
    net.pass_time(2.0)
    found = net.find(Query("cpu", {"cpu": ValueRange(3.25, 3.25)}))
    assert [meta.publisher for meta in found.metas] == [at(node, PART)]
    net.publish(node, {"cpu": 77.0, "memory": 16.0})
    net.pass_time(2.0)
    assert not net.find(Query("cpu", {"cpu": ValueRange(3.25, 3.25)})).metas


def test_what_cannot_be_published_or_asked_is_refused(net: Net) -> None:
    agent = next(iter(net.live.values()))
    with pytest.raises(ValueError, match="cannot be published"):
        agent.publish({"cpu": math.nan})
    with pytest.raises(ValueError, match="no feature"):
        agent.find(Query("colour"), lambda found: None)
    with pytest.raises(ValueError, match="at most"):
        agent.store(key_of("x"), b"x" * 20_000, lambda kept: None)
    with pytest.raises(ValueError, match="span"):
        Feature("f", 1.0, 1.0)


def store(net: Net, name: str, value: bytes = b"molecule") -> bytes:
    done: list[bool] = []
    key = key_of(name)
    net.live[net.random.choice(sorted(net.live))].store(key, value, done.append)
    assert net.until(lambda: bool(done)) and done[0]
    return key


def captures(net: Net, key: bytes, nodes: list[str]) -> list[tuple[str, Captured | None, str]]:
    done: list[tuple[str, Captured | None, str]] = []
    for node in nodes:
        net.live[node].capture(key, lambda held, why, node=node: done.append((node, held, why)))
    assert net.until(lambda: len(done) == len(nodes))
    return done


def test_of_many_takers_one_has_it(net: Net) -> None:
    for number in range(5):
        key = store(net, f"wanted {number}")
        takers = net.random.sample(sorted(net.live), 8)
        done = captures(net, key, takers)
        won = [(node, held) for node, held, _ in done if held is not None]
        assert len(won) == 1 and won[0][1].value == b"molecule"
        assert {why for _, held, why in done if held is None} <= {"held", "unknown"}
        ended: list[bool] = []
        net.live[won[0][0]].captures.consume(won[0][1], ended.append)
        assert net.until(lambda ended=ended: bool(ended)) and ended == [True]
        (_, held, why), *_ = captures(net, key, takers[:1])
        assert held is None and why == "gone"


def test_a_lease_runs_out_unless_it_is_renewed(net: Net) -> None:
    key = store(net, "leased")
    first, second = net.random.sample(sorted(net.live), 2)
    (_, held, _), *_ = captures(net, key, [first])
    assert held is not None
    net.pass_time(20.0)
    renewed: list[Captured | None] = []
    net.live[first].captures.renew(held, lambda again, why: renewed.append(again))
    assert net.until(lambda: bool(renewed)) and renewed[0] is not None
    net.pass_time(15.0)
    assert captures(net, key, [second])[0][2] == "held"
    net.pass_time(20.0)
    assert net.sim.time > renewed[0].until
    (_, now_held, _), *_ = captures(net, key, [second])
    assert now_held is not None
    late: list[bool] = []
    net.live[first].captures.consume(renewed[0], late.append)
    assert net.until(lambda: bool(late)) and late == [False]


def test_a_molecule_is_put_back_as_another_at_once(net: Net) -> None:
    key = store(net, "level", b"LEVEL:1")
    taker, other = net.random.sample(sorted(net.live), 2)
    (_, held, _), *_ = captures(net, key, [taker])
    assert held is not None
    done: list[bool] = []
    net.live[taker].captures.put_back(held, b"LEVEL:1:READY", done.append)
    assert net.until(lambda: bool(done)) and done == [True]
    (_, now, _), *_ = captures(net, key, [other])
    assert now is not None and now.value == b"LEVEL:1:READY"


@pytest.mark.parametrize("way", ["consume", "put_back"])
def test_what_was_let_go_is_let_go_once_and_not_renewed(net: Net, way: str) -> None:
    key = store(net, f"let go by {way}")
    taker = net.live[net.random.choice(sorted(net.live))]
    (_, held, _), *_ = captures(net, key, [taker.me.split("/")[0]])
    assert held is not None
    done: list[bool] = []
    for _ in range(2):  # the second time it is done already
        if way == "consume":
            taker.captures.consume(held, done.append)
        else:
            taker.captures.put_back(held, b"again", done.append)
        taker.captures.renew(held, lambda again, why: None)
    assert net.until(lambda: len(done) == 2) and done == [True, True]
    renewed: list[str] = []
    taker.captures.renew(held, lambda again, why: renewed.append(why if again is None else "had"))
    other = taker.captures.put_back if way == "consume" else taker.captures.consume
    args = (held, b"") if way == "consume" else (held,)
    other(*args, done.append)
    assert net.until(lambda: len(renewed) == 1 and len(done) == 3)
    assert renewed == ["no longer taken by us"] and done[2] is False


def test_what_was_never_made_is_missing(net: Net) -> None:
    assert captures(net, key_of("nobody made this"), sorted(net.live)[:1])[0][2] == "missing"


def test_a_dead_holder_s_molecules_move_on() -> None:
    net = Net(2)
    net.grow(12)
    assert net.until(net.is_whole)
    key = store(net, "moves")
    for _ in range(4):  # one after the other; each time three hold it again
        holder = next(n for n, a in net.live.items() if a.captures.free(key, a.world.elapsed()))
        net.crash(holder)
        assert net.until(lambda: len(holders(net, key)) == 3, 60.0)
    assert captures(net, key, [sorted(net.live)[0]])[0][1] is not None


def holders(net: Net, key: bytes) -> list[str]:
    found = {node: agent.captures.registers.records.get(key) for node, agent in net.live.items()}
    live = {node: record for node, record in found.items() if record and record.is_live}
    newest = max((record.configuration for record in live.values()), default=0)
    return [node for node, record in live.items() if record.configuration == newest]


def test_what_a_range_costs() -> None:
    """The best of many: from neighbour to neighbour it is a lookup and a few nodes more."""
    net = Net(3, settings=RingSettings(tick_s=0.5))
    net.grow(60, 0.02)
    net.pass_time(20.0)
    for node in list(net.live):
        net.publish(node, {"cpu": net.random.uniform(0, 100)})
    net.pass_time(5.0)
    best = Query("cpu", {"cpu": ValueRange(high=80.0, high_open=True)}, most=1)
    every = Query("cpu", {"cpu": ValueRange(10.0, 90.0)})
    for query in (best, every):
        found = [net.find(query) for _ in range(10)]
        assert all([m.publisher for m in f.metas] == net.scan(query) for f in found)
        mean = sum(f.questions for f in found) / len(found)
        # log2 n, and the nodes of the range
        assert mean <= (20 if query is best else 6 + 60)


# Slow days.


def far(delay_s: float) -> Link:
    return Link(delay=Constant(delay_s))


def test_nodes_that_are_all_slow_are_not_taken_for_dead() -> None:
    """Answers take three times as long as they were waited for at first; after a while all are
    waited for, and the ring says no more than on other days."""
    net = Net(5)
    net.grow(16)
    assert net.until(net.is_whole)
    usual = said_in(net, 60.0)
    net.sim.network.set_default(far(6.0))
    net.pass_time(120.0)
    slow = said_in(net, 120.0) / 2
    assert net.is_whole() and not any(len(a.base.table.lost) for a in net.live.values())
    assert slow < 1.2 * usual, (slow, usual)
    net.sim.network.set_default(far(0.01))
    net.pass_time(60.0)
    assert all(a.base.requests.trips.failed_s < 2.0 for a in net.live.values()), "and forgotten"


def said_in(net: Net, seconds: float) -> int:
    before = sum(one.sent for one in net.sim.counters.by_type().values())
    net.pass_time(seconds)
    return sum(one.sent for one in net.sim.counters.by_type().values()) - before


def test_no_more_than_some_questions_are_on_their_way() -> None:
    net = Net(6, settings=RingSettings(asking_max=5, asked_max=100))
    net.grow(12)
    assert net.until(net.is_whole)
    net.sim.network.set_default(far(0.1))
    asked, found = net.live["n3"], []
    for number in range(300):
        asked.lookup(int.from_bytes(key_of(f"many {number}")), found.append)
    most = 0
    while len(found) < 300:
        net.pass_time(0.05)
        most = max(most, len(asked.base.requests))
    assert most == 5
    assert 60 < sum(bool(owners) for owners in found) < 200, "too many in line are not asked"


def test_what_changes_all_the_time_is_told_as_it_is_when_there_is_time() -> None:
    net = Net(7)
    net.grow(20)
    assert net.until(net.is_whole)
    net.publish("n4", {"cpu": 1.0, "memory": 1.0})
    net.pass_time(2.0)
    net.sim.network.set_default(far(0.2))
    quiet = said_in(net, 10.0)
    for number in range(100):
        net.sim.at(net.sim.time + number / 10, lambda n=number: net.publish("n4", changed(n)))
    told = said_in(net, 20.0) - 2 * quiet
    assert told < 100 * 2 * 3, "fewer than one message for each change, feature and owner"
    assert net.find(Query("cpu")).metas[0].features == changed(99)
    net.publish("n4", {})
    net.pass_time(5.0)
    assert not net.find(Query("cpu")).metas


def changed(number: int) -> dict[str, float]:
    return {"cpu": float(number), "memory": 64.0 - number % 8}
