"""Pilots by the commands: started through each engine, found after a crash, ended."""

from __future__ import annotations

import contextlib
import io
import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from slurm_lab import SlurmLab
from sshd_lab import SshdLab

from sureline.cli.main import run_command
from sureline.compose.pilots import starting
from sureline.compose.pilots.keeping import PilotKeeper
from sureline.sites.book import PilotBatch, PilotBook
from sureline.sites.local import LocalSite
from sureline.sites.order import PilotOrder, PilotShape, SiteChoice
from sureline.sites.port import JobId, SiteError, SiteWork
from sureline.sites.waits import WaitBook
from sureline.testing.sites import assert_soon
from sureline.world.identity.home import GridHome

LOOPBACK = ("--base-listen", "127.0.0.1:0", "--pilot-option=--listen=127.0.0.1:0")
pytestmark = pytest.mark.limit_s(400)  # they start processes that start processes


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A home of the test's own; nothing that was started from it is left."""
    monkeypatch.setenv("SURELINE_HOME", str(tmp_path / "home"))
    yield tmp_path / "home"
    sureline("pilots", "stop", "--all")


def sureline(*argv: str, code: int = 0) -> Any:
    with contextlib.redirect_stdout(io.StringIO()) as out:
        assert run_command([*argv, "--json"]) == code, (argv, out.getvalue())
    return json.loads(out.getvalue() or "null")


def serves(home: Path, batch: dict[str, Any], number: int = 0) -> bool:
    """Whether a pilot whose site sees our files has said so."""
    printed = home / "pilots" / "spool" / batch["batch"] / f"out.{number}"
    return printed.exists() and '"pilot":true' in printed.read_text()


def test_a_pilot_in_slurm(home: Path, slurm: SlurmLab):
    sureline("grid", "new", "lab")
    (batch,) = sureline("pilots", "start", "--on", "slurm", *LOOPBACK)["batches"]
    assert_soon(lambda: serves(home, batch))
    seen = {one["pilot"]: one for one in sureline("pilots", "ls")["pilots"]}
    (name,) = batch["pilots"]
    assert (seen[name]["state"], seen[name]["site"]) == ("running", "slurm")
    logs = sureline("pilots", "logs", name)
    assert json.loads(logs["output"].splitlines()[0])["peer"] == name
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
    assert_soon(lambda: names <= {one["peer"] for one in sureline("peers")["peers"]})
    assert len(list((sshd.home / ".sureline-site").glob("brought-*/sureline"))) == 1


@pytest.mark.soak
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


def test_waits_and_start_ups_are_learned_once_a_pilot_serves(home: Path):
    """Of three jobs: one serves, one ends before it does, one is still coming up at the end."""
    pilots = starting.Pilots(home)
    told: list[str] = []
    keeper = PilotKeeper(
        pilots,
        GridHome(home, "lab"),
        "",
        PilotOrder((SiteChoice("local"),), PilotShape(), 3),
        lambda there: there,
        told.append,
        told.append,
    )
    script = (
        'case $SURELINE_INDEX in 0) echo noise; echo "{\\"ready_at\\": $(($(date +%s) + 100))}";'
        " sleep 60;; 1) exit 3;; 2) sleep 60;; esac"
    )
    work = SiteWork(tag="t", argv=("sh", "-c", script), count=3)
    batch = PilotBatch("t", "lab", SiteChoice("local"), asked_at=0.0, count=3)
    batch = pilots.book.submit(batch, work)

    def look() -> list[str]:
        found = pilots.seen(batch)
        for pilot in found:
            keeper.saw(pilot)
        return ["" if one.status is None else one.status.word for one in found]

    assert_soon(lambda: look() == ["running", "failed", "running"])
    book = WaitBook(home / "pilots" / "waits.jsonl")
    assert_soon(lambda: bool(look()) and len(book.seen()) == 2)
    keeper.close()
    ups = [one.up_s for one in book.seen()]
    assert len(ups) == 3 and sorted(up is None for up in ups) == [False, True, True]
    assert 90 < next(up for up in ups if up is not None) < 160
    assert ["did not come up: failed" in said for said in told] == [True]


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
