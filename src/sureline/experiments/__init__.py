"""Simulated grids: scenario files, the parts of a simulated machine, and checks of invariants.

A scenario (TOML) names a grid, a workload, faults, a duration and a seed; `sureline simulate` runs
it with the real agents. Nothing below knows of this room.
"""
