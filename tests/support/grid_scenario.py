"""A run over a toy grid: peers, a engine that can be killed and resumed, and what must hold."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from toy_grid import ToyGrid, digest_of, made

from sureline.journal.events import (
    COMMITS,
    Event,
    Opened,
    RunEnded,
    TaskBound,
    TaskEnded,
    TaskRevoked,
    TaskStarted,
)
from sureline.peer.capacity import Capacity
from sureline.peer.grid_agent import GridPeerAgent
from sureline.run.engine import Hearers, RunEngine
from sureline.run.options import Options, Past
from sureline.run.port import Deciding, Target
from sureline.run.standing import Strikes
from sureline.run.warrants import Given
from sureline.strategies.spread import Spread
from sureline.workflow.files import FileRecord
from sureline.workflow.model import Command, Graph
from sureline.world.address import at, name_of

HOME = "home"
RUN = "r1"
DETECT_S = 5.0


def past_of(events: Iterable[Event]) -> Past:
    committed: dict[str, TaskEnded] = {}
    attempts: dict[str, int] = {}
    seals: dict[Given, bytes] = {}
    for event in events:
        match event:
            case TaskRevoked(task=task):
                committed.pop(task, None)
            case TaskEnded() if event.outcome in COMMITS:
                assert event.task not in committed, f"{event.task} committed twice"
                committed[event.task] = event
            case TaskBound() | TaskStarted():
                attempts[event.task] = max(attempts.get(event.task, 0), event.attempt)
                if isinstance(event, TaskBound):
                    seals[event.task, event.attempt, event.peer] = event.seal
    return Past(committed, attempts, seals=seals)


class GridRun:
    """`peers` machines with `cores` each; the writer lives on HOME."""

    def __init__(
        self,
        grid: ToyGrid,
        graph: Graph,
        peers: int = 3,
        cores: float = 2,
        options=None,
        bad: dict[str, type[GridPeerAgent]] | None = None,
    ) -> None:
        self.grid = grid
        self.graph = graph
        self.capacity = Capacity(cores=cores, memory_bytes=1000)
        self.options = options or Options(retry_delay_s=0.1)
        self.peers = [f"p{i}" for i in range(peers)]
        self.bad = bad or {}
        """Peers that are not what they should be."""
        self.told: list[str] = []
        self.remembered: dict[str, Strikes] = {}
        self.here: dict[str, None] = dict.fromkeys(self.peers)
        """The peers that membership believes to be there."""
        self.epoch = 0
        self.deciding: Callable[[], Deciding] = lambda: Spread(RUN)
        self.home = HOME
        """The machine of the newest writer."""
        self.ended: RunEnded | None = None
        self.fenced: list[str] = []
        self.engine: RunEngine | None = None
        for node in self.peers:
            grid.boot(node, lambda node=node: self._boot_peer(node))

    def _boot_peer(self, node: str) -> None:
        me = at(node, "peer")
        make = self.bad.get(node, GridPeerAgent)
        agent = make(me, self.grid.place(me), self._capacity(node))
        self.grid.join(agent)
        agent.start()

    def _capacity(self, node: str) -> Capacity:
        """Who is up to no good says that it has room for everything."""
        return Capacity(cores=1000, memory_bytes=1 << 40) if node in self.bad else self.capacity

    def submit(self) -> RunEngine:
        """Start, or resume, in a new epoch."""
        home = self.grid.machine(self.home)
        home.up = True
        self.epoch += 1
        me = at(self.home, f"run.{RUN}")
        world = self.grid.place(me)
        past = past_of(home.events)
        past.strikes = self.remembered
        world.record(Opened(self.grid.time, self.epoch, self.home, 1))
        world.flush()
        home.synced = home.flushed
        self.engine = RunEngine(
            me,
            world,
            RUN,
            self.graph,
            self.options,
            self.deciding(),
            Hearers(self._on_end, self.fenced.append, self.told.append),
            past=past,
            epoch=self.epoch,
        )
        self.grid.join(self.engine)
        self.engine.start([self._target(node) for node in self.here])
        return self.engine

    def _target(self, node: str) -> Target:
        return Target(name_of(node), at(node, "peer"), self._capacity(node))

    def take_over(self, node: str) -> RunEngine:
        """Another machine, with a copy of the journal and the user's files, becomes the writer;
        the earlier one knows nothing of that."""
        old, new = self.grid.machine(self.home), self.grid.machine(node)
        new.events = list(old.events[: old.flushed])
        new.flushed = new.synced = len(new.events)
        self.home = node
        return self.submit()

    def _on_end(self, ended: RunEnded) -> None:
        self.ended = ended

    def drive(self, limit_s: float = 20_000.0) -> RunEnded:
        self.grid.run(lambda: self.ended is not None, self.grid.time + limit_s)
        assert self.ended is not None
        return self.ended

    # -- what membership tells -----------------------------------------------------------------

    def left(self, node: str, reason: str = "no answer") -> None:
        if node in self.here:
            del self.here[node]
            if self.engine is not None and self.grid.machine(self.home).up:
                self.engine.target_left(node, reason)

    def joined(self, node: str) -> None:
        if node not in self.here:
            self.here[node] = None
            if self.engine is not None and self.grid.machine(self.home).up:
                self.engine.target_joined(self._target(node))

    def crash_peer(self, node: str, *, wipe: bool = False, detect_s: float = DETECT_S) -> None:
        """`wipe`: its disk is lost too."""
        self.grid.crash(node)
        m = self.grid.machine(node)
        if wipe:
            m.files.clear()
            m.puts, m.synced_puts = {}, {}
        life = m.life
        self.grid.after(detect_s, lambda: self.left(node) if m.life == life and not m.up else None)

    def restart_peer(self, node: str) -> None:
        self.grid.restart(node)
        self.grid.after(0.5, lambda: self.joined(node) if self.grid.machine(node).up else None)

    # -- what must hold ------------------------------------------------------------------------

    @property
    def events(self) -> list[Event]:
        return self.grid.machine(self.home).events

    def of(self, kind: type) -> list[Event]:
        return [event for event in self.events if isinstance(event, kind)]

    def expected(self) -> dict[str, str]:
        """The digest of every output, by the chain of what it was made of."""
        found: dict[str, str] = {}
        for task in self.graph.tasks:
            assert isinstance(task.action, Command)
            inputs = [
                FileRecord(path, found.get(path) or digest_of("user", path), 10)
                for path in task.inputs
            ]
            for path in task.outputs:
                found[path] = made(task.action.run, path, inputs)
        return found

    def check(self) -> None:
        """Every task has one result, every output is right and in the user's directory."""
        assert self.ended is not None and self.ended.state == "succeeded", self.ended
        committed = past_of(self.events).committed
        assert set(committed) == {task.name for task in self.graph.tasks}
        published = self.grid.machine(self.home).published
        assert published == {r.path: r.digest for e in committed.values() for r in e.outputs}
        for ended in committed.values():
            read = {record.path: record.digest for record in ended.inputs}
            for record in ended.outputs:
                assert self.grid.made_of[record.digest] == read
        if not self.grid.whims:
            self._check_content(committed)
        assert self.events[-1] == self.ended

    def _check_content(self, committed: dict[str, TaskEnded]) -> None:
        expected = self.expected()
        for ended in committed.values():
            wanted = self.graph.tasks[self.graph.index[ended.task]].outputs
            assert {r.path: r.digest for r in ended.outputs} == {p: expected[p] for p in wanted}
