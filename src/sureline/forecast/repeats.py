"""What earlier runs say about the next one, for all kinds of a workflow together.

The model: log duration = what the kind takes + how the whole run is off (another machine, a busy
disk) + how the kind is off in that run (other data) + what is the task's own. A thousand tasks
average their own parts away, never what they have in common; so what is common must be drawn once
per simulated run, and drawn for all kinds together, as it was in the runs that were seen.

How a forecast draws it: every earlier run r left a vector of shifts, one per kind. A simulated run
takes a random mixture of these vectors, sum over r of normal(r) * shift(kind, r), stretched by a
draw that all kinds share. That is Student's distribution with the covariance of the earlier runs,
whatever it is: right on average for a chain of kinds as for one kind, for few runs as for many,
with nothing assumed about which kinds go together.

What must be estimated with care, or promises are not kept:
- Where a kind lay in a run. The mean of logarithms is a bad guide for durations that spread over
  two decades or end at a sharp edge. Of all power means, the one that varies least is used.
- How much of the differences between runs is chance. A kind with three wide tasks a run tells
  little about its own shifts, so it leans on what all kinds show together.
- Few runs. With fewer than RUNS_ENOUGH, shifts may be larger than those seen. They are then
  widened, and the forecast leans to the late side: it promises *at least*, not *about*.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import NormalDist
from typing import NamedTuple

import numpy as np

from sureline.forecast.own import sharpened
from sureline.forecast.shape import Floats, Ints
from sureline.journal.history import Observed

RUNS_ENOUGH = 8
RUNS_FEW = 2
"""Up to here what is unknown of the shifts counts in full; it is gone at RUNS_ENOUGH."""
SHIFT_UNKNOWN = 0.15
"""The spread (of logarithms) of runs around each other, as long as it is not known."""
LEAN = 0.15
"""How much later (in logarithms) a run is taken to be than the few that are known."""
LATEST_LEAST = 3
KIND_UNKNOWN = 0.1
"""The spread of a kind's own shifts, likewise."""
ENOUGH = 3
"""Fewer observations than this do not show their own spread."""
OBSERVED_FEW = {1: math.log(3) / 1.645, 2: math.log(2) / 1.645}
"""One observation: right within a factor of 3 at 90 %; two: of 2."""
COMMON_SHARE_OF_FEW = 0.75
"""How much of that variance is thought common to all tasks of the kind."""
DOUBT_MAX = 0.3
FREEDOM_MIN = 4.0
POWERS = (-8, -4, -2, -1, 1, 2, 4, 8)
VARIANCE_CLEAR = 0.01
"""A kind whose location in a run is known better than this weighs no more for it."""
VARIANCE_MIN = 1e-6
"""Kinds whose runs differ by less than this are constant: they tell nothing of the others."""
SECONDS_MIN = 1e-3
SHARE_MIN = 0.02
"""Durations below this share of the kind's mean are as good as this: many clocks count seconds."""


class Kind(NamedTuple):
    """What is known of one kind for the next run, in logarithms of seconds."""

    centre: float
    common: Floats
    """How it moves with each of `NextRun.sources`."""
    alone: float
    """The standard deviation of its shift beside that."""
    own: Floats
    """Residuals of single tasks, to be added to the above; at least one."""
    number: int
    """How many were seen; with fewer than ENOUGH an estimate of the user's is worth more."""


class NextRun(NamedTuple):
    """The next run: log duration = centre + stretch * sum(common * normals) + alone * normal + own.

    The normals of `common`, one for each of `sources`, are shared by all kinds of a simulated run,
    and so is the stretch, sqrt(freedom / chi-square with that many degrees of freedom)."""

    kinds: dict[str, Kind]
    sources: int
    freedom: float


class _Seen(NamedTuple):
    """One kind: logarithms of its durations in earlier runs, in which run each was, and those of
    the current run."""

    logs: Floats
    run: Ints
    now: Floats


