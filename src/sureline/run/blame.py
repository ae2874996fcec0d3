"""What follows when a peer is refuted or declines: it is set aside, and the user is told.

Who is to blame shows in the `course` of tasks. How long it is set aside is said by `standing`, and
what becomes of its attempts by `contact`.
"""

from __future__ import annotations

from collections.abc import Callable

from sureline.journal.words import duration
from sureline.run.contact import Contact
from sureline.run.standing import Aside, PeerStanding
from sureline.world.address import PeerName
from sureline.world.protocol import World


class Blame:
    def __init__(
        self, world: World, standing: PeerStanding, contact: Contact, tell: Callable[[str], None]
    ) -> None:
        self._world = world
        self._standing = standing
        self._contact = contact
        self._tell = tell

    def tell_of_earlier_runs(self) -> None:
        """Name those that are set aside from the outset."""
        for peer, strikes in self._standing.known.items():
            pause_s = self._standing.aside_s(peer, self._world.elapsed())
            self._tell(f"{peer} gets nothing for {duration(pause_s)}: earlier, {strikes.reason}")

    def refuted(self, peer: PeerName, reason: str) -> None:
        """What it said is not so; `reason` says what, in words that go on after 'it'."""
        self._set_aside(peer, self._standing.refuted(peer, reason, self._world.elapsed()))

    def declined(self, peer: PeerName, reason: str) -> None:
        """It would not have a task, or cannot do it."""
        self._set_aside(peer, self._standing.declined(peer, reason, self._world.elapsed()))

    def is_heard(self, peer: PeerName) -> bool:
        """Whether what it says counts: it is not set aside for what it said."""
        return self._standing.is_heard(peer, self._world.elapsed())

    def delivered(self, peer: PeerName) -> None:
        """A result of its was taken."""
        self._standing.delivered(peer)

    def outrun(self, peer: PeerName, by: PeerName, task: str) -> None:
        """It began a task, which should have been done long ago, and another has done it now."""
        if self._standing.outrun(peer, by):
            self.refuted(peer, f"it began {task} and others, and did not finish what others did")

    def _set_aside(self, peer: PeerName, aside: Aside | None) -> None:
        if aside is None:
            return
        self._contact.set_aside(peer, aside)
        self._tell(f"{peer} is set aside for {duration(aside.pause_s)}: {aside.reason}")
