"""The site `slurm`: jobs as arrays of Slurm's, by its own commands.

What is known of a job comes from three witnesses: `squeue`; `sacct`, where there is accounting;
and the job's own file in the spool, which it writes when it begins and ends and touches every half
minute. The first that knows of an end is believed. A job that is missing from a list is not lost:
slurmctld forgets jobs that are over after some minutes, and does not answer while it restarts. It
is lost when slurmctld answers, has not known it for a minute, and it has shown no sign of life for
three.

The spool must be a directory that the nodes see under the same name: a home, usually.
"""

from __future__ import annotations

import contextlib
import math
import os
import shlex
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from sureline.sites import at_site
from sureline.sites.local import copy_whole
from sureline.sites.port import JobId, JobStatus, SiteError, SiteWork
from sureline.sites.slurm_words import NOT_AHEAD, failure, translated

NAME = "sureline."
"""What the names of our jobs begin with; the tag follows."""
COMMAND_LIMIT_S = 60.0
CHUNK = 200
"""Jobs in one command."""
UNHEARD_S = 60.0
SIGN_OF_LIFE_S = 3 * 60.0
ACCOUNTING_AGAIN_S = 600.0
"""After it was found that there is none."""
_QUEUE = "%F|%K|%T|%V|%S|%e|%N|%j|%r"
_ACCOUNTED = "JobID,State,ExitCode,Submit,Start,End,NodeList"


class Completed(NamedTuple):
    code: int
    out: str
    err: str


Command = Callable[[Sequence[str], str], Completed]
"""Runs a program with a text as its input. Raises SiteError if it does not come to an end."""


class SlurmRow(NamedTuple):
    """What one of Slurm's lists says of a job."""

    job: JobId
    tag: str
    state: str
    reason: str
    node: str
    submitted_at: float | None
    started_at: float | None
    ended_at: float | None
    exit_code: int | None = None


