"""The directory a command runs in: fresh, with its inputs, and emptied afterwards.

Making and removing a directory costs ten times what looking into one does. So the directory of
the last job is used again when it is provably as good as new: emptied, and no process is left
that could write into it.
"""

from __future__ import annotations

import itertools
import os
from collections import deque
from collections.abc import Container

from sureline.peer.jobs import CALL_DIRECTORY, CommandJob
from sureline.peer.lending import Lent
from sureline.peer.orphans import aside_of
from sureline.peer.removing import clear_away, empty_directory
from sureline.peer.slot_standing import StandingFiles
from sureline.peer.store import BlobStore, DamagedError, StoreError
from sureline.workflow.files import FileRecord

_SIMILAR_SHOWN = 5
_SIMILAR_LOOKED_AT = 1000


class Sandbox:
    """`boxes` is what the paths of its directories begin with."""

    def __init__(self, store: BlobStore, root: str, directory: str, boxes: str) -> None:
        self._store = store
        self._aside = aside_of(root)
        self._directory = directory
        self._lent = Lent()
        self._prefix = boxes
        self._count = 0
        self._made: tuple[int, int] | None = None
        """What the directory was when it was new, if it is there; a task can put another, or a
        link, in its place."""
        self._standing = StandingFiles("")
        self.path = ""

    def prepare(self, job: CommandJob, loaded: Container[str] = ()) -> None:
        """Make the directory, put the inputs in, make room for the outputs, and go there.
        `loaded`: code that the job's interpreter need not read again, by digest."""
        if self._made is None:
            self._count += 1
            self.path = f"{self._prefix}{self._count}"
            try:
                os.mkdir(self.path)
            except FileExistsError:
                clear_away(self.path, self._aside)
                os.mkdir(self.path)
            self._made = self._is_now()
            self._standing = StandingFiles(self.path)
        os.chdir(self.path)
        parents: set[str] = set()
        code = self._standing.lacks(job)
        if job.call is not None and (code or not self._standing.stands):
            os.makedirs(f"{self.path}/{CALL_DIRECTORY}", exist_ok=True)
            for record in code:
                self._make_parent(record.path, parents)
                self._put(record, f"{self.path}/{record.path}", self._standing.lent)
            self._standing.add(job, code)
        function = "" if job.call is None else f"{CALL_DIRECTORY}/{job.call.function}"
        inside = tuple(f"{record.path}/" for record in job.inputs if record.directory)
        for record in job.inputs:
            if inside and record.path.startswith(inside):
                continue  # it comes with its directory
            if self._standing.has(record) or (record.path == function and record.digest in loaded):
                continue
            self._make_parent(record.path, parents)
            self._put(record, f"{self.path}/{record.path}", self._lent)
        for output in job.outputs:
            self._make_parent(output, parents)

    def _make_parent(self, path: str, made: set[str]) -> None:
        parent = os.path.dirname(path)
        if parent and parent not in made:
            os.makedirs(f"{self.path}/{parent}", exist_ok=True)
            made.add(parent)

    def _put(self, record: FileRecord, dest: str, lent: Lent) -> None:
        """Put an input in its place. If the store has lost it, the user's directory may have it: it
        came from there, or was published there."""
        try:
            self._store.materialise(record, dest, lent)
        except DamagedError:
            if not self._store.restore(record, f"{self._directory}/{record.path}"):
                what = "is gone, or was damaged and is gone now"
                raise DamagedError(record.path, record.digest, what) from None
            clear_away(dest, self._aside)
            self._store.materialise(record, dest, lent)

    def written_inputs(self) -> list[str]:
        """The inputs that the task wrote to, or tried to."""
        return [*self._lent.written_to(), *self._standing.lent.written_to()]

    def lease_wanted(self) -> bool:
        """Whether something waits to open an input for writing: until that is given back."""
        loans = (*self._lent.loans, *self._standing.lent.loans)
        return any(loan.wanted() for _, loan in loans)

    def take_outputs(self, job: CommandJob, *, alone: bool) -> tuple[FileRecord, ...]:
        """Move all outputs into the store; unless `alone` (a process is left that may have them
        open), copies of them. Raises StoreError naming all that are missing."""
        missing = [o for o in job.outputs if not os.path.lexists(f"{self.path}/{o}")]
        if missing:
            raise StoreError(self._explain_missing(missing, job))
        inside = tuple(f"{output}/" for output in job.outputs) if len(job.outputs) > 1 else ()
        return tuple(
            self._store.take(
                f"{self.path}/{output}",
                output,
                within=self.path,
                move=alone and not self._shared(output, inside),
            )
            for output in job.outputs
        )

    def take(self, path: str, name: str, *, move: bool) -> FileRecord:
        """Put one file of the directory into the store, to be known by another name."""
        return self._store.take(f"{self.path}/{path}", name, within=self.path, move=move)

    def _shared(self, output: str, inside: tuple[str, ...]) -> bool:
        """Whether another output may need the same file."""
        if not inside:
            return False
        path = f"{self.path}/{output}"
        if os.path.islink(path) or output.startswith(inside):
            return True
        return any(other.startswith(f"{output}/") for other in inside)

    def _explain_missing(self, missing: list[str], job: CommandJob) -> str:
        shown = ", ".join(missing[:20]) + (
            f" and {len(missing) - 20} more" if len(missing) > 20 else ""
        )
        known = {record.path for record in job.inputs}
        present = [path for path in self._files() if path not in known]
        similar = _similar(missing, [path for path in present if path not in job.outputs])
        hint = f" (it made {', '.join(similar)})" if similar else ""
        return f"did not make its output{'s' if len(missing) > 1 else ''} {shown}{hint}"

    def _files(self) -> list[str]:
        """Some of the files that are there, the shallow ones first."""
        found: list[str] = []
        waiting = deque([""])
        while waiting and len(found) < _SIMILAR_LOOKED_AT:
            parent = waiting.popleft()
            try:
                with os.scandir(f"{self.path}/{parent}") as entries:
                    for entry in itertools.islice(entries, _SIMILAR_LOOKED_AT):
                        if entry.is_dir(follow_symlinks=False):
                            waiting.append(f"{parent}{entry.name}/")
                        else:
                            found.append(f"{parent}{entry.name}")
            except OSError:
                pass  # too deep, or closed to us: it only serves a hint
        return found

    def clean(self, *, reusable: bool, again: bool = False) -> bool:
        """Empty the directory; remove it too unless it is `reusable` (no process is left that
        knows it). With `again`, the interpreter of the call that was made here stays for the next
        one: then so does what they share. Whether the directory is still there."""
        self._lent.give_back()
        self._lent = Lent()
        try:
            if reusable and self._is_now() == self._made:
                if again and self._standing.tidy():
                    return True
                self._forget_standing()
                if os.listdir(self.path):
                    empty_directory(self.path)
                return True
        except OSError:
            pass  # it is not as it was: it goes
        self._forget_standing()
        self._made = None
        os.chdir("/")
        clear_away(self.path, self._aside)
        return False

    def clear_unless_for(self, job: CommandJob | None) -> bool:
        """Remove what stands for another call, unless this job would find the same. Whether what is
        there now is the directory that was."""
        if not self._standing.stands or (job is not None and self._standing.serves(job)):
            return True
        return self.clean(reusable=True)

    def _forget_standing(self) -> None:
        self._standing.lent.give_back()
        self._standing = StandingFiles(self.path)

    def _is_now(self) -> tuple[int, int]:
        status = os.lstat(self.path)
        return status.st_ino, status.st_mode


def _similar(missing: list[str], present: list[str]) -> list[str]:
    """Of what is there, what the user may have meant; the closest names first."""
    from difflib import get_close_matches

    found: dict[str, None] = {}
    for path in missing:
        found.update(dict.fromkeys(get_close_matches(path, present, n=3, cutoff=0.5)))
    found.update(dict.fromkeys(sorted(present)))
    return list(found)[:_SIMILAR_SHOWN]
