from slurm_lab import slurm, slurm_lab  # noqa: F401 - fixtures of the tests here
