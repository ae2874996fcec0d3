"""What a machine remembers of the writers of runs: how new, and where.

One value on disk holds all of it. It is bounded: of more than RUNS_MAX runs, the one heard of
longest ago is forgotten. `session` counts how often this machine's agent was started.
"""

from __future__ import annotations

import msgspec

from sureline.world.protocol import Action, AgentId, World

RUNS_MAX = 1000
LISTENING_MAX = 100
"""Writers that hear of a restart."""


class Writer(msgspec.Struct):
    epoch: int
    address: AgentId
    over: bool = False


class _Kept(msgspec.Struct):
    session: int = 0
    runs: dict[str, Writer] = {}


_decode = msgspec.msgpack.Decoder(_Kept).decode
_PLACE = "writers"


class Writers:
    def __init__(self, world: World) -> None:
        self._world = world
        self._kept = _Kept()

    def load(self) -> None:
        """Read what earlier processes knew, and count this one."""
        data = self._world.get(_PLACE)
        if data:
            self._kept = _decode(data)
        self._kept.session += 1
        self._put()

    @property
    def session(self) -> int:
        return self._kept.session

    def epoch(self, run: str) -> int:
        """The highest seen; 0 for an unknown run."""
        known = self._kept.runs.get(run)
        return 0 if known is None else known.epoch

    def is_known(self, run: str) -> bool:
        return run in self._kept.runs

    def address(self, run: str) -> AgentId | None:
        known = self._kept.runs.get(run)
        return None if known is None or known.over else known.address

    def is_over(self, run: str) -> bool:
        known = self._kept.runs.get(run)
        return known is not None and known.over

    def listening(self) -> list[tuple[str, AgentId]]:
        """(run, its writer), those heard of last at the end."""
        found = [(run, known.address) for run, known in self._kept.runs.items() if not known.over]
        return found[-LISTENING_MAX:]

    def attach(self, run: str, epoch: int, address: AgentId, then: Action) -> None:
        """This is its writer now; `then` runs when that would survive a crash."""
        runs = self._kept.runs
        known = runs.pop(run, None)
        now = runs[run] = Writer(epoch, address)
        if known == now:
            then()
            return
        while len(runs) > RUNS_MAX:
            del runs[next(iter(runs))]
        self._put()
        self._world.sync(then)

    def over(self, run: str) -> None:
        """Its writer needs nothing any more; older ones stay fenced."""
        self._kept.runs[run].over = True
        self._put()

    def _put(self) -> None:
        self._world.put(_PLACE, msgspec.msgpack.encode(self._kept))
