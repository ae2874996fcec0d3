"""Whether a run on a grid would go on if the machine that it was submitted on were switched off."""

from __future__ import annotations

from collections.abc import Iterable

from sureline.journal.events import AnyEvent, Entrusted, RunEnded, Submitted, Voters
from sureline.journal.words import counted, size


class Away:
    """Folded from a run's events, in order."""

    def __init__(self, events: Iterable[AnyEvent] = ()) -> None:
        self.on_grid = False
        self.is_taken_over = True
        self._voters: tuple[str, ...] = ()
        self.entrusted: Entrusted | None = None
        self.is_over = False
        for event in events:
            self.apply(event)

    def apply(self, event: AnyEvent) -> None:
        match event:
            case Submitted(options=options):
                self.on_grid = bool(options.get("grid"))
                self.is_taken_over = options.get("takeover_after_s", 1.0) != 0
            case Voters(voters=voters):
                self._voters = voters
            case Entrusted():
                self.entrusted = event
            case RunEnded():
                self.is_over = True
            case _:
                self.is_over = False

    @property
    def is_settled(self) -> bool:
        """Whether waiting would change nothing."""
        never = not self.on_grid or not self.is_taken_over
        whole = self.entrusted is not None and self.entrusted.whole
        return never or self.is_over or (whole and self._is_kept)

    @property
    def _is_kept(self) -> bool:
        """Whether a majority of those who say who may write it is elsewhere."""
        others = [voter for voter in self._voters if not voter.startswith("~")]
        return 2 * len(others) > len(self._voters)

    def why_stay(self) -> str:
        """Why the machine is needed, in one sentence; '' if it is not."""
        there = self.entrusted
        if not self.is_taken_over:
            return "nobody may go on with it (--takeover-after never)"
        if there is None:
            return "nothing of it is on the grid yet"
        if not there.whole:
            return (
                f"{there.files} of {counted(there.of_files, 'input')} ({size(there.size)} of "
                f"{size(there.of_size)}) are on other peers"
            )
        if not self._is_kept:
            return "too few peers keep its journal"
        if not there.successors:
            return "no other peer has the role drive, to go on with it"
        return ""

    def where(self) -> str:
        """Who has what, once nothing keeps the machine."""
        assert self.entrusted is not None
        inputs = ""
        if self.entrusted.files:
            amount = f"{counted(self.entrusted.files, 'input')} ({size(self.entrusted.size)})"
            inputs = f"{amount} on {', '.join(self.entrusted.by)}; "
        return f"{inputs}{' or '.join(self.entrusted.successors)} would go on with it"
