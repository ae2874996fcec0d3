"""A real Slurm as a site."""

from __future__ import annotations

from pathlib import Path

import pytest
from slurm_lab import SlurmLab

from sureline.sites.slurm import SlurmSite
from sureline.testing import SiteConformance


class TestSlurm(SiteConformance):
    limits = False

    @pytest.fixture(autouse=True)
    def spooled(self, tmp_path: Path, slurm: SlurmLab) -> None:
        self.spool = tmp_path / "a spool%j"

    def make(self) -> SlurmSite:
        return SlurmSite(self.spool)
