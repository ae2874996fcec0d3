"""Starting pilots through a site, seeing what became of them, and ending them."""

from __future__ import annotations

import re
import secrets
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from sureline.compose.pilots.base import ensure_base, pilots_directory
from sureline.compose.pilots.bringing import ensure_brought
from sureline.sites.book import PilotBatch, PilotBook, open_site
from sureline.sites.order import PilotShape, SiteChoice
from sureline.sites.port import COUNT_MAX, JobId, JobStatus, Site, SiteError, SiteWork
from sureline.workflow.mistakes import UserError
from sureline.world.identity.authority import Authority
from sureline.world.identity.home import GridHome

INVITED_S = 30 * 86_400.0
"""A pilot may wait in a queue for so long before it joins."""
WARN_SHARE, WARN_S_MAX = 0.1, 300.0
"""Before the engine's limit, the engine itself says so, in case that the pilot's clock is off."""
SPARE_SHARE, SPARE_S_MAX = 0.2, 60.0
"""By so much a pilot means to be gone before the engine would end it."""
OVER_WITHIN_S = 300.0
"""So long an engine may take to end what it was asked to end, and to be asked."""
LOOK_EVERY_S = 0.5
UNSURE_S = 600.0
"""After so long, what nobody has heard of was never submitted."""
SCRIPT = """\
umask 077
export SURELINE_HOME="$PWD/home.$SURELINE_INDEX"
mkdir -p "$SURELINE_HOME" || exit
sed -n "$((SURELINE_INDEX + 1))p" invitations > "$SURELINE_HOME/invitation"
if [ -n "$SURELINE_BROUGHT" ]; then export PYTHONPATH="$PWD/../$SURELINE_BROUGHT"; fi
exec "$@" --join "@$SURELINE_HOME/invitation"
"""
"""A pilot's first lines. The engine may start them again, on another machine: the home is where it
was, and the invitation that it has used is good for it."""


class PilotSeen(NamedTuple):
    """One pilot. `status` is None while nothing is known of it."""

    batch: PilotBatch
    number: int
    job: JobId | None
    status: JobStatus | None