class _Located(NamedTuple):
    """Where one kind lay in each earlier run, around its centre, and the variance of knowing it."""

    centre: float
    at: Floats
    tasks: Ints
    power: int
    variance: float
    """Of the location, for a single task; 0 if no run has two."""


def learn_together(
    history: Mapping[str, Sequence[Observed]],
    this_run_s: Mapping[str, Sequence[float]],
    run: str = "",
) -> NextRun:
    """From earlier runs and the current one, called `run`. Kinds never seen are left out."""
    names = [kind for kind in dict.fromkeys([*history, *this_run_s]) if kind]
    order: dict[str, int] = {}
    seen: dict[str, _Seen] = {}
    for name in names:
        found = _seen(history.get(name, ()), this_run_s.get(name, ()), run, order)
        if len(found.logs) or len(found.now):
            seen[name] = found
    runs = len(order)
    earlier = {name: one for name, one in seen.items() if len(one.logs)}
    located = {name: located_in_runs(one.logs, one.run, runs) for name, one in earlier.items()}
    shifts = _shifts(list(located.values()), runs)
    kinds = {
        name: _kind(one, _Shifts(*(of_all[place] for of_all in shifts)), earlier[name])
        for place, (name, one) in enumerate(located.items())
    }
    kinds = _conditioned(kinds, located, seen, runs)
    return NextRun(kinds, runs + 1, _freedom(runs))


def _freedom(runs: int) -> float:
    """Of Student's distribution. It would be runs - 1 for sums of logarithms. Durations are summed,
    though: where several kinds vary widely, the sum is less uncertain than they are, and so many
    would be too late. Twice as many is the middle, within 0.01 of the promise both ways."""
    known = 2 - float(unknown(np.array([runs]))[0])
    return max(FREEDOM_MIN, known * (runs - 1))


def _seen(
    history: Sequence[Observed], now_s: Sequence[float], run: str, order: dict[str, int]
) -> _Seen:
    earlier = [one for one in history if one.run != run or not now_s]
    seconds = np.array([one.elapsed_s for one in earlier], dtype=np.float64)
    now = np.array(now_s, dtype=np.float64)
    together = np.concatenate([seconds, now])
    least = max(SECONDS_MIN, SHARE_MIN * float(together.mean())) if len(together) else SECONDS_MIN
    numbers = [order.setdefault(one.run, len(order)) for one in earlier]
    return _Seen(
        np.log(np.maximum(seconds, least)),
        np.array(numbers, dtype=np.int64),
        np.log(np.maximum(now, least)),
    )


# -- where a kind lay in a run -----------------------------------------------------------------


def located_in_runs(logs: Floats, run: Ints, runs: int) -> _Located:
    """The location of a kind in each run by the power mean that varies least."""
    tasks = np.bincount(run, minlength=runs)
    used = int((tasks > 0).sum())
    power, variance = _steadiest(logs, run, tasks, used)
    at = _power_means(logs, run, tasks, power)
    centre = float(at[tasks > 0].mean())
    return _Located(centre, np.where(tasks > 0, at - centre, 0.0), tasks, power, variance)


def _steadiest(logs: Floats, run: Ints, tasks: Ints, used: int) -> tuple[int, float]:
    """The power whose mean varies least from run to run, and that variance for a single task.

    How a power mean varies within runs is seen best when runs are aligned by where they lay, which
    is what is sought: so it is done again with the power that was found."""
    power, variance = 0, 0.0
    if len(logs) <= used:
        return power, variance
    lost = len(logs) / (len(logs) - used)
    powers = [power for power in POWERS if abs(power) <= len(logs) / used / 2]
    for _ in range(ALIGNED_TIMES):
        own = logs - _power_means(logs, run, tasks, power)[run]
        before, (power, variance) = power, (0, float(own.var()) * lost)
        for other in powers:
            raised = np.exp(other * (own - own.mean()))
            unsteady = float(raised.var()) / float(raised.mean()) ** 2 * lost
            if unsteady < STEADY * len(logs) / used and unsteady / other**2 < variance:
                power, variance = other, unsteady / other**2
        if power == before:
            break
    return power, variance


