"""What the queue, masters, pilots and runs say to each other.

run     -> queue    Enqueue, and gets Enqueued once it is taken
pilot   -> pilot    Register, and gets Registered; the first of a site says it to the queue
pilot   -> queue    Request, FileReport, JobReport, Heartbeat in the paper's architectures
master  -> queue    AskTasks, and gets Handout: at once, and whenever there are more
pilot   -> master   RoomWish: so much room
master  -> pilots   a TaskList, by broadcast or directly; RankReply comes back, merged
master  -> pilot    PromisedTasks: these will come
master  -> run      Advice: the run binds, or does not
"""

from __future__ import annotations

from typing import ClassVar

import msgspec

from sureline.strategies.latebinding.settings import Architecture
from sureline.workflow.model import Needs
from sureline.world.address import PeerName
from sureline.world.protocol import WRITES, AgentId, Message

TaskId = tuple[str, str]
"""(run, task)."""


class ListedTask(msgspec.Struct, frozen=True, array_like=True):
    """A task that waits for a pilot: all that is needed to judge it."""

    run: str
    task: str
    generation: int
    """Another one whenever it is enqueued anew, by whichever writer: what is said of an earlier one
    does not concern it."""
    needs: Needs
    requires: str
    rank: str
    inputs: tuple[tuple[str, str, int], ...]
    """(path, digest, bytes)."""
    takes_s: float
    """It will be done within this time, most probably; 0 if nothing is known."""
    urgency: float
    home: str
    """The site that has most of its inputs; '' if none does."""
    holders: tuple[PeerName, ...]
    """The pilots that have most of them."""
    reads: bool
    """It is expected to wait for its files more than to calculate."""
    but: tuple[PeerName, ...]
    """Pilots that are not to be asked."""
    architecture: Architecture
    exact: bool
    writer: AgentId

    @property
    def id(self) -> TaskId:
        return (self.run, self.task)


# -- a run and the queue -------------------------------------------------------------------------


class AskQueue(Message, frozen=True, tag="latebinding.ask_queue"):
    """Where is the queue? Any node answers, with TheQueue."""


class TheQueue(Message, frozen=True, tag="latebinding.the_queue"):
    queue: AgentId


class Enqueue(Message, frozen=True, tag="latebinding.enqueue", omit_defaults=True):
    """These tasks of a run wait now, and those that were told of before do no longer. Without any,
    a sign of life. Answered by Enqueued if there was room for them; said again if not."""

    needs_role: ClassVar[str] = WRITES

    run: str
    epoch: int
    number: int
    priority: int
    tasks: tuple[ListedTask, ...] = ()
    gone: tuple[str, ...] = ()
    whole: bool = False
    """All that waits is in messages from this one on."""
    over: bool = False


class Enqueued(Message, frozen=True, tag="latebinding.enqueued"):
    run: str
    number: int
    memory: int
    """A number that differs when the queue has begun anew, and knows nothing of the run. It says so
    without being asked, as number 0, if it can."""
    waiting: int
    priority: int = 0
    """As it is by now: its run tells the next queue of that one."""


# -- the queue and sites -------------------------------------------------------------------------


class Register(Message, frozen=True, tag="latebinding.register"):
    """A pilot is there, and asks whom to follow: a pilot of its site or, if none of them knows, the
    queue. Answered by Registered."""

    needs_role: ClassVar[str] = "run"

    site: str


class Registered(Message, frozen=True, tag="latebinding.registered"):
    site: str
    master: AgentId


class AskTasks(Message, frozen=True, tag="latebinding.ask_tasks", omit_defaults=True):
    """A master: tasks could begin at once on these pilots (named once for each), or be fetched
    ahead by those; so many are wanted in all, to choose from. Some were placed. Answered by
    Handout."""

    needs_role: ClassVar[str] = "run"

    site: str
    idle: tuple[PeerName, ...]
    ahead: tuple[PeerName, ...]
    wanted: int
    placed: tuple[tuple[str, str, int], ...] = ()
    """(run, task, generation)."""
    held: int = 0
    """How many it has that are not placed. If it was given more, all is given to it anew."""
    near: int = 0
    """So many more may come whose inputs lie at this site."""


class Handout(Message, frozen=True, tag="latebinding.handout", omit_defaults=True):
    """Tasks for a site. Those that are `gone` wait no longer; with `whole`, all that the site had
    before goes back: other tasks come first now."""

    tasks: tuple[ListedTask, ...] = ()
    gone: tuple[TaskId, ...] = ()
    whole: bool = False
    central: bool = False
    """Tasks wait that the queue itself matches: pilots are to ask it."""
    tracked: bool = False
    """And to tell it which files they hold."""
    waiting: int = 0
    """How many tasks nobody has yet, as this site's part of them."""


class NotMaster(Message, frozen=True, tag="latebinding.not_master"):
    """Somebody else speaks for this site."""

    site: str
    master: AgentId


# -- pilots and their master ---------------------------------------------------------------------


