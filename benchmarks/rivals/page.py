"""The results as a table for the terminal and as a page of the documentation."""

from __future__ import annotations

from typing import Any

from rivals.judge import CONTESTANTS, METRICS, Medians

TITLES = {
    "sureline": "**Sureline**",
    "ppe": "ProcessPoolExecutor (floor)",
    "spawn": "bare posix_spawn loop (floor)",
    "ray": "Ray",
    "parsl": "Parsl",
    "dask": "Dask",
    "hyperqueue": "HyperQueue",
}
PACKAGES = {"ray": "ray", "parsl": "parsl", "dask": "distributed", "hyperqueue": "hyperqueue"}
SPEED = METRICS[:5]
COST = METRICS[5:]
BYTES_PER_MB = 1e6
SOURCE_CHANGED = "Sureline's source changed during the run: its figures are of no one version."


def table(result: dict[str, Any], metrics: tuple[Any, ...]) -> str:
    figures: Medians = result["medians"]
    lines = [
        "| | " + " | ".join(metric.title for metric in metrics) + " |",
        "|---|" + "---|" * len(metrics),
    ]
    for name in CONTESTANTS:
        if name not in result["contestants"]:
            continue
        cells = [_cell(figures.get(metric.name, {}).get(name), metric, name) for metric in metrics]
        lines.append(f"| {_titled(name, result)} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _cell(figure: float | None, metric: Any, name: str) -> str:
    if figure is None:
        return "-"
    cell = str(metric.shown.format(figure / BYTES_PER_MB if "bytes" in metric.name else figure))
    as_commands = name == "hyperqueue" and metric.workload in ("graph", "warm", "cold")
    return f"{cell} (commands)" if as_commands else cell


def _titled(name: str, result: dict[str, Any]) -> str:
    version = result["contestants"][name]["versions"].get(PACKAGES.get(name, "sureline"), "")
    return f"{TITLES[name]} {version}".strip()


def verdict_lines(result: dict[str, Any]) -> list[str]:
    titles = {metric.name: metric.title for metric in METRICS}
    lines = []
    for verdict in result["targets"]:
        found = "no figure" if verdict["found"] is None else f"{verdict['found']:.2f}"
        title = titles[verdict["metric"]]
        lines.append(f"{verdict['verdict'].upper():8}{title} {verdict['wanted']}: {found}")
    return lines


def losses(result: dict[str, Any]) -> list[str]:
    """Who did not deliver what, and why; each reason once."""
    told: dict[str, None] = {}
    for name, contestant in result["contestants"].items():
        if contestant["reason"]:
            told[f"{name}: {contestant['reason']}"] = None
    for sample in result["samples"]:
        if sample["reason"]:
            told[f"{sample['contestant']}, {sample['workload']}: {sample['reason']}"] = None
    return list(told)


def page(result: dict[str, Any]) -> str:
    """docs/benchmarks.md."""
    lost = losses(result)
    missing = "\n".join(f"- {line}" for line in lost) if lost else "Nobody failed."
    verdicts = "\n".join(f"- {line}" for line in verdict_lines(result))
    noise = result["noise"]
    spins = ", ".join(f"{n['wall_s']:.2f}/{n['cpu_s']:.2f}" for n in noise["spins"])
    machine = result["machine"]
    return PAGE.format(
        speed=table(result, SPEED),
        cost=table(result, COST),
        verdicts=verdicts,
        missing=missing,
        repeats=result["repeat"],
        scale=result["scale"],
        date=result["date"],
        processor=machine["processor"],
        cores=machine["cores"],
        memory_gb=machine["memory_bytes"] / 1e9,
        python=machine["python"],
        kernel=machine["kernel"],
        file_system=machine["file_system"],
        spins=spins,
        others=noise["others_cores_median"],
        quiet="quiet" if noise["quiet"] else "**not quiet**",
        warning=f"\n**{SOURCE_CHANGED}**\n" if result["source_changed"] else "",
        with_start=_with_start(result),
    )


def _with_start(result: dict[str, Any]) -> str:
    rate = result["commands_with_start_per_s"]
    return "" if rate is None else f" ({rate:,.0f} commands/s with the start of its interpreter)"


PAGE = """\
# Measured against others

<!-- Written by `python benchmarks/local.py --write-docs`; do not edit. -->

Medians of {repeats} repeats at scale {scale:g} (1 is the full size), with 2 workers everywhere.
{warning}
{speed}

What it cost:

{cost}

## Targets

A ratio is Sureline's figure divided by the rival's.

{verdicts}

## Failures

{missing}

## Machine

{date}: {processor}, {cores} cores, {memory_gb:.0f} GB; Linux {kernel}, Python {python}; working
directories on {file_system}. The machine was {quiet}: others kept {others:.2f} cores busy during
the median measurement. A fixed loop on both cores, before each repeat, took (wall/CPU seconds):
{spins}.

## What is measured

Every contestant runs every workload in a fresh process and a fresh directory, one after the
other; the contestants take turns within each workload, and the whole round is repeated, so that a
noisy minute hits all alike. Start-up and a few warming tasks come before the clock starts, except
where the start is the matter. Every answer is verified.

- **no-op calls**: 10,000 calls that return their argument, all submitted one by one, then all
  results. Sureline: `Executor`.
- **graph calls**: 10 levels of 500 calls, each needing two of the level before. Sureline:
  `Workflow.call` and `flow.run`, from the empty workflow to the last value, journalled and
  crash-safe, start of its workers included. ProcessPoolExecutor goes level by level by hand.
- **/bin/true**: 2,000 commands. Sureline: `sureline run flow.yaml`, journalled and crash-safe, from
  opening the run to its last event, start of its workers included{with_start}.
  Ray, Dask and ProcessPoolExecutor call `subprocess.run` in a task, Parsl has bash apps,
  HyperQueue runs programs.
- **warm**: one call, submitted and awaited; the median of 300.
- **cold**: from the start of a new interpreter to the first call's result.
- **CPU**: user and system time of the whole process tree during the measured part, per task, from
  the kernel's clocks of the living processes and of all they have waited for. Exact to 10 ms per
  process; children of a process that ignores SIGCHLD are lost.
- **peak memory**: the largest sum of the tree's resident sets, sampled five times a second during
  the measured part. Pages that processes share count once for each.

HyperQueue's tasks are programs. Its calls are Python functions, each in an interpreter of its own
(measured on 300 calls, not 10,000); its graph, warm and cold figures are of commands. It gives no
values back and its client looks for ends once a second, so each of its jobs ends with a task that
needs all others and writes to a pipe; the clock stops at that. Its wheel has no `hq` program:
server and worker run inside the client's process.

Grids are compared by `benchmarks/grid.py`: see [how it scales](scale.md#a-grid-against-others).
Repeat it with `python benchmarks/local.py`; `--help` tells the rest. Rivals are installed by pip,
in pinned versions, into environments below `~/.cache/sureline-benchmarks`.
"""
