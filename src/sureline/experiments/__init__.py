"""Simulated grids: scenario files, the parts of a simulated machine, and checks of invariants.

A scenario (TOML) names a grid, a workload, faults, a duration and a seed; `sureline simulate` runs
it with the real agents. Nothing below knows of this room.

Lives here: what a scenario says (`scenario`; read by `scenario_reader` with `toml_table` and
`distributions`; the shipped ones in `scenarios/`), workflows to simulate (`workloads`, `work`), a
machine's parts (`machine_runner`, `machine_files`, `machine_journal`, put together in `machines`),
which agents live on a node (`grid`, `driver`, `protocols`), `faults`, running it all (`drive`,
`outcome`), and what must hold afterwards (`invariants`); whether promises are kept
(`calibration*`) and repair pays (`repairs*`).
"""
