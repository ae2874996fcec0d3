"""Sureline on one machine against its rivals, and against two floors.

    python benchmarks/local.py [--only sureline,ray] [--workloads calls,graph] [--scale 0.02]

Installs each rival into an environment of its own (outside the repository), then runs calls, a
graph of calls, commands, warm and cold starts, and prints medians, ratios and which targets are
met. `rivals/stage.py` says how CPU and memory are measured, docs/benchmarks.md what the workloads
are. Exit code 1 if sureline itself failed anywhere; a rival's failure is told, not fatal.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib.metadata
import importlib.util
import json
import os
import platform
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from statistics import median
from typing import Any

from rivals import install, judge, noise, page, stage
from rivals.work import WORKLOADS

DOCS = Path(__file__).resolve().parent.parent / "docs" / "benchmarks.md"
OTHERS_CORES_QUIET = 0.1
"""The machine counts as quiet if others keep less than this busy."""

NOISE_SHORTEST_S = 0.5
"""Over less time than this, the kernel's ticks say too little of what others used."""


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def names(known: Sequence[str]) -> Any:
    """An argument type: names from a list, separated by commas."""

    def parse(text: str) -> list[str]:
        wanted = text.split(",")
        unknown = [name for name in wanted if name not in known]
        if unknown:
            raise argparse.ArgumentTypeError(f"{', '.join(unknown)}: not one of {', '.join(known)}")
        return [name for name in known if name in wanted]

    return parse


def options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", type=names(judge.CONTESTANTS), default=list(judge.CONTESTANTS))
    parser.add_argument("--workloads", type=names(WORKLOADS), default=list(WORKLOADS))
    parser.add_argument("--repeat", type=int, default=3, help="how often; medians are reported")
    parser.add_argument("--scale", type=float, default=1.0, help="0.02 for a quick look")
    parser.add_argument("--rivals", type=Path, default=install.default_directory())
    parser.add_argument("--json", type=Path, help="write all samples and figures to this file")
    parser.add_argument("--write-docs", action="store_true", help=f"write {DOCS.name} in docs/")
    given = parser.parse_args(arguments)
    if given.repeat < 1 or not 0 < given.scale <= 100:
        parser.error("--repeat must be 1 or more, --scale above 0 and at most 100")
    return given


def environments(contestants: list[str], directory: Path) -> dict[str, install.Environment]:
    found = {}
    for name in contestants:
        if name in install.REQUIREMENTS:
            say(f"{name}: looking for {install.REQUIREMENTS[name]} in {directory} ...")
            found[name] = install.environment(name, directory)
            if found[name].reason:
                say(f"{name}: {found[name].reason}")
        else:
            version = importlib.metadata.version("sureline")
            versions = {"sureline": version} if name == "sureline" else {}
            found[name] = install.Environment(Path(sys.executable), versions)
    return found


def one_round(
    given: argparse.Namespace, found: dict[str, install.Environment], repeat: int
) -> list[stage.Sample]:
    """Every contestant once in every workload. Within a workload they take turns."""
    samples = []
    for workload in given.workloads:
        for name in given.only:
            environment = found[name]
            if environment.reason or not judge.entered(name, workload):
                continue
            sample = stage.play(
                name, environment.python, workload, stage.Setting(given.scale), repeat
            )
            samples.append(sample)
            say(f"  {workload:9}{name:11}{sample.reason or told(sample)}")
    return samples


def told(sample: stage.Sample) -> str:
    return "  ".join(
        f"{name} {value:.4g}" for name, value in sample.figures.items() if name != "tasks"
    )


def machine() -> dict[str, Any]:
    cpu = [line for line in Path("/proc/cpuinfo").read_text().splitlines() if "model name" in line]
    return {
        "processor": cpu[0].partition(":")[2].strip() if cpu else platform.machine(),
        "cores": os.cpu_count(),
        "memory_bytes": os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "file_system": file_system(tempfile.gettempdir()),
    }