ALIGNED_TIMES = 3
STEADY = 0.2
"""The variance, over the square of the mean, up to which the logarithm of a mean of powers follows
the mean. Beyond it, a run that happens to have none of the tasks that matter lies far away."""


def _power_means(logs: Floats, run: Ints, tasks: Ints, power: int) -> Floats:
    """log(mean(seconds ** power)) / power for each run; the mean of logarithms for power 0."""
    some = np.maximum(tasks, 1)
    if power == 0:
        means: Floats = np.bincount(run, logs, minlength=len(tasks)) / some
        return means
    middle = float(logs.mean())
    sums = np.bincount(run, np.exp(power * (logs - middle)), minlength=len(tasks)) / some
    found: Floats = np.log(np.maximum(sums, 1e-300)) / power + middle
    return found


# -- how runs differ ---------------------------------------------------------------------------


class _Shifts(NamedTuple):
    moves: Floats
    """[kind, source]: what a simulated run mixes. The last source is what is unknown."""
    shrunk: Floats
    """[kind, run]: the best guess of what each run's shift was."""
    missed: Floats
    """[kind, run]: the variance of what that guess is off."""
    pulled: Floats
    """[kind, run]: how far the guess follows where the kind lay in the run, 0 to 1."""


def _shifts(located: Sequence[_Located], runs: int) -> _Shifts:
    count = len(located)
    if not count:
        return _Shifts(np.zeros((0, runs + 1)), *(np.zeros((0, runs)) for _ in range(3)))
    at = np.array([one.at for one in located])
    tasks = np.array([one.tasks for one in located])
    noise = np.array([one.variance for one in located])[:, None] / np.maximum(tasks, 1)
    of_kind = (tasks > 0).sum(axis=1)
    total = (at**2).sum(axis=1) / np.maximum(of_kind - 1, 1)
    chance = np.where(tasks > 0, noise, 0.0).sum(axis=1) / np.maximum(of_kind, 1)
    between, of_run = _variances(at, total, chance, of_kind)
    alone = np.maximum(between - of_run, 0.0)[:, None]
    varies = np.maximum(alone + noise, VARIANCE_MIN)
    tells = (tasks > 0) & (total > VARIANCE_MIN)[:, None]
    weight = np.where(tells, 1 / varies, 0.0)
    follows = np.where(tells, alone / varies, 0.0)
    weights = weight.sum(axis=0)
    of_all = np.divide((at * weight).sum(axis=0), weights, out=np.zeros(runs), where=weights > 0)
    sure = of_run * weights / (1 + of_run * weights)
    shrunk = sure * of_all + follows * (at - sure * of_all)
    missed = follows * noise + (1 - follows) ** 2 * (1 - sure) * of_run
    pulled = follows + (1 - follows) * sure * weight / np.maximum(weights, VARIANCE_MIN)
    # Best guesses vary too little, and kinds by them are too much alike. What is mixed must vary as
    # the shifts do: what kinds share, and what each adds to it.
    some = np.maximum(weights, VARIANCE_MIN)
    true = (of_run + (weight**2 * alone).sum(axis=0) / some**2) / (of_run + 1 / some)
    drawn = np.sqrt(true) * of_all + np.sqrt(follows) * (at - of_all)
    for of_kinds in (shrunk, drawn):
        of_kinds[total <= VARIANCE_MIN] = 0.0
    spread = (drawn**2).sum(axis=1) / max(runs - 1, 1)
    scale = np.sqrt(np.divide(between, spread, out=np.zeros(count), where=spread > VARIANCE_MIN))
    moves = np.zeros((count, runs + 1))
    moves[:, :runs] = drawn * scale[:, None] * math.sqrt((1 + 1 / runs) / max(runs - 1, 1))
    moves[:, runs] = SHIFT_UNKNOWN * np.sqrt(unknown(of_kind))
    return _Shifts(moves, shrunk, missed, pulled)


