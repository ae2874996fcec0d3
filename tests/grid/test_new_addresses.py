"""Peers that start again at other addresses find each other, whoever of them was there first."""

from __future__ import annotations

import pytest
from grid_lab import GRID, GridLab
from surely import until

from sureline.world.identity.home import GridHome

ALL = {"p0", "p1", "p2"}


@pytest.fixture
def lab(tmp_path):
    with GridLab(tmp_path) as made:
        made.start(3)
        yield made


def test_all_peers_start_again_one_after_the_other(lab):
    """Each time at a new port: nobody is where it was, not even the one that made the grid."""
    for name in ("p1", "p2", "p0"):
        lab.peers[name].kill()
        node = lab.serve(name).ready()["node"]
        for other in ALL - {name}:
            home = GridHome.open(GRID, lab.home(other))
            until(lambda home=home, node=node: node in home.contacts(), timeout_s=20.0)
    for name in ALL:
        lab.until_present(ALL, asked=name)
