"""The half beside a run's writer: what is ready goes to the queue, and advice comes back.

Ready tasks are told to the queue, many at once, with all that pilots need to judge them; those that
are bound or done are told as gone. A round's advice names a pilot for a task, and this half binds
it there, or enqueues the task anew without that pilot.

The queue is a convenience, not a must: when it has been silent for SILENT_S, or a task found
nobody for STUCK_S though there was room, this half binds by itself, to whoever has room and holds
most of the inputs. Pilots go on with what they hold meanwhile: they report to this writer, not to
the queue.

A task that was fetched ahead and waits behind one that lasts, while others are idle, is taken back
and goes through the queue again, once.
"""

from __future__ import annotations

import math
from collections.abc import Container, Iterable, Sequence
from itertools import zip_longest

import msgspec

from sureline.overlay.membership import MembershipSettings
from sureline.peer.capacity import Capacity, Ledger
from sureline.peer.messages import Finished
from sureline.run.port import (
    Action,
    Bound,
    Engine,
    EstimatesFound,
    Noted,
    Over,
    PeerName,
    Seat,
    Target,
    Unknown,
)
from sureline.strategies.advised import BUT_MAX, Advised
from sureline.strategies.latebinding.half import PilotClaim
from sureline.strategies.latebinding.judging import FOR_EVER_S, View, rank_of
from sureline.strategies.latebinding.messages import (
    Advice,
    AskQueue,
    Enqueue,
    Enqueued,
    ListedTask,
    PlacedTask,
    TheQueue,
)
from sureline.strategies.latebinding.sense import TASK_BYTES_MAX, pages
from sureline.strategies.latebinding.settings import (
    BUSY_S,
    CENTRAL,
    FLOOR_PILOTS,
    HOLD_S,
    PAGE,
    SILENT_S,
    STUCK_S,
    LateSettings,
)
from sureline.workflow.files import FileRecord
from sureline.workflow.model import Needs
from sureline.world.address import at, name_of, node_of
from sureline.world.agent import handles
from sureline.world.protocol import AgentId, Timer

PART = "latebinding"
TICK_S = 1.0
LIFE_S = 8.0
"""A sign of life to the queue, answered. What is bound or done is told with it, or before it with
what has become ready: nobody waits for that."""
AGAIN_S = 3.0
AGAIN_S_MAX = 60.0
"""What is not answered is said again after a pause that doubles: the queue may be busy."""
LOOK_S = 5.0
"""So often a run looks whether the queue is elsewhere by now."""
SURE = 0.95
"""The share of its kind that a task's promised duration covers."""
INPUTS_MAX = 200
"""Of one task that are told, in half of the bytes that a task may have; one with more is ranked by
the largest."""
RECORD_BYTES = 90
"""Of an input, beside its path."""
HOLDERS_MAX = 3
READS_FROM_S = 2.0
READS_SHARE = 0.4
"""A kind whose tasks use less than this share of their time, of at least so many seconds, for
calculating waits for files."""
ADVICE_MAX = 1000
"""That is weighed at one time."""
NOTHING = Needs(cores=0)
GENERATIONS = 1_000_000
"""Of the tasks of one writer; those of another one follow."""
DEALT_MAX = 64
"""Tasks that are bound without the queue, or taken back, at one time."""
BACK_S = 5.0
"""So long nothing must have begun or ended where tasks are taken back, and where they could go."""