def file_system(directory: str) -> str:
    """Its type: on one in memory, syncs cost nothing and figures flatter whoever syncs."""
    device = os.stat(directory).st_dev
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        if line.split()[2] == f"{os.major(device)}:{os.minor(device)}":
            return line.partition(" - ")[2].split()[0]
    return "unknown"


def source_digest() -> str:
    """Of sureline's own files: medians over a source that changed meanwhile are of no version."""
    spec = importlib.util.find_spec("sureline")
    assert spec is not None and spec.origin is not None, "sureline is not installed here"
    digest = hashlib.sha256()
    for path in sorted(Path(spec.origin).parent.rglob("*.py")):
        digest.update(str(path).encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()


def summary(
    given: argparse.Namespace,
    found: dict[str, install.Environment],
    samples: list[stage.Sample],
    spins: list[dict[str, float]],
    sources: list[str],
) -> dict[str, Any]:
    figures = judge.medians(samples)
    others = [
        s.figures["others_cores"]
        for s in samples
        if s.figures.get("elapsed_s", 0.0) >= NOISE_SHORTEST_S
    ]
    others_cores = median(others) if others else 0.0
    whole = [
        s.figures["tasks"] / s.figures["elapsed_s"] for s in samples if s.figures.get("clock_s")
    ]
    return {
        "benchmark": "local",
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
        "repeat": len(spins),
        "scale": given.scale,
        "machine": machine(),
        "sources": sources,
        "source_changed": len(set(sources)) > 1,
        "noise": {
            "spins": spins,
            "others_cores_median": others_cores,
            "quiet": others_cores < OTHERS_CORES_QUIET,
        },
        "contestants": {
            name: {"reason": one.reason, "versions": one.versions} for name, one in found.items()
        },
        "medians": figures,
        "ratios": judge.ratios(figures),
        "targets": [asdict(verdict) for verdict in judge.verdicts(figures)],
        "commands_with_start_per_s": median(whole) if whole else None,
        "samples": [asdict(sample) for sample in samples],
    }


def report(result: dict[str, Any]) -> None:
    print(page.table(result, page.SPEED), page.table(result, page.COST), sep="\n\n")
    print("", *page.verdict_lines(result), sep="\n")
    print("", *(f"FAILED  {line}" for line in page.losses(result)), sep="\n")
    if result["source_changed"]:
        print(page.SOURCE_CHANGED)
    if not result["noise"]["quiet"]:
        busy = result["noise"]["others_cores_median"]
        print(f"The machine was not quiet: others kept {busy:.2f} cores busy.")


def replace(path: Path, text: str) -> None:
    """All or nothing: a page or result that is there stays whole until the new one is."""
    partial = path.with_name(f".{path.name}.partial")
    partial.write_text(text)
    partial.replace(path)


def main(arguments: Sequence[str] | None = None) -> int:
    given = options(arguments)
    # Ended by a signal, we still end what we started.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended by a signal"))
    stage.become_subreaper()
    found = environments(given.only, given.rivals.resolve())
    samples: list[stage.Sample] = []
    spins: list[dict[str, float]] = []
    sources = [source_digest()]
    result: dict[str, Any] = {}
    for repeat in range(given.repeat):
        spins.append(noise.spin())
        say(f"repeat {repeat + 1} of {given.repeat}: spin took {spins[-1]['wall_s']:.2f} s")
        samples += one_round(given, found, repeat)
        sources.append(source_digest())
        result = summary(given, found, samples, spins, sources)
        if given.json:  # after each repeat: a long run that is broken off is not lost
            replace(given.json, json.dumps(result, indent=2) + "\n")
    if given.write_docs:
        replace(DOCS, page.page(result))
    report(result)
    return int(any(s.reason for s in samples if s.contestant == "sureline"))


if __name__ == "__main__":
    sys.exit(main())
