"""`explain` on written histories: a table of what happened, and what must be said about it."""

from __future__ import annotations

from typing import NamedTuple

import pytest
from hypothesis import given
from journal_histories_for_looking import histories_of

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
    TaskReady,
    TaskRetried,
    TaskRevoked,
    TaskStarted,
)
from sureline.journal.explain import Explanation, explain
from sureline.journal.explain_reuse import Made, changes, made_in
from sureline.journal.story import in_words
from sureline.workflow.files import FileRecord
from sureline.workflow.model import Call, Command, Graph, Needs, Takes, Task

NOW = 200.0
GIB = 2**30


def task(name: str, *inputs: str, needs: Needs | None = None, **more: object) -> Task:
    action = Command(f"make {name}")
    return Task(name, action, inputs, (f"{name}.out",), needs=needs or Needs(), **more)  # type: ignore[arg-type] # fields of Task, by name


GRAPH = Graph(
    "demo",
    [
        task("split", "big.txt", retries=1),
        task("count:0", "split.out"),
        task("count:1", "split.out", takes=Takes(50, 60, 70)),
        task("total", "count:0.out", "count:1.out"),
        task("large", needs=Needs(cores=2, memory_bytes=3 * GIB)),
        task("licensed", needs=Needs(cores=0.5, tags=(("matlab", 1),))),
        task("last", "total.out", after=("large",)),
    ],
)
BEGIN: list[AnyEvent] = [
    Submitted(100, "demo-1", "demo", len(GRAPH), "demo.yaml"),
    Opened(100, 1, "vm", 7),
    PeerJoined(100, "vm", 2, 4 * GIB, 10**12, 0, {"matlab": 1, "ssd": -1}),
]


def started(name: str, at: float, attempt: int = 1) -> list[AnyEvent]:
    return [TaskBound(at, name, attempt, "vm"), TaskStarted(at + 0.01, name, attempt, "vm", 9)]


def ended(name: str, at: float, outcome: str = "succeeded", **more: object) -> TaskEnded:
    outputs = (FileRecord(f"{name}.out", f"digest of {name}", 5),) if outcome == "succeeded" else ()
    attempt = more.pop("attempt", 1)
    return TaskEnded(at, name, outcome, attempt, "vm", outputs=outputs, **more)  # type: ignore[arg-type] # fields of TaskEnded, by name


class Row(NamedTuple):
    label: str
    task: str
    events: list[AnyEvent]
    state: str
    says: list[str]
    never: str = "\0"
    alive: bool = True


SPLIT_RUNS = [*BEGIN, TaskReady(101, "split"), *started("split", 102)]
SPLIT_DONE = [*SPLIT_RUNS, ended("split", 110, elapsed_s=8.0)]
FULL = [
    *SPLIT_DONE,
    TaskReady(110, "large"),
    TaskReady(110, "count:0"),
    TaskReady(110, "count:1"),
    *started("count:1", 111),
    *started("count:0", 111),
]
SPLIT_FAILED = [
    *SPLIT_RUNS,
    ended("split", 110, "failed", reason="exit code 3"),
    TaskRetried(110, "split", 1, 1.5, "exit code 3"),
    *started("split", 112, 2),
    ended("split", 113, "failed", reason="exit code 4", attempt=2),
]

