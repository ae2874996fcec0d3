"""Finding processes by what they were started for.

Every job's process carries TOKEN=`ROOT:RUN/LABEL` in its environment, and so do its descendants,
also those that left its session. Where there is no /proc, nothing is found; then only process
groups can be killed.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable, Collection
from pathlib import Path

from sureline.peer.removing import clear_away

TOKEN = "SURELINE_JOB"
_ROUNDS = 50
"""A process that forks faster than we kill is met by repetition; this many rounds at most."""
_FIRST_ROUND_S = 0.002
_ROUND_S = 0.02
_PR_SET_CHILD_SUBREAPER = 36

_adopting = False


def token_of(root: str, run: str, label: str) -> str:
    """What identifies the processes of one job; an empty label gives the prefix of a run's."""
    return f"{root}:{run}/{label}"


def find(token: str, *, prefix: bool = False) -> list[int]:
    """The living processes that carry the token (or one that begins with it), never our own."""
    wanted = f"{TOKEN}={token}".encode("utf-8", "surrogateescape")
    if not prefix:
        wanted += b"\0"
    me = os.getpid()
    try:
        names = os.listdir("/proc")
    except OSError:
        return []
    return [
        int(name) for name in names if name.isdigit() and int(name) != me and _carries(name, wanted)
    ]


def _carries(pid: str, wanted: bytes) -> bool:
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            environ = file.read()
    except OSError:  # ended meanwhile, or somebody else's
        return False
    return environ.startswith(wanted) or b"\0" + wanted in environ


def kill(token: str, *, prefix: bool = False) -> int:
    """SIGKILL all that carry the token, until none is left; how many there were."""
    return kill_all(lambda: find(token, prefix=prefix))


def kill_all(find_targets: Callable[[], list[int]]) -> int:
    """SIGKILL what `find_targets` finds until it finds nothing; how many there were.

    A killed process stays visible for a moment, so every round waits a little.
    """
    killed: set[int] = set()
    for number in range(_ROUNDS):
        targets = find_targets()
        if not targets:
            break
        for pid in targets:
            kill_quietly(pid)
        killed.update(targets)
        time.sleep(_ROUND_S if number else _FIRST_ROUND_S)
    return len(killed)


def kill_quietly(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        pass


def kill_group(leader: int, number: int = signal.SIGKILL) -> None:
    try:
        os.killpg(leader, number)
    except (ProcessLookupError, PermissionError):
        pass


def adopt() -> None:
    """Have this process, which has no children but slots, adopt what a dead slot leaves behind."""
    global _adopting
    _adopting = become_reaper()


def become_reaper() -> bool:
    """Have the orphans among our descendants become our children, where the system allows it."""
    if not sys.platform.startswith("linux"):
        return False
    import ctypes

    return bool(ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0)


def kill_adopted(slots: Collection[int]) -> int:
    """SIGKILL all that this process has adopted: its children, but not these; how many."""
    return kill_all(lambda: _adopted(slots)) if _adopting else 0


def children_of(pid: int) -> list[int]:
    """Also those that it has adopted; none if it has ended."""
    found: list[int] = []
    try:
        for thread in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{thread}/children", "rb", buffering=0) as file:
                found.extend(map(int, file.read().split()))
    except OSError:
        pass
    return found


def _adopted(slots: Collection[int]) -> list[int]:
    living = []
    for pid in [pid for pid in children_of(os.getpid()) if pid not in slots]:
        try:
            if os.waitpid(pid, os.WNOHANG) == (0, 0):
                living.append(pid)
        except ChildProcessError:
            pass
    return living


def clear_run(root: Path, run: str) -> int:
    """End what a dead run left: its processes and its working files. How many processes.

    The caller has made sure that the process which drove the run is gone.
    """
    top = os.path.abspath(root)
    killed = kill(token_of(top, run, ""), prefix=True)
    clear_away(f"{top}/work/{run}", aside_of(top))
    return killed


def aside_of(root: str) -> str:
    """Where working files go that cannot be removed."""
    return f"{root}/aside"


def left_aside(root: Path) -> list[str]:
    """Working files of tasks that could not be removed, and were moved out of the way."""
    try:
        return sorted(f"{aside_of(str(root))}/{name}" for name in os.listdir(aside_of(str(root))))
    except OSError:
        return []
