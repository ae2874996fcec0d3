"""The processes of an executor, and the calls that wait for them.

Shared by the callers' threads and one thread that hears the slots. `_lock` guards everything;
futures are completed outside it, because their callbacks may submit again.

After a fork, the pool is empty and new in the child: the parent's processes, sockets and files are
closed there and nothing else is done to them.
"""

from __future__ import annotations

import atexit
import logging
import os
import pathlib
import pickle
import selectors
import shutil
import socket
import sys
import threading
import weakref
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import BrokenExecutor, Future
from typing import Any, NamedTuple, Protocol

from sureline.executor.functions import Functions
from sureline.executor.janitor import Janitor
from sureline.executor.lost import WorkerLostError
from sureline.executor.shared import Shared
from sureline.executor.shown import echo
from sureline.peer import orphans
from sureline.peer.calls import dump_apart, load_error
from sureline.peer.frames import FrameTooLongError, Run, encode
from sureline.peer.jobs import CallJob, JobEnded
from sureline.peer.packed import Apart, Collected, bundled, mapped, packed, packed_whole
from sureline.peer.runner_slot import SlotProcess
from sureline.peer.store import BlobStore

RUN = "executor"
INLINE_BYTES = 1 << 20
"""Longer arguments and results go through a file, which is mapped."""
_LOG = logging.getLogger("concurrent.futures")


class Worker(NamedTuple):
    """How each process begins, and when it is replaced."""

    initializer: Callable[..., object] | None = None
    initargs: tuple[Any, ...] = ()
    calls_max: int | None = None


class _Call:
    __slots__ = ("arguments", "digest", "function", "future", "is_initializer", "kept")

    def __init__(
        self, digest: str, function: bytes, arguments: bytes, kept: Sequence[Apart] = ()
    ) -> None:
        self.digest = digest
        self.function = function
        self.arguments = arguments
        self.kept = kept
        self.future: Future[Any] = Future()
        self.is_initializer = False