class SlurmSite:
    """`clusters` as the option of Slurm's commands; the first that takes a submission has it.
    `python` runs the first lines of a job on the nodes."""

    name = "slurm"
    shares_files = True

    def __init__(
        self,
        spool: Path,
        *,
        clusters: str = "",
        python: str = sys.executable,
        command: Command | None = None,
    ) -> None:
        self._spool = str(spool.absolute())
        self.where = self._clusters = clusters
        self._python = python
        self._command = command or run_command
        self._unheard: dict[JobId, float] = {}
        self._accounting_again_at = 0.0

    # -- the port --------------------------------------------------------------------------------

    def submit(self, work: SiteWork) -> list[JobId]:
        plain: dict[str, Any] = msgspec.to_builtins(work)
        try:
            at_site.prepare(self._spool, {**plain, "enforced": False, "slots": None})
            program = Path(self._spool, "at_site.py")
            if not program.exists() or program.read_bytes() != SOURCE.read_bytes():
                copy_whole(SOURCE, program)
        except FileExistsError:
            raise SiteError(f"the tag {work.tag} was used before", again=False) from None
        except OSError as error:
            raise SiteError(f"cannot write to {self._spool}: {error}", again=False) from None
        argv = ["sbatch", "--parsable", *self._sbatch(work), *self._on(self._clusters)]
        number = self._run([*argv, *work.options], self._script(work)).strip().splitlines()[-1]
        at_site.write_whole(str(self._of(work.tag) / "submitted"), number.encode())
        return _numbered(number, work.count)

    def look(self, jobs: Iterable[JobId]) -> Mapping[JobId, JobStatus]:
        wanted = list(dict.fromkeys(jobs))
        rows = _expanded(wanted, self._queue(wanted))
        missing = [job for job in wanted if job not in rows]
        accounted = _expanded(missing, self._accounted(missing))
        rows |= {job: accounted[job] for job in missing if job in accounted}
        found: dict[JobId, JobStatus] = {}
        tags = self._tags(missing)
        for job in wanted:
            tag = rows[job].tag if job in rows and rows[job].tag else tags.get(job, "")
            known = _status(rows.get(job), self._own(tag, job))
            if job in rows or (known is not None and known.is_over):
                self._unheard.pop(job, None)
            elif known is None and tag and self._cancelled(tag, job).exists():
                known = JobStatus(word="cancelled")  # it waited: Slurm keeps no record of those
            elif self._is_lost(job, tag):
                known = _lost(known)
            elif known is None or known.word != "running":
                continue
            if known is not None:
                found[job] = known
        return found

    def find(self, tag: str = "") -> Mapping[JobId, str]:
        name = [f"--name={NAME}{tag}"] if tag else []
        # with -h, squeue does not say which cluster a line is of
        argv = ["squeue", "-r", "--me", "--states=all", "-o", _QUEUE, *name]
        rows = _rows(self._run([*argv, *self._on(self._clusters)]), self._clusters)
        found = {row.job: row.tag for row in rows if row.tag and "_" in row.job}
        for one in [tag] if tag else self._submitted_tags():
            found |= dict.fromkeys(self._jobs_of(one), one)
        return found

    def cancel(self, jobs: Iterable[JobId]) -> None:
        jobs = list(jobs)
        for job, tag in self._tags(jobs).items():
            self._cancelled(tag, job).touch()
        for cluster, numbers in _by_cluster(jobs).items():
            for some in _chunks(numbers):
                try:
                    self._run(["scancel", *self._on(cluster), *some])
                except SiteError as error:
                    if "invalid job id" not in str(error).lower():
                        raise

    def output(self, job: JobId, limit_bytes: int = 1 << 16) -> bytes:
        tag = self._tags([job]).get(job, "")
        return at_site.output(self._spool, f"{tag}/{_index(job)}", limit_bytes) if tag else b""

    def forget(self, tag: str) -> None:
        at_site.forget(self._spool, tag)

    def ahead(self, options: Sequence[str] = ()) -> int | None:
        given = [f"--partition={o.partition('=')[2]}" for o in options if _names_partition(o)]
        argv = ["squeue", "-h", "-r", "--states=PENDING", "-o", "%C|%r", *given[-1:]]
        lines = self._run([*argv, *self._on(self._clusters)]).splitlines()
        cells = [line.split("|", 1) for line in lines if "|" in line]
        return sum(int(cores) for cores, why in cells if cores.isdigit() and why not in NOT_AHEAD)

    def put(self, source: Path, target: str) -> None:
        copy_whole(source, Path(self._spool, target))

    def get(self, source: str, target: Path) -> None:
        copy_whole(Path(self._spool, source), target)

    # -- Slurm's commands ------------------------------------------------------------------------

    def _sbatch(self, work: SiteWork) -> Iterator[str]:
        yield f"--job-name={NAME}{work.tag}"
        yield f"--array=0-{work.count - 1}"
        yield f"--output={str(self._of(work.tag)).replace('%', '%%')}/out.%a"
        yield "--open-mode=append"
        yield f"--chdir={self._of(work.tag)}"
        yield "--nodes=1"
        yield "--ntasks=1"
        yield f"--cpus-per-task={work.cores}"
        yield "--requeue" if work.requeue else "--no-requeue"
        if work.memory_bytes:
            yield f"--mem={math.ceil(work.memory_bytes / 2**20)}M"
        if work.gpus:
            yield f"--gpus={work.gpus}"
        if work.limit_s is not None:
            yield f"--time={math.ceil(work.limit_s / 60)}"  # Slurm counts minutes
            if work.warn_s:
                yield f"--signal=B:USR1@{math.ceil(work.warn_s)}"

    def _script(self, work: SiteWork) -> str:
        words = [self._python, f"{self._spool}/at_site.py", "job", self._spool, work.tag]
        # exec: the warning goes to the batch shell, and only to it
        return f'#!/bin/sh\nexec {shlex.join(words)} "$SLURM_ARRAY_TASK_ID"\n'

    def _queue(self, jobs: Sequence[JobId]) -> Iterator[SlurmRow]:
        for cluster, numbers in _by_cluster(jobs).items():
            for some in _chunks(dict.fromkeys(number.partition("_")[0] for number in numbers)):
                argv = ["squeue", "-h", "-r", "--states=all", "-o", _QUEUE, "-j", ",".join(some)]
                try:
                    said = self._run([*argv, *self._on(cluster)])
                except SiteError as error:
                    if "invalid job id" not in str(error).lower():
                        raise
                    continue  # it knows none of them any more
                yield from _rows(said, cluster)

    def _accounted(self, jobs: Sequence[JobId]) -> Iterator[SlurmRow]:
        """What accounting knows, where there is any and it answers."""
        if not jobs or time.monotonic() < self._accounting_again_at:
            return
        for cluster, numbers in _by_cluster(jobs).items():
            # by arrays: those that were ended together, before any began, are found only so
            for some in _chunks(dict.fromkeys(number.partition("_")[0] for number in numbers)):
                argv = ["sacct", "-n", "-P", "-X", "-o", _ACCOUNTED, "-j", ",".join(some)]
                try:
                    said = self._run([*argv, *self._on(cluster)])
                except SiteError:
                    self._accounting_again_at = time.monotonic() + ACCOUNTING_AGAIN_S
                    return
                yield from _accounted_rows(said, cluster)

    def _run(self, argv: Sequence[str], text: str = "") -> str:
        done = self._command(argv, text)
        if done.code != 0:
            raise failure(argv[0], done.err or done.out)
        return done.out

    def _on(self, cluster: str) -> list[str]:
        return [f"--clusters={cluster}"] if cluster else []

    # -- the spool -------------------------------------------------------------------------------

    def _of(self, tag: str) -> Path:
        return Path(self._spool, tag)

    def _cancelled(self, tag: str, job: JobId) -> Path:
        return self._of(tag) / f"cancel.{_index(job)}"

    def _submitted_tags(self) -> list[str]:
        return sorted(path.parent.name for path in Path(self._spool).glob("*/submitted"))

    def _jobs_of(self, tag: str) -> list[JobId]:
        work = at_site.read_json(str(self._of(tag) / "work.json"))
        try:
            number = (self._of(tag) / "submitted").read_text()
        except OSError:
            return []
        return _numbered(number, work["count"]) if work and number else []

    def _tags(self, jobs: Sequence[JobId]) -> dict[JobId, str]:
        """Whose jobs these are, by the spool."""
        if not jobs:
            return {}
        wanted = set(jobs)
        return {
            job: tag
            for tag in self._submitted_tags()
            for job in self._jobs_of(tag)
            if job in wanted
        }

    def _own(self, tag: str, job: JobId) -> JobStatus | None:
        """What the job itself has written."""
        state = at_site.read_json(at_site.state_path(self._spool, tag, _index(job)))
        if not tag or state is None:
            return None
        with contextlib.suppress(msgspec.ValidationError):
            return msgspec.convert(state, JobStatus)
        return None

    def _is_lost(self, job: JobId, tag: str) -> bool:
        """Of a job that slurmctld, which has answered, does not know."""
        since = self._unheard.setdefault(job, time.monotonic())
        if not tag or time.monotonic() - since < UNHEARD_S:
            return False
        sign = Path(at_site.state_path(self._spool, tag, _index(job)))
        try:
            if not sign.exists():
                sign = self._of(tag) / "submitted"
            clock = self._of(tag) / "clock"  # the file server's, which need not be ours
            clock.touch()
            return clock.stat().st_mtime - sign.stat().st_mtime > SIGN_OF_LIFE_S
        except OSError:
            return False


