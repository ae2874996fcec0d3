"""How far a provider's promises can be believed, by how it kept them in this run.

The factor multiplies the durations that a provider bids. It is the geometric mean of what its
attempts took, as a multiple of what was expected, drawn towards the factor of its site as if half
an attempt more had taken that; attempts that it broke off count as ones that took BROKEN times as
long. The factor of a site is the same of all attempts at its providers, drawn towards 1 as if two
more had taken exactly what was expected: machines of one owner are alike.

At first a provider is believed to have the lanes that it says it has. Once one of them was caught
(an attempt took CAUGHT times what was expected), whoever takes more than it can do may be one of
many, and each is believed only for twice as many tasks at once as it has done in time, or for
LANES_SHARE of what it says if that is more.
"""

from __future__ import annotations

import math

from sureline.world.address import PeerName

PRIOR = 0.5
SITE_PRIOR = 2.0
BROKEN = 4.0
RATIO_MAX = 20.0
CAUGHT = 2.0
KEPT = 1.5
"""A promise was kept by an attempt that took no more than so many times what was expected."""
LANES_SHARE = 0.25
LANES_MIN = 2


class ProviderTrust:
    def __init__(self) -> None:
        self._logs: dict[str, tuple[float, int]] = {}
        self._site_logs: dict[str, tuple[float, int]] = {}
        self._site_of: dict[str, str] = {}
        self._proven: dict[str, int] = {}
        """The most of our tasks that a provider had at once when it kept a promise."""
        self._cautious = False

    def factor(self, provider: PeerName) -> float:
        total, count = self._logs.get(provider, (0.0, 0))
        of_site, in_site = self._site_logs.get(self._site_of.get(provider, ""), (0.0, 0))
        usual = of_site / (in_site + SITE_PRIOR)
        return math.exp((total + PRIOR * usual) / (count + PRIOR))

    def at_site(self, provider: PeerName, site: str) -> None:
        """Where it is; '' if that is not known."""
        self._site_of[provider] = site

    def lanes(self, provider: PeerName, claimed: int) -> int:
        """How many tasks at once it can be believed to do."""
        if not self._cautious:
            return claimed
        proven = 2 * self._proven.get(provider, 0)
        return min(claimed, max(LANES_MIN, proven, int(LANES_SHARE * claimed)))

    def caught(self) -> None:
        """A provider did not do what it said."""
        self._cautious = True

    def kept(self, provider: PeerName, expected_s: float, took_s: float, at_once: int = 1) -> None:
        """An attempt is over; the provider had `at_once` of ours then."""
        ratio = took_s / max(1e-3, expected_s)
        if ratio <= KEPT:
            self._proven[provider] = max(at_once, self._proven.get(provider, 0))
        elif ratio >= CAUGHT:
            self.caught()
        self._note(provider, min(RATIO_MAX, max(1 / RATIO_MAX, ratio)))

    def broke(self, provider: PeerName) -> None:
        self._note(provider, BROKEN)

    def _note(self, provider: PeerName, ratio: float) -> None:
        total, count = self._logs.get(provider, (0.0, 0))
        self._logs[provider] = (total + math.log(ratio), count + 1)
        site = self._site_of.get(provider, "")
        if site:
            total, count = self._site_logs.get(site, (0.0, 0))
            self._site_logs[site] = (total + math.log(ratio), count + 1)
