"""Learned waits on a real Slurm that others keep busy: does the promise hold as often as it says?

What a job takes beyond its work is learned as pilots' start-ups are. Beside it, what `squeue
--start` says of the same jobs a few seconds after they were submitted.
"""

from __future__ import annotations

import json
import os
import random
import statistics
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import pytest
from slurm_lab import SlurmLab, unavailable

from sureline.compose.pilots import planning
from sureline.compose.terms import Before
from sureline.forecast.result import Forecast
from sureline.sites.order import PilotOrder, PilotShape, SiteChoice
from sureline.sites.port import JobId, SiteError, SiteWork
from sureline.sites.slurm import SlurmSite
from sureline.sites.waits import WaitBook, WaitFor, WaitSeen
from sureline.workflow.yaml_reader import read_yaml

T = TypeVar("T")
SUBMISSIONS = int(os.environ.get("SURELINE_SUBMISSIONS", "60"))
LEARNING = int(os.environ.get("SURELINE_LEARNING", "20"))
EVERY_S = float(os.environ.get("SURELINE_EVERY_S", "8"))
CORES = 4
LIMIT_S = 120.0
LOAD = 0.85
OTHERS_S = (2.0, 18.0)
SHARES = (0.5, 0.8, 0.9)
FLOW = "tasks: {work: {run: 'true', takes: 2s..4s..6s}}"


def others(lab: SlurmLab, stop: threading.Event, rng: random.Random) -> None:
    """Jobs of other people: they come at random, and run shorter than they say."""
    mean_s = sum(OTHERS_S) / 2
    while not stop.wait(rng.expovariate(CORES * LOAD / mean_s)):
        lab.submit(f"sleep {rng.uniform(*OTHERS_S):.1f}", "--time=2")


@pytest.mark.soak
def test_promises_hold_as_often_as_they_say(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    if why := unavailable():
        pytest.skip(why)
    rng = random.Random(15)
    with SlurmLab(tmp_path / "slurm", cores=CORES) as lab:
        monkeypatch.setenv("SLURM_CONF", str(lab.conf))
        stop = threading.Event()
        crowd = threading.Thread(target=others, args=(lab, stop, rng))
        crowd.start()
        try:
            figures = measured(lab, tmp_path, rng)
        finally:
            stop.set()
            crowd.join()
    print(json.dumps(figures, indent=1))
    for share, held in figures["promised"].items():
        margin = 3 * (float(share) * (1 - float(share)) / SUBMISSIONS) ** 0.5
        assert abs(held - float(share)) <= margin, figures


def measured(lab: SlurmLab, directory: Path, rng: random.Random) -> dict[str, object]:
    graph = read_yaml(FLOW, file="flow.yaml", directory=directory).graph
    site = SlurmSite(directory / "spool")
    book = WaitBook(directory / "waits.jsonl")
    order = PilotOrder((SiteChoice("slurm"),), PilotShape(lifetime_s=LIMIT_S), 1)
    forecast = planning.PilotForecasts(graph, Before({}, ()), order).at(1)
    asked: dict[JobId, tuple[float, dict[float, float] | None, int | None]] = {}
    estimates: dict[JobId, float] = {}
    waits: dict[JobId, float] = {}
    works_s: dict[JobId, float] = {}
    total: dict[JobId, float] = {}
    for number in range(LEARNING + SUBMISSIONS):
        promises, ahead = None, patiently(site.ahead)
        if number >= LEARNING:
            promises = promised(forecast, book, ahead)
        work_s = rng.triangular(2, 6, 4)
        tag = f"ours-{number}"
        work = SiteWork(tag=tag, argv=("sleep", f"{work_s:.2f}"), limit_s=LIMIT_S)
        (job,) = site.submit(work)
        asked[job] = (time.time(), promises, ahead)
        works_s[job] = work_s
        next_at = time.monotonic() + EVERY_S
        while time.monotonic() < next_at:
            time.sleep(1.0)
            look(lab, site, asked, estimates, waits, works_s, total, book)
    while len(total) < len(asked):
        time.sleep(1.0)
        look(lab, site, asked, estimates, waits, works_s, total, book)
    return summary(asked, estimates, waits, total)


def patiently(ask: Callable[[], T]) -> T:
    """A machine that is busy with other things lets Slurm's commands wait for too long."""
    while True:
        try:
            return ask()
        except SiteError as error:
            if not error.again:
                raise


def promised(forecast: Forecast, book: WaitBook, ahead: int | None) -> dict[float, float]:
    """By when, after its submission, the work is done with each chance."""
    wait = book.expected(WaitFor(time.time(), "slurm", "", 1, LIMIT_S, ahead))
    assert wait.is_known
    delays_s = wait.then_up_s(book.coming_up("slurm", ""))
    return {share: planning.done_s(forecast, delays_s, share) for share in SHARES}


def look(lab, site, asked, estimates, waits, works_s, total, book) -> None:
    open_jobs = [job for job in asked if job not in total]
    for job, status in patiently(lambda: site.look(open_jobs)).items():
        if status.is_waiting and job not in estimates:
            said = lab.run(
                "env",
                "SLURM_TIME_FORMAT=%s",
                "squeue",
                "--start",
                "-h",
                "-r",
                "-j",
                job.partition("_")[0],
                "-o",
                "%S",
            ).split()
            if said and said[0].isdigit():
                estimates[job] = float(said[0]) - asked[job][0]
        if status.started_at is not None and job not in waits:
            assert status.submitted_at is not None
            waits[job] = status.started_at - status.submitted_at
        if status.is_over and job not in total:
            assert status.word == "ended" and status.ended_at is not None
            assert status.submitted_at is not None
            total[job] = status.ended_at - asked[job][0]
            up_s = max(0.0, status.ended_at - status.submitted_at - waits[job] - works_s[job])
            seen = (status.submitted_at, "slurm", "", 1, LIMIT_S, waits[job], asked[job][2], up_s)
            book.add(WaitSeen(*seen))


def summary(asked, estimates, waits, total) -> dict[str, object]:
    judged = {job: promises for job, (_, promises, _) in asked.items() if promises is not None}
    late = {
        share: sum(total[job] <= promises[share] for job, promises in judged.items()) / len(judged)
        for share in SHARES
    }
    both = [job for job in judged if job in estimates]
    off = [estimates[job] - waits[job] for job in both]
    return {
        "submissions": len(judged),
        "wait_s": {
            "median": statistics.median(waits.values()),
            "mean": round(statistics.mean(waits.values()), 1),
            "most": max(waits.values()),
        },
        "promised": {str(share): round(held, 3) for share, held in late.items()},
        "squeue_start": {
            "estimates": len(both),
            "started_by_then": round(sum(one >= -1 for one in off) / max(1, len(both)), 3),
            "median_error_s": round(statistics.median(off), 1) if off else None,
            "mean_absolute_error_s": round(statistics.mean(map(abs, off)), 1) if off else None,
        },
    }
