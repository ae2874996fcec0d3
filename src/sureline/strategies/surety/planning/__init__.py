"""Planning, pure: which bids to take, by cost, time and surety.

Tables of bids (`bids`), the paper's equations (`pert`), the choice among bids (`choices`,
`judging`, `front`; all schedules in `exact`, too many of them in `bounded` with `tradeoff`), the
plan and why there is none (`plan`, `refusal`; without bids `unbid`), and which provider each task
of a run would get (`assignment`). No agents here.
"""
