"""A user's firewall, as network namespaces: a cluster and a laptop that can only dial out, and a
machine of a lab that can be dialled. Real packets, dropped by a real filter."""

from __future__ import annotations

import pytest
import sites_lab
from surely import until

from sureline.journal.events import TaskEnded, TaskStarted
from sureline.journal.store import Journal

WHY_NOT = sites_lab.why_not()
pytestmark = pytest.mark.skipif(bool(WHY_NOT), reason=WHY_NOT or "it can be tried")

FLOW = """
name: across
tasks:
  count:
    for: {i: [1, 2, 3]}
    run: wc -c < text > count.{{i}}
    inputs: [text]
    outputs: ["count.{{i}}"]
"""


def test_a_laptop_drives_a_run_on_a_cluster_and_neither_can_be_dialled(tmp_path):
    with sites_lab.Sites(tmp_path) as sites:
        assert sites.do("lab1", "grid", "new", "lab", "--peer", "lab1").code == 0
        told = sites.serve("lab1", "--grid", "lab", "--interface", "eth0")
        assert told["node"] == "lab1@10.81.1.2:7733" and told["relays"] == []
        told = sites.join("node1", "--slots", "1")
        assert told["relays"] == ["lab1"], sites.log("node1")
        cannot = "others cannot dial this machine (no answer in time); it is reached through lab1"
        until(lambda: cannot in sites.log("node1"), "node1 to be told")
        told = sites.join("laptop", "--slots", "0", "--outbound-only")
        assert told["relays"] == ["lab1"]

        def listed():
            found = sites.peers("laptop")
            return found if set(found) == {"lab1", "node1", "laptop"} else None

        found = until(listed, "all to be known")
        assert {one["state"] for one in found.values()} == {"alive"}
        assert found["lab1"]["reached"] == "direct"
        assert (found["node1"]["reached"], found["node1"]["through"]) == ("through", "lab1")

        work = tmp_path / "work"
        work.mkdir()
        (work / "flow.yaml").write_text(FLOW)
        (work / "text").write_bytes(b"x" * 2_000_000)
        said = sites.do("laptop", "run", "flow.yaml", "--grid", "lab", where=work)
        assert said.code == 0, said
        assert [(work / f"count.{i}").read_text() for i in (1, 2, 3)] == ["2000000\n"] * 3
        with Journal.open(work / ".sureline", create=False, read_only=True) as journal:
            (run,) = journal.runs()
            events = [entry.event for entry in journal.events(run.run)]
        assert {event.peer for event in events if isinstance(event, TaskStarted)} == {"node1"}
        assert [e.outcome for e in events if isinstance(e, TaskEnded)] == ["succeeded"] * 3


SLOW = """
name: slow
tasks:
  wait:
    for: {i: 1..20}
    run: sleep 2; echo {{i}} > done.{{i}}
    outputs: ["done.{{i}}"]
"""


@pytest.mark.soak
@pytest.mark.limit_s(300)
def test_a_driver_and_a_peer_that_are_cut_from_each_other_go_on_through_a_third(tmp_path):
    """Packets between these two vanish in the middle of a run, and between nobody else: what was
    open dies in silence, and the way round is found before the peer counts as out of reach."""
    with sites_lab.Sites(tmp_path) as sites:
        assert sites.do("lab1", "grid", "new", "lab", "--peer", "lab1").code == 0
        sites.serve("lab1", "--grid", "lab", "--slots", "0")
        sites.join("lab2", "--slots", "1")
        sites.join("laptop", "--slots", "0")
        work = tmp_path / "work"
        work.mkdir()
        (work / "flow.yaml").write_text(SLOW)
        with sites.doing("laptop", "run", "flow.yaml", "--grid", "lab", where=work) as driver:
            until((work / "done.2").exists, "the first results")
            sites.net("part", "laptop", "lab2")
            assert driver.wait(200) == 0, (work / "driver.err").read_text()
        with Journal.open(work / ".sureline", create=False, read_only=True) as journal:
            (run,) = journal.runs()
            events = [entry.event for entry in journal.events(run.run)]
        ended = [event for event in events if isinstance(event, TaskEnded)]
        assert [event.outcome for event in ended] == ["succeeded"] * 20, "nothing was lost by it"
        assert sites.peers("laptop")["lab2"]["through"] == "lab1"
