"""A real peer with the role `run` that lies about the runs it keeps: nobody runs what it made up.

The peer is ours; between two of its lives somebody has changed the copies in its home.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import msgspec
import pytest
from grid_lab import GRID, GridLab
from surely import started, until

from sureline.journal.events import TaskEnded, encode
from sureline.workflow.model import Command, Graph, Task

FLOW = """\
name: honest
tasks:
  first: {run: echo true > first.txt, outputs: [first.txt]}
  second: {run: 'until [ -e GATE ]; do sleep 0.05; done; cat first.txt > second.txt',
           inputs: [first.txt], outputs: [second.txt]}
"""
EPOCH = 1 << 30


class Scene:
    """A run whose driver was killed, kept by p1, who is honest, and by eve."""

    def __init__(self, lab: GridLab, where: Path) -> None:
        self.lab, self.where = lab, where
        self.gate = where / "gate"
        (where / "flow.yaml").write_text(FLOW.replace("GATE", str(self.gate)))
        with started(where, "run", "flow.yaml", "--grid", GRID, env=lab.env("p0")) as run:
            until(lambda: all(self._has_result(name) for name in ("p1", "eve")), "two copies")
            run.kill()
        self.gate.touch()
        (path,) = self._kept("eve").iterdir()
        self.run, self.true = path.name, where / "true"
        shutil.copytree(path, self.true)

    def _kept(self, name: str) -> Path:
        return self.lab.peers[name].root / "kept"

    def _has_result(self, name: str) -> bool:
        files = list(self._kept(name).glob("*/events"))
        return bool(files) and b"task ended" in files[0].read_bytes()

    def forge(self, epoch: int, graph: bytes | None = None, events: bytes | None = None) -> None:
        """Have eve keep something else; it is she who answers first, by her epoch."""
        self.lab.peers["eve"].kill()
        path = self._kept("eve") / self.run
        shutil.rmtree(path)
        shutil.copytree(self.true, path)
        term = msgspec.json.decode((path / "term").read_bytes())
        (path / "term").write_bytes(msgspec.json.encode({**term, "epoch": epoch}))
        if graph is not None:
            (path / "graph").write_bytes(graph)
        if events is not None:
            (path / "events").write_bytes(events)
        self.lab.serve("eve").ready()
        self.lab.until_present({"p0", "p1", "eve"})

    def resume(self, name: str) -> Path:
        elsewhere = self.where / name
        elsewhere.mkdir()
        said = self.lab.do("p0", "resume", self.run, "--grid", GRID, where=elsewhere)
        assert said.code == 0, said
        return elsewhere


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory):
    where = tmp_path_factory.mktemp("hostile")
    (where / "lab").mkdir()
    with GridLab(where / "lab") as lab:
        assert lab.do("p0", "grid", "new", GRID, "--peer", "p0").code == 0
        lab.serve("p0").ready()
        for name in ("p1", "eve"):
            lab.join(name, role="run").ready()
        lab.until_present({"p0", "p1", "eve"})
        yield Scene(lab, where)


def test_a_forged_graph_is_run_nowhere(scene: Scene) -> None:
    evil = scene.where / "evil"
    tasks = [
        Task("first", Command(f"touch {evil}; echo true > first.txt"), outputs=("first.txt",)),
        Task("second", Command(f"touch {evil} second.txt"), ("first.txt",), ("second.txt",)),
    ]
    scene.forge(EPOCH, Graph("honest", tasks).to_bytes())
    elsewhere = scene.resume("graph")
    assert (elsewhere / "second.txt").read_text() == "true\n"
    assert not evil.exists()


def test_forged_events_after_a_true_beginning_are_not_believed(scene: Scene) -> None:
    """A result that nobody made is not committed: the task runs."""
    lie = encode(TaskEnded(1.0, "second", "succeeded", 1, "eve", reason="made up"))
    events = (scene.true / "events").read_bytes()
    position = (2 << 32) + 1
    events += position.to_bytes(8, "little") + len(lie).to_bytes(4, "little") + lie
    scene.forge(EPOCH, events=events)
    elsewhere = scene.resume("events")
    assert (elsewhere / "second.txt").read_text() == "true\n"
