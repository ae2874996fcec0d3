"""What an assembly stands on: one node of some world."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, Protocol

from sureline.world.address import Node
from sureline.world.agent import Agent
from sureline.world.identity.revocations import RevocationList
from sureline.world.protocol import AgentId, World


class Ground(Protocol):
    """One process of one machine, from its start to its end."""

    @property
    def id(self) -> Node: ...

    def place(self, me: AgentId) -> World:
        """The World of the agent at address `me`, which is on this node."""

    def join(self, agent: Agent) -> None:
        """From now on messages to `agent.me` reach it."""

    def is_node(self, text: str) -> bool:
        """Whether this can be the address of a node: others may have said anything."""


class Standing(NamedTuple):
    """Who is out, as far as this machine knows, and how it tells a true list from a forged one."""

    verified: Callable[[bytes], RevocationList | None] = lambda signed: None
    known: RevocationList | None = None
    on_new: Callable[[RevocationList], None] = lambda revocations: None


NOBODY_OUT = Standing()
"""Where there are no certificates."""
