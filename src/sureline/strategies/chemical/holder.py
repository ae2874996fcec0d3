"""The half on every node: a chemical engine on the ring.

A molecule that comes to lie here wakes the rules that are for it. A task is captured, and seeks a
resource (`seeking`). A level that is ready is captured and falls apart into tasks, which are put
into the ring; then it lies here as running, and its holder hears from the writer which of its tasks
are done. When all are, the next level is made ready where it lies, in one change.

Whoever holds a molecule may die at any moment: the ring moves it on, and the next holder begins
with what it says. So nothing here is needed that is not in the molecule or with the writer.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec
from msgspec.structs import replace

from sureline.chemistry import Solution, Symbol, show
from sureline.overlay.ring import Captured, Ring
from sureline.strategies.chemical.messages import (
    Answered,
    Done,
    Enter,
    Entered,
    Envelope,
    NotTaken,
    NumberedMessage,
    ResourceOffer,
    Taken,
    Tending,
    id_of,
)
from sureline.strategies.chemical.molecules import level_key, task_key, without_dests
from sureline.strategies.chemical.rulebook import Rulebook, RulesError, book_of
from sureline.strategies.chemical.seeking import Question, Seeking, Then
from sureline.world.address import node_of
from sureline.world.agent import Agent, handles
from sureline.world.protocol import Action, AgentId, World

PART = "chemical"
LOOK_S = 3.0
"""How often it is looked for molecules that nobody works on."""
TEND_S = 5.0
DEAF_S = 600.0
"""A level whose writer has not been heard for so long is nobody's business any more."""
WORK_MAX = 1024


class _Level(msgspec.Struct):
    """A running level that lies here."""

    envelope: Envelope
    level: int
    left: set[str]
    heard_s: float
    advancing: bool = False


def _understood(held: Captured | None) -> tuple[Envelope, Rulebook] | None:
    """What was taken, and the rules that are for it."""
    envelope = Envelope.of(held.value) if held is not None else None
    try:
        return None if envelope is None else (envelope, book_of(envelope.rules, "first"))
    except RulesError:
        return None


