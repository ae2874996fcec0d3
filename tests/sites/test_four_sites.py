"""One workflow over real engines at once: this machine, ssh, Slurm, a Dask cluster, a Ray instance.

As the paper's, scaled down: pipelines of three jobs, short ones, with small files.
"""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from pathlib import Path

import pytest
from clusters import RAY_ENVIRONMENT, DaskLab, ray_head
from surely import events, started, sureline, until, write

from sureline.catalog.entries import SiteEntry, site_catalog
from sureline.journal.events import TaskEnded

pytestmark = pytest.mark.soak
LONG_S = 600.0
"""Four engines on a busy machine take their time."""

PIPES = """\
name: pipes
tasks:
  p1:
    for: {i: 1..%(n)d}
    run: |
      %(trouble)s
      sleep 0.3; cat d1 > d3.{{i}}; head -c 1000 /dev/zero >> d3.{{i}}; echo {{i}} >> d3.{{i}}
      echo p1.{{i}} $SURELINE_SITE >> %(log)s
    inputs: d1
    outputs: "d3.{{i}}"
    retries: 20
  p2:
    for: {i: 1..%(n)d}
    run: |
      %(trouble)s
      sleep 0.12; cat d3.{{i}} d1 > d5.{{i}}
      echo p2.{{i}} $SURELINE_SITE >> %(log)s
    inputs: ["d3.{{i}}", d1]
    outputs: "d5.{{i}}"
    retries: 20
  p3:
    for: {i: 1..%(n)d}
    run: |
      %(trouble)s
      sleep 0.06; tail -n 2 d5.{{i}} > d6.{{i}}
      echo p3.{{i}} $SURELINE_SITE >> %(log)s
    inputs: "d5.{{i}}"
    outputs: "d6.{{i}}"
    retries: 20
"""
TROUBLE = "case $SURELINE_SITE in ray) exit 1;; local) sleep 8;; esac"
"""One site fails everything, one is slow."""


@pytest.fixture
def lab(tmp_path, monkeypatch, slurm):
    pytest.importorskip("distributed", reason="dask is an extra")
    pytest.importorskip("ray", reason="ray is an extra")
    monkeypatch.setenv("SURELINE_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("PATH", slurm.environment["PATH"])
    for name, value in RAY_ENVIRONMENT.items():
        monkeypatch.setenv(name, value)
    (tmp_path / "labs").mkdir()
    (tmp_path / "work").mkdir()
    with DaskLab(tmp_path / "labs", threads=3) as dask, ray_head(tmp_path / "labs", 2) as address:
        catalog = site_catalog()
        catalog.add(SiteEntry("local", "local", 2.0))
        catalog.add(SiteEntry("slurm", "slurm", 6.0))
        catalog.add(SiteEntry("dask", "dask", 3.0, address=dask.address))
        catalog.add(SiteEntry("ray", "ray", 2.0, address=address))
        yield dask


@pytest.fixture
def with_ssh(lab, sshd, tmp_path):
    settings = {"config": str(sshd.directory / "client.conf")}
    entry = SiteEntry("ssh", "ssh", 2.0, 0, f"{tmp_path}/by-ssh", "lab", settings=settings)
    site_catalog().add(entry)
    return lab


def right(work: Path, n: int) -> None:
    for i in range(1, n + 1):
        assert (work / f"d6.{i}").read_bytes() == bytes(1000) + b"%d\ngiven\n" % i, i


def _lines(log: Path) -> int:
    return len(log.read_text().splitlines()) if log.exists() else 0


def counted(log: Path) -> Counter[str]:
    return Counter(line.split()[0] for line in log.read_text().splitlines())


@pytest.mark.parametrize("n", [12, 100])
def test_one_run_over_four_sites(lab, tmp_path, n):
    """One site is stopped during it, one fails everything, one is slow."""
    work, log = tmp_path / "work", tmp_path / "ran.log"
    write(work, "d1", "given\n")
    write(work, "pipes.yaml", PIPES % {"n": n, "log": log, "trouble": TROUBLE})
    stopping = threading.Event()

    def stop_dask() -> None:
        until(lambda: _lines(log) > n, timeout_s=LONG_S)
        lab.kill("worker")
        lab.kill("scheduler")
        stopping.set()

    threading.Thread(target=stop_dask, daemon=True).start()
    flags = ("--sites", "all", "--with", "idle_s=20", "--progress", "none", "--json")
    with started(work, "run", "pipes.yaml", *flags, cold=True) as run:
        said = run.end(timeout_s=900)
    assert said.code == 0 and stopping.is_set(), said
    right(work, n)
    ran = counted(log)
    assert set(ran) == {f"p{k}.{i}" for k in (1, 2, 3) for i in range(1, n + 1)}
    sites = {one["site"]: one for one in sureline(work, "sites", "--json").json["sites"]}
    print({name: (one["submitted"], one["ended"], one["failed"]) for name, one in sites.items()})
    twice = {name for name, times in ran.items() if times > 1}
    assert twice <= lost_at(work, "dask") and len(twice) <= 3, "only what died with its site"
    assert sites["ray"]["ended"] == 0 and sites["ray"]["submitted"] < 30
    if n == 100:  # of few tasks, the first ones count for much
        assert sites["local"]["ended"] < 0.15 * 300 < 0.5 * sites["slurm"]["ended"]


def lost_at(work: Path, site: str) -> set[str]:
    """The tasks that the site had lost, as their log names them."""
    ends = [e for e in events(work) if isinstance(e, TaskEnded) and e.outcome == "lost"]
    return {e.task.replace(":", ".") for e in ends if e.peer == site}


@pytest.mark.parametrize("seed", range(10))
def test_a_submitter_killed_twice_at_random_over_all(with_ssh, tmp_path, seed):
    n, work, log = 6, tmp_path / "work", tmp_path / "ran.log"
    write(work, "d1", "given\n")
    write(work, "pipes.yaml", PIPES % {"n": n, "log": log, "trouble": ":"})
    draw = random.Random(seed)
    words = ["run", "pipes.yaml", "--sites", "all"]
    for share in sorted(0.8 * draw.random() for _ in range(2)):
        with started(work, *words, cold=True) as run:
            until(
                lambda run=run, share=share: run.over() or _lines(log) >= share * 3 * n,
                timeout_s=LONG_S,
            )
            time.sleep(0.5 * draw.random())
            assert not run.over(), "it is killed while there is something left to do"
            run.kill()
        words = ["resume", "last"]
    said = sureline(work, *words, timeout_s=LONG_S)
    assert said.code == 0, said
    right(work, n)
    ran = counted(log)
    assert set(ran.values()) == {1} and len(ran) == 3 * n, f"seed {seed}: {ran}"