ROWS = [
    Row("waits for a file", "count:0", SPLIT_RUNS, "waiting",
        ["count:0 waits for split.out, which split makes; split is running."]),
    Row("follows the chain", "last", SPLIT_RUNS, "waiting",
        ["last waits for total.out, which total makes; total waits itself.",
         "last waits for large, which waits itself.",
         "The chain: last waits for total, which waits for count:0, which waits for split, "
         "which is running."]),
    Row("a parent failed, the run goes on", "total", SPLIT_FAILED, "waiting",
        ["It will not run, because split failed: exit code 4."]),
    Row("a parent failed, the run is over", "total", [*SPLIT_FAILED, RunEnded(120, "failed")],
        "cancelled",
        ["total waited for count:0.out, which count:0 makes; count:0 did not run.",
         "It did not run, because split failed: exit code 4.", "sureline resume demo-1"]),
    Row("short of cores and memory", "large",
        [*FULL], "ready",
        ["large has been ready for", "It needs 2 cores, and 0 of 2 are free (count:1 and count:0 "
         "hold the rest)."], never="of memory"),
    Row("short of memory", "large",
        [*BEGIN, TaskReady(101, "large"), *started("large", 102), TaskReady(103, "large")],
        "ready",
        ["It needs 3.2 GB of memory, and 1.1 GB of 4.3 GB are free (large holds the rest)"]),
    Row("short of a tag", "licensed",
        [*BEGIN, *started("licensed", 102), TaskReady(103, "licensed")],
        "ready", ["It needs 1 of the tag matlab, and 0 of 1 are free"], never="core"),
    Row("others are more urgent", "count:0",
        [*SPLIT_DONE, *started("large", 110), TaskReady(111, "count:0"), TaskReady(111, "count:1")],
        "ready",
        ["1 ready task goes first (count:1): more work waits for them (the longest way to the "
         "end takes 1 min 02 s, from here 3.0 s)."]),
    Row("ready, and there is room", "large", [*BEGIN, TaskReady(101, "large")], "ready",
        ["The machine has room for it"]),
    Row("no peer is there", "large",
        [*BEGIN, TaskReady(101, "large"), PeerLeft(102, "vm", "it does not answer")], "ready",
        ["No peer is here to run it: it waits for one to join."], never="has room"),
    Row("no peer is large enough", "large",
        [*BEGIN, PeerLeft(100.5, "vm"), PeerJoined(100.6, "small", 1, 8_000_000_000),
         PeerJoined(100.7, "tiny", 0.5, 8_000_000_000), TaskReady(101, "large")], "ready",
        ["It needs 2 cores, and no machine here has more than 1."], never="hold"),
    Row("running", "count:0", FULL, "running",
        ["count:0 has been running on vm for 1 min 29 s.",
         "It was ready at", "when split was done, and started 1.0 s later"]),
    Row("ran at once", "split", SPLIT_DONE, "succeeded",
        ["split succeeded on vm; it took 8.0 s.", "and started 1.0 s later"], never="Attempt"),
    Row("waited for a core", "count:0",
        [*SPLIT_DONE, *started("large", 110), TaskReady(110.5, "count:0"), ended("large", 150),
         *started("count:0", 150), ended("count:0", 160)], "succeeded",
        ["started 40 s later: it needed 1 core, and 0 of 2 were free (large held the rest)."]),
    Row("was overtaken", "count:0",
        [*SPLIT_DONE, TaskReady(110, "count:0"), *started("large", 111), ended("large", 150),
         *started("count:0", 150), ended("count:0", 160)], "succeeded",
        ["it needed 1 core, and 0 of 2 were free (large held the rest); "
         "1 other task (large) went first."]),
    Row("will be tried again", "split", SPLIT_FAILED[:8], "retrying",
        ["split will be tried again as soon as", "Attempt 1 failed: exit code 3; tried again 1.5 s "
         "later."]),
    Row("failed for good", "split", SPLIT_FAILED, "failed",
        ["split failed: exit code 4.", "It is not tried again: 'retries: 1' allows no more.",
         "Attempt 1 failed: exit code 3; tried again 1.5 s later.",
         "Attempt 2 failed: exit code 4.", "sureline logs demo-1 split"]),
    Row("could not even start", "split",
        [*BEGIN, TaskReady(101, "split"),
         TaskEnded(102, "split", "failed", reason="there is no file big.txt")], "failed",
        ["split failed: there is no file big.txt.", "It never started."], never="retries"),
    Row("reused", "split", [*BEGIN, TaskReady(101, "split"),
                            TaskEnded(101, "split", "reused", from_run="demo-0")], "reused",
        ["its result of run demo-0 was reused, since its command, inputs, env and outputs are "
         "the same as there."]),
    Row("stopped while running", "split",
        [*SPLIT_RUNS, CancelAsked(103, False, "interrupted"),
         ended("split", 104, "cancelled", elapsed_s=2.0),
         RunEnded(104, "cancelled", "interrupted")],
        "cancelled", ["split was stopped after 2.0 s, because the run was stopped (interrupted)."]),
    Row("ready when the run was cancelled", "count:0",
        [*SPLIT_DONE, TaskReady(110, "count:0"), CancelAsked(111, True, "interrupted"),
         RunEnded(112, "cancelled", "interrupted")], "cancelled",
        ["count:0 was ready but did not start, because the run ended before (interrupted)."]),
    Row("the run is being stopped", "count:0",
        [*SPLIT_RUNS, CancelAsked(103, True, "interrupted")], "waiting",
        ["count:0 will not start: the run is being stopped (interrupted)."]),
    Row("its process is gone", "split", SPLIT_RUNS, "running",
        ["no process drives the run any more; continue it with: sureline resume demo-1."],
        never="has been running", alive=False),
    Row("lost, and tried again after a resume", "split",
        [*SPLIT_RUNS, Opened(150, 2, "vm", 8), BEGIN[2], TaskReady(151, "split"),
         *started("split", 151, 2), ended("split", 160, attempt=2)], "succeeded",
        ["Attempt 1 was lost with the process that drove the run."]),
    Row("kept over a resume", "split", [*SPLIT_DONE, Opened(150, 2, "vm", 8)], "succeeded",
        ["That was before the run was resumed; its result was kept."]),
    Row("revoked", "split",
        [*SPLIT_DONE, Opened(150, 2, "vm", 8),
         TaskRevoked(151, "split", "its stored files are gone"),
         TaskReady(151, "split")], "ready",
        ["An earlier result of it in this run was given up: its stored files are gone."]),
]  # fmt: skip


