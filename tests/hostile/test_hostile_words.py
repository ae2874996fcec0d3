"""What others say must stay words: no report names a file of ours, nothing they wrote talks to the
terminal, and a few lines cannot ask for any amount of memory."""

from __future__ import annotations

import os
import pty
import subprocess
from pathlib import Path

import msgspec
import pytest
from surely import COMMAND, sureline

from sureline.cli import console
from sureline.journal.events import TaskEnded
from sureline.journal.store import Entry, Journal
from sureline.workflow.mistakes import WorkflowError
from sureline.workflow.read import read_workflow

FLOW = "name: small\ntasks:\n  one:\n    run: echo done; exit 1\n"
ESCAPES = "\x1b]0;owned\x07\x1b[2J\x9b31m\x7f"


def forged(where: Path, **lies: str) -> str:
    """A run of which a peer reported one attempt as it liked."""
    (where / "flow.yaml").write_text(FLOW)
    run = sureline(where, "run", "flow.yaml", "--json").json["run"]
    with Journal.open(where / ".sureline") as journal:
        entries = list(journal.events(run))
        changed = [
            Entry(e.position, msgspec.structs.replace(e.event, **lies))
            if isinstance(e.event, TaskEnded)
            else e
            for e in entries
        ]
        graph = journal.graph(run)
    other = where / "other"
    with Journal.open(other / ".sureline") as journal:
        journal.merge(run, graph, changed)
    (other / ".sureline/logs" / run).mkdir(parents=True)
    return run


@pytest.mark.parametrize(
    "name",
    ["../../secret", "{where}/secret", "logs/{run}/../../../../secret", "logs/{run}/link.out"],
)
def test_a_report_cannot_have_a_file_of_ours_printed(tmp_path: Path, name: str) -> None:
    (tmp_path / "secret").write_text("my key\n")
    (tmp_path / "flow.yaml").write_text(FLOW)
    run = sureline(tmp_path, "run", "flow.yaml", "--json").json["run"]
    lie = name.format(where=tmp_path, run=run)
    again = forged(tmp_path, stdout_file=lie, stderr_file=lie)
    logs = tmp_path / "other/.sureline/logs" / again
    (logs / "link.out").symlink_to(tmp_path / "secret")
    said = sureline(tmp_path / "other", "logs", again, "one")
    assert said.code == 0 and "done" in said.out
    assert "my key" not in said.out + said.err


@pytest.mark.parametrize("name", ["blob:nonsense", "blob:" + "0" * 64 + ":-1", "blob:a:b"])
def test_a_log_that_names_no_blob_is_none(tmp_path: Path, name: str) -> None:
    said = sureline(tmp_path / "other", "logs", forged(tmp_path, stdout_file=name), "one")
    assert said.code == 0 and "Traceback" not in said.err, said


def test_escape_sequences_reach_no_terminal(tmp_path: Path) -> None:
    run = forged(tmp_path, reason=ESCAPES, peer=f"p{ESCAPES}", stdout=ESCAPES, stderr=ESCAPES)
    for command in (
        ("show", run),
        ("explain", run, "one"),
        ("story", run, "one"),
        ("runs",),
        ("logs", run, "one"),
    ):
        shown = on_terminal(tmp_path / "other", *command)
        for bad in (b"\x1b]0;", b"\x1b[2J", b"\x07", b"\xc2\x9b", b"\x7f"):
            assert bad not in shown, (command, shown)


def on_terminal(where: Path, *command: str) -> bytes:
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        [COMMAND, *command], cwd=where, stdin=theirs, stdout=theirs, stderr=theirs
    ) as process:
        os.close(theirs)
        found = b""
        while True:
            try:
                chunk = os.read(ours, 1 << 16)
            except OSError:
                break
            if not chunk:
                break
            found += chunk
    os.close(ours)
    assert process.returncode == 0, found
    return found


def test_harmless_text_is_left_alone() -> None:
    assert console.harmless("a\tb\nc é\u2192") == "a\tb\nc é\u2192"
    assert console.harmless("\x1b[1m\r") == "\\x1b[1m\\x0d"


def test_params_of_params_cannot_ask_for_any_length(tmp_path: Path) -> None:
    lines = ["name: bomb", "params:", "  a0: xxxxxxxxxx"]
    for n in range(1, 12):
        used = "{{a" + str(n - 1) + "}}"
        lines.append(f"  a{n}: '{used * 8}'")
    lines += ["tasks:", "  t: {run: 'echo {{a11}}'}"]
    path = tmp_path / "bomb.yaml"
    path.write_text("\n".join(lines))
    assert path.stat().st_size < 1000
    with pytest.raises(WorkflowError, match="longer than"):
        read_workflow(path, directory=tmp_path)


def test_a_name_that_is_not_text_is_told(tmp_path: Path) -> None:
    (tmp_path / "flow.yaml").write_text(
        "name: odd\ntasks:\n  t:\n    outputs: [d]\n"
        "    run: mkdir d; touch \"d/$(printf '\\377')\"\n"
    )
    said = sureline(tmp_path, "run", "flow.yaml")
    assert said.code == 1 and "Unicode" not in said.out + said.err
    assert "not UTF-8" in said.out + said.err
