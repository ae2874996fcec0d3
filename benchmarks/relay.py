"""Bulk data and messages through a relay, against the same directly, on loopback.

    python benchmarks/relay.py [--megabytes 256] [--rounds 5] [--round-trips 2000] [--json FILE]

Prints JSON. A source, a relay and a reader, each a process of its own. In every round the reader
fetches from the same source process directly, then through the relay (it knows the source by an
address at which nobody can dial it), then plays ping-pong by both ways. MB/s, CPU seconds of each
process, microseconds of a round trip; medians over the rounds, and the ratio of each round's pair.
CPU and ratios are the evidence: three processes share this machine's cores.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import uvloop

from sureline.world.address import Node
from sureline.world.identity.authority import Authority
from sureline.world.identity.certificates import Identity
from sureline.world.identity.credentials import Credentials
from sureline.world.identity.home import GridHome
from sureline.world.net.codec import Codec
from sureline.world.net.limits import Limits
from sureline.world.net.transport import NetTransport
from sureline.world.protocol import Message

BODY = bytes(range(256)) * (4 << 12)
"""4 MiB: what one bulk answer holds."""
BEHIND = "127.0.0.2"
"""Where nobody listens."""
FAST = Limits(messages_per_s=1e9, messages_burst=1e9, direct_again_s=1e9, go_over_s=1e6)


class Rally(Message, frozen=True, tag="bench.rally"):
    number: int


class Known:
    """Everybody is reached through these, if not directly."""

    def __init__(self, relays: Sequence[Node]) -> None:
        self._relays = relays

    def relays_of(self, node: Node) -> Sequence[Node]:
        return self._relays if BEHIND in node else ()

    def may_be_there(self, node: Node) -> bool:
        return True

    def can_be_dialled(self) -> Sequence[Node]:
        return self._relays


async def listen(home: Path, suffix: str, advertise: str, relays: Sequence[Node]) -> NetTransport:
    async def answer(identity: Identity, request: bytes) -> tuple[bytes, bytes]:
        return b"", BODY

    transport = await NetTransport.listen(
        asyncio.get_running_loop(),
        "127.0.0.1",
        0,
        Credentials.load(GridHome.open("bench", home)),
        Codec([Rally]),
        name_suffix=suffix,
        limits=FAST,
        bulk=answer,
        advertise=advertise,
    )
    transport.attach(transport.send, lambda node: None)
    behind = advertise == BEHIND
    dialled = "never" if behind else "always"
    transport.reach(Known(relays), lambda berth: None, dialled=dialled)
    while behind and not transport.berth.relays:  # noqa: ASYNC110 - soon over, and not measured
        await asyncio.sleep(0.01)
    return transport


async def serve(home: Path, role: str, relays: Sequence[Node]) -> None:
    """A process beside the reader: says where it is, and is there until its input ends."""
    if role == "relay":
        nodes = [(await listen(home, "relay", "127.0.0.1", ())).node]
    else:
        open_ = await listen(home, "open", "127.0.0.1", ())
        behind = await listen(home, "behind", BEHIND, relays)
        nodes = [open_.node, behind.node]
    print(json.dumps(nodes), flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)


def cpu_s(process: subprocess.Popen[str] | None) -> float:
    """Of this process, or of another one that we have started."""
    if process is None:
        return time.process_time()
    fields = Path(f"/proc/{process.pid}/stat").read_text().rpartition(") ")[2].split()
    return (int(fields[11]) + int(fields[12])) / 100


async def fetch(reader: NetTransport, node: Node, count: int) -> None:
    buffers = [bytearray(len(BODY)) for _ in range(4)]
    left = iter(range(count))

    async def one(buffer: bytearray) -> None:
        for _ in left:
            _, body = await reader.ask_bulk(node, b"?", buffer)
            assert len(body) == len(BODY)

    await asyncio.gather(*map(one, buffers))


async def play(reader: NetTransport, node: Node, trips: int) -> float:
    over = asyncio.get_running_loop().create_future()

    def back(sender: Any, to: Any, message: Message) -> None:
        assert isinstance(message, Rally)
        if message.number < trips:
            reader.send(sender, to, Rally(message.number + 1))
        else:
            over.set_result(None)

    reader.attach(back, lambda node: None)
    begin = time.perf_counter()
    reader.send(f"{node}/b", f"{reader.node}/a", Rally(0))  # type: ignore[arg-type]  # text
    await over
    return (time.perf_counter() - begin) / trips * 1e6


async def measure(
    home: Path, nodes: dict[str, Node], processes: dict[str, Any], given: argparse.Namespace
) -> list[dict[str, dict[str, float]]]:
    reader = await listen(home, "reader", BEHIND, [nodes["relay"]])
    count = max(1, given.megabytes * 1_000_000 // len(BODY))
    rounds = []
    for number in range(given.rounds + 1):
        found: dict[str, dict[str, float]] = {}
        for way in ("direct", "relay"):
            node = nodes["open" if way == "direct" else "behind"]
            await fetch(reader, node, 1)
            before = {name: cpu_s(process) for name, process in processes.items()}
            begin = time.perf_counter()
            await fetch(reader, node, count)
            took_s = time.perf_counter() - begin
            used = {f"{n}_cpu_s": round(cpu_s(p) - before[n], 3) for n, p in processes.items()}
            rate = round(count * len(BODY) / took_s / 1e6, 1)
            trip_us = round(await play(reader, node, given.round_trips), 1)
            found[way] = {"mb_per_s": rate, **used, "round_trip_us": trip_us}
        if number:  # the first warms up
            rounds.append(found)
    carried = [link.through for link in reader.peers() if link.node == nodes["behind"]]
    assert carried == [nodes["relay"]], "the relay carried, and the direct way was direct"
    await reader.close()
    return rounds


def summary(rounds: list[dict[str, dict[str, float]]]) -> dict[str, Any]:
    ways = {
        way: {key: statistics.median(r[way][key] for r in rounds) for key in rounds[0][way]}
        for way in ("direct", "relay")
    }
    ratios = [r["relay"]["mb_per_s"] / r["direct"]["mb_per_s"] for r in rounds]
    trips = [r["relay"]["round_trip_us"] / r["direct"]["round_trip_us"] for r in rounds]
    return {
        **ways,
        "relay_over_direct": {
            "throughput": [round(min(ratios), 2), round(statistics.median(ratios), 2)],
            "round_trip": [round(max(trips), 2), round(statistics.median(trips), 2)],
            "of": "worst and median of the rounds",
        },
        "rounds": len(rounds),
    }


def start(home: Path, role: str, relays: Sequence[Node] = ()) -> subprocess.Popen[str]:
    command = [sys.executable, __file__, "--role", role, "--home", str(home)]
    return subprocess.Popen(
        [*command, "--relays", json.dumps(relays)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def said(process: subprocess.Popen[str]) -> list[Node]:
    assert process.stdout is not None
    nodes: list[Node] = json.loads(process.stdout.readline())
    return nodes


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--megabytes", type=int, default=256)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--round-trips", type=int, default=2000)
    parser.add_argument("--json", type=Path, help="write the figures there as well")
    parser.add_argument("--role", help=argparse.SUPPRESS)
    parser.add_argument("--home", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--relays", type=json.loads, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.role:
        uvloop.run(serve(given.home, given.role, given.relays))
        return
    with tempfile.TemporaryDirectory() as where:
        home = Path(where) / "home"
        Authority.create(home, "bench", "bench")
        with start(home, "relay") as relay:
            [carrier] = said(relay)
            with start(home, "source", [carrier]) as source:
                open_, behind = said(source)
                nodes = {"relay": carrier, "open": open_, "behind": behind}
                processes = {"source": source, "relay": relay, "reader": None}
                rounds = uvloop.run(measure(home, nodes, processes, given))
                source.kill()
            relay.kill()
    text = json.dumps(summary(rounds), indent=2)
    print(text)
    if given.json:
        given.json.write_text(text + "\n")


if __name__ == "__main__":
    main()
