"""The site `ray`: a cluster at an address, or one on this machine.

Ray ends what a program has started when the program ends. So jobs are handed to an actor that is
detached: it owns them, and knows of them, whoever asks. Each holds the CPUs, memory and GPUs that
it needs.
Needs `pip install sureline[ray]` here, and nothing on workers but that they see the spool.
"""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

from sureline.sites.port import JobId, SiteError, SiteWork
from sureline.sites.spooled import EngineWord, SpooledSite, job_function
from sureline.workflow.mistakes import UserError

NAMESPACE = "sureline"
OWNER = "jobs"
ANSWER_S = 30.0
LOCAL = "local"
"""The address of a cluster that is this process's own."""


def owner_class() -> Any:
    """The actor's class; made within a function, as `spooled.job_function`."""

    class Owner:
        def __init__(self) -> None:
            self.jobs: dict[str, Any] = {}

        def hand_over(
            self, function: Any, spool: str, tag: str, count: int, needs: dict[str, float]
        ) -> None:
            import ray

            remote: Any = ray.remote(function)
            remote = remote.options(max_retries=0, **needs)
            for index in range(count):
                self.jobs[f"{tag}/{index}"] = remote.remote(spool, tag, index)

        def done(self, jobs: list[str]) -> dict[str, bool]:
            """Of those that it knows, whether they are over."""
            import ray

            known = {job: self.jobs[job] for job in jobs if job in self.jobs}
            if not known:
                return {}
            refs = list(known.values())
            ready, _ = ray.wait(refs, num_returns=len(refs), timeout=0)
            over = set(ready)
            return {job: ref in over for job, ref in known.items()}

        def drop(self, jobs: list[str]) -> None:
            """Take back what has not begun; Ray does not touch what runs, for the spool does."""
            import ray

            for job in jobs:
                if job in self.jobs:
                    ray.cancel(self.jobs[job], force=False)

    return Owner


class RaySite(SpooledSite):
    name = "ray"
    _connected_to: ClassVar[str] = ""
    """Ray has one connection for all of a process."""

    def __init__(self, spool: Path, address: str = "", slots: int = 1) -> None:
        super().__init__(spool)
        if not address:  # read when ray is imported: its processes speak on the loopback only
            os.environ.setdefault("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", "0")
        try:
            import ray
        except ImportError:
            raise UserError("ray is not installed; pip install sureline[ray]") from None
        self._ray = ray
        self.where = address
        self._address = address or LOCAL
        self._slots_own = slots

    def _owner(self) -> Any:
        ray = self._ray
        try:
            if ray.is_initialized():
                self._check_ours()
            else:
                own = {"num_cpus": self._slots_own} if self._address == LOCAL else {}
                ray.init(
                    address=self._address,
                    namespace=NAMESPACE,
                    log_to_driver=False,
                    logging_level=logging.ERROR,
                    include_dashboard=False if own else None,
                    **own,
                )
                RaySite._connected_to = self._address
            return (
                ray.remote(owner_class())
                .options(
                    *(),
                    name=OWNER,
                    namespace=NAMESPACE,
                    lifetime="detached",
                    get_if_exists=True,
                    num_cpus=0,
                    max_restarts=-1,
                )
                .remote()
            )
        except SiteError:
            raise
        except Exception as error:  # of many kinds, by version
            with contextlib.suppress(Exception):
                ray.shutdown()
            said = f"no ray cluster at {self._address}: {error!r:.200}"
            raise SiteError(said, again=True) from None

    def _check_ours(self) -> None:
        if RaySite._connected_to not in ("", self._address):
            raise SiteError(
                f"this process speaks to the ray cluster at {RaySite._connected_to} already, and "
                f"ray has one at a time; leave one of the two sites out",
                again=False,
            )

    def close(self) -> None:
        self._ray.shutdown()

    def _asked(self, method: str, *args: Any) -> Any:
        owner = self._owner()
        try:
            return self._ray.get(getattr(owner, method).remote(*args), timeout=ANSWER_S)
        except Exception as error:  # an actor that died, a head that is gone
            with contextlib.suppress(Exception):
                self._ray.shutdown()
            said = f"the ray cluster at {self._address} does not answer: {error!r:.200}"
            raise SiteError(said, again=True, unsure=True) from None

    def _hand_over(self, spool: str, work: SiteWork) -> None:
        needs: dict[str, float] = {"num_cpus": work.cores}
        if work.memory_bytes:
            needs["memory"] = work.memory_bytes
        if work.gpus:
            needs["num_gpus"] = work.gpus
        self._asked("hand_over", job_function(), spool, work.tag, work.count, needs)

    def _words(self, jobs: list[JobId]) -> Mapping[JobId, EngineWord]:
        done = self._asked("done", [str(job) for job in jobs])
        return {JobId(job): "gone" if over else "runs" for job, over in done.items()}

    def _drop(self, jobs: list[JobId]) -> None:
        self._asked("drop", [str(job) for job in jobs])
