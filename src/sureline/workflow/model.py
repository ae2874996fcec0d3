"""The model of a workflow: immutable tasks, and the graph that their files imply.

A `Task` says what to run, which files it reads and which it makes. A `Graph` is a set of tasks
that has passed `check`: names are unique, every path is relative to the working directory and in
normal form, globs are gone (inputs name files), and there is no cycle. The engine runs graphs;
it never sees YAML.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property

import msgspec

from sureline.workflow.files import FileRecord


class Needs(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a task holds of a machine while it runs. `tags` are counted, like licences."""

    cores: float = 1
    memory_bytes: int = 0
    disk_bytes: int = 0
    gpus: int = 0
    tags: tuple[tuple[str, int], ...] = ()


class Takes(msgspec.Struct, frozen=True):
    """The user's estimate of a duration, in seconds."""

    optimistic_s: float
    likely_s: float
    pessimistic_s: float


class Command(msgspec.Struct, frozen=True, tag="command", omit_defaults=True):
    """A command line, run by exec or by a shell (see `peer.commands`)."""

    run: str
    shell: str = ""
    """The program that runs it, with `{}` for the script's path; '' for bash, or else sh."""


class Call(msgspec.Struct, frozen=True, tag="call", omit_defaults=True):
    """A Python call. `function` and `arguments` are pickled; `function` is a digest into
    `Graph.functions`. A `Handle(task)` inside the arguments stands for that task's result."""

    function: str
    arguments: bytes
    uses: tuple[str, ...] = ()
    """Names of the tasks whose results stand in the arguments, in order of first use."""
    code: str = ""
    """A digest of all code that it reaches, and of `Graph.reached`, which tells it part by part."""
    unkept: str = ""
    """Why its result is never reused; '' if it may be."""


class Pause(msgspec.Struct, frozen=True, tag="pause"):
    """A pretended task: nothing but its duration."""

    seconds: float


Action = Command | Call | Pause


class Task(msgspec.Struct, frozen=True, omit_defaults=True):
    """One task. Paths are relative to the working directory, normalised, '/'-separated."""

    name: str
    action: Action
    inputs: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()
    after: tuple[str, ...] = ()
    """Names of tasks that must have ended, beyond those that files imply."""
    needs: Needs = Needs()
    takes: Takes | None = None
    retries: int = 0
    timeout_s: float | None = None
    env: dict[str, str] = {}
    stdin: str | None = None
    """A path that is also among `inputs`."""
    in_place: tuple[str, ...] = ()
    """The inputs that are used where they lie and identified by size and time."""
    kind: str = ""
    """What alike tasks share; '' means the name with numeric suffixes stripped."""
    repeatable: bool = True
    """Whether a second attempt may run beside the first: not if it has effects outside."""
    requires: str = ""
    """What must hold of the machine that runs it, and `rank`, of which more is better: formulas of
    `wishes`, for strategies that ask machines."""
    rank: str = ""

    @property
    def kind_name(self) -> str:
        return self.kind or kind_of(self.name)


def kind_of(name: str) -> str:
    """The kind a task's name implies: loop values and suffixes such as `_ID000012` stripped.

    >>> kind_of("blastall_ID000012"), kind_of("count:00"), kind_of("merge"), kind_of("42")
    ('blastall', 'count', 'merge', '42')
    """
    base = kind = name.split(":", 1)[0]
    # by hand: a regular expression for repeated suffixes takes exponential time on long numbers
    while (rest := kind.rstrip("0123456789")) != kind:
        rest = rest.removesuffix("ID")
        kind = rest[:-1] if rest.endswith(("_", ".", ":", "-")) else rest
    return kind or base


class Carried(msgspec.Struct, frozen=True):
    """What the calls of a graph take along to other machines."""

    modules: dict[str, FileRecord] = {}
    """The user's own modules, by name: where each is put, and its content."""
    directory: str = ""
    beside: tuple[str, ...] = ()
    """The user's directory, and the names of what lies in it."""


