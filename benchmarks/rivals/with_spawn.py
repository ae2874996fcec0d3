"""A floor: a loop over posix_spawn that keeps two children at a time, and nothing else."""

from __future__ import annotations

import os

from work import TRUE, WORKERS


class Engine:
    def __enter__(self) -> Engine:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def commands(self, count: int) -> int:
        succeeded = 0
        for number in range(count + WORKERS):
            if number >= min(WORKERS, count):
                _, status = os.wait()
                succeeded += status == 0
            if number < count:
                os.posix_spawn(TRUE, [TRUE], os.environ)
        return succeeded
