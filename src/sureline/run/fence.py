"""A world that can be shut: afterwards nothing goes out through it, and nothing comes back in.

A writer that learns that another has taken its run over must not write a single event more,
whatever is still under way: fetches, timers, publications. All parts of a writer, and its strategy,
act through fences with one gate, so shutting it stops them all.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from sureline.world.address import Node
from sureline.world.protocol import (
    Action,
    AgentId,
    Fetched,
    Job,
    JobEvent,
    JobHandle,
    Message,
    Recordable,
    Timer,
    Wanted,
    World,
)


class Gate:
    """What all parts of a writer pass. `committed` runs an action when all that is durable here is
    so elsewhere, too; `believes` tells whether a machine that says that the run was taken over by
    somebody of this epoch knows."""

    def __init__(self) -> None:
        self.is_shut = False
        self.committed: Callable[[Action], None] = lambda action: action()
        self.believes: Callable[[int], bool] = lambda number: True

    def shut(self) -> None:
        self.is_shut = True


class _NoTimer:
    def cancel(self) -> None: ...


class Fence:
    """See `protocol.World` for the contract while the gate is open."""

    def __init__(self, world: World, gate: Gate) -> None:
        self._world = world
        self._gate = gate
        self.random = world.random
        self.now = world.now
        self.get = world.get
        self.busy = world.busy

    def elapsed(self) -> float:
        return self._world.elapsed()

    def awake(self) -> float:
        return self._world.awake()

    def send(self, to: AgentId, message: Message) -> None:
        if not self._gate.is_shut:
            self._world.send(to, message)

    def after(self, seconds: float, action: Action) -> Timer:
        if self._gate.is_shut:
            return _NoTimer()
        return self._world.after(seconds, lambda: None if self._gate.is_shut else action())

    def start(
        self, job: Job, on_event: Callable[[JobEvent], None], *, after: JobHandle | None = None
    ) -> JobHandle:
        if self._gate.is_shut:
            return _NoTimer()
        return self._world.start(
            job, lambda event: None if self._gate.is_shut else on_event(event), after=after
        )

    def stop(self, handle: JobHandle, *, force: bool = False) -> None:
        if not isinstance(handle, _NoTimer):
            self._world.stop(handle, force=force)

    def fetch(
        self, wanted: Wanted, sources: Sequence[Node], on_done: Callable[[Fetched], None]
    ) -> None:
        if not self._gate.is_shut:
            self._world.fetch(
                wanted, sources, lambda found: None if self._gate.is_shut else on_done(found)
            )

    def record(self, event: Recordable) -> None:
        if not self._gate.is_shut:
            self._world.record(event)

    def flush(self) -> None:
        if not self._gate.is_shut:
            self._world.flush()

    def sync(self, on_durable: Action) -> None:
        def then() -> None:
            if not self._gate.is_shut:
                on_durable()

        if not self._gate.is_shut:
            self._world.sync(lambda: self._gate.committed(then))

    def put(self, key: str, value: bytes) -> None:
        if not self._gate.is_shut:
            self._world.put(key, value)