class QueueEntry(Advised):
    def __init__(self, seat: Seat) -> None:
        super().__init__(seat)
        self._settings: LateSettings = seat.settings
        self._out: dict[int, float] = {}
        """Tasks that wait for advice, since when."""
        self._fresh: dict[int, None] = {}
        """To be told to the queue."""
        self._gone: dict[int, None] = {}
        self._generations: dict[int, int] = {}
        self._taken_back: set[int] = set()
        self._quiet_s: dict[PeerName, float] = {}
        """Since when nothing of this run has begun or ended on each target, nor others' been seen
        there."""
        self._busy: dict[PeerName, bool] = {}
        self._takes_s: list[float] = []
        self._used: dict[str, list[float]] = {}
        """By kind: seconds of calculating, and of all."""
        self._advice: list[Advice] = []
        self._held: dict[int, tuple[float, Advice, PlacedTask]] = {}
        """By task, the first advice that waits until its pilot takes part, since when: in a large
        grid not all are asked at once."""
        self._queue: AgentId | None = None
        self._gate: AgentId | None = None
        """Who was asked where it is."""
        self._rumour: AgentId | None = None
        """Where somebody has said that the queue is now."""
        self._looked_s = 0.0
        self._memory = 0
        self._priority = self._settings.priority
        self._number = 0
        self._unanswered: dict[int, tuple[float, float, Enqueue]] = {}
        """By number: when it is said again, after which pause, and what."""
        self._answered_s = self._said_s = 0.0
        self._telling: Timer | None = None
        self._alone = False

    # -- beginning -------------------------------------------------------------------------------

    def begin(self, engine: Engine, past: Sequence[Noted | Unknown], go: Action) -> None:
        self._engine = engine
        self._answered_s = self.world.elapsed()

        def estimated(found: EstimatesFound) -> None:
            self._takes_s = [0.0 if e.guessed else e.quantile_s(SURE) for e in found.tasks]
            self._begun = True
            self._look_for_queue()  # an answer that came before was not heard
            go()

        engine.estimates(estimated)
        self.world.after(TICK_S, self._tick)

    def grown(self, tasks: range) -> None:
        for task in tasks:
            takes = self._engine.graph.tasks[task].takes
            self._takes_s.append(0.0 if takes is None else takes.pessimistic_s)

    # -- targets ---------------------------------------------------------------------------------

    def target(self, target: Target) -> None:
        super().target(target)
        self._quiet_s[target.name] = self.world.elapsed()
        if self._queue is None and self._begun:
            self._look_for_queue()

    def gone(self, target: PeerName) -> None:
        super().gone(target)
        self._quiet_s.pop(target, None)
        self._busy.pop(target, None)

    def load(self, target: PeerName, cores: float) -> None:
        super().load(target, cores)
        was_busy, self._busy[target] = self._busy.get(target, False), cores > 0
        if target in self._quiet_s and (was_busy or cores > 0):
            self._quiet_s[target] = self.world.elapsed()

    # -- what happens ----------------------------------------------------------------------------

    def ready(self, task: int) -> None:
        first = GENERATIONS * self._engine.epoch
        self._generations[task] = self._generations.get(task, first) + 1
        self._out.setdefault(task, self.world.elapsed())
        self._gone.pop(task, None)
        self._fresh[task] = None
        if self._telling is not None and len(self._fresh) == PAGE:  # nothing more to wait for
            self._telling.cancel()
            self._telling = self.world.after(0.0, self._tell)
        elif self._telling is None:
            self._telling = self.world.after(self._settings.bulk_s, self._tell)

    def bound(self, bound: Bound) -> None:
        super().bound(bound)
        self._waits_no_more(bound.task)
        if bound.target in self._books:
            self._quiet_s[bound.target] = self.world.elapsed()

    def _waits_no_more(self, task: int) -> None:
        if self._out.pop(task, None) is None:
            return
        if self._fresh.pop(task, 0) == 0:
            self._gone[task] = None

    def over(self, over: Over) -> None:
        super().over(over)
        bound, task = over.bound, self._engine.graph.tasks[over.bound.task]
        if bound.target in self._books:
            self._quiet_s[bound.target] = self.world.elapsed()
        if isinstance(over.told, Finished) and over.ending == "succeeded":
            used = self._used.setdefault(task.kind_name, [0.0, 0.0])
            used[0] += over.told.ended.cpu_s
            used[1] += over.told.ended.elapsed_s
            self._note_inputs(bound, over.told)

    def _note_inputs(self, bound: Bound, told: Finished) -> None:
        came = told.brought
        if came is None or not (came.here_files or came.peer_files):
            return
        said = (
            f"of its inputs {came.here_files} were there already ({came.here_bytes:,} bytes) and "
            f"{came.peer_files} came from others ({came.peer_bytes:,} bytes)"
        )
        self._engine.note("inputs", said, task=bound.task, attempt=bound.attempt, peer=bound.target)

    def stands(self, task: int, committed: bool) -> None:
        super().stands(task, committed)
        # What is not there any more nobody can read.
        for one in (task,) if committed else self._engine.graph.children[task]:
            self._waits_no_more(one)

    # -- the queue -------------------------------------------------------------------------------

    def _look_for_queue(self) -> None:
        """Ask somebody where it is; it may move, and two have to agree on that."""
        self._looked_s = self.world.elapsed()
        if self._targets:
            names = sorted(self._targets)
            gate = self._targets[self.world.random.choice(names)]
            self._gate = at(node_of(gate.agent), PART)
            self.world.send(self._gate, AskQueue())

    @handles(TheQueue)
    def on_the_queue(self, sender: AgentId, said: TheQueue) -> None:
        if sender != self._gate:
            return
        if said.queue == self._queue:
            self._rumour = None
        elif self._queue is None or said.queue == self._rumour:
            if self._queue is not None:  # the one before has nothing to do with this run any more
                self._say((), (), over=True)
            self._queue, self._memory, self._rumour = said.queue, 0, None
            self._tell_all()
        else:
            self._rumour = said.queue
            self._look_for_queue()

    def _tell_all(self) -> None:
        """To a queue that knows nothing of this run."""
        self._unanswered.clear()
        self._gone.clear()
        self._fresh = dict.fromkeys(self._out)
        self._tell(whole=True)

    def _tell(self, *, whole: bool = False, ready: bool = True) -> None:
        """Pages of what is gone and, if it is time, `ready`; a sign of life if there is nothing."""
        if ready and self._telling is not None:
            self._telling.cancel()
            self._telling = None
        if self._queue is None or self._is_over:
            return
        fresh = [task for task in self._fresh if ready and self._engine.wanted(task)]
        names = self._engine.graph.tasks
        gone = [names[task].name for task in self._gone]
        self._fresh, self._gone = {} if ready else self._fresh, {}
        told = list(zip_longest(pages(map(self._listed, fresh), PAGE), pages(gone, PAGE)))
        for tasks, no_more in told or [((), ())]:
            self._say(tasks or (), no_more or (), whole=whole)
            whole = False

    def _say(
        self, tasks: tuple[ListedTask, ...], gone: tuple[str, ...], *, whole: bool = False,
        over: bool = False,
    ) -> None:  # fmt: skip
        assert self._queue is not None
        self._number += 1
        run, epoch, now = self._engine.run, self._engine.epoch, self.world.elapsed()
        said = Enqueue(run, epoch, self._number, self._priority, tasks, gone, whole, over)
        self._unanswered[self._number] = now + AGAIN_S, AGAIN_S, said
        self._said_s = now
        self.world.send(self._queue, said)

    def _listed(self, task: int) -> ListedTask:
        described = self._engine.graph.tasks[task]
        held = {p: n for p, n in self._engine.held(task).items() if p in self._targets}
        sites: dict[str, int] = {}
        for peer, size in held.items():
            site = self._targets[peer].site
            sites[site] = sites.get(site, 0) + size
        home = max(sorted(sites), key=lambda site: sites[site]) if sites else ""
        holders = sorted(held, key=lambda peer: (-held[peer], peer))[:HOLDERS_MAX]
        but = [*self._but.get(task, ()), *sorted(self._engine.unfit(task))]
        return ListedTask(
            self._engine.run,
            described.name,
            self._generations[task],
            described.needs,
            described.requires,
            described.rank,
            _told_inputs(self._engine.reads(task)),
            self._takes_s[task],
            self._engine.urgency(task),
            home,
            tuple(holders),
            self._waits_for_files(described.kind_name),
            tuple(dict.fromkeys(but[-2 * BUT_MAX :])),
            self._settings.architecture,
            self._settings.assignment == "exact",
            self.me,
        )

    def _waits_for_files(self, kind: str) -> bool:
        calculated_s, all_s = self._used.get(kind, (0.0, 0.0))
        return all_s >= READS_FROM_S and calculated_s < READS_SHARE * all_s

    @handles(Enqueued)
    def on_enqueued(self, sender: AgentId, said: Enqueued) -> None:
        if sender != self._queue:
            return
        self._unanswered.pop(said.number, None)
        self._answered_s = self.world.elapsed()
        if self._alone:
            self._alone = False
            self._engine.tell("the queue answers again")
        began_anew = self._memory not in (0, said.memory)
        self._memory, self._priority = said.memory, said.priority
        if began_anew:
            self._tell_all()

    # -- advice ----------------------------------------------------------------------------------

    @handles(Advice)
    def on_advice(self, sender: AgentId, said: Advice) -> None:
        known = sender == self._queue or self._engine.want(name_of(sender))
        if said.run == self._engine.run and known and len(self._advice) < ADVICE_MAX:
            self._advice.append(said)
            self._engine.wake()

    def decide(self) -> None:
        if not (self._advice or self._held):
            return
        advice, self._advice = self._advice, []
        targets, late_s = self._engine.targets(), self.world.elapsed() - HOLD_S
        for said in advice:
            for placement in said.placements:
                self._weigh(targets, said, placement)
        for task, (since_s, said, placement) in list(self._held.items()):
            if placement.pilot in targets or since_s < late_s:
                del self._held[task]
                self._weigh(targets, said, placement, waits=False)

    def _weigh(
        self, targets: Container[PeerName], said: Advice, placed: PlacedTask, *, waits: bool = True
    ) -> None:
        """Bind it as advised, if it may be, as soon as the pilot takes part."""
        engine = self._engine
        task = engine.graph.index.get(placed.task)
        if task is not None and task not in self._out:
            self._gone[task] = None  # whoever gives it out does not know that
        if task not in self._out or self._generations[task] != placed.generation:
            return
        if not engine.wanted(task):
            return
        attempt = 0
        if placed.pilot in targets:
            attempt = engine.bind(task, placed.pilot, self._claim(task))
            if attempt:
                engine.note(
                    "placed", _in_words(said, placed), task=task, attempt=attempt, peer=placed.pilot
                )
        elif waits and engine.want(placed.pilot):
            self._held.setdefault(task, (self.world.elapsed(), said, placed))
            return
        else:
            self._avoid(task, placed.pilot)
        if not attempt and task in self._out and engine.wanted(task):
            self.ready(task)

    def _claim(self, task: int) -> bytes:
        kind = self._engine.graph.tasks[task].kind_name
        reports = self._settings.architecture != "event"
        claim = PilotClaim(self._takes_s[task], self._waits_for_files(kind), reports)
        return msgspec.msgpack.encode(claim)

    # -- silence ---------------------------------------------------------------------------------

    def _tick(self) -> None:
        if self._is_over:
            return
        self.world.after(TICK_S, self._tick)
        now = self.world.elapsed()
        silent_s = now - self._answered_s
        wait_s = LOOK_S if self._queue is not None and silent_s < 2 * LIFE_S else TICK_S
        if now - self._looked_s >= wait_s:
            self._look_for_queue()
        if self._queue is not None and now - self._said_s > LIFE_S:
            self._tell(ready=self._telling is None)
        for number, (due_s, pause_s, said) in list(self._unanswered.items()):
            if now < due_s or self._queue is None:
                continue
            if said.tasks or said.gone or said.whole:
                longer_s = min(2 * pause_s, AGAIN_S_MAX)
                self._unanswered[number] = now + longer_s, longer_s, said
                self.world.send(self._queue, said)
            else:  # another sign of life does as well
                del self._unanswered[number]
                self._tell(ready=self._telling is None)
        if self._held:
            self._engine.wake()
        self._by_itself(now, silent=silent_s > self._patience_s)
        if not self._out and self._settings.architecture == "event":
            self._take_back(now - BACK_S)

    def _take_back(self, since_s: float) -> None:
        """Have those who are idle share what waits elsewhere, the last of it first."""
        idle = self._roomy(since_s)
        if not idle:
            return
        waiting = [
            bound
            for bound in self._engine.attempts()
            if not (bound.started or bound.withdrawn or bound.task in self._taken_back)
            and bound.task in self._generations  # else its inputs may not be known
            and self._quiet_s.get(bound.target, math.inf) <= since_s
            and bound.target not in idle
        ]
        sharing = len(idle) + len({bound.target for bound in waiting})
        most = min(DEALT_MAX, math.ceil(len(waiting) * len(idle) / sharing))
        for bound in waiting[len(waiting) - most :]:
            if self._best_of(idle, bound.task) is not None:
                self._taken_back.add(bound.task)
                self._engine.withdraw(bound.task, bound.attempt)

    @property
    def _patience_s(self) -> float:
        """A queue that matches by itself may be busy for long, and one of many pilots longer than
        one of few."""
        if self._settings.architecture in CENTRAL:
            return BUSY_S
        return SILENT_S * (1 + len(self._targets) / FLOOR_PILOTS / 2)

    def _by_itself(self, now: float, *, silent: bool) -> None:
        """Bind what the queue does not see to."""
        if silent and not self._alone and self._out and self._targets:
            self._alone = True
            self._engine.tell("no queue answers; tasks are placed without it")
        wait_s = self._patience_s if silent else max(STUCK_S, self._patience_s)
        late = [task for task, since_s in self._out.items() if now - since_s > wait_s]
        # A queue that answers is not gone around because of news that has not come yet. The paper's
        # tasks are, as ever: they stay at their site, which may have no place for them for long.
        trusts = not silent and self._settings.architecture == "event"
        news_s = MembershipSettings().report_s(len(self._targets)) if trusts else 0.0
        roomy = self._roomy(now - wait_s - news_s) if late else []
        late.sort(key=lambda task: (-self._engine.urgency(task), task))
        for task in late[:DEALT_MAX] if roomy else ():
            target = self._best_of(roomy, task) if self._engine.wanted(task) else None
            if target is not None:
                attempt = self._engine.bind(task, target, self._claim(task))
                if attempt:
                    self._engine.note(
                        "placed",
                        "no round placed it in time; its run did, by itself",
                        task=task,
                        attempt=attempt,
                        peer=target,
                    )
        if late:
            self._engine.wake()

    def _roomy(self, since_s: float) -> list[PeerName]:
        """Those that had room all the time since then."""
        return [
            name
            for name, quiet_s in self._quiet_s.items()
            if quiet_s <= since_s and (self._books.fits_on(name, NOTHING) or 0.0) < 1
        ]

    def _best_of(self, roomy: Sequence[PeerName], task: int) -> PeerName | None:
        """Of these, one that meets the task's requirement and holds most of its inputs."""
        listed, held = self._listed(task), self._engine.held(task)
        best: tuple[int, float, PeerName] | None = None
        for name in roomy:
            load = self._books.fits_on(name, listed.needs)
            if load is None or load >= 1:
                continue
            if rank_of(listed, _view(self._targets[name], self.world.now())) is None:
                continue
            order = (-held.get(name, 0), load, name)
            if best is None or order < best:
                best = order
        return None if best is None else best[2]

    def end(self) -> None:
        super().end()
        if self._queue is not None:
            self._say((), (), over=True)


