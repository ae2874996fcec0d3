"""Walks every state that the grant of epochs (`run.grant`) can get into, within bounds.

What was ever sent stays deliverable for ever: to be lost is never to be delivered, and anything may
come twice, late, and in any order. A process that crashes keeps its journal; a keeper keeps what it
held when it answered. The steps call the functions that keepers and writers run.

Two things keep their number small, and lose none that matters. What was sent and can have no effect
any more, on anybody, is forgotten (`Explorer.alive`). And processes, and keepers while the voters
do not change, are alike: of states that differ only in who is who, one is walked on from
(`Explorer.canonical`). So names may change between two steps of a story.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from itertools import combinations
from typing import Any, NamedTuple

from sureline.journal.schema import POSITIONS_PER_EPOCH
from sureline.run import grant
from sureline.run.grant import Answer, Candidacy, Epoch, Holding, Quorum
from sureline.run.keeping import last_common, line_on

Log = tuple[tuple[int, tuple[str, ...]], ...]
"""(position, the voters from then on, () if it is not about them)."""


class Keeper(NamedTuple):
    promised: tuple[int, str]
    in_line: int
    log: Log

    @property
    def holding(self) -> Holding:
        return Holding(Epoch(*self.promised), self.in_line, last(self.log))


class Process(NamedTuple):
    """Somebody who may come to write the run."""

    phase: str
    """idle, asking, writing"""
    number: int
    log: Log


class State(NamedTuple):
    keepers: tuple[Keeper, ...]
    processes: tuple[Process, ...]
    asked: frozenset[tuple[tuple[int, str], str]]
    """(epoch, the voter that is asked for it)."""
    promises: frozenset[tuple[tuple[int, str], str, int]]
    """(epoch, keeper, its position)."""
    sent: frozenset[tuple[tuple[int, str], Log]]
    """The journals of writers as they were."""
    acked: frozenset[tuple[tuple[int, str], str, int]]
    granted: frozenset[tuple[int, str]]
    committed: frozenset[tuple[tuple[int, tuple[str, ...]], int]]
    """Events, and under which number each came to be committed."""


class BrokenError(AssertionError):
    """A law does not hold; the message tells the steps that led there."""


def last(log: Log) -> int:
    return log[-1][0] if log else 0


def voters(log: Log) -> tuple[str, ...]:
    return next((named for _, named in reversed(log) if named), ())


def line(log: Log) -> tuple[int, ...]:
    return line_on((), (position for position, _ in log))


def _may_take(keeper: Keeper, epoch: tuple[int, str], log: Log) -> bool:
    """Whether this journal of a writer can still change what the keeper holds."""
    if epoch != keeper.promised:
        return epoch[0] > keeper.promised[0]
    return keeper.in_line != epoch[0] or last(log) > last(keeper.log)


class Explorer:
    def __init__(
        self,
        keepers: str,
        processes: str,
        *,
        numbers: int,
        sets: tuple[str, ...] = (),
        changed_up_to: int = 4,
    ) -> None:
        self.names = tuple(keepers)
        self.people = tuple(processes)
        self.numbers = numbers
        self.sets = sets
        """What writers may want the voters to be; the first is what they are in the beginning."""
        self.changed_up_to = changed_up_to
        """Nobody whose journal has as many events changes the voters any more."""

    def start(self) -> State:
        """The first process writes under epoch 1, and every voter has its journal."""
        who, first = self.people[0], tuple(self.sets[0]) if self.sets else self.names
        log: Log = ((POSITIONS_PER_EPOCH + 1, first),)
        kept, nothing = Keeper((1, who), 1, log), Keeper((0, ""), 0, ())
        return State(
            tuple(kept if name in first else nothing for name in self.names),
            (Process("writing", 1, log), *(Process("idle", 0, ()) for _ in self.people[1:])),
            frozenset(),
            frozenset(),
            frozenset({((1, who), log)}),
            frozenset(((1, who), name, last(log)) for name in first),
            frozenset({(1, who)}),
            frozenset((entry, 1) for entry in log),
        )

    # -- all that may happen next -----------------------------------------------------------------

    def steps(self, state: State) -> Iterator[tuple[str, State]]:
        for at, person in enumerate(self.people):
            phase = state.processes[at].phase
            yield from self._claims(state, at, person)
            if phase == "asking":
                yield from self._asking(state, at, person)
            elif phase == "writing":
                yield from self._writing(state, at, person)
        for at, name in enumerate(self.names):
            yield from self._of_keeper(state, at, name)

    def _claims(self, state: State, at: int, person: str) -> Iterator[tuple[str, State]]:
        """Whatever it did, it may crash; all it has then is its journal. It looks at somebody's
        copy, or its own, and asks for the next number it can tell."""
        process = state.processes[at]
        own = process.log if process.phase != "asking" else ()
        copies = [("its own", own, process.number)]
        copies += [
            (name, k.log, k.promised[0]) for name, k in zip(self.names, state.keepers, strict=True)
        ]
        for name, log, promised in copies:
            if not log or last(log) < last(own):
                continue
            number = 1 + max(process.number, promised, last(log) // POSITIONS_PER_EPOCH)
            if number <= self.numbers:
                yield (
                    f"{person} reads {name} and asks for {number}",
                    self._asks(state, at, Process("asking", number, log)),
                )

    def _asks(self, state: State, at: int, process: Process) -> State:
        """All voters that it knows of."""
        epoch = (process.number, self.people[at])
        asked = state.asked | {(epoch, voter) for voter in voters(process.log)}
        return self._with(state, at, process)._replace(asked=asked)

    def _asking(self, state: State, at: int, person: str) -> Iterator[tuple[str, State]]:
        """It hears some of the promises that were made."""
        process = state.processes[at]
        epoch = (process.number, person)
        made = [(name, position) for of, name, position in state.promises if of == epoch]
        for heard in (some for n in range(len(made)) for some in combinations(made, n + 1)):
            candidacy = Candidacy(Epoch(*epoch), voters(process.log), last(process.log))
            for name, position in heard:
                candidacy.heard(name, Answer(Epoch(*epoch), position))
            ahead = candidacy.ahead()
            if ahead is not None:
                log = state.keepers[self.names.index(ahead)].log
                if last(log) > last(process.log):
                    read = process._replace(log=log)
                    yield f"{person} reads {ahead}", self._asks(state, at, read)
            if candidacy.is_granted:
                granted = state.granted | {epoch}
                yield (
                    f"{person} is granted {process.number} by {[name for name, _ in heard]}",
                    self._recorded(state, at, process, ())._replace(granted=granted),
                )

    def _writing(self, state: State, at: int, person: str) -> Iterator[tuple[str, State]]:
        """The first writer may record one more; any may change the voters when all it has is
        committed."""
        process = state.processes[at]
        if process.number == 1 and len(process.log) == 1:
            yield f"{person} records", self._recorded(state, at, process, ())
        epoch = (process.number, person)
        settled = self.sets and self._reached(state, epoch, process.log) >= last(process.log)
        if settled and len(process.log) < self.changed_up_to:
            for some in self.sets:
                now = voters(process.log)
                named = grant.changed(now, tuple(some))
                if named != now:
                    after = self._recorded(state, at, process, named)
                    yield f"{person} wants {''.join(named)}", after

    def _recorded(self, state: State, at: int, process: Process, what: tuple[str, ...]) -> State:
        position = max(last(process.log), process.number * POSITIONS_PER_EPOCH) + 1
        log = (*process.log, (position, what))
        epoch = (process.number, self.people[at])
        after = self._with(state, at, Process("writing", process.number, log))
        return after._replace(sent=state.sent | {(epoch, log)})

    def _of_keeper(self, state: State, at: int, name: str) -> Iterator[tuple[str, State]]:
        keeper = state.keepers[at]
        for epoch in (epoch for epoch, whom in state.asked if whom == name):
            promised = grant.asked(keeper.holding, Epoch(*epoch))
            answer = (epoch, name, promised.position)
            if promised.promised == Epoch(*epoch) and answer not in state.promises:
                holds = self._with_keeper(state, at, keeper._replace(promised=epoch))
                promises = state.promises | {answer}
                yield f"{name} promises {epoch}", holds._replace(promises=promises)
        for epoch, log in state.sent:
            yield from self._takes(state, at, name, epoch, log)

    def _takes(
        self, state: State, at: int, name: str, epoch: tuple[int, str], log: Log
    ) -> Iterator[tuple[str, State]]:
        keeper = state.keepers[at]
        begun = grant.begun(keeper.holding, Epoch(*epoch))
        if begun is None:
            return
        if begun != keeper.holding:
            promises = self._with_keeper(state, at, keeper._replace(promised=epoch))
            yield f"{name} hears {epoch}", promises
            return
        base = last_common(line(keeper.log), line(log))
        takes = None
        for after in {0, *(position for position, _ in keeper.log)}:
            held = grant.followed(keeper.holding, Epoch(*epoch), base, after, last(log))
            kept = tuple(entry for entry in keeper.log if entry[0] <= after)
            if held is not None and log[: len(kept)] != kept:
                raise BrokenError(f"{name} has {kept}, which is not the beginning of {log}")
            takes = takes or held
        if takes is not None:
            acked = state.acked | {(epoch, name, takes.position)}
            holds = self._with_keeper(state, at, Keeper(epoch, takes.in_line, log))
            yield f"{name} takes of {epoch}", self._committed(holds._replace(acked=acked), epoch)

    def _reached(self, state: State, epoch: tuple[int, str], log: Log) -> int:
        """Up to where the writer can tell that it is committed, if it hears of everything."""
        mine = [entry[0] // POSITIONS_PER_EPOCH == epoch[0] for entry in log]
        first = mine.index(True)
        quorum = Quorum(Epoch(*epoch), voters(log[: first + 1]))
        for of, name, position in state.acked:
            if of == epoch:
                quorum.has(name, position)
        for position, named in log[first + 1 :]:
            if named:
                quorum.committed()
                quorum.change(named, position)
        return quorum.committed()

    def _committed(self, state: State, epoch: tuple[int, str]) -> State:
        log = max((log for of, log in state.sent if of == epoch), key=len)
        reached = self._reached(state, epoch, log)
        if reached < epoch[0] * POSITIONS_PER_EPOCH:
            return state
        known = {entry for entry, _ in state.committed}
        new = {(entry, epoch[0]) for entry in log if entry[0] <= reached and entry not in known}
        return state._replace(committed=state.committed | new)

    def _with(self, state: State, at: int, process: Process) -> State:
        some = list(state.processes)
        some[at] = process
        return state._replace(processes=tuple(some))

    def _with_keeper(self, state: State, at: int, keeper: Keeper) -> State:
        some = list(state.keepers)
        some[at] = keeper
        return state._replace(keepers=tuple(some))

    # -- states that are the same for all that follows ---------------------------------------------

    def alive(self, state: State) -> State:
        """Without what can have no effect any more: questions that cannot be granted, promises that
        nobody waits for, questions that no keeper would hear, and journals that every keeper has,
        or is past."""
        state = state._replace(
            processes=tuple(
                process
                if self._has_hope(state, process, person)
                else Process("idle", process.number, ())
                for person, process in zip(self.people, state.processes, strict=True)
            )
        )
        waiting = {
            (process.number, person)
            for person, process in zip(self.people, state.processes, strict=True)
            if process.phase == "asking"
        }
        holdings = {
            name: keeper.holding for name, keeper in zip(self.names, state.keepers, strict=True)
        }

        def is_heard(epoch: tuple[int, str], holding: Holding) -> bool:
            promised = grant.asked(holding, Epoch(*epoch))
            return promised != holding or (epoch in waiting and promised.promised == Epoch(*epoch))

        asked = frozenset(one for one in state.asked if is_heard(one[0], holdings[one[1]]))
        sent = frozenset(
            one for one in state.sent if any(_may_take(keeper, *one) for keeper in state.keepers)
        )
        counts = {epoch for epoch, _ in sent} | {
            (process.number, person)
            for person, process in zip(self.people, state.processes, strict=True)
            if process.phase == "writing"
        }
        acked: dict[tuple[tuple[int, str], str], int] = {}
        for epoch, name, position in state.acked:
            if epoch in counts:
                acked[epoch, name] = max(position, acked.get((epoch, name), 0))
        return state._replace(
            asked=asked,
            promises=frozenset(one for one in state.promises if one[0] in waiting),
            sent=sent,
            acked=frozenset((epoch, name, position) for (epoch, name), position in acked.items()),
            granted=frozenset(one for one in state.granted if self._may_be_granted(state, one)),
            committed=self._in_doubt(state, sent),
        )

    def _has_hope(self, state: State, process: Process, person: str) -> bool:
        """Whether what it asks for may still be granted; and what it has, if it has given up or
        crashed, be of use to itself."""
        if process.phase == "writing":
            return True
        if process.phase == "idle":
            return process.number < self.numbers
        epoch = (process.number, person)
        may = {
            name
            for name, keeper in zip(self.names, state.keepers, strict=True)
            if grant.asked(keeper.holding, Epoch(*epoch)).promised == Epoch(*epoch)
        }
        may |= {name for of, name, _ in state.promises if of == epoch}
        known = {voters(keeper.log) for keeper in state.keepers} | {voters(process.log)}
        known |= {voters(log) for _, log in state.sent}
        return any(len(may & set(some)) >= grant.majority(some) for some in known if some)

    def _may_be_granted(self, state: State, epoch: tuple[int, str]) -> bool:
        """Whether somebody else could still be granted this number."""
        return any(
            process.number < epoch[0] or (process.number == epoch[0] and process.phase == "asking")
            for person, process in zip(self.people, state.processes, strict=True)
            if person != epoch[1]
        )

    def _in_doubt(self, state: State, sent: frozenset[tuple[tuple[int, str], Log]]) -> Any:
        """What is committed and not in every journal that somebody could build on."""
        logs = {log for _, log in sent} | {one.log for one in state.processes}
        logs |= {keeper.log for keeper in state.keepers}
        return frozenset(
            one for one in state.committed if not all(one[0] in log for log in logs if log)
        )

    def canonical(self, state: State) -> State:
        """One for all that differ only in the names of processes and keepers. Where two look alike
        it may still be several: that costs time, and is no mistake."""
        state = self.alive(state)
        return self._renamed_keepers(self._renamed_people(state))

    def _renamed_people(self, state: State) -> State:
        def looks(person: str) -> Any:
            return (
                state.processes[self.people.index(person)],
                sorted(epoch[0] for epoch, _ in state.asked if epoch[1] == person),
                sorted(number for number, who in state.granted if who == person),
                sorted(log for (_, who), log in state.sent if who == person),
                sorted((e[0], at) for e, _, at in state.promises if e[1] == person),
                sorted(keeper for keeper in state.keepers if keeper.promised[1] == person),
            )

        order = sorted(self.people, key=looks)
        if tuple(order) == self.people:
            return state
        to = {old: new for new, old in zip(self.people, order, strict=True)} | {"": ""}
        return State(
            tuple(
                keeper._replace(promised=(keeper.promised[0], to[keeper.promised[1]]))
                for keeper in state.keepers
            ),
            tuple(state.processes[self.people.index(old)] for old in order),
            frozenset(((number, to[who]), name) for (number, who), name in state.asked),
            frozenset(((n, to[who]), name, at) for (n, who), name, at in state.promises),
            frozenset(((n, to[who]), log) for (n, who), log in state.sent),
            frozenset(((n, to[who]), name, at) for (n, who), name, at in state.acked),
            frozenset((number, to[who]) for number, who in state.granted),
            state.committed,
        )

    def _renamed_keepers(self, state: State) -> State:
        """Those that are in the same of the sets are alike; in journals, they stay together."""

        def looks(name: str) -> Any:
            return (
                [name not in some for some in self.sets],
                state.keepers[self.names.index(name)],
                sorted(epoch for epoch, who in state.asked if who == name),
                sorted((epoch, at) for epoch, who, at in state.promises if who == name),
                sorted((epoch, at) for epoch, who, at in state.acked if who == name),
            )

        order = sorted(self.names, key=looks)
        if tuple(order) == self.names:
            return state
        to = {old: new for new, old in zip(self.names, order, strict=True)}
        return state._replace(
            keepers=tuple(state.keepers[self.names.index(old)] for old in order),
            asked=frozenset((epoch, to[name]) for epoch, name in state.asked),
            promises=frozenset((epoch, to[name], at) for epoch, name, at in state.promises),
            acked=frozenset((epoch, to[name], at) for epoch, name, at in state.acked),
        )

    # -- what must hold -------------------------------------------------------------------------

    def check(self, before: State, after: State) -> str:
        """Why this step must not be possible; '' if it may."""
        for number in {number for number, _ in after.granted}:
            holders = {who for n, who in after.granted if n == number}
            if len(holders) > 1:
                return f"epoch {number} was granted to {holders}"
        for entry, by in after.committed - before.committed:
            if len({e for e, _ in after.committed if e[0] == entry[0]}) > 1:
                return f"two events are committed at {entry[0]}"
            for person, process in zip(self.people, after.processes, strict=True):
                writes = process.phase == "writing" and process.number > by
                if writes and entry not in process.log:
                    return f"{entry} is committed, although {person} writes without it"
        for number, person in after.granted - before.granted:
            log = after.processes[self.people.index(person)].log
            lost = [entry for entry, by in after.committed if by < number and entry not in log]
            if lost:
                return f"{person} is granted {number} without {lost}"
        return ""

    def can_go_on(self, state: State) -> bool:
        """Whether, if no more is lost, somebody new can be granted an epoch and commit."""
        person = self.people[-1]
        best = max(state.keepers, key=lambda k: last(k.log))
        epoch = Epoch(1 + max(k.promised[0] for k in state.keepers), person)
        candidacy = Candidacy(epoch, voters(best.log), last(best.log))
        for _ in range(4):
            for name, keeper in zip(self.names, state.keepers, strict=True):
                if name in candidacy.voters:
                    held = grant.asked(keeper.holding, epoch)
                    candidacy.heard(name, Answer(held.promised, held.position))
            ahead = candidacy.ahead()
            if ahead is None:
                break
            log = state.keepers[self.names.index(ahead)].log
            candidacy.caught_up(last(log), voters(log))
        return candidacy.is_granted

    def walk(self, states_max: int) -> int:
        """Look at every state that can be reached; how many. Raises BrokenError."""
        start = self.canonical(self.start())
        came: dict[State, tuple[State, str] | None] = {start: None}
        self.came = came
        todo = deque([start])
        while todo:
            state = todo.popleft()
            if not self.can_go_on(state):
                raise BrokenError(f"nobody can go on after {self._told(came, state)}")
            for what, raw in self.steps(state):
                broken = self.check(state, raw)
                if broken:
                    raise BrokenError(f"{broken}: {self._told(came, state)}; {what}")
                after = self.canonical(raw)
                if after in came:
                    continue
                came[after] = (state, what)
                if len(came) > states_max:
                    raise AssertionError(f"more than {states_max} states")
                todo.append(after)
        return len(came)

    def _told(self, came: dict[State, tuple[State, str] | None], state: State) -> str:
        steps: list[str] = []
        at: State | None = state
        while at is not None and (how := came[at]) is not None:
            at, what = how
            steps.append(what)
        return "; ".join(reversed(steps))
