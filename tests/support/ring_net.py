"""A ring for tests, simulated or in live worlds: nodes by name, as they live and die, and what each
has published."""

from __future__ import annotations

from collections.abc import Callable

from live_stage import LiveStage

from sureline.overlay.ring import Feature, Query, Ring, RingSettings, ValueRange
from sureline.overlay.ring.ranges import MetasFound
from sureline.world.address import at
from sureline.world.simulated import Network, Simulation

PART = "ring"
FEATURES = (Feature("cpu", 0.0, 100.0), Feature("memory", 0.0, 64.0))


class Net:
    def __init__(
        self,
        seed: int,
        *,
        network: Network | None = None,
        settings: RingSettings | None = None,
        stage: LiveStage | None = None,
    ) -> None:
        self.sim = stage or Simulation(seed, network)
        self.random = self.sim.random
        self.settings = settings or RingSettings()
        self.live: dict[str, Ring] = {}
        self.joined: set[str] = set()
        self.published: dict[str, dict[str, float]] = {}
        self._born = 0

    def add(self) -> str:
        node = f"n{self._born}" + ("@live" if isinstance(self.sim, LiveStage) else "")
        self._born += 1
        self.sim.boot(node, lambda: self._boot(node))
        return node

    def _boot(self, node: str) -> None:
        others = [at(other, PART) for other in self.live]
        me = at(node, PART)
        agent = Ring(me, self.sim.place(me), FEATURES, self.settings)
        self.sim.join(agent)
        seeds = self.random.sample(others, min(3, len(others)))
        self.live[node] = agent
        agent.join(seeds, lambda known: self.joined.add(node))

    def grow(self, count: int, spacing_s: float = 0.05) -> None:
        began_s = self.sim.time
        for number in range(count):
            self.sim.at(began_s + number * spacing_s, lambda: void(self.add()))
        self.pass_time(count * spacing_s + 0.1)
        assert self.until(lambda: self.joined >= set(self.live)), "some never joined"

    def until(self, condition: Callable[[], bool], patience_s: float = 120.0) -> bool:
        give_up_s = self.sim.time + patience_s
        while not condition():
            if self.sim.time >= give_up_s:
                return False
            self.pass_time(0.25)
        return True

    def close(self) -> None:
        if isinstance(self.sim, LiveStage):
            self.sim.close()

    def pass_time(self, seconds: float) -> None:
        self.sim.run(until=self.sim.time + seconds)

    def crash(self, node: str) -> None:
        self.sim.crash(node)
        self._gone(node)

    def restart(self, node: str) -> None:
        self.sim.restart(node)

    def leave(self, node: str) -> None:
        agent = self.live[node]
        self._gone(node)
        agent.leave(lambda: self.sim.crash(node))

    def _gone(self, node: str) -> None:
        self.live.pop(node, None)
        self.joined.discard(node)
        self.published.pop(node, None)

    def publish(self, node: str, values: dict[str, float]) -> None:
        self.published[node] = values
        self.live[node].publish(values)

    # What is true of the whole ring, seen from outside.

    def is_whole(self) -> bool:
        """Whether everybody knows his neighbours on both sides."""
        from kademlia_invariants import identifier

        order = sorted(self.live, key=identifier)
        count = len(order)
        for i, node in enumerate(order):
            near = min(3, count - 1)
            after = [at(order[(i + k) % count], PART) for k in range(1, near + 1)]
            before = [at(order[(i - k) % count], PART) for k in range(1, near + 1)]
            table = self.live[node].base.table
            if [c.agent for c in table.after(near)] != after:
                return False
            if [c.agent for c in table.before(near)] != before:
                return False
        return True

    def scan(self, query: Query) -> list[str]:
        """What a query should find, from what was published."""
        found = [
            (values[query.rank], at(node, PART))
            for node, values in self.published.items()
            if all(
                name in values and values[name] in limits for name, limits in query.wants.items()
            )
            and query.rank in values
        ]
        found.sort(key=lambda pair: (-pair[0] if query.highest else pair[0], pair[1]))
        return [node for _, node in found][: query.most]

    def find(self, query: Query, at_node: str | None = None) -> MetasFound:
        done: list[MetasFound] = []
        node = at_node or self.random.choice(sorted(self.live))
        self.live[node].find(query, done.append)
        assert self.until(lambda: bool(done)), "a query without an end"
        return done[0]

    def a_query(self) -> Query:
        random = self.random
        low = random.uniform(-5, 105)
        cpu = ValueRange(
            low, low + random.uniform(0, 60), random.random() < 0.5, random.random() < 0.5
        )
        wants = {"cpu": random.choice([cpu, ValueRange(high=80.0, high_open=True), ValueRange()])}
        if random.random() < 0.5:
            wants["memory"] = ValueRange(low=random.choice([2.0, 4.0, 60.0]))
        rank = random.choice(["cpu", "memory"])
        return Query(rank, wants, random.random() < 0.5, random.choice([1, 3, 1 << 30]))


def values_from(random) -> dict[str, float]:
    """Some of them equal, some beyond the span."""
    cpu = random.choice([random.uniform(0, 100), float(random.randrange(0, 100, 10)), -1.0, 120.0])
    return {"cpu": cpu, "memory": float(random.choice([1, 2, 4, 8, 16, 32, 64]))}


def void(_: object) -> None:
    """For actions whose result nobody wants."""
