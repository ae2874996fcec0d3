"""Sureline on a grid whose peers, as pilots of one site, deal the tasks out in rounds."""

from __future__ import annotations

import with_sureline_spread


class Engine(with_sureline_spread.Engine):
    strategy = "latebinding"
    serving = ("--pilot", "--site", "here")
