"""The Slurm that other tests stand on."""

from __future__ import annotations

from slurm_lab import SlurmLab


def test_a_job_runs(slurm: SlurmLab):
    job = slurm.submit("true")
    slurm.wait_for(lambda: "JobState=COMPLETED" in slurm.run("scontrol", "show", "job", job))
