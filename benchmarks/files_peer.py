"""One peer of the files benchmark, driven by JSON lines: commands on stdin, events on stdout.

    python benchmarks/files_peer.py HOME CACHE SIZE_BYTES_MAX

Commands: {"do": "put", "path"}, {"do": "fetch", "digest", "size", "sources"}, {"do": "end"}. With
"die_at" in a fetch, the process kills itself when that share of the file is there.
Events: {"node"} first; then {"there", "size"} while a file comes in, {"put"}, {"fetched"} or
{"missing"}, and {"cpu_s"} at the end. Tests use it too: it is a whole peer as far as files go.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import uvloop

from sureline.peer.files.cache import FileCache
from sureline.peer.files.finding import NOWHERE  # sources name each other
from sureline.peer.files.service import FetchError, FileService
from sureline.peer.files.wire import Body
from sureline.workflow.files import FileRecord
from sureline.world.identity.certificates import Identity
from sureline.world.identity.credentials import Credentials
from sureline.world.identity.home import GridHome
from sureline.world.net.codec import Codec
from sureline.world.net.transport import NetTransport

GRID = "bench"
TOLD_S = 0.05


def tell(**event: Any) -> None:
    print(json.dumps(event), flush=True)


class Peer:
    def __init__(self, transport: NetTransport, cache: FileCache) -> None:
        self.files = FileService(cache, transport, me=transport.node, places=NOWHERE)
        self._told_at = 0.0
        self._die_at = 2.0

    def progressed(self, there: int, size: int) -> None:
        if there >= self._die_at * size:
            os.kill(os.getpid(), signal.SIGKILL)
        now = time.monotonic()
        if now - self._told_at > TOLD_S or there == size:
            self._told_at = now
            tell(there=there, size=size)

    async def do(self, command: dict[str, Any]) -> None:
        if command["do"] == "put":
            record = await self.files.put(command["path"], "data")
            tell(put=record.digest, size=record.size, cpu_s=time.process_time())
        elif command["do"] == "fetch":
            wanted = FileRecord("data", command["digest"], command["size"])
            self._die_at = command.get("die_at", self._die_at)
            try:
                got = await self.files.fetch(wanted, command["sources"], self.progressed)
            except FetchError as error:
                tell(missing=str(error))
            else:
                tell(fetched=got.file.digest, source=got.source, at=time.time())


async def serve(home: str, cache_path: str, size_bytes_max: int) -> None:
    loop = asyncio.get_running_loop()
    credentials = Credentials.load(GridHome.open(GRID, Path(home)))
    cache = FileCache(Path(cache_path), size_bytes_max)
    peer: Peer

    async def answer(identity: Identity, request: bytes) -> tuple[bytes, Body]:
        return await peer.files.answer(identity.name, request)

    transport = await NetTransport.listen(loop, "127.0.0.1", 0, credentials, Codec([]), bulk=answer)
    peer = Peer(transport, cache)
    peer.files.serve()
    tell(node=transport.node)
    tasks: set[asyncio.Task[None]] = set()
    while line := await loop.run_in_executor(None, sys.stdin.readline):
        command = json.loads(line)
        if command["do"] == "end":
            break
        task = asyncio.ensure_future(peer.do(command))
        tasks.add(task)
        task.add_done_callback(tasks.discard)
    tell(cpu_s=time.process_time())
    await peer.files.close()
    await transport.close()
    cache.close()


if __name__ == "__main__":
    uvloop.run(serve(sys.argv[1], sys.argv[2], int(sys.argv[3])))
