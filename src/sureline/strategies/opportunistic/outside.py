"""A program of the user's as the selector: what it is told, and what it may answer.

It reads lines of key=value: first of the task, then one line for each site, and prints
`SOLUTION:site`. It is asked through the world, and has `limit_s` for its answer. One that fails is
told of, and the ratio chooses instead; one that fails FAILURES_MAX times in a row is asked no more.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from sureline.run.asking import ProgramAsked, ProgramSaid
from sureline.strategies.opportunistic.selectors import SiteQuestion
from sureline.world.address import PeerName
from sureline.world.protocol import Fetched, World

ASKED_MAX = 4
"""Questions under way."""
FAILURES_MAX = 5
SOLUTION = "SOLUTION:"


class OutsideSelector:
    """`answer` of a task is None while there is none; NO_ANSWER if it has failed."""

    def __init__(
        self, program: str, limit_s: float, world: World, tell: Callable[[str], None]
    ) -> None:
        self._program = program
        self._limit_s = limit_s
        self._world = world
        self._tell = tell
        self._asked: set[int] = set()
        self._answers: dict[int, PeerName] = {}
        self._failures = 0
        self._told: set[str] = set()

    @property
    def given_up(self) -> bool:
        return self._failures >= FAILURES_MAX

    def answer(
        self, task: int, head: dict[str, str], asked: SiteQuestion, woken: Callable[[], None]
    ) -> PeerName | None:
        """What it said of the task; None, and it is asked, if it has said nothing yet."""
        if task in self._answers:
            return self._answers.pop(task)
        if task in self._asked or len(self._asked) >= ASKED_MAX:
            return None
        self._asked.add(task)
        names = [site.name for site in asked.sites]

        def done(fetched: Fetched) -> None:
            self._asked.discard(task)
            said = fetched if isinstance(fetched, ProgramSaid) else ProgramSaid(trouble="no answer")
            self._answers[task] = self._judged(said, names)
            woken()

        question = ProgramAsked(self._program, described(head, asked), self._limit_s)
        self._world.fetch(question, (), done)
        return None

    def _judged(self, said: ProgramSaid, names: list[PeerName]) -> PeerName:
        site, trouble = solution(said.text, names) if not said.trouble else (None, said.trouble)
        if site is not None:
            self._failures = 0
            return site
        self._failures += 1
        if trouble not in self._told:
            self._told.add(trouble)
            self._tell(f"the selector {self._program} failed: {trouble}; the ratio chooses instead")
        if self.given_up:
            times = f"failed {FAILURES_MAX} times in a row"
            self._tell(f"the selector {self._program} {times} and is asked no more")
        return NO_ANSWER


NO_ANSWER = PeerName("")


def described(head: dict[str, str], asked: SiteQuestion) -> str:
    """The question as text.

    >>> from sureline.strategies.opportunistic.selectors import SiteState
    >>> print(described({"task": "t"}, SiteQuestion([SiteState("a", 4.0, ended=2)], turn=7)))
    task=t
    turn=7
    last_ended=
    site=a processors=4 submitted=0 ended=2 waiting=0 running=0 held_bytes=0 wait_s=0 takes_s=0
    <BLANKLINE>
    """
    lines = [f"{key}={value}" for key, value in head.items()]
    lines += [f"turn={asked.turn}", f"last_ended={asked.last_ended or ''}"]
    for site in asked.sites:
        rest = msgspec.structs.asdict(site)
        name = rest.pop("name")
        values = " ".join(f"{key}={value:g}" for key, value in rest.items())
        lines.append(f"site={name} {values}")
    return "\n".join(lines) + "\n"


def solution(text: str, names: list[PeerName]) -> tuple[PeerName | None, str]:
    """The site that it named, or what is wrong with its answer."""
    for line in text.splitlines():
        if line.startswith(SOLUTION):
            site = PeerName(line.removeprefix(SOLUTION).strip())
            return (site, "") if site in names else (None, f"it named {site!r}, which is no choice")
    return None, f"it did not print a line {SOLUTION}SITE"
