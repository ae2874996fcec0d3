"""How another node is reached: directly, or through somebody else.

    directly        it is dialled where it says that it listens
    by a call       there is a link with it already: it is asked to dial us (bulk data only)
    through a relay one that it keeps a connection to, and says so
    through a third anybody who can be dialled and may know a way, when nothing else is left

The ways are tried in this order, each with a short head start before the next, and the first that
opens is used. What was in vain a moment ago is not tried first again. Where connections are slow to
open, because of the network or because the machines have too much to do, the head starts are as
long: else every call would go by all ways at once, which is what makes such machines slower still.

Through somebody else means: that one is dialled and greeted as ever, and asked to connect us. When
it greets back, both connections are plain ones, and what it carries from then on is the TLS of the
two ends, with the certificates of both, as if there were nobody in between: a relay sees how much
is said and to whom, and can neither read nor change nor make up a byte of it.
"""

from __future__ import annotations

import asyncio
import heapq
import secrets
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from hashlib import blake2b
from typing import Any, NamedTuple, Protocol

from sureline.world.address import Node, endpoint_of, name_of, peer_of
from sureline.world.awake import AwakeTime
from sureline.world.net.codec import Hello
from sureline.world.net.control import RELAYS_MAX, Summons
from sureline.world.net.dialler import DialError, Dialler, OnOpen
from sureline.world.net.interfaces import Directory
from sureline.world.net.limits import Limits
from sureline.world.net.link import NetLink
from sureline.world.net.opening import Opening, Wish
from sureline.world.protocol import Message
from sureline.world.usual import MOST_S, Usual

DIRECTLY = "directly"
THIRDS = 3
REMEMBERED_MAX = 4096
THIRD_AGAIN_S_MAX = 900.0


class WaysOwner(Protocol):
    loop: asyncio.AbstractEventLoop
    limits: Limits
    node: Node
    directory: Directory
    awake: AwakeTime

    def link_with(self, node: Node) -> NetLink | None:
        """A link that can be sent on."""

    def say(self, link: NetLink, message: Message) -> None: ...


class Way(NamedTuple):
    """`go` ends with a call of what it is given, or raises DialError."""

    name: str
    go: Callable[[OnOpen], Coroutine[Any, Any, None]]
    head_start_s: float


class _Memory:
    """What became of the ways to one node."""

    __slots__ = ("called_at", "direct_at", "refusals", "relays", "third_again_s", "third_at")

    def __init__(self) -> None:
        never = float("-inf")
        self.direct_at = never
        """When the direct way was in vain; reset by a success."""
        self.called_at = never
        self.third_at = never
        self.third_again_s = 0.0
        self.refusals = 0
        self.relays: tuple[Node, ...] = ()
        """What the node itself has said."""


