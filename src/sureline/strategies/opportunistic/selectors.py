"""Site selectors: what is known of the sites in, the chosen one out.

Each is a few lines, so that they can be compared; the paper's own is `Opportunistic`, as it was
printed and as mended. All see the same: only what was observed of earlier jobs, never a probe of a
site. Sites come in the order of their names, so that nothing depends on who joined first.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

import msgspec

from sureline.world.address import PeerName
from sureline.world.protocol import World


class SiteState(msgspec.Struct, frozen=True):
    """What is known of a site that could take the task."""

    name: PeerName
    processors: float
    submitted: int = 0
    ended: int = 0
    """By the user's settings: over the whole run or a window, with withdrawals counted or not."""
    waiting: int = 0
    running: int = 0
    held_bytes: int = 0
    """Of the task's inputs."""
    wait_s: float = 0.0
    """What jobs waited there lately, apart from what had to be brought."""
    move_s: float = 0.0
    """What it takes to bring the inputs that are not there."""
    takes_s: float = 0.0
    """What such a task took there, or elsewhere if none was seen there."""


class SiteQuestion(msgspec.Struct, frozen=True):
    """One question. There is at least one site."""

    sites: Sequence[SiteState]
    last_ended: PeerName | None = None
    """Where the last job ended."""
    turn: int = 0
    """How many were asked before."""


class Selector(Protocol):
    def choose(self, asked: SiteQuestion, world: World) -> PeerName: ...


def _ratio(site: SiteState) -> float:
    """With a prior, so that a site where nothing has ended is tried again."""
    return (site.ended + 1) / (site.submitted + 1)


class Opportunistic:
    """The most ended of what was submitted; while nothing has ended, the fewest submitted."""

    def choose(self, asked: SiteQuestion, world: World) -> PeerName:
        if not any(site.ended for site in asked.sites):
            return min(asked.sites, key=lambda site: site.submitted).name
        return max(asked.sites, key=lambda site: (_ratio(site), -site.submitted)).name


class Printed:
    """As in the paper's Fig. 4: only sites where something has ended compete, without a prior."""

    def choose(self, asked: SiteQuestion, world: World) -> PeerName:
        tried = [site for site in asked.sites if site.ended]
        if not tried:
            return min(asked.sites, key=lambda site: site.submitted).name
        return max(tried, key=lambda site: site.ended / max(1, site.submitted)).name


class WeightedRandom:
    """Sites with more processors get more."""

    def choose(self, asked: SiteQuestion, world: World) -> PeerName:
        weights = [site.processors for site in asked.sites]
        return world.random.choices(asked.sites, weights)[0].name


class AnySite:
    def choose(self, asked: SiteQuestion, world: World) -> PeerName:
        return world.random.choice(asked.sites).name


class RoundRobin:
    def choose(self, asked: SiteQuestion, world: World) -> PeerName:
        return asked.sites[asked.turn % len(asked.sites)].name


class LastUsed:
    """Where the last job ended; round robin before."""

    def choose(self, asked: SiteQuestion, world: World) -> PeerName:
        if any(site.name == asked.last_ended for site in asked.sites):
            assert asked.last_ended is not None
            return asked.last_ended
        return RoundRobin().choose(asked, world)


class DataPresent:
    """Where most of the inputs are, ties at random; weighted before any are anywhere."""

    def choose(self, asked: SiteQuestion, world: World) -> PeerName:
        most = max(site.held_bytes for site in asked.sites)
        if not most:
            return WeightedRandom().choose(asked, world)
        return world.random.choice([site for site in asked.sites if site.held_bytes == most]).name


class Thompson:
    """A draw from what the ratio may be, given what was seen; the highest draw wins."""

    def choose(self, asked: SiteQuestion, world: World) -> PeerName:
        def drawn(site: SiteState) -> float:
            return world.random.betavariate(1 + site.ended, 1 + max(0, site.submitted - site.ended))

        return max(asked.sites, key=drawn).name


class UpperBound:
    """The ratio, and what it may be at best: the less was tried, the more (UCB1)."""

    def choose(self, asked: SiteQuestion, world: World) -> PeerName:
        tried = sum(site.submitted for site in asked.sites)

        def bound(site: SiteState) -> float:
            return _ratio(site) + math.sqrt(2 * math.log(1 + tried) / (1 + site.submitted))

        return max(asked.sites, key=bound).name


class ByForecast:
    """Done earliest by what was learned: the wait there, behind those who wait already, what must
    be brought, and what such a task takes. Where nothing waited yet, a free processor is believed
    in."""

    def choose(self, asked: SiteQuestion, world: World) -> PeerName:
        def done_s(site: SiteState) -> float:
            over = max(0.0, site.waiting + site.running + 1 - site.processors)
            rounds = over / max(1.0, site.processors) + (1.0 if site.waiting else 0.0)
            return site.wait_s + site.move_s + rounds * site.takes_s + site.takes_s

        return min(asked.sites, key=lambda site: (done_s(site), site.submitted)).name


SELECTORS: Mapping[str, Callable[[], Selector]] = {
    "opportunistic": Opportunistic,
    "printed": Printed,
    "weighted-random": WeightedRandom,
    "round-robin": RoundRobin,
    "last-used": LastUsed,
    "data-present": DataPresent,
    "random": AnySite,
    "thompson": Thompson,
    "ucb": UpperBound,
    "forecast": ByForecast,
}
