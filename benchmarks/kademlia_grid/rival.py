"""The `kademlia` package doing what `worker` does: one process, many nodes, plain UDP.

Takes the same orders, those about broadcasts apart, with the package's own defaults throughout.
Run by `live`, with a search path on which `kademlia` is the package.
"""

from __future__ import annotations

import asyncio
import logging
import sys
import time
from pathlib import Path
from random import Random
from typing import Any

sys.path.append(str(Path(__file__).parents[1]))

from kademlia.network import Server
from kademlia.utils import digest

from kademlia_grid.worker import a_few, serve


class Rival:
    def __init__(self, index: int) -> None:
        self.random = Random(index)
        self.servers: list[Server] = []
        self.ports: list[int] = []

    async def ready(self) -> bool:
        return True

    async def listen(self, peers: int) -> list[int]:
        for _ in range(peers):
            server = Server()
            await server.listen(0, interface="127.0.0.1")
            self.servers.append(server)
            self.ports.append(server.transport.get_extra_info("sockname")[1])
        return self.ports

    async def join(self, contacts: list[int], at_once: int) -> list[float]:
        known = list(contacts)

        async def one(number: int) -> float:
            seeds = self.random.sample(known, min(3, len(known)))
            began_s = time.perf_counter()
            await self.servers[number].bootstrap([("127.0.0.1", port) for port in seeds])
            known.append(self.ports[number])
            return time.perf_counter() - began_s

        return await a_few(one, range(len(self.servers)), at_once)

    async def store(self, keys: list[int], at_once: int) -> list[int]:
        async def one(number: int) -> int:
            server = self.random.choice(self.servers)
            stored = await server.set(f"file {number}", b"value of %d" % number)
            return 3 if stored else 0

        return await a_few(one, keys, at_once)

    async def find(self, keys: list[int], at_once: int) -> list[tuple[bool, float]]:
        async def one(number: int) -> tuple[bool, float]:
            server = self.random.choice(self.servers)
            began_s = time.perf_counter()
            value = await server.get(f"file {number}")
            return value == b"value of %d" % number, time.perf_counter() - began_s

        return await a_few(one, keys, at_once)

    async def held(self, keys: int) -> list[int]:
        return [
            number
            for number in range(keys)
            if any(digest(f"file {number}") in s.storage.data for s in self.servers)
        ]

    async def told(self) -> dict[str, Any]:
        return {"cpu_s": time.process_time()}


async def main() -> None:
    await serve(Rival(int(sys.argv[1])))


if __name__ == "__main__":
    logging.disable(logging.CRITICAL)
    asyncio.run(main())
