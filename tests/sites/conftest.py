from slurm_lab import slurm, slurm_lab  # noqa: F401 - fixtures of the tests here
from sshd_lab import sshd  # noqa: F401 - fixtures of the tests here