class Pool:
    def __init__(self, workers: int, worker: Worker) -> None:
        self._workers = workers
        self._worker = worker
        self._functions = Functions()
        self._begin()
        ends_with_the_interpreter(self)

    def _begin(self) -> None:
        self._lock = threading.Lock()
        self._janitor: Janitor | None = None
        self._shared: Shared | None = None
        self._waiting: deque[_Call] = deque()
        self._slots: dict[SlotProcess, int] = {}
        """How many calls each was given."""
        self._idle: list[SlotProcess] = []
        self._at_work: dict[SlotProcess, tuple[int, _Call]] = {}
        self._serial = 0
        self._started = 0
        self._closing = False
        self.broken = ""
        """Why no more calls are taken; '' if they are."""
        self._selector = selectors.DefaultSelector()
        self._wake, self._woken = socket.socketpair()
        self._selector.register(self._woken, selectors.EVENT_READ)
        self._thread: threading.Thread | None = None

    def forked(self) -> None:
        """In a child process: let go of all that is the parent's, and begin anew."""
        closing = self._closing
        for slot in self._slots:
            slot.abandon()
        if self._janitor is not None:
            self._janitor.forget()
        for end in (self._selector, self._wake, self._woken):
            end.close()
        self._begin()
        self._closing = closing

    # -- callers' threads ----------------------------------------------------------------------

    def submit(self, fn: object, args: Any, kwargs: Any) -> Future[Any]:
        call = self._packed(fn, args, kwargs)
        with self._lock:
            self._refuse_if_over()
            if self._thread is None:
                self._thread = threading.Thread(target=self._serve, daemon=True, name="sureline")
                self._thread.start()
            self._waiting.append(call)
            slot = self._free_slot()
            if slot is not None:
                self._next(slot)
        return call.future

    def _refuse_if_over(self) -> None:
        if self.broken:
            raise BrokenExecutor(self.broken)
        if self._closing:
            raise RuntimeError("cannot schedule new futures after shutdown")

    def _packed(self, fn: object, args: Any, kwargs: Any) -> _Call:
        digest, function = self._functions.packed(fn)
        taken = Collected()
        arguments = dump_apart((args, kwargs), taken)
        if not taken.views and len(arguments) <= INLINE_BYTES:
            return _Call(digest, function, arguments)
        with self._lock:
            self._refuse_if_over()
            if self._shared is None:
                self._shared = Shared(f"{self._root}/shared")
            shared = self._shared
        long = len(arguments) > INLINE_BYTES
        views = [memoryview(arguments), *taken.views] if long else taken.views
        kept = [shared.keep(view) for view in views]
        return _Call(
            digest, function, packed_whole(kept) if long else packed(arguments, kept), kept
        )

    def close(self, cancel_futures: bool) -> None:
        cancelled: list[_Call] = []
        with self._lock:
            self._closing = True
            if cancel_futures:
                cancelled.extend(self._waiting)
                self._waiting.clear()
            if self._thread is None:
                self._discard()
        for call in cancelled:
            call.future.cancel()
            call.future.set_running_or_notify_cancel()
        try:
            self._wake.send(b"x")
        except OSError:
            pass  # closed already

    def join(self) -> None:
        thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join()

    # -- under the lock ------------------------------------------------------------------------

    @property
    def _root(self) -> str:
        if self._janitor is None:
            self._janitor = Janitor("sureline-executor-")
        return self._janitor.directory

    def _free_slot(self) -> SlotProcess | None:
        """One that may be given a call now. A new one gets its initializer first."""
        if self._idle:
            return self._idle.pop()
        if len(self._slots) >= self._workers:
            return None
        self._started += 1
        name = f"slot-{self._started}"
        root = self._root_of(name)
        os.makedirs(f"{root}/work/{RUN}")
        os.makedirs(f"{root}/blobs")
        slot = SlotProcess(
            name=name,
            root=root,
            directory=os.getcwd(),
            run=RUN,
            grace_s=1.0,
            env={**os.environ, orphans.TOKEN: orphans.token_of(self._root, RUN, name)},
        )
        self._slots[slot] = 0
        self._selector.register(slot.fd, selectors.EVENT_READ, slot)
        self._wake.send(b"x")  # so that the waiting select hears the new one
        if self._worker.initializer is None:
            return slot
        digest, function = self._functions.packed(self._worker.initializer)
        first = _Call(digest, function, dump_apart((self._worker.initargs, {}), None))
        first.is_initializer = True
        self._dispatch(slot, first)
        return None

    def _dispatch(self, slot: SlotProcess, call: _Call) -> bool:
        """Send the call to a free slot; False if it was cancelled or cannot be sent."""
        if not call.future.set_running_or_notify_cancel():
            self._release(call)
            return False
        self._serial += 1
        job = CallJob(
            "call",
            "call",
            self._serial,
            call.digest,
            call.arguments,
            inline_bytes=INLINE_BYTES,
            buffers=self._shared.directory if self._shared is not None else "",
        )
        function = call.function if slot.needs_function(call.digest) else None
        try:
            frame = encode(Run(self._serial, job, function))
        except FrameTooLongError as error:
            call.future.set_exception(
                ValueError(f"the call's function is too long to pass on: {error}")
            )
            return False
        slot.has_function(call.digest)
        self._slots[slot] += not call.is_initializer
        self._at_work[slot] = (self._serial, call)
        if slot.send(frame):
            self._selector.modify(slot.fd, selectors.EVENT_READ | selectors.EVENT_WRITE, slot)
        return True

    def _next(self, slot: SlotProcess) -> None:
        calls_max = self._worker.calls_max
        if calls_max is not None and self._slots[slot] >= calls_max:
            slot.kill()  # it has nothing to do; its end is heard, and another takes its place
            return
        while self._waiting:
            if self._dispatch(slot, self._waiting.popleft()):
                return
        self._idle.append(slot)

    # -- the pool's own thread -----------------------------------------------------------------

    def _serve(self) -> None:
        try:
            while not self._finished():
                for key, mask in self._selector.select():
                    slot = key.data
                    if slot is None:
                        self._woken.recv(4096)
                        continue
                    if mask & selectors.EVENT_WRITE:
                        self._send_rest(slot)
                    if mask & selectors.EVENT_READ:
                        self._hear(slot)
        except Exception as error:  # such as no file descriptors for a new slot
            self._abandon(error)
        finally:
            self._end()

    def _abandon(self, error: Exception) -> None:
        """This pool cannot go on: nobody is to wait for it for ever."""
        with self._lock:
            self._closing = True
            calls = [call for _, call in self._at_work.values()] + list(self._waiting)
            self._at_work.clear()
            self._waiting.clear()
        for call in calls:
            future = call.future
            if future.running() or (not future.done() and future.set_running_or_notify_cancel()):
                future.set_exception(error)

    def _finished(self) -> bool:
        with self._lock:
            return self._closing and not self._waiting and not self._at_work

    def _send_rest(self, slot: SlotProcess) -> None:
        with self._lock:
            if not slot.send_rest():
                self._selector.modify(slot.fd, selectors.EVENT_READ, slot)

    def _hear(self, slot: SlotProcess) -> None:
        said = slot.receive()
        if said is None:
            self._bury(slot)
            return
        for message in said:
            if not isinstance(message.report, JobEnded):
                continue
            result: Any
            try:
                result = self._result(slot, message.report)
            except OSError as error:
                result = error
            with self._lock:
                serial, call = self._at_work.pop(slot)
                assert serial == message.serial, "a slot answered a call it was not given"
                failed = call.is_initializer and message.report.outcome != "succeeded"
                if not failed:
                    self._next(slot)
            self._release(call)
            if failed:
                self._break(message.report)
            elif not call.is_initializer:
                _complete(call.future, message.report, result)

    def _break(self, ended: JobEnded) -> None:
        """A worker could not be initialised: as other executors, this one takes no more calls."""
        error = None if ended.error is None else load_error(ended.error)
        _LOG.critical("Exception in initializer:", exc_info=error)
        self.broken = "a process could not be initialised; the executor is not usable any more"
        self._abandon(BrokenExecutor(self.broken))

    def _root_of(self, slot_name: str) -> str:
        """Each slot has a store of its own: what is in it belongs to the one call it runs."""
        return f"{self._root}/{slot_name}"

    def _result(self, slot: SlotProcess, ended: JobEnded) -> tuple[Any, list[Any]]:
        """The pickled result and its buffers; a long one is a file that is mapped and unlinked."""
        if ended.result is not None or not ended.outputs:
            return ended.result or b"", []
        (file,) = ended.outputs
        path = BlobStore(pathlib.Path(self._root_of(slot.name))).blob_path(file.digest)
        data = mapped(path)
        os.unlink(path)
        return bundled(data)

    def _release(self, call: _Call) -> None:
        if self._shared is not None:
            self._shared.release(call.kept)

    def _bury(self, slot: SlotProcess) -> None:
        """A slot has died: its call fails, the others go on, a new slot takes its place."""
        self._selector.unregister(slot.fd)
        slot.kill()
        slot.wait()
        with self._lock:
            del self._slots[slot]
            if slot in self._idle:
                self._idle.remove(slot)
            _, call = self._at_work.pop(slot, (0, None))
        orphans.kill(orphans.token_of(self._root, RUN, slot.name))
        lost = WorkerLostError(slot.epitaph())
        slot.close()
        shutil.rmtree(self._root_of(slot.name), ignore_errors=True)
        if call is not None:
            self._release(call)
            if call.is_initializer:
                self._break(JobEnded("lost", reason=slot.epitaph()))
            else:
                call.future.set_exception(lost)
        with self._lock:
            while self._waiting and (fresh := self._free_slot()) is not None:
                self._next(fresh)

    def _end(self) -> None:
        for slot in self._slots:
            slot.kill()
        for slot in self._slots:
            slot.wait()
            slot.close()
        if self._janitor is not None:
            orphans.kill(orphans.token_of(self._root, RUN, ""), prefix=True)
        with self._lock:
            self._slots.clear()
            self._discard()

    def _discard(self) -> None:
        self._selector.close()
        self._wake.close()
        self._woken.close()
        if self._janitor is not None:
            self._janitor.close()
            self._janitor = self._shared = None


