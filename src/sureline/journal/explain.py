"""Why a task is where it is: why it waits, why it ran when it did, why again, why not at all.

Pure: a graph and a run's events go in, an `Explanation` comes out. What the engine decided is told
from what it recorded, so it can be asked during a run, after it, and of a run long past.
"""

from __future__ import annotations

import time
from collections.abc import Iterable

import msgspec

from sureline.journal.events import Event
from sureline.journal.explain_case import AttemptTold, Case
from sureline.journal.explain_needs import Shortage
from sureline.journal.explain_reuse import Difference, Made, changes
from sureline.journal.explain_waits import (
    Ahead,
    Blocker,
    WaitsFor,
    ahead_of,
    blockers,
    waits_for,
    waits_in_words,
)
from sureline.journal.story import in_words
from sureline.journal.words import counted, duration, listed
from sureline.workflow.model import Call, Graph, Pause

WORTH_TELLING_S = 0.1
"""Shorter waits need no reason."""
CHAINS_TOLD = 3


class NotReused(msgspec.Struct, frozen=True):
    """The newest earlier run of the same workflow that has a result of the task, and what has
    changed since; nothing changed means that its stored files were gone."""

    run: str
    changes: list[Difference]


class Explanation(msgspec.Struct):
    """What is known about one task, as data and in sentences. Times (`..._at`) are seconds since
    the epoch; 'explain --json' prints them as ISO 8601 under the name without `_at`.

    `sentences` say all of it, the most important first.
    `state` is the task's state; in a run that is over, what never ran is `cancelled`.
    `waits_for`: the tasks it waits for directly and that have no result, with the inputs they make.
    `blocked_by`: where the chains of waiting end: tasks that run, are about to, or failed; each
    with `chain`, the way from the explained task to it.
    `short_of`: resources it is ready for but of which not enough is free.
    `ahead`: how many ready tasks are more urgent, and the urgencies; null unless it is ready.
    `waited_s`: from being ready to its latest start; `waited_for`: what it was short of then.
    `not_reused`: why an earlier result was not taken; null if there was none, or it was.
    """

    run: str
    task: str
    state: str
    sentences: list[str] = []
    waits_for: list[WaitsFor] = []
    blocked_by: list[Blocker] = []
    short_of: list[Shortage] = []
    ahead: Ahead | None = None
    ready_at: float | None = None
    started_at: float | None = None
    ended_at: float | None = None
    waited_s: float | None = None
    waited_for: list[Shortage] = []
    attempts: list[AttemptTold] = []
    from_run: str | None = None
    not_reused: NotReused | None = None


def explain(
    graph: Graph,
    task: str,
    events: Iterable[Event],
    *,
    now: float,
    alive: bool,
    earlier: Made | None = None,
) -> Explanation:
    """Explain one task of the graph. `alive` says whether a process drives the run just now;
    `earlier` is what the newest earlier result of this task was made of, if there is one."""
    case = Case(graph, task, events)
    return _Telling(case, now, alive, earlier).told()


