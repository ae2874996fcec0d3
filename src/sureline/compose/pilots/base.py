"""The base: a peer of this home that runs nothing, by which pilots find their grid.

It enrols them, and is the one address that they know. Whoever starts pilots makes sure that there
is one; if the user's own peer serves from this home, that is it. It is a job of the site `local`,
so it goes on when whoever started it dies, and listens where it did when it is started again.
"""

from __future__ import annotations

import secrets
import sys
import time
from pathlib import Path

from sureline.sites.book import PilotBatch, PilotBook
from sureline.sites.order import PRIVATE, SiteChoice
from sureline.sites.port import SiteWork
from sureline.workflow.mistakes import SurelineError
from sureline.world.identity.home import GridHome, Serving, grid_names, home_directory

UP_WITHIN_S = 60.0
LOOK_EVERY_S = 0.1


def ensure_base(book: PilotBook, home: GridHome, listen: str = "") -> Serving:
    """Where the peer of this home serves, which is started if there is none."""
    serving = home.serving()
    if serving is not None:
        return serving
    batch = PilotBatch(
        tag=f"base-{home.grid[:60]}-{secrets.token_hex(4)}",
        grid=home.grid,
        choice=SiteChoice("local"),
        asked_at=time.time(),
        base=True,
    )
    argv = [sys.executable, "-m", "sureline", "peer", "--grid", home.grid, "--slots", "0"]
    argv += ["--listen", listen] if listen else []
    environment = {"SURELINE_HOME": str(home.home)}
    work = SiteWork(tag=batch.tag, argv=tuple(argv), environment=environment)
    return _up(book, home, book.submit(batch, work))


def _up(book: PilotBook, home: GridHome, batch: PilotBatch) -> Serving:
    site, jobs = book.site_of(batch), book.jobs_of(batch)
    give_up_at = time.monotonic() + UP_WITHIN_S
    while time.monotonic() < give_up_at:
        serving = home.serving()
        if serving is not None:
            return serving
        if any(status.is_over for status in site.look(jobs).values()):
            break
        time.sleep(LOOK_EVERY_S)
    said = site.output(jobs[0], 2000).decode(errors="replace").strip().rpartition("\n")[2]
    site.cancel(jobs)
    book.strike(batch)
    raise SurelineError(f"the peer by which pilots find grid {home.grid} does not serve: {said}")


def pilots_directory(home: Path) -> Path:
    """Of a home: its book of pilots, and the spool of the sites that see its files."""
    return home / "pilots"


def private_home() -> Path:
    """The home of the grids that runs on pilots have for themselves."""
    return pilots_directory(home_directory()) / "private"


def open_home(grid: str | None) -> GridHome:
    """The named grid, also if it is a run's own, or the only one there is."""
    home = private_home()
    if grid is not None and grid.startswith(PRIVATE) and home.exists() and grid in grid_names(home):
        return GridHome.open(grid, home)
    return GridHome.open(grid)
