"""The directory a command runs in: fresh, with its inputs, and emptied afterwards.

Making and removing a directory costs ten times what looking into one does. So the directory of
the last job is used again when it is provably as good as new: emptied, and no process is left
that could write into it.
"""

from __future__ import annotations

import os
import stat

from sureline.peer.content import empty_directory, remove_tree
from sureline.peer.jobs import CommandJob
from sureline.peer.store import BlobStore, StoreError
from sureline.workflow.files import FileRecord

_SIMILAR_SHOWN = 5
_SIMILAR_LOOKED_AT = 1000


class Sandbox:
    def __init__(self, store: BlobStore, work: str, name: str) -> None:
        self._store = store
        self._prefix = f"{work}/{name}-"
        self._count = 0
        self._made = False
        self._mode = 0
        self.path = ""

    def prepare(self, job: CommandJob) -> None:
        """Make the directory, put the inputs in, make room for the outputs, and go there."""
        if not self._made:
            self._count += 1
            self.path = f"{self._prefix}{self._count}"
            try:
                os.mkdir(self.path)
            except FileExistsError:
                remove_tree(self.path)
                os.mkdir(self.path)
            self._mode = os.stat(self.path).st_mode
            self._made = True
        os.chdir(self.path)
        parents: set[str] = set()
        inside = tuple(f"{record.path}/" for record in job.inputs if record.directory)
        for record in job.inputs:
            if inside and record.path.startswith(inside):
                continue  # it comes with its directory
            self._make_parent(record.path, parents)
            self._store.materialise(record, f"{self.path}/{record.path}")
        for output in job.outputs:
            self._make_parent(output, parents)

    def _make_parent(self, path: str, made: set[str]) -> None:
        parent = os.path.dirname(path)
        if parent and parent not in made:
            os.makedirs(f"{self.path}/{parent}", exist_ok=True)
            made.add(parent)

    def damaged_inputs(self, job: CommandJob) -> list[str]:
        """The inputs whose stored copies the task wrote to; those copies are removed."""
        return [
            record.path
            for record in job.inputs
            if not self._store.unchanged(record) and not self._store.intact(record)
        ]

    def take_outputs(self, job: CommandJob) -> tuple[FileRecord, ...]:
        """Move all outputs into the store. Raises StoreError naming all that are missing."""
        missing = [o for o in job.outputs if not os.path.lexists(f"{self.path}/{o}")]
        if missing:
            raise StoreError(self._explain_missing(missing, job))
        return tuple(
            self._store.take(f"{self.path}/{output}", output, within=self.path)
            for output in job.outputs
        )

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
        found: list[str] = []
        for parent, _, names in os.walk(self.path):
            for name in names:
                found.append(os.path.relpath(f"{parent}/{name}", self.path))
                if len(found) == _SIMILAR_LOOKED_AT:
                    return found
        return found

    def clean(self, *, reusable: bool) -> None:
        """Empty the directory; remove it too unless it is `reusable` (no process is left that
        knows it)."""
        os.chdir("/")
        if reusable and os.stat(self.path).st_mode == self._mode:
            if os.listdir(self.path):
                empty_directory(self.path)
            return
        self._made = False
        try:
            os.rmdir(self.path)
        except FileNotFoundError:
            pass
        except OSError:
            if not stat.S_ISDIR(os.lstat(self.path).st_mode):
                os.unlink(self.path)
            remove_tree(self.path)


def _similar(missing: list[str], present: list[str]) -> list[str]:
    """Of what is there, what the user may have meant; the closest names first."""
    from difflib import get_close_matches

    found: dict[str, None] = {}
    for path in missing:
        found.update(dict.fromkeys(get_close_matches(path, present, n=3, cutoff=0.5)))
    found.update(dict.fromkeys(sorted(present)))
    return list(found)[:_SIMILAR_SHOWN]
