"""`sureline history`: what forecasts rest on."""

from __future__ import annotations

from pathlib import Path

from surely import sureline

FLOW = """
name: flow
tasks:
  quick_0: {run: "true"}
  quick_1: {run: "true"}
  slow: {run: "sleep 0.2"}
"""


def test_history_grows_with_every_run(tmp_path: Path) -> None:
    nothing = sureline(tmp_path, "history")
    assert nothing.code == 0 and "nothing is remembered here yet" in nothing.out
    assert sureline(tmp_path, "history", "--json").json == {"kinds": []}
    (tmp_path / "flow.yaml").write_text(FLOW)
    for _ in range(2):
        assert sureline(tmp_path, "run", "flow.yaml", "--fresh", "--progress", "none").code == 0
    kinds = {one["kind"]: one for one in sureline(tmp_path, "history", "--json").json["kinds"]}
    assert {kind: (one["n"], one["runs"]) for kind, one in kinds.items()} == {
        "quick": (4, 2),
        "slow": (2, 2),
    }
    assert kinds["slow"]["median_s"] >= 0.2
    assert kinds["slow"]["p10_s"] <= kinds["slow"]["median_s"] <= kinds["slow"]["p90_s"]
    told = sureline(tmp_path, "history").out.splitlines()
    assert told[0].split() == ["kind", "n", "runs", "median", "spread", "drift", "newest"]
    assert [line.split()[:3] for line in told[1:]] == [["quick", "4", "2"], ["slow", "2", "2"]]


def test_one_kind_is_told_run_by_run(tmp_path: Path) -> None:
    (tmp_path / "flow.yaml").write_text(FLOW)
    run = sureline(tmp_path, "run", "flow.yaml", "--json").json["run"]
    found = sureline(tmp_path, "history", "quick", "--json").json
    assert [one["kind"] for one in found["kinds"]] == ["quick"]
    assert [one["run"] for one in found["observed"]] == [run, run]
    assert all(one["peer"] and one["elapsed_s"] > 0 for one in found["observed"])
    assert run in sureline(tmp_path, "history", "quick").out
    unknown = sureline(tmp_path, "history", "nobody")
    assert unknown.code == 2
    assert "'nobody'" in unknown.err and "quick and slow" in unknown.err