@pytest.mark.parametrize("row", ROWS, ids=[row.label for row in ROWS])
def test_what_is_said(row: Row) -> None:
    found = explain(GRAPH, row.task, row.events, now=NOW, alive=row.alive)
    told = "\n".join(found.sentences)
    assert found.state == row.state
    for words in row.says:
        assert words in told
    assert row.never not in told


def told_of(name: str, events: list[AnyEvent]) -> Explanation:
    return explain(GRAPH, name, events, now=NOW, alive=True)


def test_the_data_behind_the_sentences() -> None:
    waiting = told_of("last", SPLIT_RUNS)
    assert [(w.task, w.inputs) for w in waiting.waits_for] == [
        ("total", ["total.out"]),
        ("large", []),
    ]
    (split,) = waiting.blocked_by
    assert (split.task, split.state) == ("split", "running")
    assert split.chain == ["last", "total", "count:0", "split"]
    short = told_of("large", FULL).short_of
    assert [(s.resource, s.needs, s.free, s.total) for s in short] == [("cores", 2, 0, 2)]
    assert short[0].held_by == ["count:1", "count:0"]
    ahead = told_of("large", FULL[:-4]).ahead
    assert ahead is not None and (ahead.tasks, ahead.first) == (2, ["count:1", "count:0"])
    tries = told_of("split", SPLIT_FAILED).attempts
    assert [(t.attempt, t.outcome, t.delay_s) for t in tries] == [
        (1, "failed", 1.5),
        (2, "failed", None),
    ]


# -- why it was not reused ------------------------------------------------------------------------

OLD = Task("t", Command("sort a > b"), ("a", "tool"), ("b",), env={"LC": "C", "N": "1"})


def made(one: Task = OLD, run: str = "demo-0", **digests: str) -> Made:
    read = {path: (digests.get(path, "same"), False) for path in one.inputs}
    return Made(run, one, read, {})


def replaced(**fields: object) -> Task:
    values = {name: getattr(OLD, name) for name in OLD.__struct_fields__}
    return Task(**{**values, **fields})


