"""What can be set, and the times that follow from it.

A peer that falls silent is noticed in four steps, whose times add up to less than `detect_s`:

    somebody's next probe of it is due    at most 2 probe_s (see `rota`)
    the probe finds no answer             ack_s
    nor do probes through others          ack_s
    nor does anything while suspected     suspicion_s

The rest, a twentieth, is for messages on their way.
"""

from __future__ import annotations

import msgspec

REPORT_S = 1.0
"""Between two reports of one member's load, in a small grid."""
SETTLE_S = 0.5
FEW = 100
PATIENT = 300
PATIENCE_MAX = 8
UNHURRIED = 300
SLOWER_MAX = 3.0
HURRY_FACTOR_MAX = 10.0


def settle_s(present: int) -> float:
    """Several who come or go at once are one change for what is built over the membership; the
    more there are, the longer it is waited for others to come: while a large grid grows, each
    would else greet one neighbour after the other, most of them not for long.

    >>> settle_s(60), settle_s(1500)
    (0.5, 7.5)
    """
    return SETTLE_S * min(max(1.0, present / FEW), 20.0)


class MembershipSettings(msgspec.Struct, frozen=True):
    """Raises ValueError if `detect_s` is too short for a peer to prove that it is alive."""

    probe_s: float = 1.0
    """Every member probes one other this often, in a grid of up to 300 (see `beat_s`)."""
    detect_s: float = 5.0
    """A stopped or cut-off member is declared dead by somebody within this time, in a grid of up to
    300 (see `patience`). One whose process has ended is noticed sooner."""
    helpers: int = 3
    """Through how many others a silent member is probed."""
    partners: int = 4
    """How many members, besides the next on the ring, are probed in turn for a while..."""
    partner_visits: int = 30
    """...before each is replaced by one not yet visited in this round. Few and slow changes keep
    the number of connections opened far below one per probe."""
    burst_s: float = 0.5
    """Fresh news is sent on at once, but not more often than this (see `hurry_s`)..."""
    fanout: int = 3
    """...and to so many."""
    sync_s: float = 10.0
    """How often the whole table is compared with somebody's..."""
    sync_quiet_s: float = 40.0
    """...and while nothing has changed for a while."""
    quiet_visits: int = 4
    """While there is no news, only every so many turns of the partners is taken: the next on the
    ring is probed all the same."""
    retry_gone_s: float = 10.0
    """How often one of the dead is tried again: that is how two halves find each other."""
    forget_s: float = 3600.0
    """How long the dead are remembered."""
    members_max: int = 20_000
    loads_per_s: float = 100.0
    """How many reports of load the whole grid makes in a second at most; each member takes its
    share, and never more than one."""
    loads_heard_per_s: float = 20_000.0
    """And how many are heard, all members together; each hears every report, two or three times."""

    def __post_init__(self) -> None:
        if self.probe_s <= 0 or self.suspicion_s < self.ack_s:
            raise ValueError(
                f"to notice a lost peer within {self.detect_s:g} s is too fast for one probe every "
                f"{self.probe_s:g} s: set detect_s to at least {3.1 * self.probe_s:g}"
            )

    @property
    def ack_s(self) -> float:
        """How long a probe waits for its answer."""
        return self.detect_s / 10

    @property
    def suspicion_s(self) -> float:
        """How long a suspected member may still answer, to anybody, before it is declared dead."""
        return 0.75 * self.detect_s - 2 * self.probe_s

    def hurry_s(self, present: int, *, gone: bool) -> float:
        """The least time between two messages sent for fresh news alone. That somebody is gone is
        urgent; when hundreds come one after another, each would be a message of its own.

        >>> settings = MembershipSettings()
        >>> [settings.hurry_s(n, gone=False) for n in (10, 100, 600, 1500)]
        [0.5, 0.5, 3.0, 5.0]
        """
        many = 1.0 if gone else min(max(1.0, present / FEW), HURRY_FACTOR_MAX)
        return self.burst_s * many

    def compare_s(self, present: int, *, differed: bool) -> float:
        """The least time to the next comparison of the table while there is news, or when the last
        one `differed`: to go through a large table takes long, and where many come at once all
        tables differ until they are there.

        >>> settings = MembershipSettings()
        >>> [settings.compare_s(n, differed=True) for n in (10, 100, 1500)]
        [1.0, 1.0, 15.0]
        >>> [settings.compare_s(n, differed=False) for n in (10, 100, 1500)]
        [10.0, 10.0, 40.0]
        """
        usual_s = self.probe_s if differed else self.sync_s
        return min(self.sync_quiet_s, usual_s * max(1.0, present / FEW))

    def beat_s(self, present: int) -> float:
        """Between two probes of one member. In a large grid a loss is found out slowly in any case
        (`patience`), and what each member does in every second is done by all.

        >>> settings = MembershipSettings()
        >>> [settings.beat_s(n) for n in (10, 300, 450, 1500, 20_000)]
        [1.0, 1.0, 1.5, 3.0, 3.0]
        """
        return self.probe_s * min(max(1.0, present / UNHURRIED), SLOWER_MAX)

    def patience(self, present: int) -> int:
        """For how many times of `ack_s` and `suspicion_s` is waited in a grid of so many where all
        is well. A false alarm costs each of them, and the more there are the more may be raised.

        >>> settings = MembershipSettings()
        >>> [settings.patience(n) for n in (10, 299, 300, 1500, 20_000)]
        [1, 1, 2, 6, 8]
        """
        return min(1 + present // PATIENT, PATIENCE_MAX)

    def report_s(self, present: int) -> float:
        """The least time between two reports of one member's load, in a grid of so many.

        >>> settings = MembershipSettings()
        >>> [settings.report_s(n) for n in (10, 200, 600, 1500)]
        [1.0, 2.0, 18.0, 112.5]
        """
        heard_s = present * present / self.loads_heard_per_s
        return max(REPORT_S, present / self.loads_per_s, heard_s)


RUMOUR_BYTES_PROBE = 1_200
"""What a probe or its answer carries about members at most..."""
RUMOUR_BYTES_BURST = 8_000
"""...and a message sent for the news alone."""
LOADS_PER_MESSAGE = 300
RECORDS_PER_PAGE = 128
OFFER_BYTES_MAX = 2_048
NODE_CHARS_MAX = 300
NUMBER_MAX = 1 << 53
"""Incarnations and sequences beyond this are nobody's: a peer that says so is not believed."""
LIFE_AHEAD_S = 86_400.0
"""Nor is a life that began later than this from now: clocks differ, but not by more. Without a
bound, somebody could say of another a life so late that no truth ever came after it."""
INQUIRIES_MAX = 8
ERRANDS_MAX = 64
RUMOURS_MAX = 256
"""That wait to be passed on. When very many come at once, each is known to nearly all long before
its last turn would come, and all probes would be full of it until then."""
GONE_MAX = 4_096
