"""How the agents of a grid are put together, for every world: the one place that knows it.

A process on a grid is a *node* (`node`): who is there, where things are, who is out. One that runs
tasks for others is a *peer* as well (`peer`), one that drives a run its *driver* (`driver`). What
they stand on is a `Ground`: places for agents, and the few things that differ between a real
machine and a simulated one. `compose` calls this for real processes, `experiments` for simulated
ones. Like the agents, nothing here does any I/O.
"""
