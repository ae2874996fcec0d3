"""What must stay in a machine's store: the port. `files.marks` is the adapter for its cache."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from sureline.workflow.files import FileRecord


class Marks(Protocol):
    """Keeps a store from evicting what is needed. All of it is idempotent."""

    def pin(self, files: Iterable[FileRecord], why: str) -> None:
        """Needed here just now. Gone after a crash."""

    def unpin(self, why: str) -> None: ...

    def keep(self, files: Iterable[FileRecord], run: str) -> None:
        """This may be the only copy in the grid of what a run needs. Survives a crash."""

    def release(self, digests: Iterable[str], run: str) -> None: ...

    def release_run(self, run: str) -> None: ...

    def runs(self) -> Iterable[str]:
        """For which something is kept."""


class NoMarks:
    """For a store that never evicts."""

    def pin(self, files: Iterable[FileRecord], why: str) -> None: ...
    def unpin(self, why: str) -> None: ...
    def keep(self, files: Iterable[FileRecord], run: str) -> None: ...
    def release(self, digests: Iterable[str], run: str) -> None: ...
    def release_run(self, run: str) -> None: ...
    def runs(self) -> Iterable[str]:
        return ()
