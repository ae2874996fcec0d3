"""What a run made, by handle; and the exception that tells how one went wrong."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

from sureline.compose import HOME, Outcome
from sureline.journal.events import TaskEnded
from sureline.journal.store import Journal
from sureline.peer import code
from sureline.peer.calls import Handle, load_error
from sureline.peer.code import Named, named_here
from sureline.peer.packed import bundled, mapped
from sureline.peer.store import BlobStore
from sureline.workflow.files import result_path
from sureline.workflow.mistakes import SurelineError


class RunFailedError(SurelineError):
    """A run that did not succeed. Its cause is the first failed call's exception, if there is one.

    `results` holds what was finished; `results.outcome` says how the run ended.
    """

    def __init__(self, message: str, results: Results) -> None:
        super().__init__(message)
        self.results = results


class Results:
    """Results of a run by handle: a call's value, or the paths of the files a command made."""

    def __init__(
        self, directory: Path, outcome: Outcome, names: Mapping[str, Named] | None = None
    ) -> None:
        self.outcome = outcome
        self._directory = directory
        self._names = names or {}

    @property
    def run(self) -> str:
        return self.outcome.run

    def __getitem__(self, handle: Handle | str) -> Any:
        task = handle.task if isinstance(handle, Handle) else handle
        ended = self._committed.get(task)
        if ended is None:
            raise KeyError(f"{task} has no result in run {self.run}")
        if ended.result is not None:
            return self._load(ended.result, ())
        for file in ended.outputs:
            if file.path == result_path(task):
                path = BlobStore(self._directory / HOME).blob_path(file.digest)
                return self._load(*bundled(mapped(path)))
        return [self._directory / file.path for file in ended.outputs]

    def _load(self, pickled: Any, buffers: Iterable[Any]) -> Any:
        return code.load(pickled, buffers, lambda key: named_here(key, self._names))

    @cached_property
    def _committed(self) -> dict[str, TaskEnded]:
        with Journal.open(self._directory / HOME, create=False, read_only=True) as journal:
            return {ended.task: ended for ended in journal.commits(self.run)}

    def failure(self) -> RunFailedError:
        """The exception that tells how the run went wrong."""
        first = self._first_failure()
        told = f"run {self.run} {self.outcome.state}"
        if first is not None:
            told += f": {first.task}: {first.reason}"
        elif self.outcome.reason:
            told += f": {self.outcome.reason}"
        failed = RunFailedError(f"{told}; continue it with: sureline resume {self.run}", self)
        if first is not None and first.error is not None:
            failed.__cause__ = load_error(first.error)
        return failed

    def _first_failure(self) -> TaskEnded | None:
        """The last attempt of the task that failed for good first."""
        failed: dict[str, TaskEnded] = {}
        with Journal.open(self._directory / HOME, create=False, read_only=True) as journal:
            for entry in journal.events(self.run):
                event = entry.event
                if isinstance(event, TaskEnded):
                    failed.pop(event.task, None)
                    if event.outcome in ("failed", "timeout", "lost"):
                        failed[event.task] = event
        return next(iter(failed.values()), None)