def _view(target: Target, now: float) -> View:
    """A target as its offer describes it; what is free there the books know."""
    capacity: Capacity = target.capacity
    ends_at = target.extras.get("ends_at")
    lifetime_s = float(ends_at) - now if isinstance(ends_at, float | int) else FOR_EVER_S
    return View(target.name, target.site, Ledger(capacity), capacity, lifetime_s, frozenset())


def _told_inputs(reads: Iterable[FileRecord]) -> tuple[tuple[str, str, int], ...]:
    """The largest."""
    told: list[tuple[str, str, int]] = []
    left = TASK_BYTES_MAX // 2
    for file in sorted(reads, key=lambda file: -file.size)[:INPUTS_MAX]:
        left -= len(file.path.encode(errors="surrogateescape")) + RECORD_BYTES
        if left >= 0:
            told.append((file.path, file.digest, file.size))
    return tuple(told)


def _in_words(said: Advice, placed: PlacedTask) -> str:
    if said.site or said.pilots > 1:
        others = f"round {said.number}{f' of site {said.site}' if said.site else ''}"
        others += f", {said.pilots} pilot{'s' if said.pilots != 1 else ''}"
    else:
        others = f"match {said.number} of the queue"
    best = f"rank {placed.rank:,.6g}"
    rival = f"; best rival {placed.rival} with {placed.rival_rank:,.6g}" if placed.rival else ""
    held = ""
    if placed.size_bytes and placed.held_bytes >= 0:
        held = f"; it held {placed.held_bytes:,} of {placed.size_bytes:,} bytes of its inputs"
    ahead = "; fetched ahead" if placed.ahead else ""
    return f"{others}: {best}{rival}{held}{ahead}"
