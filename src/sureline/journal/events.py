"""The events of a run.

Adding a field needs a default; renaming or removing one breaks old journals.

Every event carries `at` (seconds since the epoch by the recording world's clock). Events of a
task carry its name. (origin, sequence) are given by the store when an event is appended.
A task's result is committed by exactly one `TaskEnded` whose outcome is in COMMITS.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, get_args

import msgspec

from sureline.workflow.files import FileRecord
from sureline.workflow.model import Graph
from sureline.world.address import NO_NAME, NO_NODE, Node, PeerName
from sureline.world.protocol import Recordable

Outcome = Literal["succeeded", "reused", "failed", "timeout", "cancelled", "lost"]
RunState = Literal["succeeded", "failed", "cancelled", "interrupted"]
COMMITS: frozenset[str] = frozenset({"succeeded", "reused"})


class Event(Recordable, frozen=True, tag_field="event", omit_defaults=True):
    at: float


class Submitted(Event, frozen=True, tag="submitted"):
    """The first event of a run. The graph itself is stored beside the events."""

    run: str
    name: str
    total: int
    source: str | None = None
    params: dict[str, str] = {}  # noqa: RUF012 - msgspec copies an empty default
    options: dict[str, bool | float | str | dict[str, bool | float | str]] = {}  # noqa: RUF012 - msgspec copies an empty default
    version: str = ""


class Opened(Event, frozen=True, tag="opened"):
    """A process took the run over, as its only writer from now on. epoch 1 is the first."""

    epoch: int
    host: str
    pid: int
    boot: str = ""
    """Which boot of the machine; after another boot, stored files are verified by content."""


class Voters(Event, frozen=True, tag="voters"):
    """Who say, by a majority, who may write the run from now on: names of peers that keep a copy,
    and '~WORD' for the journal of the writer itself. See `run.grant`."""

    voters: tuple[str, ...]


class Entrusted(Event, frozen=True, tag="entrusted"):
    """How much of what the user gave is held by peers, so that the run can go on without the
    machine that it was submitted on. See `run.entrusting`."""

    files: int
    of_files: int
    size: int
    of_size: int
    """Of the files whose size is known by now."""
    by: tuple[PeerName, ...] = ()
    whole: bool = False
    """Whether nothing is missing."""
    successors: tuple[str, ...] = ()
    """Peers that could take the run over; a few."""


class Grown(Event, frozen=True, tag="grown"):
    """The graph has more tasks from now on; `growth` is what `Graph.grown` takes."""

    tasks: int
    """How many were added."""
    growth: bytes


class PeerJoined(Event, frozen=True, tag="peer joined"):
    peer: PeerName
    cores: float
    memory_bytes: int
    disk_bytes: int = 0
    gpus: int = 0
    tags: dict[str, int] = {}  # noqa: RUF012 - msgspec copies an empty default
    site: str = ""
    node: Node = NO_NODE
    """Where it listens, on a grid."""


class PeerLeft(Event, frozen=True, tag="peer left"):
    """It takes no part any more: it has gone, or its writer set it aside."""

    peer: PeerName
    reason: str = ""
    aside_s: float = 0.0
    """It is there, and gets nothing for so long."""
    strikes: int = 0
    """How often it was refuted, if it is set aside for that: see `run.standing`."""


class TaskEvent(Event, frozen=True):
    task: str


class TaskReady(TaskEvent, frozen=True, tag="task ready"):
    """All that the task waits for has been committed."""


class TaskBound(TaskEvent, frozen=True, tag="task bound"):
    attempt: int
    peer: PeerName
    ahead: bool = False
    """It holds nothing yet: it begins on that peer when one with equal needs ends."""
    seal: bytes = b""
    """On a grid: by which a later writer knows what the peer shows for it (`run.warrants`)."""


class TaskStarted(TaskEvent, frozen=True, tag="task started"):
    attempt: int
    peer: PeerName
    pid: int | None = None


class TaskProgressed(TaskEvent, frozen=True, tag="task progressed"):
    attempt: int
    fraction: float


class TaskEnded(TaskEvent, frozen=True, tag="task ended"):
    """One attempt is over. `attempt` 0 means that nothing ran (reused, or cancelled while waiting).

    `stdout` and `stderr` hold short output whole; longer output lies in a file named by
    `stdout_file`/`stderr_file`, relative to the journal's directory, and the text is its tail.
    """

    outcome: Outcome
    attempt: int = 0
    peer: PeerName = NO_NAME
    exit_code: int | None = None
    signal: int | None = None
    reason: str = ""
    elapsed_s: float = 0.0
    cpu_s: float = 0.0
    memory_peak_bytes: int = 0
    inputs: tuple[FileRecord, ...] = ()
    """What it read: recorded on commits only."""
    outputs: tuple[FileRecord, ...] = ()
    result: bytes | None = None
    """A short result of a call, pickled; a long one is the output `files.result_path(task)`."""
    error: bytes | None = None
    """A failed call's exception, pickled."""
    stdout: str = ""
    stderr: str = ""
    stdout_file: str | None = None
    stderr_file: str | None = None
    key: str = ""
    """What the result depends on (command, inputs, env), hashed; results are reused by it."""
    from_run: str = ""
    """The run that a reused result came from."""
    kind: str = ""
    """What the task has in common with those like it; durations are remembered by it."""
    here_files: int = 0
    """On a grid: how many of its inputs were on the peer already, and how many came from others."""
    here_bytes: int = 0
    peer_files: int = 0
    peer_bytes: int = 0
    unkept: str = ""
    """Why a call's result is not reused by later runs; '' if it is."""
    trace: str = ""
    """Of a call that raised: how it was called, and the traceback."""
    foreign: bool = False
    """Its result or exception was made on another machine: whoever reads it takes data only
    (`peer.careful`), unless the user trusts that machine."""


