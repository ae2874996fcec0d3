"""Reaching nodes that cannot be dialled, and being reached: joins `ways`, `relay`, `moorings`.

It takes what concerns them of a transport: connections that are opened for another purpose than to
talk here, and the networks' own messages on links. And it looks after links that somebody else
carries: a direct way is looked for beside them, and one that carries nothing any more is cut.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import Callable, Coroutine, Iterable, Sequence
from functools import partial
from typing import Any, Protocol

from sureline.world.address import Endpoint, Node, endpoint_of, name_of, peer_of
from sureline.world.awake import AwakeTime
from sureline.world.net.codec import Hello
from sureline.world.net.control import (
    DialBack,
    DialledBack,
    Moor,
    Moored,
    Ping,
    Pong,
    Summons,
    Through,
    Unmoor,
)
from sureline.world.net.dialler import DialError, Dialler
from sureline.world.net.interfaces import Berth, Directory
from sureline.world.net.limits import Limits
from sureline.world.net.link import NetLink
from sureline.world.net.moorings import ANSWER_S, ASKED, Moorings
from sureline.world.net.opening import Opening, Wish
from sureline.world.net.relay import Relay
from sureline.world.net.ways import Ways
from sureline.world.protocol import Message

ERRANDS_MAX = 64
"""Calls to answer, dial-backs and looks for a direct way, at once."""
ERRANDS_PER_PEER = 16
HOSTS_MAX = 8
OTHER_HOSTS = 1 << 32
"""Questions about other hosts are numbered from here, so that their answers are told apart."""
GO_OVER_FACTOR = 100
GO_OVER_S_MAX = 600.0
IDLE_S = 60.0
"""Nobody looks for a better way to somebody who is not spoken to."""


class ReachingOwner(Protocol):
    """The transport."""

    loop: asyncio.AbstractEventLoop
    limits: Limits
    node: Node
    directory: Directory
    carries: bool
    holding: bool
    awake: AwakeTime

    def link_with(self, node: Node) -> NetLink | None: ...
    def say(self, link: NetLink, message: Message) -> None: ...
    def say_to(self, node: Node, message: Message) -> None: ...
    def complain(self, kind: str, source: str, text: str) -> None: ...
    def accepting(self, through: Node) -> Opening: ...
    def opened(self, opening: Opening, hello: Hello) -> None: ...
    def links(self) -> Iterable[NetLink]: ...


class Reaching:
    def __init__(self, owner: ReachingOwner, dialler: Dialler) -> None:
        self.on_berth: Callable[[Berth], None] = lambda berth: None
        self._owner = owner
        self._dialler = dialler
        self.ways = Ways(owner, dialler)
        self.relay = Relay(owner, dialler)
        self.moorings = Moorings(owner, self._berthed)
        self._tasks: set[asyncio.Task[None]] = set()
        self._errands: Counter[str] = Counter()
        self._asked: dict[int, asyncio.Future[str]] = {}
        """Questions about other hosts."""

    async def dialled_at(self, hosts: Sequence[str]) -> str:
        """The first of these hosts at which those who are asked can dial this node; '' if there
        is none."""
        known = self._owner.directory.can_be_dialled()
        for host in hosts[:HOSTS_MAX]:
            answers = [self._ask(node, host) for node in known[:ASKED]]
            done, _ = await asyncio.wait(answers, timeout=ANSWER_S) if answers else ((), ())
            self._asked.clear()
            if done and all(answer.result() == "" for answer in done):
                return host
        return ""

    def _ask(self, node: Node, host: str) -> asyncio.Future[str]:
        number = OTHER_HOSTS + len(self._asked)
        self._asked[number] = self._owner.loop.create_future()
        self._owner.say_to(node, DialBack(number, host))
        return self._asked[number]

    def _berthed(self, berth: Berth) -> None:
        for link in self._owner.links():
            if link.usable:
                self._owner.say(link, Through(berth.relays))
        self.on_berth(berth)

    # What the transport tells.

    def took_over(self, opening: Opening, hello: Hello) -> bool:
        """Whether a connection that others have opened is not for talking here."""
        if opening.target is not None or not (hello.ticket or hello.reach):
            return False
        if hello.ticket:
            ours = self.ways.answered(opening, hello.ticket)
            if not (ours or self.relay.answered(opening, hello.ticket)):
                opening.stream.abort("nobody called it")  # it may be past TLS with us
        elif opening.stream.closing:
            pass
        elif hello.reach == self._owner.node:
            self._let_in(hello.node, opening, hello)
        else:
            self.relay.asked(opening, hello)
        return True

    def linked(self, link: NetLink) -> None:
        """A link is open."""
        if link.through:
            self._owner.loop.call_later(self._owner.limits.go_over_s, self._go_over_soon, link)
        if self.moorings.berth.relays:
            self._owner.say(link, Through(self.moorings.berth.relays))

    def missed(self, node: Node) -> None:
        self.moorings.missed(node)

    def heard(self, link: NetLink, message: Message) -> None:
        """One network's word to the other."""
        match message:
            case Ping():
                self._owner.say(link, Pong())
            case Moor():
                self._owner.say(link, Moored(self._moor(link)))
            case Moored():
                self.moorings.moored(link, message)
            case Unmoor():
                link.moored_until = 0.0
            case Summons():
                self._errand(link.node, self._answer(link.node, message.ticket))
            case Through():
                self.ways.told(link.node, message.relays)
            case DialBack():
                if not self._errand(link.node, self._dial_back(link, message)):
                    self._owner.say(link, DialledBack(message.number, untried=True))
            case DialledBack():
                answer = self._asked.pop(message.number, None)
                if answer is not None:
                    answer.set_result(message.why_not or "untried" * message.untried)
                else:
                    self.moorings.dialled_back(link, message)

    def sweep(self, now: float) -> None:
        self.relay.sweep(now)
        self.moorings.sweep(now)
        for link in list(self._owner.links()):
            if link.through and link.usable:
                self._look_after(link, now)

    def drop(self, peer_name: str) -> None:
        self.relay.drop(peer_name)

    async def close(self) -> None:
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self.ways.close()
        await self.relay.close()

    # Within.

    def _errand(self, about: Node, work: Coroutine[Any, Any, None]) -> bool:
        """Do it beside the rest; False if there is too much of that, of which one peer has a
        share."""
        peer_name = peer_of(about)
        if len(self._tasks) >= ERRANDS_MAX or self._errands[peer_name] >= ERRANDS_PER_PEER:
            work.close()
            return False
        self._errands[peer_name] += 1
        task = self._owner.loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(partial(self._errand_over, peer_name))
        return True

    def _errand_over(self, peer_name: str, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        self._errands[peer_name] -= 1
        if not self._errands[peer_name]:
            del self._errands[peer_name]

    def _moor(self, link: NetLink) -> str:
        """Keep a link for one who can only dial out; why not, else ''."""
        now = self._owner.loop.time()
        if not self._owner.carries:
            return "this peer carries nothing for others"
        if link.through:
            return "not a connection of its own"
        moored = sum(other.moored_until > now for other in self._owner.links())
        if link.moored_until <= now and moored >= self._owner.limits.moorings_max:
            return f"this peer keeps at most {self._owner.limits.moorings_max} such connections"
        link.moored_until = now + 2 * self._owner.limits.moored_s
        return ""

    async def _answer(self, caller: Node, ticket: str) -> None:
        """Dial who called, and let in whoever speaks to us over it."""
        with contextlib.suppress(DialError):  # who called has other ways to try
            await self._dialler.once(caller, partial(self._let_in, caller), Wish(ticket=ticket))

    def _let_in(self, carrier: Node, opening: Opening, hello: Hello) -> None:
        """What comes over this connection from now on is somebody who calls us."""
        tcp, arrived = opening.stream.detach()
        self._owner.accepting(carrier).stream.attach(tcp, arrived)

    async def _dial_back(self, link: NetLink, asked: DialBack) -> None:
        def opened(opening: Opening, hello: Hello) -> None:
            opening.stream.close("it can be dialled")

        node, why_not = link.node, ""
        if asked.host:
            node = Endpoint(name_of(node), asked.host, endpoint_of(node).port).node
        try:
            await self.ways.directly(node, opened, Wish(bulk=True))
        except DialError as error:
            why_not = str(error) or "no answer"
        if link.usable:
            self._owner.say(link, DialledBack(asked.number, why_not))

    def _look_after(self, link: NetLink, now: float) -> None:
        """A link that somebody carries for us."""
        quiet_s = now - link.heard_at
        asked = link.used_at > link.heard_at and not self._owner.holding
        if asked and quiet_s > self._owner.limits.silent_s:
            self.ways.failed(link.through)
            text = f"{link.through} carries nothing to {link.node} any more"
            self._owner.complain("silent", link.through, text)
            link.stream.abort("nothing comes over it any more")
        elif asked and quiet_s > self._owner.limits.ping_s:
            self._owner.say(link, Ping())
        elif now >= link.go_over_at and now - link.used_at < IDLE_S:
            self._go_over_soon(link)

    def _go_over_soon(self, link: NetLink) -> None:
        """Look for a direct way, now and later."""
        again_s = max(2 * link.go_over_s, GO_OVER_FACTOR * self._owner.limits.go_over_s)
        link.go_over_s = min(again_s, GO_OVER_S_MAX)
        link.go_over_at = self._owner.loop.time() + link.go_over_s
        if link.usable:
            self._errand(link.node, self._go_over(link.node))

    async def _go_over(self, node: Node) -> None:
        with contextlib.suppress(DialError):  # it goes on as it is
            await self.ways.directly(node, self._owner.opened, Wish())
