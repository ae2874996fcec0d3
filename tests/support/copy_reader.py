"""Reading runs from those who keep copies of them: which there are, and one whole.

Every keeper is asked what it has of a run, and the one that has most is read, page by page; if it
falls silent, the next one is. For `status`, `report`, `resume` and the like from any peer.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from sureline.run.keeping import (
    GRAPH_BYTES_MAX,
    KeeperAsk,
    KeeperPart,
    NumberedEvent,
    RunKnown,
    RunsKnown,
)
from sureline.world.address import Node, at, node_of
from sureline.world.agent import Agent, handles
from sureline.world.protocol import AgentId, Timer, World

ANSWER_S = 3.0
TRIES_MAX = 3
KEEPERS_MAX = 2000


class Copy(msgspec.Struct, frozen=True):
    """A run as a keeper had it."""

    known: RunKnown
    graph: bytes
    events: tuple[NumberedEvent, ...]


class _Reading(msgspec.Struct):
    run: str
    keepers: list[tuple[Node, RunKnown]]
    """Those that have it, the one to be read first at the end."""
    on_done: Callable[[Copy | None], None]
    graph: bytearray
    events: list[NumberedEvent]
    tries: int = 0


class CopyReader(Agent):
    """One question at a time."""

    def __init__(self, me: AgentId, world: World) -> None:
        super().__init__(me, world)
        self._serial = 0
        self._lists: dict[Node, tuple[RunKnown, ...]] = {}
        self._awaited: dict[Node, None] = {}
        self._on_lists: Callable[[], None] | None = None
        self._reading: _Reading | None = None
        self._timer: Timer | None = None

    def list_runs(self, keepers: Sequence[Node], on_done: Callable[[list[RunKnown]], None]) -> None:
        """All runs that anybody keeps, each as the one who has most of it tells; newest last."""

        def done() -> None:
            found: dict[str, RunKnown] = {}
            for known in (known for runs in self._lists.values() for known in runs):
                best = found.get(known.run)
                if best is None or _rank(known) > _rank(best):
                    found[known.run] = known
            on_done(sorted(found.values(), key=lambda known: (known.submitted_at, known.run)))

        self._ask_all(keepers, done)

    def read(
        self, run: str, keepers: Sequence[Node], on_done: Callable[[Copy | None], None]
    ) -> None:
        """The run, from the keeper that has most of it; None if nobody has it whole."""

        def done() -> None:
            having = [
                (node, known)
                for node, runs in self._lists.items()
                for known in runs
                if known.run == run and known.whole
            ]
            having.sort(key=lambda pair: _rank(pair[1]))
            self._reading = _Reading(run, having, on_done, bytearray(), [])
            self._read_on()

        self._ask_all(keepers, done)

    # -- who has what --------------------------------------------------------------------------

    def _ask_all(self, keepers: Sequence[Node], then: Callable[[], None]) -> None:
        self._serial += 1
        self._lists, self._on_lists = {}, then
        self._awaited = dict.fromkeys(keepers[:KEEPERS_MAX])
        for node in self._awaited:
            self.world.send(at(node, "keeper"), KeeperAsk(self._serial))
        self._set_timer(self._listed, wait=bool(self._awaited))

    def _set_timer(self, action: Callable[[], None], wait: bool = True) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self.world.after(ANSWER_S if wait else 0.0, action)

    @handles(RunsKnown)
    def on_runs(self, sender: AgentId, message: RunsKnown) -> None:
        if message.serial == self._serial and node_of(sender) in self._awaited:
            del self._awaited[node_of(sender)]
            self._lists[node_of(sender)] = message.runs
            if not self._awaited:
                self._listed()

    def _listed(self) -> None:
        then, self._on_lists = self._on_lists, None
        self._awaited = {}
        if self._timer is not None:
            self._timer.cancel()
        if then is not None:
            then()

    # -- one run -------------------------------------------------------------------------------

    def _read_on(self) -> None:
        """Ask for the next page; if nobody is left to ask, there is no copy."""
        reading = self._reading
        assert reading is not None
        if not reading.keepers:
            self._end(None)
            return
        self._serial += 1
        after = reading.events[-1][0] if reading.events else 0
        ask = KeeperAsk(self._serial, reading.run, len(reading.graph), after)
        self.world.send(at(reading.keepers[-1][0], "keeper"), ask)
        self._set_timer(self._silent)

    def _silent(self) -> None:
        reading = self._reading
        if reading is None:
            return
        reading.tries += 1
        if reading.tries >= TRIES_MAX:
            self._next_keeper(reading)
        self._read_on()

    def _next_keeper(self, reading: _Reading) -> None:
        reading.keepers.pop()
        reading.tries = 0
        reading.graph.clear()
        reading.events.clear()

    @handles(KeeperPart)
    def on_part(self, sender: AgentId, message: KeeperPart) -> None:
        reading = self._reading
        if reading is None or message.serial != self._serial:
            return
        reading.tries = 0
        if not message.size_bytes or len(reading.graph) > GRAPH_BYTES_MAX:
            self._next_keeper(reading)
            self._read_on()
            return
        if message.offset == len(reading.graph):
            reading.graph += message.piece
        after = reading.events[-1][0] if reading.events else 0
        reading.events.extend(entry for entry in message.events if entry[0] > after)
        if message.last:
            known = reading.keepers[-1][1]
            self._end(Copy(known, bytes(reading.graph), tuple(reading.events)))
        else:
            self._read_on()

    def _end(self, copy: Copy | None) -> None:
        reading, self._reading = self._reading, None
        if self._timer is not None:
            self._timer.cancel()
        assert reading is not None
        reading.on_done(copy)


def _rank(known: RunKnown) -> tuple[int, int]:
    return (known.epoch, known.position)
