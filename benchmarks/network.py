"""The live network against the TLS of uvloop and of the standard library, on loopback.

    python benchmarks/network.py [--connections 600] [--round-trips 5000] [--json FILE]

Prints JSON. For each contender, in a process of its own that holds both ends: CPU of a connection
opened with certificates on both sides (two handshakes), memory of one idle end, CPU of a round trip
of a small message. The rivals carry bare frames over the loops' own TLS: no names, roles, queues or
limits. For large bodies see `files.py`.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import uvloop

from sureline.world.identity.authority import Authority
from sureline.world.identity.credentials import Credentials
from sureline.world.net.codec import Codec
from sureline.world.net.limits import Limits
from sureline.world.net.transport import NetTransport
from sureline.world.protocol import Message

CONTENDERS = ("sureline", "sureline on asyncio", "uvloop TLS", "asyncio TLS")
WARM_UP = 20


class Ball(Message, frozen=True, tag="bench.ball"):
    number: int
    text: str = "x" * 40


def resident_bytes() -> int:
    gc.collect()
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(300):
        while not condition():  # noqa: ASYNC110 - both ends are in this process; it is short
            await asyncio.sleep(0.001)


def miss(node: str) -> None:
    """At the end they leave one after the other, and tell each other so."""


def figures(
    connections: int, cpu_s: float, grown_bytes: int, trips: int, trips_s: float
) -> dict[str, float]:
    return {
        "open_cpu_us": round(cpu_s / connections * 1e6, 1),
        "idle_end_kib": round(grown_bytes / connections / 2 / 1024, 1),
        "round_trip_cpu_us": round(trips_s / trips * 1e6, 1),
    }


async def ours(home: Path, connections: int, trips: int) -> dict[str, float]:
    """Every pair of some nodes is connected; then two of them play."""
    count = 2
    while count * (count - 1) // 2 < connections:
        count += 1
    loop = asyncio.get_running_loop()
    credentials = Credentials.load(grid_home(home))
    limits = Limits(warm_links=count, links_max=2 * count, messages_per_s=1e9, messages_burst=1e9)
    heard = 0

    def hear(sender: str, to: str, message: Message) -> None:
        nonlocal heard
        heard += 1

    nodes = []
    for number in range(count):
        nodes.append(
            await NetTransport.listen(
                loop,
                "127.0.0.1",
                0,
                credentials,
                Codec([Ball]),
                name_suffix=str(number),
                on_message=hear,
                on_unreachable=miss,
                limits=limits,
            )
        )
    made, cpu_s, before = 0, 0.0, 0
    for first, caller in enumerate(nodes):
        for called in nodes[first + 1 :]:
            if made == WARM_UP:
                before, cpu_s = resident_bytes(), time.process_time()
            caller.send(f"{called.node}/b", f"{caller.node}/a", Ball(0))
            made += 1
            await until(lambda made=made: heard == made)
    cpu_s = time.process_time() - cpu_s
    grown = resident_bytes() - before
    trips_s = await play(nodes[0], nodes[1], trips)
    for node in nodes:
        await node.close()
    return figures(made - WARM_UP, cpu_s, grown, trips, trips_s)


async def play(a: NetTransport, b: NetTransport, trips: int) -> float:
    over = asyncio.get_running_loop().create_future()
    left = trips

    def back(sender: str, to: str, message: Message) -> None:
        nonlocal left
        left -= 1
        if left:
            a.send(sender, to, message)
        else:
            over.set_result(None)

    a.attach(back, miss)
    b.attach(b.send, miss)
    began = time.process_time()
    a.send(f"{b.node}/b", f"{a.node}/a", Ball(1))
    await over
    return time.process_time() - began


class Bare(asyncio.Protocol):
    """Frames over the loop's own TLS: whatever comes is given to `take`."""

    def __init__(self, take: Callable[[Bare, bytes], None]) -> None:
        self.take = take

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport: Any = transport

    def data_received(self, data: bytes) -> None:
        self.take(self, data)


async def rival(home: Path, connections: int, trips: int) -> dict[str, float]:
    loop = asyncio.get_running_loop()
    credentials = Credentials.load(grid_home(home))
    frame = bytes(Codec([Ball]).encode("a", "b", Ball(0)))
    left = 0
    over = loop.create_future()

    def back(bare: Bare, data: bytes) -> None:
        nonlocal left
        left -= 1
        if left > 0:
            bare.transport.write(data)
        else:
            over.set_result(None)

    server = await loop.create_server(
        lambda: Bare(lambda bare, data: bare.transport.write(data)),
        "127.0.0.1",
        0,
        ssl=credentials.server_context(),
    )
    port = server.sockets[0].getsockname()[1]
    ends = []
    for number in range(connections + WARM_UP):
        if number == WARM_UP:
            before, cpu_s = resident_bytes(), time.process_time()
        ends.append(
            await loop.create_connection(
                lambda: Bare(back), "127.0.0.1", port, ssl=credentials.client_context()
            )
        )
        over = loop.create_future()
        left = 1
        ends[-1][0].write(frame)
        await over
    cpu_s = time.process_time() - cpu_s
    grown = resident_bytes() - before
    over, left = loop.create_future(), trips
    began = time.process_time()
    ends[0][0].write(frame)
    await over
    trips_s = time.process_time() - began
    for transport, _ in ends:
        transport.abort()
    server.close()
    await asyncio.sleep(0.1)
    return figures(connections, cpu_s, grown, trips, trips_s)


def grid_home(home: Path) -> Any:
    from sureline.world.identity.home import GridHome

    return GridHome.open("bench", home)


def perform(contender: str, home: Path, connections: int, trips: int) -> dict[str, float]:
    work = ours if contender.startswith("sureline") else rival
    factory = asyncio.new_event_loop if "asyncio" in contender else uvloop.new_event_loop
    with asyncio.Runner(loop_factory=factory) as runner:
        return runner.run(work(home, connections, trips))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--connections", type=int, default=600)
    parser.add_argument("--round-trips", type=int, default=5000)
    parser.add_argument("--json", type=Path, help="write the figures there as well")
    parser.add_argument("--contender", choices=CONTENDERS, help=argparse.SUPPRESS)
    parser.add_argument("--home", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.contender:
        found = perform(given.contender, given.home, given.connections, given.round_trips)
        print(json.dumps(found))
        return
    with tempfile.TemporaryDirectory() as where:
        home = Path(where) / "home"
        Authority.create(home, "bench", "bench")
        command = [sys.executable, __file__, "--home", str(home)]
        command += ["--connections", str(given.connections)]
        command += ["--round-trips", str(given.round_trips), "--contender"]
        results = {
            contender: json.loads(subprocess.check_output([*command, contender]))
            for contender in CONTENDERS
        }
    text = json.dumps(results, indent=2)
    print(text)
    if given.json:
        given.json.write_text(text + "\n")


if __name__ == "__main__":
    main()
