"""The report as text, and the commands that draw."""

from __future__ import annotations

import json
import re
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from web_histories import graph_of, record_of, worked

from sureline.cli.main import run_command
from sureline.journal.events import RunEnded
from sureline.web import data
from sureline.web.report import embedded, report
from sureline.workflow.model import Graph

FLOW = """
name: words
tasks:
  split: {run: "echo x > a; echo y > b", outputs: [a, b]}
  count:
    for: {i: [a, b]}
    run: "cat {{i}} > {{i}}.n"
    inputs: ["{{i}}"]
    outputs: ["{{i}}.n"]
  total: {run: "cat a.n b.n > t", inputs: [a.n, b.n], outputs: [t]}
"""


def page_data(text: str) -> Any:
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', text, re.DOTALL)
    assert found
    return json.loads(found[1])


@given(st.text() | st.sampled_from(["</script>", "<!--<script>", "\u2028", "&lt;"]))
def test_no_text_can_leave_its_script_element(text: str) -> None:
    found = embedded({"a": [text]})
    assert not set(found) & set("<>&\u2028\u2029")
    assert json.loads(found) == {"a": [text]}


def test_the_report_names_no_outside_address() -> None:
    graph = graph_of([[], [0], [0, 1]])
    text = report(record_of(graph, worked(graph)))
    assert "://" not in text
    assert not re.search(r"<(link|img|iframe|script)\b[^>]*(src|href)=", text)
    assert "default-src 'none'" in text


def test_a_name_cannot_fill_a_place_of_the_page() -> None:
    graph = graph_of([[]], name="@@script@@ <b>")
    text = report(record_of(graph, worked(graph)))
    assert "@@script@@ &lt;b&gt;" in text
    assert text.count("'use strict'") == 1


def test_the_page_is_given_the_whole_story() -> None:
    graph = graph_of([[], [0]])
    found = page_data(report(record_of(graph, worked(graph, flaky={1}))))
    letters = ["".join(event[0] for event in events) for events in found["tasks"]["events"]]
    assert letters == ["rbse", "rbseybse"]
    assert found["tasks"]["wrote"] == {"1": [[1, "", "out of luck\n"]]}
    assert found["tasks"]["does"] == ["make 0", "make 1"]
    assert found["tasks"]["children"] == [[1, 1], [0]]
    assert found["bars"]["outcome"] == ["succeeded", "failed", "succeeded"]
    assert [step[0] for step in found["path"]] == [0, 1]
    assert found["run"]["state"] == "succeeded"


def test_a_failure_tells_how_many_tasks_it_keeps_from_running() -> None:
    graph = graph_of([[], [0], [0], [1, 2], []])
    events = worked(graph, flaky={0})
    failed = next(k for k, event in enumerate(events) if "'failed'" in repr(event))
    record = record_of(graph, [*events[: failed + 1], RunEnded(events[failed].at, "failed")])
    assert record.states[0] == "failed"
    assert page_data(report(record))["tasks"]["blocked"] == {"0": 3}


def test_texts_share_an_allowance_and_failures_come_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(data, "TEXTS_MAX", 40)
    graph: Graph = graph_of([[], [], []])
    events = worked(graph, flaky={2})
    upset = [e for e in events if getattr(e, "attempt", 1) == 1 or e.at < events[-1].at]
    record = record_of(
        graph, upset[: next(k for k, e in enumerate(upset) if "failed" in repr(e)) + 1]
    )
    record.states[2] = "failed"
    found = page_data(report(record))
    assert found["tasks"]["wrote"]["2"] == [[1, "", "out of luck\n"]]
    monkeypatch.setattr(data, "TEXTS_MAX", 3)
    found = page_data(report(record))
    assert found["tasks"]["wrote"]["2"] == [[1, None, None]]
    assert found["tasks"]["does"] == ["", "", ""]


@pytest.fixture
def ran(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "w.yaml").write_text(FLOW)
    assert run_command(["run", "w.yaml", "--json"]) == 0
    capsys.readouterr()
    return tmp_path


def test_graph_of_a_file_and_of_a_run(ran: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["graph", "w.yaml"]) == 0
    text = capsys.readouterr().out
    assert text.startswith('digraph "words" {')
    assert text.count("->") == 4
    assert run_command(["graph", "last", "--output", "w.svg"]) == 0
    assert ET.parse(ran / "w.svg").getroot().tag.endswith("svg")
    assert "succeeded" in (ran / "w.svg").read_text()
    capsys.readouterr()
    assert run_command(["graph", "last", "--by-kind", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [(b["label"], b["tasks"], b["states"]) for b in found["boxes"]] == [
        ("split", 1, {"succeeded": 1}),
        ("count \u00d7 2", 2, {"succeeded": 2}),
        ("total", 1, {"succeeded": 1}),
    ]
    assert run_command(["graph", "w.yaml", "--format", "svg", "--output", "-"]) == 0
    ET.fromstring(capsys.readouterr().out)


def test_report_writes_one_file(ran: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["report", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    file = Path(found["file"])
    assert file == ran / f"{found['run']}.html"
    assert file.stat().st_size == found["size_bytes"]
    assert found["state"] == "succeeded"
    assert page_data(file.read_text())["run"]["run"] == found["run"]
    assert run_command(["report", "--output", str(file)]) == 0  # again, over the earlier one
    assert sorted(p.name for p in ran.glob("*.html")) == [file.name]


@pytest.mark.parametrize(
    ("command", "words"),
    [
        (["graph", "nothing.yaml"], "no file nothing.yaml"),
        (["graph", "nosuchrun"], "nosuchrun"),
        (["graph", "w.yaml", "--by-kind", "--every-task"], "leave one out"),
        (["graph", "last", "--set", "a=1"], "--set"),
        (["graph", "w.yaml", "--format", "png"], "png"),
        (["graph", "w.yaml", "--output", "no/such/place.svg"], "cannot be written"),
        (["report", "nosuchrun"], "nosuchrun"),
        (["report", "--output", "."], "is a directory"),
    ],
)
def test_mistakes_are_told_in_a_sentence(
    ran: Path, capsys: pytest.CaptureFixture[str], command: list[str], words: str
) -> None:
    before = sorted(ran.iterdir())
    assert run_command(command) == 2
    said = capsys.readouterr()
    assert words in said.err
    assert "Traceback" not in said.err
    assert said.out == ""
    assert sorted(ran.iterdir()) == before
