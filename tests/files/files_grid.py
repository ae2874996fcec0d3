"""A grid of file services in one process: the network is a dictionary, and nodes can misbehave."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from blake3 import blake3

from sureline.peer.files.cache import FileCache
from sureline.peer.files.service import FileService
from sureline.peer.files.wire import AskChunk, Buffer, Question, decode_question
from sureline.workflow.files import FileRecord
from sureline.world.address import Node
from sureline.world.net.interfaces import FileRegion

MIB = 1 << 20
GB = 10**9
Tamper = Callable[[Question, bytes, Buffer], tuple[bytes, Buffer]]


class Dht:
    """Where the copies are, without a network."""

    def __init__(self) -> None:
        self.holders: dict[str, list[Node]] = {}
        self.lookups = 0

    def announce(self, node: Node, digest: str) -> None:
        nodes = self.holders.setdefault(digest, [])
        if node not in nodes:
            nodes.append(node)

    def withdraw(self, node: Node, digest: str) -> None:
        nodes = self.holders.get(digest, [])
        if node in nodes:
            nodes.remove(node)

    def locate(self, digest: str, on_done: Callable[[Sequence[Node]], None]) -> None:
        self.lookups += 1
        on_done(list(self.holders.get(digest, ())))


class _Places:
    """The same, as one node sees it."""

    def __init__(self, dht: Dht, node: Node) -> None:
        self.announce = partial(dht.announce, node)
        self.withdraw = partial(dht.withdraw, node)
        self.locate = dht.locate


class Grid:
    def __init__(self, where: Path) -> None:
        self.where = where
        self.dht = Dht()
        self.services: dict[Node, FileService] = {}
        self.dead: set[Node] = set()
        self.hung: set[Node] = set()
        self.tamper: dict[Node, Tamper] = {}
        self.chunks_served: dict[Node, list[int]] = {}
        self.asked_short: set[str] = set()
        """Digests of what was asked for over a link that is there, if there is one."""
        self.on_chunk: Callable[[Node, int], None] = lambda node, index: None
        self.delay_s: dict[Node, float] = {}

    def node(self, name: str, size_bytes_max: int = GB, *, serve: bool = True) -> FileService:
        node = f"{name}@here:1"
        cache = FileCache(self.where / name, size_bytes_max)
        service = FileService(cache, _Line(self, node), me=node, places=_Places(self.dht, node))
        if serve:
            service.serve()
        self.services[node] = service
        return service

    async def close(self) -> None:
        for service in self.services.values():
            await service.close()
            service.cache.close()


class _Line:
    """One node's way to the others."""

    def __init__(self, grid: Grid, me: Node) -> None:
        self._grid = grid
        self._me = me

    async def ask_bulk(
        self,
        node: Node,
        request: bytes,
        into: bytearray | None = None,
        *,
        short: bool = False,
    ) -> tuple[bytes, Buffer]:
        grid = self._grid
        if node not in grid.services or node in grid.dead or self._me in grid.dead:
            raise ConnectionRefusedError(f"nobody at {node}")
        if node in grid.hung:
            await asyncio.Event().wait()
        await asyncio.sleep(grid.delay_s.get(node, 0.0))
        header, found = await grid.services[node].answer(self._me, request)
        body = _read(found) if isinstance(found, FileRegion) else found
        question: Question = decode_question(request)
        if node in grid.tamper:
            header, body = grid.tamper[node](question, header, body)
        if short:
            grid.asked_short.add(question.digest)
        if isinstance(question, AskChunk):
            grid.chunks_served.setdefault(node, []).append(question.index)
            grid.on_chunk(node, question.index)
        if node in grid.dead or self._me in grid.dead:
            raise ConnectionResetError(f"{node} is gone")
        if into is None:
            return header, body
        into[: len(body)] = body
        return header, memoryview(into)[: len(body)]


def _read(region: FileRegion) -> bytes:
    with open(region.path, "rb") as file:
        return os.pread(file.fileno(), region.size_bytes, region.offset)


def on_grid(where: Path, story: Callable[[Grid], Coroutine[Any, Any, None]]) -> None:
    async def play() -> None:
        grid = Grid(where)
        try:
            await asyncio.wait_for(story(grid), 60)
        finally:
            await grid.close()

    asyncio.run(play())


def content(size: int, seed: int = 0) -> bytes:
    """Bytes of which no two chunks are alike."""
    return bytes(blake3(seed.to_bytes(8, "big")).digest(size))


async def put(service: FileService, where: Path, data: bytes, name: str = "data") -> FileRecord:
    path = where / name
    path.write_bytes(data)
    record = await service.put(str(path), name)
    os.unlink(path)
    return record


def stored(service: FileService, record: FileRecord) -> bytes:
    return service.cache.store.read(record)
