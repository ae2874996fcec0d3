"""What may be asked of which site, as plain data that a journal can keep."""

from __future__ import annotations

import secrets
from typing import Literal

import msgspec

Engine = Literal["local", "ssh", "slurm"]
ENGINES: tuple[Engine, ...] = ("local", "ssh", "slurm")


class SiteChoice(msgspec.Struct, frozen=True, omit_defaults=True):
    """Which site, and how it is spoken to."""

    on: Engine
    host: str = ""
    """Of `ssh`."""
    clusters: str = ""
    """Of `slurm`."""
    spool: str = ""
    """Where jobs are kept at the site; '' for the usual place."""
    python: str = ""
    """What runs Sureline there; '' for what runs it here, or is brought along."""
    options: tuple[str, ...] = ()
    """Of the engine: for sbatch with every job, or for ssh with every call."""

    @property
    def name(self) -> str:
        where = self.host or self.clusters
        return f"{self.on}:{where}" if where else self.on

    @property
    def partition(self) -> str:
        """Slurm's, if it was named."""
        found = [o.partition("=")[2] for o in self.options if o.startswith("--partition=")]
        return found[-1] if found else ""

    @property
    def job_options(self) -> tuple[str, ...]:
        return self.options if self.on == "slurm" else ()


class PilotShape(msgspec.Struct, frozen=True, omit_defaults=True):
    """What one pilot is: what it asks of the site, and what it offers to the grid."""

    cores: int = 1
    memory_bytes: int = 0
    gpus: int = 0
    lifetime_s: float | None = None
    options: tuple[str, ...] = ()
    """Further ones of `sureline peer`."""


class PilotOrder(msgspec.Struct, frozen=True, omit_defaults=True):
    """The pilots of one run: how many at most, of which shape, where."""

    choices: tuple[SiteChoice, ...]
    shape: PilotShape
    number: int
    base_listen: str = ""


PRIVATE = "own-"


def private_grid() -> str:
    """A name for the grid of a new run that has pilots of its own."""
    return f"{PRIVATE}{secrets.token_hex(5)}"
