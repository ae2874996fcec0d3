"""Tasks, resources and queries: between our own types and the notation of rules."""

from __future__ import annotations

from collections.abc import Mapping
from math import inf

from sureline.chemistry import Molecule, Solution, Symbol
from sureline.overlay.kademlia.ids import key_of
from sureline.overlay.ring import Feature, Query, ValueRange
from sureline.workflow.model import Graph, Needs, kind_of
from sureline.workflow.quantities import format_size

FEATURES = (
    Feature("load", 0.0, 32.0),
    Feature("cores", 0.0, 128.0),
    Feature("memory", 0.0, float(1 << 40)),
)
"""What resources can be ranked by, and between which values most of them lie. Who has something
free has a load below 1: that is a small arc, so a look in vain asks few nodes."""
_NAME_MAX = 200


def task_molecule(graph: Graph, task: int) -> Molecule:
    """`TASK:id:<command:<CORES:c, MEMORY:m, DISK:d, GPUS:g, TAG:t:n ...>>:<DEST:id, ...>`. The
    command is told by its kind: whoever binds the task has it whole."""
    described = graph.tasks[task]
    needs = described.needs
    wants: list[Molecule] = [
        (Symbol("CORES"), needs.cores),
        (Symbol("MEMORY"), needs.memory_bytes),
        (Symbol("DISK"), needs.disk_bytes),
        (Symbol("GPUS"), needs.gpus),
        *((Symbol("TAG"), tag, count) for tag, count in needs.tags),
    ]
    work = Solution([(kind_of(described.name)[:_NAME_MAX], Solution(wants))])
    to = Solution((Symbol("DEST"), graph.tasks[child].name) for child in graph.children[task])
    return (Symbol("TASK"), described.name, work, to)


def without_dests(task: Molecule) -> Molecule:
    """As it goes into the ring: where results go is the writer's affair, and a task may have ten
    thousand that wait for it."""
    assert isinstance(task, tuple)
    return (*task[:3], Solution(()))


def needs_of(task: Molecule) -> Needs:
    """What a task molecule says that it needs; as much as nothing where it makes no sense."""
    found: dict[str, float] = {}
    tags: list[tuple[str, int]] = []
    match task:
        case (Symbol("TASK"), _, Solution(molecules=((_, Solution(molecules=wants)),)), *_):
            for want in wants:
                match want:
                    case (Symbol("TAG"), str(tag), int(count)):
                        tags.append((tag, count))
                    case (Symbol(name), int() | float() as value):
                        found[name] = value
                    case _:
                        pass
        case _:
            pass
    return Needs(
        cores=found.get("CORES", 0),
        memory_bytes=int(found.get("MEMORY", 0)),
        disk_bytes=int(found.get("DISK", 0)),
        gpus=int(found.get("GPUS", 0)),
        tags=tuple(tags),
    )


def resource_molecule(peer: str, features: Mapping[str, float]) -> Molecule:
    """`RES:peer:<CORES:c, MEMORY:m, DISK:d, GPUS:g, LOAD:l>`: what is free."""
    told = ("cores", "memory", "disk", "gpus", "load")
    parts = ((Symbol(name.upper()), features.get(name, 0.0)) for name in told)
    return (Symbol("RES"), peer, Solution(parts))


def ready_molecule(task: str, since: float, takes_s: float, rank_s: float, due: float) -> Molecule:
    """`READY:id:<SINCE:t, TAKES:s, RANK:s, DUE:t>`: what an order can go by."""
    parts = {"SINCE": since, "TAKES": takes_s, "RANK": rank_s, "DUE": due}
    return (Symbol("READY"), task, Solution((Symbol(k), v) for k, v in parts.items()))


def level_key(run: str, epoch: int, level: int) -> bytes:
    return key_of(f"chemical {run} {epoch} level {level}")


def task_key(run: str, epoch: int, task: str, generation: int) -> bytes:
    """A key has one maker, and is used once: `generation` tells a task's molecules apart."""
    return key_of(f"chemical {run} {epoch} task {generation} {task}")


def free_query(limits: Mapping[str, ValueRange], needs: Needs, rank: str, highest: bool) -> Query:
    """Resources that have it now; of those for which others wait as well, `busy_query` tells."""
    if rank == "load":
        limits = {"load": ValueRange(high=1.0, high_open=True), **limits}
    tags = {f"tag.{tag}": ValueRange(low=float(count)) for tag, count in needs.tags}
    return Query(rank, {**limits, **tags}, highest)


def busy_query(needs: Needs) -> Query:
    """Resources that are large enough, with the least to do."""
    wants = {
        "all.cores": ValueRange(low=needs.cores),
        "all.memory": ValueRange(low=float(needs.memory_bytes)),
        "all.disk": ValueRange(low=float(needs.disk_bytes)),
        "all.gpus": ValueRange(low=float(needs.gpus)),
    }
    tags = {f"tag.{tag}": ValueRange(low=0.0) for tag, _ in needs.tags}
    return Query("load", {**wants, **tags})


def in_words(query: Query) -> str:
    """
    >>> in_words(Query("load", {"cores": ValueRange(low=2.0), "memory": ValueRange(low=4e9)}))
    'cores >= 2 and memory >= 4GB, lowest load first'
    """
    parts = []
    for name, limits in query.wants.items():
        show = _size if name.endswith(("memory", "disk")) else "{:g}".format
        if limits.low > 0 or (limits.low == 0 and limits.low_open):
            parts.append(f"{name} {'>' if limits.low_open else '>='} {show(limits.low)}")
        if limits.high < inf:
            parts.append(f"{name} {'<' if limits.high_open else '<='} {show(limits.high)}")
    first = f"{'highest' if query.highest else 'lowest'} {query.rank} first"
    return f"{' and '.join(parts) or 'anything'}, {first}"


def _size(size_bytes: float) -> str:
    return format_size(int(size_bytes))
