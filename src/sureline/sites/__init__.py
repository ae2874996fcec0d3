"""Engines that somebody else runs, and to which we hand work: this machine, ssh, Slurm, Dask, Ray.

The port is `port.Site`: blocking calls, which callers make in threads. The adapters: `local` and
`ssh` start processes; `slurm` speaks with Slurm's commands; `dask` and `ray` hand functions to
their clusters (`spooled`). Each job, wherever, begins with the
little program `job`, which keeps its state in a file at the site (`spool`), so that an engine that
forgets, or is down, is not the only witness. What every adapter must pass ships as
`sureline.testing.SiteConformance`.
Does not live here: what is handed over and when (that is `compose`), which task goes where.
Imports `workflow` and nothing else.
"""
