"""One process on a grid: the ground that its agents stand on, with its network.

A node is made of a transport, a live world on it, the agents of `assembly.node`, and a file
service beside them. What else lives on a node is joined by whoever makes it: `serving` makes the
node of a peer that runs tasks, `driving` that of a process that drives a run, and commands that
only look around use a bare one.

The process that serves from a home is the node NAME; any other process of the home is a guest,
NAME+SUFFIX: in nobody's tables, and not a member.
"""

from __future__ import annotations

import asyncio
import os
import secrets
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from functools import lru_cache
from pathlib import Path
from types import TracebackType
from typing import NamedTuple

import uvloop

from sureline.assembly.ground import Standing
from sureline.assembly.node import GridNode
from sureline.assembly.words import messages
from sureline.compose.pilots.base import open_home
from sureline.overlay.kademlia import Kademlia
from sureline.overlay.membership import Member, Membership, Offer
from sureline.peer.files.cache import FileCache
from sureline.peer.files.fetcher import BlobFetcher
from sureline.peer.files.finding import mention_pause
from sureline.peer.files.service import FileService
from sureline.strategies import known
from sureline.workflow.mistakes import SurelineError
from sureline.world.address import Node, PeerName, endpoint_of, name_of
from sureline.world.agent import Agent
from sureline.world.identity.certificates import Identity
from sureline.world.identity.credentials import Credentials
from sureline.world.identity.home import CONTACTS_MAX, GridHome
from sureline.world.identity.revocations import RevocationList
from sureline.world.identity.whereabouts import address_of, default_host, is_of_this_machine
from sureline.world.live import Fetcher, LiveWorld, Recorder, Runner
from sureline.world.net.codec import Codec
from sureline.world.net.interfaces import Berth, BulkBody, StrangerHandler
from sureline.world.net.moorings import Dialled
from sureline.world.net.transport import NetTransport
from sureline.world.protocol import (
    Action,
    AgentId,
    Job,
    JobEvent,
    JobHandle,
    Recordable,
    World,
)

JOIN_S = 15.0
"""A command that looks around gives up if nobody has said anything for so long, in which it could
have heard it..."""
JOIN_S_MAX = 180.0
"""...and after so long in any case."""
JOIN_TOLD_S = 5.0
"""By then its user hears what it waits for."""
LOOK_S = 0.5
LOOPBACK = "127.0.0.1"


class NobodyAnswersError(SurelineError):
    """No peer of the grid can be reached."""


SETTLE_S = 10.0
"""How long a peer waits to hear whether others can dial it, before it says that it is there."""
SETTLE_POLL_S = 0.01


class Listen(NamedTuple):
    """Where to listen, and the host that others are told; '' if that is the same."""

    host: str
    port: int = 0
    advertise: str = ""


class NoRunner:
    """For a node that runs nothing."""

    def start(
        self, job: Job, on_event: Callable[[JobEvent], None], *, after: JobHandle | None = None
    ) -> JobHandle:
        raise AssertionError(f"this node runs nothing, not even {job!r}")

    def stop(self, handle: JobHandle, *, force: bool = False) -> None:
        raise AssertionError("this node runs nothing")


