"""Nodes over real TLS on loopback, in one process, for tests of what travels."""

from __future__ import annotations

import asyncio
import socket
import ssl
import tempfile
import time
from collections.abc import Callable, Coroutine
from functools import cache
from pathlib import Path
from typing import Any

import uvloop

from sureline.world.identity import certificates
from sureline.world.net.codec import Codec
from sureline.world.net.limits import Limits
from sureline.world.net.transport import NetTransport
from sureline.world.protocol import Message

ROLES = frozenset({"run", "submit"})


class Note(Message, frozen=True, tag="test.note"):
    number: int
    text: str = ""


class Order(Message, frozen=True, tag="test.order"):
    needs_role = "submit"
    number: int


TYPES = [Note, Order]


class LabGrid:
    """A certificate authority in memory."""

    def __init__(self, grid: str = "lab") -> None:
        self.grid = grid
        self.key, self.certificate = certificates.new_authority(grid)
        self.revoked: dict[str, str] = {}
        """Reasons by name."""

    def credentials(self, name, roles=ROLES, valid_s=3600.0) -> LabCredentials:
        return LabCredentials(self, name, roles, valid_s)

    def anonymous(self) -> ssl.SSLContext:
        """A client's context without a certificate."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False
        context.load_verify_locations(cadata=certificates.pem_of(self.certificate).decode())
        return context


class LabCredentials:
    def __init__(self, lab: LabGrid, name, roles, valid_s) -> None:
        self.lab = lab
        self.grid = lab.grid
        self.name = name
        key = certificates.new_key()
        certificate = certificates.issue(
            lab.key,
            lab.certificate,
            key.public_key(),
            grid=lab.grid,
            name=name,
            roles=frozenset(roles),
            valid_s=valid_s,
        )
        self._pem = certificates.pem_of(certificate) + certificates.key_pem(key)
        self._server = self._context(ssl.PROTOCOL_TLS_SERVER)
        self._server.verify_mode = ssl.CERT_OPTIONAL
        self._server.num_tickets = 0
        self._client = self._context(ssl.PROTOCOL_TLS_CLIENT)

    def _context(self, protocol) -> ssl.SSLContext:
        context = ssl.SSLContext(protocol)
        context.check_hostname = False
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        context.load_verify_locations(cadata=certificates.pem_of(self.lab.certificate).decode())
        with tempfile.NamedTemporaryFile() as file:
            Path(file.name).write_bytes(self._pem)
            context.load_cert_chain(file.name)
        return context

    def server_context(self) -> ssl.SSLContext:
        return self._server

    def client_context(self) -> ssl.SSLContext:
        return self._client

    def identify(self, der):
        return certificates.identity_of(certificates.read_der(der), self.lab.certificate)

    def refused(self, identity):
        if identity.not_after < time.time():
            return f"the certificate of {identity.name} has expired"
        return self.lab.revoked.get(identity.name)


@cache
def lab_grid(grid: str = "lab") -> LabGrid:
    """One for all tests of a process."""
    return LabGrid(grid)


_started: list[LabNode] = []


class LabNode:
    """A transport and what it has brought."""

    transport: NetTransport

    def __init__(self) -> None:
        self.heard: list[tuple[str, str, Message]] = []
        self.gone: list[str] = []

    @classmethod
    async def start(cls, credentials, *, limits: Limits | None = None, **options) -> LabNode:
        self = cls()
        self.transport = await NetTransport.listen(
            asyncio.get_running_loop(),
            "127.0.0.1",
            options.pop("port", 0),
            credentials,
            options.pop("codec", None) or Codec(TYPES),
            on_message=lambda *letter: self.heard.append(letter),
            on_unreachable=self.gone.append,
            limits=limits,
            **options,
        )
        _started.append(self)
        return self

    @property
    def node(self) -> str:
        return self.transport.node

    def say(self, to: LabNode | str, message: Message, part: str = "ear") -> None:
        node = to if isinstance(to, str) else to.node
        self.transport.send(f"{node}/{part}", f"{self.node}/mouth", message)

    @property
    def numbers(self) -> list[int]:
        return [message.number for _, _, message in self.heard]


async def until(condition: Callable[[], object], timeout_s: float = 30.0) -> None:
    async with asyncio.timeout(timeout_s):
        while not condition():  # noqa: ASYNC110 - any condition of a test, not one event
            await asyncio.sleep(0.002)


def free_port() -> int:
    """A port on which nobody listens just now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def run(test: Coroutine[Any, Any, None], *, stdlib_loop: bool = False) -> None:
    """Run a test's coroutine on uvloop, or on the loop of the standard library. Nodes that it
    leaves behind are closed: where warnings are errors, uvloop never ends with one open."""

    async def with_end() -> None:
        try:
            await test
        finally:
            await close_all(*_started)
            _started.clear()

    factory = asyncio.new_event_loop if stdlib_loop else uvloop.new_event_loop
    with asyncio.Runner(loop_factory=factory) as runner:
        runner.run(with_end())


async def close_all(*nodes: LabNode) -> None:
    await asyncio.gather(*(node.transport.close() for node in nodes))
