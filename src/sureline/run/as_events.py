"""What was reported, as events of the journal."""

from __future__ import annotations

from sureline.journal.events import PeerJoined, TaskEnded
from sureline.peer.capacity import Capacity
from sureline.peer.jobs import Brought
from sureline.peer.messages import Finished
from sureline.run.past import PastFound
from sureline.workflow.files import FileRecord
from sureline.workflow.model import Call, Pause, Task
from sureline.world.address import NO_NODE, Node, PeerName

_NOTHING = Brought()


def task_ended(
    at: float,
    task: Task,
    peer: PeerName,
    message: Finished,
    inputs: tuple[FileRecord, ...],
    key: str,
    foreign: bool = False,
) -> TaskEnded:
    """`inputs` and `key` are told of results only."""
    e = message.ended
    brought = message.brought or _NOTHING
    return TaskEnded(
        at,
        message.task,
        e.outcome,
        message.attempt,
        peer,
        e.exit_code,
        e.signal,
        e.reason,
        e.elapsed_s,
        e.cpu_s,
        e.memory_peak_bytes,
        inputs,
        e.outputs,
        e.result,
        e.error,
        e.stdout,
        e.stderr,
        e.stdout_file,
        e.stderr_file,
        "" if e.unkept else key,
        "",
        _remembered_kind(task),
        brought.here_files,
        brought.here_bytes,
        brought.peer_files,
        brought.peer_bytes,
        e.unkept,
        e.trace,
        foreign and isinstance(task.action, Call),
    )


def task_reused(at: float, task: Task, key: str, found: PastFound) -> TaskEnded:
    return TaskEnded(
        at,
        task.name,
        "reused",
        outputs=found.outputs,
        result=found.result,
        stdout=found.stdout,
        stderr=found.stderr,
        from_run=found.run,
        key=key,
        foreign=found.foreign,
    )


def _remembered_kind(task: Task) -> str:
    """The kind to remember a duration by; '' for a pretended task's, which means nothing."""
    return "" if isinstance(task.action, Pause) else task.kind_name


def peer_joined(
    at: float, peer: PeerName, capacity: Capacity, site: str = "", node: Node = NO_NODE
) -> PeerJoined:
    tags = {tag: -1 if count is None else count for tag, count in capacity.tags.items()}
    return PeerJoined(
        at,
        peer,
        capacity.cores,
        capacity.memory_bytes,
        capacity.disk_bytes,
        capacity.gpus,
        tags,
        site,
        node,
    )


def task_beaten(at: float, task: str, attempt: int, peer: PeerName) -> TaskEnded:
    """Another attempt of the task was done first: this one is stopped, its result not wanted."""
    reason = "another attempt was done first"
    return TaskEnded(at, task, "cancelled", attempt, peer, reason=reason)