CHANGES = [
    ("nothing", made(), []),
    ("the command", made(replaced(action=Command("sort -r a > b"))),
     [("command", "", "the command changed: 'sort -r a > b' (was 'sort a > b')")]),
    ("a line", made(replaced(action=Command("sort a > b\ntrue"))),
     [("command", "", "the command changed in line 2: 'true' (was '')")]),
    ("an input", made(a="other"), [("input", "a", "the input a has another content")]),
    ("more inputs", made(replaced(inputs=("a", "tool", "c"))),
     [("input", "c", "it reads c now and did not before")]),
    ("fewer inputs", made(replaced(inputs=("a",))), [("input", "tool", "it no longer reads tool")]),
    ("env", made(replaced(env={"LC": "C", "N": "2", "X": "y"})),
     [("env", "N", "env N is '2' (was '1')"), ("env", "X", "env X is 'y' (was not set)")]),
    ("env gone", made(replaced(env={"LC": "C"})), [("env", "N", "env N is no longer set")]),
    ("outputs", made(replaced(outputs=("b", "c"))),
     [("outputs", "", "its outputs changed: c is new")]),
    ("stdin", made(replaced(stdin="a")), [("stdin", "a", "its standard input is a (was empty)")]),
    ("a call", made(replaced(action=Call("f", b""))),
     [("command", "", "it is another sort of task now"),
      ]),
]  # fmt: skip


@pytest.mark.parametrize(("label", "now", "expected"), CHANGES, ids=[row[0] for row in CHANGES])
def test_what_changed(label: str, now: Made, expected: list[tuple[str, str, str]]) -> None:
    assert [(c.what, c.name, c.told) for c in changes(made(), now)] == expected


def test_changes_of_a_call() -> None:
    then = Made("r", Task("t", Call("f1", b"1", ("u",))), {}, {"u": "x"})
    now = Made("r", Task("t", Call("f2", b"2", ("u",))), {}, {"u": "y"})
    assert [c.what for c in changes(then, now)] == ["function", "arguments", "result"]


def test_executable() -> None:
    then, now = made(), made()
    now.inputs["tool"] = ("same", True)
    (change,) = changes(then, now)
    assert change.told == "the input tool is executable now"


def test_not_reused_is_told_of_tasks_that_ran() -> None:
    fetched = FileFetched(101, FileRecord("big.txt", "new", 3))
    was = FileFetched(11, FileRecord("big.txt", "old", 3))
    before: list[AnyEvent] = [was, ended("split", 12)]
    earlier = made_in("demo-0", GRAPH, before, "split")
    assert earlier is not None and earlier.inputs == {"big.txt": ("old", False)}
    found = explain(GRAPH, "split", [*SPLIT_DONE, fetched], now=NOW, alive=True, earlier=earlier)
    assert "Its result of run demo-0 was not reused: the input big.txt has another content." in (
        found.sentences
    )
    same = explain(
        GRAPH,
        "split",
        [*SPLIT_DONE, FileFetched(101, FileRecord("big.txt", "old", 3))],
        now=NOW,
        alive=True,
        earlier=earlier,
    )
    assert "gone or damaged" in same.sentences[-1]
    assert made_in("demo-0", GRAPH, [was], "split") is None, "no result, nothing to compare with"
    waiting = explain(GRAPH, "split", BEGIN, now=NOW, alive=True, earlier=earlier)
    assert waiting.not_reused is None, "too early to say"


def test_fresh_runs_look_for_nothing() -> None:
    began = Submitted(100, "demo-1", "demo", 7, options={"fresh": True})
    earlier = made_in("demo-0", GRAPH, [ended("split", 12)], "split")
    events = [began, *SPLIT_DONE[1:]]
    found = explain(GRAPH, "split", events, now=NOW, alive=True, earlier=earlier)
    assert "because of --fresh" in found.sentences[-1]


# -- laws ------------------------------------------------------------------------------------------


@given(histories_of(["split", "count:0", "total", "large"]))
def test_every_task_of_every_history_can_be_explained(events: list[AnyEvent]) -> None:
    for one in GRAPH.tasks:
        for alive in (True, False):
            found = explain(GRAPH, one.name, [*BEGIN, *events], now=NOW, alive=alive)
            assert found.sentences
            assert all(s[0].isalnum() and s.endswith(".") for s in found.sentences), found
    for event in events:
        if hasattr(event, "task"):
            assert in_words(event)