def _complete(future: Future[Any], ended: JobEnded, result: Any) -> None:
    echo(sys.stdout, ended.stdout)
    echo(sys.stderr, ended.stderr)
    try:
        if isinstance(result, OSError):
            future.set_exception(result)
        elif ended.outcome == "succeeded":
            pickled, buffers = result
            future.set_result(pickle.loads(pickled, buffers=buffers))
        elif ended.error is not None:
            future.set_exception(load_error(ended.error))
        else:
            future.set_exception(WorkerLostError(ended.reason))
    except Exception as error:  # a result that does not unpickle here is the call's failure
        future.set_exception(error)


class Ending(Protocol):
    """Pools end with the interpreter, and begin anew in a forked process."""

    def close(self, cancel_futures: bool) -> None: ...
    def join(self) -> None: ...
    def forked(self) -> None: ...


_pools: weakref.WeakSet[Any] = weakref.WeakSet()


def ends_with_the_interpreter(pool: Ending) -> None:
    _pools.add(pool)


@atexit.register
def _close_pools() -> None:
    """What was submitted is finished before the interpreter ends, as with other executors."""
    for pool in list(_pools):
        pool.close(False)
        pool.join()


def _forked() -> None:
    for pool in list(_pools):
        pool.forked()


os.register_at_fork(after_in_child=_forked)
