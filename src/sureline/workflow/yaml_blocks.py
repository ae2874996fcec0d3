"""One entry of `tasks:` in YAML: compiled once, then filled in for every task of its loop."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Generic, TypeVar

from sureline.workflow.collect import Collector, did_you_mean
from sureline.workflow.model import Command, Needs, Takes, Task
from sureline.workflow.quantities import (
    IntRange,
    QuantityError,
    looks_like_range,
    parse_count,
    parse_duration,
    parse_range,
    parse_takes,
)
from sureline.workflow.templates import Scope, Template, TemplateError, compile_template
from sureline.workflow.wishes import parse_rank, parse_requires
from sureline.workflow.yaml_needs import NEEDS_KEYS, flat_needs, is_close_to_known, parse_needs
from sureline.workflow.yaml_tree import Items, Node, Pairs, Text

T = TypeVar("T")
Values = tuple[str, ...]

TASK_KEYS = (
    "run",
    "inputs",
    "outputs",
    "after",
    "for",
    "takes",
    "needs",
    "retries",
    "timeout",
    "env",
    "stdin",
    "in_place",
    "shell",
    "repeatable",
    "requires",
    "rank",
    "kind",
    "description",
)
DEFAULT_KEYS = ("needs", "retries", "timeout", "env", "shell", "repeatable", "requires", "rank")
TASKS_MAX = 2_000_000

_BLOCK_NAME = re.compile(r"[\w.-]+")
_LOOP_NAME = re.compile(r"[\w-]+")


class Texts:
    """Several templates, such as a task's inputs. Fixed ones are filled in once for all tasks."""

    __slots__ = ("_templates", "count", "fixed")

    def __init__(self, templates: Sequence[Template]) -> None:
        self._templates = templates
        self.count = len(templates)
        parts = [template.fixed for template in templates]
        self.fixed = None if None in parts else tuple(part for part in parts if part is not None)

    def fill(self, values: Values) -> tuple[str, ...]:
        if self.fixed is not None:
            return self.fixed
        return tuple([template.fill(values) for template in self._templates])


class Quantity(Generic[T]):
    """Texts that are parsed: once if they are fixed, else for every task."""

    __slots__ = ("_fixed", "_otherwise", "_parse", "_report", "_texts")

    def __init__(
        self,
        texts: Texts,
        parse: Callable[[Values], T],
        otherwise: T,
        report: Callable[[QuantityError], None],
    ) -> None:
        self._texts, self._parse, self._otherwise, self._report = texts, parse, otherwise, report
        self._fixed: T | None = None
        if texts.fixed is not None:
            self._fixed = self._try(texts.fixed)

    def fill(self, values: Values) -> T:
        if self._texts.fixed is not None:
            return self._fixed  # type: ignore[return-value] # None only if T includes it
        return self._try(self._texts.fill(values))

    def _try(self, texts: Values) -> T:
        try:
            return self._parse(texts)
        except QuantityError as error:
            self._report(error)
            return self._otherwise


