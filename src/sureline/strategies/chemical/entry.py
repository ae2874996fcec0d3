"""The half beside a run's writer: where a workflow enters the ring, and where advice arrives.

Each task that is ready is put into the ring as a molecule, the first by the order first, through
any node. Its holder finds a resource and says so; that is advice, and this half binds. With
barriers the workflow is taken apart into levels at the outset, these are put into the ring, and
their holders make tasks of them, level by level.

The ring may lose a molecule, and a holder may be silent. So whatever has not been heard of for
SILENT_S is put in anew, under another key; a task that is advised twice is bound once.
"""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heappop, heappush
from math import isfinite

import msgspec

from sureline.chemistry import Molecule, Solution, show
from sureline.run.port import (
    Action,
    Bound,
    Engine,
    EstimatesFound,
    Noted,
    PeerName,
    Seat,
    State,
    Target,
    Unknown,
)
from sureline.strategies.advised import Advised
from sureline.strategies.chemical.holder import PART
from sureline.strategies.chemical.messages import (
    Answered,
    Deploy,
    Done,
    Enter,
    Entered,
    Envelope,
    Seeks,
    Tending,
    id_of,
)
from sureline.strategies.chemical.molecules import (
    level_key,
    ready_molecule,
    task_key,
    task_molecule,
    without_dests,
)
from sureline.strategies.chemical.rulebook import book_of
from sureline.strategies.chemical.settings import ChemicalSettings
from sureline.workflow.shapes import upward_ranks
from sureline.world.address import at, node_of
from sureline.world.agent import handles
from sureline.world.protocol import AgentId

OUT_MAX = 128
"""Tasks of one run that are in the ring at a time."""
TICK_S = 1.0
ENTER_S = 3.0
"""A node that has not said by then that a molecule is kept is not waited for."""
SILENT_S = 45.0
"""Longer than a lease and a move: whoever holds a molecule has been heard of by then."""
NOTE_S = 60.0
LEVEL_MAX = 100
"""Tasks in one level molecule; a wider level is several, one after the other."""
DONE_PAGE = 500
NEVER = 1e18
"""When a task without a deadline has to begin."""


class _Entering(msgspec.Struct):
    key: bytes
    value: bytes
    task: int | None
    sent_s: float
    tries: int = 1


class _Out(msgspec.Struct):
    """A task that is in the ring, or soon will be."""

    heard_s: float
    generation: int
    noted_s: float = -NOTE_S


