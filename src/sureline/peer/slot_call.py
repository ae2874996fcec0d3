"""Running Python calls in a slot: the function is loaded once and stays warm."""

from __future__ import annotations

import os
import pickle
import resource
import sys
import time
from collections.abc import Callable
from typing import Any

from sureline.peer import code, task_progress
from sureline.peer.calls import describe, dump_apart, dump_error, load_arguments
from sureline.peer.code import Code
from sureline.peer.frames import MAX_FUNCTIONS
from sureline.peer.jobs import CallJob, JobEnded
from sureline.peer.packed import Apart, Buffer, Collected, bundle, bundled, mapped, unpacked
from sureline.peer.slot_capture import RSS_UNIT_BYTES, Capture, flush_python
from sureline.peer.slot_reads import Reads
from sureline.peer.store import BlobStore, StoreError
from sureline.workflow.files import FileRecord, result_path


class Calls:
    def __init__(self, store: BlobStore, capture: Capture, directory: str) -> None:
        self._store = store
        self._capture = capture
        self._directory = directory
        self._inherited_peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        """A new process starts with the peak of the one that spawned it."""
        self._packed: dict[str, bytes] = {}
        self._loaded: dict[str, Callable[..., object] | Code] = {}
        self._reads = Reads(os.path.dirname(store.blob_path("")))
        self._called = ""
        self._changed: dict[str, str] = {}
        """Why a function's results may not be reused."""

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
        trace = ""
        self._called = ""
        saved = dict(os.environ) if job.env else None
        try:
            os.chdir(self._directory)
            environ = os.environ
            environ["SURELINE_TASK"] = job.task
            environ["SURELINE_ATTEMPT"] = str(job.attempt)
            environ["SURELINE_CORES"] = f"{job.cores:g}"
            if saved is not None:
                environ.update(job.env)
            task_progress.listen(say)
            pickled, apart = self._call(job)
            if apart or len(pickled) > job.inline_bytes:
                outputs = (self._store.put_pieces(bundle(pickled, apart), result_path(job.task)),)
            else:
                result = pickled
        except BaseException as caught:
            error = caught
            trace = self._trace(caught, job)
        finally:
            unkept = self._reads.end(job.function, job.declared, self._directory)
            task_progress.listen(None)
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
            error=None if error is None else self._packed_error(error, job),
            stdout=captured.stdout,
            stderr=captured.stderr,
            stdout_file=captured.stdout_file,
            stderr_file=captured.stderr_file,
            unkept=self._changed.get(job.function, "") or unkept,
            trace=trace,
        )

    def _packed_error(self, error: BaseException, job: CallJob) -> bytes:
        known = self._loaded.get(job.function)
        return code.dump_error(error, known) if isinstance(known, Code) else dump_error(error)

    def _trace(self, error: BaseException, job: CallJob) -> str:
        """Where a workflow's call raised; it belongs to what the call wrote, too."""
        from sureline.peer.shown import trace_of

        if not isinstance(self._loaded.get(job.function), Code):
            return ""  # an executor's caller gets the exception itself
        trace = trace_of(error, self._called)
        try:
            print(trace, end="", file=sys.stderr)
        except (OSError, ValueError, AttributeError):
            pass  # the call closed it
        return trace

    def _peak_bytes(self) -> int:
        """This process's peak so far; 0 if it cannot be told."""
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return peak * RSS_UNIT_BYTES if peak > self._inherited_peak else 0

    def _call(self, job: CallJob) -> tuple[bytes, list[memoryview]]:
        """The pickled result, and large buffers apart from it."""
        known = self._function(job.function)
        if isinstance(known, Code):
            named, function = _names(known), known.function
        else:
            named, function = _no_names, known

        def result_of(task: str) -> object:
            data = job.results.get(task)
            pickled, buffers = (data, []) if data is not None else bundled(self._long(job, task))
            if task not in job.foreign:
                return code.load(pickled, buffers, named)
            from sureline.peer import careful

            modules = known.modules if isinstance(known, Code) else ()
            return careful.load(pickled, buffers, named, modules)

        def apart(one: Apart) -> Buffer:
            return mapped(f"{job.buffers}/{one.digest}") if job.buffers else self._apart(one)

        pickled, buffers = unpacked(job.arguments, apart)
        if isinstance(known, Code):
            args, kwargs = code.load(pickled, buffers, named, result_of)
        else:
            args, kwargs = load_arguments(pickled, result_of, buffers)
        self._reads.begin()
        try:
            value = function(*args, **kwargs)
        except BaseException:
            from sureline.peer.shown import shown_call

            self._called = shown_call(function, args, kwargs)
            raise
        if isinstance(known, Code):
            return code.dump_result(value, known)
        taken = Collected()
        return dump_apart(value, taken), taken.views

    def _function(self, digest: str) -> Callable[..., object] | Code:
        known = self._loaded.get(digest)
        if known is None:
            pickled, buffers = unpacked(self._packed[digest], self._apart)
            known = self._loaded[digest] = pickle.loads(pickled, buffers=buffers)
            if isinstance(known, Code) and (changed := known.changed()):
                told = f"{', '.join(changed)} changed after the call was described"
                self._changed[digest] = told
        return known

    def _long(self, job: CallJob, task: str) -> Buffer:
        file = job.files[task]
        return self._blob(file.digest, file.size, file.ctime_ns)

    def _apart(self, one: Apart) -> Buffer:
        return self._blob(one.digest, one.size)

    def _blob(self, digest: str, size: int, ctime_ns: int | None = None) -> Buffer:
        if self._store.whole(digest, False, size, ctime_ns) is None:
            raise StoreError("stored data that it needs is gone from .sureline/blobs, or damaged")
        return mapped(self._store.blob_path(digest))


def _names(known: Code) -> Callable[[str], object]:
    return lambda key: known.names[key][0]


def _no_names(key: str) -> Any:
    raise KeyError(key)


def _restore(saved: dict[str, str]) -> None:
    for name in set(os.environ) - set(saved):
        del os.environ[name]
    os.environ.update(saved)
