"""The paper's twelve sites and its workflow, with the numbers that it prints."""

from __future__ import annotations

from sureline.experiments.site_model import SiteTrait
from sureline.workflow.model import Command, Graph, Takes, Task

TITLE = "An Opportunistic Algorithm for Scheduling Workflows on Grids"
SITES = {
    "UIOWA_OSG_PROD": 6,
    "HAMPTONU": 8,
    "PURDUE_PHYSICS": 63,
    "UFLORIDA_IHEPA": 70,
    "UWMADISON": 83,
    "UC_ATLAS": 110,
    "UTA_DPCC": 148,
    "UERJ_HEPGRID": 160,
    "CIT_T2": 224,
    "UWMILWAUKEE": 304,
    "OSG_LIGO_PSU": 314,
    "USCMS_FNAL": 989,
}
PIPELINES = 100
WORK_S = {"p1": 300.0, "p2": 120.0, "p3": 60.0}
TRANSFER_S = {"p1": 17.0, "p2": 27.0, "p3": 13.0}
FILE_BYTES = 1_000_000
FILE_RATE = 114_000
"""Bytes per second: the paper's transfers are 57 s for six files."""
LOADS = {
    "light": (0.0, 0.2, 0.4, 0.6, 0.8, 0.9, 1.0),
    "paper": (0.3, 0.6, 0.8, 0.9, 0.95, 0.98, 1.0, 1.0),
    "heavy": (0.9, 0.95, 0.98, 0.99, 1.0, 1.0, 1.0),
}
"""Shares of a site's processors that others may use, each as likely as the next."""
OTHERS_EVERY_S = 1200.0
IDLE_S = 300.0
PAPERS = ("printed", "weighted-random", "round-robin", "last-used", "data-present")
"""The five that the paper compares; its own as it is printed."""
MODERN = ("opportunistic", "random", "thompson", "ucb", "forecast")
SPEED_UP = 25.0
"""What the paper's Fig. 9 shows for its own, about."""
STEPS = 12
"""Points of a curve of Fig. 7."""
FIRST_JOBS = 100
SEQUENTIAL_S = PIPELINES * (sum(WORK_S.values()) + sum(TRANSFER_S.values()))
"""What one processor takes for all jobs and transfers."""


def pipelines(count: int = PIPELINES, file_bytes: int = FILE_BYTES) -> Graph:
    """Fig. 5 and 6: P1 reads D1 and a file of D2, P2 its output, D1 and a file of D4, P3 P2's."""
    tasks: list[Task] = []
    sizes = {"d1": file_bytes}
    for n in range(count):
        for kind, inputs, output in (
            ("p1", ("d1", f"d2.{n}"), f"d3.{n}"),
            ("p2", (f"d3.{n}", "d1", f"d4.{n}"), f"d5.{n}"),
            ("p3", (f"d5.{n}",), f"d6.{n}"),
        ):
            tasks.append(timed(f"{kind}:{n}", WORK_S[kind], inputs, (output,)))
            sizes.update(dict.fromkeys((*inputs, output), file_bytes))
    return Graph("pipelines", tasks, file_sizes=sizes)


def timed(name: str, seconds: float, inputs: tuple[str, ...], outputs: tuple[str, ...]) -> Task:
    """A task that takes so long, whatever it does."""
    return Task(
        name,
        Command(f"sleep {seconds:g}"),
        inputs=inputs,
        outputs=outputs,
        takes=Takes(seconds, seconds, seconds),
        retries=10,
    )


def twelve_sites(load: str = "paper") -> list[SiteTrait]:
    return [
        SiteTrait(name, processors, LOADS[load], OTHERS_EVERY_S, 1 / FILE_RATE)
        for name, processors in SITES.items()
    ]
