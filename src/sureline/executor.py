"""A `concurrent.futures.Executor` over warm slot processes; its calls are not journalled.

    with sureline.Executor() as executor:
        print(list(executor.map(pow, [2, 3], [10, 10])))

Unlike a ProcessPoolExecutor, a worker process that dies (out of memory, a crash in C code) fails
only the call it was running, and functions and arguments may be anything cloudpickle can carry.
It also serves Dask: `dask.compute(x, scheduler=executor)`.
"""

from __future__ import annotations

import atexit
import operator
import os
import pickle
import selectors
import shutil
import socket
import sys
import tempfile
import threading
import types
import weakref
from collections import deque
from collections.abc import Callable
from concurrent.futures import Executor as FuturesExecutor
from concurrent.futures import Future
from pathlib import Path
from typing import IO, Any, ParamSpec, TypeVar

from sureline.peer import orphans
from sureline.peer.bytecode import global_names
from sureline.peer.calls import dump_value, load_error
from sureline.peer.capacity import this_machine
from sureline.peer.frames import FrameTooLongError, Run, encode
from sureline.peer.jobs import CallJob, JobEnded
from sureline.peer.runner_slot import SlotProcess
from sureline.peer.store import BlobStore
from sureline.run.keys import digest_of
from sureline.workflow.mistakes import SurelineError

P = ParamSpec("P")
T = TypeVar("T")

RUN = "executor"
FUNCTIONS_MAX = 1000
"""How many functions are remembered as bytes; past this, all are forgotten."""
INLINE_BYTES = 32 << 20
"""Longer results come through a file."""


class WorkerLostError(SurelineError):
    """The process that ran a call died. Only that call is lost; the executor goes on."""


class Executor(FuturesExecutor):
    """`max_workers` processes at most, by default one per core; they start when needed."""

    def __init__(self, max_workers: int | None = None) -> None:
        if max_workers is not None and max_workers < 1:
            raise ValueError("max_workers must be 1 or more")
        workers = max_workers or max(1, int(this_machine(Path(".")).cores))
        self._max_workers = workers
        """Dask reads this name."""
        self._pool = _Pool(workers)
        self._forget = weakref.finalize(self, self._pool.close, False)

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Call `fn` in a worker process. The future is cancelled only while it waits."""
        return self._pool.submit(fn, args, kwargs)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Take no more calls; those submitted are still made, unless cancelled here."""
        self._forget.detach()
        self._pool.close(cancel_futures)
        if wait:
            self._pool.join()


class _Call:
    __slots__ = ("arguments", "digest", "function", "future")

    def __init__(self, digest: str, function: bytes, arguments: bytes) -> None:
        self.digest = digest
        self.function = function
        self.arguments = arguments
        self.future: Future[Any] = Future()


class _Functions:
    """Functions as bytes. One that travels by value is pickled again only when something it is
    made of (its code, its defaults, a global that it names) is another object than before; one
    that has a closure, or is no plain function, is pickled for every call."""

    def __init__(self) -> None:
        self._known: dict[int, _Packed] = {}

    def packed(self, fn: object) -> tuple[str, bytes]:
        """The function's digest and its bytes."""
        if not isinstance(fn, types.FunctionType) or fn.__closure__:
            data = dump_value(fn)
            return digest_of(data), data
        known = self._known.get(id(fn))
        if known is None or not known.holds():
            if len(self._known) >= FUNCTIONS_MAX:
                self._known.clear()
            known = self._known[id(fn)] = _Packed(fn)
        return known.digest, known.data


class _Packed:
    """A plain function as bytes, and what it was made of then. It keeps the function alive, so
    that its id is not given to another one."""

    __slots__ = ("_fn", "_made_of", "_names", "data", "digest")

    def __init__(self, fn: types.FunctionType) -> None:
        self._fn = fn
        self._names = tuple(global_names(fn.__code__))
        self._made_of = self._parts()
        self.data = dump_value(fn)
        self.digest = digest_of(self.data)

    def _parts(self) -> tuple[object, ...]:
        fn = self._fn
        values = map(fn.__globals__.get, self._names)
        return (fn.__code__, fn.__defaults__, fn.__kwdefaults__, *values)

    def holds(self) -> bool:
        return all(map(operator.is_, self._made_of, self._parts()))