def unknown(runs: Ints) -> Floats:
    """How much of what is not known of shifts still counts, given so many runs: 1 down to 0."""
    left: Floats = (RUNS_ENOUGH - runs) / (RUNS_ENOUGH - RUNS_FEW)
    return np.clip(left, 0.0, 1.0)


def _variances(at: Floats, total: Floats, chance: Floats, of_kind: Ints) -> tuple[Floats, float]:
    """Of each kind's shifts, and of the runs' that all kinds share."""
    raw = total - chance
    tells = (total > VARIANCE_MIN) & (of_kind > 1)
    if tells.sum() < 2:
        return np.maximum(raw, 0.0), 0.0
    doubt = VARIANCE_CLEAR + np.where(chance > 0, chance, total)
    weight = np.where(tells, doubt**-2.0, 0.0)
    pooled = max(0.0, float((weight * raw).sum() / weight.sum()))
    noise = 2 * (pooled + chance) ** 2 / np.maximum(of_kind - 1, 1)
    trust = np.where(chance > 0, pooled**2 / (pooled**2 + noise + VARIANCE_MIN**2), 1.0)
    between = np.maximum(np.where(tells, trust * raw + (1 - trust) * pooled, 0.0), 0.0)
    weight = np.where(tells, 1 / doubt, 0.0)
    weight /= weight.sum()
    joint = (weight[:, None] * at).sum(axis=0)
    of_joint = float((joint**2).sum()) / max(at.shape[1] - 1, 1)
    by_chance = float((weight**2 * total).sum())
    of_run = max(0.0, (of_joint - by_chance) / (1 - float((weight**2).sum())))
    return between, of_run


# -- one kind ----------------------------------------------------------------------------------


def _kind(located: _Located, shifts: _Shifts, seen: _Seen) -> Kind:
    """`shifts` has this kind's rows."""
    moves = shifts.moves
    runs = int((located.tasks > 0).sum())
    left = float(unknown(np.array([runs]))[0])
    centre = located.centre + LEAN * left
    alone = math.sqrt(left) * KIND_UNKNOWN
    if len(seen.logs) + len(seen.now) in OBSERVED_FEW:
        few = _kind_of_few(centre, moves, np.concatenate([seen.logs, seen.now]))
        return few._replace(number=len(seen.logs))
    if not located.variance:
        # a task a run: what is its own cannot be told from the run's shift, and counts as that
        return Kind(centre, moves, alone, np.zeros(1), len(seen.logs))
    own = _own(located, shifts, seen)
    # the mean of what is drawn must stay that of what was seen
    between = float(moves[:-1] @ moves[:-1])
    own += _log_mean(seen.logs - located.centre) - between / 2 - _log_mean(own)
    alone = math.hypot(alone, _doubt(own))
    centre += left * _late_by(own)
    return Kind(centre, moves, alone, own, len(seen.logs))


def _own(located: _Located, shifts: _Shifts, seen: _Seen) -> Floats:
    """What is the tasks' own: without the shifts of their runs as far as they are known, without
    the pull that each task had on where its run was thought to lie, and without the blur that is
    left by not knowing it exactly. Whole shifts will be drawn on top."""
    own = seen.logs - located.centre - shifts.shrunk[seen.run]
    pull = (shifts.pulled / np.maximum(located.tasks, 1))[seen.run]
    raised = np.exp(located.power * (own - own.mean()))
    own += pull * ((raised / raised.mean() - 1) / located.power if located.power else own)
    return sharpened(own, float(shifts.missed[seen.run].mean()))


def _log_mean(logs: Floats) -> float:
    """The logarithm of the mean of what these are logarithms of."""
    most = float(logs.max())
    return most + math.log(float(np.exp(logs - most).mean()))


LATE_MOST = 0.15
"""Two humps lie far apart, and yet not all tasks are late by that."""


def _late_by(own: Floats) -> float:
    """How far apart the largest ones lie: the last task of a run may be later by so much."""
    ranked = np.sort(own)
    top = min(len(ranked) - 1, max(LATEST_LEAST, math.isqrt(len(ranked))))
    return min(LATE_MOST, float((ranked[-top:] - ranked[-top - 1]).mean()))


