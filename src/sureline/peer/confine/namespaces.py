"""A view of the machine of its own: a slot moves into it once, before it does anything else.

There, the root is made of what a program needs to run (read-only), a few devices, and the directory
that the slot works in. Homes, keys, other disks and other users' files have no name there, so they
can be neither read nor changed nor looked at. Without network there are no interfaces. The user is
the same; no privilege is left.
"""

from __future__ import annotations

import os
import stat

from sureline.peer.confine import system
from sureline.peer.confine.rules import DEVICES, SECRET, Rules

_SCRATCH = "/tmp"
"""Any directory will do: a mount over it is seen by this process alone."""
_ALIASES = ("/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32")
"""Names that are links to directories below /usr on most systems."""
_LINKS = (("fd", "/proc/self/fd"), ("stdin", "/proc/self/fd/0"), ("stdout", "/proc/self/fd/1"),
          ("stderr", "/proc/self/fd/2"))  # fmt: skip


def enter(rules: Rules, root: str, temporary: str) -> None:
    """Move this process, which has one thread, into a view with `root` in it at its place, and with
    `temporary`, which lies there, as /tmp (unless the root itself is below /tmp).

    Raises OSError where the system does not allow it; then this process is of no use any more."""
    uid, gid = os.getuid(), os.getgid()
    flags = system.NEW_USER | system.NEW_NS | system.NEW_IPC
    system.unshare(flags if rules.network else flags | system.NEW_NET)
    _map_user(uid, gid)
    if not rules.network:
        system.raise_loopback()
    system.mount("none", "/", None, system.MS_REC | system.MS_PRIVATE)
    # All is opened before anything is covered.
    readable = {path: _open(path) for path in rules.readable()}
    writable = {root: _open(root), "/proc": _open("/proc")}
    devices = {name: _open(f"/dev/{name}") for name in DEVICES if os.path.exists(f"/dev/{name}")}
    links = {path: os.readlink(path) for path in _ALIASES if os.path.islink(path)}
    system.mount("none", _SCRATCH, "tmpfs", system.MS_NOSUID | system.MS_NODEV, "mode=755")
    for path, fd in readable.items():
        _bind(fd, f"{_SCRATCH}{path}", read_only=True)
    for path, target in links.items():
        os.symlink(target, f"{_SCRATCH}{path}")
    for path in SECRET:
        _cover(f"{_SCRATCH}{path}")
    _make_devices(devices)
    for path, fd in writable.items():
        _bind(fd, f"{_SCRATCH}{path}")
    if not os.path.lexists(f"{_SCRATCH}/tmp"):
        os.symlink(temporary, f"{_SCRATCH}/tmp")
    os.symlink(temporary, f"{_SCRATCH}/dev/shm")
    for fd in (*readable.values(), *writable.values(), *devices.values()):
        os.close(fd)
    system.make_read_only(_SCRATCH, below=False)
    system.change_root(_SCRATCH)
    system.give_up_privileges()


def _open(path: str) -> int:
    return os.open(path, os.O_PATH | os.O_CLOEXEC)


def _map_user(uid: int, gid: int) -> None:
    for name, text in (
        ("setgroups", "deny"),
        ("uid_map", f"{uid} {uid} 1"),
        ("gid_map", f"{gid} {gid} 1"),
    ):
        with open(f"/proc/self/{name}", "w") as file:
            file.write(text)


def _bind(fd: int, target: str, *, read_only: bool = False) -> None:
    """Mount what is open as `fd` at `target`, which is made if it is not there."""
    if stat.S_ISDIR(os.fstat(fd).st_mode):
        os.makedirs(target, exist_ok=True)
    elif not os.path.lexists(target):
        os.makedirs(os.path.dirname(target), exist_ok=True)
        os.close(os.open(target, os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC, 0o600))
    source = f"/proc/self/fd/{fd}"
    system.mount(source, target, None, system.MS_BIND | system.MS_REC)
    if read_only:
        system.make_read_only(target)


def _cover(path: str) -> None:
    """Put nothing over a secret."""
    if os.path.isdir(path):
        system.mount("none", path, "tmpfs", system.MS_NOSUID | system.MS_NODEV, "mode=000,size=4k")
    elif os.path.lexists(path) and not os.path.islink(path):
        system.mount("/dev/null", path, None, system.MS_BIND)


def _make_devices(devices: dict[str, int]) -> None:
    top = f"{_SCRATCH}/dev"
    os.makedirs(top, exist_ok=True)
    for name, fd in devices.items():
        _bind(fd, f"{top}/{name}")
    for name, target in _LINKS:
        os.symlink(target, f"{top}/{name}")