class _Pool:
    """The executor's state, shared by its callers' threads and one thread that hears the slots.

    `_lock` guards everything; futures are completed outside it, because their callbacks may
    submit again.
    """

    def __init__(self, workers: int) -> None:
        self._workers = workers
        self._lock = threading.Lock()
        self._root = tempfile.mkdtemp(prefix="sureline-executor-")
        self._functions = _Functions()
        self._waiting: deque[_Call] = deque()
        self._slots: set[SlotProcess] = set()
        self._idle: list[SlotProcess] = []
        self._at_work: dict[SlotProcess, tuple[int, _Call]] = {}
        self._serial = 0
        self._started = 0
        self._closing = False
        self._selector = selectors.DefaultSelector()
        self._wake, self._woken = socket.socketpair()
        self._selector.register(self._woken, selectors.EVENT_READ)
        self._thread: threading.Thread | None = None
        _pools.add(self)

    # -- callers' threads ----------------------------------------------------------------------

    def submit(self, fn: object, args: Any, kwargs: Any) -> Future[Any]:
        digest, function = self._functions.packed(fn)
        call = _Call(digest, function, dump_value((args, kwargs)))
        with self._lock:
            if self._closing:
                raise RuntimeError("cannot schedule new futures after shutdown")
            if self._thread is None:
                self._thread = threading.Thread(target=self._serve, daemon=True, name="sureline")
                self._thread.start()
            slot = None if self._waiting else self._free_slot()
            if slot is None:
                self._waiting.append(call)
            elif not self._dispatch(slot, call):
                self._idle.append(slot)
        return call.future

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

    def _free_slot(self) -> SlotProcess | None:
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
        self._slots.add(slot)
        self._selector.register(slot.fd, selectors.EVENT_READ, slot)
        self._wake.send(b"x")  # so that the waiting select hears the new one
        return slot

    def _dispatch(self, slot: SlotProcess, call: _Call) -> bool:
        """Send the call to a free slot; False if it was cancelled or cannot be sent."""
        if not call.future.set_running_or_notify_cancel():
            return False
        self._serial += 1
        job = CallJob(
            "call", "call", self._serial, call.digest, call.arguments, inline_bytes=INLINE_BYTES
        )
        function = call.function if slot.needs_function(call.digest) else None
        try:
            frame = encode(Run(self._serial, job, function))
        except FrameTooLongError as error:
            call.future.set_exception(
                ValueError(f"the call's function and arguments are too long to pass on: {error}")
            )
            return False
        slot.has_function(call.digest)
        self._at_work[slot] = (self._serial, call)
        if slot.send(frame):
            self._selector.modify(slot.fd, selectors.EVENT_READ | selectors.EVENT_WRITE, slot)
        return True

    def _next(self, slot: SlotProcess) -> None:
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
            if not call.future.done():
                call.future.set_exception(error)

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
            result: bytes | OSError
            try:
                result = self._result(slot, message.report)
            except OSError as error:
                result = error
            with self._lock:
                serial, call = self._at_work[slot]
                assert serial == message.serial, "a slot answered a call it was not given"
                del self._at_work[slot]
                self._next(slot)
            self._complete(call.future, message.report, result)

    def _complete(self, future: Future[Any], ended: JobEnded, result: bytes | OSError) -> None:
        _echo(sys.stdout, ended.stdout)
        _echo(sys.stderr, ended.stderr)
        try:
            if isinstance(result, OSError):
                future.set_exception(result)
            elif ended.outcome == "succeeded":
                future.set_result(pickle.loads(result))
            elif ended.error is not None:
                future.set_exception(load_error(ended.error))
            else:
                future.set_exception(WorkerLostError(ended.reason))
        except Exception as error:  # a result that does not unpickle here is the call's failure
            future.set_exception(error)

    def _root_of(self, slot_name: str) -> str:
        """Each slot has a store of its own: what is in it belongs to the one call it runs."""
        return f"{self._root}/{slot_name}"

    def _result(self, slot: SlotProcess, ended: JobEnded) -> bytes:
        """The pickled result; a long one is taken out of the slot's store."""
        if ended.result is not None or not ended.outputs:
            return ended.result or b""
        (file,) = ended.outputs
        path = BlobStore(Path(self._root_of(slot.name))).blob_path(file.digest)
        with open(path, "rb") as stored:
            data = stored.read()
        os.unlink(path)
        return data

    def _bury(self, slot: SlotProcess) -> None:
        """A slot has died: its call fails, the others go on, a new slot takes its place."""
        self._selector.unregister(slot.fd)
        slot.kill()
        slot.wait()
        with self._lock:
            self._slots.discard(slot)
            if slot in self._idle:
                self._idle.remove(slot)
            _, call = self._at_work.pop(slot, (0, None))
        orphans.kill(orphans.token_of(self._root, RUN, slot.name))
        lost = WorkerLostError(slot.epitaph())
        slot.close()
        shutil.rmtree(self._root_of(slot.name), ignore_errors=True)
        if call is not None:
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
        orphans.kill(orphans.token_of(self._root, RUN, ""), prefix=True)
        self._discard()

    def _discard(self) -> None:
        self._selector.close()
        self._wake.close()
        self._woken.close()
        shutil.rmtree(self._root, ignore_errors=True)


def _echo(stream: IO[str] | None, text: str) -> None:
    """Show what a call printed; a caller whose stream is closed must still get its result."""
    try:
        if text and stream is not None:
            stream.write(text)
    except (OSError, ValueError):
        pass


_pools: weakref.WeakSet[_Pool] = weakref.WeakSet()


@atexit.register
def _close_pools() -> None:
    """What was submitted is finished before the interpreter ends, as with other executors."""
    for pool in list(_pools):
        pool.close(False)
        pool.join()
