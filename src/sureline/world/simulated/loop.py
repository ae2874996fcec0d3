"""The loop that makes things happen, one bucket of the calendar at a time.

There are three ways through a bucket. Where nothing needs to be asked after every event, and
messages are counted lightly, there is one loop with next to nothing in it: with a million agents
most of the time goes into waiting for memory, so every object that is not touched counts. With
full detail every message is counted for itself. Where a run may stop, events are taken one by one.
"""

from __future__ import annotations

import gc
import math
from collections.abc import Callable
from heapq import heappop
from typing import TYPE_CHECKING

from sureline.world.simulated.calendar import Entry, SimTimer

if TYPE_CHECKING:
    from sureline.world.simulated.place import Place
    from sureline.world.simulated.simulation import Simulation

EVENTS_PER_COLLECTION = 500_000
EVENTS_PER_ADAPTATION = 5_000
EVENTS_PER_PROGRESS = 100_000


class StopCondition:
    """When a run is to end. True from `reached` ends it."""

    def __init__(
        self, until: float | None, condition: Callable[[], bool] | None, events_max: int | None
    ) -> None:
        self.until = until
        self.condition = condition
        self.events_max = events_max
        self.events = 0
        self.by_itself = condition is not None or events_max is not None
        """Whether to ask after every event."""

    def reached(self) -> bool:
        self.events += 1
        if self.events_max is not None and self.events >= self.events_max:
            return True
        return self.condition is not None and self.condition()


def run(
    sim: Simulation, stop: StopCondition, progress: Callable[[Simulation], None] | None
) -> bool:
    """True if stopped before the time `until`, by the condition or the number of events."""
    calendar = sim.calendar
    collected = told = adapted = sim.events
    buckets = 0
    while (number := calendar.next_number()) is not None:
        ends_s = (number + 1) / calendar.per_s
        if stop.until is not None and number / calendar.per_s > stop.until:
            return False
        if stop.by_itself or (stop.until is not None and ends_s > stop.until):
            over = _one_by_one(sim, number, stop)
            if over is not None:
                return over
        elif sim.counters.detail == "light":
            _lightly(sim, number)
        else:
            _whole(sim, number)
        buckets += 1
        if sim.events - adapted >= EVENTS_PER_ADAPTATION:
            calendar.adapt((sim.events - adapted) / buckets)
            adapted, buckets = sim.events, 0
        if sim.events - collected >= EVENTS_PER_COLLECTION:
            collected = sim.events
            gc.collect(0)
        if progress is not None and sim.events - told >= EVENTS_PER_PROGRESS:
            told = sim.events
            progress(sim)
    return False


def _lightly(sim: Simulation, number: int) -> None:
    """A whole bucket; messages are counted by the bucket."""
    calendar, places = sim.calendar, sim.places
    entries = calendar.open()
    heap = calendar.soon.heap
    sim.counters.arrived(number // int(calendar.per_s), entries)
    time_s, to, sender, what = entries[0]
    try:
        for time_s, to, sender, what in entries:
            if heap and heap[0][0] < time_s:
                _hurry(sim, time_s)
            calendar.now = time_s
            if to is None:
                fire((time_s, None, sender, what))
                continue
            try:
                place = places[to]
            except KeyError:
                sim.perform((time_s, to, sender, what))
                continue
            try:
                handler = place.handlers[type(what)]
            except KeyError:
                _with_care(sim, place, (time_s, to, sender, what))
            else:
                place.received += 1
                handler(place.agent, sender, what)
        if heap:
            _hurry(sim, math.inf)
    except Exception as error:
        sim.fail((time_s, to, sender, what), error)
    sim.events += len(entries)
    calendar.close(number)


def _with_care(sim: Simulation, place: Place, entry: Entry) -> None:
    """A message to an agent that is not open, that has no handler for it, or does more with it."""
    if place.agent is None:
        sim.perform(entry)
    else:
        place.received += 1
        place.agent.receive(entry[2], entry[3])


def _whole(sim: Simulation, number: int) -> None:
    """A whole bucket, every message counted for itself."""
    calendar = sim.calendar
    entries = calendar.open()
    heap = calendar.soon.heap
    entry = entries[0]
    try:
        for entry in entries:
            if heap and heap[0][0] < entry[0]:
                _hurry(sim, entry[0])
            calendar.now = entry[0]
            sim.count_and_perform(entry)
        if heap:
            _hurry(sim, math.inf)
    except Exception as error:
        sim.fail(entry, error)
    sim.events += len(entries)
    calendar.close(number)


def _hurry(sim: Simulation, before_s: float) -> None:
    """What was added to the bucket at work, and comes before the next of its entries."""
    calendar = sim.calendar
    heap = calendar.soon.heap
    while heap and heap[0][0] < before_s:
        entry = heappop(heap)[2]
        calendar.now = entry[0]
        sim.events += 1
        try:
            sim.count_and_perform(entry)
        except Exception as error:
            sim.fail(entry, error)


def _one_by_one(sim: Simulation, number: int, stop: StopCondition) -> bool | None:
    """A bucket up to where the run stops; None if it was not stopped, False if it is time."""
    calendar = sim.calendar
    calendar.opened = bucket = calendar.open()
    bucket.reverse()
    heap = calendar.soon.heap
    over: bool | None = None
    entry: Entry | None = None
    try:
        while bucket or heap:
            hurry = not bucket or (heap and heap[0][0] < bucket[-1][0])
            if stop.until is not None and (heap[0] if hurry else bucket[-1])[0] > stop.until:
                over = False
                break
            entry = heappop(heap)[2] if hurry else bucket.pop()
            calendar.now = entry[0]
            sim.events += 1
            sim.count_and_perform(entry)
            if stop.by_itself and stop.reached():
                over = True
                break
    except Exception as error:
        sim.fail(entry, error)
    bucket.reverse()
    calendar.opened = []
    calendar.close(number, bucket)
    return over


def fire(entry: Entry) -> None:
    """A timer is due: its action runs, waits with its machine, or died with it."""
    life, timer = entry[2], entry[3]
    assert isinstance(timer, SimTimer)
    action = timer.action
    if action is None:
        return
    if life is None or life.open:
        timer.action = None
        action()
    elif not life.over:
        life.machine.hold(entry)
