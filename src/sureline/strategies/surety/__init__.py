"""Scheduling under uncertainty: bids, plans on the Pareto front, contracts, repair.

After Sample, Keyani and Wiederhold, "Scheduling Under Uncertainty: Planning for the Ubiquitous
Grid". Lives here: what providers bid and promise (`contract`), the paper's equations (`pert`), the
search for the best plans (`front`, `plan`), the seven calls between a scheduler and a provider
(`invocation`), the agent that answers them on a peer (`provider`), the one that asks (`broker`),
and where tasks go in a run with terms (`placer`).
"""
