"""What every adapter of the port `sureline.sites.port.Site` must pass.

A subclass says how its site is made: each call of `make` gives another instance of the same one,
as another process would have it. Jobs are small and few; an engine that starts jobs slowly makes
the suite wait, not fail.
"""

from __future__ import annotations

import itertools
import secrets
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, ClassVar

import pytest

from sureline.sites.port import JobId, JobStatus, Site, SiteError, SiteWork

PATIENCE_S = 180.0
LOOK_EVERY_S = 0.1
_count = itertools.count(1)


class SiteConformance:
    limits: ClassVar[bool] = True
    """Whether the site ends a job after seconds; Slurm's limits are minutes."""
    options: ClassVar[tuple[str, ...]] = ()
    """Of the engine, for every submission."""

    def make(self) -> Site:
        raise NotImplementedError

    @pytest.fixture
    def site(self) -> Iterable[Site]:
        """The site, on which this test leaves nothing of its own; what else is there stays."""
        site = self.make()
        self._tags = list[str]()
        yield site
        left = [job for tag in self._tags for job in site.find(tag)]
        site.cancel(left)
        until(site, left, lambda status: status.is_over)

    def work(self, script: str, **more: Any) -> SiteWork:
        tag = f"t{next(_count)}-{secrets.token_hex(4)}"
        self._tags.append(tag)
        argv = more.pop("argv", ("sh", "-c", script))
        return SiteWork(tag=tag, argv=argv, options=self.options, **more)

    # -- what a job is given, and how it ends --------------------------------------------------

    def test_ends(self, site: Site) -> None:
        jobs = site.submit(self.work("echo out; echo err >&2"))
        status = ended(site, jobs)[jobs[0]]
        assert (status.word, status.exit_code, status.blame) == ("ended", 0, "")
        assert status.starts == 1 and status.node
        assert status.started_at is not None and status.ended_at is not None
        assert status.started_at <= status.ended_at
        assert sorted(site.output(jobs[0]).split()) == [b"err", b"out"]
        assert site.output(jobs[0], 3) in (b"ut\n", b"rr\n")

    def test_fails(self, site: Site) -> None:
        jobs = site.submit(self.work("exit 7"))
        status = ended(site, jobs)[jobs[0]]
        assert (status.word, status.exit_code, status.blame) == ("failed", 7, "work")

    def test_no_such_program(self, site: Site) -> None:
        jobs = site.submit(self.work("", argv=("no-such-program-here",)))
        status = ended(site, jobs)[jobs[0]]
        assert (status.word, status.exit_code) == ("failed", 127)
        assert b"no-such-program-here" in site.output(jobs[0])

    def test_array(self, site: Site) -> None:
        """Alike but for their index; each has its own output and its own end."""
        jobs = site.submit(self.work("echo I am $SURELINE_INDEX; exit $SURELINE_INDEX", count=3))
        assert len(set(jobs)) == 3
        found = ended(site, jobs)
        assert [found[job].exit_code for job in jobs] == [0, 1, 2]
        assert [site.output(job) for job in jobs] == [b"I am %d\n" % n for n in range(3)]

    def test_words_arrive_as_they_are(self, site: Site, tmp_path: Path) -> None:
        hard = """a 'b' "c" $HOME `id` \\ ; & | * ä\n#SBATCH --array=0-9 %j"""
        show = "import os, sys; print([sys.argv[1], os.environ['HARD'], os.getcwd()])"
        directory = str(tmp_path / "a directory, with $spaces %j")
        jobs = site.submit(
            self.work(
                "",
                argv=(sys.executable, "-c", show, hard),
                environment={"HARD": hard, "PYTHONIOENCODING": "utf-8"},
                directory=directory,
            )
        )
        assert ended(site, jobs)[jobs[0]].word == "ended", site.output(jobs[0])
        assert site.output(jobs[0]).decode() == f"{[hard, hard, directory]}\n"

    # -- being found ---------------------------------------------------------------------------

    def test_found_by_another_process(self, site: Site) -> None:
        jobs = site.submit(work := self.work("sleep 600", count=2))
        other = site.submit(self.work("sleep 600"))
        again = self.make()
        assert set(again.find(work.tag)) == set(jobs), "at once: else it would be submitted twice"
        everything = again.find()
        assert {*jobs, *other} <= everything.keys() and everything[jobs[1]] == work.tag
        until(again, jobs, lambda status: status.word == "running")
        assert again.find("t0-never") == {}

    def test_a_tag_is_for_once(self, site: Site) -> None:
        jobs = site.submit(work := self.work("true"))
        ended(site, jobs)
        with pytest.raises(SiteError) as refused:
            site.submit(work)
        assert not refused.value.again and work.tag in str(refused.value)

    def test_nothing_is_said_of_strangers(self, site: Site) -> None:
        jobs = site.submit(self.work("true"))
        stranger = JobId(jobs[0].replace(jobs[0][:4], "9999", 1))
        assert stranger not in site.look([stranger, *jobs])
        assert site.output(stranger) == b""
        site.cancel([stranger])

    def test_forgotten(self, site: Site) -> None:
        jobs = site.submit(work := self.work("echo word"))
        ended(site, jobs)
        site.forget(work.tag)
        assert site.output(jobs[0]) == b""

    # -- being ended ---------------------------------------------------------------------------

    def test_cancelled(self, site: Site) -> None:
        """It is asked first, and has a grace in which to go in order."""
        script = "trap 'echo going; exit 3' TERM; echo up; sleep 600 & wait"
        jobs = site.submit(self.work(script))
        assert_soon(lambda: site.output(jobs[0]) == b"up\n")
        site.cancel(jobs)
        site.cancel(jobs)
        status = ended(site, jobs)[jobs[0]]
        assert (status.word, status.blame) == ("cancelled", "user")
        assert b"going" in site.output(jobs[0])
        site.cancel(jobs)
        assert site.look(jobs)[jobs[0]].word == "cancelled"

    def test_cancelled_in_part(self, site: Site) -> None:
        jobs = site.submit(self.work("sleep 600", count=3))
        until(site, jobs, lambda status: status.word == "running")
        site.cancel(jobs[1:2])
        ended(site, jobs[1:2])
        assert [site.look(jobs)[job].word for job in (jobs[0], jobs[2])] == ["running"] * 2

    def test_limit(self, site: Site) -> None:
        """The warning comes first, and what does not listen is ended."""
        if not self.limits:
            pytest.skip("this engine's limits are too long for a test")
        script = "trap 'echo warned' USR1; while :; do sleep 0.1; done"
        jobs = site.submit(self.work(script, limit_s=1.5, warn_s=1.0))
        status = ended(site, jobs)[jobs[0]]
        assert (status.word, status.blame) == ("timeout", "work")
        assert site.output(jobs[0]) == b"warned\n"

    # -- files ---------------------------------------------------------------------------------

    def test_files(self, site: Site, tmp_path: Path) -> None:
        data = bytes(range(256)) * 5000
        (tmp_path / "here").write_bytes(data)
        (tmp_path / "here").chmod(0o700)
        site.put(tmp_path / "here", "of a test/there")
        site.get("of a test/there", tmp_path / "back")
        assert (tmp_path / "back").read_bytes() == data
        jobs = site.submit(self.work("test -x 'of a test/there' || test -x '../of a test/there'"))
        assert ended(site, jobs)[jobs[0]].word == "ended", "what can be run there can be run"
        with pytest.raises(SiteError):
            site.get("of a test/nowhere", tmp_path / "nothing")
        assert not (tmp_path / "nothing").exists()


def ended(site: Site, jobs: Iterable[JobId]) -> dict[JobId, JobStatus]:
    """What is known of jobs, once all are over."""
    return until(site, jobs, lambda status: status.is_over)


def until(
    site: Site, jobs: Iterable[JobId], so: Callable[[JobStatus], bool]
) -> dict[JobId, JobStatus]:
    """What is known of jobs, once it is so of each of them."""
    wanted, found = list(jobs), dict[JobId, JobStatus]()
    give_up_at = time.monotonic() + PATIENCE_S
    while True:
        found.update(site.look(wanted))
        if all(job in found and so(found[job]) for job in wanted):
            return found
        assert time.monotonic() < give_up_at, f"after {PATIENCE_S:g} s: {found}"
        time.sleep(LOOK_EVERY_S)


def assert_soon(so: Callable[[], bool]) -> None:
    give_up_at = time.monotonic() + PATIENCE_S
    while not so():
        assert time.monotonic() < give_up_at, f"not so after {PATIENCE_S:g} s"
        time.sleep(LOOK_EVERY_S)
