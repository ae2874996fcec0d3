"""Landlock: a thread gives up all files but those named, and so does whatever it starts.

The rules are made once for each directory; binding a thread to them costs a few microseconds. A
command is started from a thread that is bound, while the slot's own thread is not. Beyond files: no
signals to processes outside, no abstract sockets of others, and, if the network is off, no TCP.
What Landlock does not rule: looking at names and sizes, changing modes and times of one's own
files, and, where it is older than ABI 4 or 6, the network and signals.
"""

from __future__ import annotations

import ctypes
import os
import queue
import signal
import stat
import threading
from collections.abc import Callable
from typing import TypeVar

from sureline.peer.confine import system
from sureline.peer.confine.rules import SECRET, Rules

T = TypeVar("T")

_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR = 1, 2, 4, 8
_TRUNCATE, _IOCTL_DEV = 1 << 14, 1 << 15
_RIGHTS_BY_ABI = (0, (1 << 13) - 1, (1 << 14) - 1, (1 << 15) - 1, (1 << 15) - 1, (1 << 16) - 1)
_OF_FILES = _EXECUTE | _WRITE_FILE | _READ_FILE | _TRUNCATE | _IOCTL_DEV
_READ = _EXECUTE | _READ_FILE | _READ_DIR
_DEVICE = _READ_FILE | _READ_DIR | _WRITE_FILE | _IOCTL_DEV | _TRUNCATE
_NET_ALL = 3
_SCOPE_ALL = 3
_NET_FROM, _SCOPE_FROM = 4, 6
_RULE_PATH = 1
_VERSION = 1


class _Ruleset(ctypes.Structure):
    _fields_ = [
        ("fs", ctypes.c_uint64),
        ("net", ctypes.c_uint64),
        ("scoped", ctypes.c_uint64),
    ]


class _Beneath(ctypes.Structure):
    _pack_ = 1
    _fields_ = [("allowed", ctypes.c_uint64), ("parent", ctypes.c_int32)]


def abi() -> int:
    """The version of Landlock that this kernel has; 0 if it has none."""
    try:
        nothing = ctypes.c_void_p(None)
        return system.call(
            system.LANDLOCK_CREATE_RULESET, nothing, ctypes.c_size_t(0), ctypes.c_uint32(_VERSION)
        )
    except OSError:
        return 0


class Domain:
    """A set of rules. All may be done in `writable`, files that are there may be written to in
    `files_writable`; `rules` says what may be read."""

    def __init__(self, rules: Rules, *, writable: list[str], files_writable: list[str]) -> None:
        version = abi()
        self._all = _RIGHTS_BY_ABI[min(version, len(_RIGHTS_BY_ABI) - 1)]
        alone = rules.kind == "full"  # then the view has no secrets in it, and its own network
        net = _NET_ALL if version >= _NET_FROM and not rules.network and not alone else 0
        made = _Ruleset(self._all, net, _SCOPE_ALL if version >= _SCOPE_FROM else 0)
        size = 8 if version < _NET_FROM else 16 if version < _SCOPE_FROM else 24
        self._fd = system.call(
            system.LANDLOCK_CREATE_RULESET,
            ctypes.byref(made),
            ctypes.c_size_t(size),
            ctypes.c_uint32(0),
        )
        for path in rules.readable():
            if alone:
                self._allow(path, _READ)
            else:
                self._allow_but_secrets(path)
        self._allow("/proc", _READ | _WRITE_FILE)
        self._allow("/dev", _DEVICE)
        for path in files_writable:
            self._allow(path, _READ_FILE | _WRITE_FILE | _TRUNCATE)
        for path in writable:
            self._allow(path, self._all)

    def _allow_but_secrets(self, path: str) -> None:
        """A rule allows all below a path: a directory with a secret is allowed piece by piece."""
        if path in SECRET:
            return
        if not any(secret.startswith(f"{path}/") for secret in SECRET):
            self._allow(path, _READ)
            return
        self._allow(path, _READ_DIR)  # also below: names are no secret
        for name in os.listdir(path):
            self._allow_but_secrets(f"{path}/{name}")

    def _allow(self, path: str, rights: int) -> None:
        try:
            fd = os.open(path, os.O_PATH | os.O_CLOEXEC)
        except OSError:
            return
        try:
            if not stat.S_ISDIR(os.fstat(fd).st_mode):
                rights &= _OF_FILES
            rule = _Beneath(rights & self._all, fd)
            if rule.allowed:
                system.call(
                    system.LANDLOCK_ADD_RULE,
                    ctypes.c_int(self._fd),
                    ctypes.c_int(_RULE_PATH),
                    ctypes.byref(rule),
                    ctypes.c_uint32(0),
                )
        finally:
            os.close(fd)

    def bind_this_thread(self) -> None:
        """For good; also what it starts from now on."""
        system.give_up_privileges()
        system.call(system.LANDLOCK_RESTRICT_SELF, ctypes.c_int(self._fd), ctypes.c_uint32(0))

    def close(self) -> None:
        os.close(self._fd)


class BoundThread:
    """A thread that is bound to a domain, and does what it is given, one thing at a time."""

    def __init__(self, domain: Domain) -> None:
        self._orders: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._failed: OSError | None = None
        self._thread = threading.Thread(target=self._work, args=(domain,), daemon=True)
        self._thread.start()

    def _work(self, domain: Domain) -> None:
        # What it starts has no signals blocked; what comes of that is the main thread's to hear.
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        try:
            domain.bind_this_thread()
        except OSError as error:
            self._failed = error
        while (order := self._orders.get()) is not None:
            order()

    def do(self, work: Callable[[], T]) -> T:
        """What `work` returns, or raises, there."""
        done: queue.SimpleQueue[tuple[T | None, BaseException | None]] = queue.SimpleQueue()

        def order() -> None:
            try:
                if self._failed is not None:
                    raise self._failed
                done.put((work(), None))
            except BaseException as error:
                done.put((None, error))

        self._orders.put(order)
        found, error = done.get()
        if error is not None:
            raise error
        return found  # type: ignore[return-value]  # what `work` returned

    def end(self) -> None:
        self._orders.put(None)
