"""Dask and Ray behind the port: real clusters of this machine."""

from __future__ import annotations

import pytest
from clusters import RAY_ENVIRONMENT, DaskLab, ray_head

from sureline.sites.dask import DaskSite
from sureline.sites.port import JobId, SiteError, SiteWork
from sureline.sites.ray import RaySite
from sureline.sites.spooled import SpooledSite, job_function
from sureline.testing.sites import SiteConformance, ended, until


@pytest.fixture(scope="module")
def dask_lab(tmp_path_factory):
    pytest.importorskip("distributed", reason="dask is an extra")
    with DaskLab(tmp_path_factory.mktemp("dask-lab")) as lab:
        yield lab


class TestDask(SiteConformance):
    @pytest.fixture(autouse=True)
    def place(self, dask_lab, tmp_path_factory):
        self.address = dask_lab.address
        self.spool = tmp_path_factory.mktemp("dask")
        self.made = []
        yield
        for site in self.made:
            site.close()

    def make(self):
        self.made.append(DaskSite(self.spool, self.address))
        return self.made[-1]


def sleeper(tag, count=1):
    return SiteWork(tag=tag, argv=("sleep", "300"), count=count)


class SpeechlessSite(SpooledSite):
    """Its engine answers nothing; `ran` is what it has been handed."""

    name = "speechless"

    def _hand_over(self, spool, work):
        for index in range(work.count):
            job_function()(spool, work.tag, index)

    def _words(self, jobs):
        raise SiteError("no word", again=True)


def test_what_has_ended_is_told_also_while_the_engine_is_down(tmp_path):
    site = SpeechlessSite(tmp_path)
    script = f"echo once >> {tmp_path}/ran"
    (job,) = site.submit(SiteWork(tag="t", argv=("sh", "-c", script)))
    assert site.look([job])[job].word == "ended"
    other = JobId("t/1")
    assert set(site.look([job, other])) == {job}
    with pytest.raises(SiteError):
        site.look([other])
    assert job_function()(str(tmp_path), "t", 0) == 0, "an engine that has lost the answer"
    assert (tmp_path / "ran").read_text() == "once\n"


@pytest.mark.soak
def test_a_lost_dask_worker_and_a_lost_scheduler_are_the_engines_fault(tmp_path):
    pytest.importorskip("distributed", reason="dask is an extra")
    with DaskLab(tmp_path, threads=1) as lab:
        site = DaskSite(tmp_path / "spool", lab.address)
        jobs = site.submit(sleeper("t", 2))
        until(site, jobs[:1], lambda status: status.word == "running")
        assert site.look(jobs)[jobs[1]].word == "queued"
        lab.kill("worker")
        found = until(site, jobs, lambda status: status.word in ("requeued", "queued", "running"))
        site.cancel(jobs)
        lab.kill("scheduler")
        with pytest.raises(SiteError) as down:
            site.look(jobs)
        assert down.value.again
        lab.start_scheduler()
        lab.start_worker("second")
        found = ended(site, jobs)
        assert {status.word for status in found.values()} <= {"cancelled", "lost"}
        (other,) = site.submit(SiteWork(tag="u", argv=("true",)))
        assert ended(site, [other])[other].word == "ended"


@pytest.fixture(scope="module")
def ray_address(tmp_path_factory):
    ray = pytest.importorskip("ray", reason="ray is an extra")
    with pytest.MonkeyPatch.context() as patch, ray_head(tmp_path_factory.mktemp("r")) as address:
        for name, value in RAY_ENVIRONMENT.items():
            patch.setenv(name, value)
        # read when ray was imported
        patch.setattr("ray._private.ray_constants.ENABLE_RAY_CLUSTER", False)
        yield address
        ray.shutdown()


class TestRay(SiteConformance):
    @pytest.fixture(autouse=True)
    def place(self, ray_address, tmp_path_factory):
        self.address = ray_address
        self.spool = tmp_path_factory.mktemp("ray")

    def make(self):
        return RaySite(self.spool, self.address)

    def test_nothing_but_the_loopback_is_spoken_on(self, site):
        import ray

        ended(site, site.submit(self.work("true")))
        assert {node["NodeManagerAddress"] for node in ray.nodes()} == {"127.0.0.1"}

    def test_one_cluster_at_a_time(self, site, tmp_path):
        ended(site, site.submit(self.work("true")))
        with pytest.raises(SiteError, match="one at a time"):
            RaySite(tmp_path, "127.0.0.1:1").submit(self.work("true"))
