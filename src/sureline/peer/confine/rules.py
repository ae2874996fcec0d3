"""What the tasks of others may do on this machine, and which means there are to hold them to it."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Mapping
from typing import Literal

import msgspec

Kind = Literal["none", "landlock", "full"]
"""`full`: a view of the machine of its own, and Landlock in it."""

SYSTEM = (
    "/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32",
    "/etc", "/opt", "/nix/store", "/gnu/store", "/sys",
)  # fmt: skip
"""What a program needs to run at all. Homes, data and other disks are not among it."""
SECRET = (
    "/etc/shadow", "/etc/shadow-", "/etc/gshadow", "/etc/gshadow-", "/etc/ssh", "/etc/ssl/private",
    "/etc/sudoers", "/etc/sudoers.d", "/etc/krb5.keytab", "/etc/machine-id", "/etc/wireguard",
    "/etc/NetworkManager", "/etc/sureline",
)  # fmt: skip
"""What only root can read there; a peer may be run by root."""
DEVICES = (
    "null", "zero", "full", "random", "urandom", "tty",
    "nvidiactl", "nvidia-uvm", "nvidia-uvm-tools", "nvidia-modeset", "kfd", "dri",
    *(f"nvidia{number}" for number in range(16)),
)  # fmt: skip
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_PACKAGES = ("site-packages", "dist-packages", "lib-dynload")
_PASSED_ON = ("LANG", "LANGUAGE", "TZ", "TERM")


class Rules(msgspec.Struct, frozen=True):
    kind: Kind = "none"
    network: bool = True
    shared: tuple[str, ...] = ()
    """More that tasks may read."""
    processes_max: int = 0
    """Of one task; 0 for no limit, here and below."""
    memory_bytes_max: int = 0
    disk_bytes_max: int = 0

    def readable(self) -> list[str]:
        """All that may be read, real paths, none of them below another."""
        wanted = [*SYSTEM, *self.shared, sys.prefix, sys.base_prefix, *_of_python(sys.path)]
        return outermost(os.path.realpath(path) for path in wanted if os.path.exists(path))


def _of_python(paths: Iterable[str]) -> list[str]:
    """What this program is loaded from. A path may also be where somebody happened to stand when it
    was started, such as a home: of such a one only this program's own directory counts."""
    return [
        path if os.path.basename(path) in _PACKAGES else f"{path}/sureline"
        for path in paths
        if path
    ]


def outermost(paths: Iterable[str]) -> list[str]:
    """
    >>> outermost(["/usr/lib", "/usr", "/usrlocal", "/usr"])
    ['/usr', '/usrlocal']
    """
    kept: list[str] = []
    for path in sorted(set(paths)):
        if not any(path.startswith(f"{one.rstrip('/')}/") for one in kept):
            kept.append(path)
    return kept


def clean_environment(given: Mapping[str, str], readable: Iterable[str]) -> dict[str, str]:
    """What a task gets to see of this process's environment: languages, and where programs are."""
    tops = tuple(f"{path}/" for path in readable)
    kept = {
        name: value for name, value in given.items() if name in _PASSED_ON or name.startswith("LC_")
    }
    found = [
        entry
        for entry in (*given.get("PATH", "").split(":"), *PATH.split(":"))
        if os.path.isabs(entry) and f"{os.path.realpath(entry)}/".startswith(tops)
    ]
    kept["PATH"] = ":".join(dict.fromkeys(found)) or PATH
    return kept


def encode(rules: Rules) -> str:
    return msgspec.json.encode(rules).decode()


def decode(text: str) -> Rules:
    return msgspec.json.decode(text, type=Rules) if text else Rules()
