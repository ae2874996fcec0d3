"""A node on a network: one listening socket, links to other nodes, and what goes over them."""

from __future__ import annotations

import asyncio
import functools
import resource
import socket
from collections import Counter
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from sureline.world.address import NO_NODE, Endpoint, Node, at, node_of, part_of, peer_of
from sureline.world.awake import AwakeTime
from sureline.world.net.bulk_client import BulkClient
from sureline.world.net.bulk_server import BulkServer
from sureline.world.net.codec import CannotTravelError, Codec, Hello
from sureline.world.net.complaints import Complaints
from sureline.world.net.control import SmallAnswer, SmallAsk
from sureline.world.net.dialler import DialError, Dialler
from sureline.world.net.door import Door
from sureline.world.net.interfaces import (
    Berth,
    BulkHandler,
    Directory,
    NodeCredentials,
    NoDirectory,
    OnMessage,
    OnUnreachable,
    StrangerHandler,
)
from sureline.world.net.limits import Limits
from sureline.world.net.link import NetLink
from sureline.world.net.moorings import Dialled
from sureline.world.net.opening import Greeter, Opening, Wish
from sureline.world.net.reaching import Reaching
from sureline.world.net.route import Route, UndeliveredCounts
from sureline.world.net.small_asks import SmallAsks
from sureline.world.net.stats import PeerLink, Stats
from sureline.world.net.stranger import Strangers
from sureline.world.protocol import AgentId, Message

if TYPE_CHECKING:
    from sureline.world.identity.certificates import Identity

BACKLOG = 512
ALIASES_MAX = 256
POLL_S = 0.005
RARELY = 5
"""Only every so many sweeps look at each connection."""