class TaskRetried(TaskEvent, frozen=True, tag="task retried"):
    """A failed attempt will be repeated after `delay_s`."""

    attempt: int
    delay_s: float
    reason: str = ""


class TaskRevoked(TaskEvent, frozen=True, tag="task revoked"):
    """A committed result can no longer be had (its stored files are gone): it will be made again.

    Undoes the commit, so that the task may commit once more."""

    reason: str = ""


class FileFetched(Event, frozen=True, tag="file fetched"):
    """A file came into a store. `source` is where from: the user's directory, a peer, storage."""

    file: FileRecord
    source: Literal["local", "peer", "storage"] = "local"
    peer: PeerName = NO_NAME


class Foreseen(Event, frozen=True, tag="foreseen"):
    """The forecast changed so much that it is worth keeping. Times are seconds since the epoch."""

    early_at: float
    """Done by then with a chance of 5 %, of 50 % (`middle_at`), of 95 % (`late_at`)."""
    middle_at: float
    late_at: float
    surety: float | None = None
    """The chance of being done by the deadline, if there is one; `surety_error` is its standard
    error."""
    surety_error: float = 0.0
    open_tasks: int = 0
    basis: str = ""
    """Where the durations come from, in words."""


class Planned(Event, frozen=True, tag="planned"):
    """What was promised when the run began, or after a repair changed the plan."""

    method: str
    deadline_at: float | None = None
    budget: float | None = None
    surety_wanted: float = 0.0
    cost: float = 0.0
    middle_at: float = 0.0
    late_at: float = 0.0
    surety: float | None = None
    providers: dict[PeerName, int] = {}  # noqa: RUF012 - msgspec copies an empty default
    """How many tasks each provider is to get."""


class Noted(Event, frozen=True, tag="noted"):
    """Something that a strategy did or heard. `said` is for people, `body` for the strategy when
    the run is resumed; both stay, and can be read, where the strategy itself is not installed."""

    strategy: str
    kind: str
    said: str = ""
    task: str = ""
    attempt: int = 0
    peer: PeerName = NO_NAME
    paid: float = 0.0
    """Money that was spent by it."""
    body: bytes = b""
    window: tuple[float, float] | None = None
    """From when to when the task was promised time, by it."""


Repair = Literal["duplicate", "substitute", "swap", "none"]


class Repaired(Event, frozen=True, tag="repaired"):
    """Surety fell below what was wanted, and this was done about it.

    'none': nothing that is allowed would restore it; `surety_after` is the best achievable."""

    action: Repair
    reason: str
    surety_before: float
    surety_after: float
    task: str = ""
    attempt: int = 0
    from_peer: PeerName = NO_NAME
    to_peer: PeerName = NO_NAME
    cost: float = 0.0


class CancelAsked(Event, frozen=True, tag="cancel asked"):
    """The run is to end early. `drain`: running tasks may finish first."""

    drain: bool = False
    reason: str = ""


class RunEnded(Event, frozen=True, tag="run ended"):
    """The last event, unless the run is resumed. 'interrupted' runs can be resumed."""

    state: RunState
    reason: str = ""


class Unknown(Event, frozen=True, tag="unknown"):
    """An event of a kind that this process does not have: one of a newer version, or of a strategy
    that is not installed here. It means nothing here and is kept as it came."""

    kind: str
    body: bytes
    task: str = ""
    paid: float = 0.0
    """If it has such a field: as of a `Noted`."""


AnyEvent = (
    Submitted
    | Opened
    | Voters
    | Entrusted
    | Grown
    | PeerJoined
    | PeerLeft
    | TaskReady
    | TaskBound
    | TaskStarted
    | TaskProgressed
    | TaskEnded
    | TaskRetried
    | TaskRevoked
    | FileFetched
    | Foreseen
    | Planned
    | Noted
    | Repaired
    | CancelAsked
    | RunEnded
    | Unknown
)


def task_of(event: Event) -> str | None:
    """The task that an event is about, if it is about one."""
    if isinstance(event, TaskEvent):
        return event.task
    if isinstance(event, Repaired | Noted | Unknown):
        return event.task or None
    return None


_encoder = msgspec.msgpack.Encoder()
_decoder: msgspec.msgpack.Decoder[AnyEvent] = msgspec.msgpack.Decoder(AnyEvent)
_KINDS = frozenset(kind.__struct_config__.tag for kind in get_args(AnyEvent))


class _Head(msgspec.Struct):
    """What events of all kinds have."""

    event: str
    at: float
    task: str = ""
    paid: float = 0.0


_head_decoder = msgspec.msgpack.Decoder(_Head)


def encode(event: Event) -> bytes:
    if type(event) is Unknown:
        return event.body
    return _encoder.encode(event)


def decode(data: bytes) -> AnyEvent:
    """Raises msgspec.DecodeError for what is no event; one of another kind is `Unknown`."""
    try:
        return _decoder.decode(data)
    except msgspec.ValidationError:
        head = _head_decoder.decode(data)
        if head.event in _KINDS:
            raise
        return Unknown(head.at, head.event, bytes(data), head.task, head.paid)


def to_json(event: Event) -> str:
    """The canonical text of an event: sorted keys, no spaces."""
    return msgspec.json.encode(event, order="sorted").decode()


def with_growth(graph: Graph, events: Iterable[Event]) -> Graph:
    """The graph that a run was created with, and what it has grown by since."""
    for event in events:
        if isinstance(event, Grown):
            graph = graph.grown(event.growth)
    return graph