class Ways:
    """Opens connections by any way, and remembers which was good."""

    def __init__(self, owner: WaysOwner, dialler: Dialler) -> None:
        self._owner = owner
        self._dialler = dialler
        self._memories: dict[Node, _Memory] = {}
        self._bad: dict[Node, float] = {}
        """Until when a relay is tried last."""
        self._late: set[asyncio.Task[None]] = set()
        """Direct ways that were overtaken and may still open."""
        self._tickets: dict[str, Callable[[Opening], None]] = {}
        """Calls of ours that wait for an answer."""
        self._usual_directly = Usual()
        self._usual_by_relay = Usual()

    async def open(
        self, node: Node, on_open: OnOpen, *, bulk: bool, wanted: Callable[[], bool]
    ) -> None:
        """Call a node by every way there is until it answers, while it is `wanted`. `on_open`
        takes the stream over, at once. Raises DialError."""
        race = _Race(self._owner.loop, on_open, wanted, late=not bulk)
        try:
            await race.run(self._ways(node, bulk))
            if race.open and self._asks_thirds(node, race):
                thirds = self._thirds(node, bulk)
                await race.run(thirds)
                self._asked_thirds(node, in_vain=race.open)
        finally:
            for task in await race.end():
                self._late.add(task)
                task.add_done_callback(self._over_late)
        if race.open:
            raise race.failure()

    def _over_late(self, task: asyncio.Task[None]) -> None:
        self._late.discard(task)
        if not task.cancelled():
            task.exception()  # if it was in vain, it goes on as it is

    async def close(self) -> None:
        late = list(self._late)
        for task in late:
            task.cancel()
        await asyncio.gather(*late, return_exceptions=True)

    async def directly(self, node: Node, on_open: OnOpen, wish: Wish) -> None:
        """The direct way alone, a few times. Raises DialError."""
        memory = self._memory(node)
        began_at = self._owner.loop.time()
        try:
            await self._dialler.open(node, on_open, wish, wanted=lambda: True)
        except DialError as error:
            memory.direct_at = self._owner.loop.time()
            memory.refusals += error.refused
            raise
        memory.direct_at = float("-inf")
        memory.refusals = 0
        self._usual_directly.took(self._owner.loop.time() - began_at)

    def told(self, node: Node, relays: Sequence[Node]) -> None:
        """A node says through whom it is reached."""
        sane = [relay for relay in relays[:RELAYS_MAX] if _is_node(relay)]
        self._memory(node).relays = tuple(sane)

    def relays_of(self, node: Node) -> list[Node]:
        """Who can reach this node, by its own word; those that failed lately last."""
        memory = self._memories.get(node)
        said = dict.fromkeys(memory.relays if memory is not None else ())
        said.update(dict.fromkeys(self._owner.directory.relays_of(node)))
        others = [relay for relay in said if relay not in (node, self._owner.node)]
        return sorted(others, key=self._is_bad)

    def failed(self, relay: Node) -> None:
        """A relay does not carry what it is given: others are tried first for a while."""
        if len(self._bad) >= REMEMBERED_MAX:
            del self._bad[next(iter(self._bad))]
        self._bad[relay] = self._owner.loop.time() + self._owner.limits.relay_again_s

    def answered(self, opening: Opening, ticket: str) -> bool:
        """Somebody dials us with this ticket; whether it is one of ours."""
        answer = self._tickets.pop(ticket, None)
        if answer is not None:
            answer(opening)
        return answer is not None

    # Which ways there are.

    def _ways(self, node: Node, bulk: bool) -> list[Way]:
        limits, now = self._owner.limits, self._owner.loop.time()
        memory = self._memory(node)
        others: list[Way] = []
        if (
            bulk
            and self._owner.link_with(node) is not None
            and now - memory.called_at > limits.direct_again_s
        ):
            go = partial(self._by_call, node, bulk)
            others.append(Way("by a call", go, self._relay_head_start_s()))
        others += self._through(node, bulk, self.relays_of(node))
        head_start_s = float("inf")
        if others:
            head_start_s = max(limits.head_start_s, self._usual_directly.mean_s)
        go = partial(self.directly, node, wish=Wish(bulk))
        direct = Way(DIRECTLY, go, head_start_s)
        if others and now - memory.direct_at < limits.direct_again_s:
            return [*others, direct]
        return [direct, *others]

    def _through(self, node: Node, bulk: bool, relays: Sequence[Node]) -> list[Way]:
        pause_s = self._relay_head_start_s()
        return [
            Way(f"through {name_of(relay)}", partial(self._by_relay, relay, node, bulk), pause_s)
            for relay in relays
        ]

    def _relay_head_start_s(self) -> float:
        least_s = self._owner.limits.relay_head_start_s
        if not self._usual_by_relay.mean_s:  # three connections, one after the other
            least_s = max(least_s, min(MOST_S, 4 * self._usual_directly.mean_s))
        return self._usual_by_relay.within_s(least_s)

    def _asks_thirds(self, node: Node, race: _Race) -> bool:
        """Whether others may know a way: not to somebody who is known to be gone, nor at the first
        word of its own machine that nobody listens there, which is how a crash is noticed."""
        memory = self._memory(node)
        if race.refused and memory.refusals < 2 and not self.relays_of(node):
            return False
        rested = self._owner.loop.time() - memory.third_at >= memory.third_again_s
        return rested and self._owner.directory.may_be_there(node)

    def _asked_thirds(self, node: Node, *, in_vain: bool) -> None:
        memory = self._memory(node)
        memory.third_at = self._owner.loop.time()
        again_s = max(self._owner.limits.third_again_s, 2 * memory.third_again_s)
        memory.third_again_s = min(again_s, THIRD_AGAIN_S_MAX) if in_vain else 0.0

    def _thirds(self, node: Node, bulk: bool) -> list[Way]:
        known = self.relays_of(node)
        others = [
            other
            for other in self._owner.directory.can_be_dialled()
            if other not in known and other not in (node, self._owner.node)
        ]
        return self._through(node, bulk, rendezvous(node, others, THIRDS))

    # The ways themselves.

    async def _by_call(self, node: Node, bulk: bool, on_open: OnOpen) -> None:
        link = self._owner.link_with(node)
        if link is None:
            raise DialError("there is no link any more")
        memory = self._memory(node)
        memory.called_at = self._owner.loop.time()
        ticket = secrets.token_hex(16)
        inner, outcome = self._dialler.begin(node, on_open, Wish(bulk))
        self._tickets[ticket] = partial(self._take_over, inner, link.node)
        self._owner.say(link, Summons(ticket))
        try:
            await self._owner.awake.within(self._owner.limits.connect_s, outcome)
        except TimeoutError:
            raise DialError("it was called and did not dial us", silent=True) from None
        finally:
            self._tickets.pop(ticket, None)
            if outcome.cancel() or outcome.cancelled():  # else it has an end already
                inner.stream.abort("not wanted any more")
        memory.called_at = float("-inf")

    async def _by_relay(self, relay: Node, node: Node, bulk: bool, on_open: OnOpen) -> None:
        inner, outcome = self._dialler.begin(node, on_open, Wish(bulk), through=relay)
        began_at = self._owner.loop.time()
        carried = False

        def connected(outer: Opening, hello: Hello) -> None:
            nonlocal carried
            carried = True
            self._take_over(inner, relay, outer)

        try:
            await self._dialler.once(relay, connected, Wish(bulk, node))
            await self._owner.awake.within(self._owner.limits.circuit_open_s, outcome)
            self._usual_by_relay.took(self._owner.loop.time() - began_at)
        except (DialError, TimeoutError) as error:
            if carried:
                self.failed(relay)  # it says that we are connected, and we are not
            raise DialError(str(error) or "no answer in time", silent=True) from None
        finally:
            if outcome.cancel() or outcome.cancelled():  # else it has an end already
                inner.stream.abort("not wanted any more")

    def _take_over(self, inner: Opening, dialled: Node, outer: Opening) -> None:
        """Go on with the ends' own TLS over a connection that was opened for it."""
        if outer.identity is None or outer.identity.name != peer_of(dialled):
            outer.stream.abort("somebody else was called")
            return
        tcp, arrived = outer.stream.detach()
        inner.stream.attach(tcp, arrived)

    # Memory.

    def _memory(self, node: Node) -> _Memory:
        memory = self._memories.get(node)
        if memory is None:
            if len(self._memories) >= REMEMBERED_MAX:
                del self._memories[next(iter(self._memories))]
            memory = self._memories[node] = _Memory()
        return memory

    def _is_bad(self, relay: Node) -> bool:
        return self._bad.get(relay, 0.0) > self._owner.loop.time()


