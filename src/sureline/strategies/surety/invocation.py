"""The seven calls between a scheduler and a provider, and their answers. All are asynchronous.

    SETUP      we are about to deal in a service              -> Ready or Declined
    SETPARAM   what the inputs are like, and when it may start -> Ready or Declined
    ESTIMATE   what would it cost, and how long would it take -> Offered or Declined
    INVOKE     do it, under that bid                          -> Invoked or Declined
    EXAMINE    how far is it                                  -> Examined
    EXTRACT    give me the result                             -> Extracted
    TERMINATE  end this task, or the whole dealing            -> Terminated

A *deal* is one dealing of one scheduler in one service with one provider; the scheduler numbers
them. A bid covers any number of tasks of the service, up to `slots` at once. Renegotiation is an
ESTIMATE with a `wish`: the provider changes its bid, holds it, or withdraws it (Declined).
Any message may be lost: whoever asked asks again, and every answer tells what it answers to.
INVOKE agrees on the contract for one attempt; the attempt itself travels as an ordinary `Bind` that
names the contract, so that results are reported, kept and acknowledged as on any peer.
"""

from __future__ import annotations

from typing import ClassVar, Literal

import msgspec

from sureline.strategies.surety.contract import Bid
from sureline.workflow.model import Needs, Takes
from sureline.world.protocol import WRITES, Message


class ProviderCall(Message, frozen=True, omit_defaults=True):
    """Base of what the scheduler asks. `serial` is told again in the answer."""

    needs_role: ClassVar[str] = WRITES

    run: str
    deal: int
    serial: int


class ProviderAnswer(Message, frozen=True, omit_defaults=True):
    """Base of what the provider answers."""

    needs_role: ClassVar[str] = "run"

    run: str
    deal: int
    serial: int


class Setup(ProviderCall, frozen=True, tag="surety.setup"):
    service: str
    epoch: int = 0


class Parameters(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a provider needs to know for its estimate."""

    needs: Needs = Needs()
    input_bytes: int = 0
    tasks: int = 1
    """How many tasks of this service the run still has."""
    start_in_s: float = 0.0
    """When the first of them is expected to start."""
    takes: Takes | None = None
    """What the scheduler knows of its duration on a machine of speed 1."""


class SetParam(ProviderCall, frozen=True, tag="surety.setparam"):
    parameters: Parameters


class EstimateCall(ProviderCall, frozen=True, tag="surety.estimate"):
    wish: Bid | None = None
    """Other terms that the scheduler would accept; None asks for the provider's own."""


class Invoke(ProviderCall, frozen=True, tag="surety.invoke"):
    """Agree on a contract. With a task, it is for that attempt and starts now; without one it is a
    reservation: the fee is due, and a place is held until the bid expires."""

    bid: Bid
    task: str = ""
    attempt: int = 0
    contract: str = ""
    """A contract made before (reserved), which is exercised now."""


class Examine(ProviderCall, frozen=True, tag="surety.examine"):
    task: str
    attempt: int


class Extract(ProviderCall, frozen=True, tag="surety.extract"):
    task: str
    attempt: int


class Terminate(ProviderCall, frozen=True, tag="surety.terminate"):
    """End one contract (and its attempt, if it runs), or with contract '' the whole deal."""

    contract: str = ""


class Ready(ProviderAnswer, frozen=True, tag="surety.ready"):
    pass


class Declined(ProviderAnswer, frozen=True, tag="surety.declined"):
    """`reason` is one sentence."""

    reason: str


class Offered(ProviderAnswer, frozen=True, tag="surety.offered"):
    bid: Bid
    slots: int
    """How many tasks of the service it would run for us at once, now."""
    wait_s: float = 0.0
    """How long a task would wait before it starts."""
    held: bool = False
    """A wish was declined, and this is the bid as it was."""


class Invoked(ProviderAnswer, frozen=True, tag="surety.invoked"):
    contract: str
    """Its number, for `Bind.contract`."""
    bid: Bid


class Examined(ProviderAnswer, frozen=True, tag="surety.examined"):
    state: Literal["unknown", "waiting", "running", "ended"]
    task: str = ""
    attempt: int = 0
    fraction: float | None = None
    """How much of it is done, if it says so."""
    elapsed_s: float = 0.0


class Extracted(ProviderAnswer, frozen=True, tag="surety.extracted"):
    """The report itself follows as `Finished`, if there is one."""

    state: Literal["unknown", "waiting", "running", "ended"]


class Terminated(ProviderAnswer, frozen=True, tag="surety.terminated"):
    contract: str = ""
    refund: float = 0.0
    """The cancellation fee, and what was paid for work that was not done, that go back."""


MESSAGES = (
    Setup,
    SetParam,
    EstimateCall,
    Invoke,
    Examine,
    Extract,
    Terminate,
    Ready,
    Declined,
    Offered,
    Invoked,
    Examined,
    Extracted,
    Terminated,
)
"""All that travels, for the codec."""