class Pilots:
    """All pilots of a home. `listen` is where its base listens, if one must be started."""

    def __init__(self, home: Path, listen: str = "") -> None:
        self.directory = pilots_directory(home)
        self.book = PilotBook(self.directory)
        self._listen = listen

    # -- starting --------------------------------------------------------------------------------

    def start(
        self, home: GridHome, choice: SiteChoice, shape: PilotShape, count: int, run: str = ""
    ) -> PilotBatch:
        """Hand `count` pilots for that grid to the site. Raises SiteError, UserError."""
        if not 1 <= count <= COUNT_MAX:
            raise UserError(f"{count} pilots at once; give 1 to {COUNT_MAX}")
        authority = Authority.open(home)
        site = open_site(choice, self.book.spool)
        brought = self._brought(choice, site)
        address = ensure_base(self.book, home, self._listen).node.partition("@")[2]
        batch = PilotBatch(
            tag=f"{_plain(run or home.grid)}-{secrets.token_hex(4)}",
            grid=home.grid,
            choice=choice,
            asked_at=time.time(),
            count=count,
            shape=shape,
            run=run,
            ahead=site.ahead(choice.job_options),
        )
        invitations = [
            authority.invite(
                roles=("run",),
                expires_s=INVITED_S,
                addresses=[address],
                name=batch.pilot(index),
            )
            for index in range(count)
        ]
        self._put(site, f"{batch.tag}/invitations", "".join(f"{one}\n" for one in invitations))
        return self.book.submit(batch, _work(batch, brought))

    def _brought(self, choice: SiteChoice, site: Site) -> str:
        if site.shares_files or choice.python:
            return ""
        return ensure_brought(site, "python3", self.directory / "packs")

    def _put(self, site: Site, name: str, text: str) -> None:
        local = self.directory / f"put-{secrets.token_hex(4)}"
        local.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        local.touch(0o600)
        try:
            local.write_text(text)
            site.put(local, name)
        finally:
            local.unlink()

    # -- seeing ----------------------------------------------------------------------------------

    def batches(self, grid: str = "", run: str = "") -> list[PilotBatch]:
        return [
            batch
            for batch in self.book.batches()
            if (not grid or batch.grid == grid) and (not run or batch.run == run)
        ]

    def seen(self, batch: PilotBatch) -> list[PilotSeen]:
        """What is known of each. Raises SiteError if the site does not answer."""
        jobs: list[JobId | None] = list(self.book.jobs_of(batch))
        found = self.book.site_of(batch).look([job for job in jobs if job is not None])
        jobs += [None] * (batch.count - len(jobs))
        return [
            PilotSeen(batch, index, job, None if job is None else found.get(job))
            for index, job in enumerate(jobs)
        ]

    def output(self, batch: PilotBatch, index: int, limit_bytes: int = 1 << 16) -> str:
        jobs = self.book.jobs_of(batch)
        if index >= len(jobs):
            return ""
        printed = self.book.site_of(batch).output(jobs[index], limit_bytes)
        return printed.decode(errors="replace")

    # -- ending ----------------------------------------------------------------------------------

    def stop(
        self, batches: Iterable[PilotBatch], tell: Callable[[str], None] = lambda sentence: None
    ) -> list[PilotBatch]:
        """End all pilots of these batches, and bases that none is left for; those that could not
        be ended for sure, which stay in the book."""
        asked = list(batches)
        left = self._ended([batch for batch in asked if not batch.base], tell)
        bases = {batch.tag: batch for batch in asked if batch.base}
        needed = {batch.grid for batch in self.book.batches() if not batch.base}
        grids = {batch.grid for batch in asked}
        for base in self.book.batches():
            if base.base and base.grid in grids:
                bases[base.tag] = base
        return left + self._ended([b for b in bases.values() if b.grid not in needed], tell)

    def _ended(
        self, batches: Sequence[PilotBatch], tell: Callable[[str], None]
    ) -> list[PilotBatch]:
        """Have them all ended, asking again as long as a site does not answer, within reason."""
        asked: set[str] = set()
        told: set[str] = set()
        left = list(batches)
        give_up_at = time.monotonic() + OVER_WITHIN_S
        while left:
            for batch in left:
                if batch.tag not in asked:
                    self._cancel(batch, asked, told, tell)
            left = [batch for batch in left if batch.tag not in asked or not self.settle(batch)]
            if not left or time.monotonic() >= give_up_at:
                break
            time.sleep(LOOK_EVERY_S)
        for batch in left:
            heard = "was asked to end it, and has not yet" if batch.tag in asked else "is silent"
            tell(f"{batch.tag} may still be there: {batch.choice.name} {heard}")
        return left

    def _cancel(
        self, batch: PilotBatch, asked: set[str], told: set[str], tell: Callable[[str], None]
    ) -> None:
        try:
            self.book.site_of(batch).cancel(self.book.jobs_of(batch))
            asked.add(batch.tag)
        except SiteError as error:
            if str(error) not in told:
                told.add(str(error))
                tell(f"pilots of {batch.choice.name} cannot be ended yet: {error}; tries again")

    def settle(self, batch: PilotBatch) -> bool:
        """Strike a batch out, if it is surely over; whether it was."""
        try:
            jobs = self.book.jobs_of(batch)
            site = self.book.site_of(batch)
            found = site.look(jobs)
            if not jobs and time.time() - batch.asked_at < UNSURE_S:
                return False
            if not all(job in found and found[job].is_over for job in jobs):
                return False
            site.forget(batch.tag)
        except SiteError:
            return False
        self.book.strike(batch)
        return True


def _plain(text: str) -> str:
    return re.sub(r"[^A-Za-z0-9._-]+", "-", text).strip("-.")[:80] or "pilots"


def _work(batch: PilotBatch, brought: str) -> SiteWork:
    shape, choice = batch.shape, batch.choice
    python = choice.python or (sys.executable if not brought else "python3")
    peer = [python, "-m", "sureline", "peer", "--pilot", "--json"]
    peer += ["--slots", str(shape.cores), "--site", choice.name]
    if shape.memory_bytes:
        peer += ["--memory", str(shape.memory_bytes)]
    if shape.gpus:
        peer += ["--gpus", str(shape.gpus)]
    warn_s = 0.0
    if shape.lifetime_s is not None:
        spare_s = min(SPARE_S_MAX, SPARE_SHARE * shape.lifetime_s)
        peer += ["--lifetime", f"{shape.lifetime_s - spare_s:.3f}s"]
        warn_s = min(WARN_S_MAX, WARN_SHARE * shape.lifetime_s)
    return SiteWork(
        tag=batch.tag,
        argv=("sh", "-c", SCRIPT, "sh", *peer, *shape.options),
        environment={"SURELINE_BROUGHT": brought},
        cores=shape.cores,
        memory_bytes=shape.memory_bytes,
        gpus=shape.gpus,
        limit_s=shape.lifetime_s,
        warn_s=warn_s,
        count=batch.count,
        requeue=True,
        options=choice.job_options,
    )