class RoomWish(Message, frozen=True, tag="latebinding.wish"):
    """A pilot: so many tasks could begin at once, so many could be fetched ahead."""

    needs_role: ClassVar[str] = "run"

    site: str
    places: int
    ahead: int


class TaskList(Message, frozen=True, tag="latebinding.task_list", omit_defaults=True):
    """What is to be judged in this round: of the tasks that were told of since `since`, and of
    these, those whose numbers are `open`."""

    needs_role: ClassVar[str] = "run"

    number: int
    master: AgentId
    reign: int
    """Differs when the master has begun anew: tasks have other numbers then."""
    since: int
    tasks: tuple[tuple[int, ListedTask], ...] = ()
    open: tuple[int, ...] = ()
    central: AgentId | None = None
    """Ask there yourselves."""
    tracked: bool = False
    ahead: bool = True
    """Whether those who have nothing to begin at once are asked, too."""


class Ranked(msgspec.Struct, frozen=True, array_like=True):
    """What one pilot thinks of the tasks of a round; only those that it could run."""

    pilot: PeerName
    ranks: tuple[tuple[int, float], ...]
    """(number of the task, rank): the best."""
    places: int
    ahead: int
    cores: float
    """Free, for what begins at once."""
    memory_bytes: int
    lacks: bool = False
    """It does not know all tasks that are open."""


class RankReply(Message, frozen=True, tag="latebinding.rank_reply"):
    """Of a round that was told directly."""

    needs_role: ClassVar[str] = "run"

    number: int
    ranked: Ranked


class PromisedTasks(Message, frozen=True, tag="latebinding.promise"):
    """These were given to you: their runs will bind them soon."""

    needs_role: ClassVar[str] = "run"

    tasks: tuple[tuple[str, str, Needs], ...]


class PlacedTask(msgspec.Struct, frozen=True, array_like=True):
    """What a round decided for a task, and why."""

    task: str
    generation: int
    pilot: PeerName
    rank: float
    rival: PeerName
    """The pilot with the next rank for it; '' if there was none."""
    rival_rank: float
    ahead: bool
    held_bytes: int
    size_bytes: int


class Advice(Message, frozen=True, tag="latebinding.advice"):
    """What a round, of a site or of the queue itself, has decided for a run."""

    needs_role: ClassVar[str] = "run"

    run: str
    site: str
    number: int
    pilots: int
    """That took part."""
    placements: tuple[PlacedTask, ...]


# -- where the queue matches ---------------------------------------------------------------------


class Request(Message, frozen=True, tag="latebinding.request"):
    """A pilot asks for a task, saying what it is and, unless the queue knows, what it holds."""

    needs_role: ClassVar[str] = "run"

    site: str
    features: tuple[float | str, ...]
    tags: dict[str, int | None]
    held: tuple[str, ...]
    tracked: bool
    """What it holds was told in FileReports."""


class RequestAnswer(Message, frozen=True, tag="latebinding.answer"):
    """Whether there was a task, and whether to ask again later."""

    found: bool
    more: bool


class FileReport(Message, frozen=True, tag="latebinding.file_report"):
    """A pilot holds these, or no longer."""

    needs_role: ClassVar[str] = "run"

    made: tuple[str, ...]
    gone: tuple[str, ...]


class JobReport(Message, frozen=True, tag="latebinding.job_report"):
    """A pilot of the paper's architectures has begun a task, or ended it."""

    needs_role: ClassVar[str] = "run"

    run: str
    task: str
    ended: bool


class Heartbeat(Message, frozen=True, tag="latebinding.heartbeat"):
    needs_role: ClassVar[str] = "run"


# -- people --------------------------------------------------------------------------------------


class AskShares(Message, frozen=True, tag="latebinding.ask_shares"):
    """What waits, and whose it is. Answered by TheShares."""

    number: int


class SetShare(Message, frozen=True, tag="latebinding.set_share", omit_defaults=True):
    """Of a run, its priority; of a user, the share. Answered by TheShares."""

    needs_role: ClassVar[str] = WRITES

    number: int
    run: str = ""
    priority: int = 0
    user: str = ""
    share: float = 1.0


class RunStanding(msgspec.Struct, frozen=True):
    run: str
    user: str
    priority: int
    waiting: int
    """Nobody has them."""
    listed: int
    """With the master of a site."""
    placed: int
    used_s: float
    """Seconds of cores that were given out to it, lately."""


class TheShares(Message, frozen=True, tag="latebinding.the_shares"):
    number: int
    runs: tuple[RunStanding, ...]
    shares: dict[str, float]
    sites: dict[str, str]
    """Which pilot is the master of each site."""
    requests: int
    """That the queue has had to process since it was started."""
    refused: str = ""
    more: int = 0
    """So many runs are not shown."""


MESSAGES = (
    AskQueue,
    TheQueue,
    Enqueue,
    Enqueued,
    Register,
    Registered,
    AskTasks,
    Handout,
    NotMaster,
    RoomWish,
    TaskList,
    RankReply,
    PromisedTasks,
    Advice,
    Request,
    RequestAnswer,
    FileReport,
    JobReport,
    Heartbeat,
    AskShares,
    SetShare,
    TheShares,
)
