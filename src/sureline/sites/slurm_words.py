"""Slurm's words in ours: job states, and what its commands say when they fail.

The states are those of `squeue(1)` and `sacct(1)`, from 20.11 to 24.11; sacct adds who cancelled
(`CANCELLED by 1000`), and cuts what does not fit its column (`OUT_OF_ME+`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from sureline.sites.port import SiteError, Word

STATES: Mapping[str, Word] = {
    "PENDING": "queued",
    "CONFIGURING": "starting",
    "POWER_UP_NODE": "starting",
    "RUNNING": "running",
    "RESIZING": "running",
    "SIGNALING": "running",
    "EXPEDITING": "queued",
    "STOPPED": "suspended",
    "SUSPENDED": "suspended",
    "COMPLETING": "ending",
    "STAGE_OUT": "ending",
    "UPDATE_DB": "ending",
    "REQUEUED": "requeued",
    "REQUEUE_FED": "requeued",
    "REQUEUE_HOLD": "held",
    "SPECIAL_EXIT": "held",
    "RESV_DEL_HOLD": "held",
    "COMPLETED": "ended",
    "FAILED": "failed",
    "OUT_OF_MEMORY": "out-of-memory",
    "TIMEOUT": "timeout",
    "DEADLINE": "deadline",
    "PREEMPTED": "preempted",
    "NODE_FAIL": "node-failed",
    "BOOT_FAIL": "node-failed",
    "LAUNCH_FAILED": "node-failed",
    "RECONFIG_FAIL": "node-failed",
    "CANCELLED": "cancelled",
    "REVOKED": "cancelled",
}
SAID: Mapping[str, str] = {
    "CONFIGURING": "its machine is being made ready",
    "POWER_UP_NODE": "its machine is being switched on",
    "REQUEUE_HOLD": "requeued and held: scontrol release lets it go on",
    "SPECIAL_EXIT": "requeued and held for its exit code: scontrol release lets it go on",
    "RESV_DEL_HOLD": "its reservation was deleted: scontrol release lets it go on",
    "BOOT_FAIL": "its machine did not come up",
    "LAUNCH_FAILED": "its machine did not start it",
    "RECONFIG_FAIL": "its machine could not be reconfigured",
    "REVOKED": "another cluster of the federation has it",
    "NODE_FAIL": "its machine failed",
    "PREEMPTED": "others were more important",
    "DEADLINE": "it could not have ended by its deadline",
    "OUT_OF_MEMORY": "it used more memory than it was given",
    "TIMEOUT": "its time was over",
}
HELD_FOR = (
    "JobHeldAdmin",
    "JobHeldUser",
    "launch failed requeued held",
    "job requeued in held state",
)
"""Reasons of PENDING for which nothing will happen by itself."""
NEVER = (
    "PartitionTimeLimit",
    "PartitionNodeLimit",
    "BadConstraints",
    "AccountNotAllowed",
    "QOSNotAllowed",
    "PartitionConfig",
    "DependencyNeverSatisfied",
    "AssocMaxCpuPerJobLimit",
    "QOSMaxCpuPerJobLimit",
    "QOSMaxWallDurationPerJobLimit",
    "AssocMaxWallDurationPerJobLimit",
    "QOSMaxMemoryPerJob",
    "QOSMaxNodePerJobLimit",
)
"""Reasons of PENDING that no waiting ends: what was asked for does not fit."""

NOT_AHEAD = frozenset({*HELD_FOR, *NEVER, "BeginTime", "Dependency"})
"""Reasons of PENDING of jobs that nobody waits behind."""


class Translated(NamedTuple):
    word: Word
    reason: str


def translated(state: str, reason: str = "", *, began: bool = False) -> Translated | None:
    """What a state means; None if it is none that we know. `began`: the job ran before."""
    plain = state.strip().upper().rstrip("+").partition(" ")[0]
    found = [name for name in STATES if name.startswith(plain)] if plain else []
    if not found or (plain not in STATES and len(found) > 1):
        return None
    name = plain if plain in STATES else found[0]
    word, said = STATES[name], SAID.get(name, "")
    engine = "" if reason in ("None", "", "(null)", "N/A") else reason
    if name == "PENDING":
        if engine in NEVER:
            word = "unfit"
        elif engine in HELD_FOR:
            word = "held"
        elif began:
            word = "requeued"
    return Translated(word, said or engine)


_FINAL = (
    "invalid partition",
    "invalid account",
    "invalid qos",
    "invalid feature",
    "invalid constraint",
    "invalid time limit",
    "time limit is invalid",
    "time limit specification",
    "invalid wckey",
    "invalid generic resource",
    "invalid reservation",
    "requested reservation is invalid",
    "node configuration is not available",
    "node count",
    "memory specification",
    "more processors requested",
    "cpu count",
    "user's group not permitted",
    "access/permission denied",
    "not a valid",
    "unrecognized option",
    "invalid option",
    "unknown option",
    "invalid argument",
    "bad argument",
    "invalid job array",
    "job array specification",
    "invalid --",
    "script",
    "no cluster",
)
_TIMED_OUT = ("socket timed out", "zero bytes were transmitted", "connection reset", "send/recv")


def failure(program: str, said: str) -> SiteError:
    """What a command's complaint means: for ever, or for now, and whether it may have been heard.
    What is not known here may pass: whoever tries again has a bound."""
    lines = [line for line in said.strip().splitlines() if line.strip()]
    line = lines[-1].strip() if lines else "it failed and said nothing"
    line = line.removeprefix(f"{program}: ").removeprefix("error: ").removeprefix("fatal: ")
    small = said.lower()
    unsure = program == "sbatch" and any(words in small for words in _TIMED_OUT)
    final = not unsure and any(words in small for words in _FINAL)
    return SiteError(f"{program}: {line}", again=not final, unsure=unsure)