class BlockReader:
    """Reads the blocks of one file into tasks; what is wrong goes to `found`.

    `whole` turns False when tasks or outputs had to be left out.
    """

    def __init__(self, scope: Scope, defaults: Mapping[str, Node], found: Collector) -> None:
        self._scope = scope
        self._defaults = defaults
        self._found = found
        self._needs: dict[tuple[tuple[str, ...], Values], Needs] = {}
        self._count = 0
        self.whole = True

    def read(self, name: str, node: Node) -> Iterator[Task]:
        if not isinstance(node, Pairs):
            self.whole = False
            what = f"task '{name}' is {_sort(node)}"
            self.add("wrong types", what, "write its keys under it, such as `run:`", node.line)
            return
        pairs = self._with_defaults(node.pairs)
        self._check_keys(name, node)
        loops = self._loops(name, pairs.get("for"), node.line)
        if loops is None or not self._name_is_good(name, bool(loops), node.line):
            self.whole = False
            return
        scope = self._scope.within([*loops, "task"], self._scope.used)
        yield from _Block(self, name, pairs, scope, loops, node.line).tasks()

    def _with_defaults(self, pairs: dict[str, Node]) -> Mapping[str, Node]:
        if not self._defaults:
            return pairs
        merged = {**self._defaults, **pairs}
        for key in ("needs", "env"):
            general, own = self._defaults.get(key), pairs.get(key)
            if isinstance(general, Pairs) and isinstance(own, Pairs):
                merged[key] = Pairs({**general.pairs, **own.pairs}, own.line)
        return merged

    def _check_keys(self, name: str, node: Pairs) -> None:
        for key, value in node.pairs.items():
            if key not in TASK_KEYS:
                hint = did_you_mean(key, TASK_KEYS, "known are " + ", ".join(TASK_KEYS))
                self.add("unknown keys", f"task '{name}': unknown key '{key}'", hint, value.line)

    def _name_is_good(self, name: str, looped: bool, line: int) -> bool:
        block, colon, _ = name.partition(":")
        if _BLOCK_NAME.fullmatch(block) and not (colon and looped):
            return True
        hint = "use letters, digits, '_', '.' and '-'"
        self.add("bad names", f"'{name}' cannot be a task's name", hint, line)
        return False

    # -- loops ---------------------------------------------------------------------------------

    def _loops(self, name: str, node: Node | None, line: int) -> dict[str, Sequence[str]] | None:
        """The values of each loop name; None if they cannot be told."""
        if node is None:
            self._count += 1
            return {}
        if not isinstance(node, Pairs) or not node.pairs:
            hint = "write names and values, such as `for: {i: 1..10}`"
            self.add("bad loops", f"`for` of task '{name}' is {_sort(node)}", hint, node.line)
            return None
        sizes: dict[str, IntRange | list[str]] = {}
        for loop, values in node.pairs.items():
            if not _LOOP_NAME.fullmatch(loop) or loop == "task":
                what = f"'{loop}' cannot be a loop's name in task '{name}'"
                self.add("bad loops", what, "use letters, digits, '_' and '-'", values.line)
                continue
            found = self._loop_values(name, loop, values)
            if found is not None:
                sizes[loop] = found
        if len(sizes) < len(node.pairs):
            return None
        count = math.prod(len(values) for values in sizes.values())
        self._count += count
        if self._count > TASKS_MAX:
            what = f"`for` of task '{name}' makes {count:,} tasks"
            hint = f"a workflow may have {TASKS_MAX:,} in all; let one task do several steps"
            self.add("bad loops", what, hint, node.line)
            return None
        return {loop: list(values) for loop, values in sizes.items()}

    def _loop_values(self, name: str, loop: str, node: Node) -> IntRange | list[str] | None:
        where = f"`for: {loop}` of task '{name}'"
        scope = self._scope.within((), self._scope.used)
        try:
            if isinstance(node, Text) and looks_like_range(node.value):
                return parse_range(compile_template(node.value, scope).fill(()))
            if isinstance(node, Items) and node.items:
                texts = [item for item in node.items if isinstance(item, Text)]
                if len(texts) == len(node.items):
                    return [compile_template(text.value, scope).fill(()) for text in texts]
        except (QuantityError, TemplateError) as error:
            self.add("bad loops", f"{where}: {error.what}", error.hint, node.line)
            return None
        state = (
            "is an empty list" if isinstance(node, Items) and not node.items else "has no values"
        )
        self.add("bad loops", f"{where} {state}", "write a list or a range: 1..10", node.line)
        return None

    # -- values --------------------------------------------------------------------------------

    def template(self, where: str, node: Node | None, scope: Scope) -> Template | None:
        """The template of a text; None if there is none, or none that can be understood."""
        if node is None:
            return None
        if not isinstance(node, Text):
            self.add("wrong types", f"{where} is {_sort(node)}", "write one text", node.line)
            return None
        try:
            return compile_template(node.value, scope)
        except TemplateError as error:
            self.add("unknown names", f"{where}: {error.what}", error.hint, node.line)
            return None

    def texts(self, where: str, node: Node | None, scope: Scope) -> Texts:
        """The templates of a list of texts, or of one text."""
        if node is None or _is_nothing(node):
            return _NO_TEXTS
        if isinstance(node, Pairs):
            self.add("wrong types", f"{where} is {_sort(node)}", "write a list", node.line)
            return _NO_TEXTS
        nodes = node.items if isinstance(node, Items) else [node]
        templates = [self.template(where, item, scope) for item in nodes]
        return Texts([template for template in templates if template is not None])

    def quantity(
        self, where: str, node: Node | None, scope: Scope, parse: Callable[[str], T], otherwise: T
    ) -> Quantity[T] | None:
        template = self.template(where, node, scope)
        if template is None or node is None:
            return None
        report = self._reporter(where, node.line)
        return Quantity(Texts([template]), lambda texts: parse(texts[0]), otherwise, report)

    def _reporter(self, where: str, line: int) -> Callable[[QuantityError], None]:
        return lambda error: self.add("bad quantities", f"{where}: {error.what}", error.hint, line)

    def needs(self, where: str, node: Node | None, scope: Scope) -> Quantity[Needs] | None:
        if node is None or _is_nothing(node):
            return None
        if not isinstance(node, Pairs):
            hint = "write names and amounts, such as `needs: {cores: 2, memory: 1GB}`"
            self.add("wrong types", f"{where} is {_sort(node)}", hint, node.line)
            return None
        for key in node.pairs:
            if key not in NEEDS_KEYS and is_close_to_known(key):
                hint = f"{did_you_mean(key, NEEDS_KEYS)} (a tag goes under `tags:`)"
                self.add("unknown keys", f"{where}: unknown key '{key}'", hint, node.line)
        templates = {k: self.template(where, v, scope) for k, v in flat_needs(node)}
        good = {key: template for key, template in templates.items() if template is not None}
        keys, report = tuple(good), self._reporter(where, node.line)

        def parse(texts: Values) -> Needs:
            known = self._needs.get((keys, texts))
            if known is None:
                wrong: list[QuantityError] = []
                known = parse_needs(keys, texts, wrong.append)
                for error in wrong:
                    report(error)
                if not wrong:
                    self._needs[keys, texts] = known
            return known

        return Quantity(Texts(list(good.values())), parse, _NEEDS, report)

    def add(self, sort: str, what: str, hint: str, line: int) -> None:
        self._found.add(sort, what, hint, line)


