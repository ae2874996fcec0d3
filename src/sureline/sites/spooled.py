"""What sites have in common whose engine runs functions of Python on machines that share a spool.

The engine is handed a function that starts the job's first process (`at_site job`), waits for it,
and ends it when the spool says so. What became of a job is told by its file in the spool; the
engine's word counts while there is none, or when it has lost the job. So neither an object that
the engine evicts nor a scheduler that is started again takes a result away.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Literal

from sureline.sites import at_site
from sureline.sites.local import LocalSite, copy_whole, numbered, plain, statuses
from sureline.sites.port import JobId, JobStatus, SiteError, SiteWork

EngineWord = Literal["waits", "runs", "gone"]
"""'gone': the engine has done with it, well or not."""
SUBMITTED = "submitted"


def job_function() -> Callable[[str, str, int], int]:
    """What the engine runs for one job. Made within a function, so that it is pickled with its
    code: Sureline need not be installed where it runs."""

    def run_job(spool: str, tag: str, index: int) -> int:
        import ctypes
        import json
        import os
        import signal
        import subprocess
        import sys

        def die_with_worker() -> None:
            """Else the engine, which starts a lost job anew, would have it run twice."""
            if sys.platform == "linux":
                ctypes.CDLL(None).prctl(1, signal.SIGTERM)  # PR_SET_PDEATHSIG

        where = os.path.join(spool, tag)
        try:
            with open(os.path.join(where, f"state.{index}"), "rb") as file:
                before = json.load(file)
            if "ended_at" in before and before["word"] != "cancelled":
                return int(before["exit_code"])  # the engine has lost its answer, not we
        except FileNotFoundError:
            pass
        with open(os.path.join(where, f"out.{index}"), "ab") as printed:
            program = os.path.join(spool, "at_site.py")
            job = subprocess.Popen(
                [sys.executable, program, "job", spool, tag, str(index)],
                stdin=subprocess.DEVNULL,
                stdout=printed,
                stderr=printed,
                start_new_session=True,
                preexec_fn=die_with_worker,  # noqa: PLW1509 - it takes no lock
            )
        told = False
        while True:
            try:
                return job.wait(0.3)
            except subprocess.TimeoutExpired:
                if not told and os.path.exists(os.path.join(where, f"cancel.{index}")):
                    told = True
                    job.terminate()

    return run_job


class SpooledSite(LocalSite):
    """An adapter says how jobs are handed over, and what its engine says of them."""

    def _hand_over(self, spool: str, work: SiteWork) -> None:
        raise NotImplementedError

    def _words(self, jobs: list[JobId]) -> Mapping[JobId, EngineWord]:
        """Of those that the engine knows nothing of, nothing."""
        raise NotImplementedError

    def _drop(self, jobs: list[JobId]) -> None:
        """Take back those that have not begun; the others end by the spool."""
        raise NotImplementedError

    def close(self) -> None:
        """Let go of the connection to the engine; the jobs go on."""

    def submit(self, work: SiteWork) -> list[JobId]:
        if work.options:
            raise SiteError(
                f"site {self.name} has no options, such as {work.options[0]}", again=False
            )
        try:
            at_site.prepare(self._spool, plain(work))
            copy_whole(Path(at_site.__file__), Path(self._spool, "at_site.py"))
            marker = os.path.join(self._spool, work.tag, SUBMITTED)
        except FileExistsError:
            raise SiteError(f"the tag {work.tag} was used before", again=False) from None
        except OSError as error:
            raise SiteError(f"{self._spool} cannot be used: {error}", again=False) from None
        self._hand_over(self._spool, work)
        at_site.write_whole(marker, b"")
        return numbered(work)

    def find(self, tag: str = "") -> Mapping[JobId, str]:
        found = dict(super().find(tag))
        tags = [tag] if tag else os.listdir(self._spool) if os.path.isdir(self._spool) else []
        for one in tags:
            if os.path.exists(os.path.join(self._spool, one, SUBMITTED)):
                work = at_site.read_json(os.path.join(self._spool, one, "work.json")) or {}
                found |= {JobId(f"{one}/{n}"): one for n in range(work.get("count", 0))}
        return found

    def look(self, jobs: Iterable[JobId]) -> Mapping[JobId, JobStatus]:
        """What has ended is told by the spool, also while the engine does not answer."""
        found, unsaid = {}, []
        for job in jobs:
            tag, _, index = job.rpartition("/")
            state = at_site.read_json(at_site.state_path(self._spool, tag, int(index))) or {}
            if "ended_at" in state and state["word"] != "cancelled":
                found[str(job)] = state
            else:
                unsaid.append(job)
        try:
            words = self._words(unsaid) if unsaid else {}
        except SiteError:
            if not found:
                raise
            return statuses(found)
        for job in unsaid:
            looked = self._looked(job, words.get(job))
            if looked is not None:
                found[str(job)] = looked
        return statuses(found)

    def _looked(self, job: JobId, word: EngineWord | None) -> dict[str, Any] | None:
        tag, _, index = job.rpartition("/")
        try:
            submitted_at = os.stat(os.path.join(self._spool, tag, "work.json")).st_mtime
        except OSError:
            return None
        state = at_site.read_json(at_site.state_path(self._spool, tag, int(index)))
        if state is not None and "ended_at" in state:
            told = self._with_blame(state, tag, index)
            if told["word"] == "lost" and word in ("waits", "runs"):  # its engine starts it again
                return {"word": "requeued", "starts": state.get("starts", 1)}
            return told
        wanted = not os.path.exists(os.path.join(self._spool, tag, f"cancel.{index}"))
        if not wanted and state is None:
            # Its first process writes a state before it looks whether it is cancelled: if there is
            # none now, it will do no work, whatever its engine still has of it, and for how long.
            state = at_site.read_json(at_site.state_path(self._spool, tag, int(index)))
            if state is None:
                return {"word": "cancelled", "submitted_at": submitted_at}
        is_new = wanted and time.time() - submitted_at < at_site.BEGINS_WITHIN_S
        if state is None and (word in ("waits", "runs") or (word is None and is_new)):
            return {"word": "queued", "submitted_at": submitted_at}
        if word in ("waits", "runs"):
            return state if word == "runs" else {**(state or {}), "word": "requeued"}
        is_here = state is not None and state.get("node") == socket.gethostname()
        if state is not None and is_here and at_site.is_alive(state):
            return state  # its engine is gone, it is not
        state = at_site.read_json(at_site.state_path(self._spool, tag, int(index))) or {}
        if "ended_at" in state:
            return self._with_blame(state, tag, index)
        return self._with_blame({**state, "word": "cancelled"}, tag, index)

    def _with_blame(self, state: dict[str, Any], tag: str, index: str) -> dict[str, Any]:
        """What nobody has cancelled was ended by the engine."""
        cancelled = os.path.exists(os.path.join(self._spool, tag, f"cancel.{index}"))
        if state["word"] != "cancelled" or cancelled:
            return state
        reason = f"{self.name} does not have it any more: a worker or the scheduler was lost"
        return {**state, "word": "lost", "reason": reason}

    def cancel(self, jobs: Iterable[JobId]) -> None:
        open_jobs = [job for job, status in self.look(jobs).items() if not status.is_over]
        super().cancel(open_jobs)
        if open_jobs:
            self._drop(open_jobs)