class _Race:
    """Several ways to one node, of which the first that opens is taken. A direct one that was
    overtaken is left to itself: if it opens, it is better."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        on_open: OnOpen,
        wanted: Callable[[], bool],
        *,
        late: bool,
    ) -> None:
        """`late`: a direct way that opens after a relay did is wanted, too."""
        self._loop = loop
        self._late = late
        self._on_open = on_open
        self._wanted = wanted
        self._won = False
        self._under_way: dict[asyncio.Task[None], str] = {}
        self._failures: list[tuple[str, DialError]] = []

    @property
    def open(self) -> bool:
        """Whether another way is wanted."""
        return not self._won and self._wanted()

    @property
    def refused(self) -> bool:
        """Whether the machine itself said that nobody listens there."""
        return any(error.refused for _, error in self._failures)

    async def run(self, ways: Sequence[Way]) -> None:
        """Try them until one is open or all have failed."""
        if len(ways) == 1 and self.open:
            await self._alone(ways[0])
            return
        for way in ways:
            if not self.open:
                return
            task = self._loop.create_task(way.go(self._opened))
            self._under_way[task] = way.name
            await self._give_head_start(task, self._loop.time() + way.head_start_s)
        while self._under_way and self.open:
            await self._wait(float("inf"))

    async def _give_head_start(self, task: asyncio.Task[None], until: float) -> None:
        """Until this one is over, or has had its time: others that fail take nothing of it."""
        while task in self._under_way and self.open and self._loop.time() < until:
            await self._wait(until - self._loop.time())

    async def _alone(self, way: Way) -> None:
        """Most have one way, and no need of a race."""
        try:
            await way.go(self._opened)
        except DialError as error:
            self._failures.append((way.name, error))

    async def _wait(self, head_start_s: float) -> None:
        """Until one of them is over, or has had its head start."""
        timeout_s = None if head_start_s == float("inf") else head_start_s
        done, _ = await asyncio.wait(
            self._under_way, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED
        )
        for task in done:
            name = self._under_way.pop(task)
            error = None if task.cancelled() else task.exception()
            if isinstance(error, DialError):
                self._failures.append((name, error))
            elif error is not None:
                raise error

    def _opened(self, opening: Opening, hello: Hello) -> None:
        if self._won and (opening.through or not self._late):
            opening.stream.close("another way was quicker")
            return
        self._won = True
        self._on_open(opening, hello)

    async def end(self) -> list[asyncio.Task[None]]:
        """Give up all but the direct way; who that is."""
        direct = [task for task, name in self._under_way.items() if name == DIRECTLY]
        others = [task for task in self._under_way if not (self._won and task in direct)]
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)
        return direct if self._won else []

    def failure(self) -> DialError:
        """Why it was in vain, as one sentence."""
        if len(self._failures) == 1:
            return self._failures[0][1]
        why = "; ".join(f"{name}: {error}" for name, error in self._failures)
        silent = all(error.silent for _, error in self._failures)
        unheard = bool(self._failures) and all(error.unheard for _, error in self._failures)
        return DialError(why or "no way is known", silent=silent, unheard=unheard)


def rendezvous(node: Node, others: Sequence[Node], most: int) -> list[Node]:
    """Where to meet somebody without an agreement: whoever knows the same others finds the same
    ones first, and different nodes meet at different ones."""
    about = name_of(node).encode()

    def rank(other: Node) -> bytes:
        return blake2b(name_of(other).encode(), key=about[:64], digest_size=8).digest()

    return heapq.nsmallest(most, others, key=rank)


def _is_node(text: Node) -> bool:
    try:
        return bool(endpoint_of(text)) and "/" not in text and len(text) <= 300
    except ValueError:
        return False
