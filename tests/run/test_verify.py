"""After another boot of the machine, resume trusts stored files by content only."""

from __future__ import annotations

import os
from pathlib import Path

from sureline import Workflow
from sureline.compose import HOME, Watcher, resume_run, session
from sureline.journal.events import TaskRevoked
from sureline.peer.capacity import this_machine
from sureline.peer.lending import Notes


def made_run(directory: Path) -> str:
    flow = Workflow("twice")
    flow.task("a", run="echo a > a.txt", outputs="a.txt")
    flow.task("b", run="cat a.txt a.txt > b.txt", inputs="a.txt", outputs="b.txt")
    return flow.run(directory).run


def damage_unseen(directory: Path) -> None:
    """Change a stored file, and have its ctime pass for a good one, as a power cut may."""
    for path in (directory / HOME / "blobs").rglob("*"):
        if path.is_file() and path.read_bytes() == b"a\n":
            before = path.stat()
            path.chmod(0o600)
            path.write_bytes(b"?\n")
            path.chmod(0o444)
            os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
            digest = path.parent.name + path.name
            Notes(str(directory / HOME / "vouched")).write(digest, path.stat().st_ctime_ns)
            return
    raise AssertionError("nothing was stored")


class Revoked(Watcher):
    def __init__(self) -> None:
        self.tasks: list[str] = []

    def event(self, event) -> None:
        if isinstance(event, TaskRevoked):
            self.tasks.append(event.task)


def test_after_another_boot_files_are_verified_by_content(tmp_path, monkeypatch):
    run = made_run(tmp_path)
    damage_unseen(tmp_path)
    same_boot = Revoked()
    resume_run(tmp_path, run, this_machine(tmp_path), same_boot)
    assert same_boot.tasks == []
    monkeypatch.setattr(session, "boot_id", lambda: "another boot")
    seen = Revoked()
    outcome = resume_run(tmp_path, run, this_machine(tmp_path), seen)
    assert seen.tasks == ["a"]
    assert (outcome.state, outcome.tasks.succeeded) == ("succeeded", 2)
    assert (tmp_path / "a.txt").read_text() == "a\n"
    assert (tmp_path / "b.txt").read_text() == "a\na\n"
