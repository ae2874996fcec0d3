"""From paths as written to the files they mean: normal form, who makes what, wildcards, existence.

The rule for wildcards and for directories that several tasks fill: what other tasks declare as
outputs comes first; existing files count only if no declared output matches. So a second run in
the same directory means the same as the first, though the results of the first now lie there.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from functools import cached_property

from sureline.workflow.collect import Collector, nearest
from sureline.workflow.globs import DiskIndex, GlobError, PathIndex, UserFiles, is_glob
from sureline.workflow.model import Task
from sureline.workflow.paths import PathError, normalise, parents_of

LINKS_MAX = 20_000_000

_DIRECTORY_HINT = "name the file, or a directory that holds all of them"


class Resolver:
    """Resolves the paths of all tasks; what is wrong goes to `found`.

    `whole` is False if a task could not be read; then an input nobody makes proves nothing.
    `beside` says whether a path exists next to the workflow file, and how to run there.
    """

    def __init__(
        self,
        tasks: Sequence[Task],
        lines: Sequence[int | None],
        disk: UserFiles,
        found: Collector,
        *,
        whole: bool,
        beside: Callable[[str], str | None],
    ) -> None:
        self._tasks = tasks
        self._lines = lines
        self._disk = disk
        self._disk_index = DiskIndex(disk)
        self._found = found
        self._whole = whole
        self._beside = beside
        self._there: dict[str, bool] = {}
        self._matches: dict[str, tuple[str, ...]] = {}
        self._links = 0
        self.producer: dict[str, int] = {}
        self._outputs: list[tuple[str, ...]] = []

    def resolve(self) -> list[Task]:
        """The tasks with final paths. Bad ones are left out, and are among the mistakes."""
        self._outputs = [self._outputs_of(i, task) for i, task in enumerate(self._tasks)]
        self._declare()
        return [self._resolved(i, task) for i, task in enumerate(self._tasks)]

    # -- outputs -------------------------------------------------------------------------------

    def _outputs_of(self, i: int, task: Task) -> tuple[str, ...]:
        if not task.outputs:
            return ()
        paths = [path for path in task.outputs if not self._is_wild_output(i, path)]
        return tuple(dict.fromkeys(self._normal(i, paths)))

    def _is_wild_output(self, i: int, path: str) -> bool:
        if not is_glob(path):
            return False
        what = f"the output '{path}' of task '{self._tasks[i].name}' has wildcards"
        self._found.add("outputs with wildcards", what, _DIRECTORY_HINT, self._lines[i])
        return True

    def _normal(self, i: int, paths: Iterable[str]) -> list[str]:
        good = []
        for path in paths:
            try:
                good.append(normalise(path))
            except PathError as error:
                what = f"task '{self._tasks[i].name}': {error.what}"
                self._found.add("bad paths", what, error.hint, self._lines[i])
        return good

    def _declare(self) -> None:
        for i, paths in enumerate(self._outputs):
            for path in paths:
                first = self.producer.setdefault(path, i)
                if first != i:
                    self._made_twice(path, first, i)
        for path, i in self.producer.items():
            if "/" in path:
                for above in parents_of(path):
                    if above in self.producer:
                        self._made_inside(path, i, above, self.producer[above])

    def _made_twice(self, path: str, first: int, second: int) -> None:
        names = f"'{self._tasks[first].name}' and '{self._tasks[second].name}'"
        self._found.add(
            "files made twice",
            f"both {names} make '{path}'",
            "give each its own file",
            self._lines[second],
        )

    def _made_inside(self, path: str, i: int, above: str, j: int) -> None:
        if i == j:
            what = f"task '{self._tasks[i].name}' makes '{above}' and also '{path}' inside it"
            hint = "name only one of them"
        else:
            what = (
                f"'{self._tasks[i].name}' makes '{path}' inside '{above}', "
                f"which '{self._tasks[j].name}' makes"
            )
            hint = "give each its own directory"
        self._found.add("files made inside others", what, hint, self._lines[i])

    # -- inputs --------------------------------------------------------------------------------

    def _resolved(self, i: int, task: Task) -> Task:
        outputs = self._outputs[i]
        if not task.inputs and not task.stdin and not task.in_place:
            return task if outputs == task.outputs else _with(task, outputs=outputs)
        inputs = self._inputs_of(i, task.inputs)
        stdin = self._stdin_of(i, task)
        if stdin is not None and stdin not in inputs:
            inputs = (*inputs, stdin)
        in_place = self._in_place_of(i, task, inputs)
        if (inputs, outputs, stdin, in_place) == (
            task.inputs,
            task.outputs,
            task.stdin,
            task.in_place,
        ):
            return task
        return _with(task, inputs=inputs, outputs=outputs, stdin=stdin, in_place=in_place)

    def _inputs_of(self, i: int, written: tuple[str, ...]) -> tuple[str, ...]:
        if len(written) == 1:
            return self._files(i, written[0])
        return tuple(dict.fromkeys(path for one in written for path in self._files(i, one)))

    def _files(self, i: int, written: str) -> tuple[str, ...]:
        """The files that one written input means; () if it is a mistake."""
        if self._links > LINKS_MAX:
            return ()
        maker = self.producer.get(written)
        if maker is not None and maker != i:
            self._count_links(1)
            return (written,)
        normal = self._normal(i, [written])
        if not normal:
            return ()
        path = normal[0]
        files = self._matching(i, path) if is_glob(path) else self._plain(i, path)
        self._count_links(len(files))
        return files

    def _count_links(self, count: int) -> None:
        self._links += count
        if self._links > LINKS_MAX:
            what = f"the tasks read more than {LINKS_MAX:,} files altogether"
            hint = "let one task gather many files into a directory for the others"
            self._found.add("too many links", what, hint)

    def _plain(self, i: int, path: str) -> tuple[str, ...]:
        maker = self._maker(path)
        if maker == i:
            return self._own(i, path, path)
        if maker is not None:
            return (path,)
        parts = self._declared.below(path)
        own = next((part for part in parts if self.producer[part] == i), None)
        if own is not None:
            return self._own(i, path, own)
        if parts:
            return tuple(parts)
        if self._whole and not self._exists(path):
            self._missing(i, path)
        return (path,)

    def _maker(self, path: str) -> int | None:
        found = self.producer.get(path)
        if found is None and "/" in path:
            found = next(
                (self.producer[above] for above in parents_of(path) if above in self.producer), None
            )
        return found

    def _own(self, i: int, path: str, made: str) -> tuple[str, ...]:
        name = self._tasks[i].name
        inside = "" if path == made else f" ('{made}')"
        what = f"task '{name}' reads '{path}', which it makes itself{inside}"
        hint = "give the output another name"
        self._found.add("tasks that read what they make", what, hint, self._lines[i])
        return ()

    def _exists(self, path: str) -> bool:
        there = self._there.get(path)
        if there is None:
            there = self._there[path] = self._disk.exists(path)
        return there

    def _missing(self, i: int, path: str) -> None:
        line = self._lines[i]
        if not self._found.room("missing inputs", line):
            return
        what = (
            f"task '{self._tasks[i].name}' reads '{path}': no task makes it and it does not exist"
        )
        self._found.keep("missing inputs", what, self._missing_hint(path), line)

    def _missing_hint(self, path: str) -> str:
        where = self._beside(path)
        if where is not None:
            return f"it exists beside the workflow file: run with `-C {where}`"
        made = nearest(path, self._declared.near(path))
        if made is not None:
            return f"did you mean '{made}', which '{self._tasks[self.producer[made]].name}' makes?"
        try:
            there = nearest(path, self._disk_index.near(path))
        except GlobError:
            there = None
        if there == path:
            return "it is a symbolic link to nothing: mend or remove it"
        if there is not None:
            return f"did you mean '{there}', which exists?"
        return "create it, or declare it in the `outputs` of the task that makes it"

    # -- wildcards -----------------------------------------------------------------------------

    @cached_property
    def _declared(self) -> PathIndex:
        return PathIndex(self.producer)

    def _matching(self, i: int, pattern: str) -> tuple[str, ...]:
        try:
            files = self._declared_matches(pattern)
            if any(self.producer[path] == i for path in files):
                files = tuple(path for path in files if self.producer[path] != i)
            if files:
                return files
            if self._looks_into(i, pattern):
                return ()
            files = tuple(p for p in self._disk_index.match(pattern) if self.producer.get(p) != i)
        except (GlobError, re.error) as error:
            what = f"task '{self._tasks[i].name}': cannot match '{pattern}': {error}"
            hint = "name the files, or begin the pattern with a longer fixed part"
            self._found.add("bad wildcards", what, hint, self._lines[i])
            return ()
        if not files and self._whole:
            self._no_match(i, pattern)
        return files

    def _declared_matches(self, pattern: str) -> tuple[str, ...]:
        files = self._matches.get(pattern)
        if files is None:
            files = self._matches[pattern] = tuple(self._declared.match(pattern))
        return files

    def _looks_into(self, i: int, pattern: str) -> bool:
        """A wildcard inside a directory that a task makes: its content is not known beforehand."""
        for above in parents_of(pattern):
            maker = None if is_glob(above) else self.producer.get(above)
            if maker is not None:
                name = self._tasks[maker].name
                what = f"'{pattern}' looks into '{above}', which '{name}' makes as a whole"
                hint = f"use '{above}' as the input"
                self._found.add("bad wildcards", what, hint, self._lines[i])
                return True
        return False

    def _no_match(self, i: int, pattern: str) -> None:
        what = (
            f"task '{self._tasks[i].name}' reads '{pattern}': "
            "no task's output and no existing file matches"
        )
        fixed = pattern[: min(pattern.find(c) for c in "*?[" if c in pattern)]
        hint = "create the files, or correct the pattern"
        if self._found.room("missing inputs", self._lines[i]):
            made = nearest(pattern, self._declared.near(fixed))
            hint = f"did you mean '{made}'?" if made is not None else hint
            self._found.keep("missing inputs", what, hint, self._lines[i])

    # -- what refers to inputs -----------------------------------------------------------------

    def _stdin_of(self, i: int, task: Task) -> str | None:
        if task.stdin is None:
            return None
        files = self._files(i, task.stdin)
        if len(files) == 1:
            return files[0]
        if files:
            what = f"the stdin '{task.stdin}' of task '{task.name}' is {len(files):,} files"
            self._found.add("bad stdin", what, "name one file", self._lines[i])
        return None

    def _in_place_of(self, i: int, task: Task, inputs: tuple[str, ...]) -> tuple[str, ...]:
        if not task.in_place:
            return ()
        if task.in_place == task.inputs:
            return inputs
        known = set(inputs)
        chosen: dict[str, None] = {}
        for written in task.in_place:
            normal = self._normal(i, [written])
            if not normal:
                continue
            files = self._matching(i, normal[0]) if is_glob(normal[0]) else (normal[0],)
            parts = [path for path in files if path in known]
            if not parts and self._whole:
                what = f"'{written}' in `in_place` of task '{task.name}' is not among its inputs"
                hint = "add it to `inputs`, or remove it here"
                self._found.add("bad in_place", what, hint, self._lines[i])
            chosen |= dict.fromkeys(parts)
        return tuple(chosen)


def _with(
    task: Task,
    *,
    outputs: tuple[str, ...],
    inputs: tuple[str, ...] = (),
    stdin: str | None = None,
    in_place: tuple[str, ...] = (),
) -> Task:
    return Task(
        name=task.name,
        action=task.action,
        inputs=inputs,
        outputs=outputs,
        after=task.after,
        needs=task.needs,
        takes=task.takes,
        retries=task.retries,
        timeout_s=task.timeout_s,
        env=task.env,
        stdin=stdin,
        in_place=in_place,
        kind=task.kind,
    )
