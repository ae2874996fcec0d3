"""Ways to decide which task runs where; one module or package each, all behind `run.strategy`.

`embedded` is the simplest: one machine, everything here.
"""
