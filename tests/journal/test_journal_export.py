from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from random import Random

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from journal_histories import GRAPH, History, histories, new_run, succeeded, take, write

from sureline.journal.events import TaskEnded, TaskReady, TaskRevoked, Unknown, decode, encode
from sureline.journal.export import export_jsonl, import_jsonl
from sureline.journal.store import Journal
from sureline.journal.views import RunView
from sureline.workflow.mistakes import UserError


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Journal]:
    with Journal.open(tmp_path_factory.mktemp("here"), fsync=lambda _: None) as journal:
        yield journal


@pytest.fixture(scope="module")
def there(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Journal]:
    with Journal.open(tmp_path_factory.mktemp("there"), fsync=lambda _: None) as journal:
        yield journal


@given(history=histories(), random=st.randoms(use_true_random=False), cut=st.integers(0, 40))
@settings(max_examples=60, deadline=None)
def test_an_export_imports_to_the_same_run_in_any_order(
    here: Journal, there: Journal, history: History, random: Random, cut: int
) -> None:
    run, events = write(here, history)
    header, submitted, *lines = export_jsonl(here, run)
    mixed = lines + lines[:cut]
    random.shuffle(mixed)
    import_jsonl(there, [header, submitted, *mixed[:cut]])
    assert import_jsonl(there, [header, *mixed, submitted]) == run
    assert RunView.of(entry.event for entry in there.events(run)) == RunView.of(events)
    assert there.summary(run) == here.summary(run)
    assert list(there.commits(run)) == list(here.commits(run))
    assert list(export_jsonl(there, run)) == [header, submitted, *lines]


def test_the_text_is_canonical(journal: Journal) -> None:
    run = new_run(journal)
    writer = take(journal, run)
    writer.record(TaskReady(102.5, "a"))
    writer.flush()
    lines = list(export_jsonl(journal, run))
    head = '{"format":"sureline-journal","graph":"YSBncmFwaA==","run":"demo-'
    assert lines[0] == f'{head}{run[-6:]}","version":1}}'
    assert lines[3] == (
        '{"event":{"at":102.5,"event":"task ready","task":"a"},"origin":"writer.1","sequence":2}'
    )
    for line in lines:
        assert json.dumps(json.loads(line), sort_keys=True, separators=(",", ":")) == line


def test_an_imported_run_can_be_taken_and_offers_no_results(
    journal: Journal, tmp_path: Path
) -> None:
    run = new_run(journal)
    writer = take(journal, run)
    writer.record(succeeded("a", key="k"))
    writer.flush()
    with Journal.open(tmp_path / "other") as other:
        import_jsonl(other, export_jsonl(journal, run))
        assert other.graph(run) == GRAPH
        assert other.result("k") is None
        successor = take(other, run)
        assert successor.epoch == 2
        successor.record(TaskEnded(9.0, "b", "succeeded"))
        successor.flush()
        assert other.summary(run).succeeded == 2
        import_jsonl(journal, export_jsonl(other, run))
    assert journal.summary(run).succeeded == 2


def _exported(journal: Journal) -> tuple[str, list[str]]:
    run = new_run(journal)
    writer = take(journal, run)
    writer.record(succeeded("a"))
    writer.flush()
    return run, list(export_jsonl(journal, run))


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda lines: [], "empty"),
        (lambda lines: lines[1:], "line 1 is not the header"),
        (lambda lines: [lines[0], "{"], "line 2 is not an event"),
        (lambda lines: [*lines, '{"event":{"event":"x"},"origin":"writer.1"}'], "line 5"),
        (lambda lines: [*lines, lines[3].replace("writer.1", "me")], "line 5 has an unknown"),
        (lambda lines: [*lines, lines[3].replace('"sequence":2', '"sequence":0')], "line 5 has"),
        (lambda lines: [*lines, lines[3].replace("110.0", "111.0")], "event 2 of run .* differs"),
        (lambda lines: [lines[0].replace("YSBn", "YSBo"), *lines[1:]], "its graph differs"),
    ],
)
def test_text_that_is_no_export_or_contradicts_changes_nothing(
    journal: Journal, damage: object, message: str
) -> None:
    assert callable(damage)
    run, lines = _exported(journal)
    with pytest.raises(UserError, match=message):
        import_jsonl(journal, damage(lines))
    assert list(export_jsonl(journal, run)) == lines
    assert len(journal.runs()) == 1


def test_a_part_that_lacks_a_revocation_keeps_the_first_result(
    journal: Journal, tmp_path: Path
) -> None:
    run = new_run(journal)
    writer = take(journal, run)
    for event in (succeeded("a", at=1.0), TaskRevoked(2.0, "a"), succeeded("a", at=3.0)):
        writer.record(event)
    writer.flush()
    *lines, first, revoked, second = export_jsonl(journal, run)
    with Journal.open(tmp_path / "other") as other:
        import_jsonl(other, [*lines, first, second])
        assert list(other.commits(run)) == [succeeded("a", at=1.0)]
        import_jsonl(other, [lines[0], revoked])
        assert list(other.commits(run)) == [succeeded("a", at=3.0)]
        assert other.summary(run) == journal.summary(run)


def test_an_export_without_its_submission_leaves_no_run(journal: Journal, tmp_path: Path) -> None:
    _, lines = _exported(journal)
    with Journal.open(tmp_path / "other") as other:
        with pytest.raises(UserError, match="lack its submission"):
            import_jsonl(other, [lines[0], *lines[2:]])
        assert other.runs() == []


def test_an_event_of_a_kind_that_is_not_known_here_is_kept_as_it_came(
    journal: Journal, tmp_path: Path
) -> None:
    body = msgspec.msgpack.encode({"event": "of a strategy", "at": 101.0, "by": {"rule": [1, 2]}})
    event = decode(body)
    assert event == Unknown(101.0, "of a strategy", body)
    assert encode(event) == body
    for rubbish in (
        b"rubbish",
        msgspec.msgpack.encode({"event": "task ready", "at": "noon"}),
        msgspec.msgpack.encode({"event": "of a strategy"}),
    ):
        with pytest.raises(msgspec.DecodeError):
            decode(rubbish)
    run = new_run(journal)
    writer = take(journal, run)
    writer.record(event)
    writer.flush()
    entries = list(journal.events(run))
    assert entries[-1].event == event
    view = RunView.of(entry.event for entry in entries)
    assert view == RunView.of(entry.event for entry in entries[:-1])
    lines = list(export_jsonl(journal, run))
    with Journal.open(tmp_path / "there") as there:
        assert import_jsonl(there, lines) == run
        assert list(export_jsonl(there, run)) == lines
