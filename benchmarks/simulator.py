"""How fast the simulated world is, against SimPy and against a plain heap, in the same run.

N nodes pass messages to a neighbour of their own (a random one, the same for all contestants);
every message takes an exponential delay, independent of all others, and one is under way for each
node. Sureline runs real agents: typed dispatch through `Agent.receive`, counters on (light
detail). The rivals run bare callbacks on node objects that count what they receive. `in order` is
Sureline again with a link that keeps the order of messages between two agents, as connections do
and the rivals do not. For all of them the collector of cycles is kept off. Each measurement has a
process of its own, and the contestants take turns; the figure is events per second of CPU time.

    python benchmarks/simulator.py [--sizes 10000,100000,1000000] [--repeat 3] [--json FILE]
"""

from __future__ import annotations

import argparse
import gc
import heapq
import json
import os
import random
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from itertools import count
from pathlib import Path

MEAN_S = 1.0
SEED = 7
CONTESTANTS = ("sureline", "in_order", "heapq", "simpy")
WANTED = {10_000: 2.0, 100_000: 2.0, 1_000_000: 3.0}
"""How many times SimPy's rate the simulator is to reach, by the number of nodes."""
BYTES_WANTED = 1024
EVENTS_LEAST = 1_000_000


def neighbours(nodes: int) -> list[int]:
    """The neighbour of each: all nodes form one ring, in a random order."""
    order = list(range(nodes))
    random.Random(SEED).shuffle(order)
    found = [0] * nodes
    for here, there in zip(order, order[1:] + order[:1], strict=True):
        found[here] = there
    return found


def resident_bytes() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def timed(events: int, run: Callable[[], int]) -> dict[str, float]:
    """`run` says how many events it has made happen."""
    gc.collect()
    gc.freeze()
    gc.disable()
    began_s = time.process_time()
    happened = run()
    cpu_s = time.process_time() - began_s
    assert happened >= 0.5 * events, f"{happened} events instead of {events}"
    return {"events": happened, "cpu_s": cpu_s, "events_per_cpu_s": happened / cpu_s}


def in_order(nodes: int, events: int) -> dict[str, float]:
    return sureline(nodes, events, reorder=False)


def sureline(nodes: int, events: int, *, reorder: bool = True) -> dict[str, float]:
    from sureline.world.agent import Agent, handles
    from sureline.world.protocol import AgentId, Message, World
    from sureline.world.simulated import Exponential, Link, Network, Simulation

    class Token(Message, frozen=True, tag="benchmark.token"):
        number: int

    class Node(Agent):
        __slots__ = ("neighbour",)

        def __init__(self, me: AgentId, world: World, neighbour: AgentId) -> None:
            super().__init__(me, world)
            self.neighbour = neighbour

        @handles(Token)
        def on_token(self, sender: AgentId, token: Token) -> None:
            self.world.send(self.neighbour, token)

    gc.disable()
    names = [f"n{number}" for number in range(nodes)]
    ring = neighbours(nodes)
    before = resident_bytes()
    link = Link(Exponential(MEAN_S), reorder=reorder)
    sim = Simulation(SEED, Network(link), detail="light")
    agents = []
    for number, name in enumerate(names):
        agent = Node(name, sim.place(name), names[ring[number]])
        sim.join(agent)
        agents.append(agent)
    per_agent = (resident_bytes() - before) / nodes
    for number, agent in enumerate(agents):
        agent.world.send(agent.neighbour, Token(number))
    sim.run(until=MEAN_S / 10)

    def run() -> int:
        already = sim.events
        sim.run(until=sim.time + events / nodes * MEAN_S)
        return sim.events - already

    found = timed(events, run)
    sent = sim.counters.by_type()["benchmark.token"].sent
    assert sent == sum(agent.world.sent for agent in agents), "the counters do not agree"
    return {**found, "bytes_per_agent": per_agent}


def simpy(nodes: int, events: int) -> dict[str, float]:
    from simpy import Environment
    from simpy.events import Event

    environment = Environment()
    timeout, draw = environment.timeout, random.Random(SEED).expovariate

    class Node:
        __slots__ = ("neighbour", "received")

        def __init__(self) -> None:
            self.received = 0

        def receive(self, event: Event) -> None:
            self.received += 1
            timeout(draw(1 / MEAN_S), event._value).callbacks.append(self.neighbour.receive)

    everyone = [Node() for _ in range(nodes)]
    for node, number in zip(everyone, neighbours(nodes), strict=True):
        node.neighbour = everyone[number]
    for number, node in enumerate(everyone):
        timeout(draw(1 / MEAN_S), number).callbacks.append(node.neighbour.receive)
    environment.run(until=MEAN_S / 10)

    def run() -> int:
        already = sum(node.received for node in everyone)
        environment.run(until=environment.now + events / nodes * MEAN_S)
        return sum(node.received for node in everyone) - already

    return timed(events, run)