class MoleculeHolder(Agent):
    """`waken` says to all nodes of the ring that it is in use."""

    def __init__(self, me: AgentId, world: World, ring: Ring, waken: Action) -> None:
        super().__init__(me, world)
        self.ring = ring
        self._waken = waken
        self._again_s = ring.base.settings.awake_s * world.random.uniform(0.2, 0.5)
        """Not all at once: who says it first says it for all."""
        ring.on_molecule = self._came
        self._working: dict[bytes, None] = {}
        self._asking: dict[int, Then] = {}
        self._levels: dict[bytes, _Level] = {}
        self._numbers = world.random.getrandbits(40)
        world.after(LOOK_S, self._look)

    # -- molecules that lie here -----------------------------------------------------------------

    def _look(self) -> None:
        self.world.after(LOOK_S, self._look)
        now = self.world.elapsed()
        for key in list(self.ring.captures.registers.records):
            value = self.ring.captures.free(key, now)
            if value is not None:
                self._came(key, value)
        for key in [key for key in self._levels if self.ring.captures.free(key, now) is None]:
            del self._levels[key]
        if self._working or self._levels:
            self._stay_awake()

    def _stay_awake(self) -> None:
        if self.ring.awake_s < self._again_s:
            self._waken()

    def _came(self, key: bytes, value: bytes) -> None:
        if key in self._working or len(self._working) >= WORK_MAX:
            return
        envelope = Envelope.of(value)
        match envelope and envelope.molecule():
            case (Symbol("TASK"), str(), *_):
                self._work(key, self._seek)
            case (Symbol("LEVEL"), int(), Symbol("READY"), Solution()):
                self._work(key, self._take_apart)
            case (Symbol("LEVEL"), int(level), Symbol("RUNNING"), Solution() as tasks):
                assert envelope is not None
                self._tend(key, envelope, level, tasks)
            case _:
                pass

    def _work(self, key: bytes, then: Callable[[Captured, Envelope, Rulebook], None]) -> None:
        """Take the molecule, and the rules that are for it."""
        self._working[key] = None

        def captured(held: Captured | None, why: str) -> None:
            found = _understood(held)
            if held is None or found is None:
                self._done(key)
            else:
                then(held, *found)

        self.ring.capture(key, captured)

    def _done(self, key: bytes) -> None:
        self._working.pop(key, None)

    # -- tasks ---------------------------------------------------------------------------------

    def _seek(self, held: Captured, envelope: Envelope, book: Rulebook) -> None:
        task = envelope.molecule()
        if task is None or not id_of(task):
            self._done(held.key)
            return
        Seeking(self, held, envelope, task, book).look()

    def over(self, worker: Seeking) -> None:
        self._done(worker.held.key)

    def ask(self, to: AgentId, question: Question, patience_s: float, then: Then) -> None:
        self._numbers += 1
        number = self._numbers
        self._asking[number] = then
        self.world.send(to, question(number))
        self.world.after(patience_s, lambda: self._answer(number, None))

    @handles(Taken, NotTaken, Answered)
    def on_answer(self, sender: AgentId, said: NumberedMessage) -> None:
        self._answer(said.number, said)

    def _answer(self, number: int, said: NumberedMessage | None) -> None:
        if (then := self._asking.pop(number, None)) is not None:
            then(said)

    # -- levels --------------------------------------------------------------------------------

    def _take_apart(self, held: Captured, envelope: Envelope, book: Rulebook) -> None:
        """levelDecomp: its tasks go into the ring, and it lies here as running."""
        level = envelope.molecule()
        rest, tasks = (None, []) if level is None else book.tasks(level, self.world.random)
        if rest is None:
            self._done(held.key)
            return
        for task in tasks:
            name = id_of(task)
            one = replace(
                envelope,
                text=show(without_dests(task), as_given=True),
                keys={name: envelope.keys.get(name, 0.0)},
            )
            key = task_key(envelope.run, envelope.epoch, name, 0)
            self.ring.store(key, one.packed(), lambda kept: None)
        running = replace(envelope, text=show(rest, as_given=True))
        self.ring.captures.put_back(held, running.packed(), lambda done: self._done(held.key))

    def _tend(self, key: bytes, envelope: Envelope, level: int, tasks: Solution) -> None:
        known = self._levels.get(key)
        if known is None:
            left = {id_of(task) for task in tasks.molecules}
            known = self._levels[key] = _Level(envelope, level, left, self.world.elapsed())
            self._ask_writer(key)
        if not known.left and not known.advancing:
            self._advance(key, known)

    def _ask_writer(self, key: bytes) -> None:
        known = self._levels.get(key)
        if known is None or not known.left:
            return
        self.world.send(known.envelope.writer, Tending(known.envelope.run, known.level))
        if self.world.elapsed() - known.heard_s > DEAF_S:
            self._drop(key)
        else:
            self.world.after(TEND_S, lambda: self._ask_writer(key))

    @handles(Done)
    def on_done(self, sender: AgentId, said: Done) -> None:
        for key, known in list(self._levels.items()):
            mine = (known.envelope.run, known.level, known.envelope.writer)
            if mine == (said.run, said.level, sender):
                known.heard_s = self.world.elapsed()
                known.left -= set(said.tasks)
                if not known.left and not known.advancing:
                    self._advance(key, known)

    def _advance(self, key: bytes, known: _Level) -> None:
        """All of its tasks are done: make the next level ready, then go. Should this node die in
        between, the next holder does it again, and finds it done."""
        known.advancing = True
        if known.level <= 0:
            self._drop(key)
            return
        next_key = level_key(known.envelope.run, known.envelope.epoch, known.level - 1)

        def captured(held: Captured | None, why: str) -> None:
            found = _understood(held)
            if held is not None and found is not None:
                envelope, book = found
                level = envelope.molecule()
                ready = level and book.readied(known.level, level, self.world.random)
                text = envelope.text if not ready else show(ready, as_given=True)
                self.ring.captures.put_back(held, replace(envelope, text=text).packed(), put_back)
            elif held is not None or why in ("gone", "missing"):
                self._drop(key)
            else:
                known.advancing = False  # looked at again

        def put_back(done: bool) -> None:
            if done:
                self._drop(key)
            else:
                known.advancing = False

        self.ring.capture(next_key, captured)

    def _drop(self, key: bytes) -> None:
        def captured(held: Captured | None, why: str) -> None:
            if held is not None:
                self.ring.captures.consume(held, lambda done: None)
            self._levels.pop(key, None)

        self.ring.capture(key, captured)

    # -- what others ask -----------------------------------------------------------------------

    @handles(Enter)
    def on_enter(self, sender: AgentId, asked: Enter) -> None:
        def kept(well: bool) -> None:
            self.world.send(sender, Entered(asked.run, asked.number, well))

        if len(asked.value) <= self.ring.base.settings.value_bytes_max:
            self._stay_awake()
            self.ring.when_roused(lambda: self.ring.store(asked.key, asked.value, kept))

    @handles(ResourceOffer)
    def on_offers(self, sender: AgentId, said: ResourceOffer) -> None:
        if node_of(sender) == node_of(self.me):
            self.ring.publish(said.features)
