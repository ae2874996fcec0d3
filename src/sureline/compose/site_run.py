"""A run whose tasks go to sites of the user's catalog, driven from this machine.

Each site is a target: the agent of a machine (`peer.agent`) over a `SiteRunner`. Files that are
made at a site come here and are registered in the replica catalog with the key of their result, so
that another run, wherever, finds them.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterable
from pathlib import Path

import msgspec

from sureline.catalog.entries import (
    HERE,
    PROGRAM_TAG,
    SiteEntry,
    programs_of,
    transformation_catalog,
)
from sureline.catalog.replicas import Replica, Replicas
from sureline.compose.catalogued import catalogued, open_site, options_of
from sureline.compose.session import Session
from sureline.compose.site_copies import CatalogElsewhere
from sureline.compose.site_runner import SiteRunner
from sureline.journal.events import COMMITS, Event, TaskEnded
from sureline.peer.agent import PeerAgent
from sureline.peer.capacity import Capacity, Ledger
from sureline.peer.store import BlobStore
from sureline.run.port import Target
from sureline.workflow.mistakes import UserError
from sureline.workflow.model import Call, Command, Graph, Needs, Task
from sureline.world.address import PeerName
from sureline.world.protocol import AgentId

UNCOUNTED = 1 << 62
"""What a site offers of what its entry does not count."""
PUSHED_AHEAD = 4
"""So many times its processors a site is given at once: it has a queue of its own."""


class SiteRun(Session):
    def _join_targets(self, loop: asyncio.AbstractEventLoop) -> list[Target]:
        entries = catalogued(tuple(self._options.sites.split(",")))
        programs = transformation_catalog().read()
        replicas = Replicas()
        self._loop = loop
        self._runners: list[SiteRunner] = []
        targets = []
        for entry in entries:
            runner = SiteRunner(
                loop,
                open_site(entry),
                entry.name,
                run=self._run,
                home=self._journal.directory,
                directory=self._directory,
                options=options_of(entry),
                programs=programs,
                replicas={row.digest: row for row in replicas.at_site(entry.name)},
                elsewhere=self._copies.whole,
                flush=self._world.recorder.flush,
                tell=self._watcher.told,
            )
            self._runners.append(runner)
            me, capacity = AgentId(entry.name), capacity_of(entry)
            room = msgspec.structs.replace(capacity, cores=PUSHED_AHEAD * capacity.cores)
            self._world.join(PeerAgent(me, self._world.place(me, runner), room))
            targets.append(Target(PeerName(entry.name), me, capacity, site=entry.name))
        return targets

    def _elsewhere(self) -> CatalogElsewhere:
        """Asked before there are targets, which use the same."""
        store = BlobStore(self._journal.directory, self._directory)
        self._copies = CatalogElsewhere(store, self._told_from_thread)
        return self._copies

    def _told_from_thread(self, sentence: str) -> None:
        self._loop.call_soon_threadsafe(self._watcher.told, sentence)

    async def _leave_targets(self) -> None:
        clear = self._error is None
        await asyncio.gather(*(runner.close(clear=clear) for runner in self._runners))
        if clear:
            await asyncio.get_running_loop().run_in_executor(None, self._register)

    def _heard(self, event: Event) -> None:
        super()._heard(event)
        if isinstance(event, TaskEnded) and event.outcome in COMMITS and event.key:
            self._made.append(event)

    @property
    def _made(self) -> list[TaskEnded]:
        """Results of this process, and of those before it."""
        if not hasattr(self, "_results"):
            self._results = list(self._past.committed.values())
        return self._results

    def _register(self) -> None:
        Replicas().add(_rows(self._run, self._directory, self._made))


def _rows(run: str, directory: Path, made: Iterable[TaskEnded]) -> Iterable[Replica]:
    for ended in made:
        for file in ended.outputs:
            path = directory / file.path
            if not file.directory and os.path.exists(path):
                yield Replica(
                    *(file.path, HERE, str(path), file.digest, file.size, file.executable),
                    *(ended.key, len(ended.outputs), ended.from_run or run, ended.task, ended.at),
                )


def capacity_of(entry: SiteEntry) -> Capacity:
    programs = transformation_catalog().read().values()
    has = [f"{PROGRAM_TAG}{one.name}" for one in programs if entry.name in one.calls]
    return Capacity(
        entry.processors,
        entry.memory_bytes or UNCOUNTED,
        UNCOUNTED,
        1 << 20,
        dict.fromkeys([*entry.tags, *has]),
    )


def for_sites(graph: Graph, entries: Iterable[SiteEntry]) -> Graph:
    """The graph as it is run at sites: a task needs the programs that it calls and that the catalog
    knows. Raises UserError for what no site can run."""
    programs = transformation_catalog().read()
    offers = [(entry.name, Ledger(capacity_of(entry))) for entry in entries]
    tasks = []
    for task in graph.tasks:
        if isinstance(task.action, Call):
            raise UserError(f"{task.name} is a Python call, and sites take commands only")
        if task.in_place:
            raise UserError(
                f"{task.name} uses {task.in_place[0]} in place, and files in place do not travel; "
                "take it out of 'in_place:'"
            )
        needs = _with_programs(task, programs)
        if not any(ledger.fits(needs) for _, ledger in offers):
            names = ", ".join(name for name, _ in offers)
            lacks = [tag.removeprefix(PROGRAM_TAG) for tag, _ in needs.tags]
            told = f" ({', '.join(lacks)} among them)" if lacks else ""
            raise UserError(f"none of the sites {names} has what {task.name} needs{told}")
        tasks.append(msgspec.structs.replace(task, needs=needs))
    return graph.with_tasks(tasks)


def _with_programs(task: Task, programs: Iterable[str]) -> Needs:
    if not isinstance(task.action, Command):
        return task.needs
    called = programs_of(task.action.run, programs)
    tags = tuple((f"{PROGRAM_TAG}{name}", 1) for name in called)
    return msgspec.structs.replace(task.needs, tags=(*task.needs.tags, *tags))
