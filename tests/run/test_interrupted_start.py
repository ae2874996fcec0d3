"""An interrupt before there is anything to drive leaves no trace of the attempt."""

from __future__ import annotations

import os

import pytest

from sureline import Workflow
from sureline.compose import HOME
from sureline.compose.session import Session


def test_an_interrupt_before_the_engine_starts_leaves_no_working_directory(tmp_path, monkeypatch):
    flow = Workflow("one")
    flow.task("a", run="echo a > a.txt", outputs="a.txt")

    def interrupted(session: Session) -> str:
        assert os.listdir(tmp_path / HOME / "work"), "the run had no directory to leave behind"
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Session, "_read_past", interrupted)
        with pytest.raises(KeyboardInterrupt):
            flow.run(tmp_path)
    assert os.listdir(tmp_path / HOME / "work") == []
    flow.run(tmp_path)
    assert (tmp_path / "a.txt").read_text() == "a\n"
