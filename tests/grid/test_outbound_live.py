"""Real peers that nobody can dial: found out, listed, and given work like all others.

They listen on 127.0.0.1 and say 127.0.0.2, where nobody listens: as behind a firewall.
"""

from __future__ import annotations

import pytest
from grid_lab import GridLab
from surely import until

BEHIND = ("--advertise", "127.0.0.2", "--tag", "behind")
FLOW = """
name: behind
tasks:
  make:
    for: {i: [1, 2, 3, 4]}
    run: head -c 300000 big > part.{{i}}; echo {{i}} >> part.{{i}}
    inputs: [big]
    outputs: ["part.{{i}}"]
    needs: {tags: [behind]}
  join:
    run: cat part.1 part.2 part.3 part.4 > whole
    inputs: ["part.*"]
    outputs: [whole]
"""


@pytest.fixture(scope="module")
def lab(tmp_path_factory):
    with GridLab(tmp_path_factory.mktemp("behind")) as made:
        made.start(2)
        made.join("p2", *BEHIND).ready()
        made.join("p3", *BEHIND, "--outbound-only").ready()
        made.until_present({"p0", "p1", "p2", "p3"})
        yield made


def test_peers_says_how_each_is_reached_and_a_peer_is_told(lab):
    told = "others cannot dial this machine (Connection refused); it is reached through p"
    until(lambda: told in lab.peers["p2"].log, "p2 to be told")

    def listed():
        said = lab.do("p0", "peers", "--json")
        assert said.code == 0, said
        return {one["peer"]: one for one in said.json["peers"]}

    def all_told():
        found = listed()
        return found if all(found[name]["relays"] for name in ("p2", "p3")) else None

    found = until(all_told, "the relays to be known")
    assert {found[name]["reached"] for name in ("p0", "p1")} == {"direct"}
    assert set(found["p2"]["relays"]) <= {"p0", "p1"}
    assert {one["state"] for one in found.values()} == {"alive"}
    assert found["p2"]["reached"] in ("through", "direct"), "a command can be dialled itself"
    text = lab.do("p0", "peers").out
    assert "REACHED" in text and "direct" in text


def test_a_workflow_runs_on_peers_that_nobody_can_dial(lab, tmp_path):
    (tmp_path / "flow.yaml").write_text(FLOW)
    (tmp_path / "big").write_bytes(b"0123456789" * 40_000)
    said = lab.do("p1", "run", "flow.yaml", "--grid", "lab", "--json", where=tmp_path)
    assert said.code == 0, said
    whole = (tmp_path / "whole").read_bytes()
    part = b"0123456789" * 30_000
    assert whole == b"".join(part + f"{i}\n".encode() for i in range(1, 5))


def test_an_interface_that_is_not_there_is_named_with_those_that_are(lab):
    said = lab.do("p0", "peer", "--interface", "nosuch0")
    assert said.code == 2 and "--interface nosuch0: no interface" in said.err and "lo" in said.err
    said = lab.do("p0", "peer", "--interface", "lo", "--listen", "127.0.0.1:0")
    assert said.code == 2 and "without --listen" in said.err
