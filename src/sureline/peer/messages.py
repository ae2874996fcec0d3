"""What a run's writer and a machine say to each other.

The writer asks (`Bind`, `Withdraw`, `Attach`, `Acknowledge`, `Release`), the machine tells. Over a
network any of it may be lost, repeated or late: what must arrive is said until it is answered.
On one machine only `Bind`, `Withdraw` and their answers are used.

Each Bind carries a `warrant`, and whatever a machine tells of that attempt shows it: so nobody can
report on what was not given to it (`run.warrants`). On one machine there is none.

`epoch` is the writer's term: each process that takes a run over has a higher one. A machine
remembers the highest it has seen of each run and answers an older writer with `Fenced`.
"""

from __future__ import annotations

from typing import ClassVar

from sureline.peer.jobs import Brought, CallJob, CommandJob, JobEnded, PauseJob
from sureline.workflow.files import FileRecord
from sureline.workflow.model import Needs
from sureline.world.address import Node
from sureline.world.protocol import WRITES, Message

TaskJob = CommandJob | CallJob | PauseJob


class AttemptMessage(Message, frozen=True):
    """Base of messages about one attempt at one task."""

    run: str
    task: str
    attempt: int


# -- the writer asks ---------------------------------------------------------------------------


class Bind(AttemptMessage, frozen=True, omit_defaults=True, tag="run.bind"):
    """Run this. Answered by Started and Finished, or by Refused."""

    needs_role: ClassVar[str] = WRITES

    job: TaskJob
    needs: Needs
    ahead: bool = False
    """To begin when one with equal needs ends, and to hold what that one held."""
    epoch: int = 0
    key: str = ""
    """What the result will depend on; told again in Finished, so that a result made of other
    inputs than the writer now means is not mistaken for this one."""
    sources: dict[str, tuple[Node, ...]] = {}  # noqa: RUF012 - msgspec copies an empty default
    """For each input, by digest: nodes that hold it."""
    strategy: str = ""
    """Who decided this, and `claim`: what its half on the machine is to know of it."""
    claim: bytes = b""
    warrant: bytes = b""


class Withdraw(AttemptMessage, frozen=True, omit_defaults=True, tag="run.withdraw"):
    """Stop this, whether it waits or runs. Answered by Finished (cancelled), unless it is over."""

    needs_role: ClassVar[str] = WRITES

    force: bool = False
    epoch: int = 0


class Attach(Message, frozen=True, tag="run.attach"):
    """I write this run now: tell what you have of it. Answered by Attached, then Finished."""

    needs_role: ClassVar[str] = WRITES

    run: str
    epoch: int
    serial: int
    """Told again in the answer, so that the writer knows which of its words it covers."""
    papers: bytes = b""
    """That the sender may write the run in this epoch; b'' to who has seen them."""
    quiet_s: float = 25.0
    """Another one is to be believed only when this one has been silent for so long."""


class Acknowledge(Message, frozen=True, tag="run.acknowledge"):
    """These reports have been recorded durably, or are of no use: forget them."""

    needs_role: ClassVar[str] = WRITES

    run: str
    epoch: int
    reports: tuple[tuple[str, int], ...]
    """(task, attempt)."""
    unwanted: tuple[str, ...] = ()
    """Digests of outputs in them that nobody will ask for."""


class Release(Message, frozen=True, omit_defaults=True, tag="run.release"):
    """The writer has copies of these files; with `over`, the run needs nothing here any more."""

    needs_role: ClassVar[str] = WRITES

    run: str
    epoch: int
    digests: tuple[str, ...] = ()
    over: bool = False


class Entrust(Message, frozen=True, tag="run.entrust"):
    """Hold these files of the user's until the run is over. Answered by Holds, for each."""

    needs_role: ClassVar[str] = WRITES

    run: str
    epoch: int
    files: tuple[FileRecord, ...]
    source: Node
    """Who has them."""


# -- the machine tells -------------------------------------------------------------------------


class Started(AttemptMessage, frozen=True, omit_defaults=True, tag="peer.started"):
    needs_role: ClassVar[str] = "run"

    pid: int | None = None
    warrant: bytes = b""


class Progressed(AttemptMessage, frozen=True, omit_defaults=True, tag="peer.progressed"):
    needs_role: ClassVar[str] = "run"

    fraction: float
    warrant: bytes = b""


class Finished(AttemptMessage, frozen=True, omit_defaults=True, tag="peer.finished"):
    """On a grid it is told until it is acknowledged."""

    needs_role: ClassVar[str] = "run"

    ended: JobEnded
    key: str = ""
    brought: Brought | None = None
    warrant: bytes = b""
    began: bool = False
    """It was so short that Started was not said: this says that, too."""
    pid: int | None = None


class Refused(AttemptMessage, frozen=True, omit_defaults=True, tag="peer.refused"):
    """The machine will not run it; `reason` is one sentence."""

    needs_role: ClassVar[str] = "run"

    reason: str
    missing: tuple[str, ...] = ()
    """Digests of inputs that could not be had from the sources named."""
    warrant: bytes = b""
    unfit: bool = False
    """Nothing will change about that: it is not to be asked again to run this task."""


class Attached(Message, frozen=True, tag="peer.attached"):
    """What a machine has of a run, in pages; `session` differs after it was started again."""

    needs_role: ClassVar[str] = "run"

    run: str
    epoch: int
    serial: int
    """Of the Attach that it answers; 0 if the machine speaks of its own accord."""
    session: int
    page: int
    last: bool
    under_way: tuple[tuple[str, int, bool, bytes], ...] = ()
    """(task, attempt, whether it has started, its warrant)."""
    reports: tuple[tuple[str, int, bytes], ...] = ()
    """(task, attempt, its warrant) of the unacknowledged reports; they follow."""


class Holds(Message, frozen=True, tag="peer.holds"):
    """This machine holds a file that it was entrusted with, durably."""

    needs_role: ClassVar[str] = "run"

    run: str
    digest: str
    refused: str = ""
    """Why it does not; one sentence."""


class Fenced(Message, frozen=True, tag="peer.fenced"):
    """A newer writer has been here: whoever hears this must stop writing the run."""

    needs_role: ClassVar[str] = "run"

    run: str
    epoch: int
    """The newest that the machine knows."""
    papers: bytes = b""
    """Of that writer, of a keeper."""


MESSAGES = (
    Bind,
    Withdraw,
    Entrust,
    Holds,
    Attach,
    Acknowledge,
    Release,
    Started,
    Progressed,
    Finished,
    Refused,
    Attached,
    Fenced,
)
"""All that travels, for the codec."""