class WorkflowEntry(Advised):
    def __init__(self, seat: Seat) -> None:
        super().__init__(seat)
        self._settings: ChemicalSettings = seat.settings
        self._book = book_of(self._settings.rules, self._settings.order)
        self._heap: list[tuple[float, int]] = []
        self._out: dict[int, _Out] = {}
        self._generations: dict[int, int] = {}
        self._advice: list[tuple[AgentId, Deploy]] = []
        self._entering: dict[int, _Entering] = {}
        self._numbers = 0
        self._takes_s: list[float] = []
        self._ranks_s: list[float] = []
        self._levels: list[list[int]] = []
        self._level_of: dict[int, int] = {}
        self._tenders: dict[int, AgentId] = {}
        self._doomed: set[int] = set()

    # -- beginning -----------------------------------------------------------------------------

    def begin(self, engine: Engine, past: Sequence[Noted | Unknown], go: Action) -> None:
        self._engine = engine

        def estimated(found: EstimatesFound) -> None:
            self._takes_s = [one.mean_s for one in found.tasks]
            self._ranks_s = upward_ranks(engine.graph, self._takes_s)
            self._begun = True
            if self._settings.barriers == "on":
                self._take_apart()
            go()

        engine.estimates(estimated)
        self.world.after(TICK_S, self._tick)

    def _take_apart(self) -> None:
        """workflowDecomp. The exit is level 0; a level that is too wide becomes several."""
        graph = self._engine.graph
        whole = [task_molecule(graph, task) for task in range(len(graph))]
        levels = self._book.levels(whole, self.world.random)
        for number in sorted(levels):
            level = levels[number]
            assert isinstance(level, tuple) and isinstance(level[-1], Solution)
            names = [id_of(task) for task in level[-1].molecules]
            tasks = sorted(graph.index[name] for name in names if name in graph.index)
            pages = range(0, len(tasks), LEVEL_MAX)
            self._levels += [tasks[start : start + LEVEL_MAX] for start in pages]
        self._level_of = {task: n for n, level in enumerate(self._levels) for task in level}
        missing = len(graph) - len(self._level_of)
        if missing:
            self._engine.tell(f"the rules put {missing} tasks into no level; they go alone")
        for number, tasks in enumerate(self._levels):
            first = number == len(self._levels) - 1
            self._enter_level(number, tasks, ready=first)

    def _enter_level(self, number: int, tasks: Sequence[int], *, ready: bool) -> None:
        graph = self._engine.graph
        inside = [show(without_dests(task_molecule(graph, task)), as_given=True) for task in tasks]
        text = f"LEVEL:{number}:{'READY:' if ready else ''}<{', '.join(inside)}>"
        keys = {graph.tasks[task].name: self._key(task) for task in tasks}
        value = self._envelope(text, keys, ())
        self._enter(level_key(self._engine.run, self._engine.epoch, number), value, None)

    def _envelope(self, text: str, keys: dict[str, float], but: Sequence[PeerName]) -> bytes:
        run, epoch = self._engine.run, self._engine.epoch
        return Envelope(run, epoch, self.me, self._settings.rules, text, keys, tuple(but)).packed()

    def grown(self, tasks: range) -> None:
        for task in tasks:
            took = self._engine.graph.tasks[task].takes
            self._takes_s.append(1.0 if took is None else took.likely_s)
        self._ranks_s = upward_ranks(self._engine.graph, self._takes_s)

    # -- what happens --------------------------------------------------------------------------

    def target(self, target: Target) -> None:
        super().target(target)
        self._engine.wake()

    def ready(self, task: int) -> None:
        if task in self._out:
            return
        if task in self._level_of and task not in self._generations:
            # its level's holder puts it in; if nothing is heard of it, we do
            self._generations[task] = 0
            self._out[task] = _Out(self.world.elapsed(), 0)
            return
        heappush(self._heap, (self._key(task), task))

    def _key(self, task: int) -> float:
        """By the order that the user has chosen; lower goes first."""
        takes_s, rank_s = self._takes_s[task], self._ranks_s[task]
        deadline_at = self._engine.terms.deadline_at
        due = NEVER if deadline_at is None else deadline_at - rank_s
        name = self._engine.graph.tasks[task].name
        ready = ready_molecule(name, self.world.now(), takes_s, rank_s, due)
        key = self._book.key(ready, self.world.random)
        return key if isfinite(key) else 0.0

    def bound(self, bound: Bound) -> None:
        super().bound(bound)
        self._out.pop(bound.task, None)

    def stands(self, task: int, committed: bool) -> None:
        super().stands(task, committed)
        if committed:
            self._out.pop(task, None)
            level = self._level_of.get(task)
            if level is not None and level in self._tenders:
                self._tell_done(self._tenders[level], level, [task])

    def decide(self) -> None:
        advice, self._advice = self._advice, []
        for sender, said in advice:
            self._weigh(sender, said)
        while self._heap and self._targets and len(self._out) < OUT_MAX:
            _, task = heappop(self._heap)
            if self._engine.wanted(task) and task not in self._out:
                self._enter_task(task)

    def _enter_task(self, task: int) -> None:
        generation = self._generations[task] = self._generations.get(task, 0) + 1
        self._out[task] = _Out(self.world.elapsed(), generation)
        graph = self._engine.graph
        name = graph.tasks[task].name
        molecule: Molecule = without_dests(task_molecule(graph, task))
        keys = {name: self._key(task)}
        value = self._envelope(show(molecule, as_given=True), keys, self._but.get(task, ()))
        key = task_key(self._engine.run, self._engine.epoch, name, generation)
        self._enter(key, value, task)

    # -- into the ring -------------------------------------------------------------------------

    def _enter(self, key: bytes, value: bytes, task: int | None) -> None:
        self._numbers += 1
        self._entering[self._numbers] = _Entering(key, value, task, -ENTER_S, 0)
        self._send(self._numbers)

    def _send(self, number: int) -> None:
        one = self._entering[number]
        if self._targets:
            gate = self._targets[self.world.random.choice(sorted(self._targets))]
            one.sent_s = self.world.elapsed()
            one.tries += 1
            enter = Enter(self._engine.run, number, one.key, one.value)
            self.world.send(at(node_of(gate.agent), PART), enter)

    @handles(Entered)
    def on_entered(self, sender: AgentId, said: Entered) -> None:
        one = self._entering.get(said.number)
        if one is not None and said.kept:
            del self._entering[said.number]
            if one.task in self._out:
                self._out[one.task].heard_s = self.world.elapsed()

    def _tick(self) -> None:
        if self._is_over:
            return
        self.world.after(TICK_S, self._tick)
        now = self.world.elapsed()
        for number, one in list(self._entering.items()):
            if one.task is not None and one.task not in self._out:
                del self._entering[number]
            elif now - one.sent_s > ENTER_S * min(4, max(1, one.tries)):
                self._send(number)
        for task, out in list(self._out.items()):
            due = task not in self._level_of or out.generation or self._is_next(task)
            if now - out.heard_s > SILENT_S and due:
                del self._out[task]
                if self._engine.wanted(task):
                    heappush(self._heap, (self._key(task), task))
        self._engine.wake()

    def _is_next(self, task: int) -> bool:
        """Whether all levels before that of the task are done."""
        before = self._levels[self._level_of[task] + 1 :]
        return all(self._stands(one) for level in before for one in level)

    # -- advice --------------------------------------------------------------------------------

    @handles(Deploy)
    def on_deploy(self, sender: AgentId, said: Deploy) -> None:
        self._advice.append((sender, said))
        self._engine.wake()

    def _weigh(self, sender: AgentId, said: Deploy) -> None:
        """Bind it as advised, if it may be."""
        engine = self._engine
        task = engine.graph.index.get(said.task)
        if task is None or said.run != engine.run:
            return
        claim, peer = str(said.token).encode(), PeerName(said.peer)
        bound = any(one.claim == claim for one in engine.attempts_of(task))
        if not bound and engine.wanted(task) and peer in engine.targets():
            attempt = engine.bind(task, peer, claim)
            bound = attempt > 0
            if bound:
                engine.note("deployed", said.said, task=task, attempt=attempt, peer=peer)
            else:
                self._out.pop(task, None)  # it is told anew when it is ready
        elif task in self._out:
            self._out[task].heard_s = self.world.elapsed()
        # of a level whose holder was quicker than our own book, the task will be wanted soon
        soon = engine.state(task) in (State.WAITING, State.STAGING)
        over = not bound and not engine.wanted(task) and not soon
        self.world.send(sender, Answered(said.run, said.number, bound, over))

    @handles(Seeks)
    def on_seeks(self, sender: AgentId, said: Seeks) -> None:
        task = self._engine.graph.index.get(said.task)
        out = None if task is None else self._out.get(task)
        if out is None:
            return
        out.heard_s = now = self.world.elapsed()
        if now - out.noted_s > NOTE_S:
            out.noted_s = now
            self._engine.note("seeks", said.said, task=task)

    # -- levels --------------------------------------------------------------------------------

    @handles(Tending)
    def on_tending(self, sender: AgentId, said: Tending) -> None:
        level = said.level
        if 0 <= level < len(self._levels):
            self._tenders[level] = sender
            self._doom()
            # Whose turn has come has a holder of its own to be heard of: perhaps one that cannot
            # reach this writer.
            tasks = self._levels[level]
            if tasks and not self._is_next(tasks[0]):
                for task in tasks:
                    if task in self._out:
                        self._out[task].heard_s = self.world.elapsed()
            self._tell_done(sender, level, [t for t in self._levels[level] if self._stands(t)])

    def _tell_done(self, to: AgentId, level: int, tasks: Sequence[int]) -> None:
        names = [self._engine.graph.tasks[task].name for task in tasks]
        self.world.send(to, Done(self._engine.run, level, tuple(names[:DONE_PAGE])))

    def _stands(self, task: int) -> bool:
        """Whether nobody has to wait for it any more: it is done, or will never be."""
        return self._engine.state(task) is State.COMMITTED or task in self._doomed

    def _doom(self) -> None:
        """What has failed for good takes all that needs it along."""
        graph, state = self._engine.graph, self._engine.state
        failed = [task for task in self._level_of if state(task) is State.FAILED]
        while failed:
            task = failed.pop()
            if task not in self._doomed:
                self._doomed.add(task)
                failed += graph.children[task]