def plain_heap(nodes: int, events: int) -> dict[str, float]:
    queue: list[tuple[float, int, Callable[[int], None], int]] = []
    draw, number_of = random.Random(SEED).expovariate, count().__next__
    push, pop = heapq.heappush, heapq.heappop
    now = 0.0

    class Node:
        __slots__ = ("neighbour", "received")

        def __init__(self) -> None:
            self.received = 0

        def receive(self, token: int) -> None:
            self.received += 1
            push(queue, (now + draw(1 / MEAN_S), number_of(), self.neighbour.receive, token))

    everyone = [Node() for _ in range(nodes)]
    for node, number in zip(everyone, neighbours(nodes), strict=True):
        node.neighbour = everyone[number]
    for number, node in enumerate(everyone):
        push(queue, (draw(1 / MEAN_S), number_of(), node.neighbour.receive, number))

    def run() -> int:
        nonlocal now
        for _ in range(events):
            now, _, receive, token = pop(queue)
            receive(token)
        return events

    return timed(events, run)


def measure(contestant: str, nodes: int) -> dict[str, float]:
    """One contestant at one size, in this process."""
    events = max(EVENTS_LEAST if nodes >= 10_000 else 20 * nodes, 2 * nodes)
    make = {"sureline": sureline, "in_order": in_order, "simpy": simpy, "heapq": plain_heap}
    return make[contestant](nodes, events)


def in_a_process(contestant: str, nodes: int) -> dict[str, float]:
    done = subprocess.run(
        [sys.executable, str(Path(__file__).resolve()), "--one", contestant, str(nodes)],
        stdout=subprocess.PIPE,
        check=True,
    )
    found: dict[str, float] = json.loads(done.stdout)
    return found


def rounds(nodes: int, repeat: int) -> dict[str, float]:
    """The medians at one size; the ratio to SimPy is the median of the rounds' ratios."""
    samples: dict[str, list[dict[str, float]]] = {name: [] for name in CONTESTANTS}
    for number in range(repeat):
        for name in CONTESTANTS:
            print(f"{nodes} nodes, round {number + 1}: {name} ...", file=sys.stderr)
            samples[name].append(in_a_process(name, nodes))

    def rates(name: str) -> list[float]:
        return [sample["events_per_cpu_s"] for sample in samples[name]]

    row: dict[str, float] = {"nodes": nodes}
    for name in CONTESTANTS:
        row[name] = statistics.median(rates(name))
    for rival in ("simpy", "heapq"):
        pairs = zip(rates("sureline"), rates(rival), strict=True)
        row[f"against_{rival}"] = statistics.median(ours / theirs for ours, theirs in pairs)
    row["bytes_per_agent"] = statistics.median(s["bytes_per_agent"] for s in samples["sureline"])
    return row


COLUMNS = {
    "nodes": "nodes",
    "sureline": "Sureline, events/CPU s",
    "in_order": "in order",
    "heapq": "heapq",
    "simpy": "SimPy",
    "against_simpy": "against SimPy",
    "against_heapq": "against heapq",
    "bytes_per_agent": "bytes per agent",
}


def table(rows: list[dict[str, float]]) -> str:
    lines = ["| " + " | ".join(COLUMNS.values()) + " |", "|---" * len(COLUMNS) + "|"]
    for row in rows:
        cells = [f"{row[key]:,.{2 if 'against' in key else 0}f}" for key in COLUMNS]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def verdicts(rows: list[dict[str, float]]) -> list[str]:
    lines = []
    for r in rows:
        wanted = WANTED.get(int(r["nodes"]))
        if wanted is not None:
            met = "MET" if r["against_simpy"] >= wanted else "MISSED"
            lines.append(
                f"{met:7} {wanted:g} times SimPy at {r['nodes']:,.0f} nodes: "
                f"{r['against_simpy']:.2f}"
            )
    largest = max(rows, key=lambda r: r["nodes"])
    met = "MET" if largest["bytes_per_agent"] <= BYTES_WANTED else "MISSED"
    lines.append(
        f"{met:7} at most {BYTES_WANTED} bytes per agent at rest: {largest['bytes_per_agent']:.0f}"
    )
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--sizes", default="10000,100000,1000000")
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--json", type=Path, help="write the figures to this file too")
    parser.add_argument("--one", nargs=2, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.one:
        print(json.dumps(measure(given.one[0], int(given.one[1]))))
        return
    rows = [rounds(int(text), given.repeat) for text in given.sizes.split(",")]
    result = {"benchmark": "simulator", "rows": rows}
    if given.json:
        given.json.write_text(json.dumps(result, indent=2) + "\n")
    print(table(rows))
    print("\n".join(verdicts(rows)))
    print(json.dumps(result))


if __name__ == "__main__":
    main()