class Forgetful:
    """The memory of a process that only looks around: gone with it."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._kept: dict[str, bytes] = {}

    def record(self, event: Recordable) -> None:
        raise AssertionError(f"this node records nothing, not even {event!r}")

    def flush(self) -> None:
        """There is nothing to hand over."""

    def sync(self, on_durable: Action) -> None:
        self._loop.call_soon(on_durable)

    def put(self, key: str, value: bytes) -> None:
        self._kept[key] = value

    def get(self, key: str) -> bytes | None:
        return self._kept.get(key)


class LiveNode:
    """Made by `LiveNode.open`; `async with` closes it. A `Ground` of real things."""

    def __init__(self, home: GridHome, credentials: Credentials, transport: NetTransport) -> None:
        self.home = home
        self.credentials = credentials
        self.transport = transport
        self.id: Node = transport.node
        self.world: LiveWorld
        self.grid: GridNode
        self.files: FileService
        self.cache: FileCache
        self._on_refused: Callable[[str], None] = lambda reason: None
        self._met: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._contacts: frozenset[Node] = frozenset()
        """What was kept last."""

    @classmethod
    async def open(
        cls,
        home: GridHome,
        cache: FileCache,
        *,
        runner: Runner | None = None,
        recorder: Recorder | None = None,
        otherwise: Fetcher | None = None,
        offer: Offer | None = None,
        guest: str = "",
        listen: Listen | None = None,
        on_stranger: StrangerHandler | None = None,
        on_crash: Callable[[BaseException], None],
        on_refused: Callable[[str], None] = lambda reason: None,
        dialled: Dialled = "always",
        carries: bool = False,
    ) -> LiveNode:
        """Listen, and put the agents together; nobody is spoken to before `join`, but about how
        this node is reached, unless it is dialled `always`.

        `guest` is the suffix of a process that does not serve. `on_crash` hears of a mistake in
        the program, `on_refused` that this home has been put out of the grid.
        """
        loop = asyncio.get_running_loop()
        credentials = Credentials.load(home)
        refused = credentials.refused(credentials.identity)
        if refused is not None:
            raise SurelineError(f"{refused}; ask for a new invitation, and join again")
        where = listen or Listen(LOOPBACK if _is_local(home) else "0.0.0.0")
        late: list[LiveNode] = []

        async def answer(identity: Identity, request: bytes) -> tuple[bytes, BulkBody]:
            return await late[0].files.answer(PeerName(identity.name), request)

        transport = await NetTransport.listen(
            loop,
            where.host,
            where.port,
            credentials,
            Codec(messages()),
            name_suffix=guest,
            bulk=answer,
            on_stranger=on_stranger,
            advertise=where.advertise or _advertised(where.host, home),
        )
        self = cls(home, credentials, transport)
        late.append(self)
        self._on_refused = on_refused
        self.cache = cache
        self.files = FileService(
            cache,
            transport,
            me=self.id,
            places=self,
            pause=lambda: mention_pause(
                self.membership.knowledge.others_present(),
                is_behind=transport.awake.lag_s > transport.limits.behind_s,
            ),
        )
        self.world = LiveWorld(
            loop,
            runner or NoRunner(),
            BlobFetcher(loop, self.files, otherwise),
            recorder or Forgetful(loop),
            on_crash=on_crash,
            transport=transport,
            node=self.id,
        )
        revoked = credentials.revocations
        self.grid = GridNode(
            self,
            offer,
            Standing(credentials.verified, revoked, self._on_new_list),
            list(known().values()),
        )
        for name in revoked.names:
            transport.drop(name)
        self.membership.knowledge.on_doubted = transport.doubted
        transport.reach(self, self._berthed, dialled=dialled, carries=carries)
        return self

    # -- what agents stand on -------------------------------------------------------------------

    def place(self, me: AgentId) -> World:
        return self.world.place(me)

    def join(self, agent: Agent) -> None:
        self.world.join(agent)

    def is_node(self, text: str) -> bool:
        return is_node(text)

    @property
    def membership(self) -> Membership:
        return self.grid.membership

    @property
    def kademlia(self) -> Kademlia:
        return self.grid.kademlia

    # -- how others are reached, and this node ----------------------------------------------------

    def relays_of(self, node: Node) -> Sequence[Node]:
        record = self.membership.knowledge.table.records.get(name_of(node))
        return record.relays if record is not None and record.node == node else ()

    def may_be_there(self, node: Node) -> bool:
        record = self.membership.knowledge.table.records.get(name_of(node))
        return record is None or (record.node == node and record.present)

    def can_be_dialled(self) -> Sequence[Node]:
        if not self.membership.knowledge.joined:
            return self.contacts()
        return [
            record.node
            for record in self.membership.knowledge.table.records.values()
            if record.state == "alive"
            and not record.relays
            and record.node != self.id
            and is_node(record.node)
        ]

    def _berthed(self, berth: Berth) -> None:
        self.world.guard(self.membership.reached_through, berth.relays)

    async def settle(self) -> None:
        """Wait until this node knows how others reach it, if there are others who would say."""
        give_up_at = self.world.loop.time() + SETTLE_S
        others = bool(self.contacts())
        while others and not self.transport.settled:
            if self.world.loop.time() > give_up_at:
                return
            await asyncio.sleep(SETTLE_POLL_S)

    # -- being there ----------------------------------------------------------------------------

    def contacts(self) -> list[Node]:
        """Nodes to knock at: whoever serves from this home, those seen last, and the issuer."""
        known = _known_nodes(self.home)
        return [node for node in known if node != self.id]

    def begin_joining(self) -> None:
        """Knock at the contacts until one answers. Without contacts this is the first node of its
        grid."""
        self.world.guard(self.grid.join, self.contacts(), self._has_met)

    def _has_met(self, others: int) -> None:
        if not self._met.done():
            self._met.set_result(others)

    async def meet(self, tell: Callable[[str], None] = lambda sentence: None) -> None:
        """Join, for a command: it knows all members then, and finds its way in the hash table.
        As long as somebody says something it goes on; `tell` is given a sentence if that takes
        long. Raises NobodyAnswersError."""
        contacts = self.contacts()
        self.begin_joining()
        if not await self._has_met_in_time(contacts, tell) or not self._met.result():
            tried = f" (tried {', '.join(contacts[:3])})" if contacts else ""
            raise NobodyAnswersError(
                f"no peer of grid {self.home.grid} answers{tried}; start one with: "
                f"sureline peer --grid {self.home.grid}"
            )

    async def _has_met_in_time(self, contacts: Sequence[Node], tell: Callable[[str], None]) -> bool:
        loop, awake = self.world.loop, self.transport.awake
        began_s, quiet_since_s, heard_at = loop.time(), awake(), 0.0
        told = False
        while not self._met.done():
            await asyncio.wait([self._met], timeout=LOOK_S)
            if self.transport.heard_at() > heard_at:
                heard_at, quiet_since_s = self.transport.heard_at(), awake()
            waited_s = loop.time() - began_s
            if awake() - quiet_since_s > JOIN_S or waited_s > JOIN_S_MAX:
                return self._met.done()
            if waited_s > JOIN_TOLD_S and not told and not self._met.done():
                told = True
                tell(_waits_for(self.home.grid, contacts, connected=heard_at > 0))
        return True

    def nodes_of(self, name: str) -> list[Node]:
        """Where a peer of this name is, if it is there."""
        return [member.node for member in self.present() if name_of(member.node) == name]

    def present(self) -> list[Member]:
        """The members that are not known to be gone."""
        return self.grid.present()

    def remember_contacts(self) -> None:
        """Keep where to knock next time. A hint: a home that cannot be written is no reason to
        stop."""
        nodes = list(self._others())
        self.world.random.shuffle(nodes)
        if nodes:
            self._contacts = frozenset(nodes[:CONTACTS_MAX])
            try:
                self.home.keep_contacts(nodes)
            except (SurelineError, OSError):
                pass  # as above

    def contacts_are_old(self) -> bool:
        """Whether some of what was kept has gone, perhaps to another address, or some who have come
        might be kept beside it."""
        records = self.membership.knowledge.table.records
        kept = [records.get(name_of(node)) for node in self._contacts]
        good = [r for r in kept if r is not None and r.present and not r.relays]
        if len(good) == CONTACTS_MAX and all(r.node in self._contacts for r in good):
            return False  # the usual case, without a look at everybody
        there = self._others()
        return len(self._contacts & there) < min(CONTACTS_MAX, len(there))

    def _others(self) -> set[Node]:
        """Who is there; those who can be dialled, if there are any."""
        others = [member for member in self.present() if member.node != self.id]
        dialled = {member.node for member in others if not member.relays}
        return dialled or {member.node for member in others}

    async def close(self) -> None:
        """Go without a word: members notice, guests are missed by nobody."""
        self.grid.stop()
        await self.files.close()
        await self.transport.close()

    async def __aenter__(self) -> LiveNode:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    # -- where files are ------------------------------------------------------------------------

    def announce(self, digest: str) -> None:
        self.grid.announce(digest)

    def withdraw(self, digest: str) -> None:
        self.grid.withdraw(digest)

    def locate(self, digest: str, on_done: Callable[[Sequence[Node]], None]) -> None:
        self.grid.locate(digest, on_done)

    # -- who is out -----------------------------------------------------------------------------

    def publish_revocations(self) -> None:
        """Take in a list that another process of this home has signed or heard of."""
        found = self.credentials.reload()
        if found is not None:
            self.grid.news.publish(found)

    def _on_new_list(self, revocations: RevocationList) -> None:
        self.credentials.adopt(revocations)
        for name in revocations.names:
            self.transport.drop(name)
        refused = self.credentials.refused(self.credentials.identity)
        if refused is not None:
            self._on_refused(refused)


def peer_directory(home: GridHome) -> Path:
    """Where the peer of this home keeps what is its own."""
    return home.path / "peer"


def open_cache(home: GridHome, size_bytes: int = 1 << 62) -> FileCache:
    """This home's file cache; only the process that serves bounds its size."""
    root = peer_directory(home)
    root.mkdir(mode=0o700, exist_ok=True)
    return FileCache(root, size_bytes)


