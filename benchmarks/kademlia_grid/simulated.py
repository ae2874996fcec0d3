"""A simulated network of Kademlia nodes, and what is measured of it."""

from __future__ import annotations

import gc
import math
import time
from collections.abc import Callable, Iterable
from typing import Any

from kademlia_grid.figures import quantile, resident_bytes, spread
from sureline.overlay.kademlia import Aggregate, Kademlia, KademliaSettings, key_of
from sureline.world.address import at
from sureline.world.simulated import Network, Simulation

PART = "kademlia"
TOPIC = "count"
WITHOUT_ORIGIN_S = 15.0
"""How long a broadcast may take whose origin has died: about as long as one would wait for it."""


class Net:
    """Nodes by name, as they live and die. All that happens follows from the seed."""

    def __init__(
        self,
        seed: int,
        *,
        network: Network | None = None,
        settings: KademliaSettings | None = None,
        detail: str = "light",
    ) -> None:
        self.sim = Simulation(seed, network, detail=detail)
        self.random = self.sim.random
        self.settings = settings or KademliaSettings()
        self.live: dict[str, Kademlia] = {}
        self.joined_at: dict[str, float] = {}
        self.join_s: list[float] = []
        self.heard: dict[str, int] = {}
        """How often each node had the broadcast under way."""
        self._born = 0

    # Nodes.

    def add(self) -> str:
        """A new node joins through three others."""
        node = f"n{self._born}"
        self._born += 1
        self.sim.boot(node, lambda: self._boot(node))
        return node

    def _boot(self, node: str) -> None:
        others = list(self.live)
        me = at(node, PART)
        agent = Kademlia(me, self.sim.place(me), self.settings)
        self.sim.join(agent)
        began_s = self.sim.time
        agent.on_broadcast(TOPIC, lambda origin, payload: self._hear(node), _add_up)

        def joined(contacts: int) -> None:
            self.joined_at[node] = self.sim.time
            self.join_s.append(self.sim.time - began_s)

        seeds = [at(self.random.choice(others), PART) for _ in range(3)] if others else []
        self.live[node] = agent
        agent.join(list(dict.fromkeys(seeds)), joined)

    def crash(self, node: str) -> None:
        self.sim.crash(node)
        self._gone(node)

    def cut_off(self, node: str) -> None:
        """Nobody hears of it again, nor is told that it is gone."""
        self.sim.freeze(node)
        self._gone(node)

    def restart(self, node: str) -> None:
        self.sim.restart(node)

    def leave(self, node: str) -> None:
        """Say goodbye, then switch off."""
        agent = self.live[node]
        self._gone(node)
        agent.leave(lambda: self.sim.crash(node))

    def _gone(self, node: str) -> None:
        self.live.pop(node, None)
        self.joined_at.pop(node, None)

    def grow(self, count: int, spacing_s: float = 0.01) -> None:
        """Have so many more join, one after the other, and wait until all have."""
        began_s = self.sim.time
        for number in range(count):
            self.sim.at(began_s + number * spacing_s, lambda: void(self.add()))
        self.sim.run(until=began_s + count * spacing_s)
        self.until(lambda: len(self.joined_at) == len(self.live))

    def until(self, condition: Callable[[], bool], patience_s: float = 300.0) -> bool:
        """Let time pass until the condition holds; False if it never does."""
        give_up_s = self.sim.time + patience_s
        while not condition():
            if self.sim.time >= give_up_s:
                return False
            self.sim.run(until=self.sim.time + 0.25)
        return True

    def pass_time(self, seconds: float) -> None:
        self.sim.run(until=self.sim.time + seconds)

    def somebody(self) -> str:
        return self.random.choice(list(self.joined_at))

    # Values.

    def store(self, keys: Iterable[bytes], spacing_s: float = 0.005) -> list[int]:
        """Store a value under each key, from anywhere; the numbers of replicas."""
        done: list[int] = []
        keys = list(keys)
        began_s = self.sim.time

        def start(key: bytes) -> None:
            self.live[self.somebody()].store(key, b"at " + key, done.append)

        for number, key in enumerate(keys):
            self.sim.at(began_s + number * spacing_s, lambda key=key: start(key))
        self.until(lambda: len(done) == len(keys))
        return done

    def find(
        self, keys: Iterable[bytes], spacing_s: float = 0.005
    ) -> dict[bytes, tuple[bool, float]]:
        """Look up each key, from anywhere: whether its value came back, and after how long."""
        done: dict[bytes, tuple[bool, float]] = {}
        keys = list(keys)
        began_s = self.sim.time

        def start(key: bytes) -> None:
            asked_s = self.sim.time

            def found(values: tuple[bytes, ...]) -> None:
                done[key] = (b"at " + key in values, self.sim.time - asked_s)

            self.live[self.somebody()].find(key, found)

        for number, key in enumerate(keys):
            self.sim.at(began_s + number * spacing_s, lambda key=key: start(key))
        self.until(lambda: len(done) == len(keys))
        return done

    def with_replica(self, keys: Iterable[bytes]) -> list[bytes]:
        """Those keys that some living node has a value for."""
        held = {key for agent in self.live.values() for key in agent.base.storage}
        return [key for key in keys if key in held]

    # Broadcast.

    def _hear(self, node: str) -> bytes:
        self.heard[node] = self.heard.get(node, 0) + 1
        return (1).to_bytes(4)

    def broadcast(self) -> dict[str, Any]:
        """Broadcast from anywhere; who of those that were there all the time had it."""
        self.heard = {}
        root = self.somebody()
        before = {node: agent.broadcasts.forwards for node, agent in self.live.items()}
        retries = self._retries()
        sent = self.cast_messages()
        there = [node for node in self.joined_at if node != root]
        began_s = self.sim.time
        replies: list[tuple[float, Aggregate]] = []
        self.live[root].broadcast(
            TOPIC, b"hello", lambda aggregate: replies.append((self.sim.time - began_s, aggregate))
        )
        self.until(lambda: bool(replies) or root not in self.live)
        if not replies:  # its origin died, and the broadcast goes on
            self.pass_time(WITHOUT_ORIGIN_S)
        stayed = [node for node in there if node in self.live]
        reached = sum(node in self.heard for node in stayed)
        children = [a.broadcasts.forwards - before.get(n, 0) for n, a in self.live.items()]
        figures: dict[str, Any] = {
            "nodes": len(stayed),
            "reached": reached,
            "coverage": reached / len(stayed) if stayed else 1.0,
            "more_than_once": sum(count > 1 for count in self.heard.values()),
            "children_max": max(children),
            "retries": self._retries() - retries,
            "messages_per_node": round((self.cast_messages() - sent) / max(1, len(stayed)), 2),
        }
        if replies:
            figures["latency_s"] = round(replies[0][0], 4)
            figures["replies"] = int.from_bytes(replies[0][1].value or b"")
            figures["missed"] = replies[0][1].missed
        return figures

    def _retries(self) -> int:
        return sum(agent.broadcasts.retries for agent in self.live.values())

    def cast_messages(self) -> int:
        kinds = self.sim.counters.by_type()
        tags = ("kademlia.cast", "kademlia.taken", "kademlia.reply")
        return sum(kinds[tag].sent for tag in tags if tag in kinds)

    def messages(self) -> int:
        return sum(traffic.sent for traffic in self.sim.counters.by_type().values())

    def searches(self) -> tuple[int, int, int]:
        """Searches that began, questions they asked, and hops, over all nodes that live."""
        agents = self.live.values()
        return (
            sum(agent.searches.started for agent in agents),
            sum(agent.searches.questions for agent in agents),
            sum(agent.searches.hops for agent in agents),
        )

    # Churn.

    def churn(self, share_per_minute: float, minutes: float, *, silent: bool = False) -> None:
        """From now on nodes crash, or are cut off without a sign, and as many new ones join,
        evenly over the time."""
        lose = self.cut_off if silent else self.crash
        began_s = self.sim.time
        count = round(share_per_minute * minutes * len(self.live))
        for number in range(count):
            moment_s = began_s + 60 * minutes * (number + self.random.random()) / count
            self.sim.at(moment_s, lambda: lose(self.somebody()))
            self.sim.at(moment_s, lambda: void(self.add()))


