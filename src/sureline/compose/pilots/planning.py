"""How many pilots a run needs, for how long, and how surely it is then done: before it starts.

The finish is forecast on more and more pilots until it is sure enough. What they wait in the queue
is part of that, as far as waits were seen; while none were, the promise counts from when the
pilots have started, and says so. How long they take to come up is learned likewise.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence

import msgspec

from sureline.compose.terms import Before
from sureline.forecast.follow import Forecaster
from sureline.forecast.machines import MachinePart, Together, together
from sureline.forecast.progress import DONE, Progress
from sureline.forecast.result import QUANTILE_SHARES, Forecast, basis_words
from sureline.journal.words import percent
from sureline.run.feasible import quantile_s
from sureline.sites.order import PilotOrder, SiteChoice
from sureline.sites.waits import ExpectedWait, WaitBook, WaitFor, quantile_of
from sureline.workflow.model import Graph
from sureline.workflow.terms import Terms

NEAR = 1.05
"""Without a deadline: more pilots than these would not end the run noticeably earlier."""
LIFETIME_SHARE, LIFETIME_SPARE_S, LIFETIME_S_MIN = 1.25, 180.0, 600.0
LIFETIME_UNKNOWN_S = 3600.0


class PilotPlan(msgspec.Struct, frozen=True):
    """What a run would be started with. Seconds count from the submission, or, if `once_started`,
    from when the pilots have started."""

    site: str
    number: int
    cores: int
    lifetime_s: float
    p50_s: float
    p90_s: float
    surety: float | None
    """Of being done by the deadline; None without one."""
    once_started: bool
    """Nothing is known of the wait in the queue, and it is not part of these numbers."""
    wait_p50_s: float | None
    wait_p90_s: float | None
    wait_from: str
    up_p50_s: float
    """From a job's first line to a pilot that serves; part of these numbers always."""
    up_p90_s: float
    up_from: str
    source: str
    """What the durations rest on."""
    refused: str = ""
    """Why the terms cannot be met; '' if they can, or if nobody can tell."""
    within_s: float | None = None
    """If refused: the earliest deadline that would do."""

    @property
    def sentence(self) -> str:
        """The promise, for people."""
        many = "1 pilot" if self.number == 1 else f"{self.number} pilots"
        sure = "" if self.surety is None else f", {percent(self.surety)} surely in time"
        when = "from now" if self.wait_p50_s is None else "from now, the wait included"
        if self.once_started:
            when = "once they have started"
        return (
            f"{many} for {math.ceil(self.lifetime_s / 60)} min: done within "
            f"{math.ceil(self.p50_s)} to {math.ceil(self.p90_s)} s {when}{sure}"
        )


def plan_pilots(
    graph: Graph,
    known: Before,
    terms: Terms,
    order: PilotOrder,
    waits: WaitBook,
    now: float,
    ahead: int | None = None,
) -> PilotPlan:
    """The fewest pilots, up to the order's number, that meet the deadline as surely as is wanted;
    without a deadline, the fewest that end the run about as early as all of them would. The
    order's lifetime, if it has one, stays. `ahead` is what waits at the site now, in cores."""
    forecasts = PilotForecasts(graph, known, order)
    choice, shape = order.choices[0], order.shape
    coming_up = waits.coming_up(choice.name, choice.partition)
    deadline_s = None if terms.deadline_at is None else terms.deadline_at - now

    def wait_of(number: int) -> ExpectedWait:
        cores = shape.cores * number
        return waits.expected(
            WaitFor(now, choice.name, choice.partition, cores, _lifetime(number), ahead)
        )

    def _lifetime(number: int) -> float:
        return shape.lifetime_s or lifetime_s(forecasts.at(number))

    def surety(number: int) -> float:
        assert deadline_s is not None
        delays_s = wait_of(number).then_up_s(coming_up)
        return surety_with(forecasts.at(number), delays_s, deadline_s)

    if deadline_s is None:
        best_s = forecasts.at(order.number).p90_s
        number = _fewest(order.number, lambda n: forecasts.at(n).p90_s <= NEAR * best_s)
    else:
        number = _fewest(order.number, lambda n: surety(n) >= terms.surety)
    found, wait = forecasts.at(number), wait_of(number)
    delays_s = wait.then_up_s(coming_up)
    sure = None if deadline_s is None else surety(number)
    made = PilotPlan(
        choice.name,
        number,
        shape.cores,
        _lifetime(number),
        done_s(found, delays_s, 0.5),
        done_s(found, delays_s, 0.9),
        sure,
        not _is_known(choice, wait),
        wait.quantile_s(0.5) if wait.is_known else None,
        wait.quantile_s(0.9) if wait.is_known else None,
        wait.from_,
        quantile_of(coming_up.ups_s, 0.5),
        quantile_of(coming_up.ups_s, 0.9),
        coming_up.from_,
        basis_words(found.basis),
    )
    if sure is None or sure >= terms.surety or found.basis.guess:
        return made
    why = (
        f"the run would be done in time with a chance of {percent(sure)} only, "
        f"{percent(terms.surety)} is wanted"
    )
    return msgspec.structs.replace(
        made, refused=why, within_s=math.ceil(done_s(found, delays_s, terms.surety))
    )


