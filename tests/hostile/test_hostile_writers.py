"""Who says to a machine that it writes a run, and does not: by role it may, by right it may not."""

from __future__ import annotations

from typing import Any

import pytest
from signed import ROLL, Chartered
from toy_grid import ToyGrid

from sureline.peer.capacity import Capacity
from sureline.peer.grid_agent import GridPeerAgent
from sureline.peer.jobs import CommandJob
from sureline.peer.messages import Attach, Attached, Bind, Fenced, Finished, Release, Withdraw
from sureline.peer.writers import QUIET_S
from sureline.workflow.model import Needs
from sureline.world.agent import Agent
from sureline.world.identity.signing import verify
from sureline.world.protocol import Message

RUN = "flow-abc123"
CHARTERED = Chartered(RUN, b"a graph", b"an event", by="w")


class Speaker(Agent):
    def __init__(self, grid: ToyGrid, node: str) -> None:
        super().__init__(f"{node}/run.{RUN}", grid.place(f"{node}/run.{RUN}"))
        grid.join(self)
        self.grid, self.node = grid, node
        self.heard: list[Any] = []

    def receive(self, sender: str, message: Message) -> None:
        self.heard.append(message)

    def of(self, kind: type) -> list[Any]:
        return [message for message in self.heard if isinstance(message, kind)]

    def say(self, message: Message, wait_s: float = 1.0) -> None:
        self.world.send("p/peer", message)
        wait(self.grid, wait_s)

    def attach(self, epoch: int, papers: bytes) -> bool:
        """Whether it is believed."""
        before = len(self.of(Attached))
        self.say(Attach(RUN, epoch, 1, papers))
        return len(self.of(Attached)) > before

    def works(self, task: str, epoch: int = 1) -> bool:
        """Whether a task that it binds there is done."""
        job = CommandJob(f"{task}.1", task, 1, task, (), (f"{task}.out",))
        self.say(Bind(RUN, task, 1, job, Needs(), epoch=epoch, warrant=b"w" * 16), 3.0)
        return any(report.task == task for report in self.of(Finished))


def wait(grid: ToyGrid, seconds: float) -> None:
    over: list[int] = []
    grid.after(seconds, lambda: over.append(1))
    grid.run(lambda: bool(over), grid.time + seconds + 1.0)


@pytest.fixture
def grid() -> ToyGrid:
    grid = ToyGrid()

    def start() -> None:
        agent = GridPeerAgent(
            "p/peer",
            grid.place("p/peer"),
            Capacity(cores=1, memory_bytes=100),
            check=lambda run, epoch, papers: verify(papers, run, epoch, ROLL, 0.0),
        )
        grid.join(agent)
        agent.start()

    grid.boot("p", start)
    return grid


def papers(who: str, epoch: int, of: Chartered = CHARTERED) -> bytes:
    return of.begin(who, epoch).papers


def test_without_papers_nobody_writes_a_run(grid: ToyGrid) -> None:
    """Anybody with the role submit could say so, learn the warrants of its tasks and stop them."""
    writer, grabber = Speaker(grid, "w"), Speaker(grid, "grabber")
    assert not writer.attach(1, b"") and not writer.attach(2, papers("w", 1))
    assert writer.attach(1, papers("w", 1)) and writer.attach(1, b""), "they are shown once"
    assert not grabber.attach(9, b"") and not grabber.attach(9, papers("w", 9))
    assert not grabber.attach(1, b"") and not grabber.attach(1, papers("grabber", 1)), (
        "that epoch is another's"
    )
    assert writer.works("t") and not grabber.works("u") and not grabber.heard


def test_who_may_drive_does_not_turn_a_machine_from_a_writer_that_is_heard(grid: ToyGrid) -> None:
    writer, grabber = Speaker(grid, "w"), Speaker(grid, "grabber")
    assert writer.attach(1, papers("w", 1))
    for number in range(4):
        assert not grabber.attach(1000 + number, papers("grabber", 1000 + number))
        wait(grid, QUIET_S - 10.0)
        assert writer.works(f"t{number}") and not writer.of(Fenced)
    wait(grid, QUIET_S)
    assert grabber.attach(2000, papers("grabber", 2000)), (
        "a run is gone on with once its writer is silent"
    )
    assert not writer.attach(1, b"") and writer.of(Fenced)
    assert writer.attach(2001, papers("w", 2001)), "who submitted it waits for nobody"


def test_another_run_of_the_same_name_is_not_that_run(grid: ToyGrid) -> None:
    writer, grabber = Speaker(grid, "w"), Speaker(grid, "grabber")
    assert writer.attach(1, papers("w", 1))
    wait(grid, 10 * QUIET_S)
    mine = Chartered(RUN, b"an evil graph", b"an event", by="grabber")
    assert not grabber.attach(7, papers("grabber", 7, mine))
    assert writer.works("t")


def test_nobody_else_stops_what_a_writer_has_bound(grid: ToyGrid) -> None:
    writer, grabber = Speaker(grid, "w"), Speaker(grid, "grabber")
    grid.duration = lambda job: 2.0
    assert writer.attach(1, papers("w", 1))
    writer.world.send("p/peer", _bind("t"))
    grabber.say(Withdraw(RUN, "t", 1, force=True, epoch=1), 0.5)
    grabber.say(Release(RUN, 1, over=True), 0.5)
    wait(grid, 3.0)
    assert [report.ended.outcome for report in writer.of(Finished)][:1] == ["succeeded"]


def _bind(task: str) -> Bind:
    job = CommandJob(f"{task}.1", task, 1, task, (), (f"{task}.out",))
    return Bind(RUN, task, 1, job, Needs(), epoch=1, warrant=b"w" * 16)
