"""Sureline on a grid whose peers, as pilots of one site, deal the tasks out in rounds."""

from __future__ import annotations

import with_sureline_spread

SHARES = {"calls": 0.02, "commands": 0.1}
"""Rounds are at least a second apart: made for tasks of seconds and more."""


class Engine(with_sureline_spread.Engine):
    strategy = "latebinding"
