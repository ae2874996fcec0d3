"""A site as a world's `Runner`: jobs in, events out, by way of an engine's queue.

With it the agent of a machine (`peer.agent`) stands for a whole site, and there is one code for the
attempt protocol. Here a job's inputs are brought to the site, unless their content is there; alike
jobs that come together are submitted together; the site is looked at now and then; and what a job
has made is taken into the store of this machine.

- What is submitted is on the book first (`site_book`): a process that takes the run over claims
  what is queued or runs there. So nothing is submitted twice, and what has ended is collected.
- A job that the site failed (no report, a lost node, a preemption) ends as `lost` by the fault of
  the `machine`, which uses up nobody's retries; a report that says 'failed' is the task's own.
- Calls of a site block, and are made in threads: one of the engine's at a time, some of files'.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import re
import secrets
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from sureline.catalog.entries import Transformation, preamble
from sureline.catalog.replicas import Replica
from sureline.compose.site_book import Place, SiteBook, Submission, print_of
from sureline.compose.site_copies import NowhereError
from sureline.compose.site_files import PAUSES_S, PlacedInput, SiteFiles, again
from sureline.peer.commands import start_of
from sureline.peer.jobs import Brought, CommandJob, JobEnded, JobStarted, PauseJob
from sureline.peer.tree import StoreError
from sureline.sites.at_site import VOID
from sureline.sites.port import COUNT_MAX, JobId, JobStatus, Site, SiteError, SiteWork
from sureline.sites.spooled import SpooledSite
from sureline.workflow.files import FileRecord
from sureline.world.protocol import Job, JobEvent, JobHandle

GATHER_S = 0.05
"""Jobs that come within this time may be submitted together."""
TOGETHER_MAX = min(COUNT_MAX, 200)
LOOK_S = 0.1
LOOK_MAX_S = 3.0
SILENT_S = 60.0
"""A site that has not answered for so long is believed to be gone, with all that it has."""
SEEN_WITHIN_S = 10.0
"""A job that was submitted is seen at its site by then, though nobody waited for its answer."""
TOLD_WITHIN_S = 0.05
"""From the end of a job until the engine has recorded it."""
FILE_THREADS = 4
TAG_MAX = 60

T = TypeVar("T")


class _Sent:
    """One job, from `start` to its end."""

    __slots__ = ("brought", "done", "id", "job", "on_event", "place", "print", "started", "stopped")

    def __init__(self, job: CommandJob, on_event: Callable[[JobEvent], None]) -> None:
        self.job = job
        self.on_event = on_event
        self.print = print_of(job)
        self.place: Place | None = None
        self.id: JobId | None = None
        self.started = self.stopped = self.done = False
        self.brought = Brought()


class SiteRunner:
    """Runs the jobs of one run at one site. `programs` says how they are called there, `replicas`
    which contents the user has there, by digest; `elsewhere`, called in a thread, has a copy of
    one that is not in the store (see `site_copies`). `flush` has the journal written: where a task
    was sent must survive us before the site has it. All methods are called in the loop's
    thread."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        site: Site,
        name: str,
        *,
        run: str,
        home: Path,
        directory: Path,
        options: tuple[str, ...] = (),
        programs: Mapping[str, Transformation] | None = None,
        replicas: Mapping[str, Replica] | None = None,
        elsewhere: Callable[[FileRecord, Path], Path | None] = lambda record, directory: None,
        flush: Callable[[], None] = lambda: None,
        tell: Callable[[str], None] = lambda sentence: None,
    ) -> None:
        self._loop = loop
        self._site = site
        self._name = name
        self._run = run
        self._options = options
        self._programs = programs or {}
        self._flush = flush
        self._tell = tell
        self._book = SiteBook(home / "sites" / run / f"{name}.jsonl")
        self._files_tag = f"{run[:TAG_MAX]}.files"
        self._pool = ThreadPoolExecutor(FILE_THREADS, thread_name_prefix=f"site-{name}")
        self._files = SiteFiles(
            site,
            self._files_tag,
            self._book,
            self._pool,
            home=home,
            directory=directory,
            scratch=home / "work" / run,
            replicas=dict(replicas or {}),
            elsewhere=elsewhere,
        )
        self._one_call = asyncio.Lock()
        self._new: list[_Sent] = []
        self._sent: dict[JobId, _Sent] = {}
        self._left: dict[str, tuple[Place, JobId]] = {}
        """Of an earlier process: what is at the site and nobody has claimed, by its print."""
        self._unwanted: dict[JobId, Place] = {}
        self._wake = asyncio.Event()
        self._look_soon = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()
        self._closed = False
        self._do(self._submitting())
        self._do(self._looking())

    # -- asked from above ----------------------------------------------------------------------

    def start(
        self, job: Job, on_event: Callable[[JobEvent], None], *, after: JobHandle | None = None
    ) -> JobHandle:
        assert after is None, "nothing is bound ahead at a site"
        if isinstance(job, PauseJob):
            job = CommandJob(job.label, job.task, job.attempt, f"sleep {job.seconds:.3f}")
        assert isinstance(job, CommandJob), f"sites take commands, not {type(job).__name__}"
        sent = _Sent(job, on_event)
        self._new.append(sent)
        self._wake.set()
        return sent

    def stop(self, handle: JobHandle, *, force: bool = False) -> None:
        """With `force`, nobody waits for the site's word: one that is down would keep the job."""
        assert isinstance(handle, _Sent)
        if handle.done or handle.stopped:
            return
        handle.stopped = True
        if handle.id is None and handle in self._new:
            self._new.remove(handle)
            self._end(handle, JobEnded("cancelled", reason="withdrawn before it was submitted"))
        elif handle.id is not None:
            self._do(self._cancel(handle, force))

    async def close(self, *, clear: bool) -> None:
        """End the looking. With `clear`, the run is over: nothing is left at the site. Else all
        goes on there, for whoever resumes the run."""
        self._closed = True
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if clear:
            await self._clear_site()
            self._book.remove()
        else:
            self._book.close()
        if isinstance(self._site, SpooledSite):
            await self._call(self._site.close)
        self._pool.shutdown(wait=False, cancel_futures=True)

    async def _clear_site(self) -> None:
        left = [*self._sent, *self._unwanted, *(job for _, job in self._left.values())]
        try:
            if left:
                await self._call(self._site.cancel, left)
        except SiteError:
            self._tell(f"{self._name} does not answer: what it has left of this run is not ended")
        for tag in (*self._book.submissions, self._files_tag):
            with contextlib.suppress(SiteError):
                await self._call(self._site.forget, tag)

    # -- plumbing ------------------------------------------------------------------------------

    def _do(self, work: Any) -> None:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _call(self, call: Callable[..., T], *args: Any) -> T:
        """A call of the engine's: one at a time."""
        async with self._one_call:
            return await self._loop.run_in_executor(self._pool, call, *args)

    def _end(self, sent: _Sent, ended: JobEnded) -> None:
        if sent.done or self._closed:
            return
        sent.done = True
        if sent.id is not None:
            self._sent.pop(sent.id, None)
        if sent.place is not None and ended.outcome == "cancelled":
            self._book.over(sent.place)
        elif sent.place is not None and ended.outcome != "succeeded":
            self._loop.call_later(TOLD_WITHIN_S, self._note_over, sent.place)
        told = msgspec.structs.replace(ended, brought=sent.brought)
        self._loop.call_soon(sent.on_event, told)

    def _note_over(self, place: Place) -> None:
        """How it ended is in the journal now: only then may the book forget it. What succeeded
        stays: if the journal has lost that, its result is collected again."""
        if not self._closed:
            self._flush()
            self._book.over(place)

    def _lose(self, sents: Iterable[_Sent], reason: str) -> None:
        for sent in sents:
            if sent.stopped:
                self._end(sent, JobEnded("cancelled", reason="withdrawn"))
            else:
                self._end(sent, JobEnded("lost", reason=reason, fault="machine"))

    # -- submitting ----------------------------------------------------------------------------

    async def _submitting(self) -> None:
        await self._recover()
        while True:
            await self._wake.wait()
            self._wake.clear()
            await asyncio.sleep(GATHER_S)
            new, self._new = self._new, []
            alike: dict[tuple[float, int, int], list[_Sent]] = {}
            for sent in new:
                if not self._claim(sent):
                    needs = (sent.job.cores, sent.job.memory_bytes, sent.job.gpus)
                    alike.setdefault(needs, []).append(sent)
            for group in alike.values():
                for first in range(0, len(group), TOGETHER_MAX):
                    await self._submit(group[first : first + TOGETHER_MAX])

    async def _recover(self) -> None:
        """Find what an earlier process has submitted, also if it could not note the jobs."""
        for submission in list(self._book.submissions.values()):
            if not submission.jobs:
                try:
                    if not await again(lambda s=submission: self._found_late(s)):  # type: ignore[misc]
                        continue
                except SiteError as error:
                    self._tell(f"{self._name} cannot be asked what it has of this run: {error}")
                    continue
            for index, (job, mark) in enumerate(
                zip(submission.jobs, submission.prints, strict=False)
            ):
                if job and index not in submission.over:
                    self._left[mark] = ((submission.tag, index), job)

    async def _found_late(self, submission: Submission) -> bool:
        """The same, of what was being submitted when an earlier process ended: it may take a while
        until all jobs are seen, and perhaps not all of them were begun."""
        give_up_at = self._loop.time() + SEEN_WITHIN_S
        while True:
            found = await self._found(submission)
            whole = found and all(self._book.submissions[submission.tag].jobs)
            if whole:
                return True
            if self._loop.time() > give_up_at:
                return await self._given_up(submission)
            await asyncio.sleep(LOOK_S)

    async def _given_up(self, submission: Submission) -> bool:
        """Nothing of it that has not begun will begin from now on; whether something has."""
        with tempfile.NamedTemporaryFile() as empty:
            await self._call(self._site.put, Path(empty.name), f"{submission.tag}/{VOID}")
        return await self._found(submission)

    async def _found(self, submission: Submission) -> bool:
        """Whether the site has jobs of this tag; if so, they are on the book."""
        found = await self._call(self._site.find, submission.tag)
        jobs = [JobId("")] * len(submission.prints)
        for job in found:
            number = re.search(r"(\d+)$", job) if len(jobs) > 1 else None
            index = int(number[1]) if number else 0
            if index < len(jobs):
                jobs[index] = job
        if found:
            self._book.submitted(submission.tag, jobs)
        return bool(found)

    def _claim(self, sent: _Sent) -> bool:
        """Whether an earlier process has submitted it, and it is still there."""
        left = self._left.pop(sent.print, None)
        if left is None:
            return False
        sent.place, sent.id = left
        self._sent[sent.id] = sent
        self._look_soon.set()
        return True

    async def _submit(self, group: list[_Sent]) -> None:
        tasks, ready = [], []
        for sent, described in zip(
            group, await asyncio.gather(*map(self._described, group)), strict=True
        ):
            if described is not None and not sent.done:
                tasks.append(described)
                ready.append(sent)
        for _ in range(3):  # a tag is for once: who is not sure takes another
            if not ready:
                return
            tag = f"{self._run[:TAG_MAX]}.{secrets.token_hex(4)}"
            submission = Submission(tag, [sent.print for sent in ready])
            try:
                await again(lambda t=tag: self._files.bring_tasks(t, tasks))  # type: ignore[misc]
                self._flush()
                self._book.about_to_submit(tag, submission.prints)
                work = SiteWork(
                    tag=tag,
                    argv=("python3", "task_at_site.py"),
                    cores=max(1, math.ceil(ready[0].job.cores)),
                    memory_bytes=ready[0].job.memory_bytes,
                    gpus=ready[0].job.gpus,
                    count=len(ready),
                    options=self._options,
                )
                jobs = await again(lambda w=work: self._call(self._site.submit, w))  # type: ignore[misc]
            except SiteError as error:
                if not error.unsure:
                    self._lose(ready, f"{self._name} did not take it: {error}")
                    return
                if not await self._is_there(submission):
                    continue
                jobs = self._book.submissions[tag].jobs
            else:
                self._book.submitted(tag, jobs)
            for index, (sent, job) in enumerate(zip(ready, jobs, strict=True)):
                if not job:
                    self._lose([sent], f"{self._name} did not begin it")
                    continue
                sent.place, sent.id = (tag, index), job
                self._sent[job] = sent
                if sent.stopped:
                    self._do(self._cancel(sent, force=True))
            self._look_soon.set()
            return
        self._lose(ready, f"{self._name} does not say whether it took it")

    async def _is_there(self, submission: Submission) -> bool:
        for pause_s in PAUSES_S:
            await asyncio.sleep(pause_s)
            with contextlib.suppress(SiteError):
                if await self._found(submission):
                    return True
        with contextlib.suppress(SiteError):
            return await self._given_up(submission)
        return False

    # -- inputs --------------------------------------------------------------------------------

    async def _described(self, sent: _Sent) -> dict[str, Any] | None:
        """A task as the site is told of it, its inputs being there; None if it has ended."""
        job = sent.job
        try:
            inputs = [await self._files.placed(record) for record in job.inputs]
        except SiteError as error:
            self._lose([sent], f"its inputs cannot be brought to {self._name}: {error}")
            return None
        except NowhereError as error:
            self._end(sent, JobEnded("failed", reason=str(error)))
            return None
        except StoreError as error:
            missing = tuple(record.digest for record in job.inputs)
            told = JobEnded("failed", reason=str(error), fault="inputs", missing=missing)
            self._end(sent, told)
            return None
        sent.brought = _counted(job, inputs)
        before = preamble(self._name, job.run, self._programs)
        argv, is_script = start_of(job.run, None, job.shell)
        if before or not (is_script or job.shell):
            argv, is_script = ["bash", "-eo", "pipefail", "-c", before + job.run], False
        return {
            "argv": argv,
            "script": job.run if is_script else "",
            "inputs": [(one.path, one.source, one.sort, one.sha256) for one in inputs],
            "seen": f"../{self._files_tag}",
            "outputs": job.outputs,
            "env": {
                **job.env,
                "SURELINE_TASK": job.task,
                "SURELINE_ATTEMPT": str(job.attempt),
                "SURELINE_CORES": f"{job.cores:g}",
                "SURELINE_SITE": self._name,
            },
            "stdin": job.stdin,
            "timeout_s": job.timeout_s,
        }

    # -- looking -------------------------------------------------------------------------------

    async def _looking(self) -> None:
        pause_s, silent_since = LOOK_S, None
        while True:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._look_soon.wait(), pause_s)
                pause_s = LOOK_S
            self._look_soon.clear()
            if not (self._sent or self._unwanted):
                continue
            try:
                found = await self._call(self._site.look, [*self._sent, *self._unwanted])
            except SiteError as error:
                pause_s = min(LOOK_MAX_S, 2 * pause_s)
                if silent_since is None:
                    silent_since = self._loop.time()
                    self._tell(f"{self._name} does not answer, and is asked again: {error}")
                elif self._loop.time() - silent_since > SILENT_S:
                    self._give_up_all(f"{self._name} has not answered for {SILENT_S:g} s")
                continue
            if silent_since is not None:
                self._tell(f"{self._name} answers again")
                silent_since = None
            changed = False
            for job, status in found.items():
                changed = self._heed(job, status) or changed
            pause_s = LOOK_S if changed else min(LOOK_MAX_S, 1.5 * pause_s)

    def _give_up_all(self, reason: str) -> None:
        """Whatever is there goes elsewhere; should the site come back, it is ended there."""
        for job, sent in list(self._sent.items()):
            if sent.place is not None:
                self._unwanted[job] = sent.place
            self._lose([sent], reason)

    def _heed(self, job: JobId, status: JobStatus) -> bool:
        """Act on what the site says of a job; whether that was news."""
        if job in self._unwanted:
            if status.is_over:
                del self._unwanted[job]
            else:
                self._do(self._drop(job))
            return status.is_over
        sent = self._sent.get(job)
        if sent is None or sent.done:
            return False
        if not sent.started and not status.is_waiting and status.word != "cancelled":
            sent.started = True
            self._loop.call_soon(sent.on_event, JobStarted(None))
            if not status.is_over:
                return True
        if status.is_over:
            del self._sent[job]
            self._do(self._collect(sent, status))
            return True
        return False

    async def _cancel(self, sent: _Sent, force: bool) -> None:
        assert sent.id is not None and sent.place is not None
        job, place = sent.id, sent.place
        if force and not sent.done:
            self._unwanted[job] = place
            self._end(sent, JobEnded("cancelled", reason=f"taken back from {self._name}"))
        await self._drop(job)
        self._look_soon.set()

    async def _drop(self, job: JobId) -> None:
        with contextlib.suppress(SiteError):
            await self._call(self._site.cancel, [job])

    async def _collect(self, sent: _Sent, status: JobStatus) -> None:
        """A job is over at the site: learn how it went, and take what it made."""
        word, place = status.word, sent.place
        assert place is not None, "what is over was submitted"
        if sent.stopped and word != "ended":
            self._end(sent, JobEnded("cancelled", reason="was stopped"))
        elif word == "cancelled":
            self._end(sent, JobEnded("cancelled", reason=f"somebody ended it at {self._name}"))
        elif word in ("out-of-memory", "timeout"):
            said = f"{self._name} ended it: {word}"
            why = f"{said} {status.reason}".strip()
            late = word == "timeout"
            self._end(sent, JobEnded("timeout" if late else "failed", reason=why))
        elif word in ("ended", "failed"):
            try:
                ended = await again(lambda: self._files.collect(sent.job, place))
            except (SiteError, msgspec.MsgspecError, StoreError, OSError) as error:
                said = await self._last_words(sent)
                self._lose([sent], f"{self._name} ran it and has no report of it: {said or error}")
            else:
                self._end(sent, ended)
        else:
            why = f" ({status.reason})" if status.reason else ""
            self._lose([sent], f"{self._name} lost it: {word}{why}")

    async def _last_words(self, sent: _Sent) -> str:
        with contextlib.suppress(SiteError):
            printed = await self._call(self._site.output, sent.id, 500)
            lines: list[str] = printed.decode("utf-8", "replace").strip().splitlines()
            return lines[-1] if lines else ""
        return ""


def _counted(job: CommandJob, inputs: Sequence[PlacedInput]) -> Brought:
    """What of its inputs was at the site, and what was brought there."""
    sizes = [(one.brought, file.size) for one, file in zip(inputs, job.inputs, strict=True)]
    moved = [size for brought, size in sizes if brought]
    here = [size for brought, size in sizes if not brought]
    return Brought(len(here), sum(here), len(moved), sum(moved))
