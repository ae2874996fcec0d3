"""What peers report, checked: a machine that lies or is broken must not lead its writer astray.

A result is only as good as the peer that made it, and nothing here changes that. But a report may
name no files but the task's own, since they will be put into the user's directory, and no numbers
that a journal cannot keep or that the next attempt could not count on from.
"""

from __future__ import annotations

import math

import msgspec

from sureline.peer.jobs import JobEnded
from sureline.peer.messages import Attached, Finished
from sureline.workflow.files import result_path
from sureline.workflow.model import Call, Task
from sureline.world.address import PeerName

ATTEMPTS_MAX = 1 << 31
NUMBER_MAX = 1 << 62
RESULT_BYTES_MAX = 64 << 10
ERROR_BYTES_MAX = 1 << 20


def is_attempt(number: int) -> bool:
    return 0 < number < ATTEMPTS_MAX


def names_attempts(message: Attached) -> bool:
    """Whether all that it tells of could be attempts."""
    told = [attempt for _, attempt, _ in message.under_way]
    told += [attempt for _, attempt in message.reports]
    return all(map(is_attempt, told))


def made_sense_of(report: Finished, task: Task, peer: PeerName) -> Finished:
    """The report; if it makes no sense, one of a failure that says so."""
    fault = _fault(report.ended, task)
    if not fault:
        return report
    reason = f"{peer} sent a report that makes no sense: {fault}"
    return msgspec.structs.replace(report, ended=JobEnded("failed", reason=reason), brought=None)


def _fault(ended: JobEnded, task: Task) -> str:
    if not all(0 <= seconds < math.inf for seconds in (ended.elapsed_s, ended.cpu_s)):
        return "times that are no times"
    numbers = (ended.exit_code or 0, ended.signal or 0, ended.memory_peak_bytes)
    if not all(abs(number) < NUMBER_MAX for number in numbers):
        return "numbers out of range"
    if not all(0 <= file.size < NUMBER_MAX for file in ended.outputs):
        return "files of no size"
    made = {file.path for file in ended.outputs}
    if isinstance(task.action, Call):
        if ended.outcome == "succeeded" and ended.result is None:
            return "" if made == {result_path(task.name)} else "no result"
        if len(ended.result or b"") > RESULT_BYTES_MAX or len(ended.error or b"") > ERROR_BYTES_MAX:
            return "a result that should have been a file"
    elif ended.result is not None or ended.error is not None:
        return "a value, of a command"
    if ended.outcome == "succeeded" and made != set(task.outputs):
        return "other outputs than the task has"
    return ""
