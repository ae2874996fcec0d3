"""Carrying connections between two others: what a relay does.

Somebody dials us and asks for another node (`Hello.reach`). If that one has a link with us it is
called over it, dials us, and shows the ticket; if not, we dial it. Then both are greeted, TLS with
us ends on both sides, and what comes from the one goes to the other as it is: the TLS of the ends.

A relay is no open proxy. Both ends have shown certificates of this grid with a role in it, and each
is who it says; the number of circuits is bounded, in all and for each peer, and so is what is under
way on one: who sends faster than the other reads is held back. An idle one gives way to a new one.
"""

from __future__ import annotations

import asyncio
import resource
import secrets
from collections import Counter
from typing import Protocol

from sureline.world.address import Node, peer_of
from sureline.world.net.codec import Hello
from sureline.world.net.control import Summons
from sureline.world.net.dialler import DialError, Dialler
from sureline.world.net.limits import Limits
from sureline.world.net.link import NetLink
from sureline.world.net.opening import Opening, Wish
from sureline.world.net.tls import notice_cuts
from sureline.world.protocol import Message

OWN_FILES = 300


class RelayOwner(Protocol):
    loop: asyncio.AbstractEventLoop
    limits: Limits
    carries: bool

    def link_with(self, node: Node) -> NetLink | None: ...
    def say(self, link: NetLink, message: Message) -> None: ...
    def complain(self, kind: str, source: str, text: str) -> None: ...


