"""Real peers that nobody can dial: found out, listed, and given work like all others.

They listen on 127.0.0.1 and say 127.0.0.2, where nobody listens: as behind a firewall.
"""

from __future__ import annotations

import json
import os
import time

import pytest
from grid_lab import GridLab, events_of
from surely import until

from sureline.journal.events import TaskEnded

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


HIDDEN = int(os.environ.get("SURELINE_HIDDEN", "40"))
MANY = f"""
name: many
tasks:
  work:
    for: {{i: 1..{2 * HIDDEN}}}
    run: sleep 3; echo {{{{i}}}} > out.{{{{i}}}}
    outputs: ["out.{{{{i}}}}"]
    needs: {{tags: [behind]}}
"""


@pytest.mark.soak
def test_many_that_nobody_can_dial_converge_and_get_tasks(tmp_path):
    """All are known to all, as seen by three of them, each has relays, and each gets a task."""
    began_at = time.monotonic()
    (tmp_path / "lab").mkdir()
    with GridLab(tmp_path / "lab") as lab:
        lab.start(3, "--slots=0")
        hidden = [lab.join(f"h{n}", *BEHIND) for n in range(HIDDEN)]
        for one in hidden:
            one.ready()
        ready_at = time.monotonic()
        names = set(lab.peers)
        for asked in ("p0", "h0", f"h{HIDDEN - 1}"):
            lab.until_present(names, asked)

        def all_have_relays() -> bool:
            found = lab.present()
            return set(found) == names and all(found[one.name]["relays"] for one in hidden)

        lab.until(all_have_relays, "relays of all")
        known_at = time.monotonic()
        cpu_s = {name: _cpu_s(peer.process.pid) for name, peer in lab.peers.items()}
        work = tmp_path / "work"
        work.mkdir()
        (work / "flow.yaml").write_text(MANY)
        said = lab.do("h1", "run", "flow.yaml", "--grid", "lab", "--json", where=work)
        assert said.code == 0, said
        ended = [e for e in events_of(work) if isinstance(e, TaskEnded)]
        figures = {
            "hidden": HIDDEN,
            "all_ready_after_s": round(ready_at - began_at, 1),
            "all_known_after_s": round(known_at - began_at, 1),
            "run_s": round(time.monotonic() - known_at, 1),
            "cpu_of_a_hidden_one_s": round(sum(cpu_s[h.name] for h in hidden) / HIDDEN, 2),
            "cpu_of_a_relay_s": round(sum(cpu_s[f"p{n}"] for n in range(3)) / 3, 2),
            "got_tasks": len({event.peer for event in ended}),
            "not_succeeded": [e.outcome for e in ended if e.outcome != "succeeded"],
        }
        print(json.dumps(figures, indent=1))
        assert {event.peer for event in ended if event.outcome == "succeeded"} == {
            one.name for one in hidden
        }
        for i in range(1, 2 * HIDDEN + 1):
            assert (work / f"out.{i}").read_text() == f"{i}\n"


def _cpu_s(pid: int) -> float:
    with open(f"/proc/{pid}/stat") as file:
        fields = file.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
