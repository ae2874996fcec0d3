"""What peers report, checked: a machine that lies or is broken must not lead its writer astray.

A result is only as good as the peer that made it, and nothing here changes that. But a report may
name no files but the task's own, since they will be put into the user's directory, and no numbers
that a journal cannot keep or that the next attempt could not count on from.
"""

from __future__ import annotations

import math
import re

from sureline.peer.jobs import BLOB, JobEnded
from sureline.peer.messages import Attached
from sureline.workflow.files import is_digest, result_path
from sureline.workflow.model import Call, Task

ATTEMPTS_MAX = 1 << 31
NUMBER_MAX = 1 << 62
RESULT_BYTES_MAX = 64 << 10
ERROR_BYTES_MAX = 1 << 20
_LOG = re.compile(re.escape(BLOB) + r"[0-9a-f]{64}:[0-9]{1,18}", re.ASCII)
"""A log that lies on the grid."""


def is_attempt(number: int) -> bool:
    return 0 < number < ATTEMPTS_MAX


def names_attempts(message: Attached) -> bool:
    """Whether all that it tells of could be attempts."""
    told = [attempt for _, attempt, _, _ in message.under_way]
    told += [attempt for _, attempt, _ in message.reports]
    return all(map(is_attempt, told))


def fault_of(ended: JobEnded, task: Task) -> str:
    """Why a report makes no sense; '' if it does."""
    if not all(0 <= seconds < math.inf for seconds in (ended.elapsed_s, ended.cpu_s)):
        return "times that are no times"
    numbers = (ended.exit_code or 0, ended.signal or 0, ended.memory_peak_bytes)
    if not all(abs(number) < NUMBER_MAX for number in numbers):
        return "numbers out of range"
    if not all(0 <= file.size < NUMBER_MAX for file in ended.outputs):
        return "files of no size"
    if not all(is_digest(file.digest) for file in ended.outputs):
        return "files without a digest"
    logs = (ended.stdout_file, ended.stderr_file)
    if not all(log is None or _LOG.fullmatch(log) for log in logs):
        return "a log that is no file of the grid"
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
