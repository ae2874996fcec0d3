"""The writer of a run: its engine, composed with the strategy that the run has chosen."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from sureline.journal.history import Observed
from sureline.run.engine import Hearers, RunEngine
from sureline.run.fence import Fence, Gate
from sureline.run.options import Options, Past
from sureline.run.port import Deciding, Seat
from sureline.strategies import settings_of, strategy
from sureline.workflow.model import Graph
from sureline.world.address import Node, at
from sureline.world.agent import Agent
from sureline.world.protocol import AgentId, World

History = Callable[[], Mapping[str, Sequence[Observed]]]
Place = Callable[[AgentId], World]


def make_writer(
    node: Node,
    me: AgentId,
    place: Place,
    run: str,
    graph: Graph,
    options: Options,
    past: Past,
    history: History,
    hearers: Hearers,
    *,
    epoch: int = 0,
    gate: Gate | None = None,
    papers: bytes = b"",
    deciding: Callable[[Seat], Deciding] | None = None,
) -> tuple[RunEngine, list[Agent]]:
    """The engine, and all agents that are to be joined: it, and the strategy's own. `options` name
    their strategy (`strategies.resolved`); `deciding` is one to compare it with."""
    found = strategy(options.strategy)
    gate = gate or Gate()
    seat_at = at(node, f"{found.name}.{run}")
    seat = Seat(
        seat_at,
        Fence(place(seat_at), gate),
        run,
        settings_of(found, options.settings),
        history,
    )
    half = (deciding or found.deciding)(seat)
    engine = RunEngine(
        me,
        place(me),
        run,
        graph,
        options,
        half,
        hearers,
        past=past,
        epoch=epoch,
        gate=gate,
        papers=papers,
    )
    return engine, [engine] if half.agent is None else [engine, half.agent]
