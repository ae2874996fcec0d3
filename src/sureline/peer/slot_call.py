"""Running Python calls in a slot: the function is loaded once and stays warm."""

from __future__ import annotations

import os
import pickle
import resource
import time
from collections.abc import Callable

from sureline.peer import saying
from sureline.peer.calls import describe, dump_error, dump_value, load_arguments
from sureline.peer.frames import MAX_FUNCTIONS
from sureline.peer.jobs import CallJob, JobEnded
from sureline.peer.slot_capture import RSS_UNIT_BYTES, Capture, flush_python
from sureline.peer.store import BlobStore
from sureline.workflow.files import FileRecord, result_path


class Calls:
    def __init__(self, store: BlobStore, capture: Capture, directory: str) -> None:
        self._store = store
        self._capture = capture
        self._directory = directory
        self._inherited_peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        """A new process starts with the peak of the one that spawned it."""
        self._packed: dict[str, bytes] = {}
        self._loaded: dict[str, Callable[..., object]] = {}

    def run(self, job: CallJob, function: bytes | None, say: Callable[[float], None]) -> JobEnded:
        """Call; whatever the call raises is its result, not this slot's end. `say` hears of its
        progress."""
        if function is not None:
            if len(self._packed) >= MAX_FUNCTIONS:
                self._packed.clear()
                self._loaded.clear()
            self._packed[job.function] = function
        started, cpu_started = time.monotonic(), time.process_time()
        result: bytes | None = None
        outputs: tuple[FileRecord, ...] = ()
        error: BaseException | None = None
        saved = dict(os.environ) if job.env else None
        try:
            os.chdir(self._directory)
            environ = os.environ
            environ["SURELINE_TASK"] = job.task
            environ["SURELINE_ATTEMPT"] = str(job.attempt)
            environ["SURELINE_CORES"] = f"{job.cores:g}"
            if saved is not None:
                environ.update(job.env)
            saying.listen(say)
            result = self._call(job)
            if len(result) > job.inline_bytes:
                outputs = (self._store.put(result, result_path(job.task)),)
                result = None
        except BaseException as caught:
            error = caught
        finally:
            saying.listen(None)
            if saved is not None:
                _restore(saved)
        flush_python()
        captured = self._capture.collect(job.label)
        return JobEnded(
            "succeeded" if error is None else "failed",
            reason="" if error is None else describe(error),
            elapsed_s=time.monotonic() - started,
            cpu_s=time.process_time() - cpu_started,
            memory_peak_bytes=self._peak_bytes(),
            outputs=outputs,
            result=result,
            error=None if error is None else dump_error(error),
            stdout=captured.stdout,
            stderr=captured.stderr,
            stdout_file=captured.stdout_file,
            stderr_file=captured.stderr_file,
        )

    def _peak_bytes(self) -> int:
        """This process's peak so far; 0 if it cannot be told."""
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return peak * RSS_UNIT_BYTES if peak > self._inherited_peak else 0

    def _call(self, job: CallJob) -> bytes:
        function = self._loaded.get(job.function)
        if function is None:
            function = pickle.loads(self._packed[job.function])
            self._loaded[job.function] = function

        def result_of(task: str) -> object:
            data = job.results.get(task)
            return pickle.loads(self._store.read(job.files[task]) if data is None else data)

        args, kwargs = load_arguments(job.arguments, result_of)
        return dump_value(function(*args, **kwargs))


def _restore(saved: dict[str, str]) -> None:
    for name in set(os.environ) - set(saved):
        del os.environ[name]
    os.environ.update(saved)
