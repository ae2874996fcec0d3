"""A real peer with the role `run` that lies about the runs it keeps: nobody runs what it made up.

The peer is ours; between two of its lives somebody has changed the copies in its home.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import msgspec
import pytest
from grid_lab import GRID, GridLab
from raw_copies import voters_in
from surely import started, until

from sureline.compose.run_copies import SEAL, KeptJournals
from sureline.journal.events import Submitted, TaskEnded, encode
from sureline.run.kept import Sealed, Term
from sureline.workflow.model import Command, Graph, Task
from sureline.world.address import Node, PeerName
from sureline.world.identity.credentials import Credentials
from sureline.world.identity.home import GridHome
from sureline.world.identity.run_keys import CertifiedHome, Ed25519Key
from sureline.world.identity.signing import (
    Mandate,
    RunSigner,
    SignedPaper,
    chain_start,
    charter,
    fold,
)

pytestmark = pytest.mark.soak
"""Five processes for most of a minute; the same attacks, agent by agent, are in
test_hostile_keepers."""

FLOW = """\
name: honest
tasks:
  first: {run: echo true > first.txt, outputs: [first.txt]}
  second: {run: 'until [ -e GATE ]; do sleep 0.05; done; cat first.txt > second.txt',
           inputs: [first.txt], outputs: [second.txt]}
"""
EPOCH = 1 << 30


class Scene:
    """A run whose driver was killed, kept by p1 and p2, who are honest, and by eve."""

    def __init__(self, lab: GridLab, where: Path) -> None:
        self.lab, self.where = lab, where
        self.gate = where / "gate"
        (where / "flow.yaml").write_text(FLOW.replace("GATE", str(self.gate)))
        with started(where, "run", "flow.yaml", "--grid", GRID, env=lab.env("p0")) as run:
            until(lambda: all(self._has_result(name) for name in ("p1", "p2", "eve")), "copies")
            run.kill()
        self.gate.touch()
        (path,) = self._kept("eve").iterdir()
        self.run, self.true = path.name, where / "true"
        shutil.copytree(path, self.true)

    def _kept(self, name: str) -> Path:
        return self.lab.peers[name].root / "kept"

    def _has_result(self, name: str) -> bool:
        """And knows that the three are those who vote: an honest majority is left. While keepers
        come one by one, or seem away for a while, others are named."""
        files = list(self._kept(name).glob("*/events"))
        kept = files[0].read_bytes() if files else b""
        return b"task ended" in kept and voters_in(files[0]) == {"p1", "p2", "eve"}

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
        self.lab.until_present({"p0", "p1", "p2", "eve"})

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
        for name in ("p1", "p2", "eve"):
            lab.join(name, role="run").ready()
        lab.until_present({"p0", "p1", "p2", "eve"})
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
    lie = encode(TaskEnded(1.0, "second", "succeeded", 1, PeerName("eve"), reason="made up"))
    seal = msgspec.msgpack.encode([bytes(64), b""])
    events = (scene.true / "events").read_bytes()
    for position, body in (((1 << 32) + 1000, lie), (SEAL, seal)):
        events += position.to_bytes(8, "little") + len(body).to_bytes(4, "little") + body
    scene.forge(EPOCH, events=events)
    elsewhere = scene.resume("events")
    assert (elsewhere / "second.txt").read_text() == "true\n"


def test_a_run_of_which_only_lies_are_left_is_told_in_one_sentence(scene: Scene) -> None:
    """Eve signs all of it herself, as a submitter would; and the honest keeper is gone."""
    tasks = [Task("first", Command("echo evil > first.txt"), outputs=("first.txt",))]
    graph = Graph("honest", tasks).to_bytes()
    first = encode(Submitted(1.0, scene.run, "honest", 1, options={"grid": GRID}))
    home = GridHome.open(GRID, scene.lab.home("eve"))
    by, key = CertifiedHome(Credentials.load(home)), Ed25519Key()
    papers = charter(by, key, scene.run, graph, first, 1.0)
    body = msgspec.msgpack.encode(Mandate(scene.run, 7, key.public, 1.0))
    mandate = SignedPaper(body, by.sign(b"sureline run mandate 1\0" + body), by.certificate)
    papers = msgspec.structs.replace(papers, mandate=mandate)
    chain = fold(chain_start(papers), [(1, first)])
    seal = RunSigner(papers.encoded(), 7, key, None).seal(1, chain)  # type: ignore[arg-type]  # a liar has none
    scene.lab.peers["eve"].kill()
    path = scene.lab.peers["eve"].root / "kept"
    shutil.rmtree(path)
    kept = KeptJournals(path)
    kept.open(scene.run, Term(7, Node("eve"), papers.encoded()), 0, print)
    kept.keep_graph(scene.run, graph, print)
    kept.add(scene.run, [(1, first)], Sealed(chain, seal, papers.encoded()), print)
    scene.lab.serve("eve").ready()
    for honest in ("p1", "p2"):
        scene.lab.peers[honest].kill()
    elsewhere = scene.where / "lies"
    elsewhere.mkdir()

    def told() -> str:
        said = scene.lab.do("p0", "resume", scene.run, "--grid", GRID, where=elsewhere)
        assert said.code != 0 and not (elsewhere / "first.txt").exists()
        return said.err if "eve may not submit runs" in said.err else ""

    scene.lab.until(told, "the lie to be found")