class _Telling:
    """Turns a case into sentences. One method per state."""

    def __init__(self, case: Case, now: float, alive: bool, earlier: Made | None) -> None:
        self.case = case
        self.now = now
        self.earlier = earlier
        self.view = case.view
        self.run_state = case.view.state(alive)
        self.one = case.view.tasks[case.task]
        self.e = Explanation(self.view.run, case.task, self._states()[case.task])

    def told(self) -> Explanation:
        e, case = self.e, self.case
        e.ready_at, e.attempts = case.ready_at, case.attempts
        e.started_at, e.ended_at = self.one.started_at, self.one.ended_at
        e.from_run = self.one.from_run or None
        tell = {
            "waiting": self._waiting,
            "ready": self._ready,
            "bound": self._bound,
            "running": self._running,
            "retrying": self._retrying,
            "succeeded": self._succeeded,
            "reused": self._reused,
            "failed": self._failed,
            "cancelled": self._cancelled,
        }[e.state]
        tell()
        for repair in case.repairs:
            sentence = in_words(repair)
            self._say(f"{sentence[0].upper()}{sentence[1:]}.")
        for note in case.notes.values():
            self._say(f"{note.strategy}: {note.said}.")
        if case.revoked:
            self._say(f"An earlier result of it in this run was given up: {case.revoked}.")
        return e

    def _say(self, sentence: str) -> None:
        self.e.sentences.append(sentence)

    # -- not yet ---------------------------------------------------------------------------------

    def _driven(self) -> bool:
        """Whether anything can happen to it just now; says why if not."""
        if self.run_state == "interrupted":
            self._say(
                f"{self.case.task} is {self.e.state}, but no process drives the run any more; "
                f"continue it with: sureline resume {self.view.run}."
            )
            return False
        if self.view.cancelling:
            why = f" ({self.view.reason})" if self.view.reason else ""
            self._say(f"{self.case.task} will not start: the run is being stopped{why}.")
            return False
        return True

    def _waiting(self) -> None:
        driven = self._driven()
        self._tell_waits()
        if not self.e.waits_for and driven:
            self._say(f"{self.case.task} waits for nobody and is about to become ready.")

    def _tell_waits(self) -> None:
        graph, task, states = self.case.graph, self.case.task, self._states()
        over = self.view.ended_state is not None
        e = self.e
        e.waits_for = waits_for(graph, task, states)
        e.blocked_by = blockers(graph, task, states, self.view)
        for sentence in waits_in_words(task, e.waits_for, over):
            self._say(sentence)
        direct = {wait.task for wait in e.waits_for}
        for blocker in [b for b in e.blocked_by if b.task not in direct][:CHAINS_TOLD]:
            self._say(blocker.words)
        failed = [b for b in e.blocked_by if b.state == "failed"]
        if failed:
            reason = f": {failed[0].reason}" if failed[0].reason else ""
            will = "did not run" if over else "will not run"
            self._say(f"It {will}, because {failed[0].task} failed{reason}.")

    def _states(self) -> dict[str, str]:
        """Of all tasks; in a run that is over, what has not ended never will."""
        states: dict[str, str] = {name: one.state for name, one in self.view.tasks.items()}
        if self.view.ended_state is not None:
            for name, state in states.items():
                if state not in ("succeeded", "reused", "failed"):
                    states[name] = "cancelled"
        return states

    def _ready(self) -> None:
        case, e = self.case, self.e
        if not self._driven():
            return
        since = self.now - (case.ready_at or self.now)
        self._say(f"{case.task} has been ready for {duration(max(0.0, since))}.")
        if not case.books.machines:
            self._say("No peer is here to run it: it waits for one to join.")
            self._say_who_is_aside()
            return
        e.short_of = case.books.short(case.task)
        for shortage in e.short_of:
            self._say(f"It needs {shortage.words}.")
        self._say_who_is_aside()
        e.ahead = ahead_of(case.graph, case.task, self._states())
        if e.ahead.tasks:
            self._say(e.ahead.words)
        if not e.short_of and not e.ahead.tasks:
            self._say(
                "The machine has room for it: its inputs are being read, or an earlier result "
                "is being looked for."
            )

    def _say_who_is_aside(self) -> None:
        for left in self.view.aside.values():
            self._say(f"{left.peer} is there, and set aside: {left.reason}.")

    def _bound(self) -> None:
        if self._driven():
            self._say(f"{self.case.task} is about to start on {self.one.peer}.")
        self._tell_when()

    def _retrying(self) -> None:
        last = self.case.attempts[-1] if self.case.attempts else None
        if self._driven():
            left_s = 0.0
            if last is not None and last.delay_s is not None and last.ended_at is not None:
                left_s = max(0.0, last.ended_at + last.delay_s - self.now)
            when = f"in {duration(left_s)}" if left_s else "as soon as the machine has room"
            self._say(f"{self.case.task} will be tried again {when}.")
        self._tell_attempts()

    # -- now, or over ------------------------------------------------------------------------------

    def _running(self) -> None:
        since = self.now - (self.one.started_at or self.now)
        if self.run_state == "interrupted":
            self._driven()
        else:
            self._say(
                f"{self.case.task} has been running on {self.one.peer} for "
                f"{duration(max(0.0, since))}."
            )
        self._tell_attempts()
        self._tell_when()
        self._tell_not_reused()

    def _succeeded(self) -> None:
        case, one = self.case, self.one
        self._say(f"{case.task} succeeded on {one.peer}; it took {duration(one.elapsed_s)}.")
        if (
            case.taken_over_at
            and one.ended_at is not None
            and one.ended_at < case.taken_over_at[-1]
        ):
            self._say("That was before the run was resumed; its result was kept.")
        self._tell_attempts()
        self._tell_when()
        self._tell_not_reused()

    def _reused(self) -> None:
        self._say(
            f"{self.case.task} did not run: its result of run {self.one.from_run} was reused, "
            "since its command, inputs, env and outputs are the same as there."
        )

    def _failed(self) -> None:
        case = self.case
        tries = len([a for a in case.attempts if a.outcome not in ("", "cancelled")])
        ended = case.ended
        reason = f": {ended.reason}" if ended is not None and ended.reason else ""
        self._say(f"{case.task} failed{reason}.")
        if not tries:
            self._say("It never started.")
        else:
            retries = case.described.retries
            allowed = f"'retries: {retries}' allows no more" if retries else "it has no 'retries:'"
            self._say(f"It is not tried again: {allowed}.")
        self._tell_attempts()
        self._tell_when()
        if ended is not None and ended.trace:
            self._say(f"It raised {ended.trace.strip()}")
        self._say(f"What it wrote: sureline logs {self.view.run} {case.task}.")

    def _cancelled(self) -> None:
        case, view = self.case, self.view
        stopped = [a for a in case.attempts if a.outcome == "cancelled"]
        why = f" ({view.reason})" if view.reason else ""
        if stopped and stopped[-1] is case.attempts[-1]:
            ran = f" after {duration(stopped[-1].elapsed_s)}" if stopped[-1].elapsed_s else ""
            self._say(f"{case.task} was stopped{ran}, because the run was stopped{why}.")
            return
        self._tell_waits()
        if not [b for b in self.e.blocked_by if b.state == "failed"]:
            began = "was ready but did not start" if case.ready_at is not None else "did not run"
            self._say(f"{case.task} {began}, because the run ended before{why}.")
        self._say(f"To run what is left: sureline resume {view.run}.")

    # -- parts of the story ------------------------------------------------------------------------

    def _tell_attempts(self) -> None:
        last = self.case.attempts[-1:]
        for one in self.case.attempts:
            if one.outcome in ("", "succeeded") and one in last and one.delay_s is None:
                continue
            given_back = "was given back" if one.delay_s is not None else ""
            end = one.outcome or given_back or "was lost with the process that drove the run"
            reason = f": {one.reason}" if one.reason else ""
            again = "" if one.delay_s is None else f"; tried again {duration(one.delay_s)} later"
            self._say(f"Attempt {one.attempt} {_did(end)}{reason}{again}.")

    def _tell_when(self) -> None:
        """When it was ready and what it waited for, if it waited; of the first attempt."""
        case, e = self.case, self.e
        if case.ready_at is None:
            return
        first = next((a for a in case.attempts if a.bound_at >= case.ready_at), None)
        cause = f", when {case.last_parent} was done" if case.last_parent else ""
        ready = f"It was ready at {_clock(case.ready_at)}{cause}"
        if first is None:
            self._say(f"{ready}.")
            return
        started_at = first.started_at or first.bound_at
        e.waited_s = max(0.0, started_at - case.ready_at)
        if e.waited_s < WORTH_TELLING_S:
            self._say(f"{ready}, and started at once.")
            return
        e.waited_for = case.waited_for
        why = self._waited_for(first.bound_at - case.ready_at)
        self._say(f"{ready}, and started {duration(e.waited_s)} later{why}.")

    def _waited_for(self, given_s: float) -> str:
        case = self.case
        if given_s < WORTH_TELLING_S:
            return ": its files and its process were made ready"
        parts = [f"it needed {shortage.words_then}" for shortage in case.waited_for]
        if case.overtaken:
            parts.append(
                f"{counted(len(case.overtaken), 'other task')} "
                f"({listed(case.overtaken, 2)}) went first"
            )
        return f": {'; '.join(parts)}" if parts else ": its inputs were read first"

    def _tell_not_reused(self) -> None:
        case = self.case
        self._tell_unkept()
        if self.earlier is None:
            return
        if isinstance(case.described.action, Pause):
            self._say("Pretended tasks are never reused.")
            return
        if case.fresh:
            self._say(
                f"Its result of run {self.earlier.run} was not looked for, because of --fresh."
            )
            self.e.not_reused = NotReused(self.earlier.run, [])
            return
        if self.earlier.unkept:
            self._say(
                f"Its result of run {self.earlier.run} was not reused: {self.earlier.unkept}."
            )
            self.e.not_reused = NotReused(self.earlier.run, [])
            return
        found = changes(self.earlier, case.files.made(self.view.run, case.graph, case.described))
        self.e.not_reused = NotReused(self.earlier.run, found)
        if found:
            told = "; ".join(change.told for change in found[:5])
            more = f"; and {len(found) - 5} more changes" if len(found) > 5 else ""
            self._say(f"Its result of run {self.earlier.run} was not reused: {told}{more}.")
        else:
            self._say(
                f"Nothing has changed since run {self.earlier.run}, but the stored files of that "
                "result were gone or damaged when it was looked for."
            )

    def _tell_unkept(self) -> None:
        """Whether later runs may use its result."""
        action, ended = self.case.described.action, self.case.ended
        why = action.unkept if isinstance(action, Call) else ""
        why = why or (ended.unkept if ended is not None else "")
        if why:
            self._say(f"Its result will not be reused: {why}.")


def _did(outcome: str) -> str:
    return {"timeout": "took too long", "cancelled": "was stopped", "lost": "was lost"}.get(
        outcome, outcome
    )


def _clock(at: float) -> str:
    return time.strftime("%H:%M:%S", time.localtime(at))
