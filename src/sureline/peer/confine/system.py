"""The calls of Linux that Python does not offer, and their numbers."""

from __future__ import annotations

import ctypes
import fcntl
import functools
import os
import platform
import signal
import socket
import struct

NEW_NS = 0x00020000
NEW_IPC = 0x08000000
NEW_USER = 0x10000000
NEW_NET = 0x40000000

MS_REC = 0x4000
MS_BIND = 0x1000
MS_PRIVATE = 1 << 18
MS_NOSUID, MS_NODEV = 2, 4
MNT_DETACH = 2
AT_RECURSIVE = 0x8000
AT_FDCWD = -100
ATTR_RDONLY, ATTR_NOSUID = 1, 2

PR_SET_NO_NEW_PRIVS = 38
PR_CAPBSET_DROP = 24
CAP_MAX = 63

IFF_UP = 1
SIOCSIFFLAGS = 0x8914

MOUNT_SETATTR = 442
LANDLOCK_CREATE_RULESET = 444
LANDLOCK_ADD_RULE = 445
LANDLOCK_RESTRICT_SELF = 446
_SA_NOCLDSTOP = 1
_PIVOT_ROOT = {"x86_64": 155, "aarch64": 41, "riscv64": 41}


@functools.cache
def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def call(number: int, *arguments: object) -> int:
    """A system call. Raises OSError."""
    found = int(_libc().syscall(ctypes.c_long(number), *arguments))
    if found < 0:
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error))
    return found


class _Action(ctypes.Structure):
    _fields_ = [
        ("handler", ctypes.c_void_p),
        ("mask", ctypes.c_ulong * 16),
        ("flags", ctypes.c_int),
        ("restorer", ctypes.c_void_p),
    ]


def hear_only_ends() -> None:
    """From now on SIGCHLD tells of children that ended, not of those that stop or go on. What
    handles it stays. Where the C library may look different, nothing is changed."""
    if platform.machine() not in _PIVOT_ROOT:
        return
    action = _Action()
    _checked(_libc().sigaction(signal.SIGCHLD, None, ctypes.byref(action)), "SIGCHLD")
    action.flags |= _SA_NOCLDSTOP
    _checked(_libc().sigaction(signal.SIGCHLD, ctypes.byref(action), None), "SIGCHLD")


def _checked(found: int, what: str) -> None:
    if found < 0:
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error), what)


def unshare(flags: int) -> None:
    _checked(_libc().unshare(flags), "unshare")


def mount(source: str, target: str, kind: str | None, flags: int, data: str = "") -> None:
    _checked(
        _libc().mount(
            source.encode(),
            target.encode(),
            None if kind is None else kind.encode(),
            ctypes.c_ulong(flags),
            data.encode() or None,
        ),
        target,
    )


class _MountAttributes(ctypes.Structure):
    _fields_ = [
        ("set", ctypes.c_uint64),
        ("clear", ctypes.c_uint64),
        ("propagation", ctypes.c_uint64),
        ("user_namespace", ctypes.c_uint64),
    ]


def make_read_only(target: str, *, below: bool = True) -> None:
    """A mount and, with `below`, all that is mounted in it."""
    attributes = _MountAttributes(ATTR_RDONLY | ATTR_NOSUID, 0, 0, 0)
    size = ctypes.c_size_t(ctypes.sizeof(attributes))
    call(
        MOUNT_SETATTR,
        ctypes.c_int(AT_FDCWD),
        target.encode(),
        ctypes.c_uint(AT_RECURSIVE if below else 0),
        ctypes.byref(attributes),
        size,
    )


def change_root(new: str) -> None:
    """Make the mount at `new` the root of everything, and forget the old one."""
    os.chdir(new)
    call(_PIVOT_ROOT[platform.machine()], b".", b".")
    _checked(_libc().umount2(b".", MNT_DETACH), "the old root")
    os.chdir("/")


def raise_loopback() -> None:
    """In a new network there is only the loopback interface, and that is down."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        request = struct.pack("16sh14x", b"lo", IFF_UP)
        fcntl.ioctl(any_socket, SIOCSIFFLAGS, request)


def give_up_privileges() -> None:
    """No capability for this thread and what it starts, also not by a program that gives one."""
    _checked(_libc().prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "no new privileges")
    for capability in range(CAP_MAX + 1):
        if _libc().prctl(PR_CAPBSET_DROP, capability, 0, 0, 0) < 0:
            break  # there are no more, or we have none to give up
    _drop_capabilities()


class _CapabilityHeader(ctypes.Structure):
    _fields_ = [("version", ctypes.c_uint32), ("pid", ctypes.c_int)]


def _drop_capabilities() -> None:
    header = _CapabilityHeader(0x20080522, 0)
    nothing = (ctypes.c_uint32 * 6)()
    _checked(_libc().capset(ctypes.byref(header), ctypes.byref(nothing)), "capabilities")
