"""The writer's side of keeping copies: what was recorded goes to a few keepers, in order.

The mirror reads the run's own journal from where each keeper says it is, so a keeper that is slow,
new or back again needs no buffer here, and none ever has what the writer could still lose to a
kill. A keeper that refuses, or whose answers show no progress, is replaced, and left alone for a
while that grows. Which peers are asked first follows from a hash of
the run and the peer, so that the copies of many runs are spread over the grid; those that could
take the run over come first. What keepers say of the writer's epoch goes to its `office`.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import nsmallest

import msgspec

from sureline.peer.messages import Fenced
from sureline.run.grant import VOTERS
from sureline.run.keeping import (
    EVENT_BYTES_MAX,
    PIECE_BYTES_MAX,
    KeepEvents,
    KeepRun,
    Kept,
    Position,
)
from sureline.run.keys import digest_of
from sureline.run.office import Office
from sureline.run.sealing import Recorded, Sealer
from sureline.world.address import Node, at, name_of, node_of, peer_of
from sureline.world.agent import Agent, handles
from sureline.world.identity.signing import RunSigner
from sureline.world.protocol import AgentId, World

COPIES = VOTERS - 1
BATCH_S, HURRY_S = 0.5, 0.1
ANSWER_S = 3.0
TRIES_MAX = 3
TICK_S = 1.0
ABLE_S = 12.0
WHOLE_S = 3.0
"""A keeper that had everything so long ago keeps up: in a busy run there is always something that
is on its way."""
BEAT_S = 5.0
"""A keeper hears of the writer at least so often."""
AGAIN_S, AGAIN_S_MAX = 5.0, 300.0
"""How long a keeper that was given up is not asked again; doubles each time."""


class _Keeper(msgspec.Struct):
    node: Node
    graph_bytes: int = 0
    position: Position | None = None
    """None until it has answered."""
    sent_at: float | None = None
    """When the message was sent that it has not answered."""
    tries: int = 0
    """Since the last answer that showed progress."""
    beats: bool = False
    """Whether that message had nothing in it."""
    heard_at: float = 0.0
    """When it last answered."""
    all_up_to: Position | None = None
    """All that was recorded when the message was sent, if that is all it needed."""
    whole_at: float = -1e9
    """When it last had everything."""


class _Unwilling(msgspec.Struct):
    """A keeper that was given up."""

    until_s: float = 0.0
    wait_s: float = AGAIN_S


_WILLING = _Unwilling()


class Mirror(Agent):
    """What keepers say of the writer's epoch goes to its `office`."""

    def __init__(
        self,
        me: AgentId,
        world: World,
        run: str,
        epoch: int,
        graph: bytes,
        recorded: Recorded,
        signer: RunSigner,
        office: Office,
    ) -> None:
        super().__init__(me, world)
        self._run = run
        self._epoch = epoch
        self._graph = graph
        self._recorded = recorded
        self._sealer = Sealer(signer, recorded)
        self._office = office
        office.hurry = self._hurry
        self._drivers: set[str] = set()
        """Members that could take the run over."""
        self._members: dict[str, Node] = {}
        self._unwilling: dict[str, _Unwilling] = {}
        """Members that refused, or did not answer."""
        self._keepers: dict[str, _Keeper] = {}
        self._pushing = self._hurrying = False
        self._ended = False
        self._drained: Callable[[], None] | None = None

    def start(self) -> None:
        self.world.after(TICK_S, self._tick)

    def stop(self) -> None:
        self._ended = True

    def peer_joined(self, node: Node, drives: bool = False) -> None:
        name = name_of(node)
        if self._members.get(name) == node and drives == (name in self._drivers):
            return
        (self._drivers.add if drives else self._drivers.discard)(name)
        self._members[name] = node
        keeper = self._keepers.get(name)
        if keeper is not None and keeper.node != node:
            self._keepers[name] = _Keeper(node)
        self._choose()

    def peer_left(self, node: Node) -> None:
        if self._members.get(name_of(node)) == node:
            del self._members[name_of(node)]
            self._unwilling.pop(name_of(node), None)
            self._keepers.pop(name_of(node), None)
            self._choose()

    def recorded(self) -> None:
        """Something was recorded: it will be told soon."""
        if not self._pushing and not self._ended:
            self._pushing = True
            self.world.after(BATCH_S, self._push_all)

    def _hurry(self) -> None:
        """Somebody waits until it is kept; a few others may come along."""
        if not self._hurrying and not self._ended:
            self._hurrying = True
            self.world.after(HURRY_S, self._push_all)

    def kept_by(self) -> list[Node]:
        """Keepers that have everything."""
        last = self._recorded.last()
        return [
            keeper.node
            for keeper in self._keepers.values()
            if keeper.position is not None and keeper.position >= last
        ]

    def drain(self, wait_s: float, then: Callable[[], None]) -> None:
        """Run `then` when every keeper has everything, or after `wait_s`; then stop."""

        def done() -> None:
            if self._drained is not None:
                self._drained = None
                self._ended = True
                then()

        self._drained = done
        self.world.after(wait_s, done)
        self._push_all()
        self._look_drained()

    def _look_drained(self) -> None:
        if self._drained is not None and len(self.kept_by()) == len(self._keepers):
            self._drained()

    # -- keepers -------------------------------------------------------------------------------

    def _choose(self) -> None:
        """Whoever votes keeps a copy; of others, as many as are missing, and none on this peer."""
        chosen = [name for name in self._office.voters if self._is_willing(name)]
        missing = COPIES - len(self._keepers) - len(chosen)
        if missing > 0:
            me, voters = peer_of(self.me), self._office.voters
            others = [n for n in self._members if n not in voters and n != me]
            chosen += nsmallest(missing, filter(self._is_willing, others), key=self._preference)
        for name in chosen:
            keeper = self._keepers[name] = _Keeper(self._members[name])
            self._push(keeper)

    def _is_willing(self, name: str) -> bool:
        """Whether it may become a keeper: not if it is one."""
        until_s = self._unwilling.get(name, _WILLING).until_s
        there = name in self._members and name not in self._keepers
        return there and until_s <= self.world.awake()

    def _preference(self, name: str) -> tuple[bool, bool, str]:
        """The least ones are asked first."""
        of_run = digest_of(f"{self._run} {name}".encode())
        return (name in self._unwilling, name not in self._drivers, of_run)

    def _tick(self) -> None:
        if self._ended:
            return
        now = self.world.awake()
        for name, keeper in list(self._keepers.items()):
            if keeper.sent_at is not None and now - keeper.sent_at >= ANSWER_S:
                keeper.tries += 1
                keeper.sent_at = None
                if keeper.tries >= TRIES_MAX:
                    self._replace(name)
        self._choose()
        self._push_all()
        self._tell_office()
        self._office.tick()
        self.world.after(TICK_S, self._tick)

    def _tell_office(self) -> None:
        self._office.able(self._able(), min(COPIES, len(self._members)))

    def _able(self) -> list[str]:
        """Who can vote: those that answer, and keep up or do so already."""
        now, last = self.world.awake(), self._recorded.last()
        return [
            name
            for name, keeper in self._keepers.items()
            if now - keeper.heard_at < ABLE_S
            and (
                now - keeper.whole_at < WHOLE_S
                or self._has_all(keeper, last)
                or (name in self._office.voters and bool(keeper.position))
            )
        ]

    def _has_all(self, keeper: _Keeper, last: Position) -> bool:
        whole_graph = keeper.graph_bytes >= len(self._graph)
        return whole_graph and keeper.position is not None and keeper.position >= last

    def _replace(self, name: str) -> None:
        del self._keepers[name]
        unwilling = self._unwilling.setdefault(name, _Unwilling())
        unwilling.until_s = self.world.awake() + unwilling.wait_s
        unwilling.wait_s = min(AGAIN_S_MAX, 2 * unwilling.wait_s)

    def _push_all(self) -> None:
        self._pushing = self._hurrying = False
        if not self._ended:
            for keeper in self._keepers.values():
                self._push(keeper)

    def _push(self, keeper: _Keeper) -> None:
        """Send the next that the keeper has not got, unless it has still to answer."""
        if keeper.sent_at is not None:
            return
        message: KeepRun | KeepEvents
        if keeper.position is None or keeper.graph_bytes < len(self._graph):
            offset = keeper.graph_bytes
            piece = self._graph[offset : offset + PIECE_BYTES_MAX]
            line = self._recorded.line
            base, size_bytes = max(line, default=0), len(self._graph)
            message = KeepRun(
                self._run,
                self._epoch,
                base,
                size_bytes,
                offset,
                piece,
                line,
                self._sealer.papers,
                self._office.epoch.writer,
            )
        else:
            events = self._recorded.after(keeper.position)
            keeper.beats = not events
            if not events and not self._is_due(keeper):
                return
            if events and len(events[0][1]) > EVENT_BYTES_MAX:
                self._ended = True  # the copies end here: they are of use, if less up to date
                return
            seal = self._sealer.seal(keeper.position, events) if events else b""
            message = KeepEvents(self._run, self._epoch, keeper.position, tuple(events), seal)
        told = message.events[-1][0] if isinstance(message, KeepEvents) and message.events else None
        told = keeper.position if told is None else told
        whole = told is not None and told >= self._recorded.last()
        keeper.all_up_to = told if whole else None
        keeper.sent_at = self.world.awake()
        self.world.send(at(keeper.node, "keeper"), message)

    def _is_due(self, keeper: _Keeper) -> bool:
        return self.world.awake() - keeper.heard_at >= BEAT_S

    @handles(Kept)
    def on_kept(self, sender: AgentId, message: Kept) -> None:
        keeper = self._keepers.get(name_of(sender))
        if keeper is None or keeper.node != node_of(sender) or message.run != self._run:
            return
        if message.epoch != self._epoch:
            return
        if message.refused:
            self._replace(name_of(sender))
            self._choose()
            return
        before = (-1, -1) if keeper.position is None else (keeper.graph_bytes, keeper.position)
        keeper.graph_bytes, keeper.position = message.graph_bytes, message.position
        keeper.heard_at = self.world.awake()
        if keeper.graph_bytes >= len(self._graph):
            if keeper.all_up_to is not None and keeper.position >= keeper.all_up_to:
                keeper.whole_at = self.world.awake()
            self._office.has(name_of(sender), keeper.position)
        if (keeper.graph_bytes, keeper.position) <= before and not keeper.beats:
            return  # it took nothing, or speaks of earlier: as good as no answer
        keeper.sent_at = None
        keeper.tries = 0
        if not self._ended:
            self._push(keeper)
            self._tell_office()
            self._look_drained()

    @handles(Fenced)
    def on_fenced(self, sender: AgentId, message: Fenced) -> None:
        if message.run != self._run or message.epoch <= self._epoch or self._ended:
            return
        self._office.denied(name_of(sender), message.epoch)