_NEEDS = Needs()
_NO_TEXTS = Texts([])


class _Block:
    """A block with a good name and loop; makes its tasks."""

    def __init__(
        self,
        reader: BlockReader,
        name: str,
        pairs: Mapping[str, Node],
        scope: Scope,
        loops: dict[str, Sequence[str]],
        line: int,
    ) -> None:
        self._reader, self._name, self._loops, self._line = reader, name, loops, line
        self._pairs, self._scope = pairs, scope
        get = pairs.get
        self._run = self._run_template()
        self._inputs = reader.texts(self._of("inputs"), get("inputs"), scope)
        self._outputs = self._outputs_texts()
        self._after = reader.texts(self._of("after"), get("after"), scope)
        self._stdin = reader.template(self._of("stdin"), get("stdin"), scope)
        self._shell = reader.template(self._of("shell"), get("shell"), scope)
        self._needs = reader.needs(self._of("needs"), get("needs"), scope)
        self._takes: Quantity[Takes | None] | None = reader.quantity(
            self._of("takes"), get("takes"), scope, parse_takes, None
        )
        self._timeout: Quantity[float | None] | None = reader.quantity(
            self._of("timeout"), get("timeout"), scope, _parse_timeout, None
        )
        self._retries = reader.quantity(self._of("retries"), get("retries"), scope, parse_count, 0)
        self._requires = reader.quantity(
            self._of("requires"), get("requires"), scope, parse_requires, ""
        )
        self._rank = reader.quantity(self._of("rank"), get("rank"), scope, parse_rank, "")
        self._env_names, self._env = self._environment(get("env"))
        self._all_in_place, self._in_place = self._places(get("in_place"))
        self._repeatable = self._yes_or_no("repeatable", otherwise=True)
        self._kind = self._kind_text(get("kind"))

    def _of(self, key: str) -> str:
        return f"`{key}` of task '{self._name}'"

    def tasks(self) -> Iterator[Task]:
        if not self._loops:
            yield self._task(self._name, (self._name,))
            return
        for combination in itertools.product(*self._loops.values()):
            name = ":".join((self._name, *combination))
            yield self._task(name, (*combination, name))

    def _task(self, name: str, values: Values) -> Task:
        inputs = self._inputs.fill(values)
        stdin = self._stdin
        return Task(
            name=name,
            action=Command(
                self._run.fill(values), self._shell.fill(values).strip() if self._shell else ""
            ),
            inputs=inputs,
            outputs=self._outputs.fill(values),
            after=self._after.fill(values),
            needs=self._needs.fill(values) if self._needs else _NEEDS,
            takes=self._takes.fill(values) if self._takes else None,
            retries=self._retries.fill(values) if self._retries else 0,
            timeout_s=self._timeout.fill(values) if self._timeout else None,
            env=dict(zip(self._env_names, self._env.fill(values), strict=True)),
            stdin=stdin.fill(values) if stdin else None,
            in_place=inputs if self._all_in_place else self._in_place.fill(values),
            kind=self._kind,
            repeatable=self._repeatable,
            requires=self._requires.fill(values) if self._requires else "",
            rank=self._rank.fill(values) if self._rank else "",
        )

    def _run_template(self) -> Template:
        node = self._pairs.get("run")
        if node is None:
            hint = "add the command line to run"
            self._reader.add("missing keys", f"task '{self._name}' has no `run`", hint, self._line)
            return _UNKNOWN
        return self._reader.template(self._of("run"), node, self._scope) or _UNKNOWN

    def _outputs_texts(self) -> Texts:
        node = self._pairs.get("outputs")
        texts = self._reader.texts(self._of("outputs"), node, self._scope)
        written = len(node.items) if isinstance(node, Items) else int(isinstance(node, Text))
        if node is not None and not _is_nothing(node) and texts.count < written:
            self._reader.whole = False
        return texts

    def _environment(self, node: Node | None) -> tuple[list[str], Texts]:
        if node is None or _is_nothing(node):
            return [], _NO_TEXTS
        if not isinstance(node, Pairs):
            what, hint = f"{self._of('env')} is {_sort(node)}", "write names and values"
            self._reader.add("wrong types", what, hint, node.line)
            return [], _NO_TEXTS
        names, templates = [], []
        for name, value in node.pairs.items():
            if not name or "=" in name:
                what = f"{self._of('env')}: {name!r} cannot be a variable's name"
                self._reader.add("bad variables", what, "use letters, digits and '_'", value.line)
                continue
            template = self._reader.template(self._of("env"), value, self._scope)
            if template is not None:
                names.append(name)
                templates.append(template)
        return names, Texts(templates)

    def _places(self, node: Node | None) -> tuple[bool, Texts]:
        """Whether all inputs are used in place, and else which."""
        if isinstance(node, Text) and node.value.lower() in ("true", "yes", "false", "no", ""):
            return node.value.lower() in ("true", "yes"), _NO_TEXTS
        return False, self._reader.texts(self._of("in_place"), node, self._scope)

    def _yes_or_no(self, key: str, *, otherwise: bool) -> bool:
        node = self._pairs.get(key)
        if node is None or _is_nothing(node):
            return otherwise
        if not isinstance(node, Text) or node.value.lower() not in _YES_OR_NO:
            what, hint = f"{self._of(key)} is {_sort(node)}", "write true or false"
            self._reader.add("wrong types", what, hint, node.line)
            return otherwise
        return _YES_OR_NO[node.value.lower()]

    def _kind_text(self, node: Node | None) -> str:
        if node is not None:
            template = self._reader.template(self._of("kind"), node, Scope(self._scope.fixed))
            if template is not None:
                return template.fill(())
        block, colon, _ = self._name.partition(":")
        return block if colon or self._loops else ""


_UNKNOWN = Template("?")
_YES_OR_NO = {"true": True, "yes": True, "false": False, "no": False}


def _parse_timeout(text: str) -> float:
    seconds = parse_duration(text)
    if seconds <= 0:
        raise QuantityError(f"'{text}' is no time at all", "give more than zero, or leave it out")
    return seconds


def _is_nothing(node: Node) -> bool:
    return isinstance(node, Text) and node.plain and node.value in ("", "~", "null")


def _sort(node: Node) -> str:
    """What a node is, for a message."""
    if isinstance(node, Text):
        return "empty" if _is_nothing(node) else f"the text '{node.value[:50]}'"
    if isinstance(node, Items):
        return "a list" if node.items else "an empty list"
    return "a mapping" if node.pairs else "an empty mapping"
