"""One process of the live benchmark: many peers, each with its own socket and certificate.

Takes one order per line on standard input, as JSON, and answers each with one line:
`ready`, `listen`, `join`, `store`, `find`, `held`, `broadcast`, `told`. Run by `live`.
"""

from __future__ import annotations

import asyncio
import json
import logging
import ssl
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from random import Random
from typing import Any

import uvloop

from sureline.overlay.kademlia import MESSAGES, Aggregate, Kademlia, key_of
from sureline.world.address import at
from sureline.world.identity import certificates
from sureline.world.identity.certificates import Identity
from sureline.world.live import LiveWorld
from sureline.world.net.codec import Codec
from sureline.world.net.transport import NetTransport

GRID = "bench"
PART = "kademlia"
TOPIC = "count"
LIST_BYTES_MAX = 1 << 24


class BenchCredentials:
    """A peer's own certificate, issued on the spot by the benchmark's authority."""

    grid = GRID

    def __init__(self, directory: Path, name: str) -> None:
        self.name = name
        self._authority = certificates.read_pem((directory / "authority.pem").read_bytes())
        self._path = directory / f"{name}.pem"
        key, authority_key = certificates.new_key(), directory / "authority.key"
        certificate = certificates.issue(
            certificates.read_key(authority_key.read_bytes()),
            self._authority,
            key.public_key(),
            grid=GRID,
            name=name,
            roles=frozenset(),
        )
        self._path.write_bytes(certificates.own_pem(key, certificate))
        self._server = self._context(ssl.PROTOCOL_TLS_SERVER, ssl.CERT_OPTIONAL)
        self._server.num_tickets = 0
        self._client = self._context(ssl.PROTOCOL_TLS_CLIENT, ssl.CERT_REQUIRED)

    def _context(self, protocol: int, mode: ssl.VerifyMode) -> ssl.SSLContext:
        context = ssl.SSLContext(protocol)
        context.check_hostname = False
        context.verify_mode = mode
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        context.load_verify_locations(cadata=certificates.pem_of(self._authority).decode())
        context.load_cert_chain(self._path)
        return context

    def server_context(self) -> ssl.SSLContext:
        return self._server

    def client_context(self) -> ssl.SSLContext:
        return self._client

    def identify(self, der: bytes) -> Identity:
        return certificates.identity_of(certificates.read_der(der), self._authority)

    def refused(self, identity: Identity) -> str | None:
        return None


class Unused:
    """The runner, fetcher and recorder of a world whose agents only talk."""

    def __getattr__(self, name: str) -> Any:
        raise AssertionError(f"an agent of this benchmark has no use for {name}")


