"""What a run's writer, the holders of molecules and the owners of resources say to each other.

Everything may be lost or come twice. The writer's words are repeated until they are answered; a
holder gives up after a while, and its molecule is then somebody else's, or made anew by the writer.
"""

from __future__ import annotations

from typing import Annotated

import msgspec

from sureline.chemistry import ChemistryError, Molecule, Symbol, parse_molecules
from sureline.overlay.ring.messages import Agent, Count, Features, Key
from sureline.strategies.chemical.rulebook import TEXT_MAX
from sureline.workflow.model import Needs
from sureline.world.protocol import Message

Text = Annotated[str, msgspec.Meta(max_length=500)]
Texts = Annotated[tuple[Text, ...], msgspec.Meta(max_length=16)]
Tasks = Annotated[tuple[Text, ...], msgspec.Meta(max_length=1000)]
Value = Annotated[bytes, msgspec.Meta(max_length=65_536)]
Rules = Annotated[str, msgspec.Meta(max_length=TEXT_MAX)]


class Envelope(msgspec.Struct, frozen=True, array_like=True):
    """What lies in the ring: a molecule in notation, and whose it is."""

    run: Text
    epoch: Count
    writer: Agent
    rules: Rules
    """Which it reacts by; '' for the usual ones."""
    text: str
    keys: dict[str, float]
    """By task: what the order made of it; lower goes first."""
    but: Texts = ()
    """Peers that are not to be tried at first."""

    def packed(self) -> bytes:
        return msgspec.msgpack.encode(self)

    @staticmethod
    def of(value: bytes) -> Envelope | None:
        try:
            return _decode_envelope(value)
        except msgspec.DecodeError:
            return None

    def molecule(self) -> Molecule | None:
        try:
            found = parse_molecules(self.text, {})
        except ChemistryError:
            return None
        return found[0] if len(found) == 1 else None


_decode_envelope = msgspec.msgpack.Decoder(Envelope).decode


def id_of(task: Molecule) -> str:
    match task:
        case (Symbol("TASK"), str(name), *_):
            return name
        case _:
            return ""


class ChemicalMessage(Message, frozen=True):
    run: Text


class NumberedMessage(ChemicalMessage, frozen=True):
    """A question or its answer, which has the same number."""

    number: Count


# The writer, to any node, and back.


class Enter(NumberedMessage, frozen=True, tag="chemical.enter"):
    """Put this into the ring. Answered by Entered."""

    key: Key
    value: Value


class Entered(NumberedMessage, frozen=True, tag="chemical.entered"):
    kept: bool
    """False if it is not there, or nobody knows."""


# A task's holder and the writer.


class Deploy(NumberedMessage, frozen=True, tag="chemical.deploy"):
    """Advice: bind the task there, where `token` holds a place for it. Answered by Answered."""

    task: Text
    peer: Text
    token: Count
    said: Annotated[str, msgspec.Meta(max_length=2000)]
    """How it came to that, for people."""


class Answered(NumberedMessage, frozen=True, tag="chemical.answered"):
    bound: bool
    over: bool
    """The task needs no place any more."""


class Seeks(ChemicalMessage, frozen=True, tag="chemical.seeks"):
    """A holder has the task and found no resource yet."""

    task: Text
    said: Annotated[str, msgspec.Meta(max_length=2000)]


# A level's holder and the writer.


class Tending(ChemicalMessage, frozen=True, tag="chemical.tending"):
    """I have this level, which is running: which of its tasks are done? Answered by Done."""

    level: int


class Done(ChemicalMessage, frozen=True, tag="chemical.done"):
    level: int
    tasks: Tasks


# A task's holder and the owner of a resource.


class Take(NumberedMessage, frozen=True, tag="chemical.take"):
    """Give me so much of your resource, now or within `wait_s`; of several the lowest `key` is
    first. Answered by Taken or NotTaken."""

    task: Text
    needs: Needs
    key: float
    wait_s: Annotated[float, msgspec.Meta(ge=0, le=60)]


class Taken(NumberedMessage, frozen=True, tag="chemical.taken"):
    """It is yours for a while, and for good once a Bind claims the token."""

    token: Count
    others: Texts
    """Who else wanted it."""


class NotTaken(NumberedMessage, frozen=True, tag="chemical.not-taken"):
    why: Text
    others: Texts = ()


class GiveBack(ChemicalMessage, frozen=True, tag="chemical.give-back"):
    token: Count


class ResourceOffer(Message, frozen=True, tag="chemical.offers"):
    """What a machine has now, said to its own node; nothing if it takes nothing."""

    features: Features


MESSAGES = (
    *(Enter, Entered),
    *(Deploy, Answered, Seeks, Tending, Done),
    *(Take, Taken, NotTaken, GiveBack, ResourceOffer),
)