SOURCE = Path(at_site.__file__)


def run_command(argv: Sequence[str], text: str) -> Completed:
    """One of Slurm's commands, with times as seconds since the epoch, in the language we read."""
    environment = {**os.environ, "SLURM_TIME_FORMAT": "%s", "LC_ALL": "C"}
    try:
        done = subprocess.run(
            argv,
            input=text,
            env=environment,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=COMMAND_LIMIT_S,
            check=False,
        )
    except FileNotFoundError:
        sentence = f"there is no {argv[0]} here: this machine is not one of a Slurm cluster's"
        raise SiteError(sentence, again=False) from None
    except subprocess.TimeoutExpired:
        sentence = f"{argv[0]} has not answered within {COMMAND_LIMIT_S:g} s"
        raise SiteError(sentence, again=True, unsure=True) from None
    except OSError as error:
        raise SiteError(f"cannot run {argv[0]}: {error}", again=False) from None
    return Completed(done.returncode, done.stdout, done.stderr)


def _names_partition(option: str) -> bool:
    return option.startswith("--partition=")


def _numbered(number: str, count: int) -> list[JobId]:
    """The jobs of a submission that sbatch calls `NUMBER` or `NUMBER;CLUSTER`."""
    base, _, cluster = number.strip().partition(";")
    where = f"@{cluster}" if cluster else ""
    return [JobId(f"{base}_{index}{where}") for index in range(count)]


def _index(job: JobId) -> int:
    digits = job.partition("@")[0].partition("_")[2]
    return int(digits) if digits.isdigit() else 0


