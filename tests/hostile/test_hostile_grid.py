"""Hostile tasks on real peers: what `sureline peer` does by default."""

from __future__ import annotations

from pathlib import Path

import pytest
from grid_lab import GRID, GridLab, Peer
from surely import started, sureline, until

from sureline.peer.confine import choosing

pytestmark = pytest.mark.skipif(
    choosing.choose(network=False).kind == "none", reason="this machine has no sandbox"
)

FLOW = """\
name: spy
tasks:
  honest: {run: wc -c < in.txt > out.txt, inputs: [in.txt], outputs: [out.txt]}
  spy:
    run: |
      cat HOME/grids/lab/peer.pem && exit 1
      find HOME -name '*.pem' -o -name '*.key' 2>/dev/null | grep . && exit 1
      env | grep -i secret && exit 1
      kill -9 $PPID && exit 1
      echo nothing
"""


class Lab(GridLab):
    def serve(self, name: str, *arguments: str) -> Peer:
        """As a user would start it: nothing is shared."""
        peer = self.peers[name] = Peer(self, name, list(arguments))
        return peer


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory):
    with Lab(tmp_path_factory.mktemp("lab")) as made:
        assert made.do("p0", "grid", "new", GRID, "--peer", "p0").code == 0
        authority = made.serve("p0").ready()
        assert authority["slots"] == 0, "the authority's home runs no tasks unless told"
        made.join("p1", "--slots=2", "--cache", "1MB").ready()
        made.until_present({"p0", "p1"})
        yield made


def test_a_spy_finds_nothing_and_the_honest_notice_nothing(lab: Lab, tmp_path: Path) -> None:
    (tmp_path / "in.txt").write_text("12345")
    (tmp_path / "spy.yaml").write_text(FLOW.replace("HOME", str(lab.home("p1"))))
    said = sureline(tmp_path, "run", "spy.yaml", "--grid", GRID, env=lab.env("p0"))
    assert said.code == 0, (said, lab.peers["p1"].log)
    assert (tmp_path / "out.txt").read_text().strip() == "5"


def test_an_input_larger_than_the_cache_is_told_with_its_reason(lab: Lab, tmp_path: Path) -> None:
    (tmp_path / "in.txt").write_bytes(bytes(3_000_000))
    (tmp_path / "big.yaml").write_text(FLOW.partition("  spy:")[0])
    with started(tmp_path, "run", "big.yaml", "--grid", GRID, env=lab.env("p0")):
        until(lambda: "do not fit into the cache" in _story(tmp_path), "the reason", every_s=0.3)


def _story(where: Path) -> str:
    return sureline(where, "story", "last", "honest").out
