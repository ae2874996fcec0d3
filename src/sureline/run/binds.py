"""What a target is told to run one attempt, with the nodes that hold its inputs; what can travel.

A task with an input that no node which is there holds is parked until one does. Where all tasks run
in this process (`here`), inputs are in its store, and nothing travels.
"""

from __future__ import annotations

import msgspec

from sureline.peer.messages import Bind
from sureline.run.holders import Holders
from sureline.run.known import Known
from sureline.run.warrants import Warrants
from sureline.workflow.mistakes import UserError
from sureline.workflow.model import Call, Graph
from sureline.world.address import Node, PeerName

BIND_BYTES_MAX = 768 << 10

_encode = msgspec.msgpack.Encoder().encode


class Binds:
    def __init__(
        self,
        run: str,
        epoch: int,
        strategy: str,
        graph: Graph,
        known: Known,
        holders: Holders,
        warrants: Warrants,
        *,
        here: bool,
    ) -> None:
        self._run = run
        self._epoch = epoch
        self._strategy = strategy
        self._graph = graph
        self._known = known
        self._holders = holders
        self._warrants = warrants
        self._here = here
        self._parked: dict[str, dict[int, None]] = {}

    def grow(self, graph: Graph) -> None:
        self._graph = graph

    def make(
        self, task: int, attempt: int, target: PeerName, claim: bytes, *, ahead: bool
    ) -> Bind | None:
        """None, and the task is parked, if an input cannot be had from anywhere just now."""
        described = self._graph.tasks[task]
        job = self._known.job(task, attempt)
        if self._here:
            return Bind(self._run, described.name, attempt, job, described.needs, ahead)
        sources: dict[str, tuple[Node, ...]] = {}
        reads, made = self._known.reads(task), self._known.made(task)
        for record in reads:
            if record.path not in made:
                self._holders.add_here(record.digest)  # the user's own
            nodes = self._holders.sources(record.digest)
            if not nodes:
                self._parked.setdefault(record.digest, {})[task] = None
                return None
            sources[record.digest] = nodes
        return Bind(
            self._run,
            described.name,
            attempt,
            job,
            described.needs,
            ahead,
            self._epoch,
            self._known.key(task),
            sources,
            self._strategy,
            claim,
            self._warrants.make((described.name, attempt, target)),
        )

    def unpark(self, digest: str) -> list[int]:
        """The tasks that waited for this content, which is to be had now."""
        return list(self._parked.pop(digest, ()))

    def unpark_all(self) -> list[int]:
        """The tasks that waited for content that is to be had now."""
        found = [digest for digest in self._parked if self._holders.sources(digest)]
        return [task for digest in found for task in self.unpark(digest)]

    def clear(self) -> None:
        self._parked.clear()


def too_long(bind: Bind) -> str:
    """Why it cannot travel; '' if it can."""
    if len(_encode(bind)) <= BIND_BYTES_MAX:
        return ""
    return f"its description is longer than {BIND_BYTES_MAX >> 10} KiB and cannot travel"


def check_travels(graph: Graph) -> None:
    """Refuse what cannot run on a grid, before anything starts. Raises UserError."""
    for task in graph.tasks:
        if isinstance(task.action, Call) and graph.carried is None:
            raise UserError(
                f"{task.name} is a Python call that was described for this machine alone; submit "
                "its workflow from Python: flow.run(grid=...)"
            )
        if task.in_place:
            raise UserError(
                f"{task.name} uses {task.in_place[0]} in place, and files in place do not travel; "
                "take it out of 'in_place:', or run without --grid"
            )
