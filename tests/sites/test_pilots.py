"""Pilots by the commands: started through each engine, found after a crash, ended."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from slurm_lab import SlurmLab
from sshd_lab import SshdLab

from sureline.compose.pilots import starting
from sureline.sites.book import PilotBatch, PilotBook
from sureline.sites.local import LocalSite
from sureline.sites.order import SiteChoice
from sureline.sites.port import JobId, SiteError, SiteWork
from sureline.testing.sites import assert_soon

LOOPBACK = ("--base-listen", "127.0.0.1:0", "--pilot-option=--listen=127.0.0.1:0")
Command = Callable[..., Any]


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A home of the test's own; nothing that was started from it is left."""
    monkeypatch.setenv("SURELINE_HOME", str(tmp_path / "home"))
    yield tmp_path / "home"
    sureline("pilots", "stop", "--all")


def sureline(*argv: str, code: int = 0, directory: Path | None = None) -> Any:
    done = subprocess.run(
        [sys.executable, "-m", "sureline", *argv, "--json"],
        check=False,
        capture_output=True,
        text=True,
        cwd=directory,
        env=dict(os.environ, SURELINE_PATIENCE_S="60"),
    )
    assert done.returncode == code, (argv, done)
    return json.loads(done.stdout or "null")


def alive() -> set[str]:
    return {one["peer"] for one in sureline("peers")["peers"] if one["slots"]}


def test_slurm_pilots_run_a_workflow(home: Path, tmp_path: Path, slurm: SlurmLab):
    sureline("grid", "new", "lab")
    (batch,) = sureline("pilots", "start", "--on", "slurm", "-n", "2", *LOOPBACK)["batches"]
    assert_soon(lambda: alive() == set(batch["pilots"]))
    (tmp_path / "flow.yaml").write_text(
        "tasks:\n  say: {run: 'echo $SLURM_JOB_NAME > said', outputs: [said]}\n"
    )
    sureline("run", "flow.yaml", "--grid", "lab", directory=tmp_path)
    seen = {one["pilot"]: one for one in sureline("pilots", "ls")["pilots"]}
    assert {seen[name]["state"] for name in batch["pilots"]} == {"running"}
    logs = sureline("pilots", "logs", batch["pilots"][0])
    assert json.loads(logs["output"].splitlines()[0])["site"] == "slurm"
    sureline("pilots", "stop", batch["batch"])
    assert batch["batch"] not in slurm.run("squeue", "-h", "-o", "%j")
    assert sureline("pilots", "ls") == {"pilots": [], "silent": []}


def test_a_crash_between_the_book_and_the_site(home: Path, tmp_path: Path):
    """What was written down and is not known by the site never was; what the site has is found."""
    sureline("grid", "new", "lab")
    (batch,) = sureline("pilots", "start", "--on", "local", *LOOPBACK)["batches"]
    page = home / "pilots" / "book" / batch["batch"]
    page.write_text(json.dumps({**json.loads(page.read_text()), "jobs": []}))
    seen = [one for one in sureline("pilots", "ls")["pilots"] if one["batch"] == batch["batch"]]
    assert [one["job"] for one in seen] == batch["jobs"]
    stopped = sureline("pilots", "stop", "--all")
    assert batch["batch"] in stopped["stopped"] and not stopped["left"]


def test_what_cannot_be_is_refused(home: Path, slurm: SlurmLab):
    sureline("grid", "new", "lab")
    for argv in (
        ("--on", "local", "--partition", "x"),
        ("--on", "ssh"),
        ("--on", "local", "-n", "0"),
        ("--on", "slurm", "--lifetime", "1s"),
    ):
        sureline("pilots", "start", *argv, code=2)
    sureline("pilots", "stop", "no-such-batch", code=2)
    sureline("pilots", "start", "--on", "slurm", "--partition", "none", *LOOPBACK, code=1)
    assert all(one["pilot"] == "(base)" for one in sureline("pilots", "ls")["pilots"])


@pytest.mark.soak
def test_ssh_brings_sureline_along(home: Path, sshd: SshdLab):
    """A machine with Python and nothing of ours: another Python than this one, of its kind."""
    if (
        subprocess.run(
            ["/usr/bin/python3", "-c", "import sys; print(sys.implementation.cache_tag)"],
            check=False,
            capture_output=True,
            text=True,
        ).stdout.strip()
        != sys.implementation.cache_tag
    ):
        pytest.skip("the system's Python is of another kind than this one")
    sureline("grid", "new", "lab")
    hosts = ("--on", "ssh", "--host", "lab", "--host", "lab2", "-n", "2")
    extra = tuple(f"--extra={word}" for word in sshd.options)
    batches = sureline("pilots", "start", *hosts, *extra, *LOOPBACK)["batches"]
    names = {name for batch in batches for name in batch["pilots"]}
    assert_soon(lambda: alive() == names)
    assert len(list((sshd.home / ".sureline-site").glob("brought-*/sureline"))) == 1


def test_pilots_are_kept(home: Path, tmp_path: Path):
    """One that is lost is replaced; Ctrl-C ends them all."""
    sureline("grid", "new", "lab")
    argv = ("pilots", "keep", "--on", "local", "--least", "1", "--most", "2", *LOOPBACK, "--json")
    keeping = subprocess.Popen([sys.executable, "-m", "sureline", *argv], stdout=subprocess.PIPE)
    try:
        assert_soon(lambda: len(kept(home)) == 1)
        (first,) = kept(home)
        site = LocalSite(home / "pilots" / "spool")
        assert_soon(lambda: bool(site.output(JobId(f"{first}/0"))))
        site.cancel([JobId(f"{first}/0")])
        assert_soon(lambda: bool(kept(home) - {first}))
    finally:
        keeping.send_signal(signal.SIGINT)
        said, _ = keeping.communicate(timeout=100)
    assert keeping.returncode == 0 and json.loads(said)["left"] == []
    assert not PilotBook(home / "pilots").batches()


def kept(home: Path) -> set[str]:
    return {batch.tag for batch in PilotBook(home / "pilots").batches() if not batch.base}


def test_a_site_that_is_silent_is_asked_again(home: Path, tmp_path: Path, monkeypatch):
    """What could not be ended at first is ended when the engine answers again."""
    pilots = starting.Pilots(home)
    batch = PilotBatch("t", "lab", SiteChoice("local"), asked_at=0.0)
    batch = pilots.book.submit(batch, SiteWork(tag="t", argv=("sleep", "600")))
    failures = ["down", "down", "still down"]
    cancel = LocalSite.cancel

    def silent(site: LocalSite, jobs: Any) -> None:
        if failures:
            raise SiteError(failures.pop(0), again=True)
        cancel(site, jobs)

    monkeypatch.setattr(LocalSite, "cancel", silent)
    monkeypatch.setattr(starting, "LOOK_EVERY_S", 0.01)
    told: list[str] = []
    assert pilots.stop([batch], told.append) == []
    assert len(told) == 2 and not pilots.book.batches()
