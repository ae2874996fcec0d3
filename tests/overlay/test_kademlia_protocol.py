"""What nodes do with each other, in the simulator: stores, departures, newcomers, guests, liars,
time-outs, broadcasts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import pytest
from kademlia_bench import simulated
from kademlia_invariants import check_tables, identifier

from sureline.overlay.kademlia import Aggregate, Kademlia, KademliaSettings, key_of
from sureline.overlay.kademlia.ids import EVERYWHERE
from sureline.overlay.kademlia.messages import (
    MESSAGES,
    Cast,
    CastReply,
    CastTaken,
    Find,
    Forget,
    Found,
    Store,
    Stored,
    ValueRecord,
)
from sureline.world.agent import Agent
from sureline.world.protocol import Message
from sureline.world.simulated import Constant, Link, Network

KEY = key_of("a file")


def net_of(
    count: int,
    seed: int = 1,
    settings: KademliaSettings | None = None,
    link: Link | None = None,
) -> simulated.Net:
    net = simulated.Net(seed, settings=settings, network=Network(link) if link else None)
    net.grow(count)
    return net


def holders(net: simulated.Net, key: bytes = KEY) -> list[str]:
    """Who holds the key, the nearest first."""
    held = [node for node, agent in net.live.items() if key in agent.base.storage]
    return sorted(held, key=lambda node: identifier(node) ^ int.from_bytes(key))


def nearest(net: simulated.Net, count: int, key: bytes = KEY) -> list[str]:
    return sorted(net.live, key=lambda node: identifier(node) ^ int.from_bytes(key))[:count]


def put(net: simulated.Net, node: str, value: bytes = b"v", key: bytes = KEY) -> int:
    done: list[int] = []
    net.live[node].store(key, value, done.append)
    assert net.until(lambda: bool(done))
    return done[0]


def get(net: simulated.Net, node: str, key: bytes = KEY) -> tuple[bytes, ...]:
    done: list[tuple[bytes, ...]] = []
    net.live[node].find(key, done.append)
    assert net.until(lambda: bool(done))
    return done[0]


class Puppet(Agent):
    """A node that says what the test tells it to, and answers nothing unless told to."""

    def __init__(self, net: simulated.Net, node: str) -> None:
        super().__init__(f"{node}/kademlia", net.sim.place(f"{node}/kademlia"))
        net.sim.join(self)
        self.got: list[tuple[str, Message]] = []
        self.answers: Any = lambda message: None

    def receive(self, sender: str, message: Message) -> None:
        self.got.append((sender, message))
        answer = self.answers(message)
        if answer is not None:
            self.world.send(sender, answer)

    def of(self, kind: type[Message]) -> list[Any]:
        return [message for _, message in self.got if isinstance(message, kind)]


# Values.


def test_a_store_puts_the_value_on_the_three_nearest_nodes() -> None:
    net = net_of(60)
    assert put(net, net.somebody()) == 3
    assert holders(net) == nearest(net, 3)


def test_stores_append_and_all_values_are_found() -> None:
    net = net_of(30)
    for value in (b"here", b"there", b"here"):
        put(net, net.somebody(), value)
    assert sorted(get(net, net.somebody())) == [b"here", b"there"]


def test_one_node_alone_stores_and_finds_in_itself() -> None:
    net = net_of(1)
    assert put(net, "n0") == 1 and get(net, "n0") == (b"v",)


def test_a_key_that_nobody_has_ends_empty_after_asking_the_k_nearest() -> None:
    net = net_of(60)
    somebody = net.live[net.somebody()]
    before = somebody.searches.questions
    assert get(net, somebody.me.split("/")[0]) == ()
    assert somebody.searches.questions - before >= 20


def test_full_nodes_refuse_and_the_next_nearest_take_it() -> None:
    net = net_of(40)
    for node in nearest(net, 2):
        full = msgspec.structs.replace(net.settings, keys_max=0)
        net.live[node].base.storage._settings = full
    publisher = nearest(net, 40)[-1]
    assert put(net, publisher) == 3
    assert holders(net) == nearest(net, 5)[2:]


def test_dead_nodes_are_stepped_over_when_storing() -> None:
    net = net_of(40)
    publisher = nearest(net, 40)[-1]
    for node in nearest(net, 3):
        net.crash(node)
    assert put(net, publisher) == 3 and holders(net) == nearest(net, 3)


def test_silent_nodes_delay_a_store_but_do_not_stop_it() -> None:
    net = net_of(40)
    publisher = nearest(net, 40)[-1]
    frozen = nearest(net, 2)
    for node in frozen:
        net.sim.freeze(node)
    began_s = net.sim.time
    assert put(net, publisher) == 3
    assert net.sim.time - began_s < 2 * KademliaSettings().failed_s_max
    assert not set(holders(net)) & set(frozen)


def test_too_large_a_value_or_a_wrong_key_is_an_error_at_once() -> None:
    net = net_of(1)
    with pytest.raises(ValueError, match="at most 1024 bytes"):
        net.live["n0"].store(KEY, bytes(1025), print)
    with pytest.raises(ValueError, match="key has 20 bytes"):
        net.live["n0"].store(b"short", b"", print)
    with pytest.raises(ValueError, match="key has 20 bytes"):
        net.live["n0"].find(b"short", print)


def test_forgetting_is_for_the_publisher_only() -> None:
    net = net_of(30)
    first, other = nearest(net, 30)[-2:]
    put(net, first, b"mine")
    net.live[other].forget(KEY, b"mine")
    net.pass_time(5.0)
    assert get(net, other) == (b"mine",)
    net.live[first].forget(KEY, b"mine")
    net.pass_time(5.0)
    assert get(net, other) == () and holders(net) == []


def test_a_value_is_renewed_while_its_publisher_lives_and_expires_after() -> None:
    settings = KademliaSettings(value_ttl_s=300.0, republish_s=100.0, replicate_s=80.0)
    net = net_of(25, settings=settings)
    publisher = nearest(net, 25)[-1]
    put(net, publisher)
    net.pass_time(1000.0)
    assert len(holders(net)) >= 3
    net.crash(publisher)
    net.pass_time(150.0)
    assert len(holders(net)) >= 3, "holders see to replicas without the publisher"
    net.pass_time(400.0)
    assert holders(net) == []


def test_replicas_are_replaced_when_holders_die_one_by_one() -> None:
    settings = KademliaSettings(replicate_s=60.0)
    net = net_of(40, settings=settings)
    publisher = nearest(net, 40)[-1]
    put(net, publisher)
    net.live[publisher].stop()
    for _ in range(6):
        net.crash(holders(net)[0])
        net.pass_time(150.0)
    assert len(holders(net)) >= 3


def test_a_find_gives_the_value_to_a_nearer_node_that_lacks_it() -> None:
    net = net_of(40)
    put(net, nearest(net, 40)[-1])
    lacking = nearest(net, 1)[0]
    for key in list(net.live[lacking].base.storage):
        net.live[lacking].base.storage.forget(key, b"v", nearest(net, 40)[-1])
    assert lacking not in holders(net)
    for _ in range(20):
        assert get(net, net.somebody()) == (b"v",)
    assert lacking in holders(net)


# Coming and going.


def test_a_leaver_hands_over_and_is_dropped_at_once() -> None:
    net = net_of(40)
    put(net, nearest(net, 40)[-1])
    for _ in range(3):
        net.leave(nearest(net, 1)[0])
        net.pass_time(2.0)
        assert holders(net)[:3] == nearest(net, 3)
    everyone = {c for agent in net.live.values() for c in agent.base.table.contacts()}
    assert {contact.split("/")[0] for contact in everyone} <= set(net.live)


def test_newcomers_get_what_they_should_hold() -> None:
    """A hundred join a network of five: without that, the values would soon be out of sight."""
    net = net_of(5)
    keys = [key_of(f"file {number}") for number in range(40)]
    net.store(keys)
    net.grow(100, spacing_s=0.2)
    net.pass_time(40.0)
    for key in keys:
        assert nearest(net, 1, key)[0] in holders(net, key)
    assert all(there for there, _ in net.find(keys).values())


def test_a_large_store_is_given_to_a_newcomer_step_by_step() -> None:
    net = net_of(1)
    storage = net.live["n0"].base.storage
    for number in range(700):
        storage.keep(ValueRecord(key_of(str(number)), b"v", "p", 1000.0), net.sim.time)
    net.grow(1)
    net.pass_time(1.0)
    assert len(net.live["n1"].base.storage) == 700


def test_a_guest_uses_the_network_but_is_no_part_of_it() -> None:
    net = net_of(30)
    me = "n3+41/kademlia"
    guest = Kademlia(me, net.sim.place(me))
    net.sim.join(guest)
    done: list[int] = []
    guest.join(["n1/kademlia"], done.append)
    assert net.until(lambda: bool(done)) and done[0] >= 20
    guest.store(KEY, b"from a guest", done.append)
    assert net.until(lambda: len(done) == 2) and done[1] == 3
    assert get(net, net.somebody()) == (b"from a guest",)
    for agent in net.live.values():
        assert me not in agent.base.table.within(EVERYWHERE)
    replies: list[Aggregate] = []
    guest.broadcast(simulated.TOPIC, b"", replies.append)
    assert net.until(lambda: bool(replies)) and replies[0].reached == 30


def test_a_node_whose_contacts_are_down_joins_when_they_come_up() -> None:
    net = simulated.Net(1)
    net.add()
    net.sim.boot("late", lambda: None)
    net.sim.crash("late")
    me = "x/kademlia"
    agent = Kademlia(me, net.sim.place(me))
    net.sim.join(agent)
    done: list[int] = []
    agent.join(["late/kademlia"], done.append)
    net.pass_time(10.0)
    assert done == [0]

    def start() -> None:
        late = Kademlia("late/kademlia", net.sim.place("late/kademlia"))
        net.sim.join(late)
        late.join(["n0/kademlia"], done.append)

    net.sim.machine("late").boot = start
    net.sim.restart("late")
    net.pass_time(120.0)
    assert sorted(agent.base.table.contacts()) == ["late/kademlia", "n0/kademlia"]


def test_two_halves_of_a_split_network_grow_together_again() -> None:
    net = net_of(24)
    nodes = list(net.live)
    net.sim.partition([nodes[:12]])
    net.pass_time(3600.0)
    net.sim.heal()
    net.pass_time(600.0)
    put(net, nodes[0])
    assert all(get(net, node) == (b"v",) for node in nodes)
    assert net.broadcast()["coverage"] == 1.0


def test_newcomers_that_reached_only_each_other_find_the_others_later() -> None:
    """Cut off while they joined, they have forgotten nobody: they have never met them."""
    net = net_of(12)
    old = list(net.live)
    net.sim.partition([["n12", "n13", "n14"]])
    net.grow(3, spacing_s=10.0)
    for node in ("n13", "n14"):
        agent = net.live[node]
        agent.join(["n12/kademlia", f"{old[0]}/kademlia"], lambda contacts: None)
    net.pass_time(300.0)
    assert len(net.live["n13"].base.table) == 2
    net.sim.heal()
    net.pass_time(600.0)
    assert all(len(agent.base.table) == 14 for agent in net.live.values())


# Liars.


def test_what_a_liar_names_is_never_a_contact_and_only_this_part_is_asked() -> None:
    net = net_of(10)
    liar = Puppet(net, "liar")
    named = ("ghost/kademlia", "n1/peer", "liar/kademlia", "n2+evil/kademlia", "")
    liar.answers = lambda m: Found(m.number, named) if isinstance(m, Find) else None
    for node in net.live:
        liar.world.send(f"{node}/kademlia", Find(0, KEY))
    net.pass_time(1.0)
    for _ in range(10):
        get(net, net.somebody(), key_of("nothing"))
    check_tables(net.live.values())
    for agent in net.live.values():
        assert agent.base.table.is_contact("liar/kademlia")
        assert not agent.base.table.is_contact("ghost/kademlia")
        assert not any("+" in c for c in agent.base.table.candidates(0, 100))


def test_an_answer_counts_only_from_who_was_asked() -> None:
    net = net_of(1)
    asked, liar = Puppet(net, "asked"), Puppet(net, "liar")
    asked.world.send("n0/kademlia", Find(0, KEY))  # so that it is known
    net.pass_time(1.0)
    done: list[tuple[bytes, ...]] = []
    net.live["n0"].find(KEY, done.append)
    assert net.until(lambda: bool(asked.of(Find)))
    (question,) = asked.of(Find)
    for number in range(question.number - 20, question.number + 20):
        lie = ValueRecord(KEY, b"lie", "liar", 100.0)
        liar.world.send("n0/kademlia", Found(number, (), (lie,)))
    net.pass_time(0.1)
    assert done == [], "the question is still open when all lies have come"
    truth = ValueRecord(KEY, b"truth", "asked", 100.0)
    asked.world.send("n0/kademlia", Found(question.number, (), (truth,)))
    assert net.until(lambda: bool(done)) and done == [(b"truth",)]


def test_records_under_another_key_are_ignored() -> None:
    net = net_of(3)
    liar = Puppet(net, "liar")
    lie = ValueRecord(key_of("other"), b"lie", "liar", 100.0)
    liar.answers = lambda m: Found(m.number, (), (lie,)) if isinstance(m, Find) else None
    for node in net.live:
        liar.world.send(f"{node}/kademlia", Find(0, KEY))
    net.pass_time(1.0)
    assert get(net, "n0") == ()


def test_a_puppet_that_stores_too_much_is_refused() -> None:
    net = net_of(1, settings=KademliaSettings(keys_max=10, values_max=2))
    puppet = Puppet(net, "greedy")
    for number in range(100):
        record = ValueRecord(key_of(str(number % 50)), b"%d" % number, "greedy", 100.0)
        puppet.world.send("n0/kademlia", Store(number + 1, (record,)))
    net.pass_time(1.0)
    assert len(net.live["n0"].base.storage) == 10
    assert sum(stored.kept for stored in puppet.of(Stored)) == 20
    puppet.world.send("n0/kademlia", Forget(key_of("0"), b"0"))
    net.pass_time(1.0)
    assert net.live["n0"].base.storage.values_under(key_of("0")) == 1


def test_messages_are_checked_when_they_are_decoded() -> None:
    decoder = msgspec.msgpack.Decoder(MESSAGES[0] | MESSAGES[1] | Store | Cast)  # type: ignore[operator]  # a union made of classes
    for good in (
        Find(1, KEY),
        Found(1, ("n1/kademlia",)),
        Store(1, (ValueRecord(KEY, b"", "", 1.0),)),
    ):
        assert decoder.decode(msgspec.msgpack.encode(good)) == good
    for bad in (
        Find(1, b"short"),
        Found(1, ("x" * 401,)),
        Found(1, ("n/kademlia",) * 65),
        Store(1, (ValueRecord(KEY, bytes(5000), "", 1.0),)),
        Cast(1, "o", 1, "t", b"", bytes(20), 161, 1.0),
    ):
        with pytest.raises(msgspec.ValidationError):
            decoder.decode(msgspec.msgpack.encode(bad))


# Broadcast.


def test_a_broadcast_reaches_all_once_and_adds_up_the_replies() -> None:
    net = net_of(150)
    for _ in range(3):
        cast = net.broadcast()
        assert cast["reached"] == cast["replies"] == 149 and cast["more_than_once"] == 0
        assert cast["children_max"] <= 8 and cast["missed"] == 0 and cast["retries"] == 0


def test_without_a_wish_for_replies_none_are_sent() -> None:
    net = net_of(50)
    net.live["n0"].broadcast(simulated.TOPIC, b"")
    net.pass_time(5.0)
    assert sorted(net.heard) == sorted(set(net.live) - {"n0"})
    assert "kademlia.reply" not in net.sim.counters.by_type()


def test_an_unknown_topic_is_passed_on_all_the_same() -> None:
    net = net_of(30)
    replies: list[Aggregate] = []
    net.live["n0"].broadcast("unheard of", b"", replies.append)
    assert net.until(lambda: bool(replies))
    assert replies == [Aggregate(None, 29, 0)]


def test_frozen_nodes_cost_time_but_no_other_node_the_message() -> None:
    net = net_of(120)
    frozen = net.random.sample([n for n in net.live if n != "n0"], 12)
    for node in frozen:
        net.sim.freeze(node)
    net.heard = {}
    replies: list[Aggregate] = []
    net.live["n0"].broadcast(simulated.TOPIC, b"", replies.append)
    assert net.until(lambda: bool(replies), patience_s=60.0)
    net.pass_time(20.0)
    assert sorted(net.heard) == sorted(set(net.live) - set(frozen) - {"n0"})


def test_a_child_that_was_only_slow_is_waited_for_after_all() -> None:
    """It says a word only after another was tried in its place; that other is done at once, but
    what is under way below the first one counts."""
    net = net_of(1, settings=KademliaSettings(regions=1))
    puppets = [Puppet(net, name) for name in ("other", "slow")]
    for puppet in puppets:
        puppet.world.send("n0/kademlia", Find(0, KEY))
    net.pass_time(1.0)
    replies: list[Aggregate] = []
    net.live["n0"].broadcast("t", b"", replies.append)
    assert net.until(lambda: any(puppet.of(Cast) for puppet in puppets))
    other, slow = sorted(puppets, key=lambda puppet: len(puppet.of(Cast)))
    assert net.until(lambda: bool(other.of(Cast))), "another is tried"
    slow.world.send("n0/kademlia", CastTaken(slow.of(Cast)[0].number))
    net.pass_time(0.1)
    other.world.send("n0/kademlia", CastReply(other.of(Cast)[0].number, 1, 0, b"o"))
    net.pass_time(0.5)
    assert not replies
    slow.world.send("n0/kademlia", CastReply(slow.of(Cast)[0].number, 5, 0))
    net.pass_time(0.5)
    assert replies == [Aggregate(b"o", 6, 0)]


def test_replies_later_than_patience_are_dropped() -> None:
    """A child takes its part, then never replies: the parent ends by its own deadline, and what
    comes after that changes nothing."""
    settings = KademliaSettings(hop_s=0.5)
    net = net_of(1, settings=settings)
    puppet = Puppet(net, "mute")
    puppet.answers = lambda m: Found(m.number) if isinstance(m, Find) else None
    puppet.world.send("n0/kademlia", Find(0, KEY))
    net.pass_time(1.0)
    puppet.answers = lambda m: CastTaken(m.number) if isinstance(m, Cast) else None
    replies: list[Aggregate] = []
    began_s = net.sim.time
    net.live["n0"].broadcast("t", b"", replies.append)
    assert net.until(lambda: bool(replies))
    assert replies == [Aggregate(None, 0, 1)]
    assert net.sim.time - began_s <= 0.5 * 4 + 0.5
    (cast,) = puppet.of(Cast)
    assert 0 < cast.patience_s < 0.5 * 4, "the deeper, the less patience"
    puppet.world.send("n0/kademlia", CastReply(cast.number, 99, 0, b"late"))
    net.pass_time(5.0)
    assert len(replies) == 1


def test_a_child_that_dies_after_taking_its_part_is_replaced() -> None:
    net = net_of(60, link=Link(delay=Constant(0.05)))
    net.heard = {}
    replies: list[Aggregate] = []
    net.live["n0"].broadcast(simulated.TOPIC, b"", replies.append)
    net.pass_time(0.06)
    first = list(net.heard)
    assert first, "the first level has it, and has not yet handed it on"
    for node in first[:3]:
        net.crash(node)
    assert net.until(lambda: bool(replies))
    assert sorted(set(net.heard) & set(net.live)) == sorted(set(net.live) - {"n0"})


def test_a_node_that_is_still_joining_takes_no_part() -> None:
    """It knows hardly anybody, and would think the region empty."""
    net = net_of(1)
    me = "newcomer/kademlia"
    newcomer = Kademlia(me, net.sim.place(me))
    net.sim.join(newcomer)
    parent = Puppet(net, "parent")
    cast = Cast(7, "parent/kademlia", 1, simulated.TOPIC, b"", bytes(20), 0, 1.0)
    parent.world.send(me, cast)
    net.pass_time(1.0)
    assert parent.of(CastTaken) == [CastTaken(7, accepted=False)]
    done: list[int] = []
    newcomer.join(["n0/kademlia"], done.append)
    assert net.until(lambda: bool(done))
    parent.world.send(me, cast)
    net.pass_time(1.0)
    assert parent.of(CastTaken) == [CastTaken(7, accepted=False), CastTaken(7)]


def test_a_gap_in_a_table_is_searched_before_it_is_believed() -> None:
    """A root that has lost all contacts in the other half would reach one half only."""
    net = net_of(150)
    root = net.live["n0"]
    del root.base.table.buckets()[160]
    net.heard = {}
    replies: list[Aggregate] = []
    root.broadcast(simulated.TOPIC, b"", replies.append)
    assert net.until(lambda: bool(replies))
    assert replies[0].reached == 149 and len(net.heard) == 149
    assert root.broadcasts.forwards + root.broadcasts.retries <= 8


def test_a_bucket_with_nobody_in_it_is_searched_again_before_long() -> None:
    net = net_of(150)
    del net.live["n0"].base.table.buckets()[160]
    net.pass_time(60.0)
    assert net.live["n0"].base.table.buckets()[160].contacts


def test_the_same_cast_twice_is_delivered_once() -> None:
    net = net_of(1)
    parent = Puppet(net, "parent")
    cast = Cast(7, "parent/kademlia", 1, simulated.TOPIC, b"", bytes(20), 0, 1.0)
    for number in (7, 7, 8):
        parent.world.send("n0/kademlia", msgspec.structs.replace(cast, number=number))
    net.pass_time(10.0)
    assert net.heard == {"n0": 1}
    assert {reply.number for reply in parent.of(CastReply)} == {7, 8}


def test_a_larger_region_later_means_another_duty_but_no_second_delivery() -> None:
    net = net_of(1)
    parent, neighbour = Puppet(net, "parent"), Puppet(net, "neighbour")
    neighbour.world.send("n0/kademlia", Find(0, KEY))
    net.pass_time(1.0)
    mine = identifier("n0").to_bytes(20)
    for number, length in ((1, 160), (2, 0)):
        cast = Cast(number, "parent/kademlia", 1, simulated.TOPIC, b"", mine, length, 1.0)
        parent.world.send("n0/kademlia", cast)
        net.pass_time(0.1)
    assert net.heard == {"n0": 1}
    assert len(neighbour.of(Cast)) == 1, "the rest of the region is seen to"


def test_memory_of_broadcasts_is_bounded_and_replies_too() -> None:
    net = net_of(2, settings=KademliaSettings(casts_max=8, reply_bytes_max=10))
    big: list[Aggregate] = []

    def answer(origin: str, payload: bytes) -> bytes:
        return payload

    def merge(replies: Sequence[bytes]) -> bytes:
        return b"".join(replies)

    net.live["n1"].on_broadcast("echo", answer, merge)
    for size in range(20):
        net.live["n0"].broadcast("echo", bytes(size), big.append)
        net.pass_time(1.0)
    assert [len(a.value) if a.value is not None else None for a in big] == [
        *range(11),
        *([None] * 9),
    ]
    assert [a.missed for a in big] == [0] * 11 + [1] * 9
    assert len(net.live["n0"].broadcasts) <= 8 and len(net.live["n1"].broadcasts) <= 8
    with pytest.raises(ValueError, match="a broadcast carries at most"):
        net.live["n0"].broadcast("echo", bytes(1 << 20))