def lifetime_s(forecast: Forecast) -> float:
    """How long a pilot should be able to stay: nearly always until the run is over."""
    if forecast.basis.guess:
        return LIFETIME_UNKNOWN_S
    wanted = LIFETIME_SHARE * quantile_s(forecast, 0.99) + LIFETIME_SPARE_S
    return 60.0 * math.ceil(max(LIFETIME_S_MIN, wanted) / 60)


def surety_with(forecast: Forecast, delays_s: Sequence[float], deadline_s: float) -> float:
    """The chance that the run is over by then if it begins after one of these delays, of which each
    is as likely as the others, and says nothing of the run."""
    return sum(share_by(forecast, deadline_s - one) for one in delays_s) / len(delays_s)


def share_by(forecast: Forecast, seconds: float) -> float:
    """The chance that the run is done by then: between the forecast's quantiles, on a line."""
    shares = (0.0, *QUANTILE_SHARES, 1.0)
    times = (forecast.earliest_s, *forecast.quantiles_s, forecast.latest_s)
    if seconds >= times[-1]:
        return 1.0
    for k in range(1, len(times)):
        if seconds < times[k]:
            if seconds < times[k - 1]:
                return shares[k - 1]
            part = (seconds - times[k - 1]) / (times[k] - times[k - 1])
            return shares[k - 1] + part * (shares[k] - shares[k - 1])
    return 1.0


def done_s(forecast: Forecast, delays_s: Sequence[float], share: float) -> float:
    """By when delay and run are over with this chance, to a second."""
    low, high = 0.0, forecast.latest_s + max(delays_s)
    while high - low > 1.0:
        middle = (low + high) / 2
        if surety_with(forecast, delays_s, middle) >= share:
            high = middle
        else:
            low = middle
    return high


def _is_known(choice: SiteChoice, wait: ExpectedWait) -> bool:
    return wait.is_known or choice.on != "slurm"  # the others have no queue


def _fewest(most: int, is_enough: Callable[[int], bool]) -> int:
    """The smallest number that is enough, if more never are less; else `most`."""
    low, high = 0, 1
    while high < most and not is_enough(high):
        low, high = high, min(most, 2 * high)
    while high - low > 1:
        middle = (low + high) // 2
        if is_enough(middle):
            high = middle
        else:
            low = middle
    return high


class PilotForecasts:
    """The run on so many pilots, each forecast once."""

    def __init__(self, graph: Graph, known: Before, order: PilotOrder) -> None:
        self._order = order
        self._forecaster = Forecaster(graph, self._machines(1), known.history)
        states = bytearray(len(graph))
        for task in known.reused:
            states[task] = DONE
        self._progress = Progress(time.time(), bytes(states))
        self._made: dict[int, Forecast] = {}

    def at(self, number: int) -> Forecast:
        if number not in self._made:
            self._forecaster.move_to(self._machines(number))
            self._made[number] = self._forecaster.what_if(self._progress, ())
        return self._made[number]

    def _machines(self, number: int) -> Together:
        shape = self._order.shape
        memory_bytes = shape.memory_bytes or 1 << 60
        return together(
            MachinePart(f"pilot-{k}", shape.cores, memory_bytes, shape.gpus, {})
            for k in range(number)
        )
