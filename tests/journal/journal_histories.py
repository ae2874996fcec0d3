"""Runs for the tests: a few lines to start one, and random legal histories of one."""

from __future__ import annotations

from hypothesis import strategies as st

from sureline.journal.events import (
    AnyEvent,
    CancelAsked,
    FileFetched,
    Opened,
    PeerJoined,
    PeerLeft,
    RunEnded,
    Submitted,
    TaskBound,
    TaskEnded,
    TaskProgressed,
    TaskReady,
    TaskRetried,
    TaskRevoked,
    TaskStarted,
)
from sureline.journal.store import Journal
from sureline.journal.writer import RunWriter
from sureline.workflow.files import FileRecord

GRAPH = b"a graph"
History = list[list[AnyEvent]]
"""What each process that had the run recorded after its Opened."""


def new_run(journal: Journal, name: str = "demo", total: int = 3) -> str:
    return journal.create_run(
        name, GRAPH, lambda run: Submitted(100.0, run, name, total, "demo.yaml")
    )


def take(journal: Journal, run: str, at: float = 101.0) -> RunWriter:
    return journal.take(run, lambda epoch: Opened(at, epoch, "host", 7, "boot"))


def succeeded(task: str, key: str = "", at: float = 110.0) -> TaskEnded:
    made = FileRecord(f"{task}.out", "d" * 64, 5, 12)
    return TaskEnded(at, task, "succeeded", 1, "here", 0, outputs=(made,), key=key)


_names = st.sampled_from(["a", "b:01", "zebra"])
_texts = st.text(max_size=20)
_numbers = st.integers(0, 5)
_files = st.builds(
    FileRecord, _texts, _texts, st.integers(0, 2**50), st.integers(0, 2**60), st.booleans()
)


@st.composite
def _ends(draw: st.DrawFn, at: float, task: str, committed: bool) -> TaskEnded:
    outcomes = ["failed", "timeout", "cancelled", "lost"]
    if not committed:
        outcomes += ["succeeded", "reused"]
    return TaskEnded(
        at,
        task,
        draw(st.sampled_from(outcomes)),
        draw(_numbers),
        exit_code=draw(st.none() | st.integers(0, 255)),
        reason=draw(_texts),
        outputs=tuple(draw(st.lists(_files, max_size=2))),
        result=draw(st.none() | st.binary(max_size=10)),
        stdout=draw(_texts),
        key=draw(st.sampled_from(["", "k1", "k2"])),
    )


@st.composite
def _steps(draw: st.DrawFn, at: float, committed: frozenset[str]) -> AnyEvent:
    task = draw(_names)
    kind = draw(st.integers(0, 10))
    if kind <= 3:
        return draw(_ends(at, task, task in committed))
    if kind == 4:
        return TaskReady(at, task)
    if kind == 5:
        return TaskBound(at, task, draw(_numbers), "here")
    if kind == 6:
        return TaskStarted(at, task, draw(_numbers), "here", 99)
    if kind == 7:
        return TaskProgressed(at, task, draw(_numbers), draw(st.floats(0, 1)))
    if kind == 8:
        return TaskRetried(at, task, draw(_numbers), 0.5, draw(_texts))
    if kind == 9:
        return TaskRevoked(at, task, "its files are gone")
    return draw(
        st.sampled_from(
            [
                PeerJoined(at, "here", 2, 10**9),
                PeerLeft(at, "here"),
                CancelAsked(at, True, "told so"),
                FileFetched(at, FileRecord("big", "d", 3)),
            ]
        )
    )


@st.composite
def histories(draw: st.DrawFn) -> History:
    """One to three processes in turn; each is killed, or ends the run in some state."""
    at = 200.0
    committed: set[str] = set()
    sessions: History = []
    for _ in range(draw(st.integers(1, 3))):
        session: list[AnyEvent] = []
        for _ in range(draw(st.integers(0, 12))):
            at += draw(st.sampled_from([0.0, 0.25, 3.0, -0.5]))
            event = draw(_steps(at, frozenset(committed)))
            if isinstance(event, TaskEnded) and event.outcome in ("succeeded", "reused"):
                committed.add(event.task)
            elif isinstance(event, TaskRevoked):
                committed.discard(event.task)
            session.append(event)
        if draw(st.booleans()):
            states = st.sampled_from(["succeeded", "failed", "cancelled", "interrupted"])
            session.append(RunEnded(at, draw(states)))
        sessions.append(session)
    return sessions


def write(journal: Journal, history: History) -> tuple[str, list[AnyEvent]]:
    """Record the history as a new run; returns its name and all its events."""
    run = new_run(journal)
    events: list[AnyEvent] = [Submitted(100.0, run, "demo", 3, "demo.yaml")]
    for session in history:
        writer = take(journal, run)
        events.append(Opened(101.0, writer.epoch, "host", 7, "boot"))
        for number, event in enumerate(session):
            writer.record(event)
            if number % 5 == 4:
                writer.flush()
        writer.flush()
        events += session
    return run, events
