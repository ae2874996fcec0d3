"""Finding out whether a member is there.

An inquiry goes through these stages; any sign of life ends it:

    stage     entered                                  what is tried           left after
    direct    a probe is due                           one probe               ack_s -> helped
    helped    no answer, or nobody listens there       a probe, and probes     ack_s -> suspect
                                                       through others
    suspect   no answer to those either: it is told    a probe, and two        suspicion_s -> dead
              to all, and it may contradict            through others, every
                                                       ack_s

A crash is quicker: if nobody listens there, twice, and all whom this node asked found the same,
the member is dead at once. One broken connection proves nothing. Of one that only some can reach
nobody asks again for a while after somebody vouched for it: those who are asked find that they
cannot reach it either, and would ask in turn, without end.

A node must not blame others for its own slowness, nor make it worse by asking more. Timers that
come late, answers that take more than half of their time, and helpers that all keep silent are
signs that the fault is here: what was concluded from silence is tried again, and for a while this
node waits longer for everybody and looks into less at a time (`Health`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from sureline.overlay.membership.knowledge import Knowledge
from sureline.overlay.membership.messages import Load, MemberRecord, Probe, ProbeFor, Vouch
from sureline.overlay.membership.settings import (
    ERRANDS_MAX,
    INQUIRIES_MAX,
    LOADS_PER_MESSAGE,
    RUMOUR_BYTES_PROBE,
    MembershipSettings,
)
from sureline.world.address import Node, PeerName, at, name_of, node_of
from sureline.world.protocol import AgentId, Message, Timer, World

PART = "membership"
INSIST_HELPERS = 2
"""Through how many others a suspect is probed every time."""
LATE = 5
"""A timer that comes later than this part of the time to answer is a sign of trouble."""


class Health:
    """How far this node trusts its own ears: `patience` is 1 when all is well, more when it should
    wait longer."""

    WORST = 7
    QUIET_BEATS = 5

    def __init__(self, slack_s: float) -> None:
        self._slack_s = slack_s
        self._quiet_beats = 0
        self.score = 0

    @property
    def patience(self) -> int:
        return 1 + self.score

    def fewer(self, most: int) -> int:
        """How much of something that can wait is passed on, of so much where all is well."""
        return most >> 2 * self.score

    def is_late(self, due: float, now: float) -> bool:
        """Whether a timer came so late that this process has no time, or stood still."""
        return now - due > self._slack_s

    def worse(self) -> None:
        self._quiet_beats = 0
        self.score = min(self.WORST, self.score + 1)

    def beat(self) -> None:
        """A period is over; some in a row without trouble make it better."""
        self._quiet_beats += 1
        if self._quiet_beats >= self.QUIET_BEATS:
            self._quiet_beats = 0
            self.score = max(0, self.score - 1)


class Inquiry:
    """One member under inquiry, in the life and incarnation it had when the inquiry began."""

    __slots__ = (
        "about",
        "asked_at",
        "helpers",
        "name",
        "numbers",
        "on_ring",
        "refusals",
        "stage",
        "suspect_until",
        "timer",
    )

    def __init__(self, name: PeerName, about: MemberRecord, on_ring: bool) -> None:
        self.name = name
        self.about = about
        self.on_ring = on_ring
        self.asked_at = 0.0
        self.numbers: list[int] = []
        """Of the probes sent for it."""
        self.stage: Literal["direct", "helped", "suspect"] = "direct"
        self.refusals = 0
        """How often the world said that nobody listens there."""
        self.helpers: dict[Node, Literal["asked", "refused", "silent"]] = {}
        self.suspect_until = 0.0
        self.timer: Timer | None = None


class Errand:
    __slots__ = ("asker", "name", "node", "number", "timer")

    def __init__(self, asker: AgentId, number: int, name: PeerName, node: Node) -> None:
        self.asker = asker
        self.number = number
        self.name = name
        self.node = node
        self.timer: Timer | None = None


class Inquiries:
    """Probes members, and probes for others. `news` gives the version to mention in probes;
    `on_silence` is called when the next on the ring does not answer at once."""

    def __init__(
        self,
        world: World,
        settings: MembershipSettings,
        knowledge: Knowledge,
        news: Callable[[], int],
    ) -> None:
        self.world = world
        self.settings = settings
        self.knowledge = knowledge
        self.health = Health(settings.ack_s / LATE)
        self.on_silence: Callable[[PeerName], None] = lambda name: None
        self.near: Callable[[int], list[PeerName]] = lambda most: []
        """Names of some members that this node talks to anyway."""
        self._news = news
        self._number = 0
        self._open: dict[PeerName, Inquiry] = {}
        self._asked: dict[int, Inquiry] = {}
        self._errands: dict[int, Errand] = {}
        self._vouched_at: dict[PeerName, float] = {}
        """When others have last vouched for one that this node did not reach."""

    # -- this node's own inquiries --------------------------------------------------------------

    @property
    def _patience(self) -> int:
        least = self.settings.patience(len(self.knowledge.table.ring))
        return max(least, self.health.patience)

    @property
    def _patient_s(self) -> float:
        """How long an answer may take for now."""
        return self.settings.ack_s * self._patience

    def is_open(self, name: PeerName) -> bool:
        return name in self._open

    def begin(self, name: PeerName, *, on_ring: bool = False) -> None:
        """Probe a member that is present, unless it is under inquiry or too many are."""
        inquiry = self._open_for(name, on_ring)
        if inquiry is not None:
            self._try_directly(inquiry)

    def unreachable(self, node: Node) -> None:
        """The world says that nobody listens at this node."""
        for number, errand in list(self._errands.items()):
            if errand.node == node:
                self._end_errand(number, "refused", None)
        name = name_of(node)
        record = self.knowledge.table.records.get(name)
        for helped in list(self._open.values()):
            if node in helped.helpers:
                del helped.helpers[node]
                self._weigh(helped)
        if record is None or record.node != node or not record.present:
            return
        inquiry = self._open.get(name)
        if inquiry is None and not self._was_vouched_for(name):
            inquiry = self._open_for(name, False)
        if inquiry is None:
            return
        inquiry.refusals += 1
        if inquiry.stage == "direct":
            self._ask_helpers(inquiry)
        else:
            self._weigh(inquiry)

    def answered(self, number: int) -> None:
        """An answer to a probe of this node, or to one that it sent on an errand."""
        inquiry = self._asked.get(number)
        if inquiry is not None:
            took_s = self.world.elapsed() - inquiry.asked_at
            if number == inquiry.numbers[0] and took_s > self._patient_s / 2:
                self.health.worse()  # not lost, but late, or nearly so
            self._close(inquiry)
        elif number in self._errands:
            record = self.knowledge.table.records.get(self._errands[number].name)
            self._end_errand(number, "answered", record)

    def vouched(self, helper: Node, vouch: Vouch) -> None:
        inquiry = self._asked.get(vouch.number)
        if inquiry is None:
            return
        if vouch.outcome == "answered":
            self._vouched_at[inquiry.name] = self.world.elapsed()
            self._close(inquiry)
        elif helper in inquiry.helpers:
            inquiry.helpers[helper] = vouch.outcome
            self._weigh(inquiry)

    def _was_vouched_for(self, name: PeerName) -> bool:
        recently = self.world.elapsed() - self.settings.probe_s
        for old in [one for one, at_s in self._vouched_at.items() if at_s <= recently]:
            del self._vouched_at[old]
        return name in self._vouched_at

    def begin_again(self) -> None:
        """This process stood still: whatever silence it noticed may be its own. Nothing is asked
        again: the answers are under way, or here and not read yet, and who is always late would
        ask everybody twice."""
        for inquiry in list(self._open.values()):
            self._restart(inquiry)

    def stop(self) -> None:
        for inquiry in list(self._open.values()):
            self._close(inquiry)
        for errand in self._errands.values():
            if errand.timer is not None:
                errand.timer.cancel()
        self._errands.clear()

    def _open_for(self, name: PeerName, on_ring: bool) -> Inquiry | None:
        if name in self._open or len(self._open) >= INQUIRIES_MAX // self.health.patience:
            return None
        inquiry = Inquiry(name, self.knowledge.table.records[name], on_ring)
        self._open[name] = inquiry
        return inquiry

    def _close(self, inquiry: Inquiry) -> None:
        self._open.pop(inquiry.name, None)
        self._forget_numbers(inquiry)
        if inquiry.timer is not None:
            inquiry.timer.cancel()

    def _forget_numbers(self, inquiry: Inquiry) -> None:
        for number in inquiry.numbers:
            del self._asked[number]
        inquiry.numbers = []

    def _restart(self, inquiry: Inquiry) -> None:
        inquiry.stage = "direct"
        inquiry.refusals = 0
        inquiry.helpers = {}
        self._wait(inquiry, self._patient_s)

    def _try_directly(self, inquiry: Inquiry) -> None:
        inquiry.asked_at = self.world.elapsed()
        self._send_probe(inquiry.about, self._next_number(inquiry))
        self._wait(inquiry, self._patient_s)

    def _ask_helpers(self, inquiry: Inquiry) -> None:
        inquiry.stage = "helped"
        self._ask_again(inquiry, self.settings.helpers)
        self._wait(inquiry, self._patient_s)
        if inquiry.on_ring:
            self.on_silence(inquiry.name)

    def _ask_again(self, inquiry: Inquiry, helpers: int) -> None:
        number = self._next_number(inquiry)
        self._send_probe(inquiry.about, number)
        inquiry.helpers = dict.fromkeys(self._choose_helpers(inquiry.name, helpers), "asked")
        for helper in inquiry.helpers:
            self.world.send(at(helper, PART), ProbeFor(number, inquiry.about.brief()))

    def _choose_helpers(self, name: PeerName, most: int) -> list[Node]:
        """Nodes of members that seem well. Those near, to whom there is a connection already."""
        records = self.knowledge.table.records
        well = [
            records[drawn].node
            for drawn in self.near(2 * most + 2)
            if drawn != name and drawn not in self._open and records[drawn].state == "alive"
        ]
        return well[:most]

    def _wait(self, inquiry: Inquiry, seconds: float) -> None:
        if inquiry.timer is not None:
            inquiry.timer.cancel()
        due = self.world.elapsed() + seconds
        inquiry.timer = self.world.after(seconds, lambda: self._silence(inquiry, due))

    def _silence(self, inquiry: Inquiry, due: float) -> None:
        """Nothing was heard for as long as this stage lasts."""
        if self._open.get(inquiry.name) is not inquiry:
            return
        if self.health.is_late(due, self.world.elapsed()):
            self.health.worse()
            self._restart(inquiry)
            return
        record = self.knowledge.table.records.get(inquiry.name)
        about = inquiry.about
        if (
            record is None
            or not record.present
            or (record.life, record.incarnation) != (about.life, about.incarnation)
        ):
            self._close(inquiry)  # it contradicted, started again, or others were quicker
        elif inquiry.stage == "direct":
            self._ask_helpers(inquiry)
        elif inquiry.stage == "helped":
            self._suspect(inquiry)
        elif self.world.elapsed() < inquiry.suspect_until - 0.1 * self.settings.ack_s:
            self._insist(inquiry)
        else:
            self._declare_dead(inquiry)

    def _suspect(self, inquiry: Inquiry) -> None:
        if inquiry.helpers and all(word == "asked" for word in inquiry.helpers.values()):
            self.health.worse()  # not even the helpers answer: perhaps nobody hears this node
        about = inquiry.about
        inquiry.stage = "suspect"
        suspicion_s = self.settings.suspicion_s * self._patience
        inquiry.suspect_until = self.world.elapsed() + suspicion_s
        self.knowledge.declare(inquiry.name, about.life, about.incarnation, "suspect")
        inquiry.about = self.knowledge.table.records[inquiry.name]
        self._insist(inquiry)

    def _insist(self, inquiry: Inquiry) -> None:
        self._ask_again(inquiry, INSIST_HELPERS)
        left_s = inquiry.suspect_until - self.world.elapsed()
        self._wait(inquiry, max(0.0, min(self._patient_s, left_s)))

    def _weigh(self, inquiry: Inquiry) -> None:
        """Dead at once if nobody listens there, by all accounts."""
        words = inquiry.helpers.values()
        if inquiry.refusals < 2 or any(word != "refused" for word in words):
            return
        if words or self.knowledge.others_present() == 1:
            self._declare_dead(inquiry)

    def _declare_dead(self, inquiry: Inquiry) -> None:
        about = inquiry.about
        self._close(inquiry)
        self.knowledge.declare(inquiry.name, about.life, about.incarnation, "dead")

    # -- errands for others ---------------------------------------------------------------------

    def run_errand(self, asker: AgentId, request: ProbeFor) -> None:
        """Probe somebody for another node, and say what came of it."""
        if len(self._errands) >= ERRANDS_MAX:
            return
        node = request.about.node
        self._number += 1
        number = self._number
        errand = Errand(asker, request.number, name_of(node), node)
        self._errands[number] = errand
        self._send_probe(request.about, number)
        errand.timer = self.world.after(
            0.8 * self._patient_s, lambda: self._end_errand(number, "silent", None)
        )

    def _end_errand(
        self,
        number: int,
        outcome: Literal["answered", "refused", "silent"],
        record: MemberRecord | None,
    ) -> None:
        errand = self._errands.pop(number, None)
        if errand is None:
            return
        if errand.timer is not None:
            errand.timer.cancel()
        said = record.brief() if record is not None else None
        self._send(node_of(errand.asker), Vouch(errand.number, outcome, said))

    # -- probes ---------------------------------------------------------------------------------

    def send_probe_to(self, record: MemberRecord) -> None:
        """A probe that nobody waits for; the answer speaks for itself."""
        self._number += 1
        self._send_probe(record, self._number)

    def _next_number(self, inquiry: Inquiry) -> int:
        self._number += 1
        self._asked[self._number] = inquiry
        inquiry.numbers.append(self._number)
        return self._number

    def take_loads(self) -> tuple[Load, ...]:
        """For the next message; few where there is no time."""
        return self.knowledge.take_loads(self.health.fewer(LOADS_PER_MESSAGE))

    def _send_probe(self, about: MemberRecord, number: int) -> None:
        own = self.knowledge.own
        probe = Probe(
            news=self._news(),
            rumours=self.knowledge.take_rumours(RUMOUR_BYTES_PROBE),
            loads=self.take_loads(),
            number=number,
            life=own.life if own is not None else 0,
            about_life=about.life,
            about_incarnation=about.incarnation,
            about_state=about.state,
        )
        self._send(about.node, probe)

    def _send(self, node: Node, message: Message) -> None:
        self.world.send(at(node, PART), message)
