"""The slot's ends of what ties it to its runner: the socket it talks on, and the lifeline."""

from __future__ import annotations

import fcntl
import os
import select
import signal
import socket
from collections import deque
from collections.abc import Callable

from sureline.peer.frames import (
    RECEIVE_BYTES,
    Recall,
    Report,
    Run,
    SlotFrames,
    SlotReport,
    Stop,
    decode_order,
    encode,
)
from sureline.peer.jobs import CommandJob, JobEnded, JobReturned


class Channel:
    """Orders in, reports out."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._frames = SlotFrames()
        self._orders: deque[Run | Stop | Recall] = deque()
        self._held = bytearray()
        self.fd = sock.fileno()

    def close(self) -> None:
        self._sock.close()

    def receive(self) -> Run | Stop | Recall | None:
        """The next order; None when the runner is gone.

        What is held back is said before this waits, and before any work but that of starting a
        command: a job's end is told while the next one runs already.
        """
        if self._held and not self._orders and not self.pump(socket.MSG_DONTWAIT):
            return None
        if self._held and not (self._orders and _starts_at_once(self._orders[0])):
            self.say_held()
        while not self._orders:
            if not self.pump():
                return None
        return self._orders.popleft()

    def has_order_within(self, wait_s: float) -> bool:
        """Whether there is something to receive, waiting for it for so long. What is held back is
        said before that."""
        if self._orders or select.select([self._sock], [], [], 0)[0]:
            return True
        self.say_held()
        return bool(select.select([self._sock], [], [], wait_s)[0])

    def pump(self, flags: int = 0) -> bool:
        """Read what there is, waiting for something; False when the runner is gone."""
        try:
            data = self._sock.recv(RECEIVE_BYTES, flags)
        except BlockingIOError:
            return True
        except ConnectionError:
            return False
        for frame in self._frames.feed(data):
            self._orders.append(decode_order(frame))
        return bool(data)

    def stop_for(self, serial: int) -> Stop | None:
        """The strongest pending stop of this job, taken out of the queue.

        Jobs that wait here behind it are given back, or ended, if that was asked for.
        """
        found: Stop | None = None
        for order in [o for o in self._orders if not isinstance(o, Run)]:
            self._orders.remove(order)
            if isinstance(order, Stop) and order.serial == serial:
                if found is None or order.force:
                    found = order
            elif self._drop(order.serial):
                stopped = isinstance(order, Stop)
                self.say(
                    order.serial,
                    JobEnded("cancelled", reason="was stopped") if stopped else JobReturned(),
                )
        return found

    def _drop(self, serial: int) -> bool:
        """Forget a job that has not begun; False if there is none of this number."""
        for order in self._orders:
            if isinstance(order, Run) and order.serial == serial:
                self._orders.remove(order)
                return True
        return False

    def say_later(self, serial: int, report: Report) -> None:
        """Report together with what is said next: one message wakes the runner once."""
        self._held += encode(SlotReport(serial, report))

    def say(self, serial: int, report: Report) -> None:
        """Report; a runner that is gone is noticed by the next `receive`."""
        self.say_later(serial, report)
        self.say_held()

    def say_held(self) -> None:
        if self._held:
            held, self._held = self._held, bytearray()
            try:
                self._sock.sendall(held)
            except ConnectionError:
                pass


def _starts_at_once(order: Run | Stop | Recall) -> bool:
    """Whether it is a command that needs nothing brought before it starts."""
    return isinstance(order, Run) and isinstance(order.job, CommandJob) and not order.job.inputs


class Lifeline:
    """A pipe whose other end only the runner holds: when it closes, the runner is dead.

    Armed, the kernel then kills this process's whole group; no code of ours need run for it.
    Elsewhere than on Linux a thread waits for it instead.
    """

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._armed = False
        self._flags = fcntl.fcntl(fd, fcntl.F_GETFL)
        self._poller = select.poll()
        self._poller.register(fd, 0)
        self._by_kernel = hasattr(fcntl, "F_SETSIG")
        if self._by_kernel:
            fcntl.fcntl(fd, fcntl.F_SETOWN, -os.getpgrp())
        else:  # pragma: no cover - not on Linux
            import _thread

            _thread.start_new_thread(self._watch, ())

    def arm(self) -> None:
        if self._by_kernel:
            fcntl.fcntl(self._fd, fcntl.F_SETSIG, signal.SIGKILL)
            fcntl.fcntl(self._fd, fcntl.F_SETFL, self._flags | os.O_ASYNC)
        self._armed = True
        if self._gone(0):
            orphan_self()

    def hear(self, gone: Callable[[], None]) -> None:
        """Have `gone` called when the runner dies, between two steps of our own work."""
        if self._by_kernel:
            signal.signal(signal.SIGIO, lambda number, frame: gone())
            fcntl.fcntl(self._fd, fcntl.F_SETSIG, signal.SIGIO)
            fcntl.fcntl(self._fd, fcntl.F_SETFL, self._flags | os.O_ASYNC)
        if self._gone(0):
            gone()

    def close(self) -> None:
        os.close(self._fd)

    def disarm(self) -> None:
        self._armed = False
        if self._by_kernel:
            fcntl.fcntl(self._fd, fcntl.F_SETFL, self._flags & ~os.O_ASYNC)

    def _gone(self, timeout_ms: int | None) -> bool:
        return bool(self._poller.poll(timeout_ms))

    def _watch(self) -> None:  # pragma: no cover - not on Linux
        if self._gone(None) and self._armed:
            orphan_self()


def orphan_self() -> None:
    """End this process and all in its group."""
    os.killpg(os.getpgrp(), signal.SIGKILL)
