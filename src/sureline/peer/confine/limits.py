"""What one command of somebody else's may use up: looked at while it runs, stopped when it is more.

The kernel's own limits are per process or per user, not per command; control groups need rights
that a peer has not got everywhere. So a slot looks about once a second, and a command can exceed
its limits for as long as that.
"""

from __future__ import annotations

import os
import resource
import time

from sureline.peer.confine.rules import Rules
from sureline.peer.orphans import children_of

_PAGE_BYTES = resource.getpagesize()
_BLOCK_BYTES = 512
_SPARE_PROCESSES = 64
_LOOKED_AT_MAX = 200_000
"""Files; a directory with more is judged by these."""
_SHARE_OF_TIME = 0.05
"""Looking at files takes no more of the time than this."""


def limit_this_process(rules: Rules) -> None:
    """What can be set once, for the slot and all it starts."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if rules.processes_max and rules.kind == "full":
        # counted in our own user namespace; elsewhere it would count all of the user's processes
        wanted = rules.processes_max + _SPARE_PROCESSES
        _, hard = resource.getrlimit(resource.RLIMIT_NPROC)
        if hard == resource.RLIM_INFINITY or hard > wanted:
            resource.setrlimit(resource.RLIMIT_NPROC, (wanted, wanted))
    try:
        with open("/proc/self/oom_score_adj", "w") as file:
            file.write("500")  # if memory is short, tasks go before the peer
    except OSError:
        pass


class Usage:
    """Of one command, which runs in `directories` below this process."""

    def __init__(self, rules: Rules, directories: list[str]) -> None:
        self._rules = rules
        self._directories = directories
        self._disk_at = 0.0

    def excess(self) -> str:
        """Which limit it exceeds, as the end of a sentence; '' if none."""
        rules = self._rules
        processes, memory_bytes = _processes(rules.processes_max or _LOOKED_AT_MAX)
        if rules.processes_max and processes > rules.processes_max:
            return f"more than {rules.processes_max} processes"
        if rules.memory_bytes_max and memory_bytes > rules.memory_bytes_max:
            return f"more than {rules.memory_bytes_max >> 20} MiB of memory"
        if rules.disk_bytes_max and time.monotonic() >= self._disk_at:
            began = time.monotonic()
            used = sum(_disk_bytes(path) for path in self._directories)
            now = time.monotonic()
            self._disk_at = now + (now - began) / _SHARE_OF_TIME
            if used > rules.disk_bytes_max:
                return f"more than {rules.disk_bytes_max >> 20} MiB of disk space"
        return ""


def _processes(enough: int) -> tuple[int, int]:
    """How many processes there are below this one, and the memory they hold; stops counting when
    there are more than `enough`."""
    waiting = [os.getpid()]
    count = memory_bytes = 0
    while waiting and count <= enough:
        parent = waiting.pop()
        for child in children_of(parent):
            count += 1
            memory_bytes += _resident_bytes(child)
            waiting.append(child)
    return count, memory_bytes


def _resident_bytes(pid: int) -> int:
    """What is its own: pages shared with others are not counted."""
    try:
        with open(f"/proc/{pid}/statm", encoding="ascii") as file:
            _, resident, shared, *_ = map(int, file.read().split())
    except (OSError, ValueError):
        return 0
    return (resident - shared) * _PAGE_BYTES


def _disk_bytes(top: str) -> int:
    waiting, total, seen = [top], 0, 0
    while waiting and seen < _LOOKED_AT_MAX:
        try:
            with os.scandir(waiting.pop()) as entries:
                for entry in entries:
                    seen += 1
                    status = entry.stat(follow_symlinks=False)
                    total += status.st_blocks * _BLOCK_BYTES
                    if entry.is_dir(follow_symlinks=False):
                        waiting.append(entry.path)
        except OSError:
            pass  # gone meanwhile
    return total