class Graph:
    """Tasks in the order they were described, and who waits for whom (by index)."""

    def __init__(
        self,
        name: str,
        tasks: Iterable[Task],
        *,
        params: Mapping[str, str] | None = None,
        functions: Mapping[str, bytes] | None = None,
        reached: Mapping[str, Mapping[str, str]] | None = None,
        file_sizes: Mapping[str, int] | None = None,
        source: str | None = None,
        carried: Carried | None = None,
    ) -> None:
        self.name = name
        self.tasks: tuple[Task, ...] = tuple(tasks)
        self.params = dict(params or {})
        self.functions = dict(functions or {})
        """Pickled functions of `Call`s, by digest."""
        self.reached = dict(reached or {})
        """What code each `Call.code` stands for: parts, each with its digest or version."""
        self.file_sizes = dict(file_sizes or {})
        """Sizes in bytes that the description states (traces do), by path."""
        self.source = source
        """The file it was read from, as the user named it; None for one made in Python."""
        self.carried = carried
        """None if its calls are not made on other machines."""
        self.index: dict[str, int] = {t.name: i for i, t in enumerate(self.tasks)}
        self._created: bytes | None = None

    def __len__(self) -> int:
        return len(self.tasks)

    def task(self, name: str) -> Task:
        return self.tasks[self.index[name]]

    @cached_property
    def producer(self) -> dict[str, int]:
        """Which task makes a path."""
        return {path: i for i, t in enumerate(self.tasks) for path in t.outputs}

    @cached_property
    def parents(self) -> list[tuple[int, ...]]:
        """For every task, the tasks that must have succeeded before it may start."""
        return [self._parents_of(t) for t in self.tasks]

    def _parents_of(self, task: Task) -> tuple[int, ...]:
        found: dict[int, None] = {}
        for path in task.inputs:
            maker = self.maker(path)
            if maker is not None:
                found[maker] = None
        for name in task.after:
            found[self.index[name]] = None
        if isinstance(task.action, Call):
            for name in task.action.uses:
                found[self.index[name]] = None
        return tuple(found)

    def maker(self, path: str) -> int | None:
        """The task that makes `path`, itself or as part of a directory it makes."""
        found = self.producer.get(path)
        while found is None and "/" in path:
            path = path.rsplit("/", 1)[0]
            found = self.producer.get(path)
        return found

    @cached_property
    def children(self) -> list[list[int]]:
        found: list[list[int]] = [[] for _ in self.tasks]
        for i, parents in enumerate(self.parents):
            for parent in parents:
                found[parent].append(i)
        return found

    @cached_property
    def external(self) -> tuple[str, ...]:
        """Inputs that no task makes, in order of first use: the user's own files."""
        found: dict[str, None] = {}
        for task in self.tasks:
            for path in task.inputs:
                if self.maker(path) is None:
                    found[path] = None
        return tuple(found)

    def to_bytes(self) -> bytes:
        """A snapshot from which `from_bytes` makes an equal graph."""
        return msgspec.msgpack.encode(
            _Snapshot(
                self.name,
                self.tasks,
                self.params,
                self.functions,
                self.file_sizes,
                self.source,
                self.reached,
                self.carried,
            )
        )

    @property
    def created(self) -> bytes:
        """The snapshot of the graph as it was before it grew."""
        return self.to_bytes() if self._created is None else self._created

    def growth(self, before: Graph) -> bytes:
        """What this graph has more than `before`, whose tasks are its first ones, for `grown`."""
        added = self.tasks[len(before) :]
        if self.tasks[: len(before)] != before.tasks:
            raise ValueError("a graph that grows keeps its tasks as they are")
        new = {name: body for name, body in self.functions.items() if name not in before.functions}
        sizes = {path: n for path, n in self.file_sizes.items() if path not in before.file_sizes}
        reached = {name: of for name, of in self.reached.items() if name not in before.reached}
        carried = None if self.carried == before.carried else self.carried
        more = _Snapshot(self.name, added, {}, new, sizes, None, reached, carried)
        return msgspec.msgpack.encode(more)

    def grown(self, growth: bytes) -> Graph:
        """This graph, with what `growth` tells of."""
        more = msgspec.msgpack.decode(growth, type=_Snapshot)
        found = Graph(
            self.name,
            (*self.tasks, *more.tasks),
            params=self.params,
            functions={**self.functions, **more.functions},
            reached={**self.reached, **more.reached},
            file_sizes={**self.file_sizes, **more.file_sizes},
            source=self.source,
            carried=more.carried or self.carried,
        )
        found._created = self.created
        return found

    def with_tasks(self, tasks: Iterable[Task]) -> Graph:
        """A graph of these tasks, all else as it is here."""
        return self.with_carried(self.carried, tasks)

    @classmethod
    def from_bytes(cls, data: bytes) -> Graph:
        s = msgspec.msgpack.decode(data, type=_Snapshot)
        return cls(
            s.name,
            s.tasks,
            params=s.params,
            functions=s.functions,
            reached=s.reached,
            file_sizes=s.file_sizes,
            source=s.source,
            carried=s.carried,
        )

    def with_carried(self, carried: Carried | None, tasks: Iterable[Task]) -> Graph:
        """The same graph for other machines, with these tasks in the place of its own."""
        return Graph(
            self.name,
            tasks,
            params=self.params,
            functions=self.functions,
            reached=self.reached,
            file_sizes=self.file_sizes,
            source=self.source,
            carried=carried,
        )


class _Snapshot(msgspec.Struct):
    name: str
    tasks: Sequence[Task]
    params: dict[str, str]
    functions: dict[str, bytes]
    file_sizes: dict[str, int]
    source: str | None
    reached: Mapping[str, Mapping[str, str]] = {}
    carried: Carried | None = None
