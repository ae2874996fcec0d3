"""What a machine can be asked to run, and what comes back. These also travel to slot processes."""

from __future__ import annotations

from typing import Literal

import msgspec

from sureline.workflow.files import FileRecord
from sureline.world.address import NO_NODE, Node
from sureline.world.protocol import Fetched, Job, JobEvent, Wanted

BLOB = "blob:"
"""A log named `blob:DIGEST:SIZE` is a file of the grid, not one beside the journal."""


class LoneCall(msgspec.Struct, frozen=True, omit_defaults=True):
    """A Python call that a bound interpreter makes, on a machine that is not the user's.

    What it needs are inputs of its job, `CALL_DIRECTORY/DIGEST`: code, buffers and long results,
    and the user's modules in `MODULES`."""

    function: str
    """The digest of the packed code."""
    arguments: bytes = b""
    results: dict[str, bytes] = {}
    """Short results that the arguments refer to, by task name."""
    files: dict[str, str] = {}
    """Digests of long ones."""
    python: str = ""
    """The version that it was described with, such as 3.11."""
    packages: dict[str, str] = {}
    """The versions of the installed packages that it reaches."""
    directory: str = ""
    beside: tuple[str, ...] = ()
    """The user's directory, and what lies in it: a call that looks for that must have named it."""
    inline_bytes: int = 4 << 10
    """A longer result becomes a file."""


CALL_DIRECTORY = ".sureline-call"
MODULES = f"{CALL_DIRECTORY}/modules"
PYTHON_ENVIRONMENT = "VIRTUAL_ENV"
"""The variable of a task that names the Python environment to make its call in."""


class CommandJob(Job, frozen=True, omit_defaults=True, tag="command"):
    """Run a command in a fresh directory that holds `inputs` and is kept out of the user's way.

    `label` ("TASK-INDEX.ATTEMPT", unique in a run) names directories and log files.
    `outputs` must exist afterwards; they are moved into the store.
    """

    label: str
    task: str
    attempt: int
    run: str
    inputs: tuple[FileRecord, ...] = ()
    outputs: tuple[str, ...] = ()
    env: dict[str, str] = {}  # noqa: RUF012 - msgspec copies an empty default
    stdin: str | None = None
    timeout_s: float | None = None
    cores: float = 1
    shell: str = ""
    call: LoneCall | None = None
    """Made instead of running `run`."""
    memory_bytes: int = 0
    gpus: int = 0
    """What it needs besides cores, for an engine that is asked for it; 0 if it did not say."""


class CallJob(Job, frozen=True, omit_defaults=True, tag="call"):
    """Call a pickled function. `results` holds the pickled results its arguments refer to."""

    label: str
    task: str
    attempt: int
    function: str
    """Digest; the slot process is given the bytes once."""
    arguments: bytes
    results: dict[str, bytes] = {}  # noqa: RUF012 - msgspec copies an empty default
    """Short results, by task name."""
    files: dict[str, FileRecord] = {}  # noqa: RUF012 - msgspec copies an empty default
    """Long results, in the store, by task name."""
    env: dict[str, str] = {}  # noqa: RUF012 - msgspec copies an empty default
    timeout_s: float | None = None
    cores: float = 1
    inline_bytes: int = 64 << 10
    """A longer result goes into the store."""
    declared: tuple[str, ...] = ()
    """The user's files that it says it reads."""
    buffers: str = ""
    """The directory that has the buffers of the arguments, if it is not the store."""
    foreign: tuple[str, ...] = ()
    """The tasks whose results another machine made: they are read with care."""


class PauseJob(Job, frozen=True, omit_defaults=True, tag="pause"):
    """Pretend: end after `seconds`."""

    label: str
    task: str
    attempt: int
    seconds: float


class PublishJob(Job, frozen=True, omit_defaults=True, tag="publish"):
    """Put stored files into the user's directory, atomically, unless they are there already."""

    label: str
    files: tuple[FileRecord, ...]


class VerifyJob(Job, frozen=True, tag="verify", omit_defaults=True):
    """Hash stored files again; succeeds if all are as recorded."""

    label: str
    files: tuple[FileRecord, ...]


class CheckJob(Job, frozen=True, tag="check", omit_defaults=True):
    """Look whether this machine can do its work; succeeds if it can."""

    label: str


class JobStarted(JobEvent, frozen=True, omit_defaults=True, tag="started"):
    pid: int | None = None


class JobProgressed(JobEvent, frozen=True, omit_defaults=True, tag="progressed"):
    fraction: float


class JobReturned(JobEvent, frozen=True, tag="returned"):
    """A job that was to begin after another one has not begun, and will not: see World.start."""


class Brought(msgspec.Struct, frozen=True, omit_defaults=True):
    """Where the inputs of an attempt were when it was bound: there already, or elsewhere."""

    here_files: int = 0
    here_bytes: int = 0
    peer_files: int = 0
    peer_bytes: int = 0


class JobEnded(JobEvent, frozen=True, omit_defaults=True, tag="ended"):
    """`lost`: the slot process died under the job. `reason` is one sentence, '' on success.

    `fault` says whose it is, if it is not the task's: the `machine`'s (a full disk), that of
    `inputs` whose stored copies were lost, which are named in `missing`, by digest, or nobody's:
    the machine is `unfit` for this task (another Python)."""

    outcome: Literal["succeeded", "failed", "timeout", "cancelled", "lost"]
    exit_code: int | None = None
    signal: int | None = None
    reason: str = ""
    elapsed_s: float = 0.0
    cpu_s: float = 0.0
    memory_peak_bytes: int = 0
    outputs: tuple[FileRecord, ...] = ()
    result: bytes | None = None
    error: bytes | None = None
    stdout: str = ""
    stderr: str = ""
    stdout_file: str | None = None
    stderr_file: str | None = None
    fault: Literal["", "machine", "inputs", "unfit"] = ""
    missing: tuple[str, ...] = ()
    unkept: str = ""
    """Why the result is not to be reused; '' if it may be."""
    trace: str = ""
    """Of a call that raised: how it was called, and the traceback."""
    brought: Brought | None = None
    """Of a site: what of its inputs was there, and what was brought."""


class UserFile(Wanted, frozen=True, tag="user file"):
    """A file or directory of the user's, relative to the working directory."""

    path: str
    in_place: bool = False


class Blob(Wanted, frozen=True, tag="blob"):
    """Content by its digest, from this machine's store or else from the sources named."""

    file: FileRecord


class FileReady(Fetched, frozen=True, tag="ready", omit_defaults=True):
    file: FileRecord
    """As it lies in this machine's store."""
    source: Node = NO_NODE
    """The node that it came from; '' if it was on this machine."""


class FileMissing(Fetched, frozen=True, tag="missing"):
    path: str
    reason: str
