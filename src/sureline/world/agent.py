"""Agents: plain state plus typed handlers.

A subclass marks its handlers with `@handles(MessageType)`; `receive` finds the handler by the
message's type in a table made once per class. A message without a handler is a programming
error in the sender, not a reason to crash the receiver: it is counted and dropped.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any, ClassVar, TypeVar

from sureline.world.protocol import AgentId, Message, World

M = TypeVar("M", bound=Message)
A = TypeVar("A", bound="Agent")
Handler = Callable[[A, AgentId, M], None]
HandlerTable = Mapping[type[Message], Callable[[Any, AgentId, Any], None]]
NO_HANDLERS: HandlerTable = {}


def handles(*messages: type[M]) -> Callable[[Handler[A, M]], Handler[A, M]]:
    """Mark a method as the handler of one type of message, or of several."""

    def mark(method: Handler[A, M]) -> Handler[A, M]:
        method._handles = messages  # type: ignore[attr-defined]  # a mark that __init_subclass__ reads
        return method

    return mark


class Agent:
    """Base of all agents. `me` is the agent's address."""

    __slots__ = ("_handlers", "me", "unhandled", "world")

    _table: ClassVar[dict[type[Message], Callable[[Any, AgentId, Any], None]]] = {}

    def __init__(self, me: AgentId, world: World) -> None:
        self.me = me
        self.world = world
        self.unhandled = 0
        self._handlers = self._table  # found sooner here than in the class

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        table = dict(cls._table)
        for value in vars(cls).values():
            for message in getattr(value, "_handles", ()):
                table[message] = value
        cls._table = table

    @classmethod
    def hears(cls, message: type[Message]) -> bool:
        """Whether there is a handler for this type of message."""
        return message in cls._table

    def unlearn(self, tags: Collection[str]) -> None:
        """Be as an agent of another version that does not know the messages with these tags."""
        if tags:
            self._handlers = {
                message: handler
                for message, handler in self._handlers.items()
                if message.__struct_config__.tag not in tags
            }

    def direct_handlers(self) -> HandlerTable:
        """The handlers, to be called without `receive`; none if a subclass does more there."""
        return self._handlers if type(self).receive is Agent.receive else NO_HANDLERS

    def receive(self, sender: AgentId, message: Message) -> None:
        try:
            handler = self._handlers[type(message)]
        except KeyError:
            self.unhandled += 1
        else:
            handler(self, sender, message)
