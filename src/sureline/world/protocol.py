"""The World protocol: all that an agent may do, in any world.

Contract, for every world:
- Handlers and actions run one at a time; none is ever re-entered.
- `send` never blocks, never raises, and never delivers before the current handler has returned.
  Messages between two agents keep their order while the nodes are connected; a message to nobody
  is dropped, and over a network any message may be lost.
- When the world learns that a node is gone (its connection closed and a new one was refused), it
  may say so to the agents that handle `Unreachable`. That is a hint: silence proves nothing, and
  a node may come back.
- `after` runs its action once, no earlier than asked, unless cancelled first; a cancelled timer
  never fires, also when it was due in the same instant.
- `start` reports events of a job in order: at most one `JobStarted`, any `JobProgressed`, exactly
  one `JobEnded`, the last. `stop` only asks; the `JobEnded` still comes. A job started `after`
  another begins where that one ends, without another word from the agent; if the world cannot do
  that, or the other turns out to take long, its only event is `JobReturned`: it never began, and
  may be started again.
- `record` keeps order. What was recorded before a `flush` survives the death of this process,
  and what was recorded before a `sync` that of the machine, once its action runs.
- `put` is visible to `get` at once and durable after the next `sync`.
- A handler or action must not raise: that is a mistake in the program, and ends the world it
  happens in. A message from another node is no excuse, whatever it says: check it, then act on it.
  Only as a last resort does the live world drop a message of another node whose handler raised,
  with a line in its log, and go on; what the handler had done by then stays done. The simulator
  never does, so that the mistake shows.
- `now` is for what people and other machines read; it may be set back or forward at any moment.
  `elapsed` is for intervals: it only moves on, as fast as `after` counts. Its zero means nothing
  and is another one in the next process: it is neither put on disk nor told to another node.
- `awake` is for silence: like `elapsed`, but it stands still while this process does, stopped or
  without a turn on its machine. What others said meanwhile may still be unread.
- The same inputs, times and random draws give the same behaviour: agents read no clock but
  `now()` and `elapsed()` and draw from no source but `random`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import ClassVar, Protocol

import msgspec

from sureline.world.address import AgentId as AgentId
from sureline.world.address import Node

Action = Callable[[], None]
WRITES = "submit|drive"
"""The roles of those who write runs: their own, or such as were delegated to them."""


class Message(msgspec.Struct, frozen=True):
    """Base of everything agents say to each other. Those that travel have a `tag` of their own:
    unique over the project, and prefixed by the room's word, such as 'kademlia.find'."""

    needs_role: ClassVar[str] = ""
    """The role that a sender must have on a network, or one of several ('a|b'); '' if any peer of
    the grid may say it."""


class Unreachable(Message, frozen=True, tag="world.unreachable"):
    """Said by the world itself, never by a peer: nobody answers at this node any more."""

    node: Node


class Job(msgspec.Struct, frozen=True):
    """Base of what a machine can be asked to run; `peer.jobs` has the real ones."""


class JobEvent(msgspec.Struct, frozen=True):
    """Base of what a job reports; see JobStarted, JobProgressed, JobEnded in `peer.jobs`."""


class Wanted(msgspec.Struct, frozen=True):
    """Base of what can be fetched into this machine's store; `peer.jobs` has the real ones."""


class Fetched(msgspec.Struct, frozen=True):
    """Base of what a fetch reports."""


class Recordable(msgspec.Struct, frozen=True):
    """Base of what can be recorded; `journal.events` has the real ones."""


class Timer(Protocol):
    def cancel(self) -> None:
        """Make sure the action does not run (any more). Idempotent."""


class JobHandle(Protocol):
    """A job under way."""


class World(Protocol):
    random: Random

    def now(self) -> float:
        """Seconds since the epoch, by this machine's clock."""

    def elapsed(self) -> float:
        """Seconds since some moment before this agent began; they never jump."""

    def awake(self) -> float:
        """Seconds in which this process could hear others: elapsed, without its own delays."""

    def send(self, to: AgentId, message: Message) -> None: ...

    def after(self, seconds: float, action: Action) -> Timer: ...

    def start(
        self, job: Job, on_event: Callable[[JobEvent], None], *, after: JobHandle | None = None
    ) -> JobHandle: ...

    def stop(self, handle: JobHandle, *, force: bool = False) -> None:
        """Ask a job to end; with `force`, at once. Stopping an ended job does nothing."""

    def fetch(
        self, wanted: Wanted, sources: Sequence[Node], on_done: Callable[[Fetched], None]
    ) -> None:
        """Bring a file into this machine's store."""

    def record(self, event: Recordable) -> None: ...

    def flush(self) -> None:
        """Hand everything recorded so far to the system: it survives a kill from here on."""

    def sync(self, on_durable: Action) -> None:
        """Run the action once everything recorded and put so far is durable."""

    def put(self, key: str, value: bytes) -> None: ...

    def get(self, key: str) -> bytes | None: ...

    def busy(self, seconds: float) -> None:
        """What this handler costs; only the simulator charges it."""
