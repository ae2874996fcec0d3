"""Ways to decide which task runs where; one module or package each, all behind `run.strategy`.

`embedded` is the simplest: one machine, everything here. `spread` is the simplest for many: a
ready task goes to the least loaded peer that meets its needs.
"""
