"""A solution at work.

Every rule in the solution has a `_Watch`: molecules it has not looked at yet (*fresh*), and those
it has (*tried*), among which it can do nothing. A fresh molecule is tried in each of the rule's
patterns against what was tried before; if nothing comes of it, it joins them. When no rule has
anything fresh the solution is inert, and a molecule that is added wakes only rules that may take
it.

A step is a largest set of reactions that happen at once: each takes its molecules from those that
were there when the step began, and what they make is there for the next step. Taking is atomic:
the molecules of a reaction are all there and all taken, or none is. Solutions within the solution
react by themselves, in the same steps; a molecule that holds one is out of reach until it is inert.

Which molecules meet is drawn from the random numbers given; the same ones give the same reactions.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator
from dataclasses import dataclass
from random import Random
from typing import NamedTuple

from sureline.chemistry.arithmetic import Held, NoSenseError, compile_several
from sureline.chemistry.matching import (
    Path,
    Plans,
    Shape,
    Stage,
    admits,
    at_path,
    compile_plans,
    shape_of,
)
from sureline.chemistry.mistakes import ChemistryError
from sureline.chemistry.molecules import (
    Molecule,
    Name,
    Rule,
    Solution,
    is_inert,
    key,
    size_of,
)

SPARE = 64
"""Dead molecules that a list may have before it is worth tidying."""


@dataclass(slots=True)
class Bounds:
    """What a solution may use up, with the solutions within; a program need have no end."""

    reactions: int = 10_000_000
    tries: int = 1_000_000_000
    """Molecules looked at in vain."""
    molecules: int = 1_000_000
    """At a time."""


NUMBERS_AND_TEXTS = frozenset((int, float, str, bool))
"""Their shape is their type, and they have nothing within."""


class Reaction(NamedTuple):
    rule: Rule
    taken: tuple[Molecule, ...]
    made: tuple[Molecule, ...]


Happened = tuple[Rule, "list[Cell]", "list[Molecule]"]
"""A reaction, before anybody wants to look at it."""


class BoundError(Exception):
    """A bound is reached; what has not reacted by now is as it was."""


class Cell:
    """One molecule in the solution: two that are alike are two cells."""

    __slots__ = ("alive", "molecule")

    def __init__(self, molecule: Molecule) -> None:
        self.molecule = molecule
        self.alive = True


NO_CELL = Cell(0)
"""In the place of one that is yet to be found."""


class Tried:
    """The molecules in one place of a rule, all of them and by what they have at some paths."""

    __slots__ = ("_by_path", "_tidy_at", "cells")

    def __init__(self, paths: tuple[Path, ...]) -> None:
        self._by_path: dict[Path, dict[Hashable, list[Cell]]] = {path: {} for path in paths}
        self.cells: list[Cell] = []
        self._tidy_at = SPARE

    def add(self, cell: Cell) -> None:
        if len(self.cells) >= self._tidy_at:
            self._tidy()
        self.cells.append(cell)
        for path, by_value in self._by_path.items():
            by_value.setdefault(at_path(cell.molecule, path), []).append(cell)

    def having(self, path: Path, value: Molecule) -> list[Cell]:
        return self._by_path[path].get(key(value), [])

    def _tidy(self) -> None:
        alive = [cell for cell in self.cells if cell.alive]
        self._tidy_at = 2 * len(alive) + SPARE
        self.cells, self._by_path = [], {path: {} for path in self._by_path}
        for cell in alive:
            self.add(cell)


class RuleStart(NamedTuple):
    """A pattern of a rule that may take a molecule, and how the others are found from there."""

    position: int
    stages: tuple[Stage, ...]
    following: Tried | None
    """Where the next one is looked for."""


class RuleRoute(NamedTuple):
    """Where molecules of a shape go in a rule."""

    orders: tuple[tuple[RuleStart, ...], ...]
    """From each of the patterns on."""
    tried: tuple[Tried, ...]


class _Watch:
    """One rule at work. `cell` is where the rule itself floats; None if it is in no solution."""

    def __init__(self, rule: Rule, cell: Cell | None, random: Random, bounds: Bounds) -> None:
        self.rule = rule
        self.cell = cell
        self._draw = random.random
        self._bounds = bounds
        self._plans: Plans = compile_plans(rule, random)
        self.held: Held = [0] * len(self._plans.slots)
        self.gives = compile_several(rule.gives, self._plans.slots, self._plans.rests)
        self.tried = _all_tried(rule, self._plans)
        self.fresh: list[tuple[Cell, RuleRoute]] = []
        self.hungry = False
        self.nothing = [NO_CELL] * len(rule.takes)
        self.used = self.nothing.copy()
        """What the reaction found last takes, in the order of the rule's patterns; `held` is what
        its variables hold."""

    def route(self, shape: Shape) -> RuleRoute | None:
        """None if no pattern may take such a molecule."""
        found = tuple(i for i, p in enumerate(self.rule.takes) if admits(p, shape))
        starts = tuple(map(self._start, found))
        orders = tuple(starts[i:] + starts[:i] for i in range(len(starts)))
        return RuleRoute(orders, tuple({self.tried[i]: None for i in found})) if found else None

    def _start(self, position: int) -> RuleStart:
        stages = self._plans.by_start[position]
        return RuleStart(position, stages, self.tried[stages[1].position] if stages[1:] else None)

    def look(self) -> bool:
        """Try fresh molecules until some react; False if none do."""
        fresh, used, held, draw = self.fresh, self.used, self.held, self._draw
        while fresh:
            drawn = draw() * len(fresh)
            chosen = int(drawn)
            cell, (orders, tried) = fresh[chosen]
            fresh[chosen] = fresh[-1]
            fresh.pop()
            if not cell.alive or cell is self.cell:
                continue
            for position, stages, following in orders[int((drawn - chosen) * len(orders))]:
                if following is not None and not following.cells:
                    continue
                used[position] = cell
                _, test, search, check, _ = stages[0]
                if search is not None:
                    found = self._search(stages, 0, cell)
                else:
                    found = test(cell.molecule, held) and (check is None or check(held))
                    found = found and (following is None or self._find(stages, 1))
                if found:
                    return True
                used[position] = NO_CELL
            for among in tried:
                among.add(cell)
        return False

    def _search(self, stages: tuple[Stage, ...], number: int, cell: Cell) -> bool:
        """Whether it fits in one of several ways, and others can be found for the stages after."""
        held, search, check = self.held, stages[number].search, stages[number].check
        assert search is not None

        def go_on() -> bool:
            if check is not None and not check(held):
                return False
            return number + 1 == len(stages) or self._find(stages, number + 1)

        return search(cell.molecule, held, go_on)

    def _find(self, stages: tuple[Stage, ...], number: int) -> bool:
        held, used = self.held, self.used
        position, test, search, check, join = stages[number]
        cells = self.tried[position].cells
        if join is not None:
            cells = self.tried[position].having(join[0], held[join[1]])
        tries, is_last = 0, number + 1 == len(stages)
        start = int(self._draw() * len(cells)) if len(cells) > 1 else 0
        for first, end in ((start, len(cells)), (0, start)):
            at = first
            while at < end and at < len(cells):
                cell = cells[at]
                if not cell.alive:  # the last takes its place, so some may come twice
                    cells[at] = cells[-1]
                    cells.pop()
                    continue
                at += 1
                if number > 1 and cell in used:  # the first one is fresh
                    continue
                tries += 1
                used[position] = cell
                if search is not None:
                    found = self._search(stages, number, cell)
                elif test(cell.molecule, held) and (check is None or check(held)):
                    found = is_last or self._find(stages, number + 1)
                else:
                    continue
                if found:
                    if is_last:  # nobody looks at it again
                        cells[at - 1] = cells[-1]
                        cells.pop()
                    self._bounds.tries -= tries
                    return True
        used[position] = NO_CELL
        self._bounds.tries -= tries
        if self._bounds.tries < 0:
            raise BoundError("too many molecules were tried in vain")
        return False


def _all_tried(rule: Rule, plans: Plans) -> list[Tried]:
    """By position. Two patterns that take any molecule of a sort share theirs; of more than two,
    who looks for one would tidy up the list in which another is being looked for."""
    match rule.takes:
        case (Name(sort=one), Name(sort=other)) if one == other and len(set(plans.paths)) == 1:
            return [Tried(plans.paths[0])] * 2
        case _:
            return [Tried(paths) for paths in plans.paths]


class Boiling:
    """A molecule with solutions in it that are not inert yet."""

    def __init__(self, molecule: Molecule, random: Random, bounds: Bounds) -> None:
        self._random, self._bounds = random, bounds
        self._reactors: list[Reactor] = []
        self._form = self._take_apart(molecule)

    def _take_apart(self, molecule: Molecule) -> Molecule | Reactor:
        if isinstance(molecule, Solution) and not molecule.inert:
            reactor = Reactor(molecule.molecules, random=self._random, bounds=self._bounds)
            self._reactors.append(reactor)
            return reactor
        if isinstance(molecule, tuple):
            return tuple(map(self._take_apart, molecule))  # type: ignore[arg-type]  # a form: reactors where solutions were
        return molecule

    def step(self) -> list[Happened]:
        return [reaction for reactor in self._reactors for reaction in reactor.step()]

    @property
    def inert(self) -> bool:
        return all(reactor.inert for reactor in self._reactors)

    @property
    def stopped(self) -> str:
        return next((reactor.stopped for reactor in self._reactors if reactor.stopped), "")

    def molecule(self) -> Molecule:
        """As it is now."""

        def together(form: Molecule | Reactor) -> Molecule:
            if isinstance(form, Reactor):
                return form.solution()
            return tuple(map(together, form)) if isinstance(form, tuple) else form

        return together(self._form)


class Reactor:
    """`rules` act on the solution without being in it."""

    def __init__(
        self,
        molecules: Iterable[Molecule] = (),
        *,
        rules: Iterable[Rule] = (),
        random: Random,
        bounds: Bounds | None = None,
    ) -> None:
        self._random = random
        self._bounds = bounds or Bounds()
        self._cells: dict[Cell, None] = {}
        self._boiling: list[Boiling] = []
        self._watches: list[_Watch] = []
        self._routes: dict[Shape, list[tuple[_Watch, RuleRoute]]] = {}
        """By shape: who may take a molecule of it, and where."""
        self._hungry: list[_Watch] = []
        self.reactions = 0
        self.stopped = ""
        """Why it went no further although it is not inert; empty if it may go on."""
        for rule in rules:
            self._watch(rule, None)
        self.add(molecules)

    def add(self, molecules: Iterable[Molecule]) -> None:
        """New molecules: what they may react with is awake again."""
        cells, routes_of = self._cells, self._routes
        for molecule in molecules:
            shape: Shape = type(molecule)
            if shape not in NUMBERS_AND_TEXTS:
                if not is_inert(molecule):
                    self._boiling.append(Boiling(molecule, self._random, self._bounds))
                    continue
                shape = shape_of(molecule)
            cell = Cell(molecule)
            cells[cell] = None
            routes = routes_of.get(shape)
            if routes is None:
                routes = [(w, route) for w in self._watches if (route := w.route(shape))]
                routes_of[shape] = routes
            for watch, route in routes:
                watch.fresh.append((cell, route))
                if not watch.hungry:
                    self._wake(watch)
            if shape is Rule:
                self._watch(molecule, cell)  # type: ignore[arg-type]  # a shape narrows nothing

    @property
    def inert(self) -> bool:
        return not self._hungry and not self._boiling

    def steps(self) -> Iterator[list[Reaction]]:
        """React to inertia, step by step; ends also at a bound (see `stopped`). Raises
        ChemistryError where a product makes no sense."""
        while not self.inert and not self.stopped:
            if done := self.step():
                yield [Reaction(r, tuple(c.molecule for c in cs), tuple(m)) for r, cs, m in done]

    def run(self) -> None:
        """To inertia, or to a bound. Raises ChemistryError, as `steps`."""
        while not self.inert and not self.stopped:
            self.step()

    def solution(self) -> Solution:
        molecules = [cell.molecule for cell in self._cells]
        molecules += [boiling.molecule() for boiling in self._boiling]
        return Solution(molecules, inert=self.inert)

    # Inside.

    def step(self) -> list[Happened]:
        """All that can happen at once."""
        done: list[Happened] = []
        made = self._boil(done) if self._boiling else []
        hungry = self._hungry
        try:
            while hungry:
                chosen = int(self._random.random() * len(hungry)) if len(hungry) > 1 else 0
                watch = hungry[chosen]
                while watch.look():
                    done.append(self._happen(watch, made))
                    if len(hungry) > 1:
                        break  # it is another's turn, perhaps
                else:
                    watch.hungry = False
                    hungry[chosen] = hungry[-1]
                    hungry.pop()
        except BoundError as error:
            self.stopped = str(error)
        finally:
            self.add(made)
        return done

    def _boil(self, done: list[Happened]) -> list[Molecule]:
        """Let the solutions within go one step on; those that have come to rest."""
        for boiling in self._boiling:
            done += boiling.step()
            self.stopped = self.stopped or boiling.stopped
        self.reactions += len(done)
        opened = [boiling for boiling in self._boiling if boiling.inert]
        self._boiling = [boiling for boiling in self._boiling if not boiling.inert]
        return [boiling.molecule() for boiling in opened]

    def _happen(self, watch: _Watch, made: list[Molecule]) -> Happened:
        """Make first, then take: a product that makes no sense leaves everything as it was."""
        bounds, cells = self._bounds, self._cells
        try:
            makes = watch.gives(watch.held)
        except NoSenseError as error:
            name = f"rule {watch.rule.name}" if watch.rule.name else "a rule"
            hint = "say in the condition (if ...) which molecules the rule is for"
            raise ChemistryError(f"{error.what}, in what {name} makes", hint, error.place) from None
        for molecule in makes:
            if type(molecule) not in NUMBERS_AND_TEXTS:
                self._weigh(molecule)
        if bounds.reactions <= 0:
            raise BoundError("there were too many reactions")
        if len(cells) + len(made) > bounds.molecules:
            raise BoundError("there are too many molecules")
        bounds.reactions -= 1
        self.reactions += 1
        made += makes
        taken = watch.used
        watch.used = watch.nothing.copy()
        for cell in taken:
            cell.alive = False
            del cells[cell]
            if type(cell.molecule) is Rule:
                self._dismiss(next(other for other in self._watches if other.cell is cell))
        if watch.rule.once:
            self._dismiss(watch)
            if watch.cell is not None:
                watch.cell.alive = False
                del cells[watch.cell]
        return watch.rule, taken, makes

    def _weigh(self, molecule: Molecule) -> None:
        size = size_of(molecule, self._bounds.molecules)
        if size is None:
            raise BoundError("a molecule became too large, or too deep")
        self._bounds.tries -= size

    def _wake(self, watch: _Watch) -> None:
        watch.hungry = True
        self._hungry.append(watch)

    def _watch(self, rule: Rule, cell: Cell | None) -> None:
        watch = _Watch(rule, cell, self._random, self._bounds)
        self._watches.append(watch)
        self._routes.clear()
        for other in self._cells:
            route = watch.route(shape_of(other.molecule))
            if route is not None:
                watch.fresh.append((other, route))
        if watch.fresh:
            self._wake(watch)

    def _dismiss(self, watch: _Watch) -> None:
        watch.fresh.clear()
        self._watches.remove(watch)
        self._routes.clear()
