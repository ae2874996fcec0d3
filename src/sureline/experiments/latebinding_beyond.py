"""What the paper on late-binding overlays leaves open, or does not have: completions told in bulk,
how soon a changed priority counts, a queue that is gone for minutes, broadcasts while pilots come
and go.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from sureline.experiments.drive import run_scenario
from sureline.experiments.latebinding_sites import BEGIN_S, Testbed
from sureline.experiments.scenario_reader import read_scenario

BULKS_S = (0.25, 1.0, 2.0, 5.0, 10.0, 20.0, 40.0, 80.0)
BULK_PILOTS = 100
OUTAGE = (200.0, 180.0)
CHANGED_S = 300.0
BROADCASTS = 20
_CAST = ("kademlia.cast", "kademlia.taken", "kademlia.reply")
_CHURN = """
name = "broadcasts"
duration = "30min"
[grid]
machines = {pilots}
starts_within = "30s"
[network]
delay = "lognormal(20ms, 0.5)"
[workload]
kind = "broadcasts"
count = {count}
begin = "2min"
every = "20s"
[[faults.random]]
what = "crash"
from = "1min"
per_minute = {churn}
for = "exponential(1min)"
"""


class BulkPoint(msgspec.Struct, frozen=True):
    """Completions told to the queue together, so many seconds apart, while pilots are free."""

    interval_s: float
    dependent_delay_s: float
    """From the end of a task to the beginning of the one that waits for it."""
    requests_per_job: float
    turnaround_s: float


class PriorityEffect(msgspec.Struct, frozen=True):
    """Two runs of one user share the pilots; then one gets a higher priority, and has many tasks
    that could begin."""

    pilots: int
    first_s: float
    """So long after the change its first task was placed,"""
    others_s: float
    """and the last one of the other run, before a fifth as many of its own as there are pilots."""


class Outage(msgspec.Struct, frozen=True):
    """A run whose queue was gone for a while, beside one whose queue was not."""

    gone_s: float
    done: int
    tasks: int
    turnaround_s: float
    undisturbed_s: float


class ChurnCast(msgspec.Struct, frozen=True):
    """Broadcasts over the hash table of a site while pilots crash and come back."""

    pilots: int
    churn_per_minute: float
    reached: float
    """Share of the pilots that were there."""
    messages_per_node: float
    """Of one broadcast, all kinds of messages that it causes."""
    median_s: float
    worst_s: float


def bulk_curve(seed: int, intervals_s: Sequence[float] = BULKS_S) -> list[BulkPoint]:
    """Each of the second tasks could begin at once: there is a pilot for each."""
    points = []
    for interval_s in intervals_s:
        tasks = 2 * BULK_PILOTS
        run = Testbed("event", "serial", BULK_PILOTS, tasks, seed, bulk_s=interval_s).run()
        delay_s, per_job = round(run.dependent_delay_s, 3), round(run.requests / run.tasks, 3)
        points.append(BulkPoint(interval_s, delay_s, per_job, round(run.turnaround_s, 1)))
    return points


def priority_effect(pilots: int, seed: int) -> PriorityEffect:
    bed = Testbed("event", "serial", pilots, 4 * pilots, seed, runs=2)
    raised, other = bed.engines[1], bed.engines[0]
    changed_s = BEGIN_S + CHANGED_S
    bed.sim.at(changed_s, lambda: bed.set_priority(raised.run, 10))
    bed.run()
    after = sorted(s for s in raised.bound_s if s > changed_s)[: pilots // 5]
    others = [s for s in other.bound_s if changed_s < s < after[-1]]
    others_s = max(others, default=changed_s) - changed_s
    return PriorityEffect(pilots, round(after[0] - changed_s, 3), round(others_s, 3))


def outage(pilots: int, tasks: int, seed: int) -> Outage:
    calm = Testbed("event", "serial", pilots, tasks, seed).run()
    hit = Testbed("event", "serial", pilots, tasks, seed, outage=OUTAGE).run()
    return Outage(OUTAGE[1], hit.done, tasks, hit.turnaround_s, calm.turnaround_s)


def broadcasts(pilots: int, churn: float, seed: int) -> ChurnCast:
    text = _CHURN.format(pilots=pilots, churn=churn, count=BROADCASTS)
    found = run_scenario(read_scenario(text.encode(), file="broadcasts.toml", beside=None), seed)
    assert found.protocol is not None
    sent = sum(found.traffic.by_type.get(kind, (0, 0))[0] for kind in _CAST)
    per_node = sent / BROADCASTS / pilots
    how = found.protocol
    return ChurnCast(
        pilots, churn, round(how.share, 5), round(per_node, 2), how.median_s, how.worst_s
    )