def _by_cluster(jobs: Iterable[JobId]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = defaultdict(list)
    for job in jobs:
        number, _, cluster = job.partition("@")
        found[cluster].append(number)
    return found


def _chunks(numbers: Iterable[str]) -> Iterator[list[str]]:
    every = list(numbers)
    for start in range(0, len(every), CHUNK):
        yield every[start : start + CHUNK]


def _rows(said: str, cluster: str) -> Iterator[SlurmRow]:
    """squeue's lines; with several clusters, `CLUSTER: NAME` stands before those of each."""
    for line in said.splitlines():
        if line.startswith("CLUSTER: "):
            cluster = line.removeprefix("CLUSTER: ").strip()
            continue
        cells = line.split("|", 8)
        if len(cells) != 9 or not cells[0].isdigit():
            continue
        base, index, state, submitted, started, ended, node, name, reason = cells
        number = f"{base}_{index}" if index.isdigit() else base
        is_over = state not in ("PENDING", "RUNNING", "CONFIGURING", "SUSPENDED", "COMPLETING")
        yield SlurmRow(
            JobId(f"{number}@{cluster}" if cluster else number),
            name.removeprefix(NAME) if name.startswith(NAME) else "",
            state,
            reason,
            node,
            _moment(submitted),
            # without a machine it never began: it is when it is thought to, or when it was over
            _moment(started) if state != "PENDING" and node else None,
            _moment(ended) if is_over else None,
        )


def _expanded(wanted: Sequence[JobId], rows: Iterable[SlurmRow]) -> dict[JobId, SlurmRow]:
    """Each job's row. One that names no index stands for all of its array that have none of their
    own: they were ended together, before any began."""
    found = {row.job: row for row in rows}
    for job in wanted:
        number, _, cluster = job.partition("@")
        base = JobId(number.partition("_")[0] + (f"@{cluster}" if cluster else ""))
        if job not in found and base in found:
            found[job] = found[base]
    return found


def _accounted_rows(said: str, cluster: str) -> Iterator[SlurmRow]:
    for line in said.splitlines():
        cells = line.split("|")
        if len(cells) != 7:
            continue
        number, state, code, submitted, started, ended, node = cells
        number = number.partition("_[")[0]  # `3_[0-9]`: those that were ended together
        yield SlurmRow(
            JobId(f"{number}@{cluster}" if cluster else number),
            "",
            state,
            "",
            "" if node.startswith("None") else node,
            _moment(submitted),
            _moment(started),
            _moment(ended),
            _exit_code(code),
        )


def _exit_code(text: str) -> int | None:
    """`CODE:SIGNAL`, as Slurm writes it."""
    code, _, number = text.partition(":")
    if not code.isdigit() or not number.isdigit():
        return None
    return -int(number) if int(number) else int(code)


def _moment(text: str) -> float | None:
    return float(text) if text.isdigit() and int(text) > 0 else None


def _status(row: SlurmRow | None, own: JobStatus | None) -> JobStatus | None:
    """What the engine and the job itself say, taken together."""
    if row is None:
        return own
    found = translated(row.state, row.reason, began=own is not None and own.starts > 0)
    if found is None:
        return own
    status = JobStatus(
        word=found.word,
        reason=found.reason,
        node=row.node or ("" if own is None else own.node),
        exit_code=row.exit_code,
        submitted_at=row.submitted_at,
        started_at=row.started_at,
        ended_at=row.ended_at,
    )
    if own is None:
        if status.word == "failed":
            return msgspec.structs.replace(status, reason=NEVER_BEGAN)
        return status
    is_sure = status.word in ("ended", "failed")
    return msgspec.structs.replace(
        status,
        exit_code=own.exit_code if is_sure and own.exit_code is not None else status.exit_code,
        ended_at=own.ended_at if is_sure and own.ended_at is not None else status.ended_at,
        started_at=status.started_at or (None if status.is_waiting else own.started_at),
        starts=own.starts,
    )


NEVER_BEGAN = (
    "it ended before its first line: do the nodes see the spool, and the Python that runs it?"
)


def _lost(own: JobStatus | None) -> JobStatus:
    reason = "slurmctld does not know it, and it shows no sign of life"
    if own is None:
        return JobStatus(word="lost", reason=reason)
    return msgspec.structs.replace(own, word="lost", reason=reason)