def _doubt(own: Floats) -> float:
    """How far the mean of so many tasks may be off, as a share of it: where tasks are of two sorts,
    how many are of each is known less well than where the quicker ones lie."""
    seconds = np.exp(own - own.max())
    return min(DOUBT_MAX, float(seconds.std() / seconds.mean()) / math.sqrt(len(own)))


def _kind_of_few(centre: float, moves: Floats, logs: Floats) -> Kind:
    """One or two tasks ever seen: their spread is not known."""
    spread = OBSERVED_FEW[len(logs)] + float(logs.std())
    alone = spread * math.sqrt(COMMON_SHARE_OF_FEW)
    own = spread * math.sqrt(1 - COMMON_SHARE_OF_FEW)
    return Kind(centre, moves, alone, own * NORMAL_STEPS, len(logs))


NORMAL_STEPS: Floats = np.array([NormalDist().inv_cdf((n + 0.5) / 16) for n in range(16)])
"""The middles of 16 equal shares of the normal distribution."""


# -- what the current run has shown --------------------------------------------------------------


def _conditioned(
    kinds: Mapping[str, Kind], located: Mapping[str, _Located], seen: Mapping[str, _Seen], runs: int
) -> dict[str, Kind]:
    """The same, given the tasks of the current run that are done: they tell of their own kinds,
    and through what kinds have in common, of the others."""
    told = [name for name in kinds if len(seen[name].now)]
    found = dict(kinds)
    if told:
        moves = np.array([kinds[name].common for name in told])
        chance = np.array([_chance(located[name], kinds[name], seen[name].now) for name in told])
        varies = np.array([kinds[name].alone ** 2 for name in told]) + chance
        off = np.array([_power_mean(seen[name].now, located[name].power) for name in told])
        off -= np.array([kinds[name].centre for name in told])
        precision = np.eye(moves.shape[1]) + (moves / varies[:, None]).T @ moves
        spread = np.linalg.inv(precision)
        mean = spread @ (moves / varies[:, None]).T @ off
        root = np.linalg.cholesky((spread + spread.T) / 2)
        for name, kind in kinds.items():
            moved = kind._replace(
                centre=kind.centre + float(kind.common @ mean), common=kind.common @ root
            )
            found[name] = moved
        for place, name in enumerate(told):
            rest = off[place] - float(moves[place] @ mean)
            found[name] = _told(found[name], rest, float(chance[place]), seen[name].now)
    for name, one in seen.items():
        if name not in found:
            found[name] = _only_now(one.now, runs + 1)
    return found


def _power_mean(logs: Floats, power: int) -> float:
    one = np.zeros(len(logs), dtype=np.int64)
    return float(_power_means(logs, one, np.array([len(logs)]), power)[0])


def _chance(located: _Located, kind: Kind, now: Floats) -> float:
    """The variance of a kind's location in the current run, given so many of its tasks. Where runs
    had one task each, what is a task's own is not known: it may be all there is."""
    own = located.variance or float(kind.common @ kind.common) + kind.alone**2
    return max(own, VARIANCE_MIN) / len(now)


def _told(kind: Kind, rest: float, chance: float, now: Floats) -> Kind:
    alone = kind.alone**2
    share = alone / (alone + chance)
    centre = kind.centre + share * rest
    number = kind.number + len(now)
    own = kind.own
    if kind.number >= ENOUGH and len(own) > 1:
        own = np.concatenate([own, now - centre])
    return kind._replace(centre=centre, alone=math.sqrt(share * chance), own=own, number=number)


def _only_now(now: Floats, sources: int) -> Kind:
    centre, moves = float(now.mean()), np.zeros(sources)
    if len(now) in OBSERVED_FEW:
        return _kind_of_few(centre, moves, now)
    own = (now - centre) * math.sqrt(len(now) / (len(now) - 1))
    return Kind(centre, moves, float(own.std()) / math.sqrt(len(now)), own, len(now))