class NetTransport:
    """See the package. Everything happens on the loop's own thread."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        credentials: NodeCredentials,
        codec: Codec,
        limits: Limits,
        strangers: StrangerHandler | None,
        bulk: BulkHandler | None,
    ) -> None:
        """Use `NetTransport.listen`."""
        self.loop = loop
        self.codec = codec
        self.limits = limits
        self.node = NO_NODE
        self.leaving = False
        self.holding = False
        self.directory: Directory = NoDirectory()
        self.carries = True
        """Whether connections of others are carried."""
        self.counts = UndeliveredCounts()
        self._complaints = Complaints(loop.time)
        self._greeter = Greeter(credentials, codec)
        self.awake = AwakeTime(loop.time)
        self._dialler = Dialler(loop, self._greeter, limits, self.awake)
        self._door = Door(limits, self.awake, self.complain)
        self._strangers = Strangers(loop, limits, strangers, self.complain)
        self._bulk_server = BulkServer(self, bulk)
        self._small_asks = SmallAsks(self, bulk)
        self._reaching = Reaching(self, self._dialler)
        self._bulk_client = BulkClient(self, self._reaching.ways)
        self._links: dict[NetLink, Route] = {}
        files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        self._links_max = min(limits.links_max, max(limits.warm_links, files // 4))
        self._routes: dict[Node, Route] = {}
        self._aliases: dict[Node, Node] = {}
        self._sent: Counter[str] = Counter()
        self._received: Counter[str] = Counter()
        self._bytes_in = self._bytes_out = 0
        self._heard_at = 0.0
        self._opened = self._refused = self._without_role = 0
        self._on_message: OnMessage = lambda sender, to, message: None
        self._on_unreachable: OnUnreachable = lambda node: None
        self._server: asyncio.Server | None = None
        self._sweeps = 0
        self._sweeping: asyncio.TimerHandle | None = None

    @classmethod
    async def listen(
        cls,
        loop: asyncio.AbstractEventLoop,
        host: str,
        port: int,
        credentials: NodeCredentials,
        codec: Codec,
        *,
        name_suffix: str = "",
        on_message: OnMessage | None = None,
        on_unreachable: OnUnreachable | None = None,
        limits: Limits | None = None,
        bulk: BulkHandler | None = None,
        on_stranger: StrangerHandler | None = None,
        advertise: str | None = None,
    ) -> NetTransport:
        """Start to listen, on port 0 for any free one. `advertise` is the HOST at which others
        reach this node, if it is not the one listened on. Raises OSError if the address cannot
        be had, ValueError if others would not know where to connect."""
        self = cls(loop, credentials, codec, limits or Limits(), on_stranger, bulk)
        if on_message is not None and on_unreachable is not None:
            self.attach(on_message, on_unreachable)
        if advertise is None and host in ("", "0.0.0.0", "::"):
            raise ValueError(f"listening on {host!r} needs a host to advertise to others")
        self._server = await loop.create_server(self._accept, host, port, backlog=BACKLOG)
        bound: socket.socket = self._server.sockets[0]
        name = f"{credentials.name}+{name_suffix}" if name_suffix else credentials.name
        self.node = Endpoint(name, advertise or host, bound.getsockname()[1]).node
        self._greeter.node = self.node
        self._sweep()
        return self

    def attach(self, on_message: OnMessage, on_unreachable: OnUnreachable) -> None:
        """From now on these hear of messages and of nodes that are gone."""
        self._on_message = on_message
        self._on_unreachable = on_unreachable

    def reach(
        self,
        directory: Directory,
        on_berth: Callable[[Berth], None],
        *,
        dialled: Dialled = "auto",
        carries: bool = True,
    ) -> None:
        """From now on reach those who cannot be dialled, and be reached: `on_berth` hears how.
        Without `carries` nothing is carried for others."""
        self.directory = directory
        self.carries = carries
        self._reaching.on_berth = on_berth
        self._reaching.moorings.dialled = dialled
        self._reaching.moorings.sweep(self.loop.time())

    def doubted(self) -> None:
        """Somebody takes this node for gone: see whether it can still be dialled."""
        self._reaching.moorings.look_soon()

    async def dialled_at(self, hosts: Sequence[str]) -> str:
        """The first of these hosts at which others can dial this node; '' if there is none."""
        return await self._reaching.dialled_at(hosts)

    @property
    def settled(self) -> bool:
        """Whether this node has found out how it is reached, as far as others would tell."""
        moorings = self._reaching.moorings
        outbound = moorings.berth.can_be_dialled is False or moorings.dialled == "never"
        return bool(moorings.berth.relays) if outbound else moorings.looked

    @property
    def berth(self) -> Berth:
        """How others reach this node."""
        return self._reaching.moorings.berth

    async def way_to(self, node: Node) -> Node:
        """Who carries the link with a node, which is opened if there is none; no node if nobody
        does. Raises DialError."""
        link = self.link_with(node)
        if link is None:
            await self._reaching.ways.open(
                node, self.opened, bulk=False, wanted=lambda: self.link_with(node) is None
            )
            link = self.link_with(node)
        if link is None:
            raise DialError("the connection broke again")
        return link.through

    def complain(self, kind: str, source: str, text: str) -> None:
        self._complaints.say(kind, source, text)

    # Sending.

    def send(self, to: AgentId, sender: AgentId, message: Message) -> None:
        """Send to an agent on another node. Never blocks; what cannot be sent is dropped and
        counted."""
        node = node_of(to)
        try:
            frame = self.codec.encode(part_of(sender), part_of(to), message)
        except CannotTravelError as error:
            self.counts.overflowed += 1
            self.complain("too long", sender, f"{sender} cannot send to {to}: {error}")
            return
        if self.leaving:
            self.counts.undelivered += 1
            return
        route = self._routes.get(node) or self._route(self._aliases.get(node, node))
        if route is None:
            self.counts.overflowed += 1
            return
        self._sent[self.codec.tags[type(message)]] += 1
        route.send(frame)

    async def ask_bulk(
        self,
        node: Node,
        request: bytes,
        into: bytearray | memoryview | None = None,
        *,
        short: bool = False,
    ) -> tuple[bytes, memoryview]:
        """Ask a node's bulk handler, over a connection of its own; the answer's header and body.
        The body is read into the start of `into`, if that is given. A `short` answer comes over
        the link that is there, if there is one. Raises BulkError."""
        link = self.link_with(node) if short and into is None else None
        if link is not None:
            answer = await self._small_asks.ask(link, request)
            if answer is not None:
                return answer
        return await self._bulk_client.ask(node, request, into)

    def _route(self, node: Node) -> Route | None:
        route = self._routes.get(node)
        if route is None and len(self._routes) < self.limits.destinations_max:
            route = self._routes[node] = Route(self, node)
        return route

    def dial(self, route: Route) -> None:
        route.dialling = True
        self._dialler.soon(functools.partial(self._dial, route))

    async def _dial(self, route: Route) -> None:
        node = route.node
        try:
            if peer_of(node) in self._greeter.dropped:
                raise DialError("that peer has been refused", silent=True)
            await self._reaching.ways.open(
                node, self.opened, bulk=False, wanted=lambda: route.link is None
            )
        except DialError as error:
            route.dialling = False
            if route.link is None:
                if not error.silent:
                    self.complain("unreachable", node, f"{node} cannot be reached: {error}")
                route.fail(unheard=error.unheard)
        finally:
            route.dialling = False

    def unreachable(self, node: Node) -> None:
        for alias, known in list(self._aliases.items()):
            if known == node:
                del self._aliases[alias]
                self._on_unreachable(alias)
        self._reaching.missed(node)
        self._on_unreachable(node)

    # Connections that open.

    def _accept(self) -> asyncio.Protocol:
        return self.accepting(NO_NODE).stream

    def accepting(self, through: Node) -> Opening:
        """A connection that others open to this node, perhaps through another."""
        opening = Opening(
            self._greeter,
            self.awake(),
            target=None,
            wish=Wish(),
            on_open=self.opened,
            on_stranger=self._stranger,
            on_failed=self._failed,
            through=through,
        )
        opening.stream.on_connected = functools.partial(self._door.enter, opening)
        return opening

    def _failed(self, opening: Opening, why: str, may_help: bool) -> None:
        self._door.leave(opening)
        if opening.through and opening.identity is None and not why.startswith("TLS:"):
            return  # somebody called us through others, and has found another way meanwhile
        self._refused += 1
        who = opening.identity.name if opening.identity else "somebody"
        address = opening.stream.address
        kind = why.partition(":")[0]  # what follows differs from one broken frame to the next
        self.complain(
            "refused", f"{who} {address} {kind}", f"{who} at {address} was not let in: {why}"
        )

    def _stranger(self, opening: Opening) -> None:
        self._door.leave(opening)
        if not self._strangers.admit(opening.stream):
            self._refused += 1

    def opened(self, opening: Opening, hello: Hello) -> None:
        """A connection is open, whoever opened it: from here on it has a purpose."""
        self._opened += 1
        self._door.leave(opening)
        identity = opening.identity
        assert identity is not None
        if self.leaving and opening.target is None:
            opening.stream.close("this node goes away")
            return
        if self._reaching.took_over(opening, hello):
            return
        if hello.bulk and opening.target is None:
            self._bulk_server.admit(opening.stream, hello.node, identity)
        else:
            self._link(opening, hello.node, identity)

    def _link(self, opening: Opening, node: Node, identity: Identity) -> None:
        route = self._route(node)
        if route is None:
            opening.stream.close("too many nodes are known here")
            return
        target = opening.target
        carrier = opening.through
        link = NetLink(
            self,
            opening.stream,
            node,
            identity,
            ours=target is not None,
            through=NO_NODE if carrier == node else carrier,
        )
        opening.stream.user = link
        self._links[link] = route
        route.adopt(link)
        self._reaching.linked(link)
        if target is not None and target != node:
            self._know_as(target, route)
        if len(self._links) > self._links_max:
            self._trim(self.loop.time())

    def _know_as(self, alias: Node, route: Route) -> None:
        """The node that we called by one address calls itself by another."""
        if len(self._aliases) >= ALIASES_MAX:
            del self._aliases[next(iter(self._aliases))]
        self._aliases[alias] = route.node
        called = self._routes.pop(alias, None)
        if called is not None:
            called.move_queue_to(route)

    # Links at work.

    def links(self) -> list[NetLink]:
        return list(self._links)

    def link_with(self, node: Node) -> NetLink | None:
        """A link that can be sent on."""
        route = self._routes.get(self._aliases.get(node, node))
        link = None if route is None else route.link
        return link if link is not None and link.usable else None

    def say(self, link: NetLink, message: Message) -> None:
        link.say(message)

    def say_to(self, node: Node, message: Message) -> None:
        """A word from network to network, over a link that is opened for it if need be."""
        route = self._route(node)
        if route is not None and not self.leaving:
            route.send(self.codec.encode("", "", message))

    def heard(self, link: NetLink, message: Message) -> None:
        if isinstance(message, SmallAsk | SmallAnswer):
            self._small_asks.heard(link, message)
        else:
            self._reaching.heard(link, message)

    def took(self, link: NetLink, sender_part: str, to_part: str, message: Message) -> None:
        role = message.needs_role
        if role and link.identity.roles.isdisjoint(role.split("|")):
            self._without_role += 1
            tag = self.codec.tags[type(message)]
            text = f"{link.node} sent {tag} without the role {role!r}; dropped"
            self.complain("role", link.node, text)
            return
        self._received[self.codec.tags[type(message)]] += 1
        self._on_message(at(link.node, sender_part), at(self.node, to_part), message)

    def link_writable(self, link: NetLink) -> None:
        route = self._links.get(link)
        if route is not None:
            route.flush()

    def link_lost(self, link: NetLink, why: str) -> None:
        self._heard_at = max(self._heard_at, link.heard_at)
        self._bytes_in += link.bytes_in
        self._bytes_out += link.bytes_out
        self._small_asks.lost(link)
        self._links.pop(link).gone(link)

    def hold(self) -> None:
        """Whoever takes the messages is behind: read no more until `release`."""
        if not self.holding:
            self.holding = True
            for link in self._links:
                link.hold()

    def release(self) -> None:
        if self.holding:
            self.holding = False
            for link in list(self._links):
                link.release()

    def drop(self, peer_name: str) -> None:
        """Close all connections with a peer and refuse it from now on."""
        self._greeter.dropped.add(peer_name)
        for link in list(self._links):
            if link.identity.name == peer_name:
                link.cut("that peer is refused from now on")
        self._bulk_server.drop(peer_name)
        self._bulk_client.drop(peer_name)
        self._reaching.drop(peer_name)
        for route in list(self._routes.values()):
            if peer_of(route.node) == peer_name:
                route.fail()

    # Housekeeping.

    def _sweep(self) -> None:
        now = self.loop.time()
        due_s = now + self.limits.sweep_s
        self._sweeping = self.loop.call_at(due_s, self._sweep_late, due_s)
        self._door.sweep()
        for link in [link for link in self._links if link.awaited]:
            self._inspect(link, now)
        self._sweep_bulk(now)
        self._reaching.sweep(now)
        self._sweeps += 1
        if self._sweeps % RARELY == 0:
            self._sweep_rarely(now)

    def _sweep_rarely(self, now: float) -> None:
        """What nobody waits for: a revocation cuts connections at once (`drop`), and nobody's
        certificate ends in a hurry."""
        for link in list(self._links):
            self._inspect(link, now)
        self._trim(now)
        for node in [node for node, route in self._routes.items() if not route.needed]:
            del self._routes[node]

    def _sweep_late(self, due_s: float) -> None:
        self.awake.fired(due_s)
        self._sweep()

    def _sweep_bulk(self, now: float) -> None:
        self._bulk_server.sweep(now)
        self._bulk_client.sweep(now)
        for identity, stream in self._bulk_server.streams() + self._bulk_client.streams():
            reason = self._greeter.refusal(identity)
            if reason is not None:
                text = f"a bulk connection with {identity.name} was cut: {reason}"
                self.complain("cut", identity.name, text)
                stream.abort(reason)

    def _inspect(self, link: NetLink, now: float) -> None:
        limits = self.limits
        if link.closing_since is not None:
            if now - link.closing_since > limits.drain_s:
                link.stream.abort("its goodbye took too long")
            return
        reason = self._greeter.refusal(link.identity)
        if reason is None and link.stalled_s(now) > limits.frame_s:
            reason = f"a frame took longer than {limits.frame_s:g} s"
        if reason is not None:
            self.complain("cut", link.node, f"the connection with {link.node} was cut: {reason}")
            link.cut(reason)

    def _trim(self, now: float) -> None:
        """Of the links that this node has opened, close the least recently used idle ones beyond
        those that are kept warm; what others have opened is theirs to close, unless there are too
        many of all."""
        limits = self.limits
        links = [link for link in self._links if link.usable and link.moored_until <= now]
        too_many = len(links) - self._links_max
        excess = sum(link.ours for link in links) - limits.warm_links
        if max(too_many, excess) <= 0:
            return
        for link in sorted(links, key=lambda link: link.used_at):
            quiet = link.idle and now - link.used_at >= limits.busy_s
            waited_for = bool(self._links[link].waiting)
            if too_many > 0 or (excess > 0 and link.ours and quiet and not waited_for):
                link.say_bye()
                too_many -= 1
                excess -= link.ours

    # Looking.

    def heard_at(self) -> float:
        """When something was last heard of anybody, by the loop's clock; 0 if never."""
        return max((link.heard_at for link in self._links), default=self._heard_at)

    def peers(self) -> list[PeerLink]:
        """The open connections."""
        now = self.loop.time()
        return [PeerLink.of(link, now) for link in self._links]

    def stats(self) -> Stats:
        return Stats(
            links=len(self._links),
            half_open=len(self._door),
            opened=self._opened,
            queued_bytes=self.counts.queued_bytes,
            sent=dict(self._sent),
            received=dict(self._received),
            bytes_in=self._bytes_in + sum(link.bytes_in for link in self._links),
            bytes_out=self._bytes_out + sum(link.bytes_out for link in self._links),
            refused=self._refused,
            without_role=self._without_role,
            overflowed=self.counts.overflowed,
            undelivered=self.counts.undelivered,
            circuits=len(self._reaching.relay),
            carried_bytes=self._reaching.relay.carried_bytes,
        )

    # The end.

    async def close(self) -> None:
        """Send what waits, say goodbye to everybody and stop listening; what is not done within
        the limit's time is cut. Idempotent."""
        if self._server is None:
            return
        server, self._server = self._server, None
        server.close()
        deadline = self.loop.time() + self.limits.close_s
        self.leaving = True
        await self._until(deadline, lambda: not any(r.waiting for r in self._routes.values()))
        for link in list(self._links):
            link.say_bye(leaving=True)
        await self._until(deadline, lambda: not self._links)
        await self._dialler.close()
        await self._reaching.close()
        for link in list(self._links):
            link.stream.abort("this node goes away")
        self._door.close()
        self._strangers.close()
        self._bulk_server.close()
        self._small_asks.close()
        self._bulk_client.close()
        if self._sweeping is not None:
            self._sweeping.cancel()
        await self._until(deadline + 1.0, lambda: not self._links)

    async def _until(self, deadline: float, done: Callable[[], bool]) -> None:
        # Many small events lead there, and only the end of a node waits for them.
        while not done() and self.loop.time() < deadline:  # noqa: ASYNC110 - see above
            await asyncio.sleep(POLL_S)