@asynccontextmanager
async def open_node(
    grid: str | None = None, cache: FileCache | None = None
) -> AsyncIterator[LiveNode]:
    """A guest of the grid that has met it, for a command; what it fetches goes into the `cache`, by
    default the home's. Raises NobodyAnswersError."""
    home = open_home(grid)
    crashes: list[BaseException] = []
    cache = open_cache(home) if cache is None else cache
    try:
        node = await LiveNode.open(home, cache, guest=guest_suffix(), on_crash=crashes.append)
        async with node:
            await node.meet()
            yield node
    finally:
        cache.close()
    if crashes:
        raise crashes[0]


def guest_suffix() -> str:
    """A suffix that no other guest of this home has, of this process or another, here or elsewhere:
    two with one would answer for each other."""
    return f"{os.getpid()}-{secrets.token_hex(4)}"


def _waits_for(grid: str, contacts: Sequence[Node], *, connected: bool) -> str:
    names = ", ".join(name_of(node) for node in contacts[:3])
    if connected:
        return f"connected with grid {grid}, whose peers are slow to answer; goes on asking {names}"
    return f"waits for a peer of grid {grid} to answer: asks {names}"


def grid_loop() -> asyncio.Runner:
    """Runs coroutines on the loop that grids use, one after the other on the same loop."""
    return asyncio.Runner(loop_factory=uvloop.new_event_loop)


@lru_cache(maxsize=4096)
def is_node(text: str) -> bool:
    """Whether this can be the address of a node; others may have said anything."""
    try:
        return bool(endpoint_of(text)) and text.isprintable()
    except ValueError:
        return False


def _known_nodes(home: GridHome) -> list[Node]:
    serving = home.serving()
    known = [serving.node] if serving is not None else []
    told = dict.fromkeys([*known, *home.doors()])
    return [Node(text) for text in told if is_node(text)]


def _is_local(home: GridHome) -> bool:
    """Whether all that this home knows of the grid is on this machine."""
    hosts = {endpoint_of(node).host for node in _known_nodes(home)}
    return bool(hosts) and hosts <= {LOOPBACK, "localhost", "::1"}


def _advertised(host: str, home: GridHome) -> str | None:
    """What to tell others if we listen everywhere: the address that our traffic to those leaves
    from of whom this home knows."""
    if host not in ("", "0.0.0.0", "::"):
        return None
    hosts = dict.fromkeys(endpoint_of(node).host for node in _known_nodes(home))
    return default_host([known for known in hosts if not is_of_this_machine(address_of(known, 1))])
