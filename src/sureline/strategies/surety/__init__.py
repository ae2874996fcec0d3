"""Scheduling under uncertainty: bids, plans on the Pareto front, contracts, repair.

After Sample, Keyani and Wiederhold, "Scheduling Under Uncertainty: Planning for the Ubiquitous
Grid". Lives here: what providers bid and promise (`contract`), the paper's equations (`pert`),
tables of bids (`bids`) and the choice among them (`choices`, `judging`, `front`; all schedules in
`exact`, too many of them in `bounded` with `tradeoff`; `plan`, `refusal`; without bids `unbid`),
the seven calls between a scheduler and a provider (`invocation`), the agent that answers them on a
peer (`provider`), the one that asks (`broker`), and a run with terms on a grid: its writer
(`submitter`), which provider each task would get (`assignment`) and which plan is taken (`outset`),
where a ready task goes (`placer`), what is agreed and paid (`money`, `ledger`), how promises were
kept (`trust`), and what can be done when it is late (`repairer`).
"""