def _add_up(replies: Iterable[bytes]) -> bytes:
    return sum(int.from_bytes(reply) for reply in replies).to_bytes(4)


def void(_: object) -> None:
    """For actions whose result nobody wants."""


def measure(count: int, seed: int = 1, keys: int = 2000, kill: float = 0.3) -> dict[str, Any]:
    """One network from its first node to the loss of a third of it."""
    gc.collect()
    before_bytes, began_s = resident_bytes(), time.process_time()
    net = Net(seed)
    net.grow(count, spacing_s=min(0.01, 100.0 / count))
    figures: dict[str, Any] = {
        "nodes": count,
        "join_s": spread(net.join_s),
        "join_messages": round(net.messages() / count, 1),
        "cpu_s_per_join": round((time.process_time() - began_s) / count, 5),
    }
    net.pass_time(30.0)
    gc.collect()
    figures["bytes_per_node"] = (resident_bytes() - before_bytes) // count
    figures["contacts"] = round(sum(len(a.base.table) for a in net.live.values()) / count, 1)
    figures["log2_n"] = round(math.log2(count), 2)
    wanted = [key_of(f"file {number}") for number in range(keys)]
    stored, figures["store"] = searched(net, lambda: net.store(wanted))
    figures["stored_3"] = sum(replicas >= 3 for replicas in stored)
    found, figures["get"] = searched(net, lambda: net.find(wanted))
    figures["get"] |= outcome(found)
    figures["broadcast"] = net.broadcast()
    for node in net.random.sample(list(net.live), int(kill * count)):
        net.crash(node)
    left = net.with_replica(wanted)
    found, after = searched(net, lambda: net.find(left))
    figures["after_kill"] = {"killed": int(kill * count), **after, **outcome(found)}
    figures["broadcast_after_kill"] = net.broadcast()
    figures["cpu_s"] = round(time.process_time() - began_s, 1)
    return figures


