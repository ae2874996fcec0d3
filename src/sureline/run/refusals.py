"""How often a task that targets refuse is tried again, how soon, and when it is given up.

A refusal is not a failure of the task: it is given up only when it was refused often, and nobody
else is there who might take it.
"""

from __future__ import annotations

from sureline.peer.capacity import Ledger
from sureline.peer.messages import Refused
from sureline.run.fleet import Fleet
from sureline.run.states import Tasks
from sureline.run.unfit import Unfit
from sureline.workflow.model import Needs
from sureline.world.address import PeerName

AGAIN_MAX_S = 30.0
REFUSALS_MAX = 5
"""Refusals of a task before it is given up, beyond one for each target."""
REFUSERS_MAX = 8
"""So many targets that refuse a task are enough, though others are there."""
UNFIT_MAX = 3
"""Refusals of a task before it is given up, if all targets that are there are unfit for it."""
LACKS_MAX = 8
"""How often targets may fail to get a task's inputs before it is given up."""


class Refusals:
    def __init__(self, tasks: Tasks, fleet: Fleet, unfit: Unfit) -> None:
        self._tasks = tasks
        self._fleet = fleet
        self._unfit = unfit
        self._by: dict[int, set[PeerName]] = {}
        """Who refused a task that has no result."""

    def committed(self, task: int) -> None:
        self._by.pop(task, None)

    def note(self, task: int, target: PeerName, message: Refused) -> None:
        self._by.setdefault(task, set()).add(target)
        if message.unfit:
            self._unfit.note(task, target, message.reason)

    def again_s(self, task: int, needs: Needs, message: Refused) -> float | None:
        """After how long it is tried again, now that its last attempt was refused; None if it is
        given up."""
        if message.missing:
            self._tasks.lacks[task] += 1
            return self._delay_s(task, needs, self._tasks.lacks[task], LACKS_MAX)
        self._tasks.refusals[task] += 1
        most = REFUSALS_MAX + len(self._fleet.all())
        delay_s = self._delay_s(task, needs, self._tasks.refusals[task], most)
        return 0.0 if message.unfit and delay_s is not None else delay_s

    def all_unfit_s(self, task: int, needs: Needs) -> float | None:
        """The same if all that are there are unfit for it; perhaps somebody else comes."""
        self._tasks.refusals[task] += 1
        most = UNFIT_MAX + len(self._fleet.all())
        return self._delay_s(task, needs, self._tasks.refusals[task], most)

    def _delay_s(self, task: int, needs: Needs, count: int, most: int) -> float | None:
        if count >= most and self._nobody_else_would(task, needs):
            return None
        return min(AGAIN_MAX_S, 0.25 * 2.0 ** min(count, 10))

    def _nobody_else_would(self, task: int, needs: Needs) -> bool:
        """Whether all that are there and large enough for a task have refused it, or many."""
        refused = {*self._by.get(task, ()), *self._unfit.of(task)}
        if len(refused) >= REFUSERS_MAX:
            return True
        others = [e.target for e in self._fleet.all() if e.target.name not in refused]
        return not any(Ledger(target.capacity).fits(needs) for target in others)