class Worker:
    def __init__(self, loop: asyncio.AbstractEventLoop, index: int, directory: Path) -> None:
        self.loop = loop
        self.index = index
        self.directory = directory
        self.random = Random(index)
        self.agents: list[Kademlia] = []
        self.transports: list[NetTransport] = []
        self.heard = 0
        self.forwards: list[int] = []

    def crashed(self, error: BaseException) -> None:
        self.loop.call_exception_handler({"message": "an agent crashed", "exception": error})
        raise SystemExit(f"an agent crashed: {error!r}")

    async def listen(self, peers: int) -> list[str]:
        codec = Codec(MESSAGES)
        for number in range(peers):
            credentials = BenchCredentials(self.directory, f"p{self.index}-{number}")
            transport = await NetTransport.listen(self.loop, "127.0.0.1", 0, credentials, codec)
            unused = Unused()
            world = LiveWorld(
                self.loop,
                unused,
                unused,
                unused,
                on_crash=self.crashed,
                random=self.random,
                transport=transport,
                node=transport.node,
            )
            me = at(transport.node, PART)
            agent = Kademlia(me, world.place(me))
            agent.on_broadcast(TOPIC, lambda origin, payload: self._hear(), add_up)
            world.join(agent)
            self.agents.append(agent)
            self.transports.append(transport)
        return [transport.node for transport in self.transports]

    def _hear(self) -> bytes:
        self.heard += 1
        return (1).to_bytes(4)

    async def join(self, contacts: list[str], at_once: int) -> list[float]:
        """Join all peers through some of the contacts and of those that have joined here."""
        known = list(contacts)

        async def one(agent: Kademlia) -> float:
            seeds = self.random.sample(known, min(3, len(known)))
            began_s = time.perf_counter()
            await called(lambda done: agent.join([at(seed, PART) for seed in seeds], done))
            known.append(agent.me.partition("/")[0])
            return time.perf_counter() - began_s

        return await a_few(one, self.agents, at_once)

    async def store(self, keys: list[int], at_once: int) -> list[int]:
        async def one(number: int) -> int:
            agent, value = self.random.choice(self.agents), b"value of %d" % number
            return await called(lambda done: agent.store(key_of(f"file {number}"), value, done))

        return await a_few(one, keys, at_once)

    async def find(self, keys: list[int], at_once: int) -> list[tuple[bool, float]]:
        async def one(number: int) -> tuple[bool, float]:
            agent = self.random.choice(self.agents)
            began_s = time.perf_counter()
            values = await called(lambda done: agent.find(key_of(f"file {number}"), done))
            return b"value of %d" % number in values, time.perf_counter() - began_s

        return await a_few(one, keys, at_once)

    async def held(self, keys: int) -> list[int]:
        """Which of the first so many keys have a value on any peer here."""
        held = {key for agent in self.agents for key in agent.base.storage}
        return [number for number in range(keys) if key_of(f"file {number}") in held]

    async def broadcast(self) -> dict[str, float]:
        began_s = time.perf_counter()
        agent = self.random.choice(self.agents)
        got: Aggregate = await called(lambda done: agent.broadcast(TOPIC, b"hello", done))
        return {
            "latency_s": time.perf_counter() - began_s,
            "replies": int.from_bytes(got.value or b""),
            "missed": got.missed,
        }

    async def ready(self) -> bool:
        return True

    async def told(self) -> dict[str, Any]:
        """What there is to count: since the start, but `children_max` since the last time."""
        stats = [transport.stats() for transport in self.transports]
        forwards = [agent.broadcasts.forwards for agent in self.agents]
        before, self.forwards = self.forwards or [0] * len(forwards), forwards
        return {
            "heard": self.heard,
            "children_max": max((n - b for n, b in zip(forwards, before, strict=True)), default=0),
            "contacts": sum(len(agent.base.table) for agent in self.agents),
            "searches": sum(agent.searches.started for agent in self.agents),
            "questions": sum(agent.searches.questions for agent in self.agents),
            "sent": sum(sum(stat.sent.values()) for stat in stats),
            "links_max": max((stat.links for stat in stats), default=0),
            "cpu_s": time.process_time(),
        }


async def serve(worker: Any) -> None:
    """Obey the orders on standard input."""
    reader = asyncio.StreamReader(LIST_BYTES_MAX)
    protocol = asyncio.StreamReaderProtocol(reader)
    await asyncio.get_running_loop().connect_read_pipe(lambda: protocol, sys.stdin)
    while line := await reader.readline():
        order = json.loads(line)
        answer = await getattr(worker, order.pop("do"))(**order)
        print(json.dumps(answer), flush=True)


def add_up(replies: Iterable[bytes]) -> bytes:
    return sum(int.from_bytes(reply) for reply in replies).to_bytes(4)


async def called(start: Callable[[Callable[..., None]], None]) -> Any:
    """What a callback is called with."""
    done: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    start(done.set_result)
    return await done


async def a_few(one: Callable[[Any], Any], items: Iterable[Any], at_once: int) -> list[Any]:
    """Do the same for all items, so many at a time."""
    waiting = iter(items)
    results = []

    async def lane() -> None:
        for item in waiting:
            results.append(await one(item))

    await asyncio.gather(*(lane() for _ in range(at_once)))
    return results


async def main() -> None:
    loop = asyncio.get_running_loop()
    await serve(Worker(loop, int(sys.argv[1]), Path(sys.argv[2])))


if __name__ == "__main__":
    logging.disable(logging.WARNING)  # thousands of lines about the peers that were killed
    uvloop.run(main())
