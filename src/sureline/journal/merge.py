"""Merging events that were recorded elsewhere into a journal: idempotent, in any order."""

from __future__ import annotations

import sqlite3
import zlib
from collections.abc import Iterable, Iterator, Sequence

from sureline.journal.events import (
    COMMITS,
    AnyEvent,
    Submitted,
    TaskEnded,
    TaskRevoked,
    decode,
    encode,
    task_of,
)
from sureline.journal.history import INSERT_DURATION, duration_row
from sureline.journal.schema import POSITIONS_PER_EPOCH
from sureline.journal.views import RunView
from sureline.workflow.mistakes import UserError
from sureline.world.identity.signing import is_run_name


def merge_run(
    connection: sqlite3.Connection, run: str, graph: bytes, events: Iterable[tuple[int, AnyEvent]]
) -> None:
    """Add what is new. Call it inside a transaction: it raises UserError on a contradiction."""
    if not is_run_name(run):
        raise UserError(f"{run!r} can be no run's name; it was made up")
    run_id = _run_id(connection, run, graph)
    for position, event in events:
        _add(connection, run, run_id, position, event)
    _commit(connection, run_id)
    _summarise(connection, run, run_id)


def adopt_run(
    connection: sqlite3.Connection, run: str, graph: bytes, events: Sequence[tuple[int, AnyEvent]]
) -> None:
    """As `merge_run`, but what is here and not among these, from the first difference on, never
    happened: it goes."""
    run_id = _run_id(connection, run, graph)
    told = {position: encode(event) for position, event in events}
    rows = connection.execute(
        "SELECT position, body FROM events WHERE run = ? ORDER BY position", (run_id,)
    )
    first = next((at for at, body in rows if told.get(at) != body), None)
    if first is not None:
        for table in ("events", "results", "durations", "commits"):
            connection.execute(
                f"DELETE FROM {table} WHERE run = ? AND position >= ?", (run_id, first)
            )
    merge_run(connection, run, graph, events)


def _run_id(connection: sqlite3.Connection, run: str, graph: bytes) -> int:
    found = connection.execute("SELECT id FROM runs WHERE run = ?", (run,)).fetchone()
    if found is None:
        cursor = connection.execute(
            "INSERT INTO runs (run, name, state, epoch, sequence, created, total)"
            " VALUES (?, '', 'submitted', 0, 0, 0, 0)",
            (run,),
        )
        run_id = int(cursor.lastrowid or 0)
        connection.execute("INSERT INTO graphs VALUES (?, ?)", (run_id, zlib.compress(graph, 1)))
        return run_id
    run_id = int(found[0])
    (body,) = connection.execute("SELECT body FROM graphs WHERE run = ?", (run_id,)).fetchone()
    if zlib.decompress(body) != graph:
        raise UserError(f"another run is called {run} here; its graph differs")
    return run_id


def _add(
    connection: sqlite3.Connection, run: str, run_id: int, position: int, event: AnyEvent
) -> None:
    if isinstance(event, Submitted) and event.run != run:
        raise UserError(f"the events of run {run} are those of {event.run!r}; it was made up")
    body = encode(event)
    known = connection.execute(
        "SELECT body FROM events WHERE run = ? AND position = ?", (run_id, position)
    ).fetchone()
    if known is not None:
        if known[0] != body:
            number = position % POSITIONS_PER_EPOCH
            raise UserError(f"event {number} of run {run} differs from the one recorded here")
        return
    task = task_of(event)
    connection.execute("INSERT INTO events VALUES (?, ?, ?, ?)", (run_id, position, task, body))
    if isinstance(event, TaskEnded) and event.kind and event.outcome == "succeeded":
        connection.execute(INSERT_DURATION, duration_row(event, run_id, position))


def _commit(connection: sqlite3.Connection, run_id: int) -> None:
    """Make the commits anew: only the events in their order tell which results were revoked.

    A revocation may be among the events still to come: until then, the first result stands.
    """
    commits: dict[str, int] = {}
    for position, event in _events(connection, run_id):
        if isinstance(event, TaskRevoked):
            commits.pop(event.task, None)
        elif isinstance(event, TaskEnded) and event.outcome in COMMITS:
            commits.setdefault(event.task, position)
    connection.execute("DELETE FROM commits WHERE run = ?", (run_id,))
    connection.executemany(
        "INSERT INTO commits VALUES (?, ?, ?)",
        [(run_id, task, position) for task, position in commits.items()],
    )


def _summarise(connection: sqlite3.Connection, run: str, run_id: int) -> None:
    view = RunView.of(event for _, event in _events(connection, run_id))
    if view.submitted_at is None:
        raise UserError(f"the events of run {run} lack its submission; export it whole")
    (last,) = connection.execute(
        "SELECT max(position) FROM events WHERE run = ?", (run_id,)
    ).fetchone()
    counts = view.counts
    connection.execute(
        "UPDATE runs SET name = ?, source = ?, state = ?, epoch = ?, sequence = ?, created = ?,"
        " ended = ?, total = ?, succeeded = ?, reused = ?, failed = ?, cancelled = ? WHERE id = ?",
        (
            view.name,
            view.source,
            view.ended_state or ("running" if view.epoch else "submitted"),
            last // POSITIONS_PER_EPOCH,
            last % POSITIONS_PER_EPOCH,
            view.submitted_at,
            view.ended_at,
            view.total,
            counts.succeeded,
            counts.reused,
            counts.failed,
            counts.cancelled,
            run_id,
        ),
    )


def _events(connection: sqlite3.Connection, run_id: int) -> Iterator[tuple[int, AnyEvent]]:
    query = "SELECT position, body FROM events WHERE run = ? ORDER BY position"
    rows = connection.execute(query, (run_id,))
    return ((position, decode(body)) for position, body in rows)
