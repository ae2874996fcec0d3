"""Processes of this machine as a site."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from sureline.sites.local import LocalSite
from sureline.sites.port import SiteWork
from sureline.testing import SiteConformance
from sureline.testing.sites import assert_soon, ended, until


class TestLocal(SiteConformance):
    @pytest.fixture(autouse=True)
    def spooled(self, tmp_path: Path) -> None:
        self.spool = tmp_path / "spool"

    def make(self) -> LocalSite:
        return LocalSite(self.spool)


def test_a_killed_job_is_lost(tmp_path: Path):
    """Its first process is gone without a word: that is the machine's doing, not the work's."""
    site = LocalSite(tmp_path)
    jobs = site.submit(SiteWork(tag="a", argv=("sh", "-c", "echo $PPID; sleep 600")))
    assert_soon(lambda: site.output(jobs[0]).endswith(b"\n"))
    os.killpg(int(site.output(jobs[0])), signal.SIGKILL)
    status = ended(site, jobs)[jobs[0]]
    assert (status.word, status.blame) == ("lost", "engine")


def test_what_the_work_leaves_behind_is_ended(tmp_path: Path):
    site = LocalSite(tmp_path)
    jobs = site.submit(SiteWork(tag="a", argv=("sh", "-c", "sleep 600 & echo $!")))
    ended(site, jobs)
    left = int(site.output(jobs[0]))
    assert_soon(lambda: not is_there(left))


def is_there(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(") ")[2][0] != "Z"
    except OSError:
        return False


def test_what_has_no_room_waits(tmp_path: Path):
    site = LocalSite(tmp_path, slots=2)
    gate = tmp_path / "gate"
    wait = ("sh", "-c", f"until [ -e {gate} ]; do sleep 0.05; done")
    first = site.submit(SiteWork(tag="a", argv=wait, cores=2))
    until(site, first, lambda status: status.word == "running")
    second = site.submit(SiteWork(tag="b", argv=("true",), count=2))
    third = site.submit(SiteWork(tag="c", argv=("true",)))
    assert {site.look(second)[job].word for job in second} == {"queued"}
    site.cancel(third)
    assert ended(site, third)[third[0]].word == "cancelled"
    assert not ended(site, third)[third[0]].starts
    gate.touch()
    assert {status.word for status in ended(site, [*first, *second]).values()} == {"ended"}


def test_what_was_given_up_before_it_began_never_begins(tmp_path: Path):
    """Its submitter was killed, and whoever came after did not find it in time."""
    site = LocalSite(tmp_path / "spool")
    (tmp_path / "void").touch()
    site.put(tmp_path / "void", "a/void")
    script = f"touch {tmp_path}/ran"
    (job,) = site.submit(SiteWork(tag="a", argv=("sh", "-c", script)))
    status = ended(site, [job])[job]
    assert (status.word, status.blame, status.starts) == ("lost", "engine", 0)
    assert not (tmp_path / "ran").exists()
