"""Random graphs and random faults for a run over a toy grid; all of it follows from a seed."""

from __future__ import annotations

from random import Random

from grid_scenario import DETECT_S, HOME, GridRun
from toy_grid import ToyGrid

from sureline.peer.grid_agent import GridPeerAgent
from sureline.peer.jobs import CommandJob
from sureline.run.options import Options
from sureline.workflow.model import Command, Graph, Needs, Task


def random_graph(random: Random) -> Graph:
    tasks = []
    for i in range(random.randint(4, 18)):
        parents = random.sample(range(i), min(i, random.randint(0, 3)))
        inputs = [f"f{p}" for p in sorted(parents)]
        if not inputs or random.random() < 0.3:
            inputs.append(f"user{random.randint(0, 2)}")
        outputs = (f"f{i}", f"g{i}") if random.random() < 0.2 else (f"f{i}",)
        tasks.append(
            Task(
                f"t{i}",
                Command(f"make {i}"),
                inputs=tuple(inputs),
                outputs=outputs,
                needs=Needs(cores=random.choice([1, 1, 2])),
                retries=1,
            )
        )
    return Graph("random", tasks)


class Faults:
    """Peers crash (some for good, some with their disk), freeze and come back; the engine is
    killed and resumed; messages are lost, repeated and late. One peer is spared, so that the run
    can end."""

    def __init__(self, seed: int, bad: type[GridPeerAgent] | None = None) -> None:
        self.random = Random(seed)
        self.grid = ToyGrid(seed)
        graph, peers = random_graph(self.random), self.random.randint(2, 5)
        self.run = GridRun(self.grid, graph, peers, bad={"p1": bad} if bad else None)
        self._tried: set[str] = set()
        grid, random = self.grid, self.random
        grid.loss = random.choice([0.0, 0.02, 0.15])
        grid.repeat = random.choice([0.0, 0.05, 0.2])
        spread_s = random.choice([0.001, 0.05, 1.0])
        grid.delay_s = lambda: 0.001 + grid.random.random() * spread_s
        grid.duration = lambda job: grid.random.choice([0.1, 1.0, 5.0, 20.0])
        slow_s = random.choice([0.05, 2.0, 15.0])
        grid.transfer_s = lambda: grid.random.random() * slow_s
        grid.whims = random.random() < 0.3
        if random.random() < 0.3:
            self.run.options = Options(retry_delay_s=0.1)
            grid.fails = self._fails_once
        for _ in range(random.randint(0, 8)):
            grid.after(random.uniform(0.0, 60.0), self._fault)

    def _fails_once(self, job: CommandJob) -> bool:
        """Every third task fails the first time it runs."""
        first = job.task not in self._tried
        self._tried.add(job.task)
        return first and int(job.task[1:]) % 3 == 0

    def _fault(self) -> None:
        if self.run.ended is not None:
            return
        what = self.random.choice([self._crash, self._crash, self._freeze, self._kill_engine])
        what()

    def _crash(self) -> None:
        node = self.random.choice(self.run.peers[1:])
        if not self.grid.machine(node).up:
            return
        self.run.crash_peer(node, wipe=self.random.random() < 0.3)
        if self.random.random() < 0.7:
            again = self.random.choice([0.5, 3.0, 8.0, 40.0])
            self.grid.after(again, lambda: self.run.restart_peer(node))

    def _freeze(self) -> None:
        node = self.random.choice(self.run.peers[1:])
        m = self.grid.machine(node)
        if not m.up or m.frozen:
            return
        self.grid.freeze(node)
        life, away_s = m.life, self.random.choice([1.0, 4.0, 15.0, 60.0])
        if away_s > DETECT_S:
            self.grid.after(DETECT_S, lambda: self.run.left(node) if m.frozen else None)

        def thaw() -> None:
            if m.life == life:
                self.grid.thaw(node)
                self.run.joined(node)

        self.grid.after(away_s, thaw)

    def _kill_engine(self) -> None:
        if not self.grid.machine(HOME).up:
            return
        self.grid.crash(HOME, power=self.random.random() < 0.5)
        self.grid.after(self.random.choice([0.1, 2.0, 10.0]), self._resume)

    def _resume(self) -> None:
        if not self.grid.machine(HOME).up:
            self.run.submit()

    def drive(self) -> None:
        self.run.submit()
        self.run.drive()
        self.run.check()
