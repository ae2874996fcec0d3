"""What was asked of which site, durably, so that nothing that was started is ever left behind.

A batch is written down before its first job is submitted, under the tag that the jobs will carry,
and struck out when all of them are over. What the book knows without knowing its jobs was being
submitted when a process died: the site says by the tag whether it came to pass.
"""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

from sureline.sites.local import LocalSite
from sureline.sites.order import PilotShape, SiteChoice
from sureline.sites.port import JobId, Site, SiteError, SiteWork
from sureline.sites.slurm import SlurmSite
from sureline.sites.ssh import SPOOL as SSH_SPOOL
from sureline.sites.ssh import SshSite
from sureline.world.identity import disk

BYTES_MAX = 1_000_000


def open_site(choice: SiteChoice, spool: Path) -> Site:
    """`spool` is the usual place, of the sites that see this machine's files."""
    if choice.on == "ssh":
        return SshSite(
            choice.host,
            spool=choice.spool or SSH_SPOOL,
            python=choice.python or "python3",
            options=choice.options,
        )
    place = Path(choice.spool) if choice.spool else spool
    if choice.on == "local":
        return LocalSite(place)
    return SlurmSite(place, clusters=choice.clusters)


class PilotBatch(msgspec.Struct, frozen=True, omit_defaults=True):
    """Pilots that were asked for together. `run` is the run that they are for, if they are for
    one; `base` that this is no pilot, but the peer of this home by which pilots find the grid."""

    tag: str
    grid: str
    choice: SiteChoice
    asked_at: float
    count: int = 1
    shape: PilotShape = PilotShape()
    run: str = ""
    base: bool = False
    ahead: int | None = None
    """What waited there already, in cores."""
    jobs: tuple[str, ...] = ()

    def pilot(self, index: int) -> str:
        """What a pilot is called in the grid."""
        return f"{self.tag.lower().replace('.', '-').replace('_', '-')[-50:].strip('-')}-{index}"


class PilotBook:
    """`directory` is of this home; several processes may write different batches at once."""

    def __init__(self, directory: Path) -> None:
        self._pages = directory / "book"
        self.spool = directory / "spool"
        self._sites: dict[SiteChoice, Site] = {}

    def write(self, batch: PilotBatch) -> None:
        """Durable when this returns."""
        disk.ensure_directory(self._pages)
        disk.write(self._pages / batch.tag, msgspec.json.encode(batch))

    def strike(self, batch: PilotBatch) -> None:
        (self._pages / batch.tag).unlink(missing_ok=True)

    def batches(self) -> list[PilotBatch]:
        """All that may have jobs, oldest first."""
        try:
            names = [name for name in os.listdir(self._pages) if not name.startswith(".")]
        except FileNotFoundError:
            return []
        read = [disk.read(self._pages / name, BYTES_MAX) for name in names]
        found = [msgspec.json.decode(page, type=PilotBatch) for page in read if page]
        return sorted(found, key=lambda batch: (batch.asked_at, batch.tag))

    # -- with the sites --------------------------------------------------------------------------

    def submit(self, batch: PilotBatch, work: SiteWork) -> PilotBatch:
        """Write it down, hand it over, write down what the site calls it. Raises SiteError: then
        it is struck out, unless the site may have it all the same."""
        self.write(batch)
        try:
            jobs = self.site_of(batch).submit(work)
        except SiteError as error:
            if not error.unsure:
                self.strike(batch)
            raise
        batch = msgspec.structs.replace(batch, jobs=tuple(jobs))
        self.write(batch)
        return batch

    def site_of(self, batch: PilotBatch) -> Site:
        """The same one each time: a site remembers since when it has not heard of a job."""
        if batch.choice not in self._sites:
            self._sites[batch.choice] = open_site(batch.choice, self.spool)
        return self._sites[batch.choice]

    def jobs_of(self, batch: PilotBatch) -> list[JobId]:
        """Its jobs; asks the site if the book does not know. Raises SiteError."""
        if batch.jobs:
            return [JobId(job) for job in batch.jobs]
        found = sorted(self.site_of(batch).find(batch.tag))
        if found:
            self.write(msgspec.structs.replace(batch, jobs=tuple(found)))
        return found
