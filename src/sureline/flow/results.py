"""What a run made, by handle; and the exception that tells how one went wrong."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

from sureline.compose import HOME, Outcome, bring_result
from sureline.journal.events import Submitted, TaskEnded
from sureline.journal.store import Journal
from sureline.peer import careful, code
from sureline.peer.calls import Handle
from sureline.peer.careful import UnsafeValueError
from sureline.peer.code import Named, named_here
from sureline.peer.describing import Describer
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

    def __init__(self, directory: Path, outcome: Outcome, code: Describer | None = None) -> None:
        self.outcome = outcome
        self._directory = directory
        self._names: Mapping[str, Named] = {} if code is None else code.names
        self._modules = [] if code is None else code.modules()

    @property
    def run(self) -> str:
        return self.outcome.run

    def __getitem__(self, handle: Handle | str) -> Any:
        task = handle.task if isinstance(handle, Handle) else handle
        ended = self._committed.get(task)
        if ended is None:
            raise KeyError(f"{task} has no result in run {self.run}")
        if ended.result is not None:
            return self._load(ended, ended.result, ())
        for file in ended.outputs:
            if file.path == result_path(task):
                path = BlobStore(self._directory / HOME).blob_path(file.digest)
                if not os.path.exists(path):
                    bring_result(self._directory / HOME, self.run, ended.peer, file)
                return self._load(ended, *bundled(mapped(path)))
        return [self._directory / file.path for file in ended.outputs]

    def _load(self, ended: TaskEnded, pickled: Any, buffers: Iterable[Any]) -> Any:
        if not ended.foreign or self._trusts:
            return code.load(pickled, buffers, lambda key: named_here(key, self._names))
        try:
            return careful.load(pickled, buffers, self._named, self._modules)
        except UnsafeValueError as error:
            where = f"on {ended.peer}" if ended.peer else "on another machine"
            raise UnsafeValueError(
                f"the result of {ended.task}, made {where}, is not taken: {error}; return numbers, "
                "text, containers, arrays or classes of your own, or say trust=True if you would "
                "let every machine of the grid run programs here"
            ) from error

    @cached_property
    def _trusts(self) -> bool:
        """Whether the run was told to take whatever the grid returns."""
        with Journal.open(self._directory / HOME, create=False, read_only=True) as journal:
            first = next(journal.events(self.run)).event
        return isinstance(first, Submitted) and bool(first.options.get("trust"))

    def _named(self, key: str) -> object:
        return careful.named_here(key, self._names)

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
            failed.__cause__ = self._error(first, first.error)
        return failed

    def _error(self, ended: TaskEnded, data: bytes) -> BaseException:
        if ended.foreign:
            return careful.load_error(data, self._named, self._modules)
        return code.load_error(data, lambda key: named_here(key, self._names))

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
