"""Where a journal lies, and whether SQLite's write-ahead log can work there.

The log's readers and writers share a memory-mapped file, so they must share a kernel: it cannot
work over a network. Wrongly taking a local file system for a network one costs speed only;
the opposite mistake loses data, so unknown FUSE file systems count as network ones.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

MOUNTINFO = Path("/proc/self/mountinfo")

_NETWORK = frozenset(
    {"9p", "afs", "beegfs", "ceph", "cifs", "coda", "glusterfs", "gpfs", "lustre", "mfs", "ncpfs"}
    | {"nfs", "nfs4", "orangefs", "panfs", "pvfs2", "smb2", "smb3", "smbfs"}
    | {"gfs", "gfs2", "ocfs2"}  # a disk that several machines share
)
_LOCAL_FUSE = frozenset(
    {"fuse.bindfs", "fuse.encfs", "fuse.fuse-overlayfs", "fuse.gocryptfs", "fuse.lxcfs"}
)
_OCTAL = re.compile(r"\\([0-7]{3})")


def file_system_type(directory: Path, mountinfo: Path = MOUNTINFO) -> str | None:
    """The type of the file system that holds the directory; None where the system does not say."""
    try:
        lines = mountinfo.read_text(errors="surrogateescape").splitlines()
    except OSError:
        return None
    target = os.path.realpath(directory)
    found, longest = None, -1
    for line in lines:
        before, dash, after = line.partition(" - ")
        fields = before.split(" ")
        if not dash or len(fields) < 5:
            continue
        point = _OCTAL.sub(lambda match: chr(int(match[1], 8)), fields[4])
        # Of two mounts on one point, the later hides the earlier.
        if len(point) >= longest and _holds(point, target):
            found, longest = after.split(" ", 1)[0], len(point)
    return found


def _holds(point: str, target: str) -> bool:
    return point == "/" or target == point or target.startswith(point + "/")


def is_network(file_system: str | None) -> bool:
    """Whether files of this file system may be open on several machines at once."""
    if file_system is None:
        return False
    if file_system.startswith("fuse."):
        return file_system not in _LOCAL_FUSE
    return file_system in _NETWORK
