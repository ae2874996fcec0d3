"""What a run is told from outside: how to behave, to end early, and what was done before."""

from __future__ import annotations

from typing import ClassVar

import msgspec

from sureline.journal.events import Noted, TaskEnded, Unknown
from sureline.run.standing import Strikes
from sureline.run.warrants import Given
from sureline.workflow.terms import SURETY_WANTED, Terms
from sureline.world.address import PeerName
from sureline.world.protocol import Message

TAKEOVER_AFTER_S = 30.0


class Options(msgspec.Struct, frozen=True, omit_defaults=True):
    """How a run behaves. All of it is kept in the journal, so that `resume` behaves alike."""

    fresh: bool = False
    """Run every task, whatever past results there are."""
    stop_on_failure: bool = False
    """After a task failed for good, start nothing more."""
    retry_delay_s: float = 1.0
    """Before the first retry; doubles with each, with jitter."""
    verify: bool = False
    """Hash the stored files of committed tasks again before relying on them."""
    grid: str = ""
    """The grid whose peers run the tasks; '' for this machine."""
    sites: str = ""
    """The sites of the user's catalog that run the tasks, with commas; '' for this machine."""
    strategy: str = ""
    """Which one decides where tasks go; '' for the usual one (`strategies.usual`)."""
    settings: dict[str, bool | float | str] = {}
    """What was set of it."""
    deadline_at: float | None = None
    """When the run is to be done, in seconds since the epoch."""
    budget: float | None = None
    """What it may cost; None for no limit."""
    surety: float = SURETY_WANTED
    """The chance of being done by the deadline below which something is done about it."""
    repair: bool = True
    """Whether anything is done about it."""
    anyway: bool = False
    """Begin although no plan meets the terms."""
    takeover_after_s: float = TAKEOVER_AFTER_S
    """On a grid: when its writer has been silent for so long, a peer takes the run over; 0 for
    never."""
    overwrite: bool = False
    """Replace files of the user's that no run here made."""
    trust: bool = False
    """Read what calls on a grid return as if it had been made here, though it can run code."""
    pilots: str = ""
    """On a grid of the run's own: what is to be started for it, a `sites.order.PilotOrder` as
    JSON."""

    @property
    def terms(self) -> Terms:
        return Terms(self.deadline_at, self.budget, self.surety)


class CancelRun(Message, frozen=True, tag="run.cancel"):
    """End the run early. `drain`: what runs may finish. `force`: kill at once."""

    needs_role: ClassVar[str] = "submit"

    drain: bool = False
    force: bool = False
    reason: str = ""


class Past(msgspec.Struct):
    """What an earlier process already did for this run, read from its journal."""

    committed: dict[str, TaskEnded] = {}
    attempts: dict[str, int] = {}
    noted: tuple[Noted | Unknown, ...] = ()
    """What its strategy noted, in order; also what is not known here, which a strategy may."""
    seals: dict[Given, bytes] = {}
    """On a grid: of what was given to peers and has no result."""
    strikes: dict[PeerName, Strikes] = {}
    """Of peers that were refuted in earlier runs."""
