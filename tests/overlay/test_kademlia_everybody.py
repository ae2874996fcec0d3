"""Nodes that are told of all others: no search, no upkeep; what is stored is where it belongs."""

from __future__ import annotations

from random import Random

from kademlia_bench import simulated

from sureline.overlay.kademlia import Aggregate, Kademlia, key_of
from sureline.overlay.kademlia.everybody import Everybody
from sureline.overlay.kademlia.ids import Region, id_of
from sureline.world.protocol import AgentId

KEY = key_of("a file")


def agents(count: int) -> list[AgentId]:
    return [AgentId(f"n{number}/kademlia") for number in range(count)]


def test_the_nearest_and_those_of_a_region_are_those_of_all() -> None:
    random = Random(7)
    there: set[AgentId] = set()
    everybody = Everybody()
    for agent in random.choices(agents(80), k=300):
        if agent in there and random.random() < 0.4:
            there.discard(agent)
            everybody.went(agent)
        else:
            there.add(agent)
            everybody.met(agent)
        target = random.getrandbits(160)
        count = random.choice((1, 3, 20, 200))
        by_distance = sorted(there, key=lambda one: id_of(one) ^ target)
        assert everybody.nearest(target, count) == by_distance[:count]
        region = Region(random.getrandbits(2), 2)
        assert set(everybody.within(region)) == {one for one in there if id_of(one) in region}
        assert len(everybody) == len(there)


def test_a_node_that_moved_is_one_node_and_its_old_address_goes_unheard() -> None:
    everybody = Everybody()
    everybody.met(AgentId("a@10.0.0.1:1/kademlia"))
    everybody.met(AgentId("a@10.0.0.1:2/kademlia"))
    everybody.went(AgentId("a@10.0.0.1:1/kademlia"))
    assert everybody.nearest(0, 9) == ["a@10.0.0.1:2/kademlia"]


def acquainted(count: int) -> simulated.Net:
    """Each is told of all others; nobody joins."""
    net = simulated.Net(3)
    for me in agents(count):
        agent = Kademlia(me, net.sim.place(me))
        net.sim.join(agent)
        net.live[me.partition("/")[0]] = agent
    for agent in net.live.values():
        for other in agents(count):
            agent.meet(other)
    return net


def sent(net: simulated.Net) -> dict[str, int]:
    return {tag: one.sent for tag, one in net.sim.counters.by_type().items() if one.sent}


def test_a_value_goes_to_the_three_nearest_and_is_found_without_a_search() -> None:
    net = acquainted(60)
    kept: list[int] = []
    net.live["n7"].store(KEY, b"v", kept.append)
    assert not kept  # not before the call has returned
    assert net.until(lambda: bool(kept)) and kept == [3]
    nearest = sorted(agents(60), key=lambda one: id_of(one) ^ int.from_bytes(KEY))[:3]
    holders = [me for me in nearest if KEY in net.live[me.partition("/")[0]].base.storage]
    assert holders == nearest
    assert sent(net) == {"kademlia.store": 3, "kademlia.stored": 3}
    found: list[tuple[bytes, ...]] = []
    net.live["n9"].find(KEY, found.append)
    assert net.until(lambda: bool(found)) and found == [(b"v",)]
    assert sent(net)["kademlia.find"] <= 3


def test_those_who_are_gone_are_passed_over() -> None:
    net = acquainted(30)
    nearest = sorted(agents(30), key=lambda one: id_of(one) ^ int.from_bytes(KEY))
    owner = nearest[-1].partition("/")[0]
    net.sim.crash(nearest[0].partition("/")[0])
    net.live[owner].went(nearest[1])
    kept: list[int] = []
    net.live[owner].store(KEY, b"v", kept.append)
    assert net.until(lambda: bool(kept)) and kept == [3]
    held = [me for me in nearest[:6] if KEY in net.live[me.partition("/")[0]].base.storage]
    assert held == nearest[2:5]


def test_a_broadcast_reaches_all_with_one_message_and_one_reply_each() -> None:
    net = acquainted(70)
    heard: list[str] = []
    for node, agent in net.live.items():
        agent.on_broadcast("t", lambda _, __, node=node: heard.append(node), b"".join)
    told: list[Aggregate] = []
    net.live["n0"].broadcast("t", b"x", told.append)
    assert net.until(lambda: bool(told)) and told[0].reached == 69 and not told[0].missed
    assert sorted(heard) == sorted(node for node in net.live if node != "n0")
    assert sent(net)["kademlia.cast"] == 69


def test_nothing_is_asked_while_nothing_happens() -> None:
    net = acquainted(20)
    for agent in net.live.values():
        agent.join([], lambda contacts: None)
    net.sim.run(until=net.sim.time + 60.0)
    before = sent(net)
    net.sim.run(until=net.sim.time + 7200.0)
    assert sent(net) == before
