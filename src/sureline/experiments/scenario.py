"""What a scenario says, as data. `scenario_reader` makes it from TOML; `grid` and `drive` run it.

All times are virtual seconds, all distributions are drawn from the seed.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from sureline.experiments.distributions import Distribution, constant
from sureline.experiments.others import OthersJobs
from sureline.strategies import strategy
from sureline.workflow.terms import SURETY_WANTED
from sureline.world.address import Node

GENERATED = ("chain", "fork-join", "layered", "montage")
PROTOCOLS = ("lookups", "broadcasts")
KINDS = ("workflow", *GENERATED, *PROTOCOLS)
HONEST, GREEDY, STALLING = "honest", "greedy", "stalling"
BEHAVIOURS = (HONEST, GREEDY, STALLING)
WHATS = (
    "crash",
    "kill",
    "restart",
    "freeze",
    "thaw",
    "slow",
    "slow_disk",
    "full_disk",
    "full_cache",
    "corrupt",
    "clock",
    "partition",
    "cut",
    "heal",
)
UNDONE_BY = {
    "crash": "restart",
    "kill": "restart",
    "freeze": "thaw",
    "slow": "full speed",
    "slow_disk": "fast disk",
    "full_disk": "room on disk",
    "full_cache": "room in cache",
    "partition": "heal",
    "cut": "heal",
}
"""How a fault that lasts `for` a while ends."""
PEERS = "peers"
SUBMITTER = "submitter"
STANDBY = "standby"


class Dealing(msgspec.Struct, frozen=True):
    """What the machines of a site ask for their work, and how they keep their contracts. The fees
    are as those of `sureline peer`."""

    price: Distribution = constant(0.0)
    """For a core and an hour."""
    late_fee: float = 0.0
    cancel_fee: float = 0.0
    reserve_fee: float = 0.0
    discount: float = 0.0
    behaviour: str = HONEST
    overbook: float = 2.0
    """How many times its cores a dishonest machine claims to have."""
    hang: float = 0.0
    """The chance that a job which a stalling machine has stopped never goes on."""


class SiteSettings(msgspec.Struct, frozen=True):
    """Machines that are alike, in one place. Their names are the site's and a number."""

    name: str
    machines: int
    cores: Distribution
    """Whole ones: draws are rounded."""
    memory_bytes: int
    disk_bytes: int
    cache_bytes: int
    keeps_cache: bool
    speed: Distribution
    background: Distribution
    """The share of every core that others use."""
    others: OthersJobs
    """Whole processors that others use, of each machine's; see `others`."""
    clock_offset_s: Distribution
    clock_drift: Distribution
    dealing: Dealing = Dealing()
    unknown: tuple[str, ...] = ()
    """Tags of messages that its machines do not know: they are of another version."""

    def names(self) -> list[Node]:
        return [Node(f"{self.name}{number}") for number in range(1, self.machines + 1)]


class LinkSettings(msgspec.Struct, frozen=True):
    """What lies between two machines. The bandwidth of the usual link is what each machine sends
    and receives with at most; that of a link between sites is what one transfer gets."""

    delay_s: Distribution
    bandwidth_bytes_s: float
    loss: float = 0.0
    duplication: float = 0.0
    reordering: bool = False


class NetworkSettings(msgspec.Struct, frozen=True):
    link: LinkSettings
    between: tuple[tuple[str, str, LinkSettings], ...] = ()
    """Links of their own between (or within) sites."""


