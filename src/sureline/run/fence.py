"""A world that can be shut: afterwards nothing goes out through it, and nothing comes back in.

A writer that learns that another has taken its run over must not write a single event more,
whatever is still under way: fetches, timers, publications. All parts of a submitter act through
one fence, so shutting it stops them all.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

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


class _NoTimer:
    def cancel(self) -> None: ...


class Fence:
    """See `protocol.World` for the contract while it is open."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.random = world.random
        self.is_shut = False

    def shut(self) -> None:
        self.is_shut = True

    def now(self) -> float:
        return self._world.now()

    def elapsed(self) -> float:
        return self._world.elapsed()

    def send(self, to: AgentId, message: Message) -> None:
        if not self.is_shut:
            self._world.send(to, message)

    def after(self, seconds: float, action: Action) -> Timer:
        if self.is_shut:
            return _NoTimer()
        return self._world.after(seconds, lambda: None if self.is_shut else action())

    def start(
        self, job: Job, on_event: Callable[[JobEvent], None], *, after: JobHandle | None = None
    ) -> JobHandle:
        if self.is_shut:
            return _NoTimer()
        return self._world.start(
            job, lambda event: None if self.is_shut else on_event(event), after=after
        )

    def stop(self, handle: JobHandle, *, force: bool = False) -> None:
        if not isinstance(handle, _NoTimer):
            self._world.stop(handle, force=force)

    def fetch(
        self, wanted: Wanted, sources: Sequence[AgentId], on_done: Callable[[Fetched], None]
    ) -> None:
        if not self.is_shut:
            self._world.fetch(
                wanted, sources, lambda found: None if self.is_shut else on_done(found)
            )

    def record(self, event: Recordable) -> None:
        if not self.is_shut:
            self._world.record(event)

    def flush(self) -> None:
        if not self.is_shut:
            self._world.flush()

    def sync(self, on_durable: Action) -> None:
        if not self.is_shut:
            self._world.sync(lambda: None if self.is_shut else on_durable())

    def put(self, key: str, value: bytes) -> None:
        if not self.is_shut:
            self._world.put(key, value)

    def get(self, key: str) -> bytes | None:
        return self._world.get(key)

    def busy(self, seconds: float) -> None:
        self._world.busy(seconds)