def searched(net: Net, action: Callable[[], Any]) -> tuple[Any, dict[str, float]]:
    """Do something that searches, and say what a search cost: questions, and answers to them."""
    started, questions, hops = net.searches()
    result = action()
    now = net.searches()
    searches = max(1, now[0] - started)
    asked = (now[1] - questions) / searches
    return result, {
        "messages_per_lookup": round(2 * asked, 2),
        "hops": round((now[2] - hops) / searches, 2),
    }


def outcome(found: dict[bytes, tuple[bool, float]]) -> dict[str, Any]:
    return {
        "keys": len(found),
        "found": sum(there for there, _ in found.values()),
        "seconds": spread([seconds for _, seconds in found.values()]),
    }


def under_churn(
    count: int,
    seed: int = 1,
    share_per_minute: float = 0.05,
    minutes: float = 6.0,
    *,
    silent: bool = False,
) -> dict[str, Any]:
    """Broadcasts and gets while nodes crash (or are cut off) and join all the time."""
    net = Net(seed)
    net.grow(count)
    net.pass_time(20.0)
    wanted = [key_of(f"file {number}") for number in range(200)]
    net.store(wanted)
    sent = net.messages()
    began_s = net.sim.time
    net.churn(share_per_minute, minutes, silent=silent)
    casts = []
    while net.sim.time < began_s + 60 * minutes:
        net.pass_time(20.0)
        casts.append(net.broadcast())
    left = net.with_replica(wanted)
    found = net.find(left)
    node_seconds = count * (net.sim.time - began_s)
    reached = sum(cast["reached"] for cast in casts)
    return {
        "nodes": count,
        "share_per_minute": share_per_minute,
        "minutes": minutes,
        "silent": silent,
        "broadcasts": len(casts),
        "coverage": round(reached / sum(cast["nodes"] for cast in casts), 5),
        "coverage_min": round(min(cast["coverage"] for cast in casts), 5),
        "messages_per_node": round(quantile([c["messages_per_node"] for c in casts], 0.5), 2),
        "children_max": max(cast["children_max"] for cast in casts),
        "latency_s": spread([c["latency_s"] for c in casts if "latency_s" in c]),
        "gets": outcome(found),
        "messages_per_node_and_s": round((net.messages() - sent) / node_seconds, 3),
    }