class Workload(msgspec.Struct, frozen=True):
    """Which fields count depends on `kind`; see the reader."""

    kind: str
    strategy: str = "spread"
    settings: dict[str, bool | float | str] = {}
    """Of the strategy."""
    site: str = ""
    """Where runs are submitted."""
    runs: int = 1
    every_s: Distribution = constant(60.0)
    """Between the submissions of two runs."""
    standbys: int = 0
    """Machines for each run at which somebody looks after it, to take it over."""
    takeover_s: float = 0.0
    """A peer takes a run over whose driver has been silent for so long; 0 for never."""
    look_s: Distribution = constant(20.0)
    """Between two looks of such a one."""
    begin_s: float = 10.0
    """When the first one is submitted: until then the grid comes together."""
    cancel_s: float | None = None
    """So long after its submission the user cancels a run."""
    fail: float = 0.0
    """The probability that an attempt fails."""
    fail_kinds: dict[str, float] = {}
    retries: int | None = None
    work_factor: float = 1.0
    size_factor: float = 1.0
    file: Path | None = None
    tasks: int = 100
    width: int = 10
    levels: int = 10
    parents: int = 3
    work_s: Distribution | None = None
    output_bytes: Distribution = constant(1e6)
    cores: Distribution = constant(1.0)
    within_s: float | None = None
    """Terms, for the strategy 'surety': done so long after the submission,"""
    budget: float | None = None
    """for so much money at most,"""
    surety: float = SURETY_WANTED
    """and so surely."""
    repair: bool = True
    count: int = 1000
    """Of keys looked up, or of broadcasts."""


class Fault(msgspec.Struct, frozen=True):
    """Something that happens once, at `at_s`, or again and again, `every_s` apart."""

    what: str
    whom: tuple[str, ...] = ()
    at_s: float = 0.0
    every_s: Distribution | None = None
    per_minute: float | None = None
    """The share of `whom` that it befalls in a minute, instead of `every_s`."""
    count: int | None = None
    """How many of `whom` it befalls, picked at random; None for all."""
    lasts_s: Distribution | None = None
    factor: float = 1.0
    """How fast it is from then on; of `corrupt`, the share of its files."""
    by_s: Distribution = constant(0.0)
    """By how much a clock is set forward."""
    groups: tuple[tuple[str, ...], ...] = ()
    until_s: float = float("inf")
    times: int | None = None
    """How often it happens at most; None for no limit."""


class Checks(msgspec.Struct, frozen=True):
    finish: bool = True
    """Runs that could finish must have."""
    makespan_s: float | None = None
    """No run may have taken longer."""
    messages_per_second: int = 2000
    """No node may have sent more in any second."""
    found: float = 1.0
    """The share of keys with a live replica that must be found at the end."""
    reached: float = 0.99
    """The share of live nodes that broadcasts must reach, on average."""


class Scenario(msgspec.Struct, frozen=True):
    name: str
    description: str
    seed: int
    duration_s: float
    sites: tuple[SiteSettings, ...]
    network: NetworkSettings
    workload: Workload
    starts_within_s: float
    """Machines start one after the other within this time."""
    faults: tuple[Fault, ...]
    checks: Checks
    written: str = ""
    """How the user named it: for the command that repeats it."""

    def machine_names(self) -> list[Node]:
        return [name for site in self.sites for name in site.names()]

    def submitter_names(self) -> list[Node]:
        """The nodes that drive runs; the one machine itself in an embedded run."""
        if self.workload.kind in PROTOCOLS:
            return []
        if strategy(self.workload.strategy).where == "here":
            return self.machine_names()[:1]
        if self.workload.runs == 1:
            return [Node(SUBMITTER)]
        return [Node(f"{SUBMITTER}{number}") for number in range(1, self.workload.runs + 1)]

    def standby_names(self) -> list[Node]:
        """The nodes at which runs are looked after, those of the first run first."""
        count = len(self.submitter_names()) * self.workload.standbys
        return [Node(f"{STANDBY}{number}") for number in range(1, count + 1)]

    def meant(self, whom: str) -> list[Node]:
        """The nodes that a word of `whom` stands for; none if it stands for nothing."""
        if whom == PEERS:
            return self.machine_names()
        if whom == SUBMITTER:
            return self.submitter_names()
        if whom == STANDBY:
            return self.standby_names()
        for site in self.sites:
            if whom == site.name:
                return site.names()
            if _is_machine_of(site, whom):
                return [Node(whom)]
        return [Node(whom)] if whom in (*self.submitter_names(), *self.standby_names()) else []


def _is_machine_of(site: SiteSettings, name: str) -> bool:
    number = name.removeprefix(site.name)
    plain = number != name and number.isascii() and number.isdecimal() and number[0] != "0"
    return plain and int(number) <= site.machines
