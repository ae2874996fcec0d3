"""The simulated world: virtual time, modelled links, machines and clocks, faults by script.

`simulation` has the world itself; `machine` (with `work`, `disk`) and `network` (with `links`,
`delays`, `flows`) the models; `faults` random trouble from a seed; `counters` what was said;
`calendar`, `loop` and `place` the machinery. Agents run here unchanged: see `world.protocol`.
"""

from sureline.world.simulated.counters import Counters, Peak, Traffic
from sureline.world.simulated.delays import (
    Constant,
    Delay,
    Empirical,
    Exponential,
    LogNormal,
    Uniform,
)
from sureline.world.simulated.faults import RandomFaults, Rates
from sureline.world.simulated.links import LAN, Link
from sureline.world.simulated.machine import Life, MachineParts, MachineSpec, SimulatedMachine
from sureline.world.simulated.network import Network
from sureline.world.simulated.simulation import Simulation, SimulationError

__all__ = [
    "Simulation",
    "SimulationError",
    "Network",
    "Link",
    "LAN",
    "Delay",
    "Constant",
    "Uniform",
    "Exponential",
    "LogNormal",
    "Empirical",
    "SimulatedMachine",
    "MachineSpec",
    "MachineParts",
    "Life",
    "RandomFaults",
    "Rates",
    "Counters",
    "Traffic",
    "Peak",
]
