"""The simulated world: virtual time, modelled links, machines and clocks, faults by script."""
