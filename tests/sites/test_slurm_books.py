"""Slurm with accounting, and two clusters that know each other: real ones, with a real database.

They need Debian's `slurmdbd` and `mariadb-server` besides Slurm itself.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from slurm_books import SlurmBooks, unavailable
from slurm_lab import SlurmLab

from sureline.sites.port import JobId, JobStatus, SiteWork
from sureline.sites.slurm import SlurmSite
from sureline.testing.sites import assert_soon, ended, until

pytestmark = pytest.mark.soak
FORGETFUL = "MinJobAge=4"
"""Seconds after which slurmctld knows nothing any more of a job that is over."""
EATS = "import time; kept = b'x' * (300 << 20); time.sleep(600)"


class Clusters(NamedTuple):
    books: SlurmBooks
    east: SlurmLab
    west: SlurmLab


@pytest.fixture(scope="module")
def clusters(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Clusters]:
    if why := unavailable():
        pytest.skip(why)
    place = tmp_path_factory.mktemp("clusters")
    memory = os.access("/sys/fs/cgroup/memory", os.W_OK)
    with (
        SlurmBooks(place / "books") as books,
        SlurmLab(place / "e", name="east", books=books, more=FORGETFUL, memory=memory) as east,
        SlurmLab(place / "w", name="west", books=books, nodes=2, cores=2) as west,
    ):
        yield Clusters(books, east, west)


@pytest.fixture(autouse=True)
def at_east(clusters: Clusters, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLURM_CONF", str(clusters.east.conf))


def accounted(clusters: Clusters, spool: Path, site: SlurmSite, job: JobId, tag: str) -> JobStatus:
    """What is known of a job of which neither slurmctld nor its own file says anything."""
    ended(site, [job])
    known = ("squeue", "-h", "-r", "-t", "all", "-o", "%F_%K")
    assert_soon(lambda: job not in clusters.east.run(*known).split())
    (spool / tag / f"state.{job.partition('_')[2]}").unlink(missing_ok=True)
    return ended(SlurmSite(spool), [job])[job]


def test_accounting_knows_how_it_ended(clusters: Clusters, tmp_path: Path):
    spool = tmp_path / "spool"
    site = SlurmSite(spool)
    works = {
        "well": SiteWork(tag="well", argv=("true",)),
        "badly": SiteWork(tag="badly", argv=("sh", "-c", "exit 7")),
        "late": SiteWork(tag="late", argv=("sleep", "600"), limit_s=60.0),
        "array": SiteWork(tag="array", argv=("sleep", "600"), count=2),
    }
    if os.access("/sys/fs/cgroup/memory", os.W_OK):
        works["fat"] = SiteWork(
            tag="fat", argv=("python3", "-c", EATS), memory_bytes=50 << 20, count=1
        )
    jobs = {tag: site.submit(work) for tag, work in works.items()}
    hopeless = SiteWork(
        tag="hopeless",
        argv=("true",),
        limit_s=60.0,
        count=2,
        options=("--deadline=now+70", "--begin=now+20"),
    )
    jobs["hopeless"] = site.submit(hopeless)
    until(site, jobs["array"], lambda status: status.word == "running")
    site.cancel(jobs["array"][:1])
    found = {
        tag: accounted(clusters, spool, site, jobs[tag][0], tag)
        for tag in [*works, "hopeless"]
        if tag in jobs
    }
    said = clusters.east.run("sacct", "-n", "-P", "-X", "-o", "JobID,State,ExitCode,Start,NodeList")
    print(said)
    words = {tag: (status.word, status.exit_code) for tag, status in found.items()}
    assert words.pop("fat", ("out-of-memory", -125)) == ("out-of-memory", -125)
    assert words.pop("late")[0] == "timeout"
    assert words.pop("array")[0] == "cancelled"
    assert words == {"well": ("ended", 0), "badly": ("failed", 7), "hopeless": ("deadline", 1)}
    assert found["hopeless"].started_at is None and found["well"].started_at is not None
    assert site.look(jobs["array"])[jobs["array"][1]].word == "running", "only one was ended"
    site.cancel(jobs["array"])


def test_books_that_do_not_answer_say_nothing_of_jobs(clusters: Clusters, tmp_path: Path):
    site = SlurmSite(tmp_path / "spool")
    jobs = site.submit(SiteWork(tag="on", argv=("sleep", "600")))
    until(site, jobs, lambda status: status.word == "running")
    clusters.books.stop("slurmdbd")
    try:
        stranger = JobId("99999_0")
        found = site.look([*jobs, stranger])
        assert found.keys() == set(jobs) and found[jobs[0]].word == "running"
        more = site.submit(SiteWork(tag="meanwhile", argv=("true",)))
        assert ended(site, more)[more[0]].word == "ended"
    finally:
        clusters.books.start("slurmdbd", ["slurmdbd", "-D"])
    site.cancel(jobs)
    assert ended(site, jobs)[jobs[0]].word == "cancelled"


def test_several_clusters(clusters: Clusters, tmp_path: Path):
    """A submission goes to one of them, and is found, seen and ended there; numbers that both have
    are not taken for each other."""
    spool = tmp_path / "spool"
    both, west = SlurmSite(spool, clusters="east,west"), SlurmSite(spool, clusters="west")
    there = west.submit(SiteWork(tag="there", argv=("sleep", "600"), count=2))
    assert {job.partition("@")[2] for job in there} == {"west"}
    here = SlurmSite(spool).submit(SiteWork(tag="here", argv=("sleep", "600")))
    somewhere = both.submit(SiteWork(tag="somewhere", argv=("sleep", "600")))
    assert somewhere[0].partition("@")[2] in ("east", "west")
    until(both, [*there, *somewhere], lambda status: status.word == "running")
    again = SlurmSite(tmp_path / "other", clusters="east,west")  # knows by squeue only
    found = again.find()
    assert {*there, *somewhere} <= found.keys() and found[there[1]] == "there"
    assert found[JobId(f"{here[0]}@east")] == "here", "each on the cluster that it is on"
    both.cancel([there[0], *somewhere])
    over = ended(both, [there[0], *somewhere])
    assert {status.word for status in over.values()} == {"cancelled"}
    assert both.look(there)[there[1]].word == "running"
    assert both.ahead() == 0
    west.cancel(there)
    SlurmSite(spool).cancel(here)
    assert_soon(lambda: not clusters.west.run("squeue", "-h") + clusters.east.run("squeue", "-h"))
