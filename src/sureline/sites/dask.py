"""The site `dask`: a scheduler at an address, or a cluster of this process's own.

Jobs are tasks of the scheduler that nobody holds a future of (`fire_and_forget`), so they go on
when their submitter is gone. Each takes one thread of a worker, whatever it needs.
Needs `pip install sureline[dask]` here, and nothing on workers but that they see the spool.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sureline.sites.port import JobId, SiteError, SiteWork
from sureline.sites.spooled import EngineWord, SpooledSite, job_function
from sureline.workflow.mistakes import UserError

CONNECT_S = "10s"
KEY = "sureline:"
_WORDS: Mapping[str, EngineWord] = {
    "waiting": "waits",
    "no-worker": "waits",
    "queued": "waits",
    "processing": "runs",
}
"""By the scheduler's states; all others mean that it has done with it."""


class DaskSite(SpooledSite):
    name = "dask"

    def __init__(self, spool: Path, address: str = "", slots: int = 1) -> None:
        super().__init__(spool)
        try:
            import distributed
        except ImportError:
            raise UserError("dask is not installed; pip install sureline[dask]") from None
        # What its client tells of a lost scheduler is told by us, once.
        logging.getLogger("distributed").setLevel(logging.CRITICAL)
        self._distributed: Any = distributed
        self.where = address
        self._address = address
        self._slots_own = slots
        self._connected: Any = None
        self._cluster: Any = None

    def _client(self) -> Any:
        if self._connected is not None and self._connected.status == "running":
            return self._connected
        try:
            if not self._address:
                # In this process: a worker only waits for processes that it has started.
                self._cluster = self._distributed.LocalCluster(
                    n_workers=1,
                    threads_per_worker=self._slots_own,
                    processes=False,
                    dashboard_address=None,
                )
                self._address = self._cluster.scheduler_address
            self._connected = self._distributed.Client(
                self._address, timeout=CONNECT_S, set_as_default=False
            )
        except (OSError, TimeoutError) as error:
            raise SiteError(f"no dask scheduler at {self._address}: {error}", again=True) from None
        return self._connected

    def close(self) -> None:
        if self._connected is not None:
            self._connected.close()
            self._connected = None
        if self._cluster is not None:
            self._cluster.close()
            self._cluster, self._address = None, ""

    def _asked(self, call: str, *args: Any, **named: Any) -> Any:
        """A call of the client's; whatever goes wrong with the scheduler is its own."""
        client = self._client()
        try:
            return getattr(client, call)(*args, **named)
        except Exception as error:  # of many kinds: lost connections, timeouts, closed clients
            self._connected = None
            said = f"the dask scheduler at {self._address} does not answer: {error!r:.200}"
            raise SiteError(said, again=True, unsure=True) from None

    def _hand_over(self, spool: str, work: SiteWork) -> None:
        run_job = job_function()
        numbers = range(work.count)
        futures = self._asked(
            "map",
            lambda index, spool=spool, tag=work.tag: run_job(spool, tag, index),
            numbers,
            key=[f"{KEY}{work.tag}/{index}" for index in numbers],
            pure=False,
            retries=0,
        )
        self._distributed.fire_and_forget(futures)

    def _words(self, jobs: list[JobId]) -> Mapping[JobId, EngineWord]:
        def states(keys: list[str], dask_scheduler: Any = None) -> list[str]:
            return [getattr(dask_scheduler.tasks.get(key), "state", "") for key in keys]

        keys = [f"{KEY}{job}" for job in jobs]
        found = self._asked("run_on_scheduler", states, keys)
        told = zip(jobs, found, strict=True)
        return {job: _WORDS.get(state, "gone") for job, state in told if state}

    def _drop(self, jobs: list[JobId]) -> None:
        waiting = [job for job, word in self._words(jobs).items() if word == "waits"]
        futures: list[Any] = [
            self._distributed.Future(f"{KEY}{job}", client=self._client()) for job in waiting
        ]
        if futures:
            self._asked("cancel", futures, force=True)
