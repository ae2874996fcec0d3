"""Results of earlier runs, as something the world can fetch."""

from __future__ import annotations

from sureline.workflow.files import FileRecord
from sureline.world.protocol import Fetched, Wanted


class PastResult(Wanted, frozen=True):
    """A result that an earlier run committed under this key, all of its files still whole."""

    key: str


class PastFound(Fetched, frozen=True):
    run: str
    outputs: tuple[FileRecord, ...] = ()
    result: bytes | None = None
    stdout: str = ""
    stderr: str = ""
    foreign: bool = False
    """As in TaskEnded."""


class PastUnknown(Fetched, frozen=True):
    pass


class KeptFiles(Wanted, frozen=True):
    """Whether stored files are still whole; `by_content` re-hashes them."""

    files: tuple[FileRecord, ...]
    by_content: bool = False


class KeptAnswer(Fetched, frozen=True):
    whole: bool
