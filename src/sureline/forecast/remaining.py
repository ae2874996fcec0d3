"""What is left of a task that runs: by how long it has run, and by what it says of its progress.

Without a report, the kernel conditions the known distribution on the elapsed time. With one, the
whole duration is projected, in one of two ways:

linear: elapsed / fraction. How far that may be off shrinks as the task gets on: a tenth of it says
little about the rest, nine tenths say nearly all. The projection and what is known of the kind are
weighed by their precisions, in logarithms.
restart: whatever it says, as much is left as a fresh attempt would take.
"""

from __future__ import annotations

import math
from typing import Literal

import numpy as np

from sureline.forecast.durations import Durations
from sureline.forecast.shape import Floats
from sureline.forecast.tables import NORMAL, QUANTILES

Projection = Literal["linear", "restart"]

SPREAD_AT_HALF = 0.3
"""The spread of the logarithm of the whole duration that a linear projection at one half has."""
FRACTION_MIN = 0.001
SECONDS_MIN = 1e-4
SPREAD_MIN = 0.01


def total_s(
    durations: Durations,
    task: int,
    elapsed_s: float,
    fraction: float,
    speed: float,
    projection: Projection,
) -> Floats:
    """Quantiles of a running task's whole duration; none is below the elapsed time."""
    known = (
        durations.offset_s[task] + durations.scale_s[task] * durations.tables[durations.form[task]]
    )
    known = np.maximum(known, SECONDS_MIN) / speed
    if projection == "restart":
        again: Floats = elapsed_s + known
        return again
    fraction = min(1.0, max(FRACTION_MIN, fraction))
    logs = np.log(known)
    own = max(SPREAD_MIN**2, float(logs.var()) + float(durations.shift[task]) ** 2)
    seen = max(SPREAD_MIN, SPREAD_AT_HALF * (1 - fraction) / fraction) ** 2
    projected = math.log(max(SECONDS_MIN, elapsed_s) / fraction)
    surprise = projected - float(logs.mean())
    own *= 1 + surprise**2 / (own + seen)  # the less they agree, the less the kind says of it
    share = own / (own + seen)
    middle = float(logs.mean()) + share * surprise
    spread = math.sqrt(own * (1 - share))
    return _beyond(middle, spread, elapsed_s)


def _beyond(middle: float, spread: float, elapsed_s: float) -> Floats:
    """Quantiles of a lognormal distribution, given that it is above the elapsed time."""
    shares = np.interp(np.log(max(SECONDS_MIN, elapsed_s)), middle + spread * NORMAL, QUANTILES)
    left = shares + (1 - shares) * QUANTILES
    found: Floats = np.exp(middle + spread * np.interp(left, QUANTILES, NORMAL))
    return np.maximum(found, elapsed_s)
