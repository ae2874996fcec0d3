"""The rival of the files benchmark: a plain TLS copy, as fast as uvloop does it without tricks.

    python benchmarks/files_plain.py send HOME PATH          prints its port
    python benchmarks/files_plain.py receive HOME PORT PATH   prints how many bytes it wrote

A receiver says that it is ready, and begins when it reads a line.
The sender reads the file in pieces and writes them to every receiver that connects, with flow
control; a receiver writes what it gets to its disk. Nothing is verified.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from pathlib import Path
from typing import cast

import uvloop

from sureline.world.identity.credentials import Credentials
from sureline.world.identity.home import GridHome

GRID = "bench"
PIECE_BYTES = 1 << 18


class Sender(asyncio.Protocol):
    def __init__(self, path: str) -> None:
        self._path = path
        self._room = asyncio.Event()
        self._room.set()
        self._task: asyncio.Task[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._task = asyncio.ensure_future(self._send(cast(asyncio.WriteTransport, transport)))

    async def _send(self, transport: asyncio.WriteTransport) -> None:
        fd = os.open(self._path, os.O_RDONLY)
        try:
            while piece := os.read(fd, PIECE_BYTES):
                transport.write(piece)
                await self._room.wait()
        finally:
            os.close(fd)
        transport.close()

    def pause_writing(self) -> None:
        self._room.clear()

    def resume_writing(self) -> None:
        self._room.set()


class Receiver(asyncio.BufferedProtocol):
    def __init__(self, path: str, done: asyncio.Future[int]) -> None:
        self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        self._done = done
        self._buffer = memoryview(bytearray(PIECE_BYTES))
        self._total = 0

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        os.write(self._fd, self._buffer[:nbytes])
        self._total += nbytes

    def eof_received(self) -> None:
        pass

    def connection_lost(self, exc: Exception | None) -> None:
        os.close(self._fd)
        self._done.set_result(self._total)


async def send(home: str, path: str) -> None:
    loop = asyncio.get_running_loop()
    context = Credentials.load(GridHome.open(GRID, Path(home))).server_context()
    server = await loop.create_server(lambda: Sender(path), "127.0.0.1", 0, ssl=context)
    print(json.dumps({"port": server.sockets[0].getsockname()[1]}), flush=True)
    await loop.run_in_executor(None, sys.stdin.readline)
    print(json.dumps({"cpu_s": time.process_time()}), flush=True)


async def receive(home: str, port: int, path: str) -> None:
    loop = asyncio.get_running_loop()
    context = Credentials.load(GridHome.open(GRID, Path(home))).client_context()
    done: asyncio.Future[int] = loop.create_future()
    print(json.dumps({"ready": True}), flush=True)
    await loop.run_in_executor(None, sys.stdin.readline)
    await loop.create_connection(
        lambda: Receiver(path, done), "127.0.0.1", port, ssl=context, server_hostname=""
    )
    total = await done
    print(json.dumps({"bytes": total, "at": time.time(), "cpu_s": time.process_time()}), flush=True)


if __name__ == "__main__":
    if sys.argv[1] == "send":
        uvloop.run(send(sys.argv[2], sys.argv[3]))
    else:
        uvloop.run(receive(sys.argv[2], int(sys.argv[3]), sys.argv[4]))
