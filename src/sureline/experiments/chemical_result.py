"""What reproducing the paper on the chemically coordinated shared space gives, as data."""

from __future__ import annotations

import msgspec

TITLE = "Decentralised Multiple Workflow Scheduling via a Chemically-coordinated Shared Space"


class ChemicalCell(msgspec.Struct, frozen=True):
    """One simulation. Times are in steps, of which one is one hop."""

    nodes: int
    workflows: int
    exclusive: bool
    """Whether a resource is one task's at a time; in the paper it is anybody's."""
    barriers: bool
    way: str
    """How a range is asked: pieces (as the paper assumes), links (from neighbour to neighbour), or
    anywhere (from any place in it on)."""
    tasks: int
    mean_steps: float
    """Of a workflow, from its entry to its result."""
    first_steps: float
    """The same, of the first ten, which are alike in all cells."""
    all_steps: int
    messages: int
    republishing: int
    """Messages among them by which resources are withdrawn and published again."""
    queries: int
    query_messages: int
    messages_per_node: float
    busiest: int
    """Messages that the busiest node received."""

    @property
    def per_task(self) -> float:
        return self.messages / max(1, self.tasks)

    @property
    def skew(self) -> float:
        """The busiest node's messages by the mean."""
        return self.busiest / max(1e-9, self.messages_per_node)


class Fit(msgspec.Struct, frozen=True):
    """How well a straight line over some measure of n describes what was found."""

    what: str
    over: str
    slope: float
    r2: float


class ChemicalClaim(msgspec.Struct, frozen=True):
    what: str
    """In the paper's words, or nearly."""
    ours: str
    verdict: str


class Reacted(msgspec.Struct, frozen=True):
    """One step of Fig. 5: what reacted, and what is left."""

    said: str
    left: str


class Range(msgspec.Struct, frozen=True):
    """Range queries of the real agents: messages for one, by both ways, and by the model."""

    nodes: int
    lookup_questions: float
    model_hops: float
    links: float
    pieces: float
    right: int
    """Answers that were what a full scan gives, best first, whatever site it is on, ..."""
    asked: int
    """... of so many."""


class Crashed(msgspec.Struct, frozen=True):
    """Real agents, simulated: the same workflows, and so many of the machines killed."""

    killed: int
    machines: int
    workflows: int
    finished: int
    makespan_s: float
    problems: int
    """Of all that is checked of a run: each task committed once, outputs right, ..."""


class ChemicalReproduced(msgspec.Struct, frozen=True):
    paper: str
    nodes: int
    workflows: int
    seed: int
    cells: list[ChemicalCell]
    fits: list[Fit]
    claims: list[ChemicalClaim]
    fig5: list[Reacted]
    barriers: list[ChemicalCell]
    """The same workflows with and without, shared and exclusive."""
    balance: list[ChemicalCell]
    ranges: list[Range]
    crashes: list[Crashed]
    cpu_s: float