class Relay:
    """All circuits through this node, and those that wait for their other end."""

    def __init__(self, owner: RelayOwner, dialler: Dialler) -> None:
        self._owner = owner
        self._dialler = dialler
        self._waiting: dict[str, _Waiting] = {}
        self._circuits: dict[Circuit, None] = {}
        self._of_peer: Counter[str] = Counter()
        self._tasks: set[asyncio.Task[None]] = set()
        self._carried_bytes = 0
        files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        own = OWN_FILES + owner.limits.moorings_max  # besides circuits, of which each takes two
        self._circuits_max = min(owner.limits.circuits_max, max(1, (files - own) // 2))

    def __len__(self) -> int:
        return len(self._circuits)

    @property
    def carried_bytes(self) -> int:
        return self._carried_bytes + sum(c.carried_bytes for c in self._circuits)

    # Opening a circuit.

    def asked(self, opening: Opening, hello: Hello) -> None:
        """Somebody wants to be connected with another node."""
        assert opening.identity is not None
        caller = opening.identity.name
        why_not = self._objection(opening)
        if why_not:
            self._owner.complain("relay", caller, f"{caller} was not connected: {why_not}")
            opening.refuse(why_not)
            return
        ticket = secrets.token_hex(16)
        waiting = _Waiting(self, opening, hello, ticket)
        self._waiting[ticket] = waiting
        self._of_peer[caller] += 1
        opening.stream.user = waiting
        task = self._owner.loop.create_task(self._fetch(waiting))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _objection(self, opening: Opening) -> str:
        limits = self._owner.limits
        assert opening.identity is not None
        if not self._owner.carries:
            return "this peer carries nothing for others"
        if not opening.identity.roles:
            return "it has no role in this grid"
        if self._of_peer[opening.identity.name] >= limits.circuits_per_peer_max:
            return (
                f"one peer has at most {limits.circuits_per_peer_max} connections through another"
            )
        if len(self._waiting) + len(self._circuits) < self._circuits_max:
            return ""
        now = self._owner.loop.time()
        oldest = min(self._circuits, key=lambda circuit: circuit.used_at, default=None)
        if oldest is None or now - oldest.used_at < limits.circuit_grace_s:
            return f"this peer carries at most {self._circuits_max} connections"
        oldest.cut()
        return ""

    async def _fetch(self, waiting: _Waiting) -> None:
        """Have the other end come: call it if there is a link, else dial it."""
        limits, target = self._owner.limits, waiting.target
        link = self._owner.link_with(target)
        if link is not None:
            self._owner.say(link, Summons(waiting.ticket))
            await asyncio.wait([waiting.over], timeout=limits.circuit_open_s / 2)
        if waiting.over.done():
            return
        try:
            async with asyncio.timeout(limits.circuit_open_s):
                wish = Wish(reach=target)
                await self._dialler.once(
                    target, lambda opening, hello: self._came(opening, waiting), wish
                )
        except (DialError, TimeoutError) as error:
            why = str(error) or "no answer in time"
            waiting.give_up(f"{target} cannot be reached from here: {why}")

    def answered(self, opening: Opening, ticket: str) -> bool:
        """Somebody dials us because it was called; whether there is such a call."""
        waiting = self._waiting.get(ticket)
        if waiting is not None:
            self._came(opening, waiting)
        return waiting is not None

    def _came(self, opening: Opening, waiting: _Waiting) -> None:
        """The other end is there: connect the two."""
        assert opening.identity is not None
        if opening.identity.name != peer_of(waiting.target):
            opening.stream.abort("somebody else was called")
            return
        if waiting.over.done() or waiting.opening.stream.closing:
            opening.stream.abort("nobody waits any more")  # it is past TLS with us: no farewell
            return
        waiting.opening.welcome(waiting.bulk)
        caller_tcp, too_early = waiting.opening.stream.detach()
        target_tcp, arrived = opening.stream.detach()
        self._forget(waiting)
        peers = (waiting.caller, opening.identity.name)
        circuit = Circuit(self, self._owner, peers, (caller_tcp, target_tcp))
        self._circuits[circuit] = None
        self._of_peer[waiting.caller] += 1
        if too_early or arrived:
            circuit.cut()  # neither speaks before it is greeted

    def gave_up(self, waiting: _Waiting) -> None:
        self._forget(waiting)

    def _forget(self, waiting: _Waiting) -> None:
        if self._waiting.pop(waiting.ticket, None) is not None:
            self._less(waiting.caller)
            if not waiting.over.done():
                waiting.over.set_result(None)

    def _less(self, peer_name: str) -> None:
        self._of_peer[peer_name] -= 1
        if not self._of_peer[peer_name]:
            del self._of_peer[peer_name]

    # Circuits at work.

    def closed(self, circuit: Circuit) -> None:
        if circuit in self._circuits:
            del self._circuits[circuit]
            self._carried_bytes += circuit.carried_bytes
            self._less(circuit.caller)

    def drop(self, peer_name: str) -> None:
        """A peer is out: nothing is carried for it any more."""
        for circuit in [c for c in self._circuits if peer_name in (c.caller, c.target)]:
            circuit.cut()

    def sweep(self, now: float) -> None:
        for circuit in list(self._circuits):
            if now - circuit.used_at > self._owner.limits.circuit_idle_s:
                circuit.cut()

    async def close(self) -> None:
        for waiting in list(self._waiting.values()):
            waiting.give_up("this node goes away")
        for circuit in list(self._circuits):
            circuit.cut()
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


class _Waiting:
    """One who has asked for another, until that one is there."""

    def __init__(self, relay: Relay, opening: Opening, hello: Hello, ticket: str) -> None:
        assert opening.identity is not None
        self.opening = opening
        self.target = hello.reach
        self.bulk = hello.bulk
        self.ticket = ticket
        self.caller = opening.identity.name
        self.over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._relay = relay

    def give_up(self, reason: str) -> None:
        if not self.over.done():
            self._relay.gave_up(self)
            self.opening.refuse(reason)

    # What the stream calls.

    def secured(self) -> None:
        raise AssertionError("it is secure from the start")

    def readable(self) -> None:
        if self.opening.stream.read(1):
            self.opening.stream.abort("it speaks before it is connected")

    def writable(self) -> None:
        pass  # a greeting fits any buffer

    def lost(self, why: str) -> None:
        self._relay.gave_up(self)


class Circuit:
    """Two connections that are one."""

    def __init__(
        self,
        relay: Relay,
        owner: RelayOwner,
        peers: tuple[str, str],
        ends: tuple[asyncio.Transport, asyncio.Transport],
    ) -> None:
        self.caller, self.target = peers
        self.used_at = owner.loop.time()
        self.carried_bytes = 0
        self._relay = relay
        self._loop = owner.loop
        self._ends = ends
        for tcp, other in (ends, ends[::-1]):
            high = owner.limits.circuit_bytes_max
            tcp.set_write_buffer_limits(high=high, low=high // 2)
            tcp.set_protocol(_End(self, other))
            notice_cuts(tcp)

    def moved(self, size_bytes: int) -> None:
        self.used_at = self._loop.time()
        self.carried_bytes += size_bytes

    def over(self) -> None:
        """One end is closed: send the other what is left, and close it."""
        self._relay.closed(self)
        for tcp in self._ends:
            tcp.close()

    def cut(self) -> None:
        self._relay.closed(self)
        for tcp in self._ends:
            tcp.abort()


class _End(asyncio.Protocol):
    """What one end says goes to the other."""

    def __init__(self, circuit: Circuit, other: asyncio.Transport) -> None:
        self._circuit = circuit
        self._other = other

    def data_received(self, data: bytes) -> None:
        self._circuit.moved(len(data))
        self._other.write(data)

    def pause_writing(self) -> None:
        self._other.pause_reading()

    def resume_writing(self) -> None:
        if not self._other.is_closing():
            self._other.resume_reading()

    def connection_lost(self, exc: Exception | None) -> None:
        self._circuit.over()
